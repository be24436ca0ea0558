//! What is to be done in the cluster, and when: one list for all controllers, the scheduler and the kubelets. What is due at
//! the same time is done in the order in which it was put there.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;

use super::resources::Kind;
use super::store::Key;

/// Something to be done. Put there twice, it is done once, at the earlier time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Work {
    /// A Job is looked at.
    Job(Key),
    /// A pod is looked at that its Job cannot look after any more.
    Stray(Key),
    /// A `ReplicaSet` or a `StatefulSet` is looked at.
    Set(Kind, Key),
    /// The disruption budgets of a namespace are looked at.
    Budgets(String),
    /// What belongs to an object that is gone.
    Collect(String),
    /// What belongs to an object that is to go before, or be left behind by, the object itself. By UID.
    Release(String),
    /// Taints of a node follow from what it says.
    Taint(String),
    /// A definition is served from now on.
    Establish(Key),
    /// An Event is forgotten.
    Expire(Key),
    /// A pod is given a node.
    Schedule(Key),
    /// Pods that found no node are tried again.
    ScheduleAll,
    /// A kubelet looks at a pod, by its UID.
    Pod(String),
    /// Nothing has been heard of a node for a while.
    Miss(String),
    /// A machine that was told to reboot is up again.
    Boot(String),
    /// A node is Ready, a while after its machine was up again.
    Ready(String),
    /// Pods of a node that is gone are nobody's.
    Sweep(String),
    /// Pods are taken off a node whose taints they do not bear any longer.
    Expel(String),
}

type Place = (Timestamp, u64);

/// The list.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    by_time: BTreeMap<Place, Work>,
    /// Only asked, never gone through: its order is nobody's.
    places: HashMap<Work, Place>,
    count: u64,
    news: bool,
}

impl Agenda {
    /// Puts something on the list.
    pub(super) fn add(&mut self, at: Timestamp, work: Work) {
        if let Some(place) = self.places.get(&work) {
            if place.0 <= at {
                return;
            }
            self.by_time.remove(place);
        }
        self.count += 1;
        self.news = true;
        let place = (at, self.count);
        self.places.insert(work.clone(), place);
        self.by_time.insert(place, work);
    }

    /// The next thing that is due.
    pub(super) fn next(&mut self, now: Timestamp) -> Option<Work> {
        let first = self.by_time.first_entry()?;
        if first.key().0 > now {
            return None;
        }
        let work = first.remove();
        self.places.remove(&work);
        Some(work)
    }

    /// Whether something was put on the list since this was last asked.
    pub(super) fn has_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// When the next thing is due.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.by_time.first_key_value().map(|((at, _), _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_comes_in_its_order_and_once() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let pod = |uid: &str| Work::Pod(uid.to_owned());
        let mut agenda = Agenda::default();
        agenda.add(at(5), pod("late"));
        agenda.add(at(2), pod("b"));
        agenda.add(at(2), pod("a"));
        agenda.add(at(9), pod("b"));
        agenda.add(at(1), pod("late"));
        assert_eq!(agenda.due(), Some(at(1)));
        assert_eq!(agenda.next(at(0)), None);
        let all: Vec<_> = std::iter::from_fn(|| agenda.next(at(9))).collect();
        assert_eq!(all, [pod("late"), pod("b"), pod("a")]);
    }
}
