//! Jobs: how many, when they begin, are marked and go.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::plans::{Slot, limit};
use super::{Broken, CONTROLLER, Laws, read};
use crate::api::names;
use crate::controller::objects::SlimJob;
use crate::rehearse::store::Change;
use crate::rollout::facts::Text;
use crate::rollout::{JobFacts, Outcome, PlanFacts};

/// How long a request may be on its way, and what it was sent for may be otherwise by then.
const ON_ITS_WAY: SignedDuration = SignedDuration::from_secs(10);

impl Laws {
    pub(super) fn job(&mut self, at: Timestamp, who: &str, change: &Change) -> Broken {
        let ttl = 0;
        let object = read::<SlimJob>(&change.new.value)?;
        if !object.is_of("system-upgrade-controller") {
            return Ok(());
        }
        let facts = object.facts(&self.intern, ttl);
        let name = facts.name.to_string();
        if change.gone || facts.deleting {
            if self.jobs.get(&name).is_some_and(|known| known.uid == facts.uid) {
                self.tell(at, &format!("Job {name} goes, by {who}"));
                if who == CONTROLLER {
                    let finalizers = change.new.value["metadata"]["finalizers"].as_array();
                    let orphans = finalizers.is_some_and(|all| all.iter().any(|one| one == "orphan"));
                    law!(!orphans, "Job {name} is deleted, and its pods are left behind");
                    self.job_is_deleted(at, &facts)?;
                }
                self.job_is_lost(&facts);
                self.jobs.remove(&name);
            }
            return Ok(());
        }
        let Some(old) = self.jobs.get(&name).cloned() else {
            self.tell(
                at,
                &format!("Job {name} for {}, attempt {}", facts.node, facts.attempt),
            );
            self.job_is_created(at, &facts)?;
            self.jobs.insert(name, facts);
            return Ok(());
        };
        if old.outcome != facts.outcome {
            self.tell(at, &format!("Job {name}: {:?}", facts.outcome));
        }
        if matches!(facts.outcome, Outcome::Complete { .. })
            && !matches!(old.outcome, Outcome::Complete { .. })
        {
            self.succeeds(
                &facts.plan,
                &facts.plan_uid,
                facts.node_uid.as_deref(),
                &facts.hash,
            );
        }
        if who == CONTROLLER {
            if facts.recorded && !old.recorded {
                self.is_marked(&facts)?;
            }
            if facts.backoff_limit < old.backoff_limit {
                let least = facts.failures - i32::from(self.told_to_node.contains(&*facts.uid));
                law!(
                    (least..old.backoff_limit).contains(&facts.backoff_limit),
                    "{} failures are allowed: {facts:?}",
                    facts.backoff_limit
                );
            }
        }
        self.jobs.insert(name, facts);
        Ok(())
    }

    pub(super) fn succeeds(&mut self, plan: &str, plan_uid: &str, node_uid: Option<&str>, hash: &str) {
        let node_uid = node_uid.unwrap_or_default().to_owned();
        self.succeeded_by_name
            .insert(((plan.to_owned(), node_uid.clone()), hash.to_owned()));
        self.succeeded
            .insert(((plan_uid.to_owned(), node_uid), hash.to_owned()));
    }

    fn job_is_created(&mut self, at: Timestamp, facts: &JobFacts) -> Broken {
        let has_plan = |uid: &str| self.plans.values().any(|plan| *plan.uid == *uid);
        if !has_plan(&facts.plan_uid) {
            return Ok(());
        }
        let live = || self.jobs.values().filter(|job| job.is_live());
        let twin = live().find(|one| one.plan_uid == facts.plan_uid && one.node_uid == facts.node_uid);
        law!(twin.is_none(), "two live Jobs: {facts:?} and {twin:?}");
        let rival = live().filter(|one| has_plan(&one.plan_uid)).find(|one| {
            one.node == facts.node && one.plan != facts.plan && one.disruptive && one.parallelism > 0
        });
        law!(
            !facts.disruptive || rival.is_none(),
            "two disruptive Plans on a node: {facts:?} and {rival:?}"
        );
        let mut began_as_next = false;
        if let Some(active) = self
            .plans
            .get(&*facts.plan)
            .and_then(|plan| plan.status().active.as_ref())
        {
            let told = active
                .iter()
                .find(|node| *node.name == *facts.node && node.uid.as_deref() == facts.node_uid.as_deref());
            let has_slot = told.is_some_and(|told| told.phase != "Waiting");
            let is_next = told.is_some() && self.has_room(at, &facts.plan);
            let named = has_slot || is_next;
            began_as_next = !has_slot && is_next;
            // A request that is on its way when its node goes cannot be called back, and makes a Job for nobody.
            let is_gone = |uid: &Text| {
                let node = self.nodes.get(&*facts.node);
                node.is_none_or(|node| node.facts.uid != *uid)
            };
            law!(
                named || facts.node_uid.as_ref().is_some_and(is_gone),
                "a Job before status names its node: {facts:?}"
            );
        }
        self.nexts += u64::from(began_as_next);
        Ok(())
    }

