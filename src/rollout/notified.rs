//! The annotation `refit.rs/notified` of a Plan. The task that sends notifications says which ones were sent; the decision
//! writes it down, like everything that is written to Plans: not while the served definition would prune them.

use super::decision::Decision;
use super::state::ClusterState;
use super::step::Step;

/// Requests what is to be stored.
pub(super) fn note(cluster: &ClusterState, decision: &mut Decision) {
    let plans = cluster.plans.iter().filter(|(_, plan)| !plan.notified.is_empty());
    for (name, plan) in plans.filter(|(_, plan)| !plan.facts.is_deleting()) {
        let mut notified = plan.facts.notified();
        let missing: Vec<String> = plan
            .notified
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
