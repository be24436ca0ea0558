//! Plans that cordon and drain, from the Plan to the node given back, with the command line of the init container run for real.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use refit::api::NodeProgress;
use refit::api::names::LABEL_PLAN;
use refit::rehearse::podlife::Exit;
use serde_json::{Value, json};

use super::{A_WHILE, Bench, DRAINER};
use crate::scene::{self, active, is_cordoned, ledger};
use crate::support::kubelet::{Act, ContainerAct};
use crate::support::world::World;

/// What a kubelet keeps of a log where a container has failed without a termination message (`FallbackToLogsOnError`).
const TERMINATION_LOG: usize = 2_048;

/// Runs `cordon` and `drain` containers as processes, as the account that Plans name.
struct Processes {
    kubeconfig: PathBuf,
}

impl ContainerAct for Processes {
    fn acts(&self, container: &str) -> bool {
        matches!(container, "cordon" | "drain")
    }

    fn run(&self, act: Act) -> BoxFuture<'static, Exit> {
        let mut command = tokio::process::Command::new(Path::new(env!("CARGO_BIN_EXE_refit")));
        command
            .args(&act.start.args)
            .env_clear()
            .envs(&act.start.env)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        assert!(act.start.command.is_empty(), "the image's entrypoint is refit");
        Box::pin(async move {
            let out = command.output().await.unwrap();
            let log = [out.stdout, out.stderr].concat();
            let log = String::from_utf8_lossy(&log[log.len().saturating_sub(TERMINATION_LOG)..]).into_owned();
            let code = out.status.code().unwrap_or(137);
            Exit {
                code,
                message: (code != 0).then_some(log),
            }
        })
    }
}

/// Nodes whose drains are real.
pub(super) async fn stage(nodes: &[&str]) -> Bench {
    let world = World::new().await;
    let kubeconfig = world.write_kubeconfig("containers", &world.token(DRAINER).await);
    Bench::with(world, nodes, |set| set.act(Processes { kubeconfig })).await
}

/// A Plan for all nodes, one at a time.
pub(super) async fn make(bench: &Bench, name: &str, spec: Value) {
    bench
        .world
        .plan(&scene::plan(name, json!({ "spec": spec })))
        .await;
}

/// Waits until status says that of the node, and returns it.
pub(super) async fn told(
    bench: &Bench,
    plan: &str,
    what: &str,
    good: impl Fn(&NodeProgress) -> bool,
) -> NodeProgress {
    let node = bench.node("one");
    let plan = bench
        .world
        .plan_until(plan, what, A_WHILE, |plan| active(plan, &node).is_some_and(&good))
        .await;
    active(&plan, &node).unwrap().clone()
}

pub(super) async fn given_back(bench: &Bench) {
    let back = |node: &Node| !is_cordoned(node) && ledger(node).is_none();
    bench
        .world
        .node_until(&bench.node("one"), "is given back", A_WHILE, back)
        .await;
}

/// The pods of the Plan's Job that were there.
pub(super) async fn job_pods(bench: &Bench, plan: &str) -> Vec<Pod> {
    let mine = ListParams::default().labels(&format!("{LABEL_PLAN}={plan}"));
    bench.world.pods().list(&mine).await.unwrap().items
}

/// A node whose one pod a budget keeps there.
pub(super) async fn held_up() -> Bench {
    let bench = stage(&["one"]).await;
    bench.pods("one", ["web-1"], json!({ "app": "web" })).await;
    bench
        .budget("guard", "web", json!({ "minAvailable": 1 }), 1)
        .await;
    bench
}

/// Waits until a Plan tells that its drain waits for a pod.
pub(super) async fn drain_waits(bench: &Bench, plan: &str) -> NodeProgress {
    told(bench, plan, "waits in its drain", |node| {
        node.reason.as_deref() == Some("DrainWaiting")
    })
    .await
}

