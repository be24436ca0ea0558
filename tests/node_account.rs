//! What the account of work on nodes, and a kubelet, may do on a real API server: `deploy/admission.yaml` binds the
//! account to the node of its pod, and NodeRestriction binds a kubelet to its own.

use std::path::Path;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, EvictParams, Patch, PatchParams, PostParams};
use kube::{Client, Config, ResourceExt};
use refit_api::RebootRequest;
use refit_api::names::ANNOTATION_REBOOT_NEEDED;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::create;
use crate::testenv::controller::binary;
use crate::testenv::kubeconfig;
use crate::testenv::manifest;
use crate::testenv::process::Program;
use crate::testenv::wait::{self, SOON};

const ACCOUNT: &str = "system-upgrade";

const AGENT: &str = "system-upgrade-agent";

/// The shipped policies, for the namespace of this test.
async fn apply_policies(ctx: &TestContext) {
    apply_shipped(ctx, &["admission.yaml", "overlays/delete-pods/admission.yaml"]).await;
}

/// Files of `deploy/`, for the namespace of this test.
pub(crate) async fn apply_shipped(ctx: &TestContext, files: &[&str]) {
    for object in files.iter().flat_map(|file| shipped(ctx, file)) {
        manifest::apply(&ctx.client, &object).await.unwrap();
    }
}

/// The objects of a file of `deploy/`, for the namespace of this test.
pub(crate) fn shipped(ctx: &TestContext, file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(file);
    let text = std::fs::read_to_string(path).unwrap();
    let own = ctx.namespace();
    let text = text
        .replace(
            "system:serviceaccount:system-upgrade:",
            &format!("system:serviceaccount:{own}:"),
        )
        .replace(
            "request.namespace != 'system-upgrade'",
            &format!("request.namespace != '{own}'"),
        )
        .replace("name: system-upgrade-", &format!("name: {own}-"))
        .replace("policyName: system-upgrade-", &format!("policyName: {own}-"))
        .replace("namespace: system-upgrade\n", &format!("namespace: {own}\n"))
        .replace(":system-upgrade-agent'", &format!(":{own}-agent'"));
    manifest::parse(&text).unwrap()
}

async fn pod_on(ctx: &TestContext, name: &str, node: &str) -> Pod {
    pod_of(ctx, name, node, ACCOUNT).await
}

pub(crate) async fn pod_of(ctx: &TestContext, name: &str, node: &str, account: &str) -> Pod {
    create(
        &ctx.pods(),
        json!({
            "metadata": { "name": name },
            "spec": {
                "nodeName": node, "serviceAccountName": account, "terminationGracePeriodSeconds": 0,
                "containers": [{ "name": "main", "image": "example.com/main" }],
            },
        }),
    )
    .await
}

/// A client with the token that the kubelet would mount into this pod.
async fn client_of(ctx: &TestContext, pod: &Pod) -> Client {
    client_with(ctx, &pod.name_any(), &ctx.token_of(ACCOUNT, pod).await).await
}

pub(crate) async fn client_with(ctx: &TestContext, name: &str, token: &str) -> Client {
    let path = ctx.write_kubeconfig(name, token);
    kubeconfig::client(&path, "node-account").await.unwrap()
}

pub(crate) async fn patch(client: &Client, node: &str, patch: Value) -> Result<(), String> {
    let nodes = Api::<Node>::all(client.clone());
    let answer = nodes
        .patch(node, &PatchParams::default(), &Patch::Merge(patch))
        .await;
    answer.map(drop).map_err(|error| error.to_string())
}

