//! What only this process knows: its requests in flight, what it has asked, and how long conditions have lasted. It may only
//! delay a step, because a new leader begins without it.

pub(super) mod answers;
pub(super) mod results;
pub(super) mod timers;
pub(super) mod trusted_plans;
pub(super) mod turns;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use answers::Answers;
use results::Results;
use timers::Timers;
use trusted_plans::TrustedPlans;
use turns::Turns;

use super::step::Key;
use refit_facts::{JobName, NodeName, NodeUid, PlanName, PlanUid, Text};

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// When the state was first looked at, which is when this process began to lead.
    pub(super) started: Option<Timestamp>,
    pub(super) failures: BTreeMap<Key, StepFailure>,
    /// Names of Jobs and pods that belong to others, and when that was seen.
    pub(super) name_conflicts: BTreeMap<Text, Timestamp>,
    /// Jobs whose creation is not confirmed, by Plan and node.
    pub(super) pending_creates: BTreeMap<(PlanName, NodeName), PendingCreate>,
    /// Nodes whose ledger is being written: a cancellation of an earlier Job's drain may be in flight.
    pub(super) ledgers_sent: BTreeSet<NodeName>,
    pub(super) results: Results,
    pub(super) answers: Answers,
    pub(super) timers: Timers,
    /// `None` if there is no Lease to store them: then every holder counts.
    pub(super) trusted_plans: Option<TrustedPlans>,
    /// The objects that may take the nodes that they want, by UID. Their front end may be about to cordon the node, so
    /// this is not taken back while they want it.
    pub(super) granted: BTreeMap<NodeName, Text>,
    /// What was done for each `NodeMaintenance`.
    pub(super) turns: Turns,
    /// Whether the API server keeps `spec.podReplacementPolicy` of Jobs, by the Job of refit that was last seen to run.
    pub(super) keeps_replacement_policy: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepFailure {
    pub message: String,
    /// Whether the cluster refuses the step, so that an early retry would not help.
    pub refused: bool,
    /// Whether it refuses what is written, and not because a permission is missing.
    pub is_of_object: bool,
}

/// A Job whose creation is not confirmed.
#[derive(Debug)]
pub(super) struct PendingCreate {
    pub(super) job: JobName,
    /// UIDs of the Plan and of the machine.
    pub(super) plan_uid: PlanUid,
    pub(super) node_uid: NodeUid,
    /// Whether the Job disrupts its node, even if the Plan has changed.
    pub(super) disruptive: bool,
    /// Whether the request is in flight.
    pub(super) in_flight: bool,
    /// Whether no response has said if the Job exists.
    pub(super) unknown: bool,
}

/// How long to wait before using a name again that someone else's Job had: each attempt costs two requests.
const NAME_CONFLICT_PAUSE: SignedDuration = SignedDuration::from_secs(10);

impl Memory {
    /// Until when a name counts as taken by someone else's Job or pod. They are not watched.
    pub(super) fn name_conflict_until(&self, name: &str, now: Timestamp) -> Option<Timestamp> {
        let until = self.name_conflicts.get(name)?.saturating_add(NAME_CONFLICT_PAUSE);
        until.ok().filter(|until| *until > now)
    }

    /// A response has said, or has not, whether the Job exists.
    pub(super) fn set_create_unknown(&mut self, job: &str, unknown: bool) {
        let creates = self.pending_creates.values_mut();
        for create in creates.filter(|create| *create.job == *job) {
            create.unknown = unknown;
        }
    }

    /// The nodes in another order: those whose last step was refused come last, so that they cannot take all places of a
    /// decision from the others.
    pub(super) fn refused_last<'n>(
        &self,
        nodes: impl Iterator<Item = &'n NodeName>,
    ) -> impl Iterator<Item = &'n NodeName> {
        let (refused, others): (Vec<_>, Vec<_>) =
            nodes.partition(|name| self.failures.contains_key(&Key::Node((*name).clone())));
        others.into_iter().chain(refused)
    }

    /// The time of day was set by so much: what this process has seen began so much later or earlier by the new time.
    /// Times in objects are compared with the new one as they are.
    pub(super) fn shift_times(&mut self, shift: impl Fn(&mut Timestamp) + Copy) {
        self.timers.shift_times(shift);
        self.turns.shift_times(shift);
        self.name_conflicts.values_mut().for_each(shift);
        self.answers.shift_times(shift);
    }
}
