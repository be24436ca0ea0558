//! The same roll-out, rehearsed and real: 20 nodes, drained one after the other, of which one has a pod that its budget never
//! lets go. The rehearsal begins with a snapshot of the very cluster, and must tell what then happens.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use kube::api::Api;
use refit::api::Plan;
use refit::rehearse::podlife::{Defaults, Delay, Exit};
use serde_json::{Value, json};

use crate::scene::{active, is_cordoned};
use crate::support::kubelet::{Act, ContainerAct, NodeSet};
use crate::support::wait;
use crate::support::world::World;
use crate::support::world::cluster::{create, done};

const NODES: usize = 20;
/// The whole roll-out, on a busy machine.
const LONG: Duration = Duration::from_secs(300);
/// How long a Job may take: the drain that waits for ever ends with it.
const DEADLINE: u32 = 25;

/// Runs `drain` as a process, as the account that the Plan names.
struct Processes(PathBuf);

impl ContainerAct for Processes {
    fn acts(&self, container: &str) -> bool {
        container == "drain"
    }

    fn run(&self, act: Act) -> BoxFuture<'static, Exit> {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_refit"));
        command
            .args(&act.start.args)
            .env_clear()
            .envs(&act.start.env)
            .env("KUBECONFIG", &self.0)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        Box::pin(async move {
            let output = command.output().await.unwrap();
            Exit {
                code: output.status.code().unwrap_or(137),
                message: None,
            }
        })
    }
}

/// What a roll-out comes down to.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    /// Nodes in the order in which they were begun with.
    order: Vec<String>,
    /// Nodes that waited for a budget until the end, with the budget.
    held_up: Vec<(String, String)>,
    /// Nodes that are done, failed (with why), and cordoned.
    done: Vec<String>,
    failed: Vec<(String, String)>,
    cordoned: Vec<String>,
    hash: String,
    /// Selected, done, failed, waiting.
    counts: [i64; 4],
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn rehearsed(folder: &Path) -> Told {
    let arguments = [
        "rehearse",
        "plan.json",
        "--snapshot",
        "cluster.json",
        "-o",
        "json",
        "--upgrade",
        "1s",
        "--drain",
        "1s",
        "--pod-start",
        "1s",
    ];
    let output = Command::new(env!("CARGO_BIN_EXE_refit"))
        .current_dir(folder)
        .args(arguments)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let last = stderr.lines().last().unwrap();
    assert!(
        last.contains("DeadlineExceeded") && last.contains("PodDisruptionBudget"),
        "{last}"
    );
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let turns = report["turns"].as_array().unwrap();
    let with = |result: &'static str| turns.iter().filter(move |turn| turn["result"] == result);
    let mut done: Vec<String> = with("done").map(|turn| text(&turn["node"])).collect();
    done.sort();
    let long = |wait: &&Value| wait["reason"] == "DrainWaiting" && wait["seconds"].as_i64() >= Some(10);
    let waits = report["waits"].as_array().unwrap().iter().filter(long);
    let budget = |wait: &Value| text(&wait["blocker"]).replace("PodDisruptionBudget ", "");
    let plan = &report["plans"][0];
    Told {
        order: turns.iter().map(|turn| text(&turn["node"])).collect(),
        held_up: waits.map(|wait| (text(&wait["node"]), budget(wait))).collect(),
        done,
        failed: with("failed")
            .map(|turn| (text(&turn["node"]), text(&turn["reason"])))
            .collect(),
        cordoned: report["cordoned"].as_array().unwrap().iter().map(text).collect(),
        hash: text(&plan["hash"]),
        counts: ["selected", "done", "failed", "waiting"].map(|field| plan[field].as_i64().unwrap()),
    }
}

