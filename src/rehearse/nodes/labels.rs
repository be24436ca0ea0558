//! Computes the labels that nodes need so that Plans select them. Requirements are collected for each Plan, and Plans
//! with compatible requirements share nodes.

use std::collections::{BTreeMap, BTreeSet};

use super::distribution::{Roles, is_role};
use super::{CONTROL_PLANE, CONTROLPLANE, MASTER, PlanSelector, ROLE_PREFIX, WORKER};
use refit_api::names::{LABEL_HOSTNAME, LABEL_OS};
use refit_api::selector::Selector;

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

/// The requirements of a selector for one label.
#[derive(Clone, Debug, Default)]
pub(super) struct Requirement {
    pub(super) one_of: Option<Vec<String>>,
    /// Excluded values; the label may also be absent.
    pub(super) none_of: BTreeSet<String>,
    exists: bool,
    absent: bool,
}

impl Requirement {
    fn restrict_to(&mut self, values: impl IntoIterator<Item = String>) {
        let values: Vec<String> = values.into_iter().collect();
        self.one_of = Some(match self.one_of.take() {
            None => values,
            Some(known) => known.into_iter().filter(|value| values.contains(value)).collect(),
        });
    }

    /// Whether the label must exist.
    pub(super) fn is_positive(&self) -> bool {
        self.exists || self.one_of.is_some()
    }

    /// Whether the label must be absent, or must not have its usual value.
    pub(super) fn is_negative(&self) -> bool {
        !self.is_positive() && (self.absent || !self.none_of.is_empty())
    }

    /// The first value that is named and allowed.
    pub(super) fn first_value(&self) -> Option<String> {
        let values = self.one_of.iter().flatten();
        values
            .into_iter()
            .find(|value| !self.none_of.contains(*value))
            .cloned()
    }

    /// Whether a label with this value, or its absence, satisfies the requirement.
    fn holds(&self, value: Option<&String>) -> bool {
        match value {
            None => !self.is_positive(),
            Some(value) => {
                !self.absent
                    && !self.none_of.contains(value)
                    && self.one_of.as_ref().is_none_or(|values| values.contains(value))
            }
        }
    }

    /// Values that satisfy the requirement.
    fn values(&self, best: Option<&str>) -> Vec<String> {
        let allowed = |value: &String| !self.none_of.contains(value);
        match &self.one_of {
            Some(values) => values.iter().filter(|value| allowed(value)).cloned().collect(),
            None => best
                .into_iter()
                .chain(PLAIN_VALUES)
                .map(str::to_owned)
                .filter(allowed)
                .collect(),
        }
    }

    /// The wanted label; `None` if the requirement cannot be satisfied.
    fn wish(&self, best: Option<&str>) -> Option<WantedLabel> {
        match (self.exists || self.one_of.is_some(), self.absent) {
            (true, true) => None,
            (false, true) => Some(WantedLabel::Absent),
            (false, false) => Some(WantedLabel::Any),
            (true, false) => self.values(best).into_iter().next().map(WantedLabel::Value),
        }
    }
}

enum WantedLabel {
    Any,
    Absent,
    Value(String),
}

pub(super) fn requirements(plan: &PlanSelector<'_>) -> BTreeMap<String, Requirement> {
    let mut all: BTreeMap<String, Requirement> = BTreeMap::new();
    let Some(selector) = plan.selector else {
        return all;
    };
    for (key, value) in selector.match_labels.iter().flatten() {
        all.entry(key.clone()).or_default().restrict_to([value.clone()]);
    }
    for expression in selector.match_expressions.iter().flatten() {
        let one = all.entry(expression.key.clone()).or_default();
        let values = expression.values.iter().flatten().cloned();
        match expression.operator.as_str() {
            "In" => one.restrict_to(values),
            "NotIn" => one.none_of.extend(values),
            "Exists" => one.exists = true,
            "DoesNotExist" => one.absent = true,
            _ => {} // an invalid selector, which is reported elsewhere
        }
    }
    all
}

/// Why no node can be selected.
pub(super) fn contradiction(plan: &PlanSelector<'_>) -> Option<String> {
    if plan.selector.is_none() {
        return Some("it has no spec.nodeSelector".to_owned());
    }
    let all = requirements(plan);
    let (key, _) = all.iter().find(|(_, one)| one.wish(None).is_none())?;
    Some(format!("its spec.nodeSelector contradicts itself about {key}"))
}

/// Hostnames that a Plan names.
pub(super) fn hostnames(plan: &PlanSelector<'_>) -> Vec<String> {
    let all = requirements(plan);
    let named = all.get(LABEL_HOSTNAME).filter(|one| one.one_of.is_some());
    named.map(|one| one.values(None)).unwrap_or_default()
}

/// Whether nodes of a class have the required roles, or may get them.
fn has_roles(all: &BTreeMap<String, Requirement>, roles: &Roles, role: NodeRole) -> bool {
    let labels = roles.labels(role);
    let is_for_control = [CONTROL_PLANE, MASTER, CONTROLPLANE]
        .iter()
        .any(|role| all.get(*role).is_some_and(Requirement::is_positive));
    if role != NodeRole::Worker {
        let is_other_role = |key: &str| key.starts_with(ROLE_PREFIX) && !is_role(key);
        let mut others = all.iter().filter(|(key, _)| is_other_role(key));
        // Only workers run Windows, and people give other roles to workers.
        let linux = "linux".to_owned();
        let is_windows = all.get(LABEL_OS).is_some_and(|one| !one.holds(Some(&linux)));
        if is_windows || (!is_for_control && others.any(|(_, one)| one.is_positive())) {
            return false;
        }
    }
    let mut asked = all.iter().filter(|(key, _)| is_role(key));
    asked.all(|(key, one)| match labels.get(key) {
        // Servers may also be workers if a Plan requires both roles.
        None if key == WORKER && role == NodeRole::Control => is_for_control || one.holds(None),
        None => one.holds(None),
        // No distribution sets the role, so people did, with any value.
        Some(value) if !roles.is_given(key) && one.is_positive() => {
            one.first_value().is_some() || one.holds(Some(value))
        }
        Some(value) => one.holds(Some(value)),
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
fn is_elsewhere(all: &BTreeMap<String, Requirement>, roles: &Roles) -> bool {
    if has_roles(all, roles, NodeRole::Control)
        || (roles.has_etcd_nodes() && has_roles(all, roles, NodeRole::Etcd))
    {
        return true;
    }
    all.iter()
        .any(|(key, one)| roles.is_given(key) && one.is_positive())
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
    all: &BTreeMap<String, Requirement>,
    base: &BTreeMap<String, String>,
    roles_fit: bool,
    roles: &Roles,
) -> Profile {
    let mut wishes = Profile::new();
    for (key, one) in all {
        if key == LABEL_HOSTNAME {
            continue;
        }
        let has = base.get(key);
        let fulfilled = one.holds(has);
        if fulfilled && (roles_fit || !is_role(key)) {
            continue;
        }
        match one.wish(roles.plain_value(key)) {
            Some(WantedLabel::Value(value)) => {
                wishes.insert(key.clone(), Some(value));
            }
            Some(WantedLabel::Absent) => {
                wishes.insert(key.clone(), None);
            }
            // The Plan excludes the node's own value.
            Some(WantedLabel::Any) if has.is_some() && !fulfilled => {
                wishes.insert(key.clone(), None);
            }
            Some(WantedLabel::Any) | None => {}
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
