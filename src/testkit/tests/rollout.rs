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

fn roll_out(seed: u64, nodes: usize, concurrency: usize, more: &Value) -> (Cluster, Timestamp) {
    roll_out_beside(seed, nodes, concurrency, more, |_| {})
}

pub(super) fn roll_out_beside(
    seed: u64,
    nodes: usize,
    concurrency: usize,
    more: &Value,
    prepare: impl FnOnce(&Cluster),
) -> (Cluster, Timestamp) {
    roll_out_in(options(seed), nodes, concurrency, more, prepare)
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

#[test]
fn the_real_controller_rolls_a_plan_out_over_five_nodes() {
    let (cluster, end) = roll_out(1, 5, 2, &json!({}));
    check(&cluster, 5);
    let start: Timestamp = START.parse().unwrap();
    let minutes = end.duration_since(start).as_mins();
    assert!(
        (30..35).contains(&minutes),
        "3 turns of 10 minutes, not {minutes}"
    );
}

#[test]
fn a_plan_that_cordons_runs_refits_own_cordon() {
    let (cluster, _) = roll_out(1, 3, 1, &json!({ "cordon": true }));
    check(&cluster, 3);
    cluster.with(|state| {
        let cordons = state
            .trace()
            .iter()
            .filter(|line| line.contains("cordon on") && line.contains("PATCH"));
        assert_eq!(cordons.count(), 3);
    });
}

#[test]
fn a_plan_that_reboots_leaves_each_node_in_a_new_boot() {
    let more = json!({ "cordon": true, "reboot": { "when": "Always" }, "settle": { "minReady": "30s" } });
    let (cluster, end) = roll_out(1, 3, 1, &more);
    check(&cluster, 3);
    cluster.with(|state| {
        for node in state.all(Kind::Node) {
            let name = node["metadata"]["name"].as_str().unwrap();
            assert_ne!(node["status"]["nodeInfo"]["bootID"], boot_id(name).as_str());
        }
        assert_eq!(
            state
                .all(Kind::Pod)
                .filter(|pod| pod["metadata"]["labels"]["refit.rs/role"].is_string())
                .count(),
            0
        );
    });
    let minutes = end.duration_since(START.parse().unwrap()).as_mins();
    assert!(
        (36..42).contains(&minutes),
        "3 times 10 minutes, 2 to boot and half a one to settle, not {minutes}"
    );
}

#[test]
fn a_plan_that_reboots_where_required_asks_the_machine() {
    let more = json!({ "reboot": { "when": "IfRequired" } });
    let (cluster, _) = roll_out_beside(1, 3, 1, &more, |cluster| {
        let required = json!({ "metadata": { "annotations": { "fake-kubelet/reboot-required": "true" } } });
        cluster.patch(Kind::Node, "", "node-0001", &required).unwrap();
    });
    check(&cluster, 3);
    cluster.with(|state| {
        let stays = |name: &str| {
            let node = state.get(Kind::Node, "", name).unwrap();
            node["status"]["nodeInfo"]["bootID"] == boot_id(name).as_str()
        };
        assert_eq!(
            ["node-0000", "node-0001", "node-0002"].map(stays),
            [true, false, true]
        );
    });
}

#[test]
fn a_plan_that_waits_for_workloads_reads_those_that_it_evicted() {
    let more = json!({ "drain": {}, "settle": { "workloads": true } });
    let (cluster, _) = roll_out_beside(1, 4, 1, &more, shop);
    check(&cluster, 4);
    cluster.with(|state| {
        let read = |line: &&String| line.contains("GET /apis/apps/v1/namespaces/shop/replicasets/web");
        assert!(state.trace().iter().any(|line| read(&line)));
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

fn drained(seed: u64) -> (Cluster, Timestamp) {
    roll_out_beside(seed, 4, 2, &json!({ "drain": {} }), shop)
}

#[test]
fn a_drain_respects_the_budgets_and_every_node_is_released() {
    let (cluster, _) = drained(1);
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

#[test]
fn the_same_seed_gives_the_same_requests_at_the_same_times() {
    let trace = |seed| drained(seed).0.with(|state| state.trace().to_vec());
    let (first, second) = (trace(7), trace(7));
    for (one, other) in first.iter().zip(&second) {
        assert_eq!(one, other);
    }
    assert_eq!(first.len(), second.len());
    assert_ne!(first, trace(8));
}

#[test]
fn a_hundred_nodes_ten_at_a_time_take_ten_rounds() {
    let began = std::time::Instant::now();
    let (cluster, end) = roll_out(1, 100, 10, &json!({ "cordon": true }));
    check(&cluster, 100);
    let minutes = end.duration_since(START.parse().unwrap()).as_mins();
    assert!(
        (100..112).contains(&minutes),
        "10 turns of 10 minutes, not {minutes}"
    );
    println!("{minutes} minutes took {:?}", began.elapsed());
}