#[tokio::test]
async fn a_node_is_drained_upgraded_and_given_back() {
    let bench = stage(&["one"]).await;
    bench
        .pods("one", ["web-1", "web-2"], json!({ "app": "web" }))
        .await;
    bench.pods("one", ["data"], json!({ "data": true })).await;
    let _controller = bench.world.controller().start();
    make(
        &bench,
        "k3s",
        json!({ "drain": {}, "upgrade": { "image": "example.com/upgrade" } }),
    )
    .await;
    bench.world.plan_complete("k3s", A_WHILE).await;
    given_back(&bench).await;
    let left: Vec<_> = bench.on_node("one").await.into_keys().collect();
    assert!(
        !left
            .iter()
            .any(|pod| ["web-1", "web-2", "data"].contains(&pod.as_str())),
        "{left:?}"
    );
    assert_eq!(bench.kubelet.runs(&bench.node("one"), "upgrade").await, 1);
    assert_eq!(bench.kubelet.runs(&bench.node("one"), "drain").await, 1);
    // What it did, and as whom.
    let requests = bench.drainer_requests().await;
    assert!(requests.forbidden().is_empty(), "{:#?}", requests.forbidden());
    let evictions = requests
        .0
        .iter()
        .filter(|it| it.resource == "pods/eviction" && it.code == 201);
    assert_eq!(evictions.count(), 3);
}

#[tokio::test]
async fn a_node_is_cordoned_by_the_cordon_container_and_given_back() {
    let bench = stage(&["one"]).await;
    bench.pods("one", ["stays"], json!({})).await;
    bench
        .kubelet
        .behaviour(&bench.node("one"), &[("upgrade.run-delay", "never")])
        .await;
    let _controller = bench.world.controller().start();
    make(&bench, "k3s", json!({ "cordon": true })).await;
    told(&bench, "k3s", "is upgrading", |node| node.phase == "Upgrading").await;
    let node = bench.world.node(&bench.node("one")).await;
    assert!(is_cordoned(&node));
    let holders = ledger(&node).unwrap().holders;
    assert!(
        holders.len() == 1 && holders[0].passed && holders[0].plan == "k3s",
        "{holders:?}"
    );
    bench
        .kubelet
        .behaviour(&bench.node("one"), &[("upgrade.run-delay", "0s")])
        .await;
    bench.world.plan_complete("k3s", A_WHILE).await;
    given_back(&bench).await;
    assert_eq!(bench.on_node("one").await.get("stays"), Some(&false));
}

#[tokio::test]
async fn status_names_pod_and_budget_within_ten_seconds_and_says_why_it_failed() {
    let bench = held_up().await;
    let _controller = bench
        .world
        .controller()
        .env("SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT", "0")
        .start();
    make(&bench, "k3s", json!({ "drain": { "timeout": "25s" } })).await;
    told(&bench, "k3s", "is draining", |node| node.phase == "Draining").await;
    let began = Instant::now();
    let waits = told(&bench, "k3s", "waits in its drain", |node| {
        node.reason.as_deref() == Some("DrainWaiting")
    })
    .await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(waits.phase, "Draining");
    let message = waits.message.unwrap();
    let pod = format!(
        "{}/web-1 waits for PodDisruptionBudget guard since ",
        bench.world.namespace()
    );
    assert!(
        message.starts_with("0 of 1 pods are gone; ") && message.contains(&pod),
        "{message}"
    );

    let failed = told(&bench, "k3s", "has failed", |node| node.phase == "Failed").await;
    let message = failed.message.unwrap();
    assert!(message.contains("container drain exited with 1: "), "{message}");
    assert!(
        message.contains("global timeout reached: 25s; 0 of 1 pods are gone"),
        "{message}"
    );
    assert!(message.contains(&pod), "{message}");
    let node = bench.world.node(&bench.node("one")).await;
    assert!(is_cordoned(&node), "nobody has looked at it");
    assert_eq!(ledger(&node).map(|ledger| ledger.before), Some(false));
    bench
        .world
        .plans()
        .delete("k3s", &DeleteParams::default())
        .await
        .unwrap();
    given_back(&bench).await;
}

