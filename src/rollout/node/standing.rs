//! Where a node stands that a Plan has begun with.

use jiff::Timestamp;

use crate::rollout::blocker::Blocker;
use crate::rollout::facts::{JobFacts, NodeFacts, Text};
use crate::rollout::step::Step;

/// Where a node stands that the Plan has begun with.
#[derive(Debug)]
pub(in crate::rollout) struct Standing {
    pub(in crate::rollout) uid: Text,
    pub(in crate::rollout) hostname: String,
    /// Stored status says that it has a slot.
    pub(in crate::rollout) told: bool,
    pub(in crate::rollout) failed: bool,
    /// `status.active[].phase`.
    pub(in crate::rollout) phase: &'static str,
    pub(in crate::rollout) since: Option<Timestamp>,
    pub(in crate::rollout) job: Option<Text>,
    pub(in crate::rollout) attempt: Option<i64>,
    /// Boot that the node was in when it was started, where the Plan may reboot it.
    pub(in crate::rollout) boot: Option<Text>,
    /// UID of the pod that reboots the node, as long as it is needed.
    pub(in crate::rollout) pod: Option<Text>,
    pub(in crate::rollout) reason: Option<String>,
    pub(in crate::rollout) message: Option<String>,
    pub(in crate::rollout) steps: Vec<Step>,
    pub(in crate::rollout) wake: Option<Timestamp>,
    /// No Job is at work yet. The step begins it, unless another Plan is at work on the node.
    pub(in crate::rollout) next: Option<Next>,
}

/// How the work on a node begins.
#[derive(Debug)]
pub(in crate::rollout) enum Next {
    /// Something else has to come first.
    Later,
    /// With this step.
    Now(Step),
}

impl Standing {
    pub(super) fn new(node: &NodeFacts, phase: &'static str) -> Self {
        Self {
            uid: node.uid.clone(),
            hostname: node.hostname().to_owned(),
            told: false,
            failed: false,
            phase,
            since: None,
            job: None,
            attempt: None,
            boot: None,
            pod: None,
            reason: None,
            message: None,
            steps: Vec::new(),
            wake: None,
            next: None,
        }
    }

    /// A node that is about to be started: it waits for status to say so.
    pub(in crate::rollout) fn starting(node: &NodeFacts, now: Timestamp) -> Self {
        Self {
            since: Some(now),
            attempt: Some(1),
            next: Some(Next::Later),
            ..Self::new(node, "Pending")
        }
    }

    pub(super) fn of_job(node: &NodeFacts, job: &JobFacts, phase: &'static str) -> Self {
        let mut standing = Self::new(node, phase);
        standing.since = Some(job.created);
        standing.job = Some(job.name.clone());
        standing.attempt = Some(job.attempt);
        standing
    }

    pub(in crate::rollout) fn is_held_up(&mut self, reason: &str, message: String) {
        self.reason = Some(reason.to_owned());
        self.message = Some(message);
    }

    pub(super) fn held_up(mut self, reason: &str, message: String) -> Self {
        self.is_held_up(reason, message);
        self
    }

    /// Says how far it has come, without being held up.
    pub(super) fn goes_on(mut self, message: String) -> Self {
        self.message = Some(message);
        self
    }

    pub(super) fn held_up_by(self, blocker: &Blocker) -> Self {
        self.held_up(blocker.reason(), blocker.to_string())
    }

    pub(in crate::rollout) fn then(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }
}

/// Where a node stands: with a slot, or with only some tidying up to do.
pub(in crate::rollout) enum Stand {
    Slot(Box<Standing>),
    Tidy(Vec<Step>),
}

impl Stand {
    pub(super) fn slot(standing: Standing) -> Self {
        Self::Slot(Box::new(standing))
    }

    pub(super) fn and(mut self, more: impl IntoIterator<Item = Step>) -> Self {
        match &mut self {
            Self::Slot(standing) => standing.steps.extend(more),
            Self::Tidy(steps) => steps.extend(more),
        }
        self
    }
}
