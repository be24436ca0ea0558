//! What is found in a file, and how much it weighs.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Rule;
use super::place::Place;

/// How much a finding weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing. It does not make a Plan wrong.
    Note,
    /// Suspicious: it is taken, and hardly what is meant.
    Warning,
    /// Refused by the API server or the controller, or sure to fail.
    Error,
}

impl Severity {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Something that a rule has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file, as it was given.
    pub file: String,
    /// Where in it.
    pub place: Place,
    /// The rule.
    pub rule: Rule,
    /// How much it weighs.
    pub severity: Severity,
    /// The Plan that it is about: namespace and name.
    pub plan: Option<String>,
    /// The field, such as `spec.window.days[0]`.
    pub field: Option<String>,
    /// What is wrong: what was found, and what is allowed.
    pub message: String,
    /// How to put it right.
    pub hint: Option<String>,
}

/// What the rules weigh: as they say themselves, unless somebody says otherwise.
#[derive(Clone, Debug, Default)]
pub struct Levels(BTreeMap<Rule, Option<Severity>>);

impl Levels {
    /// Switches a rule off.
    pub fn allow(&mut self, rule: Rule) {
        self.0.insert(rule, None);
    }

    /// Lets a rule weigh that much.
    pub fn set(&mut self, rule: Rule, severity: Severity) {
        self.0.insert(rule, Some(severity));
    }

    /// What a rule weighs; nothing when it is switched off.
    pub fn of(&self, rule: Rule) -> Option<Severity> {
        self.0.get(&rule).copied().unwrap_or(Some(rule.severity()))
    }
}
