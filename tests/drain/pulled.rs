//! Plans that release a node while the image of its drain is pulled: the node is not cordoned yet, and the drain may
//! begin at any time.

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::json;

use super::DrainHarness;
use super::plans::{guarded_node, is_released, job_pods, make};
use crate::harness::{hash, label};
use crate::testenv::wait::{self, SOON};

/// How a Plan releases a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Release {
    Deleted,
    Deselected,
    Disabled,
    Replaced,
}

const PLAN: &str = "k3s";

impl Release {
    const ALL: [Self; 4] = [Self::Deleted, Self::Deselected, Self::Disabled, Self::Replaced];

    async fn apply(self, harness: &DrainHarness) {
        let ctx = &harness.ctx;
        match self {
            Self::Deleted => {
                ctx.delete_plan(PLAN).await;
            }
            Self::Deselected => {
                let no_nodes = json!({ "spec": { "nodeSelector": { "matchLabels": { "no": "such" } } } });
                ctx.edit_plan(PLAN, no_nodes).await;
            }
            Self::Disabled => {
                ctx.label_node(&harness.node("one"), &label(PLAN), Some("disabled"))
                    .await;
            }
            Self::Replaced => {
                ctx.edit_plan(PLAN, json!({ "spec": { "version": "v2" } })).await;
            }
        }
    }
}

/// The pod of the Plan, once it is on the node.
async fn bound(harness: &DrainHarness) -> Pod {
    let mut found = None;
    wait::eventually("the pod is on its node", SOON, async || {
        found = job_pods(harness, PLAN).await.pop();
        match &found {
            Some(pod) if pod.spec.as_ref().unwrap().node_name.is_some() => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    found.unwrap()
}

/// With `absent`, no controller runs while the Plan releases the node and the image is pulled.
async fn release_node(release: Release, absent: bool) {
    let harness = guarded_node().await;
    let node = harness.node("one");
    harness
        .kubelet
        .behaviour(&node, &[("start-delay", "never")])
        .await;
    let mut controller = harness.ctx.controller().start();
    make(&harness, PLAN, json!({ "drain": {} })).await;
    let pod = bound(&harness).await;
    if absent {
        controller.kill();
    }
    release.apply(&harness).await;
    if !absent && release != Release::Deleted {
        let generation = harness.ctx.plans().get(PLAN).await.unwrap().metadata.generation;
        let seen = |plan: &refit_api::Plan| {
            let status = plan.status.as_ref().unwrap();
            status.observed_generation == generation
                && (release != Release::Disabled || status.nodes.unwrap().disabled == 1)
        };
        harness.ctx.plan_until(PLAN, "is seen", SOON, seen).await;
    }
    harness.kubelet.behaviour(&node, &[("start-delay", "20ms")]).await;
    if absent {
        if release == Release::Deleted {
            wait::gone(harness.ctx.pods(), &pod.name_any(), SOON).await;
        } else {
            // No controller cancels the drain, so it begins, and waits for its budget.
            wait::holds("the drain has cordoned the node", async || {
                harness.is_cordoned("one").await
            })
            .await;
        }
        controller = controller.start_again();
    }
    wait::eventually("the pod is gone or has failed", SOON, async || {
        let seen = harness.ctx.pods().get_opt(&pod.name_any()).await.unwrap();
        match seen.and_then(|pod| pod.status?.phase) {
            Some(phase) if phase != "Failed" => Err(phase),
            _ => Ok(()),
        }
    })
    .await;
    if release == Release::Replaced {
        harness.open("guard").await;
        let plan = harness.ctx.plan_complete(PLAN, SOON).await;
        let done = harness.ctx.node(&node).await;
        assert_eq!(done.labels()[&label(PLAN)], hash(&plan), "{release:?} {absent}");
    }
    is_released(&harness).await;
    let upgrades = u32::from(release == Release::Replaced);
    assert_eq!(
        harness.kubelet.runs(&node, "upgrade").await,
        upgrades,
        "{release:?} {absent}"
    );
    assert_eq!(harness.ctx.events_with("JobFailed").await, []);
    drop(controller);
}

#[tokio::test]
async fn a_plan_that_releases_a_node_before_its_drain_begins_leaves_the_node_as_it_was() {
    join_all(Release::ALL.map(|release| release_node(release, false))).await;
}

#[tokio::test]
async fn a_controller_that_did_not_run_during_the_drain_releases_the_node() {
    for release in Release::ALL {
        release_node(release, true).await;
    }
}
