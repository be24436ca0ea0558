//! Plans that follow another one: they wait for it, and take versions of the same channel by the same policy, as those for agents
//! do. With `maxMinorSkip`, the other one takes no further minor version before they have this one.

use std::collections::BTreeMap;

use super::plan::DerivedPlan;
use refit_api::prepare::Prepare;
use refit_base::version::Version;
use refit_facts::PlanName;

/// The oldest kubelet of the Plans that follow another one, and whose it is, by the name of that other Plan.
pub(super) fn oldest_followers(
    plans: &BTreeMap<PlanName, DerivedPlan>,
) -> BTreeMap<PlanName, (Version, String)> {
    let mut oldest: BTreeMap<PlanName, (Version, String)> = BTreeMap::new();
    for plan in plans.values() {
        let Some(limit) = plan.spec().max_minor_skip() else {
            continue;
        };
        if plan.facts.is_deleting() || plan.invalid.is_some() {
            continue;
        }
        let own = version_of(plan);
        // A node that is too far behind its own Plan does not come nearer by itself.
        let is_in_reach = |kubelet: &Version| {
            let skip = own.as_ref().and_then(|own| own.minors_from(kubelet));
            skip.is_none_or(|skip| skip <= limit)
        };
        let Some((kubelet, node)) = plan.targets.oldest_kubelet(is_in_reach) else {
            continue;
        };
        let prepare = plan.spec().prepare.as_deref().and_then(Prepare::of);
        let dependencies = plan.spec().depends_on.iter().flatten();
        let dependencies = dependencies.map(|dependency| dependency.name.as_str());
        for name in dependencies.chain(prepare.as_ref().and_then(Prepare::plan)) {
            let follows = |other: &&DerivedPlan| {
                plan.follows_channel_of(other)
                    && plan.spec().version_policy == other.spec().version_policy
                    // One that is ahead waits for the other, and would hold it for ever.
                    && !own.as_ref().zip(version_of(other).as_ref()).is_some_and(|(own, other)| own > other)
            };
            if let Some(other) = plans.get(name).filter(follows)
                && oldest.get(name).is_none_or(|(known, _)| kubelet < *known)
            {
                let node = format!("node {node} of Plan {}", plan.facts.name);
                oldest.insert(other.facts.name.clone(), (kubelet.clone(), node));
            }
        }
    }
    oldest
}

/// The version at which the last decision has found the Plan.
fn version_of(plan: &DerivedPlan) -> Option<Version> {
    plan.resolution.resolved()?.version.parse().ok()
}
