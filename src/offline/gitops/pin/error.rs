//! Errors of edits.

/// Why a file cannot be edited.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {}{kind}", .plan.as_ref().map_or(String::new(), |plan| format!("Plan {plan}: ")))]
pub struct PinError {
    pub file: String,
    pub line: usize,
    /// Namespace and name of the Plan that causes the error, if one does.
    pub plan: Option<String>,
    pub kind: Box<PinErrorKind>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinErrorKind {
    /// A part of the file is not YAML.
    #[error("this is not YAML: {0}")]
    Syntax(String),
    /// The document of the Plan has a repeated key.
    #[error("the key {0:?} appears twice; which of the two counts depends on the reader")]
    Repeated(String),
    /// `spec.version` is not a version.
    #[error("spec.version is {what}; {remedy}")]
    NoVersion {
        /// What it is instead.
        what: String,
        remedy: &'static str,
    },
    /// Every edit would change something else, too.
    #[error("{field} cannot become {value} without a change to something else{why}; edit it by hand")]
    NoIsolatedEdit {
        field: String,
        value: String,
        /// What else would change, if known.
        why: String,
    },
}
