//! Plans that let go of a node while the image of its drain is pulled: nothing has been cordoned then, and nobody can tell
//! when the drain will begin.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::json;

use super::plans::{given_back, held_up, job_pods, make};
use super::{A_WHILE, Bench};
use crate::scene::{hash, label};
use crate::support::wait;

/// How a Plan lets go of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Deleted,
    Deselected,
    Disabled,
    Replaced,
}

const PLAN: &str = "k3s";

impl Way {
    async fn go(self, bench: &Bench) {
        let world = &bench.world;
        match self {
            Self::Deleted => {
                world
                    .plans()
                    .delete(PLAN, &DeleteParams::default())
                    .await
                    .unwrap();
            }
            Self::Deselected => {
                let nobody = json!({ "spec": { "nodeSelector": { "matchLabels": { "no": "such" } } } });
                world.edit_plan(PLAN, nobody).await;
            }
            Self::Disabled => {
                world
                    .label_node(&bench.node("one"), &label(PLAN), Some("disabled"))
                    .await;
            }
            Self::Replaced => {
                world
                    .edit_plan(PLAN, json!({ "spec": { "version": "v2" } }))
                    .await;
            }
        }
    }
}

/// The pod of the Plan, once it is on the node.
async fn bound(bench: &Bench) -> Pod {
    let mut found = None;
    wait::eventually("the pod is on its node", A_WHILE, async || {
        found = job_pods(bench, PLAN).await.pop();
        match &found {
            Some(pod) if pod.spec.as_ref().unwrap().node_name.is_some() => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    found.unwrap()
}

/// `absent`: no controller runs while the Plan lets go and the image comes.
async fn let_go(way: Way, absent: bool) {
    let bench = held_up().await;
    let node = bench.node("one");
    bench.kubelet.behaviour(&node, &[("start-delay", "never")]).await;
    let mut controller = bench.world.controller().start();
    make(&bench, PLAN, json!({ "drain": {} })).await;
    let pod = bound(&bench).await;
    if absent {
        controller.kill();
    }
    way.go(&bench).await;
    if !absent && way != Way::Deleted {
        let generation = bench.world.plans().get(PLAN).await.unwrap().metadata.generation;
        let seen = |plan: &refit::api::Plan| {
            let status = plan.status.as_ref().unwrap();
            status.observed_generation == generation
                && (way != Way::Disabled || status.nodes.unwrap().disabled == 1)
        };
        bench.world.plan_until(PLAN, "is seen", A_WHILE, seen).await;
    }
    bench.kubelet.behaviour(&node, &[("start-delay", "20ms")]).await;
    if absent {
        if way == Way::Deleted {
            wait::gone(bench.world.pods(), &pod.name_any(), A_WHILE).await;
        } else {
            // Nobody tells the drain: it begins, and its budget holds it.
            wait::eventually("the drain has cordoned the node", A_WHILE, async || {
                if bench.is_cordoned("one").await {
                    Ok(())
                } else {
                    Err("it has not".to_owned())
                }
            })
            .await;
        }
        controller = controller.start_again();
    }
    wait::eventually("the pod is gone or has failed", A_WHILE, async || {
        let seen = bench.world.pods().get_opt(&pod.name_any()).await.unwrap();
        match seen.and_then(|pod| pod.status?.phase) {
            Some(phase) if phase != "Failed" => Err(phase),
            _ => Ok(()),
        }
    })
    .await;
    if way == Way::Replaced {
        bench.open("guard").await;
        let plan = bench.world.plan_complete(PLAN, A_WHILE).await;
        let done = bench.world.node(&node).await;
        assert_eq!(done.labels()[&label(PLAN)], hash(&plan), "{way:?} {absent}");
    }
    given_back(&bench).await;
    let upgrades = u32::from(way == Way::Replaced);
    assert_eq!(
        bench.kubelet.runs(&node, "upgrade").await,
        upgrades,
        "{way:?} {absent}"
    );
    assert_eq!(bench.world.events_with("JobFailed").await, []);
    drop(controller);
}

#[tokio::test]
async fn a_plan_that_is_deleted_while_its_drain_is_pulled_leaves_the_node_as_it_was() {
    let_go(Way::Deleted, false).await;
}

#[tokio::test]
async fn a_node_that_is_deselected_while_its_drain_is_pulled_is_as_it_was() {
    let_go(Way::Deselected, false).await;
}

#[tokio::test]
async fn a_node_that_is_disabled_while_its_drain_is_pulled_is_as_it_was() {
    let_go(Way::Disabled, false).await;
}

#[tokio::test]
async fn a_plan_that_is_replaced_while_its_drain_is_pulled_upgrades_to_the_new_version_only() {
    let_go(Way::Replaced, false).await;
}

#[tokio::test]
async fn a_controller_that_was_dead_through_all_of_it_gives_the_node_back() {
    for way in [Way::Deleted, Way::Deselected, Way::Disabled, Way::Replaced] {
        let_go(way, true).await;
    }
}
