//! Jobs that run once for each roll-out: when they start, and that nothing starts or ends without them.

use jiff::Timestamp;

use super::{CONTROLLER, Checked, Invariants};
use refit_api::{ConditionType, Hook, HookPhase, PlanStatus};
use refit_facts::{JobFacts, JobOutcome, PlanFacts};
use refit_rehearse::store::Change;

impl Invariants {
    pub(super) fn hook_job(&mut self, at: Timestamp, who: &str, change: &Change, job: JobFacts) -> Checked {
        let name = job.name.to_string();
        if change.gone || job.deleting {
            if self.hook_jobs.remove(&name).is_some() {
                self.log_line(at, &format!("Job {name} goes, by {who}"));
            }
            return Ok(());
        }
        let known = self.hook_jobs.get(&name).cloned();
        if known.is_none() {
            self.log_line(at, &format!("Job {name}, attempt {}", job.attempt));
        }
        let plan = self.plans.get(&*job.plan).filter(|plan| plan.uid == job.plan_uid);
        if let Some(plan) = plan.filter(|_| known.is_none() && who == CONTROLLER) {
            let hook = job.hook.as_deref().and_then(Hook::named);
            let stored = hook.and_then(|hook| hook.status(plan.status()));
            invariant!(
                stored.is_none_or(|it| it.phase != HookPhase::Succeeded || it.hash != *job.hash),
                "a second one, after {stored:?}: {job:?}"
            );
            let mut live = self.hook_jobs.values().filter(|one| one.is_live());
            let twin = live.find(|one| one.plan_uid == job.plan_uid);
            invariant!(twin.is_none(), "two at once: {job:?} and {twin:?}");
        }
        if matches!(job.outcome, JobOutcome::Complete { .. })
            && known.is_none_or(|known| known.outcome != job.outcome)
        {
            self.log_line(at, &format!("Job {name} succeeds"));
            if let Some(hook) = job.hook.as_deref().and_then(Hook::named) {
                self.hooked.insert((job.plan_uid.clone(), hook, job.hash.clone()));
            }
        }
        self.hook_jobs.insert(name, job);
        Ok(())
    }

    /// No node starts at a hash before `before` has succeeded there.
    pub(super) fn check_before(&self, job: &JobFacts) -> Checked {
        let plan = self.plans.get(&*job.plan).filter(|plan| plan.uid == job.plan_uid);
        let has_before = plan.is_some_and(|plan| plan.object.spec.before.is_some());
        let done = (job.plan_uid.clone(), Hook::Before, job.hash.clone());
        invariant!(
            !has_before || self.hooked.contains(&done),
            "a node starts before `before` has succeeded: {job:?}"
        );
        Ok(())
    }

    /// A Plan that has upgraded nodes is not complete before `after` has succeeded, unless it was before it had `after`.
    pub(super) fn check_after(&self, plan: &PlanFacts, before: Option<&PlanStatus>) -> Checked {
        let status = plan.status();
        let is_complete = |status: &PlanStatus| status.is_true(ConditionType::Complete);
        let last = status.history.as_ref().and_then(|history| history.first());
        let (Some(hash), Some(last)) = (&status.latest_hash, last) else {
            return Ok(());
        };
        let done = (plan.uid.clone(), Hook::After, hash.as_str().into());
        invariant!(
            plan.object.spec.after.is_none()
                || !is_complete(status)
                || before
                    .is_some_and(|before| is_complete(before) && before.latest_hash == status.latest_hash)
                || last.hash != *hash
                || self.hooked.contains(&done),
            "{} is complete before `after` has succeeded: {status:?}",
            plan.name
        );
        Ok(())
    }
}
