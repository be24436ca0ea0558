//! `refit migrate --check` on a cluster: what it reads there, and that it writes nothing.

use k8s_openapi::api::rbac::v1::Role;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::testenv::context::TestContext;
use crate::testenv::controller::binary;
use crate::testenv::manifest::{self, Manifests};

/// On a real control plane, with an account that may only read and ask for permissions: the reports follow the roles, and
/// nothing is written.
#[tokio::test]
async fn a_cluster_of_system_upgrade_controller_is_only_read() {
    let ctx = TestContext::with(Manifests::Suc).await;
    let deployment =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/suc-deployment.yaml");
    let mut deployment = manifest::parse(&std::fs::read_to_string(deployment).unwrap())
        .unwrap()
        .remove(0);
    deployment["metadata"]["namespace"] = json!(ctx.namespace());
    deployment["spec"]["replicas"] = json!(0);
    manifest::apply(&ctx.client, &deployment).await.unwrap();
    let spec = json!({
        "concurrency": 0, "version": "v1", "serviceAccountName": "system-upgrade", "drain": {},
        "nodeSelector": { "matchLabels": ctx.node_labels() }, "upgrade": { "image": "example.com/upgrade" },
    });
    let object = json!({ "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan",
        "metadata": { "name": "plan", "namespace": ctx.namespace() }, "spec": spec });
    manifest::apply(&ctx.client, &object).await.unwrap();

    let reader = reader(&ctx).await;
    let check = async || {
        let mut command = tokio::process::Command::new(binary());
        command.args([
            "migrate",
            "--check",
            "-o",
            "json",
            "--namespace",
            ctx.namespace(),
            "--kubeconfig",
        ]);
        let output = command.arg(&reader).output().await.unwrap();
        let json: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        (output.status.code(), json)
    };
    let lacks = |report: &Value, permission: &str| {
        let all = report["findings"].as_array().unwrap().iter();
        let mut of_roles = all.filter(|one| one["rule"] == "missing-permission");
        of_roles
            .any(|one| one["severity"] == "action" && one["change"].as_str().unwrap().contains(permission))
    };
    let (code, report) = check().await;
    assert_eq!(code, Some(1), "{report:#}");
    assert!(report.to_string().contains("concurrency-zero"), "{report:#}");
    assert!(!lacks(&report, "create jobs.batch"), "{report:#}");

    // A verb is taken away from its role.
    let roles = Api::<Role>::namespaced(ctx.client.clone(), ctx.namespace());
    let role = roles.get("system-upgrade-controller").await.unwrap();
    let mut rules = role.rules.unwrap();
    for rule in &mut rules {
        rule.verbs.retain(|verb| verb != "create");
    }
    let patch = Patch::Merge(json!({ "rules": rules }));
    roles
        .patch("system-upgrade-controller", &PatchParams::default(), &patch)
        .await
        .unwrap();
    crate::testenv::wait::until(
        "the verb is missed",
        async || check().await.1,
        |report| lacks(report, "create jobs.batch"),
    )
    .await;

    let requests = ctx.requests().await.by(&format!("{}:reader", ctx.namespace()));
    assert!(requests.count("list", "plans") >= 2);
    let writes: Vec<_> = requests
        .writes()
        .filter(|it| it.resource != "subjectaccessreviews")
        .collect();
    assert!(writes.is_empty(), "{writes:#?}");
    assert!(requests.forbidden().is_empty(), "{:#?}", requests.forbidden());
}

/// A kubeconfig of an account with the ClusterRole `view`, and the permission to read what that does not include.
async fn reader(ctx: &TestContext) -> std::path::PathBuf {
    let namespace = ctx.namespace();
    let name = ctx.local_name("reader");
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "reader", "namespace": namespace } });
    let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": name, "labels": { manifest::TEST_LABEL: namespace } },
        "rules": [
            { "apiGroups": [""], "resources": ["nodes", "configmaps"], "verbs": ["list"] },
            { "apiGroups": ["apps", "batch", "upgrade.cattle.io"], "resources": ["deployments", "jobs", "plans"], "verbs": ["list"] },
            { "apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"] },
            { "apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["get"] },
        ] });
    let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": name, "labels": { manifest::TEST_LABEL: namespace } },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
        "subjects": [{ "kind": "ServiceAccount", "name": "reader", "namespace": namespace }] });
    for object in [account, role, binding] {
        manifest::apply(&ctx.client, &object).await.unwrap();
    }
    let token = ctx.token("reader").await;
    ctx.write_kubeconfig("reader.kubeconfig", &token)
}
