//! What kustomizations do to a Plan.

use super::yaml::Step;

/// What kustomizations do to one Plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlay {
    /// Index of the document of the Plan, and the path within it.
    pub plan: (usize, Vec<Step>),
    /// The versions that patches set: one for each kustomization that is not a base of another one.
    pub versions: Vec<SetVersion>,
    /// The namespace that all of these kustomizations set.
    pub namespace: Option<String>,
}

/// A version that a patch sets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SetVersion {
    pub version: String,
    pub file: String,
    pub line: usize,
    /// The patch is a file with a partial Plan, which `refit pin` edits like a Plan.
    pub is_partial_plan: bool,
}

impl SetVersion {
    pub fn place(&self) -> String {
        format!("{}:{}", self.file, self.line)
    }
}
