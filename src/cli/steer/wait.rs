//! `--wait`: polls the Plan until a command has had its effect.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{anyhow, bail};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use serde_json::value::to_raw_value;
use tokio::time::{Instant, sleep};

use super::edit::{Action, Changes};
use super::write::plans;
use crate::cli::output;
use refit_api::{NodeProgress, Reason, WavePhase, WaveStatus, names};
use refit_base::go::GoDuration;
use refit_base::version::tag::munge;
use refit_cluster::clock::Clock;
use refit_cluster::kube::brief;
use refit_view::read::Snapshot;
use refit_view::{PlanOverview, explain_plan};

/// How often the Plan is read.
const INTERVAL: Duration = Duration::from_secs(2);

/// What is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// No node is in progress, and none starts.
    Idle,
    /// The Plan is complete, at this version if there is one, and no node has failed.
    Complete { version: Option<String> },
    /// The Plan is complete, or another wave than this one waits for approval, and no node has failed.
    Wave(String),
    /// These nodes have no slot.
    Without(Vec<String>),
    /// These nodes have the label of the Plan's hash. Each has the number of the attempt that had failed before.
    Done(Vec<(String, Option<i64>)>),
}

impl Goal {
    pub(super) fn of(action: &Action, named: &[String], view: &PlanOverview<'_>, changes: &Changes) -> Self {
        let nodes = changes.nodes.iter().map(|node| node.name.clone());
        let nodes = nodes.chain(changes.unchanged.iter().cloned());
        let waits = |wave: &&WaveStatus| wave.phase == WavePhase::AwaitingApproval;
        let wave = view.wave().filter(waits);
        match action {
            Action::Suspend { .. } | Action::Abort { .. } => Self::Idle,
            Action::Retry if changes.plan.is_some() => Self::Complete { version: None },
            Action::Start { .. } if !named.is_empty() => {
                Self::Done(named.iter().map(|name| (name.clone(), None)).collect())
            }
            Action::Resume | Action::Start { .. } => Self::Complete { version: None },
            Action::Approve { version, .. } => match wave.filter(|_| version.is_none()) {
                Some(wave) => Self::Wave(wave.name.clone()),
                None => Self::Complete {
                    version: view
                        .plan
                        .status()
                        .channel
                        .as_ref()
                        .and_then(|it| it.candidate.clone()),
                },
            },
            Action::Skip { .. } => Self::Without(nodes.collect()),
            Action::Retry | Action::Unskip | Action::Rerun => {
                let failed = |name: &String| view.node(name).filter(|node| node.is_failed())?.attempt;
                Self::Done(nodes.map(|name| (name.clone(), failed(&name))).collect())
            }
        }
    }

    /// Whether it is reached, with the nodes that have the label of the Plan's hash; an error if it cannot be any more.
    pub(super) fn check(&self, view: &PlanOverview<'_>, done: &BTreeSet<String>) -> anyhow::Result<bool> {
        match self {
            Self::Idle => {
                let stops = [Reason::Suspended, Reason::Aborted];
                let obstacle = view.obstacle.as_ref();
                let is_stopped =
                    obstacle.is_some_and(|obstacle| stops.iter().any(|stop| obstacle.reason == *stop));
                // Otherwise the controller may be about to start the next node.
                let is_held = view.complete || view.counts.failed > 0 || is_stopped;
                Ok(view.counts.applying == 0 && is_held)
            }
            Self::Complete { version } => {
                if let Some(node) = view.nodes.iter().find(|node| node.is_failed()) {
                    bail!("{}", failure(node));
                }
                let wanted = version.as_deref().map(munge);
                let is_there = wanted.is_none() || wanted.as_deref() == view.version();
                Ok(view.complete && is_there)
            }
            Self::Wave(approved) => {
                if let Some(node) = view.nodes.iter().find(|node| node.is_failed()) {
                    bail!("{}", failure(node));
                }
                let wave = view
                    .wave()
                    .filter(|wave| wave.phase == WavePhase::AwaitingApproval);
                Ok(view.complete || wave.is_some_and(|wave| wave.name != *approved))
            }
            Self::Without(nodes) => {
                let has_slot = |name: &String| view.node(name).is_some_and(NodeProgress::has_slot);
                Ok(!nodes.iter().any(has_slot))
            }
            Self::Done(nodes) => {
                let failed = |(name, before): &(String, Option<i64>)| {
                    let node = view.node(name).filter(|node| node.is_failed())?;
                    // Until the next attempt begins, status still shows the failure that is to be retried.
                    (before.is_none() || *before < node.attempt).then_some(node)
                };
                if let Some(node) = nodes.iter().find_map(failed) {
                    bail!("{}", failure(node));
                }
                Ok(nodes.iter().all(|(name, _)| done.contains(name)))
            }
        }
    }
}