/// What the cluster shows at the end.
async fn real(world: &World, held_up: (String, String)) -> Told {
    let requests = world.controller_requests().await;
    let plan = world.plans().get("drains").await.unwrap();
    let status = plan.status.unwrap_or_default();
    let hash = status.latest_hash.unwrap_or_default();
    let mut nodes = world.my_nodes().await;
    nodes.sort_by_key(Node::name_any);
    let with = |good: &dyn Fn(&Node) -> bool| -> Vec<String> {
        nodes
            .iter()
            .filter(|node| good(node))
            .map(Node::name_any)
            .collect()
    };
    let failed = status.active.unwrap_or_default().into_iter();
    let failed = failed.filter(|node| node.phase == "Failed");
    let counts = status.nodes.unwrap_or_default();
    Told {
        order: requests.jobs_created().into_iter().map(|job| job.node).collect(),
        held_up: vec![held_up],
        done: with(&|node| done(node, "drains").as_ref() == Some(&hash)),
        failed: failed
            .map(|node| (node.name, node.reason.unwrap_or_default()))
            .collect(),
        cordoned: with(&|node| is_cordoned(node)),
        counts: [counts.selected, counts.done, counts.failed, counts.waiting],
        hash,
    }
}

/// Pods of an application on the nodes of this world, and its budget.
async fn application(world: &World, name: &str, replicas: usize, budget: Value) {
    let labels = json!({ "app": name });
    let set = json!({
        "metadata": { "name": name },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "nodeSelector": world.node_labels(), "terminationGracePeriodSeconds": 5,
                    "containers": [{ "name": "app", "image": "example.com/app" }],
                },
            },
        },
    });
    let sets = Api::<ReplicaSet>::namespaced(world.client.clone(), world.namespace());
    create(&sets, set).await;
    let mut spec = budget;
    spec["selector"] = json!({ "matchLabels": labels });
    let budgets = Api::<PodDisruptionBudget>::namespaced(world.client.clone(), world.namespace());
    create(&budgets, json!({ "metadata": { "name": name }, "spec": spec })).await;
    let ready = |set: &ReplicaSet| {
        let ready = set
            .status
            .as_ref()
            .and_then(|status| status.ready_replicas)
            .unwrap_or_default();
        usize::try_from(ready).is_ok_and(|ready| ready == replicas)
    };
    wait::object(sets, name, "has all its pods", LONG, ready).await;
}

/// What `kubectl get nodes,pods,pdb,replicasets,plans -o json` prints of this world.
async fn snapshot(world: &World) -> Value {
    let mut items = Vec::new();
    let labels = world.node_labels();
    let selector: Vec<String> = labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let nodes = ["get", "nodes", "-o", "json", "-l", &selector.join(",")];
    let rest = ["get", "pods,pdb,replicasets,plans", "-o", "json"];
    for arguments in [&nodes[..], &rest[..]] {
        let list: Value = serde_json::from_str(&world.kubectl(arguments).await).unwrap();
        items.extend(list["items"].as_array().unwrap().iter().cloned());
    }
    json!({ "apiVersion": "v1", "kind": "List", "items": items })
}

fn spec(world: &World, suspend: bool) -> Value {
    json!({
        "concurrency": 2, "suspend": suspend, "version": "v1.34.1", "jobActiveDeadlineSecs": DEADLINE,
        "nodeSelector": { "matchLabels": world.node_labels() }, "serviceAccountName": "system-upgrade",
        "drain": {}, "upgrade": { "image": "example.com/upgrade" },
    })
}

