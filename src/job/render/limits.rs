//! Time limits of Jobs.

use crate::error::JobError;
use crate::settings::JobSettings;
use refit_api::{PlanSpec, wait_for};
use refit_base::go::GoDuration;

/// Time limit of a Job in seconds; `None` means no limit (S12). What `drain.waitFor` waits comes in addition: the limits are
/// about work that hangs, and the wait has limits of its own.
pub fn active_deadline_seconds(spec: &PlanSpec, settings: &JobSettings) -> Option<i64> {
    let waits = wait_for::longest(&spec.drain_waits().unwrap_or_default());
    Some(work_deadline_seconds(spec, settings)?.saturating_add(waits.as_secs()))
}

pub(super) fn work_deadline_seconds(spec: &PlanSpec, settings: &JobSettings) -> Option<i64> {
    let max = Some(settings.active_deadline_seconds_max).filter(|max| *max > 0);
    let deadline = match spec.job_active_deadline_secs {
        // 0 is the user's way to say "no limit"; only the administrator's maximum overrules it (S12).
        Some(0) => None,
        Some(seconds @ 1..) => Some(seconds),
        Some(_) | None => Some(settings.active_deadline_seconds),
    };
    match (deadline, max) {
        (Some(deadline), Some(max)) => Some(deadline.min(max)),
        (deadline, max) => deadline.or(max),
    }
}

/// TTL of a finished Job in seconds: at least a minute longer than the Plan's delay (S39).
///
/// # Errors
/// Fails if `postCompleteDelay` is not a duration.
pub fn ttl_seconds(spec: &PlanSpec, settings: &JobSettings) -> Result<i32, JobError> {
    let ttl = settings.ttl_seconds_after_finish;
    let Some(delay) = &spec.post_complete_delay else {
        return Ok(ttl);
    };
    let delay: GoDuration = delay.parse().map_err(JobError::PostCompleteDelay)?;
    let kept = delay.saturating_add(GoDuration::MINUTE).as_secs();
    Ok(ttl.max(i32::try_from(kept.max(0)).unwrap_or(i32::MAX)))
}
