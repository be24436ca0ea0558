//! What a selector requires of the label with one key.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

#[derive(Clone, Debug, Default)]
pub struct LabelConstraint {
    /// Whether the label must exist.
    pub present: bool,
    /// Whether it must not exist.
    pub absent: bool,
    /// The allowed values, as they are named; `None` allows any.
    pub allowed: Option<Vec<String>>,
    /// Excluded values; the label may also be absent.
    pub denied: BTreeSet<String>,
}

impl LabelConstraint {
    pub fn require(&mut self, operator: &str, values: Vec<String>) {
        match operator {
            "In" => {
                self.present = true;
                self.allowed = Some(match self.allowed.take() {
                    Some(allowed) => allowed
                        .into_iter()
                        .filter(|value| values.contains(value))
                        .collect(),
                    None => values,
                });
            }
            "NotIn" => self.denied.extend(values),
            "Exists" => self.present = true,
            "DoesNotExist" => self.absent = true,
            _ => {} // an invalid selector, which is reported elsewhere
        }
    }

    pub fn is_impossible(&self) -> bool {
        (self.present && self.absent) || (self.allowed.is_some() && self.first_value().is_none())
    }

    /// The first value that is named and allowed.
    pub fn first_value(&self) -> Option<&String> {
        self.allowed.iter().flatten().find(|value| self.permits(value))
    }

    /// Whether the label may have this value.
    pub fn permits(&self, value: &str) -> bool {
        let is_allowed = |allowed: &Vec<String>| allowed.iter().any(|one| one == value);
        let is_allowed = self.allowed.as_ref().is_none_or(is_allowed);
        !self.absent && is_allowed && !self.denied.contains(value)
    }
}

/// What a selector requires, by the key of the label.
pub fn constraints(selector: &LabelSelector) -> BTreeMap<&str, LabelConstraint> {
    let mut all = BTreeMap::<&str, LabelConstraint>::new();
    for (key, value) in selector.match_labels.iter().flatten() {
        all.entry(key).or_default().require("In", vec![value.clone()]);
    }
    for expression in selector.match_expressions.iter().flatten() {
        let values = expression.values.clone().unwrap_or_default();
        let one = all.entry(&expression.key).or_default();
        one.require(&expression.operator, values);
    }
    all
}
