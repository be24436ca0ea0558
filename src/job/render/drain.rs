//! Arguments of the cordon and drain containers (S23, S37): kubectl's, in system-upgrade-controller's order, because on
//! Windows nodes they are passed to kubectl.

use crate::error::JobError;
use refit_api::selector::Selector;
use refit_api::{DrainSpec, DrainTimeout, PlanSpec, names};
use refit_base::go::GoDuration;

pub(super) fn cordon_args(node: &str) -> Vec<String> {
    ["cordon", node].map(str::to_owned).into()
}

/// `prepulls`: a pod may be there that pulls the image, and has an emptyDir, which may stop a drain.
pub(super) fn drain_args(drain: &DrainSpec, node: &str, prepulls: bool) -> Result<Vec<String>, JobError> {
    let mut args = ["drain", node, "--pod-selector"].map(str::to_owned).to_vec();
    let mut selector = pod_selector(drain)?;
    if prepulls {
        let others = Selector::does_not_exist(names::LABEL_PREPULL).map_err(JobError::PodSelector)?;
        selector = others.and(selector);
    }
    args.push(selector.to_string());
    let mut add = |flag: &[&str]| args.extend(flag.iter().map(|part| (*part).to_owned()));
    if drain.ignore_daemon_sets.unwrap_or(true) {
        add(&["--ignore-daemonsets"]);
    }
    // `deleteLocalData` is the name that kubectl 1.19 and older used. Either of the two switches the flag off (S37).
    if drain.delete_local_data.unwrap_or(true) && drain.delete_emptydir_data.unwrap_or(true) {
        add(&["--delete-emptydir-data"]);
    }
    if drain.force.unwrap_or_default() {
        add(&["--force"]);
    }
    match &drain.timeout {
        // A number is what Go serializes a duration to. kubectl refuses a number without a unit, so it is written
        // with one.
        Some(DrainTimeout::Nanoseconds(nanos)) => {
            add(&["--timeout", &GoDuration::from_nanos(*nanos).to_string()]);
        }
        Some(DrainTimeout::Text(text)) => add(&["--timeout", text]),
        None => {}
    }
    // Also for 0, which kills the pods at once: an absent flag means the own grace period of each pod.
    if let Some(seconds) = drain.grace_period {
        add(&["--grace-period", &seconds.to_string()]);
    }
    if drain.disable_eviction.unwrap_or_default() {
        // With a value, as system-upgrade-controller writes it; the arguments of two Jobs are compared byte for byte
        // (S37).
        add(&["--disable-eviction=true"]);
    }
    if let Some(seconds @ 1..) = drain.skip_wait_for_delete_timeout {
        add(&["--skip-wait-for-delete-timeout", &seconds.to_string()]);
    }
    Ok(args)
}

/// The arguments of the drain of a node: those of its container, and of the forecast that the controller makes.
///
/// # Errors
/// Fails if a selector is invalid.
pub fn drain_command(
    spec: &PlanSpec,
    drain: &DrainSpec,
    node: &str,
    windows: bool,
) -> Result<Vec<String>, JobError> {
    let mut args = drain_args(drain, node, spec.prepulls())?;
    // On Windows it is kubectl that drains, which has no such flags.
    if !windows {
        args.extend(own_args(spec, drain)?);
    }
    Ok(args)
}

/// The flags that kubectl does not have.
fn own_args(spec: &PlanSpec, drain: &DrainSpec) -> Result<Vec<String>, JobError> {
    let mut args = Vec::new();
    if drain.wait_for_detach.unwrap_or_default() {
        args.push("--wait-for-detach".to_owned());
    }
    let flags = [
        ("load-balancer-delay", drain.load_balancer_delay.clone()),
        ("settle-delay", drain.settle_delay.clone()),
        (
            "after-timeout",
            drain.after_timeout.map(|after| after.as_str().to_lowercase()),
        ),
    ];
    let flags = flags
        .into_iter()
        .filter_map(|(flag, value)| Some(format!("--{flag}={}", value?)));
    args.extend(flags);
    for wait in spec.drain_waits().unwrap_or_default() {
        args.push(format!("--wait-for={wait}"));
    }
    for group in drain.order.iter().flatten() {
        let group = Selector::new(Some(group)).map_err(JobError::PodSelector)?;
        args.push(format!("--evict-last={group}"));
    }
    Ok(args)
}

/// Selects the pods to evict: those of the Plan's selector, but never those of upgrades, one of which runs this drain.
pub(super) fn pod_selector(drain: &DrainSpec) -> Result<Selector, JobError> {
    let others = Selector::does_not_exist(names::LABEL_CONTROLLER).map_err(JobError::PodSelector)?;
    match &drain.pod_selector {
        // An absent selector means all pods here. Elsewhere in Kubernetes it selects none (`LabelSelectorAsSelector`).
        None => Ok(others),
        chosen => Selector::new(chosen.as_ref())
            .map(|chosen| others.and(chosen))
            .map_err(JobError::PodSelector),
    }
}

#[cfg(test)]
mod tests;
