//! Which labels nodes need so that Plans select them: requirements are gathered per Plan, and Plans whose wishes go together
//! share their nodes.

use std::collections::{BTreeMap, BTreeSet};

use super::{Asks, CONTROL_ROLES, WORKER_ROLE};
use crate::api::names::LABEL_HOSTNAME;
use crate::api::selector::Selector;

/// What a label is to be; nothing where it must not be there.
pub(super) type Profile = BTreeMap<String, Option<String>>;

/// Values for a label that only has to be there, best first.
const PLAIN_VALUES: [&str; 5] = ["enabled", "true", "yes", "on", "1"];

/// What a node is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Control,
    Worker,
}

impl Class {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Control => "control-plane nodes",
            Self::Worker => "workers",
        }
    }
}

/// What a selector says of one label.
#[derive(Clone, Debug, Default)]
struct Requirement {
    /// It is one of these.
    one_of: Option<Vec<String>>,
    /// It is none of these, or not there.
    none_of: BTreeSet<String>,
    exists: bool,
    absent: bool,
}

impl Requirement {
    fn is_one_of(&mut self, values: impl IntoIterator<Item = String>) {
        let values: Vec<String> = values.into_iter().collect();
        self.one_of = Some(match self.one_of.take() {
            None => values,
            Some(known) => known.into_iter().filter(|value| values.contains(value)).collect(),
        });
    }

    /// Values that fulfil it, where it is to be there.
    fn values(&self) -> Vec<String> {
        let allowed = |value: &String| !self.none_of.contains(value);
        match &self.one_of {
            Some(values) => values.iter().filter(|value| allowed(value)).cloned().collect(),
            None => PLAIN_VALUES
                .map(str::to_owned)
                .into_iter()
                .filter(allowed)
                .collect(),
        }
    }

    /// What the label has to be: nothing where it does not matter, `None` where nothing can fulfil it.
    fn wish(&self) -> Option<Wish> {
        match (self.exists || self.one_of.is_some(), self.absent) {
            (true, true) => None,
            (false, true) => Some(Wish::Absent),
            (false, false) => Some(Wish::Any),
            (true, false) => self.values().into_iter().next().map(Wish::Value),
        }
    }
}

enum Wish {
    Any,
    Absent,
    Value(String),
}

fn requirements(plan: &Asks<'_>) -> BTreeMap<String, Requirement> {
    let mut all: BTreeMap<String, Requirement> = BTreeMap::new();
    let Some(selector) = plan.selector else {
        return all;
    };
    for (key, value) in selector.match_labels.iter().flatten() {
        all.entry(key.clone()).or_default().is_one_of([value.clone()]);
    }
    for expression in selector.match_expressions.iter().flatten() {
        let one = all.entry(expression.key.clone()).or_default();
        let values = expression.values.iter().flatten().cloned();
        match expression.operator.as_str() {
            "In" => one.is_one_of(values),
            "NotIn" => one.none_of.extend(values),
            "Exists" => one.exists = true,
            "DoesNotExist" => one.absent = true,
            _ => {} // no selector, which is told of elsewhere
        }
    }
    all
}

/// Why no node at all can be selected.
pub(super) fn contradiction(plan: &Asks<'_>) -> Option<String> {
    if plan.selector.is_none() {
        return Some("it has no spec.nodeSelector".to_owned());
    }
    let all = requirements(plan);
    let (key, _) = all.iter().find(|(_, one)| one.wish().is_none())?;
    Some(format!("its spec.nodeSelector contradicts itself about {key}"))
}

/// Hostnames that a Plan names.
pub(super) fn hostnames(plan: &Asks<'_>) -> Vec<String> {
    let all = requirements(plan);
    let named = all.get(LABEL_HOSTNAME).filter(|one| one.one_of.is_some());
    named.map(Requirement::values).unwrap_or_default()
}

fn is_role(key: &str) -> bool {
    CONTROL_ROLES.contains(&key) || key == WORKER_ROLE
}

