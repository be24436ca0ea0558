//! The Jobs that run once for each roll-out (`spec.before`, `spec.after`), as status shows them.

use jiff::Timestamp;

use super::events::Wait;
use refit_api::{Hook, HookPhase, HookStatus, Reason};

/// A Job of `before` or `after`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookRun {
    pub hook: Hook,
    pub job: String,
    pub since: Timestamp,
    /// When it succeeded or failed, or the Plan no longer required it.
    pub until: Option<Timestamp>,
    pub phase: HookPhase,
    /// Why it failed.
    pub message: Option<String>,
}

impl HookRun {
    /// The same as a wait: before it nothing starts, or is complete.
    pub(super) fn to_wait(&self, plan: &str) -> Wait {
        let reason = match self.hook {
            Hook::Before => Reason::BeforeRunning,
            Hook::After => Reason::AfterRunning,
        };
        Wait {
            plan: plan.to_owned(),
            node: None,
            reason: reason.into(),
            blocker: self.hook.as_str().to_owned(),
            message: self
                .message
                .clone()
                .unwrap_or_else(|| format!("Job {}", self.job)),
            prepare: None,
            since: self.since,
            until: self.until,
        }
    }
}

/// Records what status says of a hook. Returns the phase that it has come to.
pub(super) fn observe(
    runs: &mut Vec<HookRun>,
    hook: Hook,
    of: Option<&HookStatus>,
    now: Timestamp,
) -> Option<HookPhase> {
    let is_other = |run: &&mut HookRun| run.hook == hook && of.is_none_or(|of| of.job != run.job);
    for run in runs.iter_mut().filter(is_other) {
        run.until.get_or_insert(now);
    }
    let of = of?;
    let phase = of.phase.known()?;
    let at = of.since.as_ref().and_then(|since| since.parse().ok());
    let at = at.unwrap_or(now);
    match (phase, runs.iter_mut().rfind(|run| run.job == of.job)) {
        (HookPhase::Running, None) => runs.push(HookRun {
            hook,
            job: of.job.clone(),
            since: at,
            until: None,
            phase,
            message: None,
        }),
        (HookPhase::Succeeded | HookPhase::Failed, Some(run)) if run.until.is_none() => {
            (run.phase, run.until) = (phase, Some(at));
            run.message.clone_from(&of.message);
        }
        // One that has ended before the recording began, or progress of its pod.
        _ => return None,
    }
    Some(phase)
}
