//! Jobs: how many exist, when they start, and when they are recorded and deleted.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::plans::Slot;
use super::{CONTROLLER, Checked, Invariants, PlanOnNode, SEEN, read};
use refit_api::names::ControlPlaneRole;
use refit_api::{NodePhase, names};
use refit_facts::objects::SlimJob;
use refit_facts::{Hash, JobFacts, JobOutcome, NodeUid, PlanFacts, PlanName};
use refit_rehearse::store::Change;

impl Invariants {
    pub(super) fn job(&mut self, at: Timestamp, who: &str, change: &Change) -> Checked {
        let ttl = 0;
        let object = read::<SlimJob>(&change.new.value)?;
        if !object.is_of("system-upgrade-controller") {
            return Ok(());
        }
        let facts = object.facts(&self.intern, ttl);
        if facts.verifies.is_some() {
            return self.verify_job(at, who, change, facts);
        }
        if facts.hook.is_some() {
            return self.hook_job(at, who, change, facts);
        }
        let name = facts.name.to_string();
        if change.gone || facts.deleting {
            if self.jobs.get(&name).is_some_and(|known| known.uid == facts.uid) {
                self.log_line(at, &format!("Job {name} goes, by {who}"));
                if who == CONTROLLER {
                    let finalizers = change.new.value["metadata"]["finalizers"].as_array();
                    let orphans = finalizers.is_some_and(|all| all.iter().any(|one| one == "orphan"));
                    invariant!(!orphans, "Job {name} is deleted, and its pods are left behind");
                    self.check_job_deleted(at, &facts)?;
                }
                self.forget_lost_job(&facts);
                self.jobs.remove(&name);
            }
            return Ok(());
        }
        let Some(old) = self.jobs.get(&name).cloned() else {
            self.log_line(
                at,
                &format!("Job {name} for {}, attempt {}", facts.node, facts.attempt),
            );
            // Of a real cluster, an outage may hide what came before.
            if who == CONTROLLER {
                self.check_job_created(&facts)?;
                self.check_before(&facts)?;
                self.check_quorum(at, &facts)?;
            }
            self.jobs.insert(name, facts);
            return Ok(());
        };
        if old.outcome != facts.outcome {
            self.log_line(at, &format!("Job {name}: {:?}", facts.outcome));
        }
        if matches!(facts.outcome, JobOutcome::Complete { .. })
            && !matches!(old.outcome, JobOutcome::Complete { .. })
        {
            // A Job of system-upgrade-controller has no node UID.
            let node_uid = facts.node_uid.clone().or_else(|| {
                let node = self.nodes.get(&*facts.node);
                node.map(|node| node.facts.uid.clone())
            });
            let place = (facts.plan_uid.clone(), node_uid.unwrap_or_default());
            self.record_success(&facts.plan, &place, &facts.hash);
        }
        if who == CONTROLLER {
            if facts.recorded && !old.recorded {
                self.check_job_marked(&facts)?;
            }
            if facts.backoff_limit < old.backoff_limit {
                let least = facts.failures - i32::from(self.recorded_on_node.contains(&*facts.uid));
                invariant!(
                    (least..old.backoff_limit).contains(&facts.backoff_limit),
                    "{} failures are allowed: {facts:?}",
                    facts.backoff_limit
                );
            }
        }
        self.jobs.insert(name, facts);
        Ok(())
    }

    pub(super) fn record_success(&mut self, plan: &PlanName, place: &PlanOnNode, hash: &Hash) {
        let (_, node_uid) = place;
        self.succeeded_by_name
            .insert(((plan.clone(), node_uid.clone()), hash.clone()));
        self.succeeded.insert((place.clone(), hash.clone()));
    }

    fn check_job_created(&mut self, facts: &JobFacts) -> Checked {
        let held_by = self
            .nodes
            .get(&*facts.node)
            .and_then(|node| self.front_end(&node.facts));
        invariant!(held_by.is_none(), "a Job on a node of {held_by:?}: {facts:?}");
        let has_plan = |uid: &str| self.plans.values().any(|plan| *plan.uid == *uid);
        if !has_plan(&facts.plan_uid) {
            return Ok(());
        }
        let live = || self.jobs.values().filter(|job| job.is_live());
        let twin = live().find(|one| one.plan_uid == facts.plan_uid && one.node_uid == facts.node_uid);
        invariant!(twin.is_none(), "two live Jobs: {facts:?} and {twin:?}");
        let rival = live().filter(|one| has_plan(&one.plan_uid)).find(|one| {
            one.node == facts.node && one.plan != facts.plan && one.disruptive && one.parallelism > 0
        });
        invariant!(
            !facts.disruptive || rival.is_none(),
            "two disruptive Plans on a node: {facts:?} and {rival:?}"
        );
        if let Some(active) = self
            .plans
            .get(&*facts.plan)
            .and_then(|plan| plan.status().active.as_ref())
        {
            let stored = active
                .iter()
                .find(|node| *node.name == *facts.node && node.uid.as_deref() == facts.node_uid.as_deref());
            let named = stored.is_some_and(|stored| stored.phase != NodePhase::Waiting);
            // A request in flight cannot be cancelled when its node is deleted, so it creates a Job without a node.
            let is_gone = |uid: &NodeUid| {
                let node = self.nodes.get(&*facts.node);
                node.is_none_or(|node| node.facts.uid != *uid)
            };
            invariant!(
                named || facts.node_uid.as_ref().is_some_and(is_gone),
                "a Job before status names its node: {facts:?}"
            );
        }
        Ok(())
    }

