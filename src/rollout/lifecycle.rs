//! The lifecycle conditions of nodes (KEP-5683), with `--node-conditions`. What each node should say is computed anew in each
//! decision, and compared with what it says: a condition goes with its last reason, whatever removed the reason.
//!
//! Nothing waits for these writes, and none of them is written while the node has another one to come.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::decision::Decision;
use super::node::state::NodeState;
use super::picture::PlanPicture;
use super::plan::DerivedPlan;
use super::release::{PlanHold, is_ours};
use super::state::ClusterState;
use super::step::Step;
use refit_api::node_condition::message;
use refit_api::text::{MAX_MESSAGE, seconds, shorten};
use refit_api::{Holder, NodeConditionReason, NodeConditionType, NodePhase};
use refit_facts::objects::maintenance::MaintenancePhase;
use refit_facts::{ConditionChange, ConditionText, NodeCondition, NodeFacts, NodeName, Text};

/// Number of nodes whose conditions change per decision: more than can be in flight at once.
const NODES: usize = 32;
/// The conditions of a drain.
const DRAIN: [NodeConditionType; 2] = [NodeConditionType::DrainInProgress, NodeConditionType::Drained];

/// What a node should say: its conditions that are True.
type Desired = BTreeMap<NodeConditionType, ConditionText>;

/// The conditions of all nodes, while a decision is made.
pub(super) struct Lifecycle<'a> {
    cluster: &'a ClusterState,
    desired: BTreeMap<NodeName, Desired>,
}

impl<'a> Lifecycle<'a> {
    /// `None` if there is nothing to do. Without the setting, only what was written with it is removed.
    pub(super) fn of(cluster: &'a ClusterState) -> Option<Self> {
        let is_on = cluster.defaults.node_conditions;
        let mut lifecycle = Self {
            cluster,
            desired: BTreeMap::new(),
        };
        if is_on {
            lifecycle.add_holders();
        }
        (is_on || !cluster.world.nodes.lifecycle.is_empty()).then_some(lifecycle)
    }

    fn want(&mut self, node: &NodeName, type_: NodeConditionType, reason: NodeConditionReason, says: &str) {
        let text = message(&self.cluster.defaults.namespace, says);
        let text = ConditionText {
            reason,
            message: shorten(&text, MAX_MESSAGE).into_owned(),
        };
        let desired = self.desired.entry(node.clone()).or_default();
        desired.entry(type_).or_insert(text);
    }

    /// The ledgers say who holds a node, and whether a drain has ended there. They outlive Plans, slots and controllers.
    fn add_holders(&mut self) {
        let cluster = self.cluster;
        for name in &cluster.world.nodes.ledgers {
            let Some(node) = cluster.world.nodes.get(name) else {
                continue;
            };
            let holders = node.ledger.iter().flat_map(|ledger| &ledger.holders);
            for holder in holders {
                if holder.is_of_front_end() {
                    self.add_maintenance(name, holder);
                } else if is_ours(holder, &cluster.defaults) {
                    self.add_drain_of_plan(node, holder);
                }
            }
        }
    }

    fn add_maintenance(&mut self, node: &NodeName, holder: &Holder) {
        let all = &self.cluster.world.maintenances;
        let object = all.iter().find(|(_, object)| *object.uid() == *holder.plan_uid);
        let Some((_, object)) = object else {
            return;
        };
        let (title, reason) = (object.title(), NodeConditionReason::RefitNodeMaintenance);
        let is_drained = object.status.is_in(MaintenancePhase::Succeeded);
        let (type_, verb) = drain(is_drained);
        self.want(node, type_, reason, &format!("{title} {verb} the node"));
        let says = format!("{title} holds the node");
        self.want(node, NodeConditionType::MaintenanceInProgress, reason, &says);
    }

