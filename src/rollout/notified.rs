//! The annotation `refit.rs/notified` of a Plan. The task that sends notifications says which ones were sent; the decision
//! writes it down, like everything that is written to Plans: not while the served definition would prune them.

use super::decision::Decision;
use super::state::ClusterState;
use super::step::Step;

/// Requests what is to be stored.
pub(super) fn note(cluster: &ClusterState, decision: &mut Decision) {
    for (name, (uid, unstored)) in &cluster.memory.notified {
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
