//! What nodes say against a Plan that installs Kubernetes: they are newer than its version, or its upgrade changes nothing.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use refit_api::{NodePhase, Plan};
use serde_json::json;

use crate::harness::Harness;
use crate::steering::UserCli;
use crate::testenv::binaries::kubernetes_version;
use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::create;
use crate::testenv::plan::{says, status};
use crate::testenv::wait::{self, SOON};

/// A version in between, which no test gives to a node of the control plane.
const OLD: &str = "v1.36.2+k3s1";

/// The version of the API server, as K3s builds it.
fn new() -> String {
    format!("{}+k3s1", kubernetes_version())
}

async fn harness() -> Harness {
    Harness::with(["one"], |set| {
        set.each(|_, node| OLD.clone_into(&mut node.kubelet_version))
    })
    .await
}

async fn reports(harness: &Harness, version: &str) {
    let status = json!({ "status": { "nodeInfo": { "kubeletVersion": version } } });
    let nodes = Api::<Node>::all(harness.ctx.client.clone());
    nodes
        .patch_status(
            &harness.node("one"),
            &PatchParams::default(),
            &Patch::Strategic(status),
        )
        .await
        .unwrap();
}

fn differs(plan: &Plan) -> Vec<(String, String)> {
    let entries = status(plan).version_differs.unwrap_or_default();
    let entries = entries.into_iter();
    entries
        .map(|it| {
            (
                it.kubelet_version,
                it.reason.map(|reason| reason.to_string()).unwrap_or_default(),
            )
        })
        .collect()
}

#[tokio::test]
async fn a_node_that_is_newer_than_the_version_does_not_start_and_a_dependency_that_selects_nothing_is_not_complete()
 {
    let harness = harness().await;
    let _controller = harness.ctx.start_and_warm_up().await;
    let spec = json!({ "version": "v1.35.9+k3s1", "upgrade": { "image": "rancher/k3s-upgrade" } });
    harness.plan_with("p", spec).await;
    harness.held_up("p", "one", "NodeIsNewer").await;
    let cli = UserCli::admin(&harness);
    let node = harness.node("one");
    cli.refit(&format!("explain p {node}"))
        .await
        .ends(1)
        .says("NodeIsNewer")
        .says(OLD);
    assert!(harness.ctx.jobs_of("p").await.is_empty());
    // It is the Plan's own version that allows it.
    let none = json!({ "nodeSelector": { "matchLabels": { "role": "none" } } });
    harness.plan_with("none", none).await;
    harness
        .edit(
            "p",
            json!({ "version": new(), "dependsOn": [{ "name": "none" }] }),
        )
        .await;
    harness.held_up("p", "one", "DependencySelectsNothing").await;
    harness.edit("p", json!({ "dependsOn": null })).await;
    harness.complete("p").await;
}

#[tokio::test]
async fn an_upgrade_that_changes_nothing_is_not_said_to_have_upgraded_and_a_node_that_drifts_runs_again() {
    let harness = harness().await;
    let mut controller = harness.ctx.start_and_warm_up().await;
    let spec = json!({
        "version": new(), "upgrade": { "image": "rancher/k3s-upgrade" }, "onDrift": "Rerun",
    });
    harness.plan_with("p", spec).await;
    harness.complete("p").await;
    let text = format!("(VersionDiffers {OLD})");
    let is_named = |plan: &Plan| says(plan, "Complete").contains(&text);
    let plan = harness
        .ctx
        .plan_until("p", "names the node", SOON, is_named)
        .await;
    assert_eq!(differs(&plan), [(OLD.to_owned(), "VersionDiffers".to_owned())]);
    let (cli, node) = (UserCli::admin(&harness), harness.node("one"));
    let why = format!("its kubelet has {OLD}");
    cli.refit(&format!("explain p {node}"))
        .await
        .ends(1)
        .says("counts as done")
        .says(&why)
        .says("VersionDiffers");
    cli.refit("status p")
        .await
        .ends(0)
        .says("VersionDiffers")
        .says(&why);
    cli.refit("report p")
        .await
        .ends(0)
        .says("VersionDiffers")
        .says(&why);

    // It gets the version, goes back while no controller runs, and is upgraded again: this time to some effect.
    reports(&harness, &new()).await;
    let is_right = |plan: &Plan| differs(plan).is_empty();
    harness
        .ctx
        .plan_until("p", "sees the version", SOON, is_right)
        .await;
    let done = cli.refit(&format!("explain p {node}")).await;
    done.ends(0).says("has upgraded it to");
    controller.kill();
    reports(&harness, OLD).await;
    harness.hold("one").await;
    controller = controller.start_again();
    let drifted = |plan: &Plan| differs(plan) == [(OLD.to_owned(), "Drifted".to_owned())];
    harness.ctx.plan_until("p", "has drifted", SOON, drifted).await;
    let progress = harness.upgrading("p", "one").await;
    assert_eq!(progress.phase, NodePhase::Upgrading);
    reports(&harness, &new()).await;
    harness.release("one").await;
    harness.complete("p").await;
    assert_eq!(harness.runs("one", "upgrade").await, 2);
    drop(controller);
}

#[tokio::test]
async fn a_server_of_kubeadm_whose_member_of_etcd_is_not_ready_counts_as_down_for_the_majority() {
    let servers = ["one", "two", "three"];
    let harness = Harness::on(TestContext::alone().await, servers, |set| {
        set.label("node-role.kubernetes.io/control-plane", "true")
    })
    .await;
    // The mirror pod of the static pod of kubeadm.
    let pods = Api::<Pod>::namespaced(harness.ctx.client.clone(), "kube-system");
    let name = format!("etcd-{}", harness.node("two"));
    let pod = json!({
        "metadata": { "name": name, "labels": { "component": "etcd" } },
        "spec": { "nodeName": harness.node("two"), "containers": [{ "name": "etcd", "image": "etcd" }] },
    });
    create::<Pod>(&pods, pod).await;
    let is_ready = |pod: &Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|it| it.type_ == "Ready" && it.status == "True")
    };
    wait::object(pods.clone(), &name, "is Ready", SOON, is_ready).await;
    let set_ready = async |ready: &str| {
        let status = json!({ "status": { "conditions": [{ "type": "Ready", "status": ready }] } });
        let (params, patch) = (PatchParams::default(), Patch::Strategic(status));
        pods.patch_status(&name, &params, &patch).await.unwrap();
    };
    set_ready("False").await;
    let _controller = harness.ctx.controller().start();
    harness
        .plan_with("p", json!({ "cordon": true, "concurrency": 3 }))
        .await;
    for node in ["one", "three"] {
        let held = harness.held_up("p", node, "ControlPlaneQuorum").await;
        let says = held.message.unwrap();
        let voteless = format!("without a vote in etcd: {}", harness.node("two"));
        assert!(says.contains(&voteless), "{says}");
        let about: Vec<_> = held.about.iter().map(|object| &*object.name).collect();
        assert_eq!(about, [harness.node("two")]);
    }
    set_ready("True").await;
    harness.complete("p").await;
    let now = DeleteParams::default().grace_period(0);
    pods.delete(&name, &now).await.unwrap();
}