    fn add_drain_of_plan(&mut self, node: &NodeFacts, holder: &Holder) {
        let plan = self.cluster.plans.get(&*holder.plan);
        let plan = plan.filter(|plan| *plan.facts.uid == *holder.plan_uid);
        let drains = match plan {
            Some(plan) => plan.spec().drain.is_some(),
            // Of a deleted Plan nothing else is known.
            None => DRAIN
                .iter()
                .any(|type_| own(node, *type_, &self.cluster.defaults.namespace).is_some()),
        };
        if drains {
            self.add_drain(&node.name, &holder.plan, holder.completed);
        }
    }

    /// Adds the holders that are no slots: their Plan is gone, or has other nodes now.
    fn add_other_holders(&mut self) {
        let cluster = self.cluster;
        for name in &cluster.world.nodes.ledgers {
            let ledger = cluster
                .world
                .nodes
                .get(name)
                .and_then(|node| node.ledger.as_ref());
            let mut holders = ledger.into_iter().flat_map(|ledger| &ledger.holders);
            if let Some(holder) = holders.find(|holder| is_ours(holder, &cluster.defaults)) {
                self.add_hold(name, &format!("Plan {} has the node", holder.plan));
            }
        }
    }

    fn add_drain(&mut self, node: &NodeName, plan: &str, is_drained: bool) {
        let (type_, verb) = drain(is_drained);
        let says = format!("Plan {plan} {verb} the node");
        self.want(node, type_, NodeConditionReason::RefitPlan, &says);
    }

    fn add_hold(&mut self, node: &NodeName, says: &str) {
        let type_ = NodeConditionType::MaintenanceInProgress;
        self.want(node, type_, NodeConditionReason::RefitPlan, says);
    }

    /// Adds what a Plan does to nodes now, and next.
    pub(super) fn add_plan(&mut self, plan: &DerivedPlan, picture: &PlanPicture) {
        if !self.cluster.defaults.node_conditions {
            return;
        }
        for (name, state) in &picture.slots {
            if let Some(node) = self.cluster.world.nodes.get(name) {
                self.add_slot(plan, node, state);
            }
        }
        let (plan_name, version) = (&plan.facts.name, version(plan, None));
        for name in &picture.next {
            let (reason, says) = match picture.next_from {
                None => (
                    NodeConditionReason::RefitPlan,
                    format!("Plan {plan_name} upgrades the node next{version}"),
                ),
                Some(from) => (
                    NodeConditionReason::RefitPlanWindow,
                    format!(
                        "Plan {plan_name} may upgrade the node from {} on{version}",
                        seconds(from)
                    ),
                ),
            };
            self.want(name, NodeConditionType::MaintenancePlanned, reason, &says);
        }
    }

    fn add_slot(&mut self, plan: &DerivedPlan, node: &NodeFacts, state: &NodeState) {
        let plan_name = &plan.facts.name;
        // Work begins once status has the slot; until then the node keeps what it says.
        if state.start.is_some() {
            let namespace = &self.cluster.defaults.namespace;
            let planned = own(node, NodeConditionType::MaintenancePlanned, namespace);
            let reason = planned.and_then(|it| {
                let mut all = NodeConditionReason::ALL.iter();
                all.find(|reason| *reason.name() == *it.reason).copied()
            });
            if let Some((planned, reason)) = planned.zip(reason) {
                let text = ConditionText {
                    reason,
                    message: planned.message.to_string(),
                };
                let desired = self.desired.entry(node.name.clone()).or_default();
                desired
                    .entry(NodeConditionType::MaintenancePlanned)
                    .or_insert(text);
            }
            return;
        }
        let hold = PlanHold {
            defaults: &self.cluster.defaults,
            plan_uid: &plan.facts.uid,
        };
        let holds = hold.holder(node).is_some();
        if !holds && (state.is_released_after_failure || state.frees_slot) {
            return;
        }
        // A node of Windows is drained by kubectl, which keeps no ledger.
        if node.is_windows() && plan.spec().drain.is_some() {
            match state.phase {
                NodePhase::Draining => self.add_drain(&node.name, plan_name, false),
                NodePhase::Upgrading | NodePhase::Finishing | NodePhase::Settling | NodePhase::Verifying => {
                    self.add_drain(&node.name, plan_name, true);
                }
                _ => {}
            }
        }
        let job = state
            .job
            .as_ref()
            .and_then(|job| self.cluster.world.jobs.get(job));
        let version = version(plan, job.map(|job| &job.version));
        self.add_hold(&node.name, &format!("Plan {plan_name} has the node{version}"));
    }

