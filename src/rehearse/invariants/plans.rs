//! Plans: slots and status.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{CONTROLLER, Checked, Invariants, USER};
use crate::api::{ConditionType, NodePhase, NodeProgress, PlanStatus};
use crate::kube::objects::RawPlan;
use crate::rehearse::store::Change;
use crate::rollout::PlanFacts;

/// Name and UID of a node with a slot.
pub(super) type Slot = (String, Option<String>);

/// Maximum number of nodes of a Plan in progress. Percentages are not checked here.
pub(super) fn limit(plan: &PlanFacts) -> usize {
    let spec = &plan.object.spec;
    let limit = match spec.max_concurrent {
        Some(IntOrString::Int(limit)) => limit.into(),
        Some(IntOrString::String(_)) => return usize::MAX,
        None => spec.concurrency.unwrap_or_default(),
    };
    usize::try_from(limit).unwrap_or_default()
}

/// The nodes with a slot, as text.
fn slots(status: &PlanStatus) -> Vec<String> {
    let nodes = status
        .active
        .iter()
        .flatten()
        .filter(|node| node.phase != NodePhase::Waiting);
    let slot = |node: &NodeProgress| match &node.job {
        Some(job) => format!("{} {} of {job}", node.name, node.phase),
        None => format!("{} {}", node.name, node.phase),
    };
    nodes.map(slot).collect()
}

impl Invariants {
    pub(super) fn plan(&mut self, at: Timestamp, who: &str, change: &Change) -> Checked {
        let text = change.new.json(false);
        let plan: RawPlan =
            serde_json::from_slice(text).map_err(|error| format!("a Plan cannot be read: {error}"))?;
        let facts = plan.facts();
        let name = facts.name.to_string();
        if change.gone {
            self.plans.remove(&name);
            return Ok(());
        }
        let slots = slots(facts.status());
        let before = self.plans.insert(name.clone(), facts);
        if before
            .as_ref()
            .map(|before| self::slots(before.status()))
            .as_ref()
            != Some(&slots)
        {
            self.log_line(at, &format!("Plan {name}: [{}]", slots.join(", ")));
        }
        if who == USER {
            let uid = &self.plans[&name].uid;
            let runs = self.runs.iter_mut().filter(|((plan, _), _)| **plan == **uid);
            runs.for_each(|(_, run)| run.edited = true);
        }
        if who == CONTROLLER {
            self.check_status_written(&name, before.as_ref().map(PlanFacts::status))?;
        }
        Ok(())
    }

    fn check_status_written(&self, plan: &str, before: Option<&PlanStatus>) -> Checked {
        let facts = &self.plans[plan];
        let status = facts.status();
        let conditions: Vec<_> = status
            .conditions
            .iter()
            .map(|c| (c.type_.as_str(), c.status.as_str()))
            .collect();
        super::reasons::check_status(plan, status)?;
        let known = [
            ConditionType::Complete,
            ConditionType::Validated,
            ConditionType::LatestResolved,
            ConditionType::UpToDate,
        ];
        let order = status.conditions.iter().map(|it| it.type_.known());
        invariant!(
            order.eq(known.into_iter().map(Some).take(conditions.len())),
            "conditions of {plan}: {conditions:?}"
        );
        let empty = PlanStatus::default();
        let before = before.unwrap_or(&empty);
        let holds = |status: &PlanStatus| -> BTreeSet<Slot> {
            let active = status
                .active
                .iter()
                .flatten()
                .filter(|n| n.phase != NodePhase::Waiting);
            active.map(|n| (n.name.clone(), n.uid.clone())).collect()
        };
        let (held, after) = (holds(before), holds(status));
        // Another CRD has pruned everything but the names.
        let named = before
            .applying
            .iter()
            .flatten()
            .filter(|_| before.active.is_none());
        let named: BTreeSet<&String> = named.collect();
        let fresh: Vec<_> = after
            .difference(&held)
            .filter(|(name, uid)| !named.contains(name) && !self.is_on_its_way(facts, name, uid.as_deref()))
            .collect();
        let spec = &facts.object.spec;
        invariant!(
            fresh.is_empty() || !spec.suspend.unwrap_or_default(),
            "{plan} is suspended, and {fresh:?} are given slots"
        );
        let limit = limit(facts);
        invariant!(
            fresh.is_empty() || after.len() <= limit,
            "{} slots of {limit} in {plan}: new {fresh:?} of {after:?}",
            after.len()
        );
        // Nor may a deleted node keep others from starting.
        let at_work = self.at_work(facts);
        let held = after.union(&at_work).count();
        invariant!(
            fresh.is_empty() || held <= limit,
            "{held} slots of {limit} in {plan}: new {fresh:?} of {after:?} beside {at_work:?}"
        );
        let applying = status.applying.as_ref().map_or(0, Vec::len);
        invariant!(
            status.active.is_none() || applying == after.len(),
            "applying {:?} and active {after:?} in {plan}",
            status.applying
        );
        let mut waiting = status
            .active
            .iter()
            .flatten()
            .filter(|n| n.phase == NodePhase::Waiting);
        let silent = waiting.find(|n| n.reason.as_deref().unwrap_or_default().is_empty());
        invariant!(
            silent.is_none(),
            "{silent:?} waits for {plan}, and status has no reason"
        );
        Ok(())
    }

    /// Whether an unrecorded Job, or a record, gives the node a slot, whatever status said.
    pub(super) fn is_on_its_way(&self, plan: &PlanFacts, node: &str, uid: Option<&str>) -> bool {
        let by_job = self.jobs.values().any(|job| {
            job.plan_uid == plan.uid
                && *job.node == *node
                && job.node_uid.as_deref().is_none_or(|known| Some(known) == uid)
        });
        let records = self.nodes.get(node).and_then(|n| n.facts.records.get(&plan.name));
        by_job || records.is_some_and(|record| *record.plan_uid == *plan.uid)
    }
}
