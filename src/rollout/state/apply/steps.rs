//! What begins and ends with a step, whatever its response says.

use crate::memory::PendingCreate;
use crate::plan::DerivedPlan;
use crate::state::ClusterState;
use crate::step::{Key, Query, Step};
use refit_api::{PlanStatus, names};
use refit_facts::{JobOutcome, NodeUid, PlanName};

/// A step begins. Until its response arrives, the objects that it changes may be in the old or the new state.
pub(super) fn started(cluster: &mut ClusterState, step: &Step) {
    match step {
        Step::WriteStatus { plan, status, .. } => {
            if let Some(plan_state) = cluster.plans.get_mut(plan) {
                plan_state.record_sent_status(status);
            }
            track_unstarted_slots(cluster, plan, status);
        }
        Step::CreateJob { plan, node, job, .. } => {
            let plan_state = cluster.plans.get(plan);
            let plan_uid = plan_state.map(|it| it.facts.uid.clone());
            let node_uid = cluster.world.nodes.get(node).map(|it| it.uid.clone());
            let pending_create = PendingCreate {
                job: job.clone(),
                plan_uid: plan_uid.unwrap_or_default(),
                node_uid: node_uid.unwrap_or_default(),
                disruptive: plan_state.is_some_and(DerivedPlan::is_disruptive),
                in_flight: true,
                unknown: false,
            };
            cluster
                .memory
                .pending_creates
                .insert((plan.clone(), node.clone()), pending_create);
        }
        Step::MarkRecorded { job, uid, .. } => {
            let job = cluster.world.jobs.get(job);
            // From now on a change of the node does not concern this Job: its label is stored.
            if job.is_some_and(|job| matches!(job.outcome, JobOutcome::Complete { .. })) {
                cluster.memory.results.marking.insert(uid.clone());
            }
        }
        Step::Query(Query::GetJob { plan, node, .. }) => {
            if let Some(pending_create) = cluster
                .memory
                .pending_creates
                .get_mut(&(plan.clone(), node.clone()))
            {
                pending_create.in_flight = true;
            }
        }
        Step::PatchNode { node, change, .. } if change.annotations.contains_key(names::ANNOTATION_CORDON) => {
            cluster.memory.ledgers_sent.insert(node.clone());
        }
        Step::Remediation(step) if step.pause => cluster.memory.answers.forget_released(&step.node),
        Step::Maintain(turn) => cluster.memory.turns.started(&turn.id, &turn.task, &turn.progress),
        Step::ReadPlans => cluster.world.definition.relist_asked(),
        _ => {}
    }
}

/// Records a status in flight: a node that has a slot in it without a Job never had one, as far as this process
/// knows.
fn track_unstarted_slots(cluster: &mut ClusterState, plan: &PlanName, status: &PlanStatus) {
    let plan_state = cluster.plans.get(plan);
    if !plan_state.is_some_and(|plan_state| plan_state.spec().has_sentinel()) {
        return;
    }
    // This process may have created the Job of an earlier slot of the node, which then is not unstarted.
    let has_job = |node: &str| {
        cluster
            .world
            .jobs
            .on(node)
            .any(|job| job.plan == *plan && !cluster.is_result_recorded(job))
    };
    let mut slots = Vec::new();
    for slot in status.slots() {
        let Some(uid) = &slot.uid else { continue };
        let is_unstarted = slot.job.is_none() && !has_job(&slot.name);
        slots.push((NodeUid::from(uid.as_str()), is_unstarted));
    }
    let Some(plan_state) = cluster.plans.get_mut(plan) else {
        return;
    };
    for (uid, is_unstarted) in slots {
        if is_unstarted {
            plan_state.unstarted_slots.insert(uid);
        } else {
            plan_state.unstarted_slots.remove(&uid);
        }
    }
}

/// A step has ended, successfully or not, and its result is applied.
pub(super) fn finished(cluster: &mut ClusterState, key: &Key) {
    if let Key::Node(node) = key {
        cluster.memory.ledgers_sent.remove(node);
    }
    if let Key::NextJob(plan, node) = key {
        let place = (plan.clone(), node.clone());
        // A request without a response holds the slot until a watch or a lookup answers. All other results are
        // known.
        match cluster.memory.pending_creates.get_mut(&place) {
            // A watch reports whether the Job exists, or a lookup is needed; not for a deleted Plan.
            Some(pending_create) if pending_create.unknown && cluster.plans.contains_key(plan) => {
                pending_create.in_flight = false;
            }
            _ => {
                cluster.memory.pending_creates.remove(&place);
            }
        }
    }
}
