//! The ledger: annotation `refit.rs/cordon` of a Node, as JSON. It lists the Plans that need the node cordoned, and
//! whether it was cordoned before. The controller and the drain on the node both write it, each at the version that it
//! read.

use serde::{Deserialize, Serialize};

use super::ids::PlanUid;
use super::node_mark::{self, NodeMark};
use super::workload::Workload;

/// A Plan that needs a node cordoned. A controller changes only its own holders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    pub namespace: String,
    pub controller: String,
    pub plan: String,
    pub plan_uid: PlanUid,
    /// The drain must stop: its last step fails, and it exits non-zero.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancelled: bool,
    /// The drain has finished: it can no longer be cancelled.
    #[serde(rename = "passed", default, skip_serializing_if = "std::ops::Not::not")]
    pub completed: bool,
    /// Controllers of the evicted pods, each as a [`Workload`]. Only for Plans with `settle.workloads`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evicted: Vec<String>,
}

/// Maximum number of controllers of evicted pods, because an annotation has a limited size.
const MAX_EVICTED_WORKLOADS: usize = 200;
/// Maximum length of a ledger in bytes: one holder with as many controllers as possible has two thirds of it.
const MAX_LEDGER: usize = 128 * 1024;
/// Maximum number of holders. One disruptive Plan works on a node at a time, and failed ones keep theirs.
const MAX_HOLDERS: usize = 64;

/// Drops entries that are not controllers of evicted pods, and those beyond the limit.
pub fn limit_workloads(workloads: &mut Vec<String>) {
    workloads.retain(|workload| Workload::parse(workload).is_some());
    workloads.truncate(MAX_EVICTED_WORKLOADS);
}

impl Holder {
    /// Whether it is of an object that belongs to no namespace, such as a `NodeMaintenance`, and not of a Plan. Its
    /// `plan` is then the kind and the name of the object.
    pub fn is_of_front_end(&self) -> bool {
        self.namespace.is_empty()
    }

    /// Whether it is of the same Plan under the same controller. A recreated Plan is another one.
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

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Value of `unschedulable` before the first holder.
    pub before: bool,
    pub holders: Vec<Holder>,
    /// Labels, annotations and taints that refit has added to the node, and removes with the last holder.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "node_mark")]
    pub marks: Vec<NodeMark>,
}

impl Ledger {
    /// Adds a holder. The first holder records the state of the node. A holder that comes again, because its pod was
    /// restarted, keeps that state. If the node is schedulable despite a holder, a user has uncordoned it: `before`
    /// then becomes false, whatever other holders there are.
    ///
    /// # Errors
    /// Fails if the controller has cancelled this holder.
    pub fn with_holder(known: Option<&Self>, unschedulable: bool, holder: Holder) -> Result<Self, Cancelled> {
        let mut ledger = match known {
            Some(known) if !known.holders.is_empty() => Self {
                before: known.before && unschedulable,
                ..known.clone()
            },
            _ => Self {
                before: unschedulable,
                holders: Vec::new(),
                marks: Vec::new(),
            },
        };
        match ledger.holders.iter_mut().find(|one| one.is_same(&holder)) {
            Some(existing) if existing.cancelled => return Err(Cancelled),
            Some(existing) => {
                // A retried drain no longer finds the pods that the earlier attempt evicted.
                let known = std::mem::replace(existing, holder);
                // Nor do the others have as many ready pods as before it.
                let mut evicted = known.evicted;
                for one in existing.evicted.drain(..) {
                    let mut known = evicted.iter().map(|known| Workload::key(known));
                    if !known.any(|known| known == Workload::key(&one)) {
                        evicted.push(one);
                    }
                }
                evicted.truncate(MAX_EVICTED_WORKLOADS);
                existing.evicted = evicted;
            }
            None => ledger.holders.push(holder),
        }
        Ok(ledger)
    }

    /// Takes the marks that only a `NodeMaintenance` makes, unless one still holds the node.
    pub fn take_marks_of_maintenance(&mut self) -> Vec<NodeMark> {
        if self.holders.iter().any(Holder::is_of_front_end) {
            return Vec::new();
        }
        let (gone, left) = self
            .marks
            .iter()
            .partition(|mark| NodeMark::OF_MAINTENANCE.contains(mark));
        self.marks = left;
        gone
    }

