//! Validates and parses Plans, with the messages of `Validated=False`.
//!
//! system-upgrade-controller's checks come first, in its order and with its messages (S53). Checks of what it accepts
//! although it can never work follow, in the order of the fields: there it causes Jobs that the API server refuses or that
//! fail on every node. Images are not checked here, because they must not block `LatestResolved`.
//!
//! Pure: the caller checks whether Secrets exist.

mod failure;
mod hooks;
mod names;
mod reboot;
mod schedule;
mod settle;
mod trigger;

use std::sync::Arc;

use jiff::SignedDuration;
use jiff::tz::TimeZone;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

pub use names::{MAX_CHANNEL, MAX_PLAN_NAME_LEN, MAX_SECRETS, validate_secrets};
pub use schedule::MAX_SCHEDULE_ENTRIES;

use super::check::Check;
use super::invalid::{ErrorList, Invalid, at};
use super::node_info::NodeInfoSelector;
use super::order::Criterion;
use super::plan::{AfterTimeout, DrainTimeout, PlanSpec};
use super::pod_blocker::PodBlocker;
use super::repeat::Repeat;
use super::schedule::{Blackout, Windows};
use super::selector::Selector;
use super::wave::Wave;
use refit_base::go::GoDuration;
use refit_base::version::policy::Policy;

/// The parts of a spec that have a form of their own, parsed. A part that is invalid has its default, and of windows and
/// blackouts the valid ones remain: no node starts, but nodes in progress still need the rest.
#[derive(Clone, Debug, Default)]
pub struct ParsedSpec {
    /// Those of `windows`, or the one of `window`.
    pub windows: Option<Windows>,
    pub blackouts: Vec<Blackout>,
    pub repeat: Option<Repeat>,
    pub post_complete_delay: SignedDuration,
    /// `None` if it is invalid: then no version is taken.
    pub version_policy: Option<Policy>,
    pub order: Vec<Criterion>,
    pub waves: Vec<Wave>,
    pub checks: Vec<Check>,
    pub node_info: NodeInfoSelector,
    pub pod_blockers: Arc<[PodBlocker]>,
}

/// Parses a Plan of this name, for callers to which the zone that `Local` means does not matter.
///
/// # Errors
/// Fails with all errors.
pub fn validate(name: &str, spec: &PlanSpec) -> Result<ParsedSpec, ErrorList> {
    let (parsed, errors) = ParsedSpec::parse(name, spec, &TimeZone::UTC);
    errors.finish(Some(parsed))
}

impl ParsedSpec {
    /// What can be parsed of a Plan of this name, and all errors. `local` is the zone of the process.
    pub fn parse(name: &str, spec: &PlanSpec, local: &TimeZone) -> (Self, ErrorList) {
        let mut errors = ErrorList::default();
        check_drain_as_upstream(spec, &mut errors);
        let window = errors.take(schedule::window(spec, local)).flatten();
        let delay = errors.take(schedule::post_complete_delay(spec));

        errors.take(names::plan_name(name));
        errors.take(node_limit("maxConcurrent", spec.max_concurrent.as_ref()));
        errors.take(node_limit("maxUnavailable", spec.max_unavailable.as_ref()));
        let order = errors.take(spec.order()).unwrap_or_default();
        let waves = errors.take(spec.waves()).unwrap_or_default();
        let checks = errors.take(spec.checks()).unwrap_or_default();
        failure::check(spec, &mut errors);
        let node_info = errors.take(spec.node_info()).unwrap_or_default();
        names::check_channel(spec, &mut errors);
        errors.take(names::version(spec));
        let version_policy = errors.take(spec.version_policy());
        names::check_dependencies(name, spec, &mut errors);
        trigger::check_trigger(spec, &mut errors);
        let windows = schedule::windows(spec, local, &mut errors);
        let blackouts = schedule::blackouts(spec, local, &mut errors);
        errors.take(schedule::not_before(spec));
        let repeat = errors.take(spec.repeat(local)).flatten();
        trigger::check_repeat(spec, &mut errors);
        check_drain(spec, &mut errors);
        let pod_blockers = errors.take(spec.pod_blockers()).unwrap_or_default().into();
        errors.take(validate_secrets(spec));
        names::check_complete_labels(spec, &mut errors);
        reboot::check_reboot(spec, &mut errors);
        reboot::check_settle(spec, &mut errors);
        settle::check(spec, &mut errors);
        errors.take(trigger::on_drift(spec));
        hooks::check(spec, &mut errors);

        let parsed = Self {
            windows: window.or(windows),
            blackouts,
            repeat,
            post_complete_delay: delay.unwrap_or_default(),
            version_policy,
            order,
            waves,
            checks,
            node_info,
            pod_blockers,
        };
        (parsed, errors)
    }
}

fn check_drain_as_upstream(spec: &PlanSpec, errors: &mut ErrorList) {
    let Some(drain) = &spec.drain else { return };
    if drain.delete_emptydir_data.is_some() && drain.delete_local_data.is_some() {
        let problem = "spec.drain cannot specify both deleteEmptydirData and deleteLocalData";
        let error = at("drain.deleteLocalData").says(problem);
        errors.push(error.hint("remove it; deleteEmptydirData is the newer name"));
    }
    // A selector that is present selects something if it is valid: `{}` means all pods. The message has no prefix.
    let selector = Selector::new(drain.pod_selector.as_ref());
    errors.take(selector.map_err(|error| at("drain.podSelector").says(error.to_string())));
}

fn check_drain(spec: &PlanSpec, errors: &mut ErrorList) {
    let Some(drain) = &spec.drain else { return };
    // With another timeout every drain would fail.
    if let Some(DrainTimeout::Text(timeout)) = &drain.timeout {
        errors.take(at("drain.timeout").parse::<GoDuration>(timeout));
    }
    for (field, delay) in [
        ("drain.loadBalancerDelay", &drain.load_balancer_delay),
        ("drain.settleDelay", &drain.settle_delay),
    ] {
        let delay = delay
            .as_ref()
            .and_then(|delay| errors.take(at(field).parse::<GoDuration>(delay)));
        if delay.is_some_and(GoDuration::is_negative) {
            errors.push(at(field).invalid("is negative: it must be 0s or longer"));
        }
    }
    if drain.load_balancer_delay.is_some() && !drain.exclude_from_load_balancers.unwrap_or_default() {
        let problem =
            "waits for load balancers, which see no change without spec.drain.excludeFromLoadBalancers: true";
        errors.push(at("drain.loadBalancerDelay").invalid(problem));
    }
    let is_endless = match &drain.timeout {
        None | Some(DrainTimeout::Nanoseconds(0)) => true,
        Some(DrainTimeout::Nanoseconds(_)) => false,
        Some(DrainTimeout::Text(text)) => text.parse() == Ok(GoDuration::ZERO),
    };
    if let Some(after) = drain
        .after_timeout
        .filter(|after| *after != AfterTimeout::Fail && is_endless)
    {
        let problem = format!(
            "is {}, and the drain has no spec.drain.timeout after which that could happen",
            after.as_str()
        );
        errors.push(at("drain.afterTimeout").invalid(problem));
    }
    errors.take(spec.drain_order());
    errors.take(spec.drain_waits());
}

fn node_limit(field: &str, limit: Option<&IntOrString>) -> Result<(), Invalid> {
    limit.map_or(Ok(()), |limit| at(field).node_limit(limit).map(drop))
}

#[cfg(test)]
mod tests;
