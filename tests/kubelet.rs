//! Fake kubelets on a real control plane.

mod acts;
mod bench;
mod nodes;
mod outages;
mod pods;
mod reboots;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde_json::{Value, json};

use crate::support::kubelet::{FakeKubelet, NodeSet};
use crate::support::wait::{self, SOON};
use crate::support::world::World;

/// A world with some nodes, and their names.
async fn with_nodes(
    names: &[&str],
    change: impl FnOnce(NodeSet) -> NodeSet,
) -> (World, FakeKubelet, Vec<String>) {
    let world = World::new().await;
    let names: Vec<String> = names.iter().map(|name| world.node_name(name)).collect();
    let kubelets = start(&world, change(NodeSet::named(&names))).await;
    (world, kubelets, names)
}

async fn start(world: &World, nodes: NodeSet) -> FakeKubelet {
    FakeKubelet::start(
        &world.bed.kubelet_config().await,
        nodes.labels(world.node_labels()),
    )
    .await
}

/// A pod that is bound to the node without a scheduler.
async fn bind(world: &World, node: &str, name: &str, steering: &[(&str, &str)], spec: Value) -> Pod {
    let annotations: serde_json::Map<String, Value> = steering
        .iter()
        .map(|(key, value)| (format!("fake-kubelet/{key}"), json!(value)))
        .collect();
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "c", "image": "example.com/c:1"}],
        },
    });
    if let (Some(into), Value::Object(more)) = (pod["spec"].as_object_mut(), spec) {
        into.extend(more);
    }
    let made = world
        .try_apply(pod)
        .await
        .unwrap_or_else(|error| panic!("{error:#}"));
    made.try_parse().unwrap()
}

/// Waits until the pod is in that phase.
async fn in_phase(world: &World, name: &str, phase: &str) -> PodStatus {
    let what = format!("is {phase}");
    let there = |pod: &Pod| {
        pod.status
            .as_ref()
            .is_some_and(|status| status.phase.as_deref() == Some(phase))
    };
    wait::object(world.pods(), name, &what, SOON, there)
        .await
        .status
        .unwrap()
}

/// Exit code and reason of the container with that number, or of that init container.
fn exit(status: &PodStatus, container: &str) -> (i32, String) {
    let statuses = status
        .init_container_statuses
        .iter()
        .flatten()
        .chain(status.container_statuses.iter().flatten());
    let status = statuses
        .into_iter()
        .find(|status| status.name == container)
        .unwrap();
    let exit = status
        .state
        .clone()
        .unwrap()
        .terminated
        .unwrap_or_else(|| panic!("{container} has not ended"));
    (exit.exit_code, exit.reason.unwrap())
}