/// Whether a node of these labels has the roles that the Plan asks for.
fn has_roles(all: &BTreeMap<String, Requirement>, labels: &BTreeMap<String, String>) -> bool {
    let mut roles = all.iter().filter(|(key, _)| is_role(key));
    roles.all(|(key, one)| match labels.get(key) {
        None => !one.exists && one.one_of.is_none(),
        // What stands behind a role says nothing; each distribution writes another word.
        Some(_) => !one.absent,
    })
}

/// For which of the two kinds of nodes a Plan is first of all.
pub(super) fn class_of(plan: &Asks<'_>, base: &dyn Fn(Class) -> BTreeMap<String, String>) -> Class {
    let all = requirements(plan);
    if has_roles(&all, &base(Class::Control)) && !has_roles(&all, &base(Class::Worker)) {
        Class::Control
    } else {
        Class::Worker
    }
}

/// The kinds of nodes that there have to be among those of a class, so that each Plan that is for them selects some. Plans
/// whose wishes go together share a kind.
pub(super) fn profiles(class: Class, plans: &[Asks<'_>], base: &BTreeMap<String, String>) -> Vec<Profile> {
    let other = super::base(match class {
        Class::Control => Class::Worker,
        Class::Worker => Class::Control,
    });
    let mut wants: Vec<(Profile, Selector)> = Vec::new();
    for plan in plans.iter().filter(|plan| contradiction(plan).is_none()) {
        let all = requirements(plan);
        let fits = has_roles(&all, base);
        // What is for neither kind, such as etcd nodes beside the control plane, becomes a kind of workers.
        if !fits && (class == Class::Control || has_roles(&all, &other)) {
            continue;
        }
        let Ok(mut selector) = Selector::new(plan.selector) else {
            continue;
        };
        if all.contains_key(LABEL_HOSTNAME) {
            // Names are given one by one, and are no kind of nodes.
            selector = Selector::everything();
        }
        wants.push((wishes(&all, base, fits), selector));
    }
    let mut kinds: Vec<Kind> = Vec::new();
    for (wishes, selector) in &wants {
        if !kinds.iter_mut().any(|kind| kind.takes(base, wishes, selector)) {
            kinds.push(Kind {
                profile: wishes.clone(),
                selectors: vec![selector.clone()],
            });
        }
    }
    // Each Plan is for all nodes that it can be for, and not only for the first kind of them.
    for kind in &mut kinds {
        for (wishes, selector) in &wants {
            kind.takes(base, wishes, selector);
        }
    }
    kinds.into_iter().map(|kind| kind.profile).collect()
}

/// A kind of nodes, and the Plans that select them.
struct Kind {
    profile: Profile,
    selectors: Vec<Selector>,
}

impl Kind {
    /// Has the nodes selected by one more Plan, where that goes together with the others.
    fn takes(&mut self, base: &BTreeMap<String, String>, wishes: &Profile, selector: &Selector) -> bool {
        let Some(merged) = merge(&self.profile, wishes) else {
            return false;
        };
        let worn = wear(base, &merged);
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

/// What a Plan wants that a node of this class does not have yet.
fn wishes(all: &BTreeMap<String, Requirement>, base: &BTreeMap<String, String>, roles_fit: bool) -> Profile {
    let mut wishes = Profile::new();
    for (key, one) in all {
        if key == LABEL_HOSTNAME {
            continue;
        }
        let has = base.get(key);
        let fulfilled = match has {
            Some(value) => {
                !one.absent
                    && !one.none_of.contains(value)
                    && one.one_of.as_ref().is_none_or(|values| values.contains(value))
            }
            None => !one.exists && one.one_of.is_none(),
        };
        if fulfilled && (roles_fit || !is_role(key)) {
            continue;
        }
        match one.wish() {
            Some(Wish::Value(value)) => {
                wishes.insert(key.clone(), Some(value));
            }
            Some(Wish::Absent) => {
                wishes.insert(key.clone(), None);
            }
            // The value that the node has by itself is one that the Plan does not want.
            Some(Wish::Any) if has.is_some() && !fulfilled => {
                wishes.insert(key.clone(), None);
            }
            Some(Wish::Any) | None => {}
        }
    }
    wishes
}

/// Both, where they do not contradict each other.
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

fn wear(base: &BTreeMap<String, String>, profile: &Profile) -> BTreeMap<String, String> {
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
