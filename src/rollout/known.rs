//! Which Plans have existed. A ledger or a record of a Plan that is gone makes the controller uncordon the node, and both
//! are annotations that the node's kubelet can write. So they count only if a controller of this name has seen the Plan:
//! then its UID is on the Lease, which no kubelet can write. A Plan that cordons starts no node before it is.

use std::collections::{BTreeMap, BTreeSet};

use super::plan::PlanState;
use super::state::ClusterState;
use refit_facts::PlanUid;

/// Maximum number of Plans that are remembered, so that the Lease stays small.
const MAX_KNOWN: usize = 1_000;
/// Number of Plans that are gone without a trace and remembered: the pod of one may be about to cordon its node.
const MAX_GONE: usize = 64;

/// The Plans that a controller of this name has seen.
#[derive(Debug, Default)]
pub(super) struct KnownPlans {
    /// UIDs, each with a number that is larger the later it was seen.
    seen: BTreeMap<PlanUid, u64>,
    last: u64,
    /// Those that are on the Lease.
    stored: BTreeSet<PlanUid>,
    /// Whether another client has written another note there.
    overwritten: bool,
}

impl KnownPlans {
    fn add(&mut self, uid: &PlanUid) {
        if !self.seen.contains_key(uid) {
            self.last += 1;
            self.seen.insert(uid.clone(), self.last);
        }
    }
}

/// The UIDs in the annotation of the Lease.
fn parse(note: &str) -> impl Iterator<Item = PlanUid> {
    let uids = note.split(',').filter(|uid| !uid.is_empty());
    uids.take(MAX_KNOWN).map(PlanUid::from)
}

impl ClusterState {
    /// What the Lease says which Plans have existed. Without a note, as after an update from a version that wrote none, what
    /// is on the nodes now counts.
    pub fn remember_plans(&mut self, note: Option<&str>) {
        let mut known = KnownPlans::default();
        match note {
            Some(note) => parse(note).for_each(|uid| known.add(&uid)),
            None => self
                .traces()
                .iter()
                .take(MAX_KNOWN)
                .for_each(|uid| known.add(uid)),
        }
        known.stored = note.into_iter().flat_map(parse).collect();
        self.known_plans = Some(known);
    }

    /// The note on the Lease is now this.
    pub fn confirm_known_plans(&mut self, note: &str) {
        if let Some(known) = &mut self.known_plans {
            known.stored = parse(note).collect();
            known.overwritten = known.seen.keys().any(|uid| !known.stored.contains(uid));
        }
    }

    /// Adds the Plans that exist. Returns the note for the Lease if it is to change, or in any case if it is `absent`.
    pub fn note_known_plans(&mut self, absent: bool) -> Option<String> {
        let mut known = self.known_plans.take()?;
        let before = known.last;
        for plan in self.plans.values() {
            if known.seen.len() < MAX_KNOWN {
                known.add(&plan.facts.uid);
            }
        }
        let changed = std::mem::take(&mut known.overwritten) || known.last != before;
        if changed && known.seen.len() > self.plans.len() + MAX_GONE {
            self.forget_plans(&mut known);
        }
        let note = (changed || absent).then(|| {
            let mut uids: Vec<_> = known.seen.iter().collect();
            uids.sort_unstable_by_key(|(_, number)| **number);
            let uids: Vec<&str> = uids.iter().map(|(uid, _)| &***uid).collect();
            uids.join(",")
        });
        self.known_plans = Some(known);
        note
    }

    /// Forgets Plans that are gone without a trace, the oldest first.
    fn forget_plans(&self, known: &mut KnownPlans) {
        // A node that cannot be read shows no traces.
        if self.nodes.is_being_listed() || !self.unreadable_nodes.is_empty() {
            return;
        }
        let mut kept = self.traces();
        kept.extend(self.plans.values().map(|plan| plan.facts.uid.clone()));
        let mut gone: Vec<_> = known
            .seen
            .iter()
            .filter(|(uid, _)| !kept.contains(*uid))
            .map(|(uid, number)| (*number, uid.clone()))
            .collect();
        gone.sort_unstable();
        for (_, uid) in gone.iter().rev().skip(MAX_GONE) {
            known.seen.remove(uid);
        }
    }

    /// UIDs in the ledgers and records of all nodes.
    fn traces(&self) -> BTreeSet<PlanUid> {
        let mut traces = BTreeSet::new();
        for (_, node) in self.nodes.iter() {
            let holders = node.ledger.iter().flat_map(|ledger| &ledger.holders);
            traces.extend(holders.map(|holder| holder.plan_uid.clone()));
            let records = node.records.values();
            traces.extend(records.map(|record| record.plan_uid.clone()));
        }
        traces
    }

    /// Whether a Plan with this UID exists or has existed.
    pub(super) fn has_known_plan(&self, uid: &str) -> bool {
        self.known_plans
            .as_ref()
            .is_none_or(|known| known.seen.contains_key(uid))
            || self.plans.values().any(|plan| *plan.facts.uid == *uid)
    }

    /// Whether a successor knows that the Plan has existed, if it must.
    pub(super) fn is_remembered(&self, plan: &PlanState) -> bool {
        // A full list takes no further UID, so a Plan that waited for its own would never start.
        let stored =
            |known: &KnownPlans| known.stored.contains(&plan.facts.uid) || known.seen.len() >= MAX_KNOWN;
        !plan.disruptive || self.known_plans.as_ref().is_none_or(stored)
    }
}
