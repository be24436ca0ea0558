//! `prepare <plan>` as the entrypoint of the K3s and RKE2 upgrade images runs it (`scripts/upgrade.sh` of
//! k3s-io/k3s-upgrade and rancher/rke2-upgrade): polls every five seconds, without a limit, until the Plan exists, no
//! node is applying it, and all control-plane nodes run the version.

use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::sleep;

use super::pod::ContainerTask;
use crate::cluster::Cluster;
use crate::journal::JournalEvent;
use crate::json::Value;
use crate::pod_lifecycle::{ContainerStart, Exit, STEERING_PREFIX};
use crate::resources::Kind;
use crate::upgrade_script::PrepareWait;
use refit_api::names::{ENV_PLAN_LATEST_VERSION, LABEL_PLAN};
use refit_api::prepare::Prepare;

/// Polling interval.
const PAUSE: Duration = Duration::from_secs(5);
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
const WITHOUT_PLAN: &str = "`prepare` of this image exits with 1 without the name of a Plan: write args: [prepare, \
                            <Plan of the control-plane nodes>]";

/// The `prepare` that a container runs, if it does.
pub(super) fn of(start: &ContainerStart) -> Option<Prepare> {
    let parsed = Prepare::parse(&start.image, &start.command, &start.args);
    let is_played = |prepare: &Prepare| !matches!(prepare, Prepare::Upgrades | Prepare::Nothing);
    parsed.filter(|prepare| start.name == "prepare" && is_played(prepare))
}

pub(super) async fn run(cluster: &Cluster, task: &ContainerTask, prepare: &Prepare) -> Exit {
    match prepare {
        Prepare::WaitsFor(plan) => {
            wait(cluster, task, plan).await;
            Exit::default()
        }
        Prepare::Upgrades | Prepare::Nothing => Exit::default(),
        // 127 is what a shell exits with if it finds no such command.
        Prepare::NotFound(word) => Exit {
            code: 127,
            message: Some(format!(
                "{word:?} is neither a function of this image nor a program: write args: [prepare, <Plan of the control-plane nodes>]"
            )),
        },
        Prepare::WithoutPlan => Exit {
            code: 1,
            message: Some(WITHOUT_PLAN.to_owned()),
        },
    }
}

/// Waits for the Plan, and then for the assumed duration.
async fn wait(cluster: &Cluster, task: &ContainerTask, awaited: &str) {
    let (namespace, plan) = cluster.with(|state| {
        let key = state.store.find(&task.pod_uid).map(|(_, key)| key);
        let pod = key.and_then(|key| state.store.get(Kind::Pod, key));
        let plan = pod.and_then(|pod| pod.label(LABEL_PLAN));
        let namespace = key.map(|key| key.namespace.to_string());
        (namespace.unwrap_or_default(), plan.unwrap_or_default().to_owned())
    });
    let version = task.start.env.get(ENV_PLAN_LATEST_VERSION);
    let version = version.map(String::as_str).unwrap_or_default();
    let mut control: Vec<String> = Vec::new();
    let mut known: Option<PrepareWait> = None;
    loop {
        let wait =
            plan_wait(cluster, &namespace, awaited).or_else(|| version_wait(cluster, &mut control, version));
        if wait != known {
            cluster.with(|state| {
                state.append_journal(JournalEvent::Prepare {
                    node: task.node.clone(),
                    plan: plan.clone(),
                    wait: wait.clone(),
                });
            });
        }
        if wait.is_none() {
            break;
        }
        known = wait;
        sleep(PAUSE).await;
    }
    sleep(own_time(cluster, &task.node)).await;
}

/// Why the script still waits for the Plan.
fn plan_wait(cluster: &Cluster, namespace: &str, name: &str) -> Option<PrepareWait> {
    let plan = name.to_owned();
    let Some(stored) = cluster.get(Kind::Plan, namespace, name) else {
        return Some(PrepareWait::PlanMissing { plan });
    };
    let is_applying = stored["status"]["applying"]
        .as_array()
        .is_some_and(|nodes| !nodes.is_empty());
    is_applying.then_some(PrepareWait::PlanApplying { plan })
}

/// Why the script still waits for the control plane. Like the script, this reads the list of its nodes once.
fn version_wait(cluster: &Cluster, control: &mut Vec<String>, version: &str) -> Option<PrepareWait> {
    cluster.with(|state| {
        if control.is_empty() {
            let nodes = state.all(Kind::Node);
            let nodes = nodes.filter(|node| node["metadata"]["labels"].get(CONTROL_PLANE).is_some());
            let name = |node: &Value| node.meta("name").to_owned();
            *control = nodes.map(name).collect();
        }
        if control.is_empty() {
            return Some(PrepareWait::NoControlPlane);
        }
        control.iter().find_map(|name| {
            let kubelet = state
                .get(Kind::Node, "", name)
                .and_then(|node| node["status"]["nodeInfo"]["kubeletVersion"].as_str())?;
            // The version is an image tag, in which `+` is not allowed.
            (kubelet.replace('+', "-") != version).then(|| PrepareWait::VersionDiffers {
                wanted: version.to_owned(),
                node: name.clone(),
                kubelet: kubelet.to_owned(),
            })
        })
    })
}

/// The assumed duration of `prepare` on this node after the wait.
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
