//! The annotation `refit.rs/labelled-jobs` of a Node: the Jobs for whose success refit labelled the node. The patch
//! that sets the label writes it too. If the controller dies before status, or the Job, says that the result is
//! recorded, and someone removes the label meanwhile to have the node upgraded again, its successor sees that this Job
//! has had its label.
//!
//! An entry is `<namespace>/<Plan>/<UID of the Job>`. Controllers of several namespaces share a Node, and each leaves the
//! entries of the others alone.

use std::collections::BTreeSet;

use super::state::ClusterState;
use super::step::{NodeChange, Step, patch};
use refit_api::names::{ANNOTATION_LABELLED_JOBS, plan_label};
use refit_facts::labelled_job::{LabelledJob, MAX_LABELLED_JOBS};
use refit_facts::{JobUid, NodeFacts, NodeName, PlanName};

/// Maximum number of nodes from which entries are removed per decision: more than can be in flight at once.
const NODES: usize = 32;

/// Adds the Job, if there is one, to the patch that labels its node.
pub(super) fn note(
    cluster: &ClusterState,
    node: &NodeFacts,
    plan: &PlanName,
    job: &JobUid,
    change: &mut NodeChange,
) {
    if job.is_empty() || !change.labels.contains_key(&plan_label(plan)) {
        return;
    }
    let namespace = &*cluster.defaults.namespace;
    // Jobs of other Plans that do not say yet that they are recorded.
    let open: BTreeSet<&str> = cluster
        .world
        .jobs
        .all_on(&node.name)
        .filter(|it| !it.recorded && it.uid != *job)
        .map(|it| &*it.uid)
        .collect();
    let stays = |it: &LabelledJob<'_>| it.namespace != namespace || open.contains(it.job);
    let new = LabelledJob { namespace, plan, job };
    // The new entry is the first, so that the limit drops an older one.
    let entries = [new].into_iter().chain(node.labelled_entries().filter(stays));
    let entries: Vec<_> = entries.take(MAX_LABELLED_JOBS).map(LabelledJob::text).collect();
    change
        .annotations
        .insert(ANNOTATION_LABELLED_JOBS.to_owned(), Some(entries.join(",")));
}

/// Removes the entries of Plans that are deleted, a few nodes at a time, so that nothing but labels remains of them. Nothing
/// waits for it.
pub(super) fn cleanup(cluster: &ClusterState) -> Vec<Step> {
    let gone = cluster.world.nodes.labelled.iter();
    let gone = gone.filter(|(plan, _)| !cluster.plans.contains_key(*plan));
    let nodes = gone.flat_map(|(_, nodes)| nodes);
    let nodes = nodes.filter(|name| !cluster.world.nodes.is_unreadable(name));
    let nodes: BTreeSet<&NodeName> = cluster.memory.refused_last(nodes).take(NODES).collect();
    let namespace = &*cluster.defaults.namespace;
    let stays = |it: &LabelledJob<'_>| it.namespace != namespace || cluster.plans.contains_key(it.plan);
    let nodes = nodes.into_iter().filter_map(|name| cluster.world.nodes.get(name));
    let step = |node: &NodeFacts| {
        let left: Vec<_> = node
            .labelled_entries()
            .filter(stays)
            .map(LabelledJob::text)
            .collect();
        let left = (!left.is_empty()).then(|| left.join(","));
        // The list is written as a whole.
        let change = NodeChange::exact().annotate(ANNOTATION_LABELLED_JOBS, left);
        patch(node, change, Vec::new())
    };
    nodes.map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::MAX_LABELLED_JOBS;
    use refit_fixtures::node;

    #[test]
    fn of_an_annotation_that_anybody_wrote_no_more_entries_are_read_than_refit_writes() {
        let mut node = node("a", "a-uid");
        let entries = (0..MAX_LABELLED_JOBS + 4).map(|number| format!("ours/plan-{number}/uid-{number}"));
        let text: Vec<_> = ["", "ours", "ours/plan"]
            .map(str::to_owned)
            .into_iter()
            .chain(entries)
            .collect();
        node.labelled_jobs = Some(text.join(",").into());
        assert_eq!(node.labelled_for("ours").count(), MAX_LABELLED_JOBS);
        assert_eq!(node.labelled_for("others").count(), 0);
        assert!(node.was_labelled_for(&"uid-0".into()));
        assert!(!node.was_labelled_for(&format!("uid-{MAX_LABELLED_JOBS}").as_str().into()));
        assert!(!node.was_labelled_for(&"".into()));
    }
}
