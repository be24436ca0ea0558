//! The budgets of docs/design.md, measured on a control plane of its own: `just bench`. Each figure is printed beside its
//! budget; one that is over fails at the end, when all are known.

use std::collections::BTreeMap;
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
use refit::rehearse::podlife::{Defaults, Delay};
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::rollout::account;
use crate::scene::is_recorded;
use crate::support::audit::Requests;
use crate::support::controller::{Controller, binary};
use crate::support::kubelet::{FakeKubelet, NodeSet};
use crate::support::world::World;
use crate::support::{kubeconfig, process, terminal, wait};

/// No roll-out of these takes longer on any machine worth measuring on.
const LIMIT: Duration = Duration::from_secs(900);
const GAP: &str = "Job complete to next Job created";
/// How often each roll-out is measured.
const ROUNDS: usize = 3;

/// Figures and their budgets.
#[derive(Default)]
struct Table {
    over: Vec<String>,
    /// What was found so far of figures that are measured several times.
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

    /// A figure that is measured [`ROUNDS`] times: a machine gets slower and faster by a third within minutes, and by itself.
    /// The median is judged.
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

/// What something took.
struct Took {
    took: Duration,
    /// Processor time of everything on the machine, where it tells.
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
async fn the_budgets_hold() {
    let mut table = Table::default();
    #[expect(clippy::cast_precision_loss, reason = "megabytes")]
    let size = std::fs::metadata(binary()).map_or(0.0, |file| file.len() as f64 / 1e6);
    table.row("binary", size, "MB", (!cfg!(debug_assertions)).then_some(15.0));
    for (count, concurrency, most) in [(100, 10, 26.0), (1000, 100, 50.0)] {
        for _ in 0..ROUNDS {
            roll_out(&mut table, count, concurrency, most).await;
        }
    }
    idle(&mut table, 5000).await;
    assert!(table.over.is_empty(), "over budget:\n{}", table.over.join("\n"));
}

/// The measure of a rehearsal: 16.7 hours within seconds.
#[tokio::test]
#[ignore = "measures the release and wants the machine for itself: just bench"]
async fn five_thousand_nodes_are_rehearsed_within_seconds() {
    let plan = "apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {name: all}\nspec:\n  concurrency: 50\n  cordon: true\n  \
                nodeSelector: {}\n  version: v1.2.3\n  upgrade: {image: example.com/upgrade}\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plan.yaml");
    std::fs::write(&file, plan).unwrap();
    let began = Instant::now();
    let mut rehearsal = Command::new(binary())
        .arg("rehearse")
        .arg(&file)
        .args(["--nodes", "5000", "--upgrade", "10m", "--quiet"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let (pid, mut peak) = (rehearsal.id(), None);
    let mut said = String::new();
    let mut output = rehearsal.stdout.take().unwrap();
    let ended = loop {
        tokio::select! {
            ended = rehearsal.wait() => break ended.unwrap(),
            () = tokio::time::sleep(Duration::from_millis(50)) => {
                peak = pid.and_then(|pid| process::memory(pid, "VmHWM:")).or(peak);
            }
        }
    };
    let took = began.elapsed().as_secs_f64();
    output.read_to_string(&mut said).await.unwrap();
    assert!(ended.success() && said.contains("5000/5000"), "{said}");
    let mut table = Table::default();
    let optimized = !cfg!(debug_assertions);
    let title = "5000 nodes rehearsed, 50 at a time";
    table.row(&format!("{title}: time"), took, "s", optimized.then_some(10.0));
    memory(&mut table, title, "peak resident memory", peak, 400.0);
    assert!(table.over.is_empty(), "over budget:\n{}", table.over.join("\n"));
}

/// Quick kubelets whose containers run for a second, as the budgets have it.
async fn kubelets(world: &World, prefix: &str, count: usize, lease: Duration) -> FakeKubelet {
    let pods = Defaults {
        start: Delay::millis(100),
        run: Delay::millis(1000),
        ..Defaults::default()
    };
    let mut nodes = NodeSet::numbered(&world.node_name(prefix), count)
        .labels(world.node_labels())
        .pods(pods);
    nodes.lease_interval = lease;
    FakeKubelet::start(&world.bed.kubelet_config().await, nodes).await
}

/// What the Plan of the measurements asks for.
fn spec(world: &World, concurrency: usize) -> PlanSpec {
    let text = format!(
        "{{concurrency: {concurrency}, nodeSelector: {{matchLabels: {{test: {}}}}}, version: v1, upgrade: {{image: x, \
         command: [upgrade]}}}}",
        world.id
    );
    serde_saphyr::from_str(&text).unwrap()
}

/// The same Jobs made by the bare limit and by a Plan, one after the other on the same control plane. The bare limit is
/// measured before and after: what is between the two is compared with their mean.
async fn roll_out(table: &mut Table, count: usize, concurrency: usize, most: f64) {
    let world = World::alone().await;
    let kubelets = kubelets(&world, "n", count, Duration::from_secs(20)).await;
    let title = format!("{count} nodes, concurrency {concurrency}");
    let creator = account(&world, "bare").await;
    let before = bare_limit(table, &title, &world, &creator, count, concurrency).await;
    let controller = led(table, &title, &world).await;
    let own = controller.cpu_time().unwrap_or_default();
    let (whole, gap) = complete(&world, concurrency).await;
    let own = controller.cpu_time().unwrap_or_default().saturating_sub(own);
    table.round(&format!("{title}: roll-out"), whole.took.as_secs_f64(), "s", most);
    table.processor(&title, "roll-out", &whole);
    table.row(
        &format!("{title}: processor time of the controller"),
        own.as_secs_f64(),
        "s",
        None,
    );
    table.round(&format!("{title}: {GAP}"), gap, "ms", 100.0);

    // Jobs are marked after their nodes are done: what is counted is all of it.
    wait::eventually("all Jobs are recorded", LIMIT, async || {
        let jobs = world.jobs_of("bench").await;
        match jobs.iter().filter(|job| !is_recorded(job)).count() {
            0 => Ok(()),
            open => Err(format!("{open} are not")),
        }
    })
    .await;
    let requests = world.controller_requests().await;
    let per_node = per_node(&requests, count);
    table.row(
        &format!("{title}: requests a node, Events and Lease aside"),
        per_node,
        "",
        Some(4.0),
    );
    let reads = requests
        .0
        .iter()
        .filter(|r| r.verb == "get" && (r.resource == "nodes" || r.resource == "jobs"))
        .count();
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    table.row(&format!("{title}: reads in the roll-out"), reads as f64, "", None);
    memory(
        table,
        &title,
        "peak resident memory",
        controller.peak_memory(),
        64.0,
    );
    assert!(
        requests
            .jobs_by_node_and_hash()
            .values()
            .all(|jobs| jobs.len() == 1),
        "a node ran twice"
    );
    for (request, times) in requests.tally() {
        terminal::say(&format!("    {times:>6} {request:?}"));
    }
    drop(controller);
    clear_jobs(&world).await;
    let after = bare_limit(table, &title, &world, &creator, count, concurrency).await;
    table.round(
        &format!("{title}: roll-out against the bare limit"),
        whole.took.as_secs_f64() * 2.0 / (before + after).as_secs_f64(),
        "x",
        1.25,
    );
    kubelets.stop().await;
}

/// A controller that leads.
async fn led(table: &mut Table, title: &str, world: &World) -> Controller {
    let controller = world.controller().usual_lease_times().start();
    let started = Instant::now();
    controller.leading().await;
    table.row(
        &format!("{title}: start to leading"),
        started.elapsed().as_secs_f64(),
        "s",
        Some(1.0),
    );
    controller
}

/// Carries out a Plan. Also says how many milliseconds pass from one Job to the next.
async fn complete(world: &World, concurrency: usize) -> (Took, f64) {
    let gaps = Gaps::watch(world, "bench", concurrency);
    let plan = json!({
        "apiVersion": "upgrade.cattle.io/v1",
        "kind": "Plan",
        "metadata": {"name": "bench"},
        "spec": spec(world, concurrency),
    });
    let span = Span::begin();
    world.plan(&plan.to_string()).await;
    world.plan_complete("bench", LIMIT).await;
    let whole = span.end();
    (whole, gaps.median().await)
}

/// Requests that are made for the roll-out: not for events, the lease, the start or the watches.
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

fn memory(table: &mut Table, title: &str, what: &str, bytes: Option<u64>, budget: f64) {
    if let Some(bytes) = bytes {
        #[expect(clippy::cast_precision_loss, reason = "mebibytes")]
        let mebibytes = bytes as f64 / f64::from(1 << 20);
        table.row(&format!("{title}: {what}"), mebibytes, "MiB", Some(budget));
    }
}

/// Heartbeating nodes and a Plan that is done with them.
async fn idle(table: &mut Table, count: usize) {
    let world = World::alone().await;
    let _kubelets = kubelets(&world, "n", count, Duration::from_secs(40)).await;
    let controller = world.controller().usual_lease_times().start();
    controller.leading().await;
    world
        .plan(
            "apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {name: idle}\nspec:\n  concurrency: 1\n  suspend: \
             true\n  nodeSelector: {}\n  version: v1\n  upgrade: {image: x}\n",
        )
        .await;
    world.plan_condition("idle", "Complete", "False", LIMIT).await;
    let title = format!("{count} heartbeating idle nodes");
    let minute = Duration::from_secs(60);
    let cpu = |controller: &Controller| controller.cpu_time().unwrap_or_default();
    let before = cpu(&controller);
    tokio::time::sleep(minute).await;
    let share = cpu(&controller).saturating_sub(before).as_secs_f64() / minute.as_secs_f64() * 100.0;
    table.row(&format!("{title}: processor"), share, "% of a core", Some(0.5));
    memory(table, &title, "resident memory", controller.memory_now(), 48.0);
}

/// How long it takes when nothing is done but to create the very Jobs of the Plan, so many at a time. By another
/// ServiceAccount with the controller's rights: the API server checks and records its requests as it does those.
async fn bare_limit(
    table: &mut Table,
    title: &str,
    world: &World,
    account: &Path,
    count: usize,
    concurrency: usize,
) -> Duration {
    let account = kubeconfig::client(account, "bare").await.unwrap();
    let jobs: Api<Job> = Api::namespaced(account, world.namespace());
    let gaps = Gaps::watch(world, "bare", concurrency);
    let (ended, mut ends) = mpsc::unbounded_channel();
    let watching = jobs.clone();
    let watch = tokio::spawn(async move {
        let mut stream = watcher(watching, watcher::Config::default())
            .applied_objects()
            .boxed();
        let mut seen = std::collections::BTreeSet::new();
        while let Ok(Some(job)) = stream.try_next().await {
            let done = job.status.and_then(|status| status.succeeded) == Some(1);
            if done && seen.insert(job.metadata.name.clone()) && ended.send(()).is_err() {
                return;
            }
        }
    });
    let spec = spec(world, concurrency);
    let plan = PlanInput {
        name: "bare",
        namespace: world.namespace(),
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
            name: &format!("{}{index:04}", world.node_name("n")),
            uid: "uid-of-the-node",
            os: Some("linux"),
        };
        let input = JobInput {
            plan,
            node,
            name: &format!("bare-{index}"),
            attempt: 1,
            unschedulable_before: None,
        };
        let mut job = render(&input, &settings).unwrap();
        job.metadata.owner_references = None; // there is no such Plan
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
    table.row(
        &format!("{title}: bare limit (only creating the Jobs)"),
        whole.took.as_secs_f64(),
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
    clear_jobs(world).await;
    whole.took
}

/// Deletes all Jobs, and waits until they and their pods are gone.
async fn clear_jobs(world: &World) {
    let gone = DeleteParams::background();
    world
        .jobs()
        .delete_collection(&gone, &ListParams::default())
        .await
        .unwrap();
    wait::eventually("the Jobs are gone", LIMIT, async || {
        let all = ListParams::default();
        let pods = world.pods().list(&all).await.map_err(|error| error.to_string())?;
        let jobs = world.jobs().list(&all).await.map_err(|error| error.to_string())?;
        match (jobs.items.len(), pods.items.len()) {
            (0, 0) => Ok(()),
            (jobs, pods) => Err(format!("{jobs} Jobs and {pods} pods")),
        }
    })
    .await;
}

/// From the end of a Job to the creation of the one that takes its slot, as one watch sees both.
struct Gaps {
    tasks: JoinSet<Vec<f64>>,
}

impl Gaps {
    fn watch(world: &World, plan: &str, concurrency: usize) -> Self {
        let jobs: Api<Job> = world.jobs();
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
