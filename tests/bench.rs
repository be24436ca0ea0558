//! Benchmarks with budgets, on a control plane of their own: `just bench`. Each figure is printed with its budget.
//! Exceeded budgets fail the run at its end, when all figures are known.

mod sizes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use refit::api::PlanSpec;
use refit::api::names::LABEL_PLAN;
use refit::job::{JobInput, JobSettings, NodeInput, PlanInput, render};
use refit::rehearse::pod_lifecycle::{Defaults, Delay};
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::harness::is_recorded;
use crate::rollout::account;
use crate::testenv::audit::Requests;
use crate::testenv::context::TestContext;
use crate::testenv::controller::{Controller, binary};
use crate::testenv::kubelet::{FakeKubelet, NodeSet};
use crate::testenv::web::get;
use crate::testenv::{kubeconfig, process, terminal, wait};

/// Maximum time of a roll-out on any suitable machine.
const LIMIT: Duration = Duration::from_secs(900);
const GAP: &str = "Job complete to next Job created";
/// As Prometheus scrapes in most installations, or less often.
const SCRAPE_INTERVAL: Duration = Duration::from_secs(15);
/// Number of measurements of each roll-out.
const ROUNDS: usize = 3;

/// Figures and their budgets.
#[derive(Default)]
struct Table {
    over: Vec<String>,
    /// Results of figures that are measured several times.
    found: BTreeMap<String, Vec<f64>>,
}

impl Table {
    fn row(&mut self, what: &str, found: f64, unit: &str, budget: Option<f64>) {
        let limit = budget.map_or_else(String::new, |budget| format!("≤ {budget} {unit}"));
        let verdict = match budget {
            Some(budget) if found > budget => "OVER",
            Some(_) => "ok",
            None => "",
        };
        let line = format!("{what:<72} {found:>9.2} {unit:<10} {limit:<16} {verdict}");
        terminal::say(&line);
        if verdict == "OVER" {
            self.over.push(line);
        }
    }

    /// Adds a figure that is measured [`ROUNDS`] times, of which the median is judged: the speed of a machine varies by
    /// a third within minutes.
    fn round(&mut self, what: &str, found: f64, unit: &str, budget: f64) {
        let all = self.found.entry(what.to_owned()).or_default();
        all.push(found);
        let (round, median) = (all.len(), median(all));
        self.row(&format!("{what}, round {round} of {ROUNDS}"), found, unit, None);
        if round == ROUNDS {
            self.row(&format!("{what}, median"), median, unit, Some(budget));
        }
    }

    fn processor(&mut self, title: &str, of: &str, what: &Took) {
        if let Some(processor) = what.processor {
            let title = format!("{title}: processor time of all, {of}");
            self.row(&title, processor.as_secs_f64(), "s", None);
        }
    }
}

/// Measured times.
struct Took {
    took: Duration,
    /// Processor time of the whole machine, if available.
    processor: Option<Duration>,
}

struct Span {
    began: Instant,
    busy: Option<Duration>,
}

impl Span {
    fn begin() -> Self {
        Self {
            began: Instant::now(),
            busy: process::machine_busy(),
        }
    }

    fn end(self) -> Took {
        let busy = process::machine_busy().zip(self.busy);
        Took {
            took: self.began.elapsed(),
            processor: busy.map(|(now, then)| now.saturating_sub(then)),
        }
    }
}

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

/// A measured rehearsal.
struct Rehearsed {
    took: Duration,
    /// Processor time of the process.
    processor: Duration,
    peak: Option<u64>,
}

