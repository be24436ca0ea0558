//! Releases nodes. A holder that no longer has a reason is removed from the ledger, and with the last one the node
//! becomes as schedulable as it was before the first. The rule looks at the current state only, so it does not matter
//! what removed the reason.

use std::collections::BTreeSet;

use super::event::Event;
use super::node::state::NodeStates;
use super::plan::DerivedPlan;
use super::reservation;
use super::settings::Defaults;
use super::state::ClusterState;
use super::step::{NodeChange, Step, patch};
use refit_api::text::{MAX_NAME, shorten};
use refit_api::{Holder, MarkForm, NodeMark, Reason, names};
use refit_facts::record::{Phase, Record};
use refit_facts::{JobFacts, NodeFacts, NodeName, Taint};

pub(super) struct PlanHold<'a> {
    pub(super) defaults: &'a Defaults,
    pub(super) plan_uid: &'a str,
}

/// Removes the Plan's holder from the ledger of a node, and uncordons the node if it was the last. `uncordon` is set
/// for a cordon without a ledger.
pub(super) fn release(node: &NodeFacts, hold: &PlanHold<'_>, uncordon: bool, change: &mut NodeChange) {
    if node.ledger.is_some() {
        if hold.holder(node).is_some() {
            remove_holders(node, |holder| hold.is_of_plan(holder), change);
        }
    } else if uncordon && node.unschedulable && !node.keep_cordoned {
        change.unschedulable = Some(false);
        // The patch is only right for the version of the Node from which it was computed: an administrator may cordon
        // the node at the same moment.
        change.exact = true;
    }
}

impl PlanHold<'_> {
    pub(super) fn holder<'n>(&self, node: &'n NodeFacts) -> Option<&'n Holder> {
        let mut holders = node.ledger.iter().flat_map(|ledger| &ledger.holders);
        holders.find(|holder| self.is_of_plan(holder))
    }

    fn is_of_plan(&self, holder: &Holder) -> bool {
        *holder.plan_uid == *self.plan_uid && is_ours(holder, self.defaults)
    }
}

pub(super) fn is_ours(holder: &Holder, defaults: &Defaults) -> bool {
    holder.namespace == defaults.namespace && holder.controller == defaults.job.controller_name
}

fn remove_holders(node: &NodeFacts, leaves: impl Fn(&Holder) -> bool, change: &mut NodeChange) {
    let Some(ledger) = &node.ledger else { return };
    let mut left = ledger.without(leaves);
    // The taint of a maintenance would keep the pods of a Plan away that holds the node, too.
    let marks = match &mut left {
        Some(left) => left.take_marks_of_maintenance(),
        None => ledger.marks.clone(),
    };
    remove_marks(node, &marks, change);
    let text = left.map(|left| left.to_text());
    // `before`: the node was cordoned when the first holder came, so it stays cordoned after the last. The mistake of
    // omitting it is the first in docs/simulation.md.
    if text.is_none() && node.unschedulable && !ledger.before && !node.keep_cordoned {
        change.unschedulable = Some(false);
    }
    write_ledger(node, text, change);
}

fn remove_marks(node: &NodeFacts, marks: &[NodeMark], change: &mut NodeChange) {
    for mark in marks {
        let key = mark.key().to_owned();
        match mark.form() {
            MarkForm::Label => change.labels.insert(key, None),
            MarkForm::Annotation => change.annotations.insert(key, None),
            // Taints are one list, which is written as a whole below.
            MarkForm::Taint => continue,
        };
    }
    let is_ours = |taint: &Taint| {
        let mut taints = marks.iter().filter(|mark| mark.form() == MarkForm::Taint);
        taints.any(|mark| taint.key == mark.key() && taint.effect == NodeMark::EFFECT)
    };
    if let Some(taints) = node.taints.as_ref().filter(|taints| taints.iter().any(is_ours)) {
        let left = taints.iter().filter(|taint| !is_ours(taint));
        change.taints = Some(left.cloned().collect());
    }
}

