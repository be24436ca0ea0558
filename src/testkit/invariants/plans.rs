//! Plans: slots and status.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::despite::{check_blackouts, is_exempt};
use super::{CONTROLLER, Checked, Invariants, LAST_ANSWER, USER};
use refit_api::exemption::StartLimit;
use refit_api::{ConditionType, FailurePolicy, NodePhase, NodeProgress, PlanStatus, names};
use refit_facts::PlanFacts;
use refit_facts::record::{Phase, Record};
use refit_rehearse::store::Change;

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
        let facts: PlanFacts =
            serde_json::from_slice(text).map_err(|error| format!("a Plan cannot be read: {error}"))?;
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
            self.check_status_written(at, &name, before.as_ref().map(PlanFacts::status))?;
            self.check_after(&self.plans[&name], before.as_ref().map(PlanFacts::status))?;
            self.check_waves(at, &name, before.as_ref().map(PlanFacts::status))?;
            self.decided.insert(name, at);
        }
        Ok(())
    }

    fn check_status_written(&self, at: Timestamp, plan: &str, before: Option<&PlanStatus>) -> Checked {
        let facts = &self.plans[plan];
        let status = facts.status();
        super::reasons::check_status(plan, status)?;
        check_conditions(plan, status)?;
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
        // A failed node whose slot is free is no longer applying.
        let frees = facts.object.spec.failure_policy() != FailurePolicy::Hold;
        let holds = |status: &PlanStatus| -> BTreeSet<Slot> {
            let applies = |slot: &Slot| status.applying.iter().flatten().any(|name| *name == slot.0);
            holds(status)
                .into_iter()
                .filter(|slot| !frees || applies(slot))
                .collect()
        };
        let (held, after) = (holds(before), holds(status));
        // Another CRD has pruned everything but the names.
        let named = before
            .applying
            .iter()
            .flatten()
            .filter(|_| before.active.is_none());
        let named: BTreeSet<&String> = named.collect();
        let given: Vec<_> = after
            .difference(&held)
            .filter(|(name, uid)| !named.contains(name) && !self.is_on_its_way(facts, name, uid.as_deref()))
            .collect();
        let spec = &facts.object.spec;
        invariant!(
            given.is_empty() || !spec.suspend.unwrap_or_default(),
            "{plan} is suspended, and {given:?} are given slots"
        );
        invariant!(
            given.is_empty() || facts.annotation(names::ANNOTATION_ABORT).is_none(),
            "{plan} is aborted, and {given:?} are given slots"
        );
        let new: Vec<&str> = given.iter().map(|(name, _)| name.as_str()).collect();
        self.check_health(at, facts, before, &new)?;
        check_blackouts(at, facts, before, &new)?;
        let zones: BTreeSet<_> = after.iter().map(|(name, _)| self.zone(facts, name)).collect();
        invariant!(
            given.is_empty() || zones.len() == 1,
            "{plan} works on several zones: new {given:?} of {after:?}"
        );
        let limit = limit(facts);
        invariant!(
            given.is_empty() || after.len() <= limit,
            "{} slots of {limit} in {plan}: new {given:?} of {after:?}",
            after.len()
        );
        let held: Vec<&str> = after.iter().map(|(name, _)| name.as_str()).collect();
        self.check_limits(at, facts, &new, &held)?;
        // Nor may a deleted node keep others from starting.
        let is_failed = |slot: &Slot| {
            let mut active = status.active.iter().flatten();
            frees && active.any(|node| node.name == slot.0 && node.phase == NodePhase::Failed)
        };
        let mut at_work = self.at_work(facts);
        at_work.retain(|slot| !is_failed(slot));
        let held = after.union(&at_work).count();
        invariant!(
            given.is_empty() || held <= limit,
            "{held} slots of {limit} in {plan}: new {given:?} of {after:?} beside {at_work:?}"
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

    /// Checks that no node gets a slot while the checks of its Plan fail.
    fn check_health(
        &self,
        at: Timestamp,
        plan: &PlanFacts,
        before: &PlanStatus,
        started: &[&str],
    ) -> Checked {
        let mut started = started.iter();
        let starts_none = started.all(|node| is_exempt(plan, before, StartLimit::Checks, Some(node)));
        let unhealthy = self.unhealthy.filter(|_| plan.object.spec.checks.is_some());
        invariant!(
            starts_none || unhealthy.is_none_or(|since| at.duration_since(since) < LAST_ANSWER),
            "a node gets a slot at {at} in {}, whose checks fail since {unhealthy:?}",
            plan.name
        );
        Ok(())
    }

    /// Whether an unrecorded Job, or a record, gives the node a slot, whatever status said. The record of a failure at
    /// another version gives none: the node that has a slot has it in status.
    pub(super) fn is_on_its_way(&self, plan: &PlanFacts, node: &str, uid: Option<&str>) -> bool {
        let by_job = self.jobs.values().any(|job| {
            job.plan_uid == plan.uid
                && *job.node == *node
                && job.node_uid.as_deref().is_none_or(|known| Some(known) == uid)
        });
        let records = self.nodes.get(node).and_then(|n| n.facts.records.get(&plan.name));
        let is_current = |record: &Record| plan.status().latest_hash.as_deref() == Some(&*record.hash);
        let ends = |record: &Record| matches!(record.phase, Phase::Failed | Phase::Skipped);
        by_job
            || records
                .is_some_and(|record| *record.plan_uid == *plan.uid && (is_current(record) || !ends(record)))
    }
}

/// The conditions come in their order.
fn check_conditions(plan: &str, status: &PlanStatus) -> Checked {
    let conditions: Vec<_> = status
        .conditions
        .iter()
        .map(|c| (c.type_.as_str(), c.status.as_str()))
        .collect();
    let known = [
        ConditionType::Complete,
        ConditionType::Validated,
        ConditionType::LatestResolved,
        ConditionType::UpToDate,
    ];
    let order = status.conditions.iter().map(|it| it.type_.known());
    // It comes last, whether there are three others or four.
    let order: Vec<_> = order.filter(|it| *it != Some(ConditionType::Degraded)).collect();
    invariant!(
        order
            .iter()
            .copied()
            .eq(known.into_iter().map(Some).take(order.len())),
        "conditions of {plan}: {conditions:?}"
    );
    Ok(())
}
