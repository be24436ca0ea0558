//! Runs a rehearsal: sets up the cluster, runs the controller on it, and detects when the roll-out makes no more
//! progress.
//!
//! Nothing here prints, and only the cluster's virtual time passes.

mod outcome;
mod populate;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use outcome::Before;
pub use outcome::{BudgetState, Ending, Outcome, PlanOutcome};
use outcome::{budgets, not_ready};
pub use populate::secrets;
use serde::Deserialize as _;
use tokio::time::{Instant, sleep_until};

use super::assumptions::{Assumptions, UnknownNode};
use super::cluster::{Cluster, Options};
use super::in_virtual_time;
use super::journal::JournalEvent;
use super::json::{Value, json};
use super::record::{Effect, Recorder, RolloutEvent, VersionStep};
use super::resources::Kind;
use super::snapshot::Snapshot;
use super::state::State;
use crate::api::selector::Selector;
use crate::api::window::Window;
use crate::api::{PlanSpec, TimeWindowSpec};
use crate::channel::{ChannelClient, ChannelError};
use crate::controller::settings::Settings;
use crate::controller::{Dependencies, run_with};
use crate::version::Offer;

/// Slack added to the longest known wait before a roll-out is declared stalled.
const STALL_SLACK: SignedDuration = SignedDuration::from_mins(30);
/// Number of windows without progress after which a roll-out is declared stalled.
const WINDOWS: u32 = 2;
/// Time for the cluster to settle before the controller starts, in addition to the start of pods.
const SETTLE_TIME: SignedDuration = SignedDuration::from_mins(1);
/// Number of changes per kind that the API server keeps.
const HISTORY: usize = 100;

/// The offer of each channel, by its URL.
pub type ChannelOffers = Arc<dyn Fn(&str) -> Result<Offer, ChannelError> + Send + Sync>;

/// The cluster at the start.
#[derive(Clone, Debug)]
pub enum InitialCluster {
    /// Generated nodes and workloads.
    Generated {
        nodes: Vec<Value>,
        workloads: Vec<Value>,
    },
    /// The cluster of a snapshot.
    Snapshot(Box<Snapshot>),
}

impl InitialCluster {
    pub fn nodes(&self) -> BTreeSet<&str> {
        self.node_objects()
            .filter_map(|node| node["metadata"]["name"].as_str())
            .collect()
    }

    fn node_objects(&self) -> impl Iterator<Item = &Value> {
        let objects = match self {
            Self::Generated { nodes, .. } => nodes,
            Self::Snapshot(snapshot) => &snapshot.objects,
        };
        objects.iter().filter(|one| one["kind"] == "Node")
    }
}

#[derive(Clone)]
pub struct Rehearsal {
    /// Plans to apply.
    pub plans: Vec<Value>,
    /// Other objects to apply.
    pub objects: Vec<Value>,
    pub initial_cluster: InitialCluster,
    pub assumptions: Assumptions,
    pub settings: Settings,
    pub channel_offers: ChannelOffers,
    /// When the controller starts.
    pub start: Timestamp,
    /// Plans that exist, but not here: where, by name.
    pub absent: BTreeMap<String, String>,
    /// Maximum simulated time.
    pub limit: SignedDuration,
}

/// Why a rehearsal could not run.
#[derive(Debug, thiserror::Error)]
pub enum RehearsalError {
    #[error("the runtime cannot be started")]
    Runtime(#[from] std::io::Error),
    /// `--fail` names a node that does not exist.
    #[error(transparent)]
    UnknownNode(#[from] UnknownNode),
    /// The simulated API server refused an object.
    #[error("{what} is refused: {why}")]
    Refused {
        what: String,
        /// The server's message.
        why: String,
    },
    /// The controller sent a request that is not simulated.
    #[error(
        "the rehearsal needs what refit does not simulate, so its result proves nothing: {}; this is a bug in refit, please report it",
        .0.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
    )]
    Unsupported(BTreeSet<String>),
    #[error("the controller ended by itself: {0}")]
    Controller(String),
}

