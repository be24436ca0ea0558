//! Runs a rehearsal: sets up the cluster, runs the controller on it, and detects when the roll-out makes no more
//! progress.
//!
//! Nothing here prints, and only the cluster's virtual time passes.

mod late;
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
use outcome::{Before, budgets, not_ready};
pub use outcome::{BudgetState, Ending, Outcome};
pub use populate::secrets;
use serde::Deserialize as _;
use tokio::time::{Instant, sleep_until};

use super::assumptions::{Assumptions, FAILING_CHECK, UnknownNode};
use super::cluster::{Cluster, Options};
use super::fault::Fault;
use super::in_virtual_time;
use super::journal::JournalEvent;
use super::json::{Value, json};
use super::nodes::is_kubelet_version;
use super::record::{Effect, Recorder, RolloutEvent, VersionStep};
use super::resources::Kind;
use super::snapshot::Snapshot;
use super::state::State;
use refit_api::approval::WaveApproval;
use refit_api::limits::Limits;
use refit_api::reboot::REQUIRED_FILES;
use refit_api::schedule::Blackout;
use refit_api::selector::Selector;
use refit_api::{
    Check, CheckAnswer, Hook, PlanSpec, RebootRequest, WavePhase, WaveStatus, limits, names, wait_for,
};
use refit_base::version::{Offer, kubelet_version, released_version};
use refit_channel::{ChannelClient, ChannelError};
use refit_cluster::clock::Clock;
use refit_controller::settings::Settings;
use refit_controller::{Dependencies, run_with};

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
    Snapshot(Box<Snapshot>),
}

impl InitialCluster {
    pub fn nodes(&self) -> BTreeSet<&str> {
        self.node_objects()
            .filter_map(|node| node["metadata"]["name"].as_str())
            .collect()
    }

    /// Has every node request a reboot in its current boot, unless one of them does so already.
    pub fn request_reboots(&mut self) -> bool {
        let requests = |node: &Value| {
            let annotations = node["metadata"]["annotations"].as_object().into_iter().flatten();
            let texts =
                annotations.filter_map(|(key, value)| Some((key.to_string(), value.as_str()?.to_owned())));
            RebootRequest::of(&texts.collect()).is_some()
        };
        if self.node_objects().any(requests) {
            return false;
        }
        let objects = match self {
            Self::Generated { nodes, .. } => nodes,
            Self::Snapshot(snapshot) => &mut snapshot.objects,
        };
        for node in objects.iter_mut().filter(|one| one["kind"] == "Node") {
            let request = RebootRequest {
                boot_id: node["status"]["nodeInfo"]["bootID"].as_str().map(str::to_owned),
                reasons: vec![REQUIRED_FILES[0].to_owned()],
                ..RebootRequest::default()
            };
            node["metadata"]["annotations"][names::ANNOTATION_REBOOT_NEEDED] = request.to_text().into();
        }
        true
    }

    pub(crate) fn node_objects(&self) -> impl Iterator<Item = &Value> {
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
    /// Checks that fail, and for how long from the start; `None` means always.
    pub failing_checks: BTreeMap<String, Option<SignedDuration>>,
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
    #[error("the controller ended unexpectedly: {0}")]
    Controller(String),
}

/// Runs the rehearsal, and passes each event to `on_event` as it happens.
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
        options.economical = true;
        let cluster = Cluster::new(options);
        self.populate(&cluster)?;
        let calm = Duration::try_from(calm).unwrap_or_default();
        cluster.run_while(tokio::time::sleep(calm)).await;
        let before = cluster.with(|state| Before {
            budgets: budgets(state),
            not_ready: not_ready(state),
        });

