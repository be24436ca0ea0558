//! The two notes that refit leaves on a Node: the record of a Plan (how far it got, where that must outlive Job, Pod and
//! Plan) and the ledger (who cordoned, and what was before). Both are JSON in an annotation.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// How far a Plan got on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// The Job succeeded; something is left to wait for before the node is done.
    Upgraded,
    /// The Job failed for good.
    Failed,
    /// A further attempt has been decided; its Job is made next.
    Retry,
    /// The node is done and given back; the controllers of the pods that were evicted are yet to be whole.
    Recovering,
}

/// Annotation `plan.refit.rs/<plan>` of a Node. With the UID of another Plan or node it is void.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Namespace of the Plan.
    pub namespace: String,
    /// UID of the Plan.
    pub plan_uid: String,
    /// UID of the node.
    pub node_uid: String,
    /// Hash that was carried out.
    pub hash: String,
    /// Version that was carried out.
    pub version: String,
    /// How far it got.
    pub phase: Phase,
    /// Which attempt, from 1.
    pub attempt: i64,
    /// UID of the Job.
    pub job_uid: String,
    /// Name of the Job.
    pub job: String,
    /// Digest of the user's part of the template that ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<String>,
    /// When the Job ended.
    pub at: Timestamp,
    /// The node was cordoned for the Job by something that keeps no ledger, and is to be uncordoned when it is done.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncordon: bool,
    /// The reboot that the node is in for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reboot: Option<Reboot>,
    /// Since when the node could have settled: `settle.timeout` runs from then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settling: Option<Timestamp>,
    /// Controllers of the pods that were evicted, as [`Holder::evicted`] has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<String>,
    /// One word that says why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A sentence that says why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A reboot that a node is in for. It is over when the node shows another boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reboot {
    /// The boot that has to end: the one under which the upgrade succeeded. Absent while only the node itself knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// Since when: `reboot.timeout` runs from then.
    pub since: Timestamp,
}

impl Record {
    /// The record in an annotation; nothing where it cannot be read, as if it were not there.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The annotation.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Who wants a node cordoned. A controller judges only its own holders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// Namespace of the Plan.
    pub namespace: String,
    /// Name of the controller.
    pub controller: String,
    /// Name of the Plan.
    pub plan: String,
    /// UID of the Plan.
    pub plan_uid: String,
    /// The node side is to stop: its last act fails, and it exits non-zero.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancelled: bool,
    /// The node side is through: it can no longer be cancelled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub passed: bool,
    /// Controllers of the pods that were evicted for the Plan, each a kind, a namespace and a name with `/` between; only
    /// for a Plan that waits for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evicted: Vec<String>,
}

/// How many controllers of evicted pods a ledger names: they have to fit into an annotation.
const EVICTED_NAMED: usize = 200;

impl Holder {
    /// Of the same Plan under the same controller. A recreated Plan is another one.
    pub fn is_same(&self, other: &Self) -> bool {
        self.namespace == other.namespace
            && self.controller == other.controller
            && self.plan_uid == other.plan_uid
    }
}

/// The controller has cancelled this holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cancelled by the controller")]
pub struct Cancelled;

/// Annotation `refit.rs/cordon` of a Node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// What `unschedulable` was when the first holder came.
    pub before: bool,
    /// Who wants the node cordoned.
    pub holders: Vec<Holder>,
}

impl Ledger {
    /// The ledger once `holder` is in it. Whoever comes first notes what the node was; who comes again, because its pod was
    /// killed and made anew, keeps that. A node that is schedulable although somebody holds it has been uncordoned by a
    /// person: from then on schedulable is what it was before, whoever else holds it still.
    pub fn entered(known: Option<&Self>, unschedulable: bool, holder: Holder) -> Result<Self, Cancelled> {
        let mut ledger = match known {
            Some(known) if !known.holders.is_empty() => Self {
                before: known.before && unschedulable,
                holders: known.holders.clone(),
            },
            _ => Self {
                before: unschedulable,
                holders: Vec::new(),
            },
        };
        match ledger.holders.iter_mut().find(|one| one.is_same(&holder)) {
            Some(mine) if mine.cancelled => return Err(Cancelled),
            Some(mine) => {
                // What an earlier try has evicted, this one does not find any more.
                let known = std::mem::replace(mine, holder);
                let new = mine.evicted.drain(..).filter(|one| !known.evicted.contains(one));
                let mut evicted: Vec<_> = known.evicted.iter().cloned().chain(new).collect();
                evicted.truncate(EVICTED_NAMED);
                mine.evicted = evicted;
            }
            None => ledger.holders.push(holder),
        }
        Ok(ledger)
    }

