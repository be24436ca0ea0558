//! Jobs that verify nodes: when they start, and that no node is done without them.

use jiff::Timestamp;

use super::{CONTROLLER, Checked, Invariants};
use refit_facts::record::Phase;
use refit_facts::{JobFacts, JobOutcome, NodeFacts};
use refit_rehearse::store::Change;

impl Invariants {
    pub(super) fn verify_job(&mut self, at: Timestamp, who: &str, change: &Change, job: JobFacts) -> Checked {
        let name = job.name.to_string();
        let upgrade = job.verifies.as_deref().unwrap_or_default().to_owned();
        if change.gone || job.deleting {
            self.verify_jobs.remove(&name);
            return Ok(());
        }
        let is_known = self.verify_jobs.contains_key(&name);
        if !is_known && who == CONTROLLER {
            self.log_line(at, &format!("Job {name} verifies {}", job.node));
            let place = (job.plan_uid.clone(), job.node_uid.clone().unwrap_or_default());
            invariant!(
                self.succeeded.contains(&(place, job.hash.clone())),
                "a node is verified that is not upgraded: {job:?}"
            );
            let mut live = self.verify_jobs.values().filter(|one| one.is_live());
            let twin = live.find(|one| one.plan_uid == job.plan_uid && one.node_uid == job.node_uid);
            invariant!(
                twin.is_none_or(|one| one.verifies != job.verifies),
                "two Jobs verify a node: {job:?} and {twin:?}"
            );
        }
        if matches!(job.outcome, JobOutcome::Complete { .. }) {
            self.verified.insert(upgrade);
        }
        self.verify_jobs.insert(name, job);
        Ok(())
    }

    /// A node that was to be verified is neither done nor uncordoned before it is, as long as the Plan has `verify`.
    pub(super) fn check_verified(&self, old: &NodeFacts, new: &NodeFacts) -> Checked {
        for (plan, record) in old.records.iter().filter(|(_, one)| one.phase == Phase::Upgraded) {
            let known = self
                .plans
                .get(&**plan)
                .filter(|plan| *plan.uid == *record.plan_uid);
            let verifies = known.is_some_and(|plan| plan.object.spec.verify.is_some());
            if !verifies || record.verify.is_none() || self.verified.contains(&record.upgrade_id()) {
                continue;
            }
            let label = |node: &NodeFacts| {
                let label = node.labels.of_plan(plan);
                label == Some(&record.hash)
            };
            invariant!(
                label(old) || !label(new),
                "{} is done for {plan}, and is not verified",
                new.name
            );
            let holds = |node: &NodeFacts| {
                let mut holders = node.ledger.iter().flat_map(|ledger| &ledger.holders);
                holders.any(|holder| holder.plan_uid == record.plan_uid)
            };
            // A failed node is released as soon as that is decided.
            let releases = known.is_some_and(|plan| plan.object.spec.uncordons_failed());
            let is_left = new
                .records
                .get(plan)
                .is_some_and(|next| next.phase == Phase::Upgraded);
            invariant!(
                !old.unschedulable || !holds(old) || holds(new) || !is_left || releases,
                "{} is released by {plan}, and is not verified",
                new.name
            );
        }
        Ok(())
    }
}