        // The journal begins here: what happens while the cluster is set up is not part of the roll-out.
        cluster.with(|state| state.journal = Some(Vec::new()));
        let mut recorder = Recorder::new(self.start);
        for plan in &self.plans {
            Self::apply(&cluster, &populate::with_reboots(plan))?;
        }
        let dependencies = Dependencies {
            server: cluster.server(),
            clock: cluster.clock(),
            channels: Some({
                let channel_offers = self.channel_offers.clone();
                ChannelClient::with_answers(move |url, _| channel_offers(url))
                    .with_checks(self.check_answers(cluster.clock()))
            }),
            listener: None,
        };
        let controller = Box::pin(run_with(
            dependencies,
            self.settings.clone(),
            std::future::pending(),
        ));
        let watching = self.watch(&cluster, &mut recorder, on_event);
        let joining = self.join_late_nodes(&cluster);
        let ending = cluster
            .run_while(async {
                tokio::select! {
                    biased;
                    ending = watching => Ok(ending),
                    refused = joining => Err(refused.to_string()),
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

    /// What the servers of checks answer.
    fn check_answers(&self, clock: Clock) -> impl Fn(&Check) -> CheckAnswer + Send + Sync + 'static {
        let (failing, start) = (self.failing_checks.clone(), self.start);
        move |check| {
            let fails = failing.get(&check.name).is_some_and(|until| match until {
                Some(until) => clock.now().duration_since(start) < *until,
                None => true,
            });
            let message = if fails { FAILING_CHECK } else { "assumed to pass" };
            CheckAnswer {
                passed: !fails,
                message: message.to_owned(),
            }
        }
    }

    /// Whether the version of the Plan is that of the nodes' `osImage`.
    fn compares_os_images(&self, plan: &str) -> bool {
        let plan = self
            .plans
            .iter()
            .find(|it| it["metadata"]["name"].as_str() == Some(plan));
        let is_set = |field: &str| plan.is_some_and(|plan| plan["spec"][field]["osImage"] == json!(true));
        is_set("settle") || is_set("skipWhen")
    }

    /// Names of the nodes whose upgrade is to fail.
    ///
    /// # Errors
    /// Fails if a named node does not exist.
    pub fn failing(&self) -> Result<BTreeSet<&str>, UnknownNode> {
        self.assumptions
            .failing(&self.initial_cluster.nodes(), &self.selected_nodes())
    }

    /// Names of the nodes that a Plan to rehearse selects.
    pub(crate) fn selected_nodes(&self) -> BTreeSet<&str> {
        self.plans
            .iter()
            .flat_map(|plan| self.selected_by(plan))
            .collect()
    }

    fn selected_by(&self, plan: &Value) -> BTreeSet<&str> {
        let selector = plan["spec"]
            .get("nodeSelector")
            .and_then(|selector| LabelSelector::deserialize(selector).ok());
        let Some(Ok(selector)) = selector.map(|selector| Selector::new(Some(&selector))) else {
            return BTreeSet::new();
        };
        let is_selected = |node: &&Value| {
            let label = |key: &str| node["metadata"]["labels"].get(key)?.as_str();
            selector.matches_by(label)
        };
        let nodes = self.initial_cluster.node_objects().filter(is_selected);
        nodes
            .filter_map(|node| node["metadata"]["name"].as_str())
            .collect()
    }

    /// Faults that do not happen, because no Plan that selects their node does what fails: a sentence each.
    pub fn faults_without_effect(&self) -> Vec<String> {
        let happens = |fault: &Fault| {
            self.all_plans().any(|plan| {
                let spec = PlanSpec::deserialize(&plan["spec"]);
                spec.is_ok_and(|spec| fault.happens_with(&spec))
                    && self.selected_by(plan).contains(fault.node.as_str())
            })
        };
        let faults = self.assumptions.faults.iter();
        let faults = faults
            .filter(|fault| !happens(fault))
            .map(|fault| format!("--fault: it has no effect that {fault}: {}", fault.no_occasion()));
        let there: Vec<Hook> = self.hooks().collect();
        let hooks = Hook::ALL.into_iter();
        let hooks = hooks
            .filter(|hook| self.assumptions.fails_hook(*hook) && !there.contains(hook))
            .map(|hook| {
                format!(
                    "--fail {0}: it has no effect: no Plan has spec.{0}",
                    hook.as_str()
                )
            });
        faults.chain(hooks).collect()
    }

    /// What Plans run once for each roll-out.
    pub fn hooks(&self) -> impl Iterator<Item = Hook> {
        let has = |hook: &Hook| {
            self.all_plans()
                .any(|plan| plan["spec"][hook.as_str()].is_object())
        };
        Hook::ALL.into_iter().filter(has)
    }

    /// Waits until all Plans are complete, and those that repeat have done so once, or until the roll-out has stalled.
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
        // Each Plan that repeats is to show it, once all are complete.
        let repetition = |recorder: &Recorder| {
            let are_complete = wanted.iter().all(|plan| recorder.is_complete(plan));
            let due = wanted.iter().filter_map(|plan| recorder.awaited_repetition(plan));
            due.filter(|due| are_complete && *due < limit).min()
        };
        let (mut windows, mut counted) = (0, recorder.progress());
        let mut deadline = later(counted, quiet);
        loop {
            let until = deadline.min(limit).duration_since(clock.now());
            let until = Instant::now() + Duration::try_from(until).unwrap_or_default();
            tokio::select! {
                // Changes first: progress at the moment of the deadline still counts.
                biased;
                () = cluster.until(|state| state.journal.as_ref().is_some_and(|journal| !journal.is_empty())) => {
                    let mut plans_changed = false;
                    for entry in cluster.with(State::take_journal) {
                        let (kind, change) = match entry.what {
                            JournalEvent::Change(kind, change) => (kind, change),
                            JournalEvent::Prepare { node, plan, wait } => {
                                recorder.see_prepare(&plan, &node, wait.as_ref(), entry.at);
                                continue;
                            }
                            JournalEvent::Reboot { .. } => continue,
                        };
                        plans_changed |= kind == Kind::Plan;
                        if kind == Kind::Plan {
                            approve_wave(cluster, &change.new.value);
                        }
                        let effect = recorder.observe(kind, &change, entry.at);
                        if let Some(Effect::Upgraded { plan, node, version }) = effect {
                            if self.compares_os_images(&plan) {
                                boot_os_image(cluster, &node, &version);
                            }
                            if let Some((from, to)) = upgraded(cluster, &node, &version) {
                                recorder.see_version(VersionStep { plan, node, from, to });
                            }
                        }
                    }
                    recorder.take_events().iter().for_each(&mut *on_event);
                    let is_complete = wanted.iter().all(|plan| recorder.is_complete(plan));
                    let through = plans_changed && is_complete && !self.is_joining(cluster);
                    if through && !wanted.is_empty() && repetition(recorder).is_none() {
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
                    } else if let Some(due) = repetition(recorder).filter(|due| *due > now) {
                        deadline = later(due, quiet);
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

    /// The blackouts for all Plans.
    pub fn blackouts(&self) -> Vec<Blackout> {
        let on_cluster = match &self.initial_cluster {
            InitialCluster::Snapshot(snapshot) => snapshot.objects.as_slice(),
            InitialCluster::Generated { .. } => &[],
        };
        // As of a Plan, the one in a file replaces the stored one.
        let mut objects = self.objects.iter().chain(on_cluster);
        let limits =
            objects.find(|one| one["kind"] == "ConfigMap" && one["metadata"]["name"] == limits::NAME);
        let data = limits.and_then(|limits| BTreeMap::deserialize(&limits["data"]).ok());
        let limits = data.and_then(|data| Limits::parse(&data, &TimeZone::system()).ok());
        limits.unwrap_or_default().blackouts
    }

    /// Time without progress after which the roll-out has stalled.
    fn quiet(&self) -> SignedDuration {
        let specs = self
            .all_plans()
            .filter_map(|plan| PlanSpec::deserialize(&plan["spec"]).ok());
        let deadline = SignedDuration::from_secs(self.settings.jobs.active_deadline_seconds.max(0));
        let longest = specs.map(|spec| longest_wait(&spec)).max().unwrap_or_default();
        let failing = self.failing_checks.values().flatten().max().copied();
        let longest = longest.max(deadline).max(self.assumptions.longest());
        let longest = longest.max(failing.unwrap_or_default());
        STALL_SLACK + longest.saturating_mul(2)
    }

    /// When a window of an incomplete Plan opens next, or a blackout ends, as its status says.
    fn next_window(cluster: &Cluster, recorder: &Recorder, now: Timestamp) -> Option<Timestamp> {
        cluster.with(|state| {
            let open = state.all(Kind::Plan).filter(|plan| {
                let name = plan["metadata"]["name"].as_str().unwrap_or_default();
                !recorder.is_complete(name)
            });
            let next = |plan: &Value| plan["status"]["nextWindow"].as_str()?.parse().ok();
            let next = open.filter_map(next);
            next.filter(|opens: &Timestamp| *opens > now).min()
        })
    }
}

/// The longest wait that a Plan's own fields allow.
fn longest_wait(spec: &PlanSpec) -> SignedDuration {
    let go = |text: Option<&String>| -> SignedDuration {
        let parsed = text.and_then(|text| text.parse::<refit_base::go::GoDuration>().ok());
        parsed.map_or(SignedDuration::ZERO, |it| {
            SignedDuration::from_nanos(it.as_nanos())
        })
    };
    let job = SignedDuration::from_secs(spec.job_active_deadline_secs.unwrap_or_default().max(0));
    let drain = match spec.drain.as_ref().and_then(|drain| drain.timeout.as_ref()) {
        Some(refit_api::DrainTimeout::Nanoseconds(nanos)) => SignedDuration::from_nanos(*nanos),
        Some(refit_api::DrainTimeout::Text(text)) => go(Some(text)),
        None => SignedDuration::ZERO,
    };
    let waits = wait_for::longest(&spec.drain_waits().unwrap_or_default());
    let drain = drain.saturating_add(SignedDuration::from_nanos(waits.as_nanos()));
    let settle = spec.settle_or_default();
    let soaks = spec.waves().unwrap_or_default();
    let soak = soaks.iter().map(|wave| wave.soak).max().unwrap_or_default();
    let checks = spec.checks().unwrap_or_default();
    let passes = checks
        .iter()
        .map(|check| check.interval.saturating_mul(check.passes));
    let passes = passes.max().unwrap_or_default();
    let passes = SignedDuration::try_from(passes).unwrap_or_default();
    let all = [
        job,
        drain,
        go(spec.post_complete_delay.as_ref()),
        go(spec.reboot_or_default().timeout.as_ref()),
        go(settle.timeout.as_ref()),
        go(settle.min_ready.as_ref()),
        soak,
        passes,
    ];
    all.into_iter().max().unwrap_or_default()
}

/// Approves a wave that waits for it, as the rehearsal assumes that a person would.
fn approve_wave(cluster: &Cluster, plan: &Value) {
    let wave = WaveStatus::deserialize(&plan["status"]["wave"]).unwrap_or_default();
    if wave.phase != WavePhase::AwaitingApproval {
        return;
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (
        text(&plan["metadata"]["namespace"]),
        text(&plan["metadata"]["name"]),
    );
    let known = text(&plan["metadata"]["annotations"][names::ANNOTATION_APPROVE]);
    if WaveApproval::is_in(&known, &wave.name, &wave.hash) {
        return;
    }
    let approval = WaveApproval::new(&wave.name, &wave.hash).to_string();
    let approvals = if known.is_empty() {
        approval
    } else {
        format!("{known},{approval}")
    };
    let patch = json!({ "metadata": { "annotations": { names::ANNOTATION_APPROVE: approvals } } });
    // The Plan may have been deleted.
    let _ = cluster.patch(Kind::Plan, &namespace, &name, &patch);
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
    let after = kubelet_version(&released_version(version));
    let status = json!({ "status": { "nodeInfo": { "kubeletVersion": after.as_str() } } });
    // The node may have been deleted.
    let _ = cluster.patch_status(Kind::Node, "", node, &status);
    Some((before, after))
}

/// Sets the `osImage` of a node whose system was upgraded: its first word that begins like a version becomes the new one.
fn boot_os_image(cluster: &Cluster, node: &str, version: &str) {
    let Some(before) = cluster.get(Kind::Node, "", node) else {
        return;
    };
    let before = before["status"]["nodeInfo"]["osImage"]
        .as_str()
        .unwrap_or_default();
    let is_version = |word: &str| {
        let word = word.trim_start_matches('(').trim_start_matches('v');
        word.starts_with(|c: char| c.is_ascii_digit())
    };
    let mut words: Vec<&str> = before.split_whitespace().collect();
    match words.iter().position(|word| is_version(word)) {
        Some(at) => words[at] = version,
        None => words.push(version),
    }
    let status = json!({ "status": { "nodeInfo": { "osImage": words.join(" ") } } });
    // The node may have been deleted.
    let _ = cluster.patch_status(Kind::Node, "", node, &status);
}

fn later(at: Timestamp, wait: SignedDuration) -> Timestamp {
    at.checked_add(wait).unwrap_or(Timestamp::MAX)
}