/// Runs the rehearsal, and passes each event to `tell` as it happens.
///
/// # Errors
/// Fails if the result would be meaningless: the cluster refused an object, the controller ended, or it sent an
/// unsupported request.
pub fn run_rehearsal(
    rehearsal: &Rehearsal,
    on_event: &mut dyn FnMut(&RolloutEvent),
) -> Result<Outcome, RehearsalError> {
    in_virtual_time(Box::pin(rehearsal.run(on_event)))?
}

impl Rehearsal {
    async fn run(&self, on_event: &mut dyn FnMut(&RolloutEvent)) -> Result<Outcome, RehearsalError> {
        let calm = SETTLE_TIME + self.assumptions.pod_start.most();
        let begin = self.start.checked_sub(calm).unwrap_or(self.start);
        let mut options = Options::new(self.assumptions.seed, begin);
        options.default_behaviour = self.assumptions.default_behaviour();
        options.history = HISTORY;
        let cluster = Cluster::new(options);
        self.populate(&cluster)?;
        let calm = Duration::try_from(calm).unwrap_or_default();
        cluster.run_while(tokio::time::sleep(calm)).await;
        let before = cluster.with(|state| Before {
            budgets: budgets(state),
            not_ready: not_ready(state),
        });

        cluster.with(|state| state.journal = Some(Vec::new()));
        let mut recorder = Recorder::new(self.start);
        for plan in &self.plans {
            Self::apply(&cluster, plan)?;
        }
        let dependencies = Dependencies {
            server: cluster.server(),
            clock: cluster.clock(),
            channels: Some({
                let channel_offers = self.channel_offers.clone();
                ChannelClient::with_answers(move |url, _| channel_offers(url))
            }),
        };
        let controller = Box::pin(run_with(
            dependencies,
            self.settings.clone(),
            std::future::pending(),
        ));
        let watching = self.watch(&cluster, &mut recorder, on_event);
        let ending = cluster
            .run_while(async {
                tokio::select! {
                    biased;
                    ending = watching => Ok(ending),
                    ended = controller => Err(match ended {
                        Ok(()) => "without a reason".to_owned(),
                        Err(error) => error.to_string(),
                    }),
                }
            })
            .await;
        let ending = ending.map_err(RehearsalError::Controller)?;
        let unsupported_requests = cluster.with(|state| state.unsupported_requests().to_vec());
        if !unsupported_requests.is_empty() {
            return Err(RehearsalError::Unsupported(
                unsupported_requests.into_iter().collect(),
            ));
        }
        Ok(self.outcome(&cluster, ending, recorder, before))
    }

    /// Names of the nodes whose upgrade is to fail.
    ///
    /// # Errors
    /// Fails if a named node does not exist.
    pub fn failing(&self) -> Result<BTreeSet<&str>, UnknownNode> {
        let selectors = self.plans.iter().filter_map(|plan| {
            let selector = LabelSelector::deserialize(plan["spec"].get("nodeSelector")?).ok();
            Selector::new(selector.as_ref()).ok()
        });
        let selectors: Vec<Selector> = selectors.collect();
        let is_selected = |node: &&Value| {
            let label = |key: &str| node["metadata"]["labels"].get(key)?.as_str();
            selectors.iter().any(|one| one.matches_by(label))
        };
        let name =
            |node: &'_ Value| -> Option<String> { Some(node["metadata"]["name"].as_str()?.to_owned()) };
        let selected: BTreeSet<String> = self
            .initial_cluster
            .node_objects()
            .filter(is_selected)
            .filter_map(name)
            .collect();
        let all = self.initial_cluster.nodes();
        let selected = all
            .iter()
            .copied()
            .filter(|node| selected.contains(*node))
            .collect();
        self.assumptions.failing(&all, &selected)
    }

