//! Notifications that were sent, and are to be stored.

use crate::state::ClusterState;
use refit_api::Notified;
use refit_facts::{PlanName, PlanUid};

/// Notifications were sent. Returns whether that is to be stored.
pub(super) fn put(cluster: &mut ClusterState, plan: PlanName, uid: PlanUid, marks: Vec<String>) -> bool {
    let plans = &cluster.plans;
    cluster.memory.notified.retain(|name, (uid, marks)| {
        let facts = plans
            .get(name)
            .map(|plan| &plan.facts)
            .filter(|facts| facts.uid == *uid);
        let stored = facts.map(|plan| plan.notified()).unwrap_or_default();
        marks.retain(|mark| !stored.contains(mark));
        facts.is_some() && !marks.is_empty()
    });
    let Some(facts) = cluster.plan(&plan).filter(|facts| facts.uid == uid) else {
        return false;
    };
    let stored = facts.notified();
    let (_, unstored) = cluster
        .memory
        .notified
        .entry(plan)
        .or_insert_with(|| (uid, Notified::default()));
    unstored.add(marks.into_iter().filter(|mark| !stored.contains(mark)));
    true
}
