//! Findings in files.

use std::collections::BTreeMap;

use super::position::Position;
use super::rule::{Rule, Severity};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file, as it was given.
    pub file: String,
    pub position: Position,
    pub rule: Rule,
    pub severity: Severity,
    /// Namespace and name of the Plan.
    pub plan: Option<String>,
    /// The field, such as `spec.window.days[0]`.
    pub field: Option<String>,
    /// What was found, and what is allowed.
    pub message: String,
    /// How to correct it.
    pub hint: Option<String>,
}

/// The severity of each rule: its default, unless a flag changes it.
#[derive(Clone, Debug, Default)]
pub struct Levels(BTreeMap<Rule, Option<Severity>>);

impl Levels {
    /// Sets the severity of a rule; `None` switches it off.
    pub fn set(&mut self, rule: Rule, severity: Option<Severity>) {
        self.0.insert(rule, severity);
    }

    /// The severity of a rule; `None` if it is switched off.
    pub fn of(&self, rule: Rule) -> Option<Severity> {
        self.0.get(&rule).copied().unwrap_or(Some(rule.severity()))
    }
}
