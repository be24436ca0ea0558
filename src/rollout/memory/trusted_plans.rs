//! Which Plans have existed. A ledger or a record of a Plan that is gone makes the controller uncordon the node, and both
//! are annotations that the node's kubelet can write. So they count only if a controller of this name has seen the Plan:
//! then its UID is on the Lease, which no kubelet can write. A Plan that cordons starts no node before it is.

use std::collections::{BTreeMap, BTreeSet};

use crate::world::nodes::Nodes;
use refit_facts::PlanUid;

/// Maximum number of Plans that are remembered, so that the Lease stays small.
const MAX_KNOWN: usize = 1_000;
/// Number of Plans that are gone without a trace and remembered: the pod of one may be about to cordon its node.
const MAX_GONE: usize = 64;

/// The Plans that a controller of this name has seen.
#[derive(Debug, Default)]
pub(crate) struct TrustedPlans {
    /// UIDs, each with a number that is larger the later it was seen.
    seen: BTreeMap<PlanUid, u64>,
    last: u64,
    /// Those that are on the Lease.
    stored: BTreeSet<PlanUid>,
    /// Whether another client has written another note there.
    overwritten: bool,
}

impl TrustedPlans {
    /// What the Lease says which Plans have existed. Without a note, as after an update from a version that wrote none, what
    /// is on the nodes now counts.
    pub(crate) fn of(note: Option<&str>, nodes: &Nodes) -> Self {
        let mut known = Self::default();
        match note {
            Some(note) => parse(note).for_each(|uid| known.add(&uid)),
            None => traces(nodes)
                .iter()
                .take(MAX_KNOWN)
                .for_each(|uid| known.add(uid)),
        }
        known.stored = note.into_iter().flat_map(parse).collect();
        known
    }

    /// The note on the Lease is now this.
    pub(crate) fn confirm(&mut self, note: &str) {
        self.stored = parse(note).collect();
        self.overwritten = self.seen.keys().any(|uid| !self.stored.contains(uid));
    }

    /// Adds the Plans that exist. Returns the note for the Lease if it is to change, or in any case if it is `absent`.
    pub(crate) fn note(&mut self, plans: &[&PlanUid], nodes: &Nodes, absent: bool) -> Option<String> {
        let before = self.last;
        for plan in plans {
            if self.seen.len() < MAX_KNOWN {
                self.add(plan);
            }
        }
        let changed = std::mem::take(&mut self.overwritten) || self.last != before;
        if changed && self.seen.len() > plans.len() + MAX_GONE {
            self.forget_gone(plans, nodes);
        }
        (changed || absent).then(|| {
            let mut uids: Vec<_> = self.seen.iter().collect();
            uids.sort_unstable_by_key(|(_, number)| **number);
            let uids: Vec<&str> = uids.iter().map(|(uid, _)| &***uid).collect();
            uids.join(",")
        })
    }

    /// Forgets Plans that are gone without a trace, the oldest first.
    fn forget_gone(&mut self, plans: &[&PlanUid], nodes: &Nodes) {
        // A node that cannot be read shows no traces.
        if nodes.table().is_being_listed() || !nodes.are_all_readable() {
            return;
        }
        let mut kept = traces(nodes);
        kept.extend(plans.iter().map(|uid| (*uid).clone()));
        let gone = self.seen.iter().filter(|(uid, _)| !kept.contains(*uid));
        let mut gone: Vec<_> = gone.map(|(uid, number)| (*number, uid.clone())).collect();
        gone.sort_unstable();
        for (_, uid) in gone.iter().rev().skip(MAX_GONE) {
            self.seen.remove(uid);
        }
    }

    pub(crate) fn has_seen(&self, uid: &str) -> bool {
        self.seen.contains_key(uid)
    }

    /// Whether a successor knows that the Plan has existed. A full list takes no further UID, so a Plan that waited for its
    /// own would never start.
    pub(crate) fn is_stored(&self, uid: &PlanUid) -> bool {
        self.stored.contains(uid) || self.seen.len() >= MAX_KNOWN
    }

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

/// UIDs in the ledgers and records of all nodes.
fn traces(nodes: &Nodes) -> BTreeSet<PlanUid> {
    let mut traces = BTreeSet::new();
    for (_, node) in nodes.iter() {
        let holders = node.ledger.iter().flat_map(|ledger| &ledger.holders);
        traces.extend(holders.map(|holder| holder.plan_uid.clone()));
        let records = node.records.values();
        traces.extend(records.map(|record| record.plan_uid.clone()));
    }
    traces
}
