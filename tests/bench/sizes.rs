//! The cost of a controller against the size of its cluster: `REFIT_SIZES=100x1,1000x10 just bench` chooses nodes and
//! Plans, and `docs/reliability.md` has the figures.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use refit_rehearse::pod_lifecycle::{Defaults, Delay};
use serde_json::json;

use super::LIMIT;
use crate::testenv::context::TestContext;
use crate::testenv::kubelet::{FakeKubelet, NodeSet};
use crate::testenv::plan::status;
use crate::testenv::web::get;
use crate::testenv::{terminal, wait};

/// Nodes and Plans.
const SIZES: &str = "100x1,1000x1,5000x1,15000x1,5000x10,5000x50,5000x200";
/// Nodes upgraded at a time by all Plans together, if there are not more Plans.
const AT_A_TIME: usize = 50;
/// The roll-out is measured on so many nodes: it is the cost per node that matters.
const MEASURED: usize = 500;
const PLAN: &str = "of-slice";

/// The sum of all series of a metric.
fn sum(text: &str, metric: &str) -> f64 {
    let series = text.lines().filter(|line| {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        name == metric
    });
    let values = series.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    values.sum()
}

async fn metrics(address: SocketAddr) -> String {
    get(address, "/metrics").await.expect("metrics").1
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn mebibytes(bytes: Option<u64>) -> f64 {
    bytes.unwrap_or_default() as f64 / f64::from(1 << 20)
}

/// The nodes, each in the slice of one Plan.
async fn nodes(ctx: &TestContext, count: usize, plans: usize) -> FakeKubelet {
    let pods = Defaults {
        start: Delay::millis(100),
        run: Delay::millis(1000),
        ..Defaults::default()
    };
    let mut nodes = NodeSet::numbered(&ctx.node_name("n"), count)
        .labels(ctx.node_labels())
        .pods(pods);
    nodes.lease_interval = Duration::from_secs(40);
    for (index, node) in nodes.nodes.iter_mut().enumerate() {
        node.labels
            .insert("slice".to_owned(), (index % plans).to_string());
    }
    FakeKubelet::start(&ctx.test_env.kubelet_config().await, nodes).await
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
async fn measure(count: usize, plans: usize) {
    let ctx = TestContext::alone().await;
    let kubelets = nodes(&ctx, count, plans).await;
    for slice in 0..plans {
        let spec = json!({
            "concurrency": AT_A_TIME.div_ceil(plans), "version": "v1", "suspend": true,
            "nodeSelector": { "matchLabels": { "slice": slice.to_string() } }, "upgrade": { "image": "x", "command": ["upgrade"] },
        });
        let plan = json!({
            "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "metadata": { "name": format!("{PLAN}-{slice}") }, "spec": spec,
        });
        ctx.try_apply(plan).await.expect("a Plan");
    }
    let started = Instant::now();
    let controller = ctx.controller().usual_lease_times().with_metrics().start();
    let all = i64::try_from(count).expect("a number of nodes");
    let selected = async || {
        let plans = ctx
            .plans()
            .list(&kube::api::ListParams::default())
            .await
            .expect("the Plans");
        plans
            .items
            .iter()
            .map(|plan| status(plan).nodes.unwrap_or_default().selected)
            .sum::<i64>()
    };
    wait::eventually("all Plans count their nodes", LIMIT, async || {
        match selected().await {
            counted if counted == all => Ok(()),
            counted => Err(format!("{counted} of {count}")),
        }
    })
    .await;
    let to_list = started.elapsed().as_secs_f64();
    let to_list_cpu = controller.cpu_time().unwrap_or_default().as_secs_f64();
    let idle_memory = mebibytes(controller.memory_now());
    let address = controller.metrics_address().await;
    let (before, cpu) = (metrics(address).await, controller.cpu_time().unwrap_or_default());
    for slice in 0..plans {
        ctx.edit_plan(
            &format!("{PLAN}-{slice}"),
            json!({ "spec": { "suspend": false } }),
        )
        .await;
    }
    let enough = i64::try_from(count.min(MEASURED)).expect("a number of nodes");
    let done = wait::eventually("some nodes are done", LIMIT, async || {
        let text = metrics(address).await;
        #[expect(clippy::cast_possible_truncation, reason = "a number of nodes")]
        match sum(&text, "refit_node_upgrades_total") as i64 {
            done if done >= enough => Ok(done),
            done => Err(format!("{done} are")),
        }
    })
    .await;
    let cpu = controller
        .cpu_time()
        .unwrap_or_default()
        .saturating_sub(cpu)
        .as_secs_f64();
    let after = metrics(address).await;
    let grown = |metric: &str| sum(&after, metric) - sum(&before, metric);
    let decisions = grown("refit_decision_duration_seconds_count").max(1.0);
    let decision = grown("refit_decision_duration_seconds_sum") * 1e3 / decisions;
    let requests = grown("refit_api_requests_total") / done as f64;
    let plan = ctx.plans().get(&format!("{PLAN}-0")).await.expect("the Plan");
    let bytes = serde_json::to_vec(&plan.status).expect("a status").len();
    terminal::say(&format!(
        "sizes: | {count} | {plans} | {to_list:.1} s | {to_list_cpu:.2} s | {idle_memory:.0} MiB | {:.0} MiB | {:.1} ms | {requests:.1} | {decision:.2} ms | {:.1} kB |",
        mebibytes(controller.peak_memory()),
        cpu * 1e3 / done as f64,
        bytes as f64 / 1e3,
    ));
    drop(controller);
    kubelets.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures the release and wants the machine for itself: just bench"]
async fn the_cost_of_a_controller_is_printed_by_size() {
    let sizes = std::env::var("REFIT_SIZES").unwrap_or_else(|_| SIZES.to_owned());
    terminal::say(
        "sizes: | nodes | Plans | start until all is counted | processor time of it | memory | peak in a roll-out | processor time a node | requests a node | \
         a decision | status of a Plan |",
    );
    for size in sizes.split(',') {
        let (nodes, plans) = size
            .split_once('x')
            .expect("REFIT_SIZES is a list like 100x1,1000x10");
        let number = |text: &str| text.parse().expect("a number");
        measure(number(nodes), number(plans)).await;
    }
}
