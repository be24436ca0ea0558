//! What this process has asked the API server, apart from its watches, and got.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use refit_facts::{DrainFinding, JobUid, NodeName, NodeUid, PlanName, Text, WorkloadFacts};

/// Older answers about pods and Leases are forgotten, so that those about deleted objects do not accumulate.
const KEPT: SignedDuration = SignedDuration::from_mins(15);

#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// Controllers whose pods were evicted, as far as they were read.
    pub(crate) workloads: BTreeMap<Text, WorkloadReadings>,
    /// Why the API server refuses the pods of Jobs.
    pub(crate) refusals: BTreeMap<JobUid, Refusal>,
    /// What was seen of pods for which nodes wait.
    pub(crate) pod_checks: BTreeMap<(PlanName, NodeName), PodCheck>,
    /// Who holds the Leases of nodes.
    pub(crate) leases: BTreeMap<NodeName, LeaseCheck>,
    /// What was seen of the pods of DaemonSets on nodes that settle.
    pub(crate) daemon_pods: BTreeMap<(PlanName, NodeName), DaemonPodsReadings>,
}

impl Answers {
    pub(crate) fn add_workload(&mut self, workload: Text, facts: WorkloadFacts) {
        let before = self.workloads.get(&workload);
        let before = before.and_then(|known| known.available_since);
        let available_since = facts.is_available().then(|| before.unwrap_or(facts.seen));
        let known = WorkloadReadings {
            facts,
            available_since,
        };
        self.workloads.insert(workload, known);
    }

    pub(crate) fn add_daemon_pods(&mut self, plan: PlanName, node: NodeName, last: DaemonPods) {
        let before = self.daemon_pods.get(&(plan.clone(), node.clone()));
        let before = before.filter(|known| known.last.generation == last.generation);
        let ready_since = before.and_then(|known| known.ready_since).unwrap_or(last.seen);
        let ready_since = last.unready.is_none().then_some(ready_since);
        self.daemon_pods
            .insert((plan, node), DaemonPodsReadings { last, ready_since });
    }

    /// The Lease of a node is about to be taken.
    pub(crate) fn forget_released(&mut self, node: &NodeName) {
        let is_released = |check: &LeaseCheck| check.state == LeaseState::Released;
        if self.leases.get(node).is_some_and(is_released) {
            self.leases.remove(node);
        }
    }

    /// The time of day was set by so much.
    pub(super) fn shift_times(&mut self, shift: impl Fn(&mut Timestamp) + Copy) {
        self.leases.values_mut().for_each(|it| shift(&mut it.seen));
        self.pod_checks.values_mut().for_each(|it| shift(&mut it.seen));
        self.refusals.values_mut().for_each(|it| shift(&mut it.seen));
        for known in self.daemon_pods.values_mut() {
            shift(&mut known.last.seen);
            known.ready_since.iter_mut().for_each(shift);
        }
        for workload in self.workloads.values_mut() {
            shift(&mut workload.facts.seen);
            workload.available_since.iter_mut().for_each(shift);
        }
    }
}

/// Adds an answer, and forgets those that are too old by its time.
pub(crate) fn add<K: Ord, V>(known: &mut BTreeMap<K, V>, key: K, answer: V, seen: impl Fn(&V) -> Timestamp) {
    let oldest = seen(&answer).saturating_sub(KEPT).unwrap_or(Timestamp::MIN);
    known.retain(|_, known| seen(known) > oldest);
    known.insert(key, answer);
}

/// What was seen of pods for which a node waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodCheck {
    pub seen: Timestamp,
    /// `metadata.generation` of the Plan that asked.
    pub generation: i64,
    /// A pod that keeps the node from being started, as `namespace/name`.
    pub pod: Option<Text>,
    /// Why a drain of the node would not end, if that was asked and such a pod is not there.
    pub drain: Option<DrainFinding>,
}

/// Who holds the Lease of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseCheck {
    pub seen: Timestamp,
    /// The machine of that name.
    pub node_uid: NodeUid,
    pub state: LeaseState,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// Nobody else.
    Free,
    /// This controller, which has also annotated the Machine.
    Ours,
    /// Nobody any more: this controller has given it back.
    Released,
    /// Another one.
    Held { holder: Text, until: Timestamp },
}

/// What the events of a Job say about its pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub seen: Timestamp,
    /// The words of the API server. `None` if it has refused no pod, or the controller may not read events.
    pub text: Option<Text>,
}

/// A controller whose pods were evicted, over several readings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkloadReadings {
    /// The last reading.
    pub(crate) facts: WorkloadFacts,
    /// Time of the first of the consecutive readings that found it available.
    pub(crate) available_since: Option<Timestamp>,
}

/// The pods of DaemonSets on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonPods {
    pub seen: Timestamp,
    /// `metadata.generation` of the Plan that asked.
    pub generation: i64,
    /// One that is not Ready.
    pub unready: Option<UnreadyPod>,
}

/// A pod of a DaemonSet that is not Ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadyPod {
    /// Its namespace and its name, with `/` between.
    pub pod: Text,
    /// Name of its DaemonSet.
    pub daemon_set: Text,
    /// Whether it is being deleted.
    pub leaves: bool,
    /// How many others are not Ready.
    pub more: usize,
}

/// The pods of DaemonSets on a node, over several readings.
#[derive(Clone, Debug)]
pub(crate) struct DaemonPodsReadings {
    pub(crate) last: DaemonPods,
    /// Time of the first of the consecutive readings that found all of them Ready.
    pub(crate) ready_since: Option<Timestamp>,
}
