//! Plans: slots, and what their status says.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Broken, CONTROLLER, Laws, PERSON};
use crate::api::{NodeProgress, PlanStatus};
use crate::controller::objects::RawPlan;
use crate::rehearse::store::Change;
use crate::rollout::PlanFacts;

/// Name and UID of a node that has a slot.
pub(super) type Slot = (String, Option<String>);

/// How many nodes a Plan may work on at a time.
pub(super) fn limit(plan: &PlanFacts) -> usize {
    let spec = &plan.object.spec;
    let limit = match spec.max_concurrent {
        Some(IntOrString::Int(limit)) => limit.into(),
        _ => spec.concurrency.unwrap_or_default(),
    };
    usize::try_from(limit).unwrap_or_default()
}

/// The nodes that have a slot, for people to read.
fn slots(status: &PlanStatus) -> Vec<String> {
    let nodes = status
        .active
        .iter()
        .flatten()
        .filter(|node| node.phase != "Waiting");
    let slot = |node: &NodeProgress| match &node.job {
        Some(job) => format!("{} {} of {job}", node.name, node.phase),
        None => format!("{} {}", node.name, node.phase),
    };
    nodes.map(slot).collect()
}

impl Laws {
    pub(super) fn plan(&mut self, at: Timestamp, who: &str, change: &Change) -> Broken {
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
        let now = limit(&facts);
        let before = self.plans.insert(name.clone(), facts);
        if let Some(limit) = before.as_ref().map(limit).filter(|before| *before != now) {
            self.limits.insert(name.clone(), (at, limit));
        }
        if before
            .as_ref()
            .map(|before| self::slots(before.status()))
            .as_ref()
            != Some(&slots)
        {
            self.tell(at, &format!("Plan {name}: [{}]", slots.join(", ")));
        }
        if who == PERSON {
            let uid = &self.plans[&name].uid;
            let runs = self.runs.iter_mut().filter(|((plan, _), _)| **plan == **uid);
            runs.for_each(|(_, run)| run.edited = true);
        }
        if who == CONTROLLER {
            self.status_is_written(&name, before.as_ref().map(PlanFacts::status))?;
        }
        Ok(())
    }

    fn status_is_written(&self, plan: &str, before: Option<&PlanStatus>) -> Broken {
        let facts = &self.plans[plan];
        let status = facts.status();
        let conditions: Vec<_> = status
            .conditions
            .iter()
            .map(|c| (c.type_.as_str(), c.status.as_str()))
            .collect();
        let known = ["Complete", "Validated", "LatestResolved"];
        let order = conditions.iter().map(|(type_, _)| *type_);
        law!(
            order.eq(known.into_iter().take(conditions.len())),
            "conditions of {plan}: {conditions:?}"
        );
        let empty = PlanStatus::default();
        let before = before.unwrap_or(&empty);
        let holds = |status: &PlanStatus| -> BTreeSet<Slot> {
            let active = status.active.iter().flatten().filter(|n| n.phase != "Waiting");
            active.map(|n| (n.name.clone(), n.uid.clone())).collect()
        };
        let (held, after) = (holds(before), holds(status));
        // Another definition has taken all but the names.
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
        law!(
            fresh.is_empty() || !spec.suspend.unwrap_or_default(),
            "{plan} is suspended, and {fresh:?} are given slots"
        );
        let limit = limit(facts);
        law!(
            fresh.is_empty() || after.len() <= limit,
            "{} slots of {limit} in {plan}: new {fresh:?} of {after:?}",
            after.len()
        );
        // Nor may one get a slot that is there no more, since another node has begun.
        let at_work = self.at_work(facts);
        let held = after.union(&at_work).count();
        law!(
            fresh.is_empty() || held <= limit,
            "{held} slots of {limit} in {plan}: new {fresh:?} of {after:?} beside {at_work:?}"
        );
        let applying = status.applying.as_ref().map_or(0, Vec::len);
        law!(
            status.active.is_none() || applying == after.len(),
            "applying {:?} and active {after:?} in {plan}",
            status.applying
        );
        let mut waiting = status.active.iter().flatten().filter(|n| n.phase == "Waiting");
        let silent = waiting.find(|n| n.reason.as_deref().unwrap_or_default().is_empty());
        law!(silent.is_none(), "nobody says why {silent:?} waits for {plan}");
        Ok(())
    }

    /// A Job whose result is not recorded, or a record, gives the node a slot, whatever status said.
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
