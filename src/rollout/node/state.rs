//! The state of a node that a Plan has started.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::blocker::Blocker;
use crate::step::Step;
use refit_api::{NodePhase, ObjectRef, OpenEnum, PlanSpec, Reason};
use refit_facts::record::Record;
use refit_facts::{BootId, JobFacts, JobName, NodeFacts, NodeName, NodeUid, PlanName, PodUid};

/// The states of the nodes that each Plan has started.
pub(crate) type NodeStates = BTreeMap<PlanName, PlanNodes>;

/// Those of a Plan.
pub(crate) type PlanNodes = BTreeMap<NodeName, NodeState>;

#[derive(Debug, PartialEq)]
pub struct NodeState {
    pub(crate) uid: NodeUid,
    pub(crate) hostname: String,
    pub(crate) failed: bool,
    /// How long the node took from the creation of its Job, once it is done.
    pub(crate) took: Option<SignedDuration>,
    /// Whether the slot of a failed node is free for others.
    pub(crate) frees_slot: bool,
    /// Whether a failed node is released, as `spec.failure.uncordon` says.
    pub(crate) is_released_after_failure: bool,
    /// What was decided about a failed node, and what a person can do.
    pub(crate) decision: Option<String>,
    /// The next attempt on a failed node whose slot is free, once it gets one again.
    pub(crate) retry: Option<Box<Self>>,
    /// `status.active[].phase`.
    pub phase: NodePhase,
    pub since: Option<Timestamp>,
    pub(crate) job: Option<JobName>,
    pub(crate) attempt: Option<i64>,
    /// Boot ID of the node when it started, if the Plan may reboot it.
    pub(crate) boot: Option<BootId>,
    /// UID of the reboot Pod, while it is needed.
    pub(crate) pod: Option<PodUid>,
    pub reason: Option<OpenEnum<Reason>>,
    pub(crate) message: Option<String>,
    /// The objects that the message is about.
    pub(crate) about: Vec<ObjectRef>,
    pub(crate) steps: Vec<Step>,
    pub(crate) requeue_at: Option<Timestamp>,
    /// Set while no Job runs yet. The step starts it, unless another Plan works on the node.
    pub(crate) start: Option<Start>,
}

/// How the work on a node starts.
#[derive(Debug, PartialEq)]
pub(crate) enum Start {
    /// Another step must come first.
    Later,
    Now(Step),
}

impl NodeState {
    /// Whether the roll-out continues without the node: it failed for good, and no retry is requested.
    pub(crate) fn is_given_up(&self) -> bool {
        self.frees_slot && self.retry.is_none()
    }

    pub(crate) fn is_held_by(&self, reason: Reason) -> bool {
        self.reason.as_ref().is_some_and(|held| *held == reason)
    }

    pub(super) fn new(node: &NodeFacts, phase: NodePhase) -> Self {
        Self::bare(node.uid.clone(), node.hostname().to_owned(), phase)
    }

    /// A state with these values only.
    pub fn bare(uid: NodeUid, hostname: String, phase: NodePhase) -> Self {
        Self {
            uid,
            hostname,
            failed: phase == NodePhase::Failed,
            took: None,
            frees_slot: false,
            is_released_after_failure: false,
            decision: None,
            retry: None,
            phase,
            since: None,
            job: None,
            attempt: None,
            boot: None,
            pod: None,
            reason: None,
            message: None,
            about: Vec::new(),
            steps: Vec::new(),
            requeue_at: None,
            start: None,
        }
    }

    /// A node that is about to start, once status names it. Status stores the boot with the slot, before the Job exists: if all
    /// evidence of the upgrade is lost later, this is what tells whether the node has rebooted since.
    pub(crate) fn starting(spec: &PlanSpec, attempt: i64, node: &NodeFacts, now: Timestamp) -> Self {
        Self {
            since: Some(now),
            attempt: Some(attempt),
            start: Some(Start::Later),
            boot: spec.may_reboot().then(|| node.boot_id.clone()),
            ..Self::new(node, NodePhase::Pending)
        }
    }

    pub(super) fn of_job(node: &NodeFacts, job: &JobFacts, phase: NodePhase) -> Self {
        let mut state = Self::new(node, phase);
        state.since = Some(job.created);
        state.job = Some(job.name.clone());
        state.attempt = Some(job.attempt);
        state
    }

    /// The state of a node with this record.
    pub(super) fn of_record(node: &NodeFacts, record: &Record, phase: NodePhase) -> Self {
        let mut state = Self::new(node, phase);
        state.since = Some(record.at);
        state.job = Some(record.job.clone()).filter(|job| !job.is_empty());
        state.attempt = Some(record.attempt);
        state
    }

    pub(crate) fn set_reason(&mut self, reason: impl Into<OpenEnum<Reason>>, message: String) {
        self.reason = Some(reason.into());
        self.message = Some(message);
        self.about.clear();
    }

    pub(super) fn with_reason(mut self, reason: impl Into<OpenEnum<Reason>>, message: String) -> Self {
        self.set_reason(reason, message);
        self
    }

    pub(crate) fn set_blocker(&mut self, blocker: &Blocker) {
        self.set_reason(blocker.reason(), blocker.to_string());
        self.about = blocker.about();
    }

    /// Adds a message without a reason for a delay.
    pub(super) fn with_message(mut self, message: String) -> Self {
        self.message = Some(message);
        self
    }

    pub(super) fn with_blocker(mut self, blocker: &Blocker) -> Self {
        self.set_blocker(blocker);
        self
    }

    pub(crate) fn with_step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }
}

/// The result of reconciling a node: a node with a slot, or steps to clean up.
pub(crate) enum NodeDecision {
    Slot(Box<NodeState>),
    Cleanup(Vec<Step>),
}

impl NodeDecision {
    pub(super) fn slot(state: NodeState) -> Self {
        Self::Slot(Box::new(state))
    }

    pub(super) fn and(mut self, more: impl IntoIterator<Item = Step>) -> Self {
        match &mut self {
            Self::Slot(state) => state.steps.extend(more),
            Self::Cleanup(steps) => steps.extend(more),
        }
        self
    }
}