    /// The steps, a few at a time.
    pub(super) fn add_steps(mut self, now: Timestamp, decision: &mut Decision) {
        if self.cluster.defaults.node_conditions {
            self.add_other_holders();
        }
        for desired in self.desired.values_mut() {
            // Two Plans may have the node, one of them failed.
            if desired.contains_key(&NodeConditionType::DrainInProgress) {
                desired.remove(&NodeConditionType::Drained);
            }
            if desired.contains_key(&NodeConditionType::MaintenanceInProgress) {
                desired.remove(&NodeConditionType::MaintenancePlanned);
            }
        }
        let cluster = self.cluster;
        let nodes = &cluster.world.nodes;
        // Its version changes with the other write, and what it should say may, too.
        let written: BTreeSet<NodeName> = decision
            .steps
            .iter()
            .filter_map(|step| match step {
                Step::PatchNode { node, .. } => Some(node.clone()),
                _ => None,
            })
            .collect();
        let nothing = Desired::new();
        let names: BTreeSet<&NodeName> = self.desired.keys().chain(&nodes.lifecycle).collect();
        let steps = names.into_iter().filter_map(|name| {
            if written.contains(name) || nodes.is_unreadable(name) {
                return None;
            }
            let node = nodes.get(name)?;
            let desired = self.desired.get(name).unwrap_or(&nothing);
            let changes = changes(node, desired, &cluster.defaults.namespace);
            (!changes.is_empty()).then(|| Step::PatchConditions {
                node: name.clone(),
                uid: node.uid.clone(),
                changes,
                at: now,
            })
        });
        let has_failed = |step: &Step| cluster.memory.failures.contains_key(&step.key());
        let (failed, fresh): (Vec<_>, Vec<_>) = steps.partition(has_failed);
        decision.steps.extend(fresh.into_iter().chain(failed).take(NODES));
    }
}

fn drain(is_over: bool) -> (NodeConditionType, &'static str) {
    if is_over {
        (NodeConditionType::Drained, "has drained")
    } else {
        (NodeConditionType::DrainInProgress, "drains")
    }
}

/// The version of the Job, or else of the Plan, for the end of a message.
fn version(plan: &DerivedPlan, of_job: Option<&Text>) -> String {
    let version = of_job.or(plan.resolved.as_ref().map(|it| &it.version));
    let version = version.filter(|version| !version.is_empty());
    version.map_or_else(String::new, |version| format!(", version {version}"))
}

/// The condition of this type, if the controller of this namespace has written it.
fn own<'n>(node: &'n NodeFacts, type_: NodeConditionType, namespace: &str) -> Option<&'n NodeCondition> {
    node.condition(type_.name())
        .filter(|condition| condition.is_of_controller(namespace))
}

/// What has to change on the node. A condition that another client has written stays as it is, whatever its status.
fn changes(node: &NodeFacts, desired: &Desired, namespace: &str) -> Vec<ConditionChange> {
    let change = |type_: &NodeConditionType| {
        let present = node.condition(type_.name());
        if present.is_some_and(|it| !it.is_of_controller(namespace)) {
            return None;
        }
        let to = desired.get(type_).cloned();
        let differs = match (&to, present) {
            (Some(text), Some(present)) => !text.is(present),
            (None, None) => false,
            _ => true,
        };
        differs.then(|| ConditionChange {
            type_: *type_,
            is_transition: present.is_none_or(|it| !it.is_true()),
            to,
        })
    };
    NodeConditionType::ALL.iter().filter_map(change).collect()
}