    /// Waits until all Plans are complete, or the roll-out has stalled.
    async fn watch(
        &self,
        cluster: &Cluster,
        recorder: &mut Recorder,
        on_event: &mut dyn FnMut(&RolloutEvent),
    ) -> Ending {
        let clock = cluster.clock();
        let wanted: Vec<&str> = self
            .plans
            .iter()
            .filter_map(|plan| plan["metadata"]["name"].as_str())
            .collect();
        let quiet = self.quiet();
        let limit = self.start.checked_add(self.limit).unwrap_or(Timestamp::MAX);
        let (mut windows, mut counted) = (0, recorder.progress());
        let mut deadline = later(counted, quiet);
        loop {
            let until = deadline.min(limit).duration_since(clock.now());
            let until = Instant::now() + Duration::try_from(until).unwrap_or_default();
            tokio::select! {
                biased;
                () = cluster.until(|state| state.journal.as_ref().is_some_and(|news| !news.is_empty())) => {
                    let mut plans_changed = false;
                    for entry in cluster.with(State::take_journal) {
                        let (kind, change) = match entry.what {
                            JournalEvent::Change(kind, change) => (kind, change),
                            JournalEvent::Prepare { node, plan, wait } => {
                                recorder.see_prepare(&plan, &node, wait.as_ref(), entry.at);
                                continue;
                            }
                            JournalEvent::Untolerated { node, plan, taints } => {
                                recorder.see_untolerated(&plan, &node, &taints, entry.at);
                                continue;
                            }
                            JournalEvent::Reboot { .. } => continue,
                        };
                        plans_changed |= kind == Kind::Plan;
                        let effect = recorder.observe(kind, &change, entry.at);
                        if let Some(Effect::Upgraded { plan, node, version }) = effect
                            && let Some((from, to)) = upgraded(cluster, &node, &version)
                        {
                            recorder.see_version(VersionStep { plan, node, from, to });
                        }
                    }
                    recorder.take_events().iter().for_each(&mut *on_event);
                    let through = plans_changed && wanted.iter().all(|plan| recorder.is_complete(plan));
                    if through && !wanted.is_empty() {
                        return Ending::Complete;
                    }
                }
                () = sleep_until(until) => {
                    let now = clock.now();
                    if now >= limit {
                        return Ending::Limit(self.limit);
                    }
                    if recorder.progress() > counted {
                        (counted, windows) = (recorder.progress(), 0);
                    } else if let Some(opens) = Self::next_window(cluster, recorder, now)
                        && windows < WINDOWS
                    {
                        windows += 1;
                        deadline = later(opens, quiet);
                        continue;
                    } else {
                        return Ending::Quiet(quiet);
                    }
                }
            }
            if recorder.progress() > counted {
                (counted, windows) = (recorder.progress(), 0);
                deadline = later(counted, quiet);
            }
        }
    }

    /// The Plans to rehearse, and those on the cluster.
    pub fn all_plans(&self) -> impl Iterator<Item = &Value> {
        let stored = match &self.initial_cluster {
            InitialCluster::Snapshot(snapshot) => snapshot.plans.as_slice(),
            InitialCluster::Generated { .. } => &[],
        };
        // A Plan to rehearse replaces the stored one with the same name.
        stored.iter().chain(&self.plans)
    }

    /// Time without progress after which the roll-out has stalled.
    fn quiet(&self) -> SignedDuration {
        let specs = self
            .all_plans()
            .filter_map(|plan| PlanSpec::deserialize(&plan["spec"]).ok());
        let deadline = SignedDuration::from_secs(self.settings.jobs.active_deadline_seconds.max(0));
        let longest = specs.map(|spec| longest_wait(&spec)).max().unwrap_or_default();
        let longest = longest.max(deadline).max(self.assumptions.longest());
        STALL_SLACK + longest.saturating_mul(2)
    }

