//! What a picture has beside why nodes wait, and what metrics add to it.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::despite::Lifted;
use super::picture::PlanPicture;
use super::plan::DerivedPlan;
use super::resolve;
use super::start::schedule::{Opening, StartTimes};
use super::state::ClusterState;
use refit_api::{ChannelRef, NodeCounts, Reason};
use refit_facts::ChannelFacts;

/// Adds what does not depend on why nodes wait.
pub(super) fn describe(picture: &mut PlanPicture, cluster: &ClusterState, plan: &DerivedPlan) {
    let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let failed = picture.slots.values().filter(|state| state.failed).count();
    picture.counts = NodeCounts {
        selected: plan.targets.selected(),
        done: plan.targets.done,
        applying: count(picture.slots.len() - failed),
        waiting: count(picture.waiting),
        failed: count(failed),
        disabled: plan.targets.disabled,
        skipped: Some(count(plan.targets.skipped.len())).filter(|skipped| *skipped > 0),
    };
    let is_stopped = plan.is_suspended() || plan.is_aborted() || cluster.world.limits.are_frozen();
    picture.limit = if is_stopped { 0 } else { plan.limit() };
    picture.version = plan.resolved.as_ref().map(|resolved| resolved.version.clone());
    picture.claims_kubelets = plan.targets.claim.as_ref().is_some();
}

/// Number of waiting nodes of a Plan by reason.
pub fn waiting_by_reason(
    cluster: &ClusterState,
    plan: &str,
    picture: &PlanPicture,
) -> BTreeMap<Reason, usize> {
    let not_ready = cluster.plans.get(plan).map(|plan| plan.targets.not_ready());
    picture.waiting_by_reason(not_ready.into_iter().flatten())
}

/// When nodes of a Plan may start, unless they may at any time.
pub fn opening(cluster: &ClusterState, plan: &str, now: Timestamp) -> Option<Opening> {
    let start_times = StartTimes::of(cluster, cluster.plans.get(plan)?, &Lifted::new());
    (!start_times.are_unlimited()).then(|| start_times.opening(now))
}

/// The channel of a Plan, once it was polled.
pub fn channel<'a>(cluster: &'a ClusterState, plan: &str) -> Option<(&'a ChannelRef, ChannelFacts)> {
    let plan = cluster.plans.get(plan)?;
    let channel = plan.channel.as_ref()?;
    Some((
        channel,
        resolve::channel(&plan.facts, channel, &cluster.world.channels)?,
    ))
}