    /// The ledger with another word for one of its holders.
    #[must_use]
    pub fn with(&self, holder: Holder) -> Self {
        let mut ledger = self.clone();
        if let Some(known) = ledger.holders.iter_mut().find(|one| one.is_same(&holder)) {
            *known = holder;
        }
        ledger
    }

    /// The ledger without the holders that go; nothing where none is left.
    pub fn without(&self, goes: impl Fn(&Holder) -> bool) -> Option<Self> {
        let holders: Vec<_> = self
            .holders
            .iter()
            .filter(|holder| !goes(holder))
            .cloned()
            .collect();
        (!holders.is_empty()).then_some(Self {
            before: self.before,
            holders,
        })
    }

    /// The ledger in an annotation; nothing where it cannot be read.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The annotation.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(plan: &str) -> Holder {
        Holder {
            namespace: "system-upgrade".to_owned(),
            controller: "refit".to_owned(),
            plan: plan.to_owned(),
            plan_uid: format!("uid-of-{plan}"),
            cancelled: false,
            passed: false,
            evicted: Vec::new(),
        }
    }

    #[test]
    fn who_comes_again_adds_what_it_evicts_to_what_was_evicted_before() {
        let evicts = |what: &[&str]| Holder {
            evicted: what.iter().map(ToString::to_string).collect(),
            ..holder("a")
        };
        let first = Ledger::entered(None, false, evicts(&["ReplicaSet/x/a"])).unwrap();
        let again =
            Ledger::entered(Some(&first), true, evicts(&["ReplicaSet/x/a", "StatefulSet/x/b"])).unwrap();
        let last = Ledger::entered(Some(&again), true, holder("a")).unwrap();
        assert_eq!(last.holders[0].evicted, ["ReplicaSet/x/a", "StatefulSet/x/b"]);
        assert_eq!(Ledger::parse(&last.to_text()), Some(last));
    }

    #[test]
    fn the_first_holder_notes_what_the_node_was() {
        for before in [true, false] {
            let ledger = Ledger::entered(None, before, holder("a")).unwrap();
            assert_eq!((ledger.before, ledger.holders.len()), (before, 1));
            // Nobody is left in a ledger that somebody forgot to remove.
            let empty = Ledger {
                before: !before,
                holders: Vec::new(),
            };
            assert_eq!(Ledger::entered(Some(&empty), before, holder("a")), Ok(ledger));
        }
    }

    #[test]
    fn whoever_comes_again_or_later_keeps_what_the_first_one_noted() {
        for before in [true, false] {
            let first = Ledger::entered(None, before, holder("a")).unwrap();
            assert_eq!(
                Ledger::entered(Some(&first), true, holder("a")),
                Ok(first.clone())
            );
            let both = Ledger::entered(Some(&first), true, holder("b")).unwrap();
            assert_eq!((both.before, both.holders.len()), (before, 2));
        }
    }

    #[test]
    fn after_a_person_has_uncordoned_schedulable_is_what_the_node_was() {
        let first = Ledger::entered(None, true, holder("a")).unwrap();
        let again = Ledger::entered(Some(&first), false, holder("b")).unwrap();
        assert!(!again.before);
        assert_eq!(again.holders.len(), 2);
    }

    #[test]
    fn who_is_cancelled_does_not_get_in_and_the_others_do() {
        let mut ledger = Ledger::entered(None, false, holder("a")).unwrap();
        ledger.holders[0].cancelled = true;
        assert_eq!(Ledger::entered(Some(&ledger), true, holder("a")), Err(Cancelled));
        assert_eq!(Ledger::entered(Some(&ledger), false, holder("a")), Err(Cancelled));
        assert_eq!(
            Ledger::entered(Some(&ledger), true, holder("b"))
                .unwrap()
                .holders
                .len(),
            2
        );
        let mut recreated = holder("a");
        recreated.plan_uid = "another".to_owned();
        assert_eq!(
            Ledger::entered(Some(&ledger), true, recreated)
                .unwrap()
                .holders
                .len(),
            2
        );
    }

    #[test]
    fn a_retry_takes_back_that_it_was_through() {
        let passed = Holder {
            passed: true,
            ..holder("a")
        };
        let ledger = Ledger::entered(None, false, passed.clone()).unwrap();
        assert!(ledger.holders[0].passed);
        assert!(!Ledger::entered(Some(&ledger), true, holder("a")).unwrap().holders[0].passed);
    }

    #[test]
    fn nothing_is_left_of_a_ledger_without_holders() {
        let ledger = Ledger::entered(None, true, holder("a")).unwrap();
        assert_eq!(ledger.without(|_| false), Some(ledger.clone()));
        assert_eq!(ledger.without(|one| one.plan == "a"), None);
        assert_eq!(Ledger::parse(&ledger.to_text()), Some(ledger));
    }
}
