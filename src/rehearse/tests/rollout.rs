//! Roll-outs from the first list to a Plan that is complete.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::crd;
use crate::channel::ChannelClient;
use crate::controller::settings::{Flags, Settings};
use crate::controller::{Surroundings, run_in};
use crate::rehearse::{Cluster, Kind, Options, State, in_virtual_time};

const NAMESPACE: &str = "system-upgrade";
const START: &str = "2026-01-05T09:00:00Z";
const DONE: &str = "plan.upgrade.cattle.io/upgrade";

pub(super) fn options(seed: u64) -> Options {
    let mut options = Options::new(seed, START.parse().unwrap());
    options.traced = true;
    options
        .habits
        .steering
        .insert("fake-kubelet/upgrade.run-delay".to_owned(), "10m".to_owned());
    options
}

pub(super) fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        } },
        "status": {
            "conditions": [{ "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready" }],
            "nodeInfo": { "bootID": format!("boot-of-{name}"), "kubeletVersion": "v1.36.0" },
        },
    })
}

fn plan(concurrency: usize, more: &Value) -> Value {
    let mut spec = json!({
        "concurrency": concurrency, "version": "v1.2.3", "nodeSelector": {},
        "serviceAccountName": "system-upgrade", "upgrade": { "image": "example.com/upgrade" },
    });
    crate::rehearse::write::merge(&mut spec, more);
    json!({
        "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan",
        "metadata": { "name": "upgrade", "namespace": NAMESPACE }, "spec": spec,
    })
}

fn settings() -> Settings {
    let flags = Flags::default();
    let lookup = |name: &str| match name {
        "SYSTEM_UPGRADE_CONTROLLER_NAME" => Some("system-upgrade-controller".to_owned()),
        "SYSTEM_UPGRADE_CONTROLLER_NAMESPACE" => Some(NAMESPACE.to_owned()),
        "SYSTEM_UPGRADE_CONTROLLER_LEADER_ELECT" => Some("true".to_owned()),
        "SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS" => Some("3600".to_owned()),
        _ => None,
    };
    Settings::resolve(flags, &lookup, "controller-0").unwrap().0
}

/// Runs the real controller until something holds of the cluster.
pub(super) async fn control(cluster: &Cluster, until: impl FnMut(&State) -> bool) {
    let surroundings = Surroundings {
        server: cluster.server(),
        clock: cluster.clock(),
        channels: Some(ChannelClient::given(|_, _| Ok("v1.2.3".to_owned()))),
    };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let controller = run_in(surroundings, settings(), async move {
        let _ = stopped.await;
    });
    cluster
        .during(async {
            tokio::select! {
                biased;
                ended = controller => panic!("the controller ended: {ended:?}"),
                () = cluster.until(until) => drop(stop),
            }
        })
        .await;
}

fn is_complete(state: &State) -> bool {
    let plan = state.get(Kind::Plan, NAMESPACE, "upgrade").unwrap();
    let conditions = plan["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|one| one["type"] == "Complete" && one["status"] == "True")
}

fn roll_out(seed: u64, nodes: usize, concurrency: usize, more: &Value) -> (Cluster, Timestamp) {
    in_virtual_time(async {
        let cluster = Cluster::new(options(seed));
        cluster.put(serde_json::to_value(crd::plans()).unwrap()).unwrap();
        for number in 0..nodes {
            cluster.put(node(&format!("node-{number:04}"))).unwrap();
        }
        cluster.put(plan(concurrency, more)).unwrap();
        let spy = cluster.clone();
        std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_secs(6));
            spy.with(|state| {
                for line in state.trace().iter().take(30) { eprintln!("{line}"); }
                eprintln!("... {} version {}", state.trace().len(), state.store.version());
                for line in state.trace().iter().rev().take(30).rev() { eprintln!("{line}"); }
                eprintln!("{:#?}", state.agenda);
            });
            std::process::exit(3);
        });
        control(&cluster, is_complete).await;
        let now = cluster.clock().now();
        (cluster, now)
    })
    .unwrap()
}

fn check(cluster: &Cluster, nodes: usize) {
    cluster.with(|state| {
        assert_eq!(state.holes(), [""; 0]);
        let all: Vec<_> = state.all(Kind::Node).collect();
        assert_eq!(all.len(), nodes);
        for node in all {
            assert!(node["metadata"]["labels"][DONE].is_string(), "{node}");
            assert!(node["spec"]["unschedulable"].is_null(), "{node}");
            assert!(node["metadata"]["annotations"]["refit.rs/cordon"].is_null(), "{node}");
        }
    });
}

#[test]
fn the_real_controller_rolls_a_plan_out_over_five_nodes() {
    let (cluster, end) = roll_out(1, 5, 2, &json!({}));
    check(&cluster, 5);
    let start: Timestamp = START.parse().unwrap();
    let minutes = end.duration_since(start).as_mins();
    assert!((30..35).contains(&minutes), "3 turns of 10 minutes, not {minutes}");
}

#[test]
fn a_plan_that_cordons_does_so_with_its_own_code() {
    let (cluster, _) = roll_out(1, 3, 1, &json!({ "cordon": true }));
    check(&cluster, 3);
    cluster.with(|state| {
        let cordons = state.trace().iter().filter(|line| line.contains("cordon on") && line.contains("PATCH"));
        assert_eq!(cordons.count(), 3);
    });
}