    /// Adds those of the wanted marks that the node lacks, and returns them. One that it has already was set by another
    /// client, and is not removed later.
    pub fn add_marks(&mut self, wanted: &[NodeMark], has: impl Fn(NodeMark) -> bool) -> Vec<NodeMark> {
        let added: Vec<_> = wanted.iter().copied().filter(|mark| !has(*mark)).collect();
        self.marks.extend(&added);
        self.marks.sort_unstable();
        self.marks.dedup();
        added
    }

    /// Replaces one of the holders.
    #[must_use]
    pub fn with_updated(&self, holder: Holder) -> Self {
        let mut ledger = self.clone();
        if let Some(known) = ledger.holders.iter_mut().find(|one| one.is_same(&holder)) {
            *known = holder;
        }
        ledger
    }

    /// Removes holders; `None` if none is left.
    pub fn without(&self, leaves: impl Fn(&Holder) -> bool) -> Option<Self> {
        let holders: Vec<_> = self
            .holders
            .iter()
            .filter(|holder| !leaves(holder))
            .cloned()
            .collect();
        (!holders.is_empty()).then(|| Self {
            before: self.before,
            holders,
            marks: self.marks.clone(),
        })
    }

    /// Parses the annotation; `None` if it is invalid or too long. Anyone who may patch the Node can write it, including
    /// its kubelet.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_LEDGER {
            return None;
        }
        let mut ledger: Self = serde_json::from_str(text).ok()?;
        if ledger.holders.len() > MAX_HOLDERS {
            return None;
        }
        for holder in &mut ledger.holders {
            limit_workloads(&mut holder.evicted);
        }
        Some(ledger)
    }

    /// The value of the annotation.
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
            plan_uid: format!("uid-of-{plan}").into(),
            cancelled: false,
            completed: false,
            evicted: Vec::new(),
        }
    }

    #[test]
    fn a_holder_that_returns_adds_its_evictions_to_the_earlier_ones() {
        let evicts = |what: &[&str]| Holder {
            evicted: what.iter().map(ToString::to_string).collect(),
            ..holder("a")
        };
        let first = Ledger::with_holder(None, false, evicts(&["ReplicaSet/x/a=3"])).unwrap();
        let again = Ledger::with_holder(
            Some(&first),
            true,
            evicts(&["ReplicaSet/x/a=2", "StatefulSet/x/b=1"]),
        )
        .unwrap();
        let last = Ledger::with_holder(Some(&again), true, holder("a")).unwrap();
        assert_eq!(last.holders[0].evicted, ["ReplicaSet/x/a=3", "StatefulSet/x/b=1"]);
        assert_eq!(Ledger::parse(&last.to_text()), Some(last));
    }

    #[test]
    fn the_first_holder_notes_what_the_node_was() {
        for before in [true, false] {
            let ledger = Ledger::with_holder(None, before, holder("a")).unwrap();
            assert_eq!((ledger.before, ledger.holders.len()), (before, 1));
            // An empty ledger has no holder.
            let empty = Ledger {
                before: !before,
                holders: Vec::new(),
                marks: Vec::new(),
            };
            assert_eq!(Ledger::with_holder(Some(&empty), before, holder("a")), Ok(ledger));
        }
    }

    #[test]
    fn a_later_holder_keeps_the_schedulability_that_the_first_one_recorded() {
        for before in [true, false] {
            let first = Ledger::with_holder(None, before, holder("a")).unwrap();
            assert_eq!(
                Ledger::with_holder(Some(&first), true, holder("a")),
                Ok(first.clone())
            );
            let both = Ledger::with_holder(Some(&first), true, holder("b")).unwrap();
            assert_eq!((both.before, both.holders.len()), (before, 2));
        }
    }

    #[test]
    fn after_a_user_has_uncordoned_schedulable_is_what_the_node_was() {
        let first = Ledger::with_holder(None, true, holder("a")).unwrap();
        let again = Ledger::with_holder(Some(&first), false, holder("b")).unwrap();
        assert!(!again.before);
        assert_eq!(again.holders.len(), 2);
    }

    #[test]
    fn a_cancelled_holder_cannot_enter_the_ledger_and_others_can() {
        let mut ledger = Ledger::with_holder(None, false, holder("a")).unwrap();
        ledger.holders[0].cancelled = true;
        assert_eq!(
            Ledger::with_holder(Some(&ledger), true, holder("a")),
            Err(Cancelled)
        );
        assert_eq!(
            Ledger::with_holder(Some(&ledger), false, holder("a")),
            Err(Cancelled)
        );
        assert_eq!(
            Ledger::with_holder(Some(&ledger), true, holder("b"))
                .unwrap()
                .holders
                .len(),
            2
        );
        let mut recreated = holder("a");
        recreated.plan_uid = "another".into();
        assert_eq!(
            Ledger::with_holder(Some(&ledger), true, recreated)
                .unwrap()
                .holders
                .len(),
            2
        );
    }

    #[test]
    fn a_retry_resets_the_completed_flag_of_its_holder() {
        let completed = Holder {
            completed: true,
            ..holder("a")
        };
        let ledger = Ledger::with_holder(None, false, completed.clone()).unwrap();
        assert!(ledger.holders[0].completed);
        assert!(
            !Ledger::with_holder(Some(&ledger), true, holder("a"))
                .unwrap()
                .holders[0]
                .completed
        );
    }

    #[test]
    fn of_a_ledger_that_anybody_wrote_only_names_and_no_paths_are_read() {
        let mut ledger = Ledger::with_holder(None, false, holder("a")).unwrap();
        let paths = [
            "ReplicaSet/shop/../../x",
            "ReplicaSet/../web",
            "StatefulSet/shop/db?x=1",
            "Pod/shop/web",
            "x",
            "",
        ];
        ledger.holders[0].evicted = paths.map(str::to_owned).to_vec();
        ledger.holders[0]
            .evicted
            .extend((0..500).map(|n| format!("ReplicaSet/shop/web-{n}")));
        let read = Ledger::parse(&ledger.to_text()).unwrap();
        assert_eq!(read.holders[0].evicted.len(), MAX_EVICTED_WORKLOADS);
        assert!(
            read.holders[0]
                .evicted
                .iter()
                .all(|workload| workload.starts_with("ReplicaSet/shop/web-"))
        );

        ledger.holders = vec![holder("a"); MAX_HOLDERS + 1];
        assert_eq!(Ledger::parse(&ledger.to_text()), None);
        assert_eq!(Ledger::parse(&" ".repeat(MAX_LEDGER + 1)), None);
    }

    #[test]
    fn a_mark_that_the_node_had_before_is_not_refits() {
        let mut ledger = Ledger::with_holder(None, false, holder("a")).unwrap();
        let had = |mark| mark == NodeMark::DoNotDisrupt;
        let added = ledger.add_marks(&NodeMark::OF_DRAIN, had);
        assert_eq!(
            added,
            [NodeMark::ExcludeFromLoadBalancers, NodeMark::DisableScaleDown]
        );
        assert_eq!(ledger.marks, added);
        // A retry finds them there, and they stay refit's.
        assert_eq!(ledger.add_marks(&NodeMark::OF_DRAIN, |_| true), []);
        let both = Ledger::with_holder(Some(&ledger), true, holder("b")).unwrap();
        let left = both.without(|one| one.plan == "a").unwrap();
        assert_eq!(left.marks, added);
        assert_eq!(Ledger::parse(&left.to_text()), Some(left));
    }

    #[test]
    fn the_marks_of_a_maintenance_go_with_it_and_those_of_a_drain_stay_with_the_plan() {
        let marks = [
            NodeMark::DoNotDisrupt,
            NodeMark::ExcludeFromRemediation,
            NodeMark::MedikDrain,
        ];
        let mut ledger = Ledger::with_holder(None, false, holder("a")).unwrap();
        ledger.marks = marks.to_vec();
        let mut both = ledger.clone();
        both.holders.push(Holder {
            namespace: String::new(),
            ..holder("NodeMaintenance m")
        });
        assert_eq!(both.take_marks_of_maintenance(), [], "it still holds the node");
        assert_eq!(both.marks, marks);
        assert_eq!(ledger.take_marks_of_maintenance(), marks[1..]);
        assert_eq!(ledger.marks, marks[..1]);
    }

    #[test]
    fn of_a_ledger_that_anybody_wrote_only_known_marks_are_read() {
        let text = r#"{"before":false,"holders":[],"marks":"kubernetes.io/hostname,karpenter.sh/do-not-disrupt,karpenter.sh/do-not-disrupt"}"#;
        assert_eq!(Ledger::parse(text).unwrap().marks, [NodeMark::DoNotDisrupt]);
    }

    #[test]
    fn nothing_is_left_of_a_ledger_without_holders() {
        let ledger = Ledger::with_holder(None, true, holder("a")).unwrap();
        assert_eq!(ledger.without(|_| false), Some(ledger.clone()));
        assert_eq!(ledger.without(|one| one.plan == "a"), None);
        assert_eq!(Ledger::parse(&ledger.to_text()), Some(ledger));
    }
}
