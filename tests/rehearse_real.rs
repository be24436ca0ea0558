//! The same roll-out, rehearsed and real: 20 nodes, drained one after another, one of them with a pod whose budget
//! never allows its eviction. The rehearsal starts from a snapshot of that cluster, and must predict the result.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use refit_api::Plan;
use refit_rehearse::pod_lifecycle::{Defaults, Delay};
use serde_json::{Value, json};

use crate::drain::plans::DrainProcesses;
use crate::harness::{active, is_cordoned};
use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::{create, done};
use crate::testenv::kubelet::NodeSet;
use crate::testenv::wait;

const NODES: usize = 20;
/// Time of the whole roll-out on a busy machine.
const LONG: Duration = Duration::from_secs(600);
/// Deadline of a Job, which ends the drain that waits for ever. Longer than any other Job takes on a busy machine: the test
/// shortens that of this one.
const DEADLINE: u32 = 600;

/// The compared facts of a roll-out.
#[derive(Debug, PartialEq, Eq)]
struct RollOutResult {
    /// Nodes in the order of their starts.
    order: Vec<String>,
    /// Nodes that waited for a budget until the end, with the budget.
    blocked_by_budget: Vec<(String, String)>,
    /// Nodes that are done, failed (with the reason), and cordoned.
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

/// Rehearses the Plan in `plan.json` from a snapshot, with more arguments.
fn rehearse(folder: &Path, snapshot: &str, more: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_refit"))
        .current_dir(folder)
        .args([
            "rehearse",
            "plan.json",
            "-o",
            "json",
            "--drain",
            "1s",
            "--pod-start",
            "1s",
        ])
        .args(["--snapshot", snapshot])
        .args(more.split(' '))
        .output()
        .unwrap()
}

fn rehearsed(folder: &Path) -> RollOutResult {
    let output = rehearse(folder, "cluster.json", "--upgrade 1s");
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
    RollOutResult {
        order: turns.iter().map(|turn| text(&turn["node"])).collect(),
        blocked_by_budget: waits.map(|wait| (text(&wait["node"]), budget(wait))).collect(),
        done,
        failed: with("failed")
            .map(|turn| (text(&turn["node"]), text(&turn["reason"])))
            .collect(),
        cordoned: report["cordoned"].as_array().unwrap().iter().map(text).collect(),
        hash: text(&plan["hash"]),
        counts: ["selected", "done", "failed", "waiting"].map(|field| plan[field].as_i64().unwrap()),
    }
}

/// The facts from the cluster at the end.
async fn real(ctx: &TestContext, blocked_by_budget: (String, String)) -> RollOutResult {
    let requests = ctx.controller_requests().await;
    let plan = ctx.plans().get("drains").await.unwrap();
    let status = plan.status.unwrap_or_default();
    let hash = status.latest_hash.unwrap_or_default();
    let mut nodes = ctx.my_nodes().await;
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
    RollOutResult {
        order: requests.jobs_created().into_iter().map(|job| job.node).collect(),
        blocked_by_budget: vec![blocked_by_budget],
        done: with(&|node| done(node, "drains").as_ref() == Some(&hash)),
        failed: failed
            .map(|node| (node.name, node.reason.unwrap_or_default().to_string()))
            .collect(),
        cordoned: with(&|node| is_cordoned(node)),
        counts: [counts.selected, counts.done, counts.failed, counts.waiting],
        hash,
    }
}

/// Creates an application on the nodes of this test, and its budget.
pub(crate) async fn application(ctx: &TestContext, name: &str, replicas: usize, budget: Value) {
    let labels = json!({ "app": name });
    let set = json!({
        "metadata": { "name": name },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "nodeSelector": ctx.node_labels(), "terminationGracePeriodSeconds": 5,
                    "containers": [{ "name": "app", "image": "example.com/app" }],
                },
            },
        },
    });
    let sets = Api::<ReplicaSet>::namespaced(ctx.client.clone(), ctx.namespace());
    create(&sets, set).await;
    let mut spec = budget;
    spec["selector"] = json!({ "matchLabels": labels });
    let budgets = Api::<PodDisruptionBudget>::namespaced(ctx.client.clone(), ctx.namespace());
    create(&budgets, json!({ "metadata": { "name": name }, "spec": spec })).await;
    let ready = |set: &ReplicaSet| {
        let ready = set.status.as_ref().and_then(|status| status.ready_replicas);
        usize::try_from(ready.unwrap_or_default()).is_ok_and(|ready| ready == replicas)
    };
    wait::object(sets, name, "has all its pods", LONG, ready).await;
}

/// The snapshot of this test, as `kubectl get nodes,pods,pdb,replicasets,plans -o json` prints it.
async fn snapshot(ctx: &TestContext) -> Value {
    let mut items = Vec::new();
    let labels = ctx.node_labels();
    let selector: Vec<String> = labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let nodes = ["get", "nodes", "-o", "json", "-l", &selector.join(",")];
    let rest = ["get", "pods,pdb,replicasets,plans", "-o", "json"];
    for arguments in [&nodes[..], &rest[..]] {
        let list: Value = serde_json::from_str(&ctx.kubectl(arguments).await).unwrap();
        items.extend(list["items"].as_array().unwrap().iter().cloned());
    }
    json!({ "apiVersion": "v1", "kind": "List", "items": items })
}

