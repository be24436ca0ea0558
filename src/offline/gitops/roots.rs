//! Which kustomizations load a file, and so which files may be of the same cluster.

use std::collections::BTreeSet;
use std::path::PathBuf;

/// The kustomizations that load a file, of those that no other one includes; none, if no kustomization loads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roots(pub BTreeSet<PathBuf>);

impl Roots {
    /// Whether both files may be of one cluster: unless different kustomizations load them, and none loads both.
    pub fn may_share_cluster(&self, other: &Self) -> bool {
        self.0.is_empty() || other.0.is_empty() || self.share_one(other)
    }

    /// Whether a kustomization loads both files.
    pub fn share_one(&self, other: &Self) -> bool {
        !self.0.is_disjoint(&other.0)
    }
}