fn write_ledger(node: &NodeFacts, text: Option<String>, change: &mut NodeChange) {
    change.exact = true;
    // What a drain was waiting for when it was ended.
    if text.is_none() && node.drain.is_some() {
        change
            .annotations
            .insert(names::ANNOTATION_DRAIN.to_owned(), None);
    }
    change
        .annotations
        .insert(names::ANNOTATION_CORDON.to_owned(), text);
}

/// Steps that release nodes: for holders of this controller whose Plan is deleted or no longer concerns the node, once
/// none of their pods is left there; for ledgers of nodes that a user has uncordoned; and for records of deleted Plans.
/// Without `node_states`, holders of existing Plans stay.
pub(super) fn cleanup(cluster: &ClusterState, node_states: Option<&NodeStates>) -> Vec<Step> {
    let mut steps = Vec::new();
    for name in cluster
        .world
        .nodes
        .ledgers
        .iter()
        .filter(|name| !cluster.world.nodes.is_unreadable(name))
    {
        let Some(node) = cluster.world.nodes.get(name) else {
            continue;
        };
        let Some(ledger) = &node.ledger else { continue };
        let mut change = NodeChange::default();
        let mut events = Vec::new();
        if node.unschedulable {
            let gone: BTreeSet<&str> = ledger
                .holders
                .iter()
                .filter(|holder| {
                    reservation::is_over(cluster, name, holder)
                        || is_ours(holder, &cluster.defaults)
                            && !has_reason(cluster, node_states, node, holder)
                })
                .map(|holder| &*holder.plan_uid)
                .collect();
            let leaves = |holder: &Holder| {
                (holder.is_of_front_end() || is_ours(holder, &cluster.defaults))
                    && gone.contains(&*holder.plan_uid)
            };
            let of_object = ledger
                .holders
                .iter()
                .any(|holder| reservation::is_over(cluster, name, holder));
            if of_object || gone.iter().any(|uid| is_trusted(cluster, uid)) {
                remove_holders(node, leaves, &mut change);
            } else if !gone.is_empty() {
                // An entry of a Plan that refit has never seen does not show that refit cordoned the node.
                write_ledger(
                    node,
                    ledger.without(leaves).map(|left| left.to_text()),
                    &mut change,
                );
                events.extend(ledger.holders.iter().find(|holder| leaves(holder)).map(|holder| {
                    let message = format!(
                        "annotation {} names Plan {} with UID {}, which refit has never seen: the entry is removed, and the \
                         node stays cordoned",
                        names::ANNOTATION_CORDON,
                        shorten(&holder.plan, MAX_NAME),
                        shorten(&holder.plan_uid, MAX_NAME),
                    );
                    Event::node(&node.name, Reason::HolderUnknown, message, &holder.plan_uid)
                }));
            }
        // The Node is the truth, not the ledger: a user who uncordoned it has decided that no Plan needs it cordoned.
        // An object that still wants the node cordons it again.
        } else {
            // The holder of an object that this controller does not handle is void, too.
            let is_void = |holder: &Holder| {
                reservation::is_over(cluster, name, holder)
                    || holder.is_of_front_end() && !cluster.has_front_ends()
            };
            let leaves = |holder: &Holder| {
                is_void(holder)
                    || is_ours(holder, &cluster.defaults) && !shows_cancellation(cluster, node, holder)
            };
            if ledger.holders.iter().any(leaves) {
                // A user has uncordoned the node. Other controllers remove their own holders.
                remove_holders(node, leaves, &mut change);
            }
        }
        if !change.is_empty() {
            steps.push(patch(node, change, events));
        }
    }
    // One patch for each node, however many records it has.
    let gone = cluster
        .world
        .nodes
        .recorded
        .iter()
        .filter(|(plan, _)| !cluster.plans.contains_key(*plan));
    let nodes: BTreeSet<&NodeName> = gone.flat_map(|(_, nodes)| nodes).collect();
    for node in nodes
        .into_iter()
        .filter(|node| !cluster.world.nodes.is_unreadable(node))
    {
        let Some(node) = cluster.world.nodes.get(node) else {
            continue;
        };
        let mut change = NodeChange::default();
        for plan in node
            .records
            .keys()
            .filter(|plan| !cluster.plans.contains_key(*plan))
        {
            void(cluster, node, plan, &mut change);
        }
        if !change.is_empty() {
            steps.push(patch(node, change, Vec::new()));
        }
    }
    steps
}

