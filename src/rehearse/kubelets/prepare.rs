//! `prepare` as the images of K3s and RKE2 have it: `args: ["prepare", "<plan>"]` waits until no node is applying that Plan
//! and all nodes of the control plane run the version. It asks every five seconds, for ever.

use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::sleep;

use super::act::Errand;
use crate::api::names::ENV_PLAN_LATEST_VERSION;
use crate::rehearse::cluster::Cluster;
use crate::rehearse::json::Value;
use crate::rehearse::podlife::{ContainerStart, STEERING_PREFIX};
use crate::rehearse::resources::Kind;

/// How often it asks.
const PAUSE: Duration = Duration::from_secs(5);
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// The Plan that a container waits for.
pub(super) fn dependency(start: &ContainerStart) -> Option<&str> {
    let is_one = start.name == "prepare" && start.command.is_empty();
    match start.args.as_slice() {
        [first, plan, ..] if is_one && first == "prepare" => Some(plan),
        _ => None,
    }
}

/// Waits for the Plan, and then takes the time that is assumed.
pub(super) async fn wait(cluster: &Cluster, errand: &Errand, plan: &str) {
    let namespace = cluster.with(|state| {
        let pod = state.store.find(&errand.pod_uid);
        pod.map(|(_, key)| key.namespace.to_string()).unwrap_or_default()
    });
    let version = errand.start.env.get(ENV_PLAN_LATEST_VERSION);
    let version = version.map(String::as_str).unwrap_or_default();
    let mut control: Vec<String> = Vec::new();
    while is_applying(cluster, &namespace, plan) || !is_upgraded(cluster, &mut control, version) {
        sleep(PAUSE).await;
    }
    sleep(own_time(cluster, &errand.node)).await;
}

/// A Plan that is not there is not applying.
fn is_applying(cluster: &Cluster, namespace: &str, plan: &str) -> bool {
    let plan = cluster.get(Kind::Plan, namespace, plan);
    let applying = plan
        .as_ref()
        .and_then(|plan| plan["status"]["applying"].as_array());
    applying.is_some_and(|nodes| !nodes.is_empty())
}

/// Whether there are nodes of the control plane, and all run the version. Which nodes those are is found out once.
fn is_upgraded(cluster: &Cluster, control: &mut Vec<String>, version: &str) -> bool {
    cluster.with(|state| {
        if control.is_empty() {
            let nodes = state.all(Kind::Node);
            let nodes = nodes.filter(|node| node["metadata"]["labels"].get(CONTROL_PLANE).is_some());
            let name = |node: &Value| node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            *control = nodes.map(name).collect();
        }
        let runs_it = |name: &String| {
            let kubelet = state
                .get(Kind::Node, "", name)
                .and_then(|node| node["status"]["nodeInfo"]["kubeletVersion"].as_str());
            kubelet.is_none_or(|kubelet| kubelet.replace('+', "-") == version)
        };
        !control.is_empty() && control.iter().all(runs_it)
    })
}

/// How long it takes beside the waiting, as the node is steered.
fn own_time(cluster: &Cluster, node: &str) -> Duration {
    let key = format!("{STEERING_PREFIX}prepare.run-delay");
    let node = cluster.get(Kind::Node, "", node);
    let steered = node
        .as_ref()
        .and_then(|node| node["metadata"]["annotations"].get(&key)?.as_str());
    let steered = steered.and_then(|text| text.parse::<SignedDuration>().ok());
    steered
        .and_then(|time| Duration::try_from(time).ok())
        .unwrap_or_default()
}
