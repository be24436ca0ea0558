//! The annotation `refit.rs/notified` of a Plan. The task that sends notifications says which ones were sent; the decision
//! writes it down, like everything that is written to Plans: not while the served definition would prune them.

use std::collections::BTreeMap;

use super::decide::Decision;
use super::state::ClusterState;
use super::step::Step;
use refit_api::Notified;
use refit_facts::{PlanFacts, PlanName, PlanUid};

/// Marks that are not stored yet, by Plan.
pub(super) type Unstored = BTreeMap<PlanName, (PlanUid, Notified)>;

impl ClusterState {
    /// Notifications were sent. Returns whether that is to be stored.
    pub(super) fn apply_notified(&mut self, plan: PlanName, uid: PlanUid, marks: Vec<String>) -> bool {
        let plans = &self.plans;
        self.notified.retain(|name, (uid, marks)| {
            let facts = plans
                .get(name)
                .map(|plan| &plan.facts)
                .filter(|facts| facts.uid == *uid);
            let stored = facts.map(PlanFacts::notified).unwrap_or_default();
            marks.retain(|mark| !stored.contains(mark));
            facts.is_some() && !marks.is_empty()
        });
        let Some(facts) = self.plan(&plan).filter(|facts| facts.uid == uid) else {
            return false;
        };
        let stored = facts.notified();
        let (_, unstored) = self
            .notified
            .entry(plan)
            .or_insert_with(|| (uid, Notified::default()));
        unstored.add(marks.into_iter().filter(|mark| !stored.contains(mark)));
        true
    }
}

/// Requests what is to be stored.
pub(super) fn note(cluster: &ClusterState, decision: &mut Decision) {
    for (name, (uid, unstored)) in &cluster.notified {
        let Some(facts) = cluster
            .plan(name)
            .filter(|facts| facts.uid == *uid && !facts.is_deleting())
        else {
            continue;
        };
        let mut notified = facts.notified();
        let missing: Vec<String> = unstored
            .iter()
            .filter(|mark| !notified.contains(mark))
            .map(str::to_owned)
            .collect();
        if missing.is_empty() {
            continue;
        }
        notified.add(missing);
        decision.steps.push(Step::NoteNotified {
            plan: name.clone(),
            notified: notified.to_string(),
        });
    }
}
