//! What changes from one decision to the next: how long steps take, which nodes end, how long nodes are cordoned.
//!
//! It knows only what this process has seen. A step that began before this process led is not measured, and counters begin
//! at 0, which Prometheus takes into account.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use prometheus_client::metrics::histogram::Histogram;

use super::list;
use super::sample::STEP_BOUNDS;
use super::sample::{OTHER, Sample, Samples};
use refit_api::reason::ReportedIn;
use refit_api::{ChannelRef, ConditionType, NodePhase, OpenEnum, PlanStatus, Reason};
use refit_facts::{NodeName, PlanName, PodUid};
use refit_rollout::{ClusterState, NodeState, PlanPicture};

/// A node on which a Plan is done.
pub(super) const DONE: &str = "Done";

/// The steps on a node, as the label `step` names them.
const STEPS: [&str; 7] = [
    "start", "prepare", "drain", "upgrade", "reboot", "settle", "verify",
];

/// The step that a phase belongs to.
fn step(phase: NodePhase) -> Option<&'static str> {
    match phase {
        NodePhase::Pending | NodePhase::Starting => Some("start"),
        NodePhase::Preparing => Some("prepare"),
        NodePhase::Cordoning | NodePhase::Draining => Some("drain"),
        NodePhase::Upgrading | NodePhase::Finishing => Some("upgrade"),
        NodePhase::Rebooting => Some("reboot"),
        NodePhase::Settling => Some("settle"),
        NodePhase::Verifying => Some("verify"),
        NodePhase::Waiting | NodePhase::Failed => None,
    }
}

