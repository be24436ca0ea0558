//! `spec.dependsOn`: Plans that must be complete before nodes of this one start.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;

use super::blocker::Blocker;
use super::plan::DerivedPlan;
use super::state::ClusterState;
use refit_api::ConditionType;
use refit_base::version::Version;
use refit_facts::PlanName;

/// Why a Plan waits for one that it depends on.
pub(super) fn blocker(cluster: &ClusterState, plan: &DerivedPlan, now: Timestamp) -> Option<Blocker> {
    plan.spec().depends_on.as_ref()?;
    if let Some(plans) = cycle(cluster, plan) {
        return Some(Blocker::DependencyCycle { plans });
    }
    let (known, unknown): (Vec<_>, Vec<_>) = names(plan).partition(|name| existing(cluster, name).is_some());
    if !unknown.is_empty() {
        let plans = unknown.into_iter().map(PlanName::from).collect();
        return Some(Blocker::DependencyUnknown { plans });
    }
    let mut waits = known.into_iter().filter_map(|name| {
        let other = existing(cluster, name)?;
        if other.targets.is_empty() {
            return Some(Blocker::DependencySelectsNothing { plan: name.into() });
        }
        let why = wait(plan, other, now)?;
        Some(Blocker::DependencyNotComplete {
            plan: name.into(),
            why,
        })
    });
    waits.next()
}

fn names(plan: &DerivedPlan) -> impl Iterator<Item = &str> {
    let all = plan.spec().depends_on.iter().flatten();
    all.map(|dependency| dependency.name.as_str())
}

fn existing<'a>(cluster: &'a ClusterState, name: &str) -> Option<&'a DerivedPlan> {
    cluster.plans.get(name).filter(|plan| !plan.facts.is_deleting())
}

/// Why the other Plan does not count as complete.
fn wait(plan: &DerivedPlan, other: &DerivedPlan, now: Timestamp) -> Option<String> {
    // The stored status says that all slots are free, the facts that no node has joined and no version has come since.
    let status = other.facts.status();
    let resolved = other.resolution.resolved();
    let is_current = status.observed_generation == Some(other.facts.generation())
        && resolved.is_some_and(|it| status.latest_hash.as_deref() == Some(&*it.hash));
    let is_over = is_current && status.is_true(ConditionType::Complete) && other.targets.eligible() == 0;
    // Two Plans may repeat at the same time. The status that begins the repetition of the other one may be on its way.
    let Some(theirs) = resolved.filter(|_| is_over && !other.repetition_is_due(now)) else {
        return Some("is not Complete".to_owned());
    };
    let own = &plan.resolution.resolved()?.version;
    let theirs = &theirs.version;
    let parsed = own.parse::<Version>().ok().zip(theirs.parse::<Version>().ok());
    // With `maxMinorSkip`, this Plan may be on its way to the version of one that is ahead.
    let follows = plan.spec().max_minor_skip().is_some();
    let is_behind = follows && parsed.as_ref().is_some_and(|(own, theirs)| own < theirs);
    if own != theirs && !is_behind && plan.follows_channel_of(other) {
        return Some(format!(
            "is at {theirs}, and this Plan at {own}, from the same channel"
        ));
    }
    // Kubernetes' version skew policy: a kubelet must not be newer than its API server, which the other Plan may
    // upgrade.
    let program = plan.spec().distribution();
    if program.is_some()
        && program == other.spec().distribution()
        && parsed.is_some_and(|(own, theirs)| theirs < own)
    {
        return Some(format!(
            "is at {theirs}, which is older than {own}, the version of this Plan"
        ));
    }
    None
}

/// The members of the shortest cycle that contains the Plan, in the order in which they wait, beginning with it.
fn cycle(cluster: &ClusterState, plan: &DerivedPlan) -> Option<Vec<PlanName>> {
    let own = &*plan.facts.name;
    // Each Plan that was reached, and the one that waits for it.
    let mut waiting: BTreeMap<&str, &str> = BTreeMap::new();
    let mut queue = VecDeque::from([plan]);
    while let Some(next) = queue.pop_front() {
        for name in names(next) {
            let Some(other) = existing(cluster, name) else {
                continue;
            };
            if name == own {
                let mut members = vec![next.facts.name.clone()];
                let mut member = &*next.facts.name;
                while member != own
                    && let Some(before) = waiting.get(member)
                {
                    members.push((*before).into());
                    member = before;
                }
                members.reverse();
                return Some(members);
            }
            if !waiting.contains_key(name) {
                waiting.insert(name, &next.facts.name);
                queue.push_back(other);
            }
        }
    }
    None
}
