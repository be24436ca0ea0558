//! `refit migrate --check`: what it reads of a cluster, what it reports, and that it writes nothing.

use k8s_openapi::api::rbac::v1::Role;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::testenv::context::TestContext;
use crate::testenv::controller::binary;
use crate::testenv::manifest::{self, Manifests};
use crate::workdir::Workdir;

/// The objects of a cluster that runs system-upgrade-controller from its own manifests.
fn cluster(more: &str) -> String {
    let fixtures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let read = |file: &str| std::fs::read_to_string(fixtures.join(file)).unwrap();
    format!(
        "{}\n---\n{}\n---\n{more}",
        read("suc-rbac.yaml"),
        read("suc-deployment.yaml")
    )
}

fn plan(spec: &str) -> String {
    format!(
        "apiVersion: upgrade.cattle.io/v1
kind: Plan
metadata: {{name: agents, namespace: system-upgrade}}
spec: {{version: v1.34.1, nodeSelector: {{}}, serviceAccountName: system-upgrade, upgrade: {{image: i}}, {spec}}}
"
    )
}

fn run(snapshot: &str, line: &str) -> crate::workdir::Ran {
    Workdir::new([("cluster.yaml", snapshot)]).run(&format!("migrate --check --snapshot cluster.yaml {line}"))
}

#[test]
fn a_cluster_on_which_nothing_changes_ends_with_0_and_one_that_changes_with_1() {
    let ran = run(&cluster(&plan("concurrency: 1")), "").ends(0);
    ran.out_starts("SEVERITY")
        .out_has("rancher/system-upgrade-controller:v0.20.1")
        .err_has("1 Plan, 0 Jobs, 0 nodes: 0 actions, 0 changes, ");
    let zero = cluster(&plan("concurrency: 0"));
    run(&zero, "")
        .ends(1)
        .out_has("change")
        .out_has("ConcurrencyZero")
        .err_has("0 actions, 1 change, ");
    let json = run(&zero, "-o json").ends(1).json();
    assert_eq!([&json["actions"], &json["changes"]], [0, 1]);
    let finding = &json["findings"][0];
    assert_eq!(
        [&finding["severity"], &finding["rule"], &finding["object"]],
        ["change", "concurrency-zero", "Plan system-upgrade/agents"]
    );
    let yaml: Value = serde_saphyr::from_str(&run(&zero, "-o yaml").ends(1).out).unwrap();
    assert_eq!(yaml, json, "both formats say the same");
}

#[test]
fn unreadable_objects_end_with_2() {
    run("{", "")
        .ends(2)
        .err_has("cluster.yaml:1: this is neither YAML nor JSON");
    run("", "").ends(2).err_has("there is no object in it");
    let dir = Workdir::new([]);
    dir.run("migrate --check --snapshot none.yaml")
        .ends(2)
        .err_has("none.yaml cannot be read");
    dir.run("migrate --check --kubeconfig none")
        .ends(2)
        .err_has("error: ");
    dir.run("migrate").ends(2).err_has("--check");
}

#[test]
fn a_plan_that_cannot_be_decoded_is_reported_and_hides_no_other() {
    let broken = plan("concurrency: many").replace("name: agents", "name: broken");
    let both = format!("{broken}---\n{}", plan("concurrency: 0"));
    run(&cluster(&both), "")
        .ends(1)
        .out_has("Plan system-upgrade/broken")
        .out_has("Plan system-upgrade/agents");
}

#[test]
fn objects_of_other_namespaces_do_not_count() {
    let elsewhere = plan("concurrency: 0").replace("namespace: system-upgrade", "namespace: other");
    run(&cluster(&elsewhere), "").ends(0).err_has("0 Plans");
    run(&cluster(&elsewhere), "-n other")
        .ends(1)
        .out_has("no Deployment here")
        .out_has("Plan other/agents");
}

#[test]
fn every_rule_is_in_the_table_of_the_document() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let rule = regex::Regex::new(r#"(?s)Severity::\w+,\s*"([a-z-]+)""#).unwrap();
    let mut rules = std::collections::BTreeSet::from(["missing-permission".to_owned()]);
    for (_, code) in crate::layering::sources("migrate") {
        rules.extend(rule.captures_iter(&code).map(|found| found[1].to_owned()));
    }
    let text = std::fs::read_to_string(root.join("docs/migrate.md")).unwrap();
    let (_, table) = text
        .split_once("<!-- migrate: compared with the code by a test -->")
        .unwrap();
    let (table, _) = table.split_once("<!-- end of migrate -->").unwrap();
    let rows = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let listed: std::collections::BTreeSet<String> = rows.map(str::to_owned).collect();
    assert_eq!(listed, rules);
}

/// On a real control plane, with an account that may only read: the reports follow the roles, and nothing is written.
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
    assert!(
        requests
            .forbidden()
            .iter()
            .all(|it| it.resource == "subjectaccessreviews"),
        "{:#?}",
        requests.forbidden()
    );
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
            { "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"], "verbs": ["list"] },
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