/// Rehearses a Plan for all agents, 50 at a time, with more lines in its spec and more arguments.
async fn rehearse(nodes: usize, more: &str, arguments: &[&str]) -> Rehearsed {
    let plan = format!(
        "apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {{name: all}}\nspec:\n  concurrency: 50\n  nodeSelector: \
         {{matchExpressions: [{{key: node-role.kubernetes.io/control-plane, operator: DoesNotExist}}]}}\n  version: \
         v1.34.1\n  serviceAccountName: system-upgrade\n  upgrade: {{image: example.com/upgrade}}\n{more}"
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plan.yaml");
    std::fs::write(&file, plan).unwrap();
    let began = Instant::now();
    let mut rehearsal = Command::new(binary())
        .arg("rehearse")
        .arg(&file)
        .args(["--nodes", &nodes.to_string(), "--quiet"])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let pid = rehearsal.id().unwrap();
    let mut output = rehearsal.stdout.take().unwrap();
    let mut said = String::new();
    let (mut peak, mut processor) = (None, None);
    let ended = {
        let mut reading = std::pin::pin!(output.read_to_string(&mut said));
        loop {
            tokio::select! {
                read = &mut reading => {
                    read.unwrap();
                    break rehearsal.wait().await.unwrap();
                }
                () = tokio::time::sleep(Duration::from_millis(50)) => {
                    peak = process::memory(pid, "VmHWM:").or(peak);
                    processor = process::cpu_time(pid).or(processor);
                }
            }
        }
    };
    let took = began.elapsed();
    assert!(ended.success() && said.contains("complete: 1 Plan"), "{said}");
    Rehearsed {
        took,
        processor: processor.unwrap_or(took),
        peak,
    }
}

/// Upgrades that all take as long end together, so that one status tells of fifty nodes.
#[tokio::test]
#[ignore = "measures the release and wants the machine for itself: just bench"]
async fn five_thousand_nodes_are_rehearsed_within_seconds() {
    let mut table = Table::default();
    let one = rehearse(5_000, "  cordon: true\n", &["--upgrade", "10m"]).await;
    let title = "5000 nodes rehearsed, 50 at a time, each for ten minutes";
    let optimized = !cfg!(debug_assertions);
    let budget = optimized.then_some(15.0);
    table.row(&format!("{title}: time"), one.took.as_secs_f64(), "s", budget);
    let budget = optimized.then_some(600.0);
    memory(&mut table, title, "peak resident memory", one.peak, budget);
    assert!(table.over.is_empty(), "over budget:\n{}", table.over.join("\n"));
}

/// The cost per node must not depend on their number. A drain should cost half as much again as the rest; a quarter more
/// than that is accepted, because most of it is the simulated cluster's own work for evicted pods.
#[tokio::test]
#[ignore = "measures the release and wants the machine for itself: just bench"]
async fn rehearsals_of_many_nodes_take_seconds_and_their_time_grows_with_the_nodes() {
    const SIZES: [usize; 3] = [2_000, 5_000, 15_000];
    let mut table = Table::default();
    let mut each = BTreeMap::new();
    for nodes in SIZES {
        let plain = rehearse(nodes, "", &[]).await;
        let drained = rehearse(nodes, "  drain: {force: true}\n", &[]).await;
        for (form, one) in [("plain", &plain), ("drained", &drained)] {
            let title = format!("{nodes} nodes rehearsed, 50 at a time, {form}");
            table.row(&format!("{title}: time"), one.took.as_secs_f64(), "s", None);
            let processor = one.processor.as_secs_f64() * 1e3 / f64::from(u32::try_from(nodes).unwrap());
            table.row(&format!("{title}: processor time a node"), processor, "ms", None);
            memory(&mut table, &title, "peak resident memory", one.peak, None);
            let growth = processor / *each.entry(form).or_insert(processor);
            let what = format!("{title}: processor time a node against {} nodes", SIZES[0]);
            table.row(&what, growth, "x", Some(1.25));
        }
        let what = format!("{nodes} nodes rehearsed: processor time, drained against plain");
        let ratio = drained.processor.as_secs_f64() / plain.processor.as_secs_f64();
        table.row(&what, ratio, "x", Some(1.5 * 1.25));
    }
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

/// The time to merely create the Plan's Jobs, so many at a time, as another ServiceAccount with the controller's
/// permissions: the API server authorizes and audits these requests in the same way.
async fn bare_limit(
    table: &mut Table,
    title: &str,
    ctx: &TestContext,
    account: &Path,
    count: usize,
    concurrency: usize,
) -> Duration {
    let account = kubeconfig::client(account, "bare").await.unwrap();
    let jobs: Api<Job> = Api::namespaced(account, ctx.namespace());
    let gaps = Gaps::watch(ctx, "bare", concurrency);
    let (ended, mut ends) = mpsc::unbounded_channel();
    let watching = jobs.clone();
    let watch = tokio::spawn(async move {
        let mut stream = watcher(watching, watcher::Config::default())
            .applied_objects()
            .boxed();
        let mut seen = BTreeSet::new();
        while let Ok(Some(job)) = stream.try_next().await {
            let done = job.status.and_then(|status| status.succeeded) == Some(1);
            if done && seen.insert(job.metadata.name.clone()) && ended.send(()).is_err() {
                return;
            }
        }
    });
    let spec = spec(ctx, concurrency);
    let plan = PlanInput {
        name: "bare",
        namespace: ctx.namespace(),
        uid: "uid-of-the-plan",
        labels: None,
        annotations: None,
        spec: &spec,
        latest_version: "v1",
        latest_hash: "e56692be1351d90a3f6fec1c6d303a49f8a6fcf446c857d20e53dfa4",
        inputs: "fe7848d46414228546483f6a6b41f5cd",
        digests: &refit::job::NO_DIGESTS,
    };
    let settings = JobSettings::new("bare", "example.com/refit:1");
    let create = async |index: usize| {
        let node = NodeInput {
            name: &format!("{}{index:04}", ctx.node_name("n")),
            uid: "uid-of-the-node",
            os: Some("linux"),
            shares_hostname: false,
        };
        let input = JobInput {
            plan,
            node,
            name: &format!("bare-{index}"),
            attempt: 1,
            unschedulable_before: None,
        };
        let mut job = render(&input, &settings).unwrap();
        job.metadata.owner_references = None; // that Plan does not exist
        jobs.create(&PostParams::default(), &job).await.unwrap();
    };
    let span = Span::begin();
    let mut next = 0;
    futures::future::join_all((0..concurrency.min(count)).map(&create)).await;
    next += concurrency.min(count);
    for _ in 0..count {
        ends.recv().await.unwrap();
        if next < count {
            create(next).await;
            next += 1;
        }
    }
    let whole = span.end();
    watch.abort();
    let seconds = whole.took.as_secs_f64();
    table.row(
        &format!("{title}: bare limit (only creating the Jobs)"),
        seconds,
        "s",
        None,
    );
    table.processor(title, "bare limit", &whole);
    table.row(
        &format!("{title}: bare limit, {GAP}"),
        gaps.median().await,
        "ms",
        None,
    );
    clear_jobs(ctx).await;
    whole.took
}

/// Deletes all Jobs, and waits for them and their pods.
async fn clear_jobs(ctx: &TestContext) {
    let (background, all) = (DeleteParams::background(), ListParams::default());
    ctx.jobs().delete_collection(&background, &all).await.unwrap();
    wait::eventually("the Jobs are gone", LIMIT, async || {
        let pods = ctx.pods().list(&all).await.map_err(|error| error.to_string())?;
        let jobs = ctx.jobs().list(&all).await.map_err(|error| error.to_string())?;
        match (jobs.items.len(), pods.items.len()) {
            (0, 0) => Ok(()),
            (jobs, pods) => Err(format!("{jobs} Jobs and {pods} pods")),
        }
    })
    .await;
}

/// Times from the end of a Job to the creation of the one that takes its slot, seen by one watch.
struct Gaps {
    tasks: JoinSet<Vec<f64>>,
}

impl Gaps {
    fn watch(ctx: &TestContext, plan: &str, concurrency: usize) -> Self {
        let jobs: Api<Job> = ctx.jobs();
        let of_plan = watcher::Config::default().labels(&format!("{LABEL_PLAN}={plan}"));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let (mut made, mut done) = (BTreeMap::new(), BTreeMap::new());
            let mut stream = watcher(jobs, of_plan).applied_objects().boxed();
            let quiet = Duration::from_secs(20);
            while let Ok(Ok(Some(job))) = tokio::time::timeout(quiet, stream.try_next()).await {
                let now = Instant::now();
                let uid = job.metadata.uid.clone().unwrap_or_default();
                made.entry(uid.clone()).or_insert(now);
                let conditions = job.status.and_then(|status| status.conditions);
                let mut conditions = conditions.into_iter().flatten();
                if conditions.any(|it| it.type_ == "Complete" && it.status == "True") {
                    done.entry(uid).or_insert(now);
                }
            }
            let sorted = |times: BTreeMap<String, Instant>| {
                let mut times: Vec<_> = times.into_values().collect();
                times.sort();
                times
            };
            let (made, done) = (sorted(made), sorted(done));
            made.iter()
                .skip(concurrency)
                .zip(&done)
                .map(|(made, done)| made.saturating_duration_since(*done).as_secs_f64() * 1e3)
                .collect()
        });
        Self { tasks }
    }

    async fn median(mut self) -> f64 {
        median(&self.tasks.join_next().await.unwrap().unwrap())
    }
}

fn median(all: &[f64]) -> f64 {
    let mut all = all.to_vec();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or_default()
}