#[tokio::test]
async fn a_pod_that_stops_the_drain_is_told_and_the_node_stays_schedulable() {
    let bench = stage(&["one"]).await;
    bench.pods("one", ["lonely"], json!({ "alone": true })).await;
    let _controller = bench
        .world
        .controller()
        .env("SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT", "0")
        .start();
    make(&bench, "k3s", json!({ "drain": {} })).await;
    let failed = told(&bench, "k3s", "has failed", |node| node.phase == "Failed").await;
    let message = failed.message.unwrap();
    let why = format!(
        "cannot delete Pods that declare no controller (use --force to override): {}/lonely",
        bench.world.namespace()
    );
    assert!(message.contains(&why), "{message}");
    let node = bench.world.node(&bench.node("one")).await;
    assert!(!is_cordoned(&node) && ledger(&node).is_none());
}

#[tokio::test]
async fn a_node_is_given_back_when_its_plan_is_deleted_in_mid_drain() {
    let bench = held_up().await;
    let _controller = bench.world.controller().start();
    make(&bench, "k3s", json!({ "drain": {} })).await;
    drain_waits(&bench, "k3s").await;
    assert!(bench.is_cordoned("one").await);
    bench
        .world
        .plans()
        .delete("k3s", &DeleteParams::default())
        .await
        .unwrap();
    given_back(&bench).await;
    assert_eq!(bench.on_node("one").await.get("web-1"), Some(&false));
    assert!(
        job_pods(&bench, "k3s").await.is_empty(),
        "never before the pod is gone"
    );
}

#[tokio::test]
async fn a_node_is_given_back_for_a_plan_that_was_deleted_while_no_controller_ran() {
    let bench = held_up().await;
    let controller = bench.world.controller().start();
    make(&bench, "k3s", json!({ "drain": {} })).await;
    drain_waits(&bench, "k3s").await;
    controller.kill();
    bench
        .world
        .plans()
        .delete("k3s", &DeleteParams::default())
        .await
        .unwrap();
    // Garbage collection takes the Job and its pod.
    crate::support::wait::eventually("the pod of the Job is gone", A_WHILE, async || {
        match job_pods(&bench, "k3s").await.len() {
            0 => Ok(()),
            pods => Err(format!("{pods} are there")),
        }
    })
    .await;
    assert!(bench.is_cordoned("one").await, "nobody is there to give it back");
    let _next = bench.world.controller().start();
    given_back(&bench).await;
}

#[tokio::test]
async fn a_pod_that_dies_in_its_drain_is_made_anew_and_the_node_is_what_it_was() {
    for before in [false, true] {
        let bench = held_up().await;
        if before {
            bench.world.cordon(&bench.node("one")).await;
        }
        let _controller = bench.world.controller().start();
        make(&bench, "k3s", json!({ "drain": {} })).await;
        drain_waits(&bench, "k3s").await;
        let [pod] = <[Pod; 1]>::try_from(job_pods(&bench, "k3s").await).unwrap();
        // The container is killed on the spot, and the Job makes another pod.
        let at_once = DeleteParams::default().grace_period(0);
        bench
            .world
            .pods()
            .delete(&pod.name_any(), &at_once)
            .await
            .unwrap();
        bench.open("guard").await;
        bench.world.plan_complete("k3s", A_WHILE).await;
        let what = "is what it was";
        let node = bench
            .world
            .node_until(&bench.node("one"), what, A_WHILE, |node| ledger(node).is_none())
            .await;
        assert_eq!(is_cordoned(&node), before);
        assert_eq!(bench.kubelet.runs(&bench.node("one"), "drain").await, 2);
    }
}