#[tokio::test]
async fn the_account_of_work_on_nodes_changes_its_own_node_only_and_of_that_only_a_cordon() {
    let ctx = TestContext::new().await;
    let _kubelet = ctx.run_nodes(2).await;
    let nodes: Vec<_> = ctx.my_nodes().await.iter().map(ResourceExt::name_any).collect();
    let [one, two] = &nodes[..] else {
        panic!("{nodes:?}")
    };
    let pod = pod_on(&ctx, "work", one).await;
    let account = client_of(&ctx, &pod).await;
    let cordon = || json!({ "spec": { "unschedulable": true }, "metadata": { "annotations": { "refit.rs/cordon": "x" } } });
    // Without the policy the role allows all nodes.
    patch(
        &account,
        two,
        json!({ "metadata": { "annotations": { "before": "x" } } }),
    )
    .await
    .unwrap();

    apply_policies(&ctx).await;
    let refused = wait::eventually("the policy is in force", SOON, async || {
        let tried = patch(
            &account,
            two,
            json!({ "metadata": { "annotations": { "now": ctx.now().to_string() } } }),
        );
        tried
            .await
            .err()
            .ok_or_else(|| "the patch was admitted".to_owned())
    })
    .await;
    assert!(
        refused.contains(&format!(
            "this token is bound to node {one} and may not change node {two}"
        )),
        "{refused}"
    );
    for (what, node, change, word) in [
        ("another node", two, cordon(), "bound to node"),
        (
            "a label",
            one,
            json!({ "metadata": { "labels": { "a": "b" } } }),
            "labels",
        ),
        (
            "a restricted label",
            one,
            json!({ "metadata": { "labels": { "x.node-restriction.kubernetes.io/a": "b" } } }),
            "labels",
        ),
        (
            "an annotation",
            one,
            json!({ "metadata": { "annotations": { "a": "b" } } }),
            "annotations",
        ),
        (
            "the record",
            one,
            json!({ "metadata": { "annotations": { "plan.refit.rs/p": "{}" } } }),
            "annotations",
        ),
        (
            "a finalizer",
            one,
            json!({ "metadata": { "finalizers": ["example.com/a"] } }),
            "finalizers",
        ),
        (
            "a taint",
            one,
            json!({ "spec": { "taints": [{ "key": "a", "effect": "NoSchedule" }] } }),
            "unschedulable",
        ),
    ] {
        let answer = patch(&account, node, change).await.expect_err(what);
        assert!(answer.contains(word), "{what}: {answer}");
    }
    // A token that no pod is bound to.
    let unbound = client_with(&ctx, "unbound", &ctx.token(ACCOUNT).await).await;
    let answer = patch(&unbound, one, cordon())
        .await
        .expect_err("an unbound token");
    assert!(answer.contains("bound to no node"), "{answer}");

    // What a drain does.
    patch(&account, one, cordon()).await.unwrap();
    let note = json!({ "metadata": { "annotations": { "refit.rs/drain": "x" } } });
    patch(&account, one, note).await.unwrap();
    let back = json!({
        "spec": { "unschedulable": null },
        "metadata": { "annotations": { "refit.rs/cordon": null, "refit.rs/drain": null } },
    });
    patch(&account, one, back).await.unwrap();
    // Others are not bound.
    ctx.cordon(two).await;

    // Evictions and deletions.
    let pods = Api::<Pod>::namespaced(account.clone(), ctx.namespace());
    pod_on(&ctx, "apply-p-on-two-with-x-abcde", two).await;
    pod_on(&ctx, "web-on-two", two).await;
    pod_on(&ctx, "web-on-one", one).await;
    let refused = wait::eventually("the policy of evictions is in force", SOON, async || {
        let how = EvictParams {
            post_options: PostParams {
                dry_run: true,
                ..PostParams::default()
            },
            ..EvictParams::default()
        };
        let tried = pods.evict("apply-p-on-two-with-x-abcde", &how).await;
        tried
            .err()
            .map(|error| error.to_string())
            .ok_or_else(|| "admitted".to_owned())
    })
    .await;
    assert!(refused.contains("evicts no pods of upgrades"), "{refused}");
    for role in ["verify", "prepull", "reboot", "ask", "before", "after"] {
        let name = format!("{role}-p-on-two-with-x-abcde");
        pod_on(&ctx, &name, two).await;
        let refused = pods.evict(&name, &EvictParams::default()).await.unwrap_err();
        assert!(
            refused.to_string().contains("evicts no pods of upgrades"),
            "{refused}"
        );
    }
    pods.evict("web-on-two", &EvictParams::default()).await.unwrap();
    let at_once = DeleteParams::default().grace_period(0);
    let refused = wait::eventually("the policy of deletions is in force", SOON, async || {
        let dry = at_once.clone().dry_run();
        let tried = pods.delete("apply-p-on-two-with-x-abcde", &dry).await;
        tried
            .err()
            .map(|error| error.to_string())
            .ok_or_else(|| "admitted".to_owned())
    })
    .await;
    assert!(refused.contains("bound to another node"), "{refused}");
    pods.delete("web-on-one", &at_once).await.unwrap();
}