fn plan(ctx: &TestContext, suspend: bool) -> Value {
    let spec = json!({
        "concurrency": 2, "suspend": suspend, "version": "v1.34.1", "jobActiveDeadlineSecs": DEADLINE,
        "nodeSelector": { "matchLabels": ctx.node_labels() }, "serviceAccountName": "system-upgrade",
        "drain": {}, "upgrade": { "image": "example.com/upgrade" },
    });
    let metadata = json!({ "name": "drains", "namespace": ctx.namespace() });
    json!({ "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "metadata": metadata, "spec": spec })
}

#[tokio::test]
async fn a_rehearsal_predicts_the_real_roll_out() {
    let ctx = TestContext::new().await;
    let kubeconfig = ctx.write_kubeconfig("drains", &ctx.token("system-upgrade").await);
    let set = NodeSet::numbered(&ctx.node_name("n"), NODES).task_runner(DrainProcesses { kubeconfig });
    let pods = Defaults {
        stop: Delay::millis(200),
        ..Defaults::default()
    };
    let _kubelet = ctx.run(set.pods(pods)).await;
    application(&ctx, "web", NODES, json!({ "maxUnavailable": 4 })).await;
    application(&ctx, "db", 1, json!({ "maxUnavailable": 0 })).await;
    let _controller = ctx.controller().start();
    ctx.plan(&plan(&ctx, true).to_string()).await;
    let is_resolved = |plan: &Plan| {
        plan.status
            .as_ref()
            .is_some_and(|status| status.latest_hash.is_some())
    };
    ctx.plan_until("drains", "is resolved", LONG, is_resolved).await;

    std::fs::write(ctx.dir().join("plan.json"), plan(&ctx, false).to_string()).unwrap();
    std::fs::write(ctx.dir().join("cluster.json"), snapshot(&ctx).await.to_string()).unwrap();
    let rehearsed = rehearsed(ctx.dir());
    assert_eq!(
        (rehearsed.order.len(), rehearsed.counts),
        (NODES, [20, 19, 1, 0]),
        "{rehearsed:?}"
    );

    ctx.edit_plan("drains", json!({ "spec": { "suspend": false } }))
        .await;
    let (locked, _) = rehearsed.failed[0].clone();
    let waits = |plan: &Plan| {
        active(plan, &locked).is_some_and(|node| {
            let message = node.message.as_deref().unwrap_or_default();
            node.reason.as_deref() == Some("DrainWaiting") && message.contains("PodDisruptionBudget db ")
        })
    };
    let what = format!("says that {locked} waits for the budget");
    let plan = ctx.plan_until("drains", &what, LONG, waits).await;
    let job = active(&plan, &locked).unwrap().job.clone().unwrap();
    let now = Patch::Merge(json!({ "spec": { "activeDeadlineSeconds": 1 } }));
    ctx.jobs()
        .patch(&job, &PatchParams::default(), &now)
        .await
        .unwrap();
    let over = |plan: &Plan| {
        let status = plan.status.as_ref();
        let counts = status.and_then(|status| status.nodes).unwrap_or_default();
        counts.done + counts.failed == 20
    };
    ctx.plan_until("drains", "is done or failed on all nodes", LONG, over)
        .await;
    let budget = format!("{}/db", ctx.namespace());
    let mut real = real(&ctx, (locked, budget)).await;
    assert!(
        is_same_order(&rehearsed.order, &real.order),
        "{rehearsed:#?}\n{real:#?}"
    );
    real.order.clone_from(&rehearsed.order);
    assert_eq!(real, rehearsed);
}

#[tokio::test]
async fn the_cluster_of_a_context_is_read_and_left_as_it_is() {
    let ctx = TestContext::alone().await;
    let _kubelet = ctx.run_nodes(3).await;
    application(&ctx, "web", 3, json!({ "maxUnavailable": 1 })).await;
    std::fs::write(ctx.dir().join("plan.json"), plan(&ctx, false).to_string()).unwrap();
    let kubeconfig = ctx.test_env.kubeconfig();
    let more = format!("--upgrade 5s --kubeconfig {}", kubeconfig.display());
    let output = rehearse(ctx.dir(), "context", &more);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let turns = report["turns"].as_array().unwrap();
    let rehearsed: BTreeSet<_> = turns.iter().map(|turn| text(&turn["node"])).collect();
    let there: BTreeSet<_> = ctx.my_nodes().await.iter().map(Node::name_any).collect();
    assert_eq!(rehearsed, there);
    assert_eq!(turns.len(), there.len());
    assert!(
        stderr.contains("Plans cannot be read") || ctx.plans().get_opt("drains").await.unwrap().is_none()
    );
    assert_eq!(ctx.jobs_of("drains").await.len(), 0, "nothing is written");
    // What holds for all Plans of the namespace.
    let limits = json!({ "metadata": { "name": "refit", "namespace": ctx.namespace() }, "data": { "freeze": "audit" } });
    let maps = Api::<ConfigMap>::namespaced(ctx.client.clone(), ctx.namespace());
    create(&maps, limits).await;
    let output = rehearse(ctx.dir(), "context", &format!("{more} -n {}", ctx.namespace()));
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{stdout}");
    assert!(
        stdout.contains("no node starts, by ConfigMap refit: audit"),
        "{stdout}"
    );
}

/// Two nodes that start in one decision have no order, so with two slots neighbours may be swapped.
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
