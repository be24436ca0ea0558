//! What kustomizations do to a Plan.

use std::collections::BTreeMap;
use std::fmt;

use super::yaml::Step;

/// What kustomizations do to one Plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlay {
    /// Index of the document of the Plan, and the path within it.
    pub plan: (usize, Vec<Step>),
    pub changes: BTreeMap<Field, Changes>,
    /// The namespace that all of these kustomizations set.
    pub namespace: Option<String>,
}

/// What a kustomization may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    Version,
    Channel,
    /// Other fields of the spec, whose patches refit does not apply.
    Other,
    /// The whole Plan, which a patch deletes.
    Plan,
}

impl Field {
    pub const OF_SPEC: [Self; 2] = [Self::Version, Self::Channel];

    /// The name below `spec`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::Channel => "channel",
            Self::Other | Self::Plan => "",
        }
    }
}

/// What becomes of a field: a change for each kustomization that is not a base of another one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub all: Vec<Change>,
    /// One of these kustomizations leaves the field as it is.
    pub is_partial: bool,
}

impl Changes {
    /// What all of these kustomizations set.
    pub fn common(&self) -> Option<&Change> {
        let first = self.all.first()?;
        (!self.is_partial && self.all.iter().all(|change| change.to == first.to)).then_some(first)
    }
}

/// A patch that changes a field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    pub to: SetTo,
    pub file: String,
    pub line: usize,
    /// The patch is a file with a partial Plan, which `refit pin` edits like a Plan.
    pub is_partial_plan: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SetTo {
    Text(String),
    /// A value that is no text, such as a number as it is written. The API server refuses it.
    NoText(String),
    /// What another place has, as by `replacements`.
    Unknown,
    /// The field is removed.
    Nothing,
}

impl Change {
    pub fn place(&self) -> String {
        format!("{}:{}", self.file, self.line)
    }

    /// The value, and where it is.
    pub fn describe(&self) -> String {
        let place = self.place();
        match &self.to {
            SetTo::Text(text) => format!("{text:?} ({place})"),
            to => format!("{to} ({place})"),
        }
    }
}

impl fmt::Display for SetTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text(text) | Self::NoText(text) => text,
            Self::Unknown => "from elsewhere",
            Self::Nothing => "removed",
        })
    }
}
