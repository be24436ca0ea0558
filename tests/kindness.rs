//! What a roll-out does for load balancers, autoscalers, evicted pods and slow registries, and that nothing of it is left.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use refit::api::NodeMark;
use serde_json::json;

use crate::scenario::Backend;
use crate::testenv::wait;

scenarios! {
    both { marks_taints_and_early_images_are_there_in_time_and_gone_at_the_end }
}

/// Whether the node has the taint of nodes that the Plan is still to upgrade.
fn is_pending(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints
        .into_iter()
        .any(|taint| taint.key == "pending.refit.rs/p" && taint.effect == "PreferNoSchedule")
}

/// How many marks the node has.
fn marks(node: &Node) -> usize {
    let meta = &node.metadata;
    let has = |mark: &NodeMark| {
        let of_kind = if mark.is_label() {
            &meta.labels
        } else {
            &meta.annotations
        };
        of_kind.as_ref().is_some_and(|all| all.contains_key(mark.key()))
    };
    NodeMark::ALL.iter().filter(|mark| has(mark)).count()
}

async fn marks_taints_and_early_images_are_there_in_time_and_gone_at_the_end(on: Backend) {
    let harness = on.held(["one", "two"]).await;
    let controller = harness.ctx.controller().start();
    let drain = json!({
        "force": true, "waitForDetach": true, "excludeFromLoadBalancers": true, "preventScaleDown": true,
        "avoidPendingNodes": true,
    });
    harness
        .plan_with("p", json!({ "drain": drain, "prepull": true }))
        .await;
    let (first, second) = harness.first_of_two("p").await;
    harness.upgrading("p", first).await;
    let states = async || {
        let (first, second) = (harness.get(first).await, harness.get(second).await);
        [&first, &second].map(|node| (marks(node), is_pending(node)))
    };
    wait::until("the first node is in progress", states, |states| {
        *states == [(3, true), (0, true)]
    })
    .await;
    let api = Api::<Job>::namespaced(harness.ctx.client.clone(), harness.ctx.namespace());
    let early = async || {
        let labelled = ListParams::default().labels("refit.rs/prepull=true");
        let jobs = api.list(&labelled).await.expect("Jobs").items;
        let succeeded = |job: &Job| job.status.as_ref().and_then(|status| status.succeeded) == Some(1);
        jobs.iter().filter(|job| succeeded(job)).count()
    };
    wait::until("the next node has pulled the image", early, |pulled| *pulled == 1).await;

    controller.kill();
    let _again = controller.start_again();
    harness.release(first).await;
    harness.upgrading("p", second).await;
    wait::until("only the second node is in progress", states, |states| {
        *states == [(0, false), (3, true)]
    })
    .await;
    harness.release(second).await;
    harness.complete("p").await;
    wait::until("nothing is left", states, |states| *states == [(0, false); 2]).await;
}
