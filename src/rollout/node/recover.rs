//! A node that is done and released, but keeps its slot until the controllers of the evicted pods are available again,
//! because their pods may fit nowhere else. The controllers are read one by one, at intervals. A ready count needs two
//! equal readings, because a container that crashes at start counts as ready until it has crashed.

use jiff::{SignedDuration, Timestamp};

use super::NodeReconciler;
use super::state::{NodeDecision, NodeState};
use crate::later::{later, requeue};
use crate::memory::answers::WorkloadReadings;
use crate::release::drop_record;
use crate::step::{Key, Query, Step};
use refit_api::text::{MAX_MESSAGE, shorten};
use refit_api::{NodePhase, ObjectRef, Reason, Workload};
use refit_facts::record::Record;
use refit_facts::{NodeFacts, Text, WorkloadFacts};

/// How often to read a controller that is not available.
const READ_INTERVAL: SignedDuration = SignedDuration::from_secs(5);
/// Maximum number of concurrent reads for one node.
const MAX_READS: usize = 8;
/// Maximum number of controllers named in the message.
const MAX_NAMED: usize = 3;

impl WorkloadReadings {
    /// Whether it no longer exists, or has stayed available.
    fn stays_available(&self, since: Timestamp) -> bool {
        let lasts = |from: Timestamp| later(from.max(since), READ_INTERVAL) <= self.facts.seen;
        self.facts.wanted == 0 || self.available_since.is_some_and(lasts)
    }
}

impl NodeReconciler<'_> {
    /// The controllers that the Plan waits for after the node is done, from the ledger.
    pub(super) fn evicted(&self, node: &NodeFacts, record: Option<&Record>) -> Vec<String> {
        if !self.plan.completion.workloads {
            return Vec::new();
        }
        let known = record
            .map(|record| record.workloads.clone())
            .filter(|known| !known.is_empty());
        let of_ledger = || self.plan_hold().holder(node).map(|holder| holder.evicted.clone());
        known.or_else(of_ledger).unwrap_or_default()
    }

    /// The state of a node whose evicted workloads are not available yet.
    pub(super) fn recover(&self, node: &NodeFacts, record: &Record) -> NodeDecision {
        let known = self.known_since(node, record);
        // A time in the future, by another clock or forged, would make every reading count as too old, and each be
        // followed by the next at once.
        let since = record.settling.unwrap_or(record.at);
        let since = if since > self.now {
            known.min(self.now)
        } else {
            since
        };
        let mut state = NodeState::of_record(node, record, NodePhase::Settling);
        state.since = Some(since);
        let (mut broken, mut again): (Vec<(String, _)>, Vec<_>) = (Vec::new(), Vec::new());
        for workload in &record.workloads {
            let known = self.cluster.memory.answers.workloads.get(workload.as_str());
            // Readings are shared by nodes. One from before this node was released may be from before its drain
            // evicted the pods.
            let known = known.filter(|known| known.facts.seen >= since);
            if known.is_some_and(|known| known.stays_available(since)) {
                continue;
            }
            let known = known.map(|known| &known.facts);
            let available = known.is_some_and(WorkloadFacts::is_available);
            let list = if available { &mut again } else { &mut broken };
            list.push(self.describe_workload(workload, known));
            let due = known.map_or(Timestamp::MIN, |known| later(known.seen, READ_INTERVAL));
            if due > self.now {
                requeue(&mut state.requeue_at, due);
            // A node may have run pods of a hundred controllers, and one wait must not flood the API server.
            } else if state.steps.len() < MAX_READS {
                state.steps.push(Step::Query(Query::ReadWorkload {
                    workload: workload.as_str().into(),
                }));
            }
        }
        let is_available = broken.is_empty();
        if is_available {
            broken = again;
        }
        if broken.is_empty() || !self.plan.completion.workloads {
            state.steps = vec![drop_record(node, &self.plan.facts.name)];
            return NodeDecision::slot(state);
        }
        let more = match broken.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        broken.truncate(MAX_NAMED);
        let (broken, about): (Vec<_>, Vec<_>) = broken.into_iter().unzip();
        let text = shorten(&format!("{}{more}", broken.join(", ")), MAX_MESSAGE).into_owned();
        let until = later(since.max(known), self.plan.completion.settle_timeout);
        // A controller that is available at the time limit gets its second reading.
        if until <= self.now && !is_available {
            let message = format!(
                "the node is done, but not all workloads evicted from it were available within settle.timeout: {text}"
            );
            return self.fail_permanently(
                node,
                record,
                Reason::SettleFailed,
                Reason::SettleTimedOut,
                message,
            );
        }
        let until = (until > self.now).then_some(until);
        requeue(&mut state.requeue_at, until);
        let mut state = state.with_reason(Reason::Workloads, text);
        state.about = about;
        NodeDecision::slot(state)
    }

    /// What a controller lacks, and a reference to it.
    fn describe_workload(&self, text: &str, known: Option<&WorkloadFacts>) -> (String, ObjectRef) {
        let key = Key::Workload(Text::from(text));
        let Some(workload) = Workload::parse(text) else {
            return (text.to_owned(), ObjectRef::default());
        };
        let called = workload.to_string();
        let text = match (known, self.cluster.memory.failures.get(&key)) {
            (_, Some(failure)) => format!("{called} cannot be read: {}", failure.message),
            (Some(known), _) => {
                let once_more = if known.is_available() {
                    "; refit reads it once more"
                } else {
                    ""
                };
                let before = match known.before.filter(|before| *before < known.wanted) {
                    Some(before) => format!(", and had {before} before the drain"),
                    None => String::new(),
                };
                format!(
                    "{called} has {} of {} pods ready{before}{once_more}",
                    known.ready, known.wanted
                )
            }
            (None, _) => format!("{called} has not been read yet"),
        };
        let object = ObjectRef {
            namespace: Some(workload.namespace.to_owned()),
            ..ObjectRef::new(workload.kind, workload.name)
        };
        (text, object)
    }
}
