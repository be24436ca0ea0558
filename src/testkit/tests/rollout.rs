//! Roll-outs from the first list to a complete Plan.

use jiff::Timestamp;

use refit_api::crd;
use refit_base::version::Offer;
use refit_channel::ChannelClient;
use refit_controller::settings::{Flags, Settings};
use refit_controller::{Dependencies, run_with};
use refit_rehearse::json::{Value, json};
use refit_rehearse::{Cluster, Kind, Options, State, in_virtual_time};

pub(super) const NAMESPACE: &str = "system-upgrade";
const START: &str = "2026-01-05T09:00:00Z";
pub(super) const DONE: &str = "plan.upgrade.cattle.io/upgrade";

pub(super) fn options(seed: u64) -> Options {
    let mut options = Options::new(seed, START.parse().unwrap());
    options.traced = true;
    options
        .default_behaviour
        .steering
        .insert("fake-kubelet/upgrade.run-delay".to_owned(), "10m".to_owned());
    options
}

/// The first boot ID of a node.
fn boot_id(node: &str) -> String {
    let number: String = node.chars().filter(char::is_ascii_digit).collect();
    format!("00000000-0000-4000-8000-{number:0>12}")
}

pub(super) fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        } },
        "status": {
            "conditions": [{ "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready" }],
            "nodeInfo": { "bootID": boot_id(name), "kubeletVersion": "v1.36.0" },
        },
    })
}

pub(super) fn plan(concurrency: usize, more: &Value) -> Value {
    let mut spec = json!({
        "concurrency": concurrency, "version": "v1.2.3", "nodeSelector": {},
        "serviceAccountName": "system-upgrade", "upgrade": { "image": "example.com/upgrade" },
    });
    refit_rehearse::write::merge(&mut spec, more);
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
        // A single controller needs no leader election, and renewals would be a write every two seconds.
        "SYSTEM_UPGRADE_CONTROLLER_LEADER_ELECT" => Some("false".to_owned()),
        "SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS" => Some("3600".to_owned()),
        "REFIT_IMAGE" => Some("refit:test".to_owned()),
        _ => None,
    };
    Settings::resolve(flags, &lookup, "controller-0").unwrap().0
}

/// Runs the real controller until a condition of the cluster holds.
pub(super) async fn control(cluster: &Cluster, until: impl FnMut(&State) -> bool) {
    let channels = ChannelClient::with_answers(|_, _| Ok(Offer::one("v1.2.3".to_owned())));
    control_during(cluster, channels, cluster.until(until)).await;
}

/// Runs the real controller as long as something else.
pub(super) async fn control_during<T>(
    cluster: &Cluster,
    channels: ChannelClient,
    other: impl Future<Output = T>,
) -> T {
    let dependencies = Dependencies {
        server: cluster.server(),
        clock: cluster.clock(),
        channels: Some(channels),
        listener: None,
    };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let controller = run_with(dependencies, settings(), async move {
        let _ = stopped.await;
    });
    let both = async {
        tokio::select! {
            biased;
            ended = controller => panic!("the controller ended: {ended:?}"),
            result = other => result,
        }
    };
    let result = cluster.run_while(both).await;
    drop(stop);
    result
}

pub(super) fn is_complete(state: &State) -> bool {
    let plan = state.get(Kind::Plan, NAMESPACE, "upgrade").unwrap();
    let conditions = plan["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|one| one["type"] == "Complete" && one["status"] == "True")
}

/// A cluster with the definition of Plans and nodes `node-0000` and so on.
pub(super) fn cluster_with(options: Options, nodes: usize) -> Cluster {
    let cluster = Cluster::new(options);
    cluster.put(serde_json::to_value(crd::plans()).unwrap()).unwrap();
    for number in 0..nodes {
        cluster.put(node(&format!("node-{number:04}"))).unwrap();
    }
    cluster
}

pub(super) fn roll_out_in(
    options: Options,
    nodes: usize,
    concurrency: usize,
    more: &Value,
    prepare: impl FnOnce(&Cluster),
) -> (Cluster, Timestamp) {
    in_virtual_time(async {
        let cluster = cluster_with(options, nodes);
        prepare(&cluster);
        cluster.put(plan(concurrency, more)).unwrap();
        Box::pin(control(&cluster, is_complete)).await;
        let now = cluster.clock().now();
        (cluster, now)
    })
    .unwrap()
}

fn check(cluster: &Cluster, nodes: usize) {
    cluster.with(|state| {
        assert_eq!(state.unsupported_requests(), [""; 0]);
        let all: Vec<_> = state.all(Kind::Node).collect();
        assert_eq!(all.len(), nodes);
        for node in all {
            assert!(node["metadata"]["labels"][DONE].is_string(), "{node}");
            assert!(node["spec"]["unschedulable"].is_null(), "{node}");
            assert!(
                node["metadata"]["annotations"]["refit.rs/cordon"].is_null(),
                "{node}"
            );
        }
    });
}

/// A workload of which one pod at a time may be unavailable.
fn shop(cluster: &Cluster) {
    let labels = json!({ "app": "shop" });
    let selector = json!({ "matchLabels": labels });
    let template = json!({
        "metadata": { "labels": labels },
        "spec": { "containers": [{ "name": "web", "image": "example.com/web" }] },
    });
    let set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": { "name": "web", "namespace": "shop" },
        "spec": { "replicas": 4, "selector": selector, "template": template },
    });
    cluster.put(set).unwrap();
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "name": "web", "namespace": "shop" },
        "spec": { "maxUnavailable": 1, "selector": selector },
    });
    cluster.put(budget).unwrap();
}

#[test]
fn a_drain_respects_the_budgets_and_every_node_is_released() {
    let (cluster, _) = roll_out_in(options(1), 4, 2, &json!({ "drain": {} }), shop);
    check(&cluster, 4);
    cluster.with(|state| {
        let evicted = |code: &str| {
            let lines = state.trace().iter();
            lines
                .filter(|line| line.contains("/eviction") && line.ends_with(code))
                .count()
        };
        assert!(evicted(" 201") >= 4, "every pod had to move at least once");
        assert!(
            evicted(" 429") > 0,
            "two drains at once, and only one pod may be away"
        );
        let pods = state
            .all(Kind::Pod)
            .filter(|pod| pod["metadata"]["namespace"] == "shop");
        assert_eq!(pods.count(), 4);
        let budget = state.get(Kind::Budget, "shop", "web").unwrap();
        assert_eq!(budget["status"]["currentHealthy"], 4);
        assert_eq!(budget["status"]["disruptionsAllowed"], 1);
    });
}
