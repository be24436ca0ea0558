//! What simulated kubelets report about their nodes.

use std::pin::pin;
use std::time::Duration;

use futures::TryStreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;

use super::with_nodes;
use crate::testenv::wait::{self, SOON};

fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), "kube-node-lease")
}

fn ready(node: &Node) -> (&str, &str) {
    let conditions = node.status.as_ref().unwrap().conditions.as_ref().unwrap();
    let ready = conditions
        .iter()
        .find(|condition| condition.type_ == "Ready")
        .unwrap();
    (&ready.status, ready.reason.as_deref().unwrap_or_default())
}

fn taints(node: &Node) -> Vec<&str> {
    node.spec
        .as_ref()
        .unwrap()
        .taints
        .iter()
        .flatten()
        .map(|taint| taint.key.as_str())
        .collect()
}

fn boot_id(node: &Node) -> &str {
    &node.status.as_ref().unwrap().node_info.as_ref().unwrap().boot_id
}

#[tokio::test]
async fn leases_are_renewed_while_there_is_power() {
    let (ctx, kubelets, names) = with_nodes(&["n", "other"], |mut nodes| {
        nodes.lease_interval = Duration::from_millis(200);
        nodes
    })
    .await;
    let leases = leases(&ctx.client);
    let renewed = |lease: &Lease| lease.spec.as_ref().unwrap().renew_time.clone().unwrap().0;
    let first = wait::object(leases.clone(), &names[0], "is there", SOON, |_| true).await;
    assert_eq!(
        first.owner_references()[0].uid,
        ctx.node(&names[0]).await.uid().unwrap()
    );
    let since = renewed(&first);
    wait::object(leases.clone(), &names[0], "is renewed", SOON, |lease| {
        renewed(lease) > since
    })
    .await;

    kubelets.power_off(&names[0]).await;
    // One renewal may have been under way. The other node has the same interval.
    let renewals = async || {
        let [one, other] = [0, 1].map(|index| leases.get(&names[index]));
        (renewed(&one.await.unwrap()), renewed(&other.await.unwrap()))
    };
    let mut last = renewals().await;
    let mut of_other = 0;
    let what = "nobody renews the Lease of a node without power, while another is renewed five times";
    let last = wait::eventually(what, SOON, async || {
        let now = renewals().await;
        if now.0 != last.0 {
            of_other = 0;
        } else if now.1 != last.1 {
            of_other += 1;
        }
        last = now;
        if of_other >= 5 {
            Ok(now.0)
        } else {
            Err(format!("{now:?}"))
        }
    })
    .await;

    kubelets.power_on(&names[0]).await;
    wait::object(leases, &names[0], "is renewed again", SOON, |lease| {
        renewed(lease) > last
    })
    .await;
}

#[tokio::test]
async fn a_lost_node_is_tainted_until_it_is_back() {
    let (ctx, kubelets, names) = with_nodes(&["n"], |nodes| nodes).await;
    kubelets.power_off(&names[0]).await;
    kubelets.declare_lost(&names[0]).await;
    let node = ctx.node(&names[0]).await;
    assert_eq!(ready(&node), ("Unknown", "NodeStatusUnknown"));
    let tainted = |node: &Node| taints(node).contains(&"node.kubernetes.io/unreachable");
    ctx.node_until(&names[0], "is tainted as unreachable", SOON, tainted)
        .await;

    kubelets.power_on(&names[0]).await;
    let node = ctx
        .node_until(&names[0], "has lost its taints", SOON, |node| {
            taints(node).is_empty()
        })
        .await;
    assert_eq!(ready(&node).0, "True");
}

#[tokio::test]
async fn a_kubelet_whose_node_was_declared_lost_reports_ready_again() {
    let (ctx, _kubelets, names) = with_nodes(&["n"], |nodes| nodes).await;
    // As the node controller does when no Lease was renewed, because the API server was down.
    let lost = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}});
    let node = ctx
        .nodes()
        .patch_status(&names[0], &PatchParams::default(), &Patch::Strategic(lost))
        .await
        .unwrap();
    assert_eq!(ready(&node).0, "Unknown");
    ctx.node_until(&names[0], "is Ready and has lost its taints", SOON, |node| {
        ready(node).0 == "True" && taints(node).is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_reboot_is_reported_step_by_step() {
    let (ctx, kubelets, names) = with_nodes(&["n", "other"], |nodes| nodes).await;
    let before = ctx.node(&names[0]).await;
    let moment = Duration::from_millis(100);
    kubelets.reboot_taking(&names[0], moment, moment).await;
    let only = WatchParams::default().fields(&format!("metadata.name={}", names[0]));
    let changes = ctx
        .nodes()
        .watch(&only, &before.resource_version().unwrap())
        .await;
    let mut changes = pin!(changes.unwrap());
    let mut steps = Vec::new();
    while steps.last() != Some(&("True".to_owned(), true)) {
        let Some(WatchEvent::Modified(node)) = changes.try_next().await.unwrap() else {
            panic!("the watch has ended after {steps:?}");
        };
        steps.push((ready(&node).0.to_owned(), boot_id(&node) != boot_id(&before)));
        steps.dedup();
    }
    steps.retain(|step| *step != ("True".to_owned(), false));
    let step = |ready: &str, is_another_boot| (ready.to_owned(), is_another_boot);
    assert_eq!(
        steps,
        [step("False", false), step("False", true), step("True", true)]
    );
    let after = ctx.node(&names[0]).await;
    assert_eq!(boot_id(&after), kubelets.boot_id(&names[0]).await);
    assert_eq!(
        (kubelets.boots(&names[0]).await, kubelets.boots(&names[1]).await),
        (2, 1)
    );
}