#[tokio::test]
async fn a_rehearsal_tells_what_then_happens() {
    let world = World::new().await;
    let kubeconfig = world.write_kubeconfig("drains", &world.token("system-upgrade").await);
    let set = NodeSet::numbered(&world.node_name("n"), NODES).act(Processes(kubeconfig));
    let pods = Defaults {
        stop: Delay::millis(200),
        ..Defaults::default()
    };
    let _kubelet = world.run(set.pods(pods)).await;
    application(&world, "web", NODES, json!({ "maxUnavailable": 4 })).await;
    application(&world, "db", 1, json!({ "maxUnavailable": 0 })).await;
    let _controller = world.controller().start();
    let plan = json!({
        "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan",
        "metadata": { "name": "drains", "namespace": world.namespace() }, "spec": spec(&world, true),
    });
    world.plan(&plan.to_string()).await;
    let suspended = |plan: &Plan| {
        plan.status
            .as_ref()
            .is_some_and(|status| status.latest_hash.is_some())
    };
    world.plan_until("drains", "is resolved", LONG, suspended).await;

    let mut go = plan.clone();
    go["spec"] = spec(&world, false);
    std::fs::write(world.dir().join("plan.json"), go.to_string()).unwrap();
    std::fs::write(
        world.dir().join("cluster.json"),
        snapshot(&world).await.to_string(),
    )
    .unwrap();
    let rehearsed = rehearsed(world.dir());
    assert_eq!(
        (rehearsed.order.len(), rehearsed.counts),
        (NODES, [20, 19, 1, 0]),
        "{rehearsed:?}"
    );

    world
        .edit_plan("drains", json!({ "spec": { "suspend": false } }))
        .await;
    let (locked, _) = rehearsed.failed[0].clone();
    let waits = |plan: &Plan| {
        active(plan, &locked).is_some_and(|node| {
            let message = node.message.as_deref().unwrap_or_default();
            node.reason.as_deref() == Some("DrainWaiting") && message.contains("PodDisruptionBudget db ")
        })
    };
    world
        .plan_until(
            "drains",
            &format!("says that {locked} waits for the budget"),
            LONG,
            waits,
        )
        .await;
    let over = |plan: &Plan| {
        let counts = plan
            .status
            .as_ref()
            .and_then(|status| status.nodes)
            .unwrap_or_default();
        counts.done + counts.failed == 20
    };
    world
        .plan_until("drains", "has come to all nodes", LONG, over)
        .await;
    let budget = format!("{}/db", world.namespace());
    let mut real = real(&world, (locked, budget)).await;
    assert!(
        is_same_order(&rehearsed.order, &real.order),
        "{rehearsed:#?}\n{real:#?}"
    );
    real.order.clone_from(&rehearsed.order);
    assert_eq!(real, rehearsed);
}

#[tokio::test]
async fn the_cluster_of_a_context_is_read_and_left_as_it_is() {
    let world = World::alone().await;
    let _kubelet = world.run_nodes(3).await;
    application(&world, "web", 3, json!({ "maxUnavailable": 1 })).await;
    let plan = json!({
        "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan",
        "metadata": { "name": "drains", "namespace": world.namespace() }, "spec": spec(&world, false),
    });
    std::fs::write(world.dir().join("plan.json"), plan.to_string()).unwrap();
    let kubeconfig = world.bed.kubeconfig();
    let output = Command::new(env!("CARGO_BIN_EXE_refit"))
        .current_dir(world.dir())
        .args([
            "rehearse",
            "plan.json",
            "--snapshot",
            "context",
            "-o",
            "json",
            "--upgrade",
            "5s",
            "--drain",
            "1s",
            "--pod-start",
            "1s",
            "--kubeconfig",
        ])
        .arg(kubeconfig)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let nodes: Vec<String> = report["turns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|turn| text(&turn["node"]))
        .collect();
    let mut there: Vec<String> = world.my_nodes().await.iter().map(Node::name_any).collect();
    let mut sorted = nodes.clone();
    sorted.sort();
    there.sort();
    assert_eq!(sorted, there);
    assert!(
        stderr.contains("Plans cannot be read") || world.plans().get_opt("drains").await.unwrap().is_none()
    );
    assert_eq!(world.jobs_of("drains").await.len(), 0, "nothing is written");
}

/// Two nodes that are begun with in one decision are not one before the other: as two are worked on at a time, neighbours may
/// have changed places.
fn is_same_order(rehearsed: &[String], real: &[String]) -> bool {
    let mut at = 0;
    while at < rehearsed.len() {
        let same = real.get(at) == rehearsed.get(at);
        let changed = real.get(at) == rehearsed.get(at + 1) && real.get(at + 1) == rehearsed.get(at);
        match (same, changed) {
            (true, _) => at += 1,
            (false, true) => at += 2,
            (false, false) => return false,
        }
    }
    real.len() == rehearsed.len()
}

#[test]
fn an_order_is_the_same_but_for_neighbours() {
    let order = |text: &str| -> Vec<String> { text.chars().map(String::from).collect() };
    for (other, same) in [
        ("abcde", true),
        ("bacde", true),
        ("acbed", true),
        ("bcade", false),
        ("abcd", false),
    ] {
        assert_eq!(is_same_order(&order("abcde"), &order(other)), same, "{other}");
    }
}