/// Plans of two controllers that do not know of each other hold one node at the same time: each begins first and each leaves
/// first, on a node that a person had cordoned and on one that nobody had.
#[tokio::test]
async fn two_plans_that_hold_one_node_leave_it_as_it_was_in_every_order() {
    let bench = stage(&["one"]).await;
    let beside = bench.world.beside().await;
    let node = bench.node("one");
    let _drains = bench.world.controller().start();
    let _cordons = beside.controller().start();
    let orders = (0..8).map(|order| (order, order & 1 != 0, order & 2 != 0, order & 4 != 0));
    for (round, before, drain_begins, drain_leaves) in orders {
        let name = format!("round-{round}");
        if before {
            bench.world.cordon(&node).await;
        }
        let own = format!("pod-{round}");
        if !before {
            bench.pods("one", [own.as_str()], json!({})).await;
        }
        // Upgrades go on until they are released.
        bench
            .kubelet
            .behaviour(&node, &[("upgrade.run-delay", "never")])
            .await;
        let drain = (&bench.world, json!({ "drain": {} }));
        let cordon = (&beside, json!({ "cordon": true }));
        let (first, second) = if drain_begins {
            (drain, cordon)
        } else {
            (cordon, drain)
        };
        for (holders, (world, spec)) in [(1, first), (2, second)] {
            world.plan(&scene::plan(&name, json!({ "spec": spec }))).await;
            let all = |node: &Node| {
                ledger(node).is_some_and(|ledger| {
                    ledger.holders.len() == holders && ledger.holders.iter().all(|one| one.passed)
                })
            };
            let held = bench
                .world
                .node_until(&node, &format!("is held by {holders}"), A_WHILE, all)
                .await;
            assert!(is_cordoned(&held), "round {round}");
            assert_eq!(ledger(&held).unwrap().before, before, "round {round}");
        }
        assert!(!bench.on_node("one").await.contains_key(&own));

        let (leaves, stays) = if drain_leaves {
            (&bench.world, &beside)
        } else {
            (&beside, &bench.world)
        };
        leaves
            .plans()
            .delete(&name, &DeleteParams::default())
            .await
            .unwrap();
        let one_left = |node: &Node| ledger(node).is_some_and(|ledger| ledger.holders.len() == 1);
        let held = bench
            .world
            .node_until(&node, "is held by one", A_WHILE, one_left)
            .await;
        let holder = &ledger(&held).unwrap().holders[0];
        assert_eq!(holder.namespace, stays.namespace());
        assert!(is_cordoned(&held));
        bench
            .kubelet
            .behaviour(&node, &[("upgrade.run-delay", "0s")])
            .await;
        stays.plan_complete(&name, A_WHILE).await;
        let free = |node: &Node| ledger(node).is_none();
        let free = bench
            .world
            .node_until(&node, "is held by nobody", A_WHILE, free)
            .await;
        assert_eq!(is_cordoned(&free), before, "round {round}");
        stays
            .plans()
            .delete(&name, &DeleteParams::default())
            .await
            .unwrap();
        bench.world.uncordon(&node).await;
    }
}

/// The second comes while the first still drains, and ends before it does.
#[tokio::test]
async fn a_node_stays_cordoned_for_a_drain_when_a_plan_that_came_later_is_done() {
    let bench = held_up().await;
    let beside = bench.world.beside().await;
    let node = bench.node("one");
    let _drains = bench.world.controller().start();
    let _cordons = beside.controller().start();
    make(&bench, "drains", json!({ "drain": {} })).await;
    drain_waits(&bench, "drains").await;
    beside
        .plan(&scene::plan("cordons", json!({ "spec": { "cordon": true } })))
        .await;
    beside.plan_complete("cordons", A_WHILE).await;
    let alone = |node: &Node| ledger(node).is_some_and(|ledger| ledger.holders.len() == 1);
    let held = bench
        .world
        .node_until(&node, "is held by the drain alone", A_WHILE, alone)
        .await;
    assert!(is_cordoned(&held));
    assert_eq!(
        ledger(&held).unwrap().holders[0].namespace,
        bench.world.namespace()
    );
    assert!(bench.on_node("one").await.contains_key("web-1"));

    bench.open("guard").await;
    bench.world.plan_complete("drains", A_WHILE).await;
    let free = bench
        .world
        .node_until(&node, "is held by nobody", A_WHILE, |node| ledger(node).is_none())
        .await;
    assert!(!is_cordoned(&free));
    assert!(!bench.on_node("one").await.contains_key("web-1"));
}