    /// A control-plane node that is Ready starts only while a majority stays available without it, as far as the controller
    /// can have seen.
    fn check_quorum(&self, at: Timestamp, job: &JobFacts) -> Checked {
        let plan = self.plans.get(&*job.plan).filter(|plan| plan.uid == job.plan_uid);
        let guards = plan.is_some_and(|plan| plan.object.spec.guards_control_plane());
        if !guards || !job.disruptive {
            return Ok(());
        }
        let down_long_enough = |node: &super::Node| {
            let since = node.fitness.since.map(|since| at.duration_since(since));
            !node.facts.is_ready_and_untainted() && since.is_some_and(|since| since > SEEN + SEEN)
        };
        let servers = self.nodes.values();
        let servers = servers.filter(|node| node.facts.has_role(ControlPlaneRole::ControlPlane));
        let servers: Vec<_> = servers.collect();
        let own = servers.iter().find(|node| node.facts.name == job.node);
        if servers.len() < 3 || own.is_none_or(|node| !node.facts.ready) {
            return Ok(());
        }
        // A Plan that forgoes the guard starts whatever the others do, also while this Job is on its way.
        let is_known = |one: &JobFacts| {
            let plan = self.plans.get(&*one.plan).filter(|plan| plan.uid == one.plan_uid);
            plan.is_some_and(|plan| plan.object.spec.guards_control_plane())
                || at.duration_since(one.created) > SEEN
        };
        let is_busy = |node: &super::Node| {
            let mut live = self.jobs.values().filter(|one| one.is_live() && one.disruptive);
            live.any(|one| one.node == node.facts.name && is_known(one))
        };
        let others = servers.iter().filter(|node| node.facts.name != job.node);
        let up = others
            .filter(|node| !down_long_enough(node) && !is_busy(node))
            .count();
        invariant!(
            up > servers.len() / 2,
            "{} starts, and without it {up} of {} servers are available",
            job.node,
            servers.len()
        );
        Ok(())
    }

    /// Nodes on which a Job of this Plan has not finished.
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

    fn check_job_marked(&self, job: &JobFacts) -> Checked {
        let Some(node) = self.nodes.get(&*job.node) else {
            return Ok(());
        };
        let label = node.facts.labels.of_plan(&job.plan);
        let recorded = self.recorded_on_node.contains(&*job.uid);
        let fine = match job.outcome {
            JobOutcome::Running | JobOutcome::Failing { .. } => false,
            JobOutcome::Complete { .. } => {
                recorded
                    || label.is_some_and(|label| *label == *job.hash || label == names::LABEL_VALUE_DISABLED)
                    || *node.facts.uid != *job.node_uid.as_deref().unwrap_or_default()
            }
            JobOutcome::Failed { .. } => true,
        };
        let plan = self.plans.get(&*job.plan).filter(|plan| plan.uid == job.plan_uid);
        // A Job that has only drained a node has no result once the node requests nothing any more.
        let is_void = |plan: &PlanFacts| {
            plan.object.spec.upgrade_container().is_none() && node.facts.needed_reboot().is_none()
        };
        let fine = fine || plan.is_none_or(is_void);
        invariant!(fine, "{} is marked before its result is on the node", job.name);
        Ok(())
    }

    fn check_job_deleted(&self, at: Timestamp, job: &JobFacts) -> Checked {
        // The Job may have started while the request was in flight.
        let long = SignedDuration::from_secs(15);
        let running = self.pods.values().find(|pod| {
            pod.facts.job_uid == job.uid
                && !pod.facts.deleting
                && pod.upgrading.is_some_and(|since| at.duration_since(since) > long)
        });
        // A Plan that is being deleted takes its Jobs with it, as garbage collection does once it is gone.
        let stays = |plan: &PlanFacts| plan.object.metadata.deletion_timestamp.is_none();
        let plan = self
            .plans
            .values()
            .any(|plan| plan.uid == job.plan_uid && stays(plan));
        let node = self.nodes.get(&*job.node);
        let machine = node.is_some_and(|node| Some(&node.facts.uid) == job.node_uid.as_ref());
        invariant!(
            running.is_none() || !plan || !machine || job.recorded,
            "Job {} is deleted while its upgrade runs",
            job.name
        );
        Ok(())
    }

    /// A Job is deleted before its result was recorded.
    fn forget_lost_job(&mut self, job: &JobFacts) {
        if self.recorded_on_node.contains(&*job.uid) {
            return;
        }
        let proven_by_sentinel = job.sentinel && matches!(job.outcome, JobOutcome::Complete { .. });
        for run in self.runs.values_mut().filter(|run| *run.job_uid == *job.uid) {
            run.again |= !proven_by_sentinel;
            run.proven_by_sentinel |= proven_by_sentinel;
        }
    }
}
