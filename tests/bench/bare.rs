//! The bare client, which only creates the Jobs of a Plan: the limit of what a roll-out can reach.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use refit_api::names::LABEL_PLAN;
use refit_job::{JobInput, JobSettings, NodeInput, PlanInput, render};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::table::{Span, Table, median};
use super::{GAP, LIMIT, spec};
use crate::testenv::context::TestContext;
use crate::testenv::{kubeconfig, wait};

/// The time to merely create the Plan's Jobs, so many at a time, as another ServiceAccount with the controller's
/// permissions: the API server authorizes and audits these requests in the same way.
pub(super) async fn bare_limit(
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
        digests: &refit_job::NO_DIGESTS,
    };
    let settings = JobSettings::new("bare", "example.com/refit:1");
    let create = async |index: usize| {
        let node = NodeInput {
            name: &format!("{}{index:04}", ctx.node_name("n")),
            uid: "uid-of-the-node",
            os: Some("linux"),
            shares_hostname: false,
            may_be_new: false,
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
pub(super) async fn clear_jobs(ctx: &TestContext) {
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
pub(super) struct Gaps {
    tasks: JoinSet<Vec<f64>>,
}

impl Gaps {
    pub(super) fn watch(ctx: &TestContext, plan: &str, concurrency: usize) -> Self {
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

    pub(super) async fn median(mut self) -> f64 {
        median(&self.tasks.join_next().await.unwrap().unwrap())
    }
}