/// The request that a Node has.
async fn reboot_request(ctx: &TestContext, node: &str) -> Option<RebootRequest> {
    let node = ctx.node(node).await;
    let text = node.annotations().get(ANNOTATION_REBOOT_NEEDED)?;
    Some(RebootRequest::parse(text).unwrap_or_else(|| panic!("{text}")))
}

#[tokio::test]
async fn an_agent_reports_on_its_own_node_that_a_reboot_is_due_and_may_change_nothing_else() {
    let ctx = TestContext::new().await;
    let _kubelet = ctx.run_nodes(2).await;
    let nodes: Vec<_> = ctx.my_nodes().await.iter().map(ResourceExt::name_any).collect();
    let [one, two] = &nodes[..] else {
        panic!("{nodes:?}")
    };
    let own = ctx.namespace().to_owned();
    apply_shipped(&ctx, &["overlays/agent/rbac.yaml"]).await;
    let account = format!("{own}-{}", AGENT.strip_prefix("system-upgrade-").unwrap());
    let pod = pod_of(&ctx, "agent", one, &account).await;
    let token = ctx.token_of(&account, &pod).await;
    let agent = client_with(&ctx, "agent", &token).await;
    let annotate =
        |value: &str| json!({ "metadata": { "annotations": { ANNOTATION_REBOOT_NEEDED: value } } });
    // Without the policy the role allows all nodes.
    patch(&agent, two, annotate("x")).await.unwrap();
    apply_shipped(&ctx, &["overlays/agent/admission.yaml"]).await;
    let refused = wait::eventually("the policy is in force", SOON, async || {
        let tried = patch(&agent, two, annotate(&ctx.now().to_string())).await;
        tried.err().ok_or_else(|| "the patch was admitted".to_owned())
    })
    .await;
    assert!(
        refused.contains(&format!("bound to node {one} and may not change node {two}")),
        "{refused}"
    );
    for change in [
        json!({ "metadata": { "labels": { "a": "b" } } }),
        json!({ "metadata": { "annotations": { "refit.rs/cordon": "x" } } }),
        json!({ "spec": { "unschedulable": true } }),
    ] {
        let refused = patch(&agent, one, change.clone())
            .await
            .expect_err("more than the annotation");
        assert!(refused.contains("but"), "{change}: {refused}");
    }

    // The agent itself, on a host whose root is a folder.
    let host = ctx.dir().join("host");
    std::fs::create_dir_all(host.join("run")).unwrap();
    let file = host.join("run/reboot-required");
    std::fs::write(host.join("run/reboot-required.pkgs"), "linux-image-6.8\nlibc6\n").unwrap();
    let kubeconfig = ctx.write_kubeconfig("agent-process", &token);
    let start = || {
        let program = Program::new("agent", binary(), ctx.dir())
            .args(["agent", "--period", "1s", "--node"])
            .arg(one)
            .args(["--host".into(), host.clone().into_os_string()])
            .args(["--kubeconfig".into(), kubeconfig.clone().into_os_string()]);
        program.start().unwrap()
    };
    let process = start();
    std::fs::write(&file, "*** System restart required ***\n").unwrap();
    let wanted = async || reboot_request(&ctx, one).await;
    let request = wait::until("the node needs a reboot", wanted, Option::is_some)
        .await
        .unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert_eq!(request.boot_id.as_deref(), Some(boot.trim()));
    assert_eq!(request.reasons, ["/run/reboot-required"]);
    assert_eq!(request.packages, ["linux-image-6.8", "libc6"]);
    assert_eq!(request.survived, 0);

    // Another agent finds what the first has written, and takes it back when the file is gone.
    process.kill();
    std::fs::remove_file(&file).unwrap();
    let process = start();
    wait::until("the node needs no reboot", wanted, Option::is_none).await;
    // The line follows the answer to the patch, which the node shows before.
    let said = async || process.log();
    wait::until("the agent says so", said, |log| {
        log.contains("needs no reboot any more")
    })
    .await;
    process.signal(Signal::TERM);
    assert_eq!(process.end(SOON).await.and_then(|status| status.code()), Some(0));
}

