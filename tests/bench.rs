//! Benchmarks with budgets, on a control plane of their own: `just bench`. Each figure is printed with its budget.
//! Exceeded budgets fail the run at its end, when all figures are known.

mod bare;
mod rehearsals;
mod sizes;
mod table;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use refit_api::PlanSpec;
use refit_rehearse::pod_lifecycle::{Defaults, Delay};
use serde_json::json;
use tokio::task::JoinSet;

use crate::harness::is_recorded;
use crate::rollout::account;
use crate::testenv::audit::Requests;
use crate::testenv::context::TestContext;
use crate::testenv::controller::{Controller, binary};
use crate::testenv::kubelet::{FakeKubelet, NodeSet};
use crate::testenv::web::get;
use crate::testenv::{terminal, wait};
use bare::{Gaps, bare_limit, clear_jobs};
use table::{Span, Table, Took, median};

/// Maximum time of a roll-out on any suitable machine.
const LIMIT: Duration = Duration::from_secs(900);
const GAP: &str = "Job complete to next Job created";
/// As Prometheus scrapes in most installations, or less often.
const SCRAPE_INTERVAL: Duration = Duration::from_secs(15);
/// Number of measurements of each roll-out.
const ROUNDS: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures for minutes and wants the machine for itself: just bench"]
async fn benchmarks_stay_within_their_budgets() {
    let mut table = Table::default();
    #[expect(clippy::cast_precision_loss, reason = "megabytes")]
    let size = std::fs::metadata(binary()).map_or(0.0, |file| file.len() as f64 / 1e6);
    table.row("binary", size, "MB", (!cfg!(debug_assertions)).then_some(20.0));
    for (count, concurrency, most) in [(100, 10, 26.0), (1000, 100, 50.0)] {
        for _ in 0..ROUNDS {
            roll_out(&mut table, count, concurrency, most).await;
        }
    }
    assert!(table.over.is_empty(), "over budget:\n{}", table.over.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures for minutes and wants the machine for itself: just bench"]
async fn an_idle_controller_that_is_scraped_costs_next_to_nothing() {
    let mut table = Table::default();
    idle(&mut table, 5000).await;
    assert!(table.over.is_empty(), "over budget:\n{}", table.over.join("\n"));
}

/// Fast kubelets whose containers run for a second, as the budgets assume.
async fn kubelets(ctx: &TestContext, prefix: &str, count: usize, lease: Duration) -> FakeKubelet {
    let pods = Defaults {
        start: Delay::millis(100),
        run: Delay::millis(1000),
        ..Defaults::default()
    };
    let mut nodes = NodeSet::numbered(&ctx.node_name(prefix), count)
        .labels(ctx.node_labels())
        .pods(pods);
    nodes.lease_interval = lease;
    FakeKubelet::start(&ctx.test_env.kubelet_config().await, nodes).await
}

/// The spec of the measured Plans.
fn spec(ctx: &TestContext, concurrency: usize) -> PlanSpec {
    let text = format!(
        "{{concurrency: {concurrency}, nodeSelector: {{matchLabels: {{test: {}}}}}, version: v1, upgrade: {{image: x, \
         command: [upgrade]}}}}",
        ctx.id
    );
    serde_saphyr::from_str(&text).unwrap()
}

/// Creates the same Jobs by the bare client and by a Plan, on the same control plane. The bare client is measured
/// before and after, and the mean is compared.
async fn roll_out(table: &mut Table, count: usize, concurrency: usize, most: f64) {
    let ctx = TestContext::alone().await;
    let kubelets = kubelets(&ctx, "n", count, Duration::from_secs(20)).await;
    let title = format!("{count} nodes, concurrency {concurrency}");
    let creator = account(&ctx, "bare").await;
    let before = bare_limit(table, &title, &ctx, &creator, count, concurrency).await;
    let controller = led(table, &title, &ctx).await;
    let own = controller.cpu_time().unwrap_or_default();
    let (whole, gap) = complete(&ctx, concurrency).await;
    let own = controller.cpu_time().unwrap_or_default().saturating_sub(own);
    table.round(&format!("{title}: roll-out"), whole.took.as_secs_f64(), "s", most);
    table.processor(&title, "roll-out", &whole);
    let what = format!("{title}: processor time of the controller");
    table.row(&what, own.as_secs_f64(), "s", None);
    table.round(&format!("{title}: {GAP}"), gap, "ms", 100.0);

    // Jobs are recorded after their nodes are done; the requests include that.
    wait::eventually("all Jobs are recorded", LIMIT, async || {
        let jobs = ctx.jobs_of("bench").await;
        match jobs.iter().filter(|job| !is_recorded(job)).count() {
            0 => Ok(()),
            open => Err(format!("{open} are not")),
        }
    })
    .await;
    let requests = ctx.controller_requests().await;
    let what = format!("{title}: requests a node, Events and Lease aside");
    table.row(&what, per_node(&requests, count), "", Some(4.0));
    let is_read = |resource: &str| matches!(resource, "nodes" | "jobs");
    let reads = requests
        .0
        .iter()
        .filter(|it| it.verb == "get" && is_read(&it.resource))
        .count();
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    table.row(&format!("{title}: reads in the roll-out"), reads as f64, "", None);
    let peak = controller.peak_memory();
    memory(table, &title, "peak resident memory", peak, Some(64.0));
    let runs = requests.jobs_by_node_and_hash();
    assert!(runs.values().all(|jobs| jobs.len() == 1), "a node ran twice");
    for (request, times) in requests.tally() {
        terminal::say(&format!("    {times:>6} {request:?}"));
    }
    drop(controller);
    clear_jobs(&ctx).await;
    let after = bare_limit(table, &title, &ctx, &creator, count, concurrency).await;
    let ratio = whole.took.as_secs_f64() * 2.0 / (before + after).as_secs_f64();
    table.round(
        &format!("{title}: roll-out against the bare limit"),
        ratio,
        "x",
        1.35,
    );
    kubelets.stop().await;
}

/// What `waves`, `order` and the budgets of nodes add to a roll-out. Nothing soaks, and one wave has to end before the other
/// begins, so that the figures are those of the decisions.
const CAREFUL: &str = "{waves: [{nodes: 10%}, {}], order: [{controlPlane: Last}, {labelNumber: bench/rank}], maxUnavailable: 10%}";

/// They are decisions, and cost hardly a request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures for minutes and wants the machine for itself: just bench"]
async fn waves_order_and_budgets_cost_at_most_a_tenth_more() {
    const NODES: usize = 1_000;
    let mut table = Table::default();
    let ctx = TestContext::alone().await;
    let kubelets = kubelets(&ctx, "n", NODES, Duration::from_secs(20)).await;
    let controller = led(&mut table, "waves, order and budgets", &ctx).await;
    let careful: serde_json::Value = serde_saphyr::from_str(CAREFUL).unwrap();
    let mut figures: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    for round in 1..=ROUNDS {
        // In turns, because the speed of a machine varies by a third within minutes.
        for (form, more) in [("plain", json!({})), ("careful", careful.clone())] {
            let name = format!("{form}-{round}");
            let mut spec = serde_json::to_value(spec(&ctx, 100)).unwrap();
            let fields = more.as_object().unwrap().clone();
            spec.as_object_mut().unwrap().extend(fields);
            let plan = json!({
                "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "metadata": { "name": name }, "spec": spec,
            });
            let own = controller.cpu_time().unwrap_or_default();
            let asked = per_node(&ctx.controller_requests().await, NODES);
            let span = Span::begin();
            ctx.plan(&plan.to_string()).await;
            ctx.plan_complete(&name, LIMIT).await;
            let took = span.end().took.as_secs_f64();
            wait::eventually("all Jobs are recorded", LIMIT, async || {
                let jobs = ctx.jobs_of(&name).await;
                match jobs.iter().filter(|job| !is_recorded(job)).count() {
                    0 => Ok(()),
                    open => Err(format!("{open} are not")),
                }
            })
            .await;
            let own = controller.cpu_time().unwrap_or_default().saturating_sub(own);
            let asked = per_node(&ctx.controller_requests().await, NODES) - asked;
            for (what, unit, found) in [
                ("time", "s", took),
                ("processor time of the controller", "s", own.as_secs_f64()),
                ("requests a node", "", asked),
            ] {
                let title = format!("{NODES} nodes, concurrency 100, {form}: {what}, round {round}");
                table.row(&title, found, unit, None);
                figures.entry((what, form)).or_default().push(found);
            }
            clear_jobs(&ctx).await;
        }
    }
    for what in ["time", "processor time of the controller", "requests a node"] {
        let [plain, careful] = ["plain", "careful"].map(|form| median(&figures[&(what, form)]));
        let title = format!("{NODES} nodes, concurrency 100: {what}, with waves, order and budgets");
        table.row(&title, careful / plain, "x", Some(1.1));
    }
    drop(controller);
    kubelets.stop().await;
    assert!(table.over.is_empty(), "over budget:\n{}", table.over.join("\n"));
}

/// A controller that leads.
async fn led(table: &mut Table, title: &str, ctx: &TestContext) -> Controller {
    let controller = ctx.controller().usual_lease_times().start();
    let started = Instant::now();
    controller.leading().await;
    let seconds = started.elapsed().as_secs_f64();
    table.row(&format!("{title}: start to leading"), seconds, "s", Some(1.0));
    controller
}

/// Runs a Plan. Also returns the milliseconds from one Job to the next.
async fn complete(ctx: &TestContext, concurrency: usize) -> (Took, f64) {
    let gaps = Gaps::watch(ctx, "bench", concurrency);
    let plan = json!({
        "apiVersion": "upgrade.cattle.io/v1",
        "kind": "Plan",
        "metadata": {"name": "bench"},
        "spec": spec(ctx, concurrency),
    });
    let span = Span::begin();
    ctx.plan(&plan.to_string()).await;
    ctx.plan_complete("bench", LIMIT).await;
    let whole = span.end();
    (whole, gaps.median().await)
}

/// Requests of the roll-out itself, without events, Lease, start and watches.
fn per_node(requests: &Requests, nodes: usize) -> f64 {
    let counted = requests.0.iter().filter(|request| {
        let setup = [
            "events",
            "leases",
            "customresourcedefinitions",
            "namespaces",
            "selfsubjectaccessreviews",
        ];
        !setup.contains(&request.resource.as_str()) && !matches!(request.verb.as_str(), "list" | "watch")
    });
    #[expect(clippy::cast_precision_loss, reason = "thousands")]
    let each = counted.count() as f64 / nodes as f64;
    each
}

fn memory(table: &mut Table, title: &str, what: &str, bytes: Option<u64>, budget: Option<f64>) {
    if let Some(bytes) = bytes {
        #[expect(clippy::cast_precision_loss, reason = "mebibytes")]
        let mebibytes = bytes as f64 / f64::from(1 << 20);
        table.row(&format!("{title}: {what}"), mebibytes, "MiB", budget);
    }
}

/// Nodes with heartbeats, and a suspended Plan. Metrics are scraped as Prometheus does.
async fn idle(table: &mut Table, count: usize) {
    let ctx = TestContext::alone().await;
    let _kubelets = kubelets(&ctx, "n", count, Duration::from_secs(40)).await;
    let controller = ctx.controller().usual_lease_times().with_metrics().start();
    controller.leading().await;
    let address = controller.metrics_address().await;
    let mut scrapes = JoinSet::new();
    scrapes.spawn(async move {
        loop {
            let (status, text) = get(address, "/metrics").await.unwrap();
            assert!(status == 200 && text.ends_with("# EOF\n"), "{text}");
            tokio::time::sleep(SCRAPE_INTERVAL).await;
        }
    });
    ctx
        .plan(
            "apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {name: idle}\nspec:\n  concurrency: 1\n  suspend: \
             true\n  nodeSelector: {}\n  version: v1\n  upgrade: {image: x}\n",
        )
        .await;
    ctx.plan_condition("idle", "Complete", "False", LIMIT).await;
    let title = format!(
        "{count} heartbeating idle nodes, scraped every {} s",
        SCRAPE_INTERVAL.as_secs()
    );
    let minute = Duration::from_secs(60);
    let cpu = |controller: &Controller| controller.cpu_time().unwrap_or_default();
    let before = cpu(&controller);
    tokio::time::sleep(minute).await;
    let share = cpu(&controller).saturating_sub(before).as_secs_f64() / minute.as_secs_f64() * 100.0;
    table.row(&format!("{title}: processor"), share, "% of a core", Some(0.5));
    memory(
        table,
        &title,
        "resident memory",
        controller.memory_now(),
        Some(48.0),
    );
    assert!(scrapes.try_join_next().is_none(), "a scrape failed");
}
