use crate::gitops::finding::Levels;

/// What `refit validate` checks beyond the files themselves.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Severity of each rule.
    pub levels: Levels,
    /// The namespace whose Plans the controller runs, if known.
    pub namespace: Option<String>,
}