fn failure(node: &NodeProgress) -> String {
    let reason = node.reason.as_deref().unwrap_or_default();
    let message = node.message.as_deref().unwrap_or_default();
    format!("Node {} failed: {reason}: {message}", node.name)
}

/// Names of the nodes with the label of the Plan's hash.
async fn done_nodes(client: &Client, view: &PlanOverview<'_>) -> anyhow::Result<BTreeSet<String>> {
    let Some(hash) = &view.plan.status().latest_hash else {
        return Ok(BTreeSet::new());
    };
    let label = names::plan_label(&view.plan.name);
    let params = ListParams::default().labels(&format!("{label}={hash}"));
    let nodes = Api::<Node>::all(client.clone());
    // Only names are needed, and most of a Node is its status.
    let list = nodes.list_metadata(&params).await;
    let list = list.map_err(|error| anyhow!("Nodes cannot be read: {}", brief(&error)))?;
    Ok(list.items.iter().map(ResourceExt::name_any).collect())
}

/// Waits for a goal. The status must describe the Plan as it was written.
pub(super) async fn wait(
    client: &Client,
    changes: &Changes,
    goal: &Goal,
    limit: Option<GoDuration>,
) -> anyhow::Result<ExitCode> {
    let (namespace, name) = (&changes.namespace, &changes.name);
    let plans = plans(client, namespace);
    // A negative limit is over at once.
    let limit =
        limit.map(|limit| u64::try_from(limit.as_nanos()).map_or(Duration::ZERO, Duration::from_nanos));
    let started = Instant::now();
    let mut said = String::new();
    loop {
        // The controller decides some milliseconds after the write; a status from before says nothing.
        sleep(INTERVAL).await;
        let read = plans.get(name).await;
        let object =
            read.map_err(|error| anyhow!("Plan {namespace}/{name} cannot be read: {}", brief(&error)))?;
        let snapshot = Snapshot::of_plan(&to_raw_value(&object)?, Clock::system().now())
            .ok_or_else(|| anyhow!("Plan {namespace}/{name} cannot be read"))?;
        let Some(plan) = snapshot.plans.first() else {
            bail!("Plan {namespace}/{name} cannot be read");
        };
        let view = PlanOverview::new(&snapshot, plan);
        let line = progress(&view);
        if line != said {
            output::note(&line);
            said = line;
        }
        let done = match goal {
            Goal::Done(_) => done_nodes(client, &view).await?,
            _ => BTreeSet::new(),
        };
        if view.is_current() && goal.check(&view, &done)? {
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(limit) = limit.filter(|limit| started.elapsed() >= *limit) {
            output::error(format_args!(
                "the timeout of {} seconds has passed; {}",
                limit.as_secs(),
                explain_plan(&view).verdict
            ));
            return Ok(ExitCode::FAILURE);
        }
    }
}

fn progress(view: &PlanOverview<'_>) -> String {
    let phases: Vec<_> = view
        .phases()
        .iter()
        .map(|(phase, count)| format!("{count} {phase}"))
        .collect();
    let held = view
        .obstacle
        .as_ref()
        .map_or_else(String::new, |obstacle| format!("; held by {}", obstacle.reason));
    format!("{}: {}{held}", view.title(), phases.join(", "))
}