/// A client that acts as the kubelet of a node.
async fn kubelet_of(ctx: &TestContext, node: &str) -> Client {
    let mut config: Config = kubeconfig::load(&ctx.test_env.kubeconfig(), "hostile-kubelet")
        .await
        .unwrap();
    config.auth_info.impersonate = Some(format!("system:node:{node}"));
    config.auth_info.impersonate_groups =
        Some(vec!["system:nodes".to_owned(), "system:authenticated".to_owned()]);
    Client::try_from(config).unwrap()
}

/// The assumptions of docs/security.md about kubelets.
#[tokio::test]
async fn a_kubelet_can_change_no_other_node_and_give_its_pods_no_owner_but_its_node() {
    let ctx = TestContext::new().await;
    let _kubelet = ctx.run_nodes(2).await;
    let nodes: Vec<_> = ctx.my_nodes().await.iter().map(ResourceExt::name_any).collect();
    let [one, two] = &nodes[..] else {
        panic!("{nodes:?}")
    };
    let kubelet = kubelet_of(&ctx, one).await;
    for change in [
        json!({ "metadata": { "annotations": { "refit.rs/cordon": "x" } } }),
        json!({ "metadata": { "labels": { "plan.upgrade.cattle.io/p": "x" } } }),
        json!({ "spec": { "unschedulable": true } }),
    ] {
        let refused = patch(&kubelet, two, change).await.expect_err("another node");
        assert!(refused.contains("is forbidden"), "{refused}");
    }
    patch(
        &kubelet,
        one,
        json!({ "metadata": { "annotations": { "refit.rs/cordon": "x" } } }),
    )
    .await
    .unwrap();

    let uid = ctx.node(one).await.uid().unwrap();
    let owner = |kind: &str, version: &str, name: &str, uid: &str| json!([{ "apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true }]);
    let pods = Api::<Pod>::namespaced(kubelet, ctx.namespace());
    let pod = |node: &str, owners: Value| -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "name": "reboot-p-on-two-0123456789abcdef", "ownerReferences": owners,
                "annotations": { "kubernetes.io/config.mirror": "x" },
            },
            "spec": { "nodeName": node, "containers": [{ "name": "reboot", "image": "example.com/static" }] },
        }))
        .unwrap()
    };
    let how = PostParams::default();
    let plan = owner("Plan", "upgrade.cattle.io/v1", "p", "u");
    let job = owner("Job", "batch/v1", "j", "u");
    for (node, owners) in [(one, plan), (one, job), (two, owner("Node", "v1", two, "u"))] {
        let refused = pods
            .create(&how, &pod(node, owners))
            .await
            .unwrap_err()
            .to_string();
        assert!(refused.contains("forbidden"), "{refused}");
    }
    pods.create(&how, &pod(one, owner("Node", "v1", one, &uid)))
        .await
        .unwrap();
}
