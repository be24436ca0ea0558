//! A node that is done and given back, and that keeps its slot until the controllers of the pods that were evicted are whole
//! again: their pods may fit nowhere else. They are read one by one, and not often; their ready counts are believed when
//! two readings agree, because a container that fails as it starts counts as ready until it has failed.

use jiff::{SignedDuration, Timestamp};

use super::settle::later;
use super::{Question, Stand, Standing, shortened};
use crate::rollout::facts::{NodeFacts, Text, WorkloadFacts};
use crate::rollout::give_back::drop_record;
use crate::rollout::record::Record;
use crate::rollout::step::{Key, Step};

/// How often a controller is read that is not whole.
const EVERY: SignedDuration = SignedDuration::from_secs(5);
/// How many are read at a time for one node.
const AT_ONCE: usize = 8;
/// How many are named.
const NAMED: usize = 3;

/// A controller whose pods were evicted, over several readings.
#[derive(Clone, Copy, Debug)]
pub(in crate::rollout) struct Workload {
    /// The last one.
    pub(in crate::rollout) facts: WorkloadFacts,
    /// When the first of those was that found it whole, one after the other up to the last.
    pub(in crate::rollout) whole_since: Option<Timestamp>,
}

impl Workload {
    /// It is not there any more, or was whole and is so still.
    fn stays_whole(&self, since: Timestamp) -> bool {
        let lasts = |from: Timestamp| later(from.max(since), EVERY) <= self.facts.seen;
        self.facts.wanted == 0 || self.whole_since.is_some_and(lasts)
    }
}

impl Question<'_> {
    /// The controllers that the Plan waits for after the node is done: the ledger knows whose pods were evicted.
    pub(super) fn evicted(&self, node: &NodeFacts, record: Option<&Record>) -> Vec<String> {
        if !self.plan.terms.workloads {
            return Vec::new();
        }
        let known = record
            .map(|record| record.workloads.clone())
            .filter(|known| !known.is_empty());
        let of_ledger = || self.mine().holder(node).map(|mine| mine.evicted.clone());
        known.or_else(of_ledger).unwrap_or_default()
    }

    /// Where a node stands whose evicted workloads are yet to be whole.
    pub(super) fn recover(&self, node: &NodeFacts, record: &Record) -> Stand {
        let since = record.settling.unwrap_or(record.at);
        let mut standing = Standing::new(node, "Settling");
        standing.since = Some(since);
        standing.job = Some(record.job.as_str().into());
        standing.attempt = Some(record.attempt);
        let (mut broken, mut again) = (Vec::new(), Vec::new());
        for workload in &record.workloads {
            let known = self.world.workloads.get(workload.as_str());
            let known = known.filter(|known| known.facts.seen >= since);
            if known.is_some_and(|known| known.stays_whole(since)) {
                continue;
            }
            let known = known.map(|known| &known.facts);
            let whole = known.is_some_and(WorkloadFacts::is_whole);
            let list = if whole { &mut again } else { &mut broken };
            list.push(self.is_broken(workload, known));
            let due = known.map_or(Timestamp::MIN, |known| later(known.seen, EVERY));
            if due > self.now {
                standing.wake = standing.wake.into_iter().chain([due]).min();
            } else if standing.steps.len() < AT_ONCE {
                standing.steps.push(Step::ReadWorkload {
                    workload: workload.as_str().into(),
                });
            }
        }
        let is_whole = broken.is_empty();
        if is_whole {
            broken = again;
        }
        if broken.is_empty() || !self.plan.terms.workloads {
            standing.steps = vec![drop_record(node, &self.plan.facts.name)];
            return Stand::slot(standing);
        }
        let more = match broken.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        broken.truncate(NAMED);
        let text = shortened(format!("{}{more}", broken.join(", ")));
        let known = self.world.known_since(node, record).unwrap_or(self.now);
        let until = later(since.max(known), self.plan.terms.settle_timeout);
        // What is whole at the end of its time is given the other reading.
        if until <= self.now && !is_whole {
            let message = format!(
                "the node is done, but what was evicted from it is not whole within settle.timeout: {text}"
            );
            return self.gives_up(node, record, "SettleFailed", "SettleTimedOut", message);
        }
        let until = (until > self.now).then_some(until);
        standing.wake = standing.wake.into_iter().chain(until).min();
        Stand::slot(standing.held_up("Workloads", text))
    }

    fn is_broken(&self, workload: &str, known: Option<&WorkloadFacts>) -> String {
        let key = Key::Workload(Text::from(workload));
        let called = workload.replacen('/', " ", 1);
        match (known, self.world.troubles.get(&key)) {
            (_, Some(trouble)) => format!("{called} cannot be read: {}", trouble.message),
            (Some(known), _) => {
                let once_more = if known.is_whole() {
                    ", and is read once more"
                } else {
                    ""
                };
                format!(
                    "{called} has {} of {} pods ready{once_more}",
                    known.ready, known.wanted
                )
            }
            (None, _) => format!("{called} is to be read"),
        }
    }
}
