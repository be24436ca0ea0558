//! Checks the Jobs of a Plan before one is created, for what the API server would refuse, or what would fail, on every
//! node.

use super::limits::{ttl_seconds, work_deadline_seconds};
use super::{drain, plan_containers, volumes};
use crate::error::JobError;
use crate::job_input::PlanInput;
use crate::name::{is_label_value, is_plan_label};
use crate::settings::JobSettings;
use refit_api::{AfterTimeout, ContainerSpec, DrainTimeout, HostAccess, PlanSpec, image};
use refit_base::go::GoDuration;

/// A remark that prevents no Job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Remark {
    /// The controller forbids security contexts in Plans.
    #[error("the security context of {container} is ignored: ALLOW_USER_DEFINED_SECURITY_CONTEXT is false")]
    SecurityContextIgnored { container: &'static str },
    #[error("the drain's timeout exceeds the deadline of the Job")]
    DrainTimeoutExceedsDeadline,
    #[error("the drain's timeout and delays add up to {0}, which exceeds the deadline of the Job")]
    DrainExceedsDeadline(GoDuration),
}

/// The result of [`check`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Errors that prevent Jobs, on all nodes or on Windows nodes only.
    pub errors: Vec<JobError>,
    /// Remarks that prevent no Job.
    pub remarks: Vec<Remark>,
}

/// Checks the Jobs of a Plan before a node is selected.
///
/// It reports everything on which [`render`](crate::render::render) fails, and invalid images, which it accepts.
pub fn check(plan: &PlanInput<'_>, settings: &JobSettings) -> Findings {
    let spec = plan.spec;
    let mut errors = name_errors(plan, settings);
    for (container, of) in all_containers(spec) {
        if let Err(error) = image::tagged(&of.image, plan.latest_version) {
            errors.push(JobError::Image {
                container,
                image: of.image.clone(),
                error,
            });
        }
    }
    errors.extend(ttl_seconds(spec, settings).err());
    errors.extend(
        spec.drain
            .as_ref()
            .and_then(|drain| drain::pod_selector(drain).err()),
    );
    errors.extend(volumes::errors(spec));
    if settings.own_image.is_empty() && uses_own_image(spec) {
        errors.push(JobError::OwnImage);
    }
    // No node is known here, so the caller applies the errors of `is_for_windows` to Windows nodes only.
    if settings.kubectl_image_windows.is_empty() {
        errors.push(JobError::KubectlImageWindows);
    }
    errors.extend(windows_errors(spec));

    let mut remarks: Vec<_> = all_containers(spec)
        .filter(|(_, of)| of.security_context.is_some() && !settings.allow_user_defined_security_context)
        .map(|(container, _)| Remark::SecurityContextIgnored { container })
        .collect();
    let deadline =
        work_deadline_seconds(spec, settings).and_then(|seconds| seconds.checked_mul(1_000_000_000));
    remarks.extend(deadline.and_then(|deadline| {
        let exceeds = |time: &GoDuration| time.as_nanos() > deadline;
        let by_timeout = drain_timeout(spec).filter(exceeds);
        let by_timeout = by_timeout.map(|_| Remark::DrainTimeoutExceedsDeadline);
        by_timeout.or_else(|| {
            longest_drain(spec)
                .filter(exceeds)
                .map(Remark::DrainExceedsDeadline)
        })
    }));
    Findings { errors, remarks }
}

/// The containers of the Jobs that the Plan defines, and their names; hooks come last.
pub fn all_containers(spec: &PlanSpec) -> impl Iterator<Item = (&'static str, &ContainerSpec)> {
    let hooks = plan_containers::of_hooks(spec).map(|(name, hook)| (name, &hook.container));
    plan_containers::of_plan(spec).chain(hooks)
}

/// Whether the Jobs of the Plan run refit in addition to the Plan's own containers.
fn uses_own_image(spec: &PlanSpec) -> bool {
    spec.cordon.unwrap_or_default() || spec.drain.is_some() || spec.may_reboot()
}

/// Errors that apply to Windows nodes only.
pub(super) fn windows_errors(spec: &PlanSpec) -> Vec<JobError> {
    let mut errors = Vec::new();
    if spec.has_sentinel() {
        errors.push(JobError::RebootOnWindows(spec.reboot_when()));
    }
    if spec.host_access() != HostAccess::Full {
        errors.push(JobError::HostAccessOnWindows(spec.host_access()));
    }
    errors
}

/// The timeout of the drain, if the Plan sets one.
fn drain_timeout(spec: &PlanSpec) -> Option<GoDuration> {
    match spec.drain.as_ref()?.timeout.as_ref()? {
        DrainTimeout::Nanoseconds(nanos) => Some(GoDuration::from_nanos(*nanos)),
        DrainTimeout::Text(text) => text.parse().ok(),
    }
}

/// How long a drain may take, with its delays. Pods that are deleted after the timeout get as long again, each group of them.
fn longest_drain(spec: &PlanSpec) -> Option<GoDuration> {
    let drain = spec.drain.as_ref()?;
    let deletes = drain.after_timeout == Some(AfterTimeout::Delete);
    let groups = 1 + drain.order.iter().flatten().count();
    let rounds = 1 + if deletes { groups } else { 0 };
    let timeouts = std::iter::repeat_with(|| drain_timeout(spec))
        .take(rounds)
        .flatten();
    let delays = [&drain.load_balancer_delay, &drain.settle_delay];
    let delays = delays
        .into_iter()
        .filter_map(|delay| delay.as_ref()?.parse().ok());
    let all = timeouts.chain(delays).filter(|time| !time.is_negative());
    Some(all.fold(GoDuration::ZERO, GoDuration::saturating_add))
}

pub(super) fn first(errors: Vec<JobError>) -> Result<(), JobError> {
    errors.into_iter().next().map_or(Ok(()), Err)
}

/// Fails if the Plan's names can be on no object.
pub(crate) fn names(plan: &PlanInput<'_>, settings: &JobSettings) -> Result<(), JobError> {
    first(name_errors(plan, settings))
}

/// Errors of names that are not label values, and of a missing hash (W12).
fn name_errors(plan: &PlanInput<'_>, settings: &JobSettings) -> Vec<JobError> {
    let mut errors = Vec::new();
    if !is_plan_label(plan.name) {
        errors.push(JobError::PlanName(plan.name.to_owned()));
    }
    if !is_label_value(&settings.controller_name) {
        errors.push(JobError::ControllerName(settings.controller_name.clone()));
    }
    if !is_label_value(plan.latest_version) {
        errors.push(JobError::Version(plan.latest_version.to_owned()));
    }
    if plan.latest_hash.is_empty() {
        errors.push(JobError::NoHash);
    }
    errors
}

#[cfg(test)]
mod tests;
