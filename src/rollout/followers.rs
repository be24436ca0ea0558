//! Plans that follow another one: they wait for it, and take versions of the same channel by the same policy, as those for agents
//! do. With `maxMinorSkip`, the other one takes no further minor version before they have this one.

use std::collections::BTreeMap;

use super::plan::DerivedPlan;
use refit_api::prepare::Prepare;
use refit_base::version::Version;
use refit_facts::PlanName;

/// The oldest kubelet of the Plans that follow another one, by the name of that other Plan.
pub(super) fn oldest_followers(plans: &BTreeMap<PlanName, DerivedPlan>) -> BTreeMap<PlanName, Version> {
    let mut oldest: BTreeMap<PlanName, Version> = BTreeMap::new();
    for plan in plans.values() {
        if plan.facts.is_deleting() || plan.spec().max_minor_skip().is_none() {
            continue;
        }
        let prepare = plan.spec().prepare.as_deref().and_then(Prepare::of);
        let dependencies = plan.spec().depends_on.iter().flatten();
        let dependencies = dependencies.map(|dependency| dependency.name.as_str());
        for name in dependencies.chain(prepare.as_ref().and_then(Prepare::plan)) {
            let other = plans.get(name).filter(|other| {
                plan.follows_channel_of(other) && plan.spec().version_policy == other.spec().version_policy
            });
            if let Some(other) = other
                && let Some(own) = plan.targets.oldest_kubelet()
                && oldest.get(name).is_none_or(|known| own < *known)
            {
                oldest.insert(other.facts.name.clone(), own);
            }
        }
    }
    oldest
}
