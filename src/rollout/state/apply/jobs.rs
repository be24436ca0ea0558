//! Jobs, Jobs whose creation is not confirmed, and their pods.

use jiff::Timestamp;

use crate::state::ClusterState;
use refit_facts::store::Put;
use refit_facts::{JobFacts, JobName, JobOutcome, NodeFacts, NodeUid, PodFacts};

pub(super) fn put(cluster: &mut ClusterState, version: u64, facts: JobFacts) -> bool {
    let (name, memory) = (facts.name.clone(), &mut cluster.memory);
    // The Job exists, or existed: a late response to its creation holds no slot. A Job for another node had the
    // name before, and says nothing about a request in flight.
    memory.pending_creates.retain(|(_, node), create| {
        let is_another = *node != facts.node && create.in_flight && !create.unknown;
        create.job != name || is_another
    });
    let replaced = match cluster.world.jobs.put(version, facts) {
        Put::Unchanged => return false,
        Put::Inserted => None,
        Put::Replaced(old) => Some(old),
    };
    let Some(new) = cluster.world.jobs.get(&name) else {
        return true;
    };
    // The name was used again, and the deletion of the earlier Job was missed during a break of the watch.
    if let Some(old) = replaced.filter(|old| old.uid != new.uid) {
        memory.results.forget(&old.uid);
    }
    // One that has ended was created earlier than those that run.
    if !new.is_made_by_suc() && new.outcome.ended().is_none() {
        memory.keeps_replacement_policy = Some(new.has_replacement_policy);
    }
    if new.recorded {
        memory.results.recorded(&new.uid);
    }
    // If this Job is lost later, the node must be asked for its boot before another one is created.
    if new.verifies.is_none() && new.hook.is_none() {
        let node = cluster.world.nodes.get(&new.node);
        let is_it = |uid: &NodeUid| node.is_none_or(|node| node.uid == *uid);
        if let Some(plan) = cluster.plans.get_mut(&new.plan) {
            plan.unstarted_slots.retain(|uid| !is_it(uid));
        }
    }
    memory.name_conflicts.remove(name.text());
    file(cluster, &name);
    true
}

/// Updates the indexes of a node's Jobs after a change of the node.
pub(super) fn file_all_on(cluster: &mut ClusterState, node: &str) {
    let jobs: Vec<_> = cluster
        .world
        .jobs
        .all_on(node)
        .map(|job| job.name.clone())
        .collect();
    for job in jobs {
        file(cluster, &job);
    }
}

/// Updates the indexes of a Job. Of one that has succeeded, and whose node has the label, only the annotation
/// `refit.rs/recorded` is missing. No node waits for that, so the background lane writes it, oldest Job first. Meanwhile
/// the Job counts as recorded, even if the label is removed.
fn file(cluster: &mut ClusterState, name: &JobName) {
    let is_open = |job: &&JobFacts| !job.recorded && job.hook.is_none();
    let Some(job) = cluster.world.jobs.get(name).filter(is_open) else {
        return;
    };
    match labelled_since(cluster, job) {
        Some(at) => {
            cluster.memory.results.labelled.insert(job.uid.clone());
            cluster.world.jobs.file_as_lacking_annotation(name, at);
        }
        None => cluster.world.jobs.file_as_open(name),
    }
}

/// When the Job succeeded, if its node has the label and nothing else is left to do there.
fn labelled_since(cluster: &ClusterState, job: &JobFacts) -> Option<Timestamp> {
    let JobOutcome::Complete { at } = job.outcome else {
        return None;
    };
    // The label is not its result, and no event follows it.
    if job.verifies.is_some() {
        return None;
    }
    let node = cluster.world.nodes.get(&job.node)?;
    let label = node.labels.of_plan(&job.plan);
    let is_done = label == Some(&*job.hash)
        && !node.records.contains_key(&job.plan)
        && job.node_uid.as_ref().is_none_or(|uid| *uid == node.uid);
    (is_done && !job.deleting).then_some(at)
}

/// A delete request has succeeded. The Job is gone once the watch says so, which may have been earlier.
pub(super) fn mark_deleting(cluster: &mut ClusterState, name: &str, uid: &str) -> bool {
    let is_kept = cluster.memory.results.deleted_unrecorded.contains(uid);
    !is_kept && cluster.world.jobs.mark_deleting(name, uid)
}

/// Removes a Job. If it has ended and its result is not recorded, it stays known until then, because its upgrade
/// has run and must not run again. The step that records it finds it missing and drops it.
pub(super) fn remove(cluster: &mut ClusterState, name: &str, uid: &str) -> bool {
    if let Some(job) = cluster.world.jobs.get(name)
        && *job.uid == *uid
        && is_needed(cluster, job)
        && cluster.memory.results.deleted_unrecorded.insert(uid.into())
    {
        // Not deleting, so that the next decision treats it as an ended Job and records its result.
        return cluster.world.jobs.keep(name);
    }
    cluster.memory.results.forget(uid);
    cluster.world.jobs.remove(name, uid)
}

/// Whether the Job has ended and its result is not recorded on its machine.
fn is_needed(cluster: &ClusterState, job: &JobFacts) -> bool {
    let plan = cluster.plans.get(&job.plan);
    let node = cluster.world.nodes.get(&job.node);
    let is_there = |node: &NodeFacts| job.node_uid.as_ref().is_none_or(|uid| *uid == node.uid);
    !job.recorded
        && !cluster.memory.results.marking.contains(&job.uid)
        && job.outcome.ended().is_some()
        && plan.is_some_and(|plan| plan.facts.uid == job.plan_uid)
        && (job.hook.is_some() || node.is_some_and(is_there))
}

/// A Job was requested, and it is not known whether it was created.
pub(super) fn mark_create_unconfirmed(cluster: &mut ClusterState, job: &str) {
    if cluster.world.jobs.get(job).is_none() {
        cluster.memory.set_create_unknown(job, true);
    }
}

/// Someone else's Job had this name at that time.
pub(super) fn record_name_conflict(cluster: &mut ClusterState, job: &JobName, now: Timestamp) {
    let memory = &mut cluster.memory;
    memory.pending_creates.retain(|_, create| create.job != *job);
    memory.name_conflicts.insert(job.text().clone(), now);
}

pub(super) fn put_pod(cluster: &mut ClusterState, version: u64, facts: PodFacts) -> bool {
    cluster.memory.name_conflicts.remove(&facts.name);
    cluster.world.pods.put(version, facts)
}

pub(super) fn remove_pod(cluster: &mut ClusterState, name: &str, uid: &str) -> bool {
    let Some(old) = cluster.world.pods.remove(name, uid) else {
        return false;
    };
    // Kept as long as its Job is known.
    let jobs = &cluster.world.jobs;
    if let Some(failed) = old.failed
        && let Some(node) = &old.node
        && jobs
            .all_on(node)
            .chain(jobs.hooks())
            .any(|job| job.uid == old.job_uid)
    {
        let known = cluster.memory.results.failed_containers.entry(old.job_uid);
        let known = known.or_insert_with(|| failed.clone());
        if !failed.is_of_deletion {
            *known = failed;
        }
    }
    true
}