    /// The next opening of the closed windows of incomplete Plans.
    fn next_window(cluster: &Cluster, recorder: &Recorder, now: Timestamp) -> Option<Timestamp> {
        cluster.with(|state| {
            let open = state.all(Kind::Plan).filter(|plan| {
                let name = plan["metadata"]["name"].as_str().unwrap_or_default();
                !recorder.is_complete(name)
            });
            let windows = open.filter_map(window).filter(|window| !window.contains(now));
            windows.filter_map(|window| window.next_open(now)).min()
        })
    }
}

/// The longest wait that a Plan's own fields allow.
fn longest_wait(spec: &PlanSpec) -> SignedDuration {
    let go = |text: Option<&String>| -> SignedDuration {
        let parsed = text.and_then(|text| text.parse::<crate::go::GoDuration>().ok());
        parsed.map_or(SignedDuration::ZERO, |it| {
            SignedDuration::from_nanos(it.as_nanos())
        })
    };
    let job = SignedDuration::from_secs(spec.job_active_deadline_secs.unwrap_or_default().max(0));
    let drain = match spec.drain.as_ref().and_then(|drain| drain.timeout.as_ref()) {
        Some(crate::api::DrainTimeout::Nanoseconds(nanos)) => SignedDuration::from_nanos(*nanos),
        Some(crate::api::DrainTimeout::Text(text)) => go(Some(text)),
        None => SignedDuration::ZERO,
    };
    let texts = |value: Value| -> SignedDuration {
        let longest =
            ["timeout", "minReady"].map(|field| go(value[field].as_str().map(str::to_owned).as_ref()));
        longest.into_iter().max().unwrap_or_default()
    };
    let reboot = texts(serde_json::to_value(&spec.reboot).unwrap_or_default().into());
    let settle = texts(serde_json::to_value(&spec.settle).unwrap_or_default().into());
    let all = [job, drain, go(spec.post_complete_delay.as_ref()), reboot, settle];
    all.into_iter().max().unwrap_or_default()
}

/// The window of a Plan, if it is valid.
fn window(plan: &Value) -> Option<Window> {
    let spec = TimeWindowSpec::deserialize(plan["spec"].get("window")?).ok()?;
    Window::parse(&spec, &TimeZone::system()).ok()
}

/// Sets the kubelet version of a node whose upgrade has succeeded, if the Plan's version can be one. Returns the
/// versions before and after.
fn upgraded(cluster: &Cluster, node: &str, version: &str) -> Option<(String, String)> {
    if !is_kubelet_version(version) {
        return None;
    }
    let before = cluster.get(Kind::Node, "", node)?;
    let before = before["status"]["nodeInfo"]["kubeletVersion"]
        .as_str()?
        .to_owned();
    let after = unmunged(version);
    let status = json!({ "status": { "nodeInfo": { "kubeletVersion": after.as_str() } } });
    // The node may have been deleted.
    let _ = cluster.patch_status(Kind::Node, "", node, &status);
    Some((before, after))
}

/// The oldest minor version that counts as one of Kubernetes: others, as Talos, are at `v1.9`.
const OLDEST_MINOR: u64 = 20;

/// True for `v1.33.4`, with or without a build suffix.
pub fn is_kubelet_version(version: &str) -> bool {
    let parsed = version
        .strip_prefix('v')
        .and_then(|version| semver::Version::parse(version).ok());
    parsed.is_some_and(|version| version.major == 1 && version.minor >= OLDEST_MINOR)
}

/// The version as it was released: tags and labels have `-` instead of `+` before the build suffix.
fn unmunged(version: &str) -> String {
    for distribution in ["k3s", "rke2"] {
        if let Some((upstream, rest)) = version.split_once(&format!("-{distribution}")) {
            return format!("{upstream}+{distribution}{rest}");
        }
    }
    version.to_owned()
}

fn later(at: Timestamp, wait: SignedDuration) -> Timestamp {
    at.checked_add(wait).unwrap_or(Timestamp::MAX)
}
