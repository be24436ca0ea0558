//! Computes the labels that nodes need so that Plans select them. Requirements are collected for each Plan, and Plans
//! with compatible requirements share nodes.

use std::collections::BTreeMap;

use super::distribution::{Roles, is_role};
use super::{CONTROL_PLANE, MASTER, PlanSelector, ROLE_PREFIX, WORKER};
use refit_api::names::{LABEL_HOSTNAME, LABEL_OS};
use refit_api::selector::{LabelConstraint, Selector, constraints};

/// Wanted labels; `None` means that the label must be absent.
pub(super) type Profile = BTreeMap<String, Option<String>>;

/// Values for a label that must exist, best first.
const PLAIN_VALUES: [&str; 5] = ["enabled", "true", "yes", "on", "1"];

/// The class of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeRole {
    Control,
    /// A dedicated etcd node.
    Etcd,
    Worker,
}

impl NodeRole {
    pub(super) const ALL: [Self; 3] = [Self::Control, Self::Etcd, Self::Worker];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Control => "control-plane nodes",
            Self::Etcd => "etcd nodes",
            Self::Worker => "workers",
        }
    }
}

/// Whether a label with this value, or its absence, satisfies the requirement.
fn holds(one: &LabelConstraint, value: Option<&String>) -> bool {
    value.map_or(!one.present, |value| one.permits(value))
}

pub(super) fn requirements<'p>(plan: &PlanSelector<'p>) -> BTreeMap<&'p str, LabelConstraint> {
    plan.selector.map(constraints).unwrap_or_default()
}

/// Why a Plan cannot select any node, whatever its labels.
pub fn contradiction(plan: &PlanSelector<'_>) -> Option<String> {
    if plan.selector.is_none() {
        return Some("it has no spec.nodeSelector".to_owned());
    }
    let all = requirements(plan);
    let (key, _) = all.iter().find(|(_, one)| one.is_impossible())?;
    Some(format!("its spec.nodeSelector contradicts itself about {key}"))
}

/// Hostnames that a Plan names.
pub(super) fn hostnames(plan: &PlanSelector<'_>) -> Vec<String> {
    let all = requirements(plan);
    let Some(one) = all.get(LABEL_HOSTNAME) else {
        return Vec::new();
    };
    let named = one.allowed.iter().flatten();
    named.filter(|name| one.permits(name)).cloned().collect()
}

/// Whether nodes of a class have the required roles, or may get them.
fn has_roles(all: &BTreeMap<&str, LabelConstraint>, roles: &Roles, role: NodeRole) -> bool {
    let labels = roles.labels(role);
    let is_for_control = [CONTROL_PLANE, MASTER]
        .iter()
        .any(|role| all.get(*role).is_some_and(|one| one.present));
    if role != NodeRole::Worker {
        let is_other_role = |key: &str| key.starts_with(ROLE_PREFIX) && !is_role(key);
        let mut others = all.iter().filter(|(key, _)| is_other_role(key));
        // Only workers run Windows, and people give other roles to workers.
        let linux = "linux".to_owned();
        let is_windows = all.get(LABEL_OS).is_some_and(|one| !holds(one, Some(&linux)));
        if is_windows || (!is_for_control && others.any(|(_, one)| one.present)) {
            return false;
        }
    }
    let mut asked = all.iter().filter(|(key, _)| is_role(key));
    asked.all(|(key, one)| match labels.get(*key) {
        // Servers may also be workers if a Plan requires both roles.
        None if *key == WORKER && role == NodeRole::Control => is_for_control || holds(one, None),
        None => holds(one, None),
        // No distribution sets the role, so people did, with any value.
        Some(value) if !roles.is_given(key) && one.present => {
            one.first_value().is_some() || holds(one, Some(value))
        }
        Some(value) => holds(one, Some(value)),
    })
}

/// The main class of nodes of a Plan.
pub(super) fn role_of(plan: &PlanSelector<'_>, roles: &Roles) -> NodeRole {
    let all = requirements(plan);
    let fits = |role| has_roles(&all, roles, role);
    match (
        fits(NodeRole::Worker),
        fits(NodeRole::Control),
        fits(NodeRole::Etcd),
    ) {
        (false, true, _) => NodeRole::Control,
        (false, false, true) if roles.has_etcd_nodes() => NodeRole::Etcd,
        _ => NodeRole::Worker,
    }
}

