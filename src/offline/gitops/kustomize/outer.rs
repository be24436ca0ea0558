//! Objects of Flux and Argo CD that apply a folder of a repository, with patches of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf, absolute};

use super::paths::plain;
use crate::gitops::source::Source;
use crate::gitops::yaml::Node;

const FLUX: &str = "kustomize.toolkit.fluxcd.io/";
const ARGO: &str = "argoproj.io/";
/// The name that `flux bootstrap` gives to the source that is the repository itself.
const OWN_SOURCE: &str = "flux-system";

/// What such an object applies.
pub(super) struct Outer<'n> {
    /// The object with the fields of a kustomization.
    pub(super) node: &'n Node,
    /// From the root of the repository.
    pub(super) path: &'n str,
    pub(super) namespace: Option<&'n str>,
}

pub(super) fn outer(document: &Node) -> Vec<Outer<'_>> {
    let (group, kind) = (text(document, "apiVersion"), text(document, "kind"));
    let is_of = |wanted: &str| group.is_some_and(|group| group.starts_with(wanted));
    let Some(spec) = document.get("spec") else {
        return Vec::new();
    };
    let spec = match kind {
        Some("Kustomization") if is_of(FLUX) => {
            let path = text(spec, "path").unwrap_or_default();
            let source = spec.get("sourceRef").and_then(|source| text(source, "name"));
            // The whole of another source, such as an artifact, is not this repository.
            if is_root(path) && source.is_some_and(|name| name != OWN_SOURCE) {
                return Vec::new();
            }
            return vec![Outer {
                node: spec,
                path,
                namespace: text(spec, "targetNamespace"),
            }];
        }
        Some("Application") if is_of(ARGO) => Some(spec),
        Some("ApplicationSet") if is_of(ARGO) => spec.get("template").and_then(|of| of.get("spec")),
        _ => None,
    };
    let Some(spec) = spec else { return Vec::new() };
    let sources = spec.get("sources").map(Node::items).unwrap_or_default();
    let of_source = |source| {
        let kustomize = Node::get(source, "kustomize");
        Some(Outer {
            node: kustomize.unwrap_or(source),
            path: text(source, "path").filter(|path| !is_root(path))?,
            namespace: kustomize.and_then(|kustomize| text(kustomize, "namespace")),
        })
    };
    sources
        .iter()
        .chain(spec.get("source"))
        .filter_map(of_source)
        .collect()
}

/// Whether a path is that of the whole repository.
fn is_root(path: &str) -> bool {
    let path = plain(Path::new(path.trim_start_matches('/')));
    path.as_os_str().is_empty()
}

fn text<'n>(node: &'n Node, field: &str) -> Option<&'n str> {
    let text = node.get(field).and_then(Node::text);
    text.filter(|text| !text.is_empty())
}

/// The folders of the sources.
pub(super) struct Folders {
    /// By their absolute path.
    by_path: BTreeMap<PathBuf, PathBuf>,
    files: BTreeSet<PathBuf>,
    kustomizations: BTreeSet<PathBuf>,
}

impl Folders {
    pub(super) fn new(kustomizations: BTreeSet<PathBuf>, sources: &[Source]) -> Self {
        let files = sources
            .iter()
            .filter_map(|source| source.path.as_deref().map(plain));
        let files: BTreeSet<PathBuf> = files.collect();
        let above = files.iter().flat_map(|file| file.ancestors().skip(1));
        // Of `../a`, the folder `` is none above.
        let above = above.filter(|folder| !folder.as_os_str().is_empty());
        let folders = above.chain([Path::new("")]);
        Self {
            by_path: folders.map(|folder| (whole(folder), folder.to_owned())).collect(),
            files,
            kustomizations,
        }
    }

    /// The folder that a path from the root of the repository means. The root is a folder above the source: the next one
    /// with `.git`, otherwise the next one that has the path. If there is none, the folder only ends like the path.
    pub(super) fn find(&self, path: &str, source: &Source) -> Option<PathBuf> {
        let path = plain(Path::new(path.trim_start_matches('/')));
        let source = whole(source.path.as_deref()?);
        let git = source.ancestors().find(|folder| folder.join(".git").exists());
        // Without a path, every folder has it.
        let above = source.ancestors().filter(|_| !path.as_os_str().is_empty());
        let mut roots = git.into_iter().chain(above);
        let mut all = self.by_path.iter();
        let by_end = || Some(all.find(|(whole, _)| whole.ends_with(&path))?.1);
        let by_root = roots.find_map(|root| self.by_path.get(&root.join(&path)));
        by_root.or_else(by_end).cloned()
    }

    /// What is applied of a folder: as by Flux, each kustomization in it, and the files that belong to none.
    pub(super) fn resources(&self, folder: &Path) -> Vec<PathBuf> {
        let mut found: BTreeSet<&Path> = BTreeSet::new();
        let below = self.kustomizations.iter().chain(&self.files);
        let below = below.filter(|path| path.starts_with(folder));
        let outermost = below.filter(|path| {
            let is_within = path.ancestors().any(|above| found.contains(above));
            !is_within && found.insert(path)
        });
        outermost.cloned().collect()
    }
}

/// The absolute path.
pub(super) fn whole(path: &Path) -> PathBuf {
    let whole = absolute(Path::new(".").join(path));
    plain(&whole.unwrap_or_else(|_| path.to_owned()))
}