pub(super) struct Tracker {
    plans: BTreeMap<PlanName, PlanTrack>,
    /// Pods that each live drain has evicted so far.
    evicted: BTreeMap<PodUid, usize>,
    /// Since when each node is cordoned for a Plan.
    cordons: BTreeMap<(PlanName, NodeName), Timestamp>,
    /// Up to when durations are summed.
    advanced: Option<Instant>,
    /// Nodes that are done, and that have failed.
    ended: [u64; 2],
    failures: BTreeMap<&'static str, u64>,
    node_duration: Histogram,
    steps: [(&'static str, Histogram); STEPS.len()],
    /// Polls of channels that gave a response, and that did not.
    polls: [u64; 2],
    /// When each channel last gave one.
    channels: BTreeMap<ChannelRef, Timestamp>,
}

impl Default for Tracker {
    fn default() -> Self {
        Self {
            plans: BTreeMap::new(),
            evicted: BTreeMap::new(),
            cordons: BTreeMap::new(),
            advanced: None,
            ended: [0; 2],
            failures: BTreeMap::new(),
            node_duration: Histogram::new(STEP_BOUNDS),
            steps: STEPS.map(|step| (step, Histogram::new(STEP_BOUNDS))),
            polls: [0; 2],
            channels: BTreeMap::new(),
        }
    }
}

/// What was seen of a Plan.
#[derive(Debug, Default)]
pub(super) struct PlanTrack {
    /// The phase of each node with a slot.
    phases: BTreeMap<NodeName, NodePhase>,
    /// When it got its slot, and when its step began, if this process has seen that.
    began: BTreeMap<NodeName, Instant>,
    step_began: BTreeMap<NodeName, Instant>,
    /// When a node last changed its phase.
    pub(super) progress: Timestamp,
    /// Since when the Plan is not complete.
    pub(super) rollout: Option<Timestamp>,
    pub(super) last_rollout: Option<Duration>,
    /// Number of nodes that finished, and the time that they took together.
    finished: (u32, Duration),
    pub(super) cordoned: Duration,
    pub(super) draining: Duration,
    cordoned_now: u32,
    draining_now: u32,
    pub(super) evictions: u64,
}

impl PlanTrack {
    /// Mean time of the nodes that finished.
    pub(super) fn node_duration(&self) -> Option<Duration> {
        let (count, sum) = self.finished;
        (count > 0).then(|| sum / count)
    }

    /// Notices when a roll-out begins and ends.
    fn follow_rollout(&mut self, status: &PlanStatus) {
        let Some(complete) = status.condition(ConditionType::Complete) else {
            return;
        };
        let at = complete.last_transition_time.as_deref();
        let at: Option<Timestamp> = at.and_then(|at| at.parse().ok());
        if complete.status != "True" {
            self.rollout = at;
        } else if let Some(start) = self.rollout.take()
            && let Some(took) = at.and_then(|at| Duration::try_from(at.duration_since(start)).ok())
        {
            self.last_rollout = Some(took);
        }
    }
}

impl Tracker {
    pub(super) fn plan(&self, name: &PlanName) -> Option<&PlanTrack> {
        self.plans.get(name)
    }

    /// Start time of the Plan's longest-lasting cordon.
    pub(super) fn oldest_cordon(&self, plan: &PlanName) -> Option<Timestamp> {
        let of_plan = self.cordons.iter().filter(|((of, _), _)| of == plan);
        of_plan.map(|(_, since)| *since).min()
    }

    /// When the channel last gave a response.
    pub(super) fn last_success(&self, channel: &ChannelRef) -> Option<Timestamp> {
        self.channels.get(channel).copied()
    }

    pub(super) fn record_poll(&mut self, channel: &ChannelRef, at: Timestamp, is_success: bool) {
        self.polls[usize::from(!is_success)] += 1;
        if is_success {
            self.channels.insert(channel.clone(), at);
        }
    }

    /// Sums durations up to now.
    pub(super) fn advance(&mut self, now: Instant) {
        let elapsed = self
            .advanced
            .replace(now)
            .map_or(Duration::ZERO, |then| now - then);
        for plan in self.plans.values_mut() {
            plan.cordoned += elapsed * plan.cordoned_now;
            plan.draining += elapsed * plan.draining_now;
        }
    }

    /// Follows a decision.
    pub(super) fn follow(
        &mut self,
        cluster: &ClusterState,
        pictures: &BTreeMap<PlanName, PlanPicture>,
        instant: Instant,
        now: Timestamp,
    ) {
        let is_first = self.advanced.is_none();
        self.advance(instant);
        self.plans.retain(|name, _| pictures.contains_key(name));
        for (name, report) in pictures {
            let track = self.plans.entry(name.clone()).or_insert_with(|| PlanTrack {
                progress: now,
                ..PlanTrack::default()
            });
            if let Some(plan) = cluster.plan(name) {
                track.follow_rollout(plan.status());
            }
            track.draining_now = report
                .slots
                .values()
                .filter(|slot| slot.phase == NodePhase::Draining)
                .count()
                .try_into()
                .unwrap_or(u32::MAX);
        }
        for (name, report) in pictures {
            self.follow_slots(cluster, name, &report.slots, is_first, instant, now);
        }
        self.follow_cordons(cluster, pictures, is_first, now);
        self.follow_evictions(cluster);
    }

    fn follow_slots(
        &mut self,
        cluster: &ClusterState,
        plan: &PlanName,
        slots: &BTreeMap<NodeName, NodeState>,
        is_first: bool,
        instant: Instant,
        now: Timestamp,
    ) {
        let Some(mut track) = self.plans.remove(plan) else {
            return;
        };
        let (kept, gone): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut track.phases)
            .into_iter()
            .partition(|(node, _)| slots.contains_key(node));
        track.phases = kept;
        for (node, phase) in gone {
            self.end_step(phase, track.step_began.remove(&node), instant);
            let began = track.began.remove(&node);
            track.progress = now;
            if cluster.is_done(plan, &node) {
                self.ended[0] += 1;
                if let Some(began) = began {
                    self.node_duration.observe((instant - began).as_secs_f64());
                    track.finished = (track.finished.0 + 1, track.finished.1 + (instant - began));
                }
            }
        }
        for (node, slot) in slots {
            let before = track.phases.insert(node.clone(), slot.phase);
            if before == Some(slot.phase) || before.is_none() && is_first {
                continue;
            }
            track.progress = now;
            if slot.phase == NodePhase::Failed {
                self.fail(slot);
            }
            match before {
                None => {
                    track.began.insert(node.clone(), instant);
                    track.step_began.insert(node.clone(), instant);
                }
                Some(before) if step(before) != step(slot.phase) => {
                    let began = track.step_began.insert(node.clone(), instant);
                    self.end_step(before, began, instant);
                }
                Some(_) => {}
            }
        }
        self.plans.insert(plan.clone(), track);
    }

    fn end_step(&self, phase: NodePhase, began: Option<Instant>, now: Instant) {
        let step = step(phase);
        let known = self.steps.iter().find(|(name, _)| Some(*name) == step);
        if let (Some((_, histogram)), Some(began)) = (known, began) {
            histogram.observe((now - began).as_secs_f64());
        }
    }

    fn fail(&mut self, slot: &NodeState) {
        self.ended[1] += 1;
        *self
            .failures
            .entry(failure_label(slot.reason.as_ref()))
            .or_default() += 1;
    }

    fn follow_cordons(
        &mut self,
        cluster: &ClusterState,
        pictures: &BTreeMap<PlanName, PlanPicture>,
        is_first: bool,
        now: Timestamp,
    ) {
        for track in self.plans.values_mut() {
            track.cordoned_now = 0;
        }
        let mut cordons = BTreeSet::new();
        for (plan, node) in cluster.cordons() {
            // Those of a deleted Plan are about to be released.
            let Some(track) = self.plans.get_mut(plan) else {
                continue;
            };
            track.cordoned_now += 1;
            // The node of an earlier leader has been cordoned since it started, or later.
            let slot = pictures.get(plan).and_then(|report| report.slots.get(node));
            let since = slot
                .and_then(|slot| slot.since)
                .filter(|since| is_first && *since < now);
            let key = (PlanName::from(plan), node.clone());
            cordons.insert(key.clone());
            self.cordons.entry(key).or_insert(since.unwrap_or(now));
        }
        self.cordons.retain(|key, _| cordons.contains(key));
    }

    fn follow_evictions(&mut self, cluster: &ClusterState) {
        let mut live = BTreeSet::new();
        for (plan, pod, note) in cluster.drains() {
            live.insert(pod.clone());
            let known = self.evicted.insert(pod.clone(), note.evicted).unwrap_or_default();
            if let Some(track) = self.plans.get_mut(plan) {
                track.evictions += note.evicted.saturating_sub(known) as u64;
            }
        }
        self.evicted.retain(|pod, _| live.contains(pod));
    }

    /// What is not of one Plan.
    pub(super) fn samples(&self) -> Samples {
        let [done, failed] = self.ended;
        let [success, error] = self.polls;
        let mut samples = vec![
            Sample::total(&list::NODE_UPGRADES, done).with(DONE),
            Sample::total(&list::NODE_UPGRADES, failed).with(NodePhase::Failed.name()),
            Sample::histogram(&list::NODE_DURATION, &self.node_duration),
            Sample::total(&list::CHANNEL_POLLS, success).with("success"),
            Sample::total(&list::CHANNEL_POLLS, error).with("failure"),
        ];
        let failures = self.failures.iter();
        samples.extend(
            failures.map(|(reason, count)| Sample::total(&list::NODE_FAILURES, *count).with(*reason)),
        );
        let steps = self.steps.iter();
        samples.extend(
            steps.map(|(step, histogram)| Sample::histogram(&list::STEP_DURATION, histogram).with(*step)),
        );
        samples
    }
}

/// The word of a reason of failed nodes, if it is in refit's list. What a node may wait for would only add series.
fn failure_label(reason: Option<&OpenEnum<Reason>>) -> &'static str {
    let known = reason.and_then(OpenEnum::known);
    let failure = known.filter(|reason| reason.appears_in(ReportedIn::FailedNode));
    failure.map_or(OTHER, Reason::name)
}

/// The word of a reason, if it is in refit's list.
pub(super) fn reason_label(reason: Option<&OpenEnum<Reason>>) -> &'static str {
    reason.and_then(OpenEnum::known).map_or(OTHER, Reason::name)
}
