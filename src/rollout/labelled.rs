//! The annotation `refit.rs/labelled-jobs` of a Node: the Jobs for whose success refit labelled the node. The patch that sets
//! the label writes it too. If the controller dies before status, or the Job, says that the result is recorded, and someone
//! removes the label meanwhile to have the node upgraded again, its successor sees that this Job has had its label.
//!
//! An entry is `<namespace>/<UID of the Job>`. Controllers of several namespaces share a Node, and each leaves the entries of
//! the others alone.

use super::facts::{JobUid, NodeFacts, PlanName};
use super::state::ClusterState;
use super::step::{NodeChange, Step};
use crate::api::names::{ANNOTATION_LABELLED_JOBS, LABEL_PLAN_PREFIX};

/// Maximum number of nodes from which entries are removed per decision: more than can be in flight at once.
const NODES: usize = 32;
/// Maximum number of entries of other namespaces that are kept.
const OTHERS: usize = 8;

impl NodeFacts {
    /// Whether the node got its label for the success of this Job, even if the label has been removed since.
    pub(super) fn was_labelled_for(&self, job: &JobUid) -> bool {
        self.entries().any(|(_, uid)| uid == &**job)
    }

    fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        let entries = self.labelled_jobs.iter().flat_map(|text| text.split(','));
        entries.filter_map(|entry| entry.split_once('/'))
    }

    fn entries_of_others(&self, namespace: &str) -> impl Iterator<Item = String> {
        let others = self.entries().filter(move |(other, _)| *other != namespace);
        others.take(OTHERS).map(|entry| text(entry.0, entry.1))
    }
}

fn text(namespace: &str, uid: &str) -> String {
    format!("{namespace}/{uid}")
}

/// Adds the Job, if there is one, to the patch that labels its node.
pub(super) fn note(
    cluster: &ClusterState,
    node: &NodeFacts,
    plan: &PlanName,
    job: &JobUid,
    change: &mut NodeChange,
) {
    if job.is_empty() || !change.labels.contains_key(&format!("{LABEL_PLAN_PREFIX}{plan}")) {
        return;
    }
    let namespace = &*cluster.defaults.namespace;
    // Those of other Plans, whose Jobs do not say yet that they are recorded.
    let open = cluster.all_jobs_on(&node.name).filter(|it| !it.recorded);
    let open = open.filter(|it| node.was_labelled_for(&it.uid) && it.uid != *job);
    let entries = open.map(|it| text(namespace, &it.uid));
    let entries = entries.chain([text(namespace, job)]);
    let entries: Vec<_> = entries.chain(node.entries_of_others(namespace)).collect();
    change
        .annotations
        .insert(ANNOTATION_LABELLED_JOBS.to_owned(), Some(entries.join(",")));
}

/// Removes the entries of this namespace once it has no Plan left, a few nodes at a time, so that no more than labels remains of
/// a refit that is uninstalled. Nothing waits for it.
pub(super) fn cleanup(cluster: &ClusterState) -> Vec<Step> {
    if !cluster.plans.is_empty() {
        return Vec::new();
    }
    let namespace = &*cluster.defaults.namespace;
    let is_ours = |node: &NodeFacts| node.entries().any(|(other, _)| other == namespace);
    let nodes = cluster
        .nodes
        .iter()
        .map(|(_, node)| node)
        .filter(|node| is_ours(node));
    let step = |node: &NodeFacts| {
        let others: Vec<_> = node.entries_of_others(namespace).collect();
        let left = (!others.is_empty()).then(|| others.join(","));
        Step::PatchNode {
            node: node.name.clone(),
            uid: node.uid.clone(),
            change: NodeChange {
                annotations: [(ANNOTATION_LABELLED_JOBS.to_owned(), left)].into(),
                // The list is written as a whole.
                exact: true,
                ..NodeChange::default()
            },
            events: Vec::new(),
        }
    };
    nodes.take(NODES).map(step).collect()
}
