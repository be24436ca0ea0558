//! Migration and the way back with system-upgrade-controller itself, built from a checkout, on a real control plane:
//! either controller is killed after each of its writes in turn, which leaves paused Jobs, drains, and nodes that are
//! finished and not labelled. The other one goes on.
//!
//! refit adopts the Jobs of system-upgrade-controller, so no node runs twice. system-upgrade-controller does not adopt
//! those of refit: its `apply` compares the Pod template with the annotation `objectset.rio.cattle.io/applied`, or,
//! without it, with the stored one and all its defaults, and replaces what differs (`reconcileJob` in wrangler). So a
//! node that has a Job of refit and no label may run once more, and the others do not.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt as _;
use kube::ResourceExt as _;
use serde_json::json;

use crate::harness::{has_condition, is_cordoned};
use crate::rollout::{PLAN, RollOut, Shape};
use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::{done, find_condition};
use crate::testenv::controller::{Controller, Setup};
use crate::testenv::faults::{Moment, Rule};
use crate::testenv::kubelet::NodeSet;
use crate::testenv::manifest::Manifests;
use crate::testenv::process::Run;
use crate::testenv::wait::{self, SOON};

const SHAPE: Shape = Shape {
    nodes: 2,
    concurrency: 1,
    run: Duration::from_millis(500),
};

/// As many as keep a machine with two cores busy.
const SIDE_BY_SIDE: usize = 3;

/// Which controller begins; the other one takes over.
#[derive(Clone, Copy, Debug, PartialEq)]
enum First {
    SystemUpgradeController,
    Refit,
}

impl First {
    /// The one that begins, and the one that takes over.
    fn setups(self, rollout: &RollOut, suc: &Path) -> [Setup; 2] {
        let refit = rollout.controller().env("SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT", "0");
        let suc = refit.clone().program(suc);
        match self {
            Self::SystemUpgradeController => [suc, refit],
            Self::Refit => [refit, suc],
        }
    }
}

/// The program, built once.
async fn program() -> PathBuf {
    static BUILT: tokio::sync::OnceCell<PathBuf> = tokio::sync::OnceCell::const_new();
    let built = BUILT.get_or_init(async || {
        let program = Run::current().folder("suc").join("system-upgrade-controller");
        super::run(
            tokio::process::Command::new("go")
                .args(["build", "-trimpath", "-o"])
                .arg(&program)
                .arg(".")
                .env("CGO_ENABLED", "0")
                .current_dir(super::checkout()),
        )
        .await;
        program
    });
    built.await.clone()
}

async fn prepare(shape: Shape) -> RollOut {
    let mut rollout = RollOut::prepare(TestContext::with(Manifests::Suc).await, shape).await;
    // Its Jobs have a container for it, with the image of kubectl.
    rollout.spec["drain"] = json!({ "force": true });
    rollout
}

/// Names of the nodes that are labelled as finished.
async fn finished(rollout: &RollOut) -> BTreeSet<String> {
    let nodes = rollout.ctx.my_nodes().await;
    let labelled = nodes.iter().filter(|node| done(node, PLAN).is_some());
    labelled.map(kube::ResourceExt::name_any).collect()
}

/// Waits until the Plan is complete and no node is cordoned. Starts a controller that has ended again, as the kubelet would:
/// system-upgrade-controller ends if somebody else writes the CRD at the same time.
async fn ends(rollout: &RollOut, mut controller: Controller, what: &str) {
    let ctx = &rollout.ctx;
    let is_complete =
        |plan: &refit_api::Plan| find_condition(plan, "Complete").is_some_and(|it| it.status == "True");
    wait::eventually("all nodes are done", SOON, async || {
        if !controller.is_running() {
            controller = controller.start_again();
        }
        let plan = ctx.plans().get(PLAN).await.map_err(|error| error.to_string())?;
        let hash = plan.status.as_ref().and_then(|status| status.latest_hash.clone());
        let nodes = ctx.my_nodes().await;
        let open: Vec<_> = nodes
            .iter()
            .filter(|node| done(node, PLAN) != hash || hash.is_none() || is_cordoned(node))
            .map(kube::ResourceExt::name_any)
            .collect();
        if open.is_empty() && is_complete(&plan) {
            Ok(())
        } else {
            Err(format!("{what}: {open:?}, {:?}", plan.status))
        }
    })
    .await;
}