/// The label profiles needed among the nodes of a class, so that each Plan for the class selects some. Plans with
/// compatible requirements share a profile.
pub(super) fn profiles(
    role: NodeRole,
    plans: &[PlanSelector<'_>],
    base: &BTreeMap<String, String>,
    roles: &Roles,
) -> Vec<Profile> {
    let mut wants: Vec<(Profile, Selector)> = Vec::new();
    for plan in plans.iter().filter(|plan| contradiction(plan).is_none()) {
        let all = requirements(plan);
        let fits = has_roles(&all, roles, role);
        if !fits && (role != NodeRole::Worker || is_elsewhere(&all, roles)) {
            continue;
        }
        let Ok(mut selector) = Selector::new(plan.selector) else {
            continue;
        };
        if all.contains_key(LABEL_HOSTNAME) {
            // Hostnames are assigned one by one, without a profile.
            selector = Selector::everything();
        }
        wants.push((wishes(&all, base, fits, roles), selector));
    }
    let mut kinds: Vec<ProfileGroup> = Vec::new();
    for (wishes, selector) in &wants {
        if !kinds.iter_mut().any(|kind| kind.try_add(base, wishes, selector)) {
            kinds.push(ProfileGroup {
                profile: wishes.clone(),
                selectors: vec![selector.clone()],
            });
        }
    }
    // A Plan applies to all profiles that it can, not only to the first one.
    for kind in &mut kinds {
        for (wishes, selector) in &wants {
            kind.try_add(base, wishes, selector);
        }
    }
    kinds.into_iter().map(|kind| kind.profile).collect()
}

/// Whether a Plan requires roles that workers do not have: other nodes have them, or no node of this distribution can.
/// A Plan for neither gets a profile of workers.
fn is_elsewhere(all: &BTreeMap<&str, LabelConstraint>, roles: &Roles) -> bool {
    if has_roles(all, roles, NodeRole::Control)
        || (roles.has_etcd_nodes() && has_roles(all, roles, NodeRole::Etcd))
    {
        return true;
    }
    all.iter().any(|(key, one)| roles.is_given(key) && one.present)
}

/// A profile, and the Plans that select it.
struct ProfileGroup {
    profile: Profile,
    selectors: Vec<Selector>,
}

impl ProfileGroup {
    /// Adds a Plan to the profile, if the requirements are compatible.
    fn try_add(&mut self, base: &BTreeMap<String, String>, wishes: &Profile, selector: &Selector) -> bool {
        let Some(merged) = merge(&self.profile, wishes) else {
            return false;
        };
        let worn = apply_profile(base, &merged);
        let all_match = self
            .selectors
            .iter()
            .chain([selector])
            .all(|one| one.matches(&worn));
        if all_match {
            self.profile = merged;
            self.selectors.push(selector.clone());
        }
        all_match
    }
}

/// Labels that a Plan requires and a node of this class lacks.
fn wishes(
    all: &BTreeMap<&str, LabelConstraint>,
    base: &BTreeMap<String, String>,
    roles_fit: bool,
    roles: &Roles,
) -> Profile {
    let mut wishes = Profile::new();
    for (key, one) in all {
        if *key == LABEL_HOSTNAME {
            continue;
        }
        let has = base.get(*key);
        let fulfilled = holds(one, has);
        if fulfilled && (roles_fit || !is_role(key)) {
            continue;
        }
        let value = match &one.allowed {
            _ if !one.present => None,
            Some(_) => one.first_value().cloned(),
            None => {
                let plain = roles.plain_value(key).into_iter().chain(PLAIN_VALUES);
                plain.map(str::to_owned).find(|value| one.permits(value))
            }
        };
        // Without a value, the Plan excludes the label, or the node's own value.
        if value.is_some() || !one.present && (one.absent || has.is_some() && !fulfilled) {
            wishes.insert((*key).to_owned(), value);
        }
    }
    wishes
}

/// Both profiles together, unless they conflict.
fn merge(one: &Profile, other: &Profile) -> Option<Profile> {
    let mut merged = one.clone();
    for (key, value) in other {
        match merged.get(key) {
            Some(known) if known != value => return None,
            _ => {
                merged.insert(key.clone(), value.clone());
            }
        }
    }
    Some(merged)
}

pub(super) fn apply_profile(base: &BTreeMap<String, String>, profile: &Profile) -> BTreeMap<String, String> {
    let mut labels = base.clone();
    for (key, value) in profile {
        match value {
            Some(value) => {
                labels.insert(key.clone(), value.clone());
            }
            None => {
                labels.remove(key);
            }
        }
    }
    labels
}
