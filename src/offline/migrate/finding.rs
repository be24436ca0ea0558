//! What `refit migrate --check` finds.

use std::borrow::Borrow;

use serde::Serialize;

use refit_base::names::shortened;

/// How much a difference matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Do something before the switch: otherwise nodes wait, or two controllers work at once.
    Action,
    /// refit will do something else than system-upgrade-controller: decide whether that is wanted.
    Change,
    /// Nothing is to be done.
    Note,
}

impl Severity {
    pub fn word(self) -> &'static str {
        match self {
            Self::Action => "action",
            Self::Change => "change",
            Self::Note => "note",
        }
    }
}

/// A difference, in the three parts of a message: which object, what changes, what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    /// Name of the rule.
    pub rule: &'static str,
    /// Kind, namespace and name: `Plan system-upgrade/server`.
    pub object: String,
    pub change: String,
    /// Empty if nothing is to be done.
    pub remedy: String,
}

impl Finding {
    pub(super) fn new(
        severity: Severity,
        object: impl Into<String>,
        change: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            severity,
            rule: "",
            object: object.into(),
            change: change.into(),
            remedy: remedy.into(),
        }
    }
}

pub(super) fn names<S: Borrow<str>>(names: &[S]) -> String {
    shortened(names, 5)
}