/// Kills the first controller after one of its writes. Returns false if it made no such write.
async fn killed_after(first: First, number: u64, suc: &Path) -> bool {
    let rollout = prepare(SHAPE).await;
    let [one, other] = first.setups(&rollout, suc);
    let faults = rollout.ctx.faults(0).await;
    faults.add(Rule::write().nth(number).kill(Moment::After));
    let one = one.through(&faults).start();
    rollout.begin().await;
    let what = format!("{first:?}, killed after write {number}");
    let ended = wait::eventually("it is killed or done", SOON, async || {
        let nodes = rollout.ctx.my_nodes().await;
        let all_done = nodes
            .iter()
            .all(|node| done(node, PLAN).is_some() && !is_cordoned(node));
        match (one.is_running(), all_done) {
            (false, _) => Ok(true),
            (true, true) => Ok(false),
            _ => Err(format!("{what}: {} writes", faults.writes())),
        }
    })
    .await;
    one.kill();
    let finished = finished(&rollout).await;
    let jobs = rollout.ctx.jobs_of(PLAN).await;
    let with_job: BTreeSet<_> = jobs
        .iter()
        .filter_map(|job| job.labels().get("upgrade.cattle.io/node"))
        .collect();
    ends(&rollout, other.start(), &what).await;
    for node in rollout.ctx.my_nodes().await {
        let name = node.name_any();
        let replaced = first == First::Refit && with_job.contains(&name) && !finished.contains(&name);
        let allowed = if replaced { 1..=2 } else { 1..=1 };
        let runs = rollout.kubelet.runs(&name, "upgrade").await;
        assert!(
            allowed.contains(&runs),
            "{what}: {name} ran {runs} times, finished were {finished:?}"
        );
    }
    ended
}

/// Kills the first controller after its first write, its second, and so on.
async fn sweep(first: First) {
    let suc = program().await;
    let tries = futures::stream::iter(1..).map(|number| {
        let suc = suc.clone();
        async move { (number, killed_after(first, number, &suc).await) }
    });
    let mut tries = tries.buffered(SIDE_BY_SIDE);
    while let Some((number, killed)) = tries.next().await {
        if !killed {
            eprintln!("{first:?} was killed after each of {} writes", number - 1);
            assert!(number > 6, "a roll-out has more writes than {number}");
            return;
        }
    }
}

/// One node fails under the first controller and another one is done, and the other controller has upgraded a third one.
/// Returns the name of the one that failed.
async fn failed(first: First) -> (RollOut, String) {
    let suc = program().await;
    let rollout = prepare(Shape {
        concurrency: 3,
        ..SHAPE
    })
    .await;
    let ctx = &rollout.ctx;
    let broken = ctx.my_nodes().await[0].name_any();
    rollout
        .kubelet
        .behaviour(&broken, &[("upgrade.exit-code", "1")])
        .await;
    let [one, other] = first.setups(&rollout, &suc);
    let one = one.start();
    rollout.begin().await;
    wait::eventually(
        "one Job has failed, and the other node is done",
        SOON,
        async || {
            let jobs = ctx.jobs_of(PLAN).await;
            let has_failed = jobs.iter().any(|job| has_condition(job, "Failed"));
            let done = finished(&rollout).await.len();
            if has_failed && done == 1 {
                Ok(())
            } else {
                Err(format!("{done}, {has_failed}"))
            }
        },
    )
    .await;
    one.kill();
    let before = finished(&rollout).await;
    let _other = other.start();
    // The other controller has worked when it has upgraded a node that comes later.
    let more = NodeSet::numbered(&ctx.node_name("later"), 1).labels(ctx.node_labels());
    let _more = ctx.run(more).await;
    let later = ctx.node_name("later0000");
    ctx.node_until(&later, "is done", SOON, |node| done(node, PLAN).is_some())
        .await;
    for name in before {
        assert_eq!(rollout.kubelet.runs(&name, "upgrade").await, 1, "{name}");
    }
    assert_eq!(done(&ctx.node(&broken).await, PLAN), None);
    (rollout, broken)
}

#[tokio::test]
#[ignore = "builds system-upgrade-controller from a checkout: just suc-migration CHECKOUT"]
async fn refit_goes_on_where_system_upgrade_controller_was_killed() {
    sweep(First::SystemUpgradeController).await;
}

#[tokio::test]
#[ignore = "builds system-upgrade-controller from a checkout: just suc-migration CHECKOUT"]
async fn system_upgrade_controller_goes_on_where_refit_was_killed_and_runs_no_finished_node_again() {
    sweep(First::Refit).await;
}

#[tokio::test]
#[ignore = "builds system-upgrade-controller from a checkout: just suc-migration CHECKOUT"]
async fn a_node_that_failed_under_system_upgrade_controller_does_not_run_again_under_refit() {
    let (rollout, broken) = failed(First::SystemUpgradeController).await;
    assert_eq!(rollout.kubelet.runs(&broken, "upgrade").await, 1);
}

#[tokio::test]
#[ignore = "builds system-upgrade-controller from a checkout: just suc-migration CHECKOUT"]
async fn a_node_that_failed_under_refit_runs_again_under_system_upgrade_controller_and_holds_up_no_other() {
    // As docs/migrate.md says, and not as one would wish.
    let (rollout, broken) = failed(First::Refit).await;
    wait::holds("the failed node runs again", async || {
        rollout.kubelet.runs(&broken, "upgrade").await == 2
    })
    .await;
}
