//! One queue for all controllers, the scheduler and the kubelets. Work that is due at the same time runs in the order
//! in which it was queued.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;

use super::resources::Kind;
use super::store::Key;

/// A unit of work. Queued twice, it runs once, at the earlier time, as in the delaying queue of client-go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Work {
    SyncJob(Key),
    /// A pod that its Job can no longer process.
    FinalizeStrayPod(Key),
    SyncSet(Kind, Key),
    Budget(Key),
    /// Dependents of a deleted object.
    CollectDependents(String),
    /// Dependents of an object that waits for them to be deleted or orphaned, by its UID.
    FinalizeOwner(String),
    /// Derived taints of a node.
    SyncTaints(String),
    EstablishDefinition(Key),
    ExpireEvent(Key),
    SchedulePod(Key),
    /// All pods without a node.
    ScheduleAll,
    /// A pod on its kubelet, by UID.
    SyncPod(String),
    /// A node whose heartbeat may be overdue.
    CheckHeartbeat(String),
    /// A machine at the end of its reboot.
    BootNode(String),
    /// A node that becomes Ready some time after the boot.
    MarkReady(String),
    /// Pods of a deleted node.
    DeleteOrphanedPods(String),
    /// Pods that no longer tolerate the taints of their node.
    EvictTaintedPods(String),
}

type Position = (Timestamp, u64);

#[derive(Debug, Default)]
pub(super) struct WorkQueue {
    by_time: BTreeMap<Position, Work>,
    /// Only looked up, never iterated, so their order does not matter.
    positions: HashMap<Work, Position>,
    count: u64,
    added: bool,
}

impl WorkQueue {
    pub(super) fn add(&mut self, at: Timestamp, work: Work) {
        if let Some(position) = self.positions.get(&work) {
            if position.0 <= at {
                return;
            }
            self.by_time.remove(position);
        }
        self.count += 1;
        self.added = true;
        let position = (at, self.count);
        self.positions.insert(work.clone(), position);
        self.by_time.insert(position, work);
    }

    /// Removes the next work that is due.
    pub(super) fn next(&mut self, now: Timestamp) -> Option<Work> {
        let first = self.by_time.first_entry()?;
        if first.key().0 > now {
            return None;
        }
        let work = first.remove();
        // From here on it can be queued again, for example by itself.
        self.positions.remove(&work);
        Some(work)
    }

    /// Whether work was queued since the last call.
    pub(super) fn take_added(&mut self) -> bool {
        std::mem::take(&mut self.added)
    }

    /// When the next work is due.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.by_time.first_key_value().map(|((at, _), _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_work_comes_in_its_order_and_once() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let pod = |uid: &str| Work::SyncPod(uid.to_owned());
        let mut work_queue = WorkQueue::default();
        work_queue.add(at(5), pod("late"));
        work_queue.add(at(2), pod("b"));
        work_queue.add(at(2), pod("a"));
        work_queue.add(at(9), pod("b"));
        work_queue.add(at(1), pod("late"));
        assert_eq!(work_queue.due(), Some(at(1)));
        assert_eq!(work_queue.next(at(0)), None);
        let all: Vec<_> = std::iter::from_fn(|| work_queue.next(at(9))).collect();
        assert_eq!(all, [pod("late"), pod("b"), pod("a")]);
    }
}