    /// More nodes may be worked on than there are, or might have been when the request was sent.
    fn has_room(&self, at: Timestamp, plan: &str) -> bool {
        let plan = &self.plans[plan];
        let (since, earlier) = self.limits.get(&*plan.name).copied().unwrap_or_default();
        let earlier = if at.duration_since(since) < ON_ITS_WAY {
            earlier
        } else {
            0
        };
        self.at_work(plan).len() < limit(plan).max(earlier)
    }

    /// Nodes on which a Job of this Plan has not ended.
    pub(super) fn at_work(&self, plan: &PlanFacts) -> BTreeSet<Slot> {
        let live = self
            .jobs
            .values()
            .filter(|job| job.plan_uid == plan.uid && job.is_live());
        live.filter_map(|job| {
            let uid = &self.nodes.get(&*job.node)?.facts.uid;
            let here = job.node_uid.as_ref().is_none_or(|of| of == uid);
            here.then(|| (job.node.to_string(), Some(uid.to_string())))
        })
        .collect()
    }

    fn is_marked(&self, job: &JobFacts) -> Broken {
        let Some(node) = self.nodes.get(&*job.node) else {
            return Ok(());
        };
        let label = node.facts.labels.get_joined(names::LABEL_PLAN_PREFIX, &job.plan);
        let told = self.told_to_node.contains(&*job.uid);
        let fine = match job.outcome {
            Outcome::Running | Outcome::Failing { .. } => false,
            Outcome::Complete { .. } => {
                told || label.is_some_and(|label| *label == *job.hash || label == names::LABEL_VALUE_DISABLED)
                    || node.facts.uid.as_ref() != job.node_uid.as_deref().unwrap_or_default()
            }
            Outcome::Failed { .. } => true,
        };
        let plan = self
            .plans
            .get(&*job.plan)
            .is_some_and(|plan| plan.uid == job.plan_uid);
        law!(
            fine || !plan,
            "{} is marked before its result is on the node",
            job.name
        );
        Ok(())
    }

    fn job_is_deleted(&self, at: Timestamp, job: &JobFacts) -> Broken {
        // It may have begun while the request was on its way.
        let long = SignedDuration::from_secs(15);
        let running = self.pods.values().find(|pod| {
            pod.facts.job_uid == job.uid
                && !pod.facts.deleting
                && pod.upgrading.is_some_and(|since| at.duration_since(since) > long)
        });
        let plan = self.plans.values().any(|plan| plan.uid == job.plan_uid);
        let node = self.nodes.get(&*job.node);
        let machine = node.is_some_and(|node| Some(&node.facts.uid) == job.node_uid.as_ref());
        law!(
            running.is_none() || !plan || !machine || job.recorded,
            "Job {} is deleted while its upgrade runs",
            job.name
        );
        Ok(())
    }

    /// A Job goes before its result was recorded.
    fn job_is_lost(&mut self, job: &JobFacts) {
        if self.told_to_node.contains(&*job.uid) {
            return;
        }
        let told_by_sentinel = job.sentinel && matches!(job.outcome, Outcome::Complete { .. });
        for run in self.runs.values_mut().filter(|run| *run.job_uid == *job.uid) {
            run.again |= !told_by_sentinel;
            run.told_by_sentinel |= told_by_sentinel;
        }
    }
}