/// Removes a record of this namespace that belongs to another Plan of the same name or to another machine.
pub(super) fn void_record(cluster: &ClusterState, node: &NodeFacts, plan: &str) -> Option<Step> {
    let mut change = NodeChange::default();
    void(cluster, node, plan, &mut change);
    (!change.is_empty()).then(|| patch(node, change, Vec::new()))
}

fn void(cluster: &ClusterState, node: &NodeFacts, plan: &str, change: &mut NodeChange) {
    let records = node.records.get(plan);
    let Some(record) = records.filter(|record| record.namespace == cluster.defaults.namespace) else {
        return;
    };
    change.annotations.insert(Record::key(plan), None);
    // A Windows node is cordoned by kubectl, which keeps no ledger. Only the record remembers that.
    if record.uncordon
        && *record.node_uid == *node.uid
        && node.ledger.is_none()
        && is_trusted(cluster, &record.plan_uid)
    {
        let nobody = PlanHold {
            defaults: &cluster.defaults,
            plan_uid: "",
        };
        release(node, &nobody, true, change);
    }
}

/// Removes the record of a Plan from a node.
pub(super) fn drop_record(node: &NodeFacts, plan: &str) -> Step {
    let mut change = NodeChange::default();
    change.annotations.insert(Record::key(plan), None);
    patch(node, change, Vec::new())
}

/// Whether a Plan with this UID exists or has existed: anything else in a ledger or a record was written by somebody else.
fn is_trusted(cluster: &ClusterState, uid: &str) -> bool {
    let known = cluster.memory.trusted_plans.as_ref();
    known.is_none_or(|known| known.has_seen(uid))
        || cluster.plans.values().any(|plan| *plan.facts.uid == *uid)
}

fn has_reason(
    cluster: &ClusterState,
    node_states: Option<&NodeStates>,
    node: &NodeFacts,
    holder: &Holder,
) -> bool {
    let plan = cluster
        .plans
        .get(&*holder.plan)
        .filter(|p| *p.facts.uid == *holder.plan_uid);
    plan.is_some_and(|plan| is_needed(node_states, node, plan))
        || shows_cancellation(cluster, node, holder)
        || cluster
            // To uncordon a node while a pod of the Plan still runs there would schedule workloads onto a node that
            // is being upgraded.
            .world
            .pods
            .live_on(&node.name)
            .any(|pod| *pod.plan == *holder.plan)
}

/// Whether only this holder shows that the failure of a Job is none, because its drain was cancelled.
fn shows_cancellation(cluster: &ClusterState, node: &NodeFacts, holder: &Holder) -> bool {
    let is_of_plan = |job: &JobFacts| *job.plan == *holder.plan && *job.plan_uid == *holder.plan_uid;
    let mut jobs = cluster.world.jobs.on(&node.name);
    holder.cancelled
        && cluster.plans.contains_key(&*holder.plan)
        && jobs.any(|job| is_of_plan(job) && !cluster.is_result_recorded(job))
}

/// Whether a Plan works on the node, or has failed there and keeps it.
pub(super) fn is_needed(node_states: Option<&NodeStates>, node: &NodeFacts, plan: &DerivedPlan) -> bool {
    let Some(states) = node_states else { return true };
    let state = states
        .get(&plan.facts.name)
        .and_then(|nodes| nodes.get(&node.name));
    if let Some(state) = state {
        return !state.is_released_after_failure;
    }
    // A node that failed stays cordoned although its slot may be gone, so that no workload lands on a half-upgraded
    // node.
    let record = plan.facts.record(node);
    record.is_some_and(|record| matches!(record.phase, Phase::Failed | Phase::Retry))
}
