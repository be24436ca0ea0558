//! Which kustomizations load a file, and so which files may be of the same cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What the kustomizations, and the objects of Flux and Argo CD, of each file load: files and folders.
pub type Loaded = BTreeMap<PathBuf, BTreeSet<PathBuf>>;

/// The numbers of the kustomizations that load a file, of those that no other one loads; none, if no kustomization loads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roots(BTreeSet<usize>);

impl Roots {
    /// The roots of what is loaded. An object of Flux or Argo CD in a file that is loaded belongs to the cluster of what
    /// loads it, and so does what it loads.
    pub fn of(loaded: &Loaded) -> BTreeMap<&Path, Self> {
        let reached = loaded.keys().map(|file| (file.as_path(), reached(file, loaded)));
        let reached: BTreeMap<&Path, BTreeSet<&Path>> = reached.collect();
        let mut inner: BTreeSet<&Path> = BTreeSet::new();
        for (file, paths) in &reached {
            // As `gotk-sync.yaml` loads itself, some load each other.
            let leads_back = |path: &&Path| reached.get(path).is_none_or(|paths| paths.contains(file));
            inner.extend(paths.iter().filter(|path| !leads_back(path)));
        }
        let mut roots: BTreeMap<&Path, Self> = BTreeMap::new();
        let outermost = reached.iter().filter(|(file, _)| !inner.contains(*file));
        for (number, (_, paths)) in outermost.enumerate() {
            for path in paths {
                roots.entry(path).or_default().0.insert(number);
            }
        }
        roots
    }

    /// Whether both files may be of one cluster: unless different kustomizations load them, and none loads both.
    pub fn may_share_cluster(&self, other: &Self) -> bool {
        self.0.is_empty() || other.0.is_empty() || self.share_one(other)
    }

    /// Whether a kustomization loads both files.
    pub fn share_one(&self, other: &Self) -> bool {
        !self.0.is_disjoint(&other.0)
    }
}

/// All that a file loads, over other files too.
fn reached<'l>(file: &Path, loaded: &'l Loaded) -> BTreeSet<&'l Path> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&Path> = vec![file];
    while let Some(file) = next.pop() {
        for path in loaded.get(file).into_iter().flatten() {
            if reached.insert(path.as_path()) {
                next.push(path);
            }
        }
    }
    reached
}
