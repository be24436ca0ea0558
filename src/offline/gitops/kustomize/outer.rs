//! Objects of Flux and Argo CD that apply a folder of a repository, with patches of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf, absolute};

use glob::{MatchOptions, Pattern};

use super::paths::plain;
use crate::gitops::source::Source;
use crate::gitops::yaml::Node;

const FLUX: &str = "kustomize.toolkit.fluxcd.io/";
const ARGO: &str = "argoproj.io/";
/// `*` is one folder.
const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};
/// The name that `flux bootstrap` gives to the source that is the repository itself.
const OWN_SOURCE: &str = "flux-system";

/// What such an object applies.
pub(super) struct Outer<'n> {
    /// The object with the fields of a kustomization.
    pub(super) node: &'n Node,
    /// From the root of the repository. Of an `ApplicationSet`, it may be a pattern of several.
    pub(super) path: String,
    /// Each folder of the pattern is applied to another cluster.
    pub(super) is_of_clusters: bool,
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
                path: path.to_owned(),
                is_of_clusters: false,
                namespace: text(spec, "targetNamespace"),
            }];
        }
        Some("Application") if is_of(ARGO) => Some(spec),
        Some("ApplicationSet") if is_of(ARGO) => spec.get("template").and_then(|of| of.get("spec")),
        _ => None,
    };
    let Some(spec) = spec else { return Vec::new() };
    let sources = spec.get("sources").map(Node::items).unwrap_or_default();
    let cluster = |field| {
        spec.get("destination")
            .and_then(|destination| text(destination, field))
    };
    let is_of_clusters = ["server", "name"]
        .into_iter()
        .any(|field| cluster(field).is_some_and(is_template));
    let of_source = |source| {
        let kustomize = Node::get(source, "kustomize");
        let path = text(source, "path").filter(|path| !is_root(path));
        let is_of_clusters = is_of_clusters && path.is_some_and(is_template);
        let outer = move |path| Outer {
            node: kustomize.unwrap_or(source),
            path,
            is_of_clusters,
            namespace: kustomize.and_then(|kustomize| text(kustomize, "namespace")),
        };
        path.into_iter()
            .flat_map(|path| patterns(path, document))
            .map(outer)
    };
    sources
        .iter()
        .chain(spec.get("source"))
        .flat_map(of_source)
        .collect()
}

fn is_template(text: &str) -> bool {
    text.contains("{{")
}

/// The path with `*` for what the generators of an `ApplicationSet` give; for the path that they find, those that they list.
/// Empty if the path may be any folder, or the generators leave some out.
fn patterns(path: &str, set: &Node) -> Vec<String> {
    let Some((what, below)) = path.strip_prefix("{{").and_then(|rest| rest.split_once("}}")) else {
        return vec![with_stars(path)];
    };
    if !matches!(what.trim().trim_start_matches('.'), "path" | "path.path") {
        return Vec::new();
    }
    let mut paths = Vec::new();
    let mut nodes: Vec<&Node> = set.get("spec").into_iter().collect();
    while let Some(node) = nodes.pop() {
        let of = |field| node.get(field).map(Node::items).unwrap_or_default().iter();
        let is_excluded = |one: &Node| one.get("exclude").is_some_and(|it| it.to_json() == true);
        if of("directories").any(is_excluded) {
            return Vec::new();
        }
        let files = of("files").filter_map(|one| Path::new(text(one, "path")?).parent()?.to_str());
        paths.extend(files.map(|path| with_stars(path) + &with_stars(below)));
        let listed = of("directories").filter_map(|one| text(one, "path"));
        paths.extend(listed.map(|path| with_stars(path) + &with_stars(below)));
        nodes.extend(node.items());
        let fields = node.object().map(|object| object.entries.as_slice());
        nodes.extend(fields.unwrap_or_default().iter().map(|entry| &entry.value));
    }
    paths
}

fn with_stars(path: &str) -> String {
    let mut pattern = path.to_owned();
    while let Some((before, rest)) = pattern.split_once("{{")
        && let Some((_, after)) = rest.split_once("}}")
    {
        pattern = format!("{before}*{after}");
    }
    pattern
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
    pub(super) fn find(&self, path: &str, source: &Source) -> Vec<PathBuf> {
        let path = plain(Path::new(path.trim_start_matches('/')));
        let Some(source) = source.path.as_deref().map(whole) else {
            return Vec::new();
        };
        let git = source.ancestors().find(|folder| folder.join(".git").exists());
        // Without a path, every folder has it.
        let above = source.ancestors().filter(|_| !path.as_os_str().is_empty());
        let mut roots = git.into_iter().chain(above);
        let mut all = self.by_path.iter();
        if path.to_string_lossy().contains('*') {
            let Ok(pattern) = Pattern::new(&path.to_string_lossy()) else {
                return Vec::new();
            };
            let is_it = |root: &Path, whole: &Path| {
                let below = whole.strip_prefix(root);
                below.is_ok_and(|below| pattern.matches_path_with(below, OPTIONS))
            };
            let of_root = |root: &Path| {
                let all = all.clone().filter(|(whole, _)| is_it(root, whole));
                all.map(|(_, folder)| folder.clone()).collect::<Vec<_>>()
            };
            return roots
                .map(of_root)
                .find(|found| !found.is_empty())
                .unwrap_or_default();
        }
        let by_end = || Some(all.find(|(whole, _)| whole.ends_with(&path))?.1);
        let by_root = roots.find_map(|root| self.by_path.get(&root.join(&path)));
        by_root.or_else(by_end).cloned().into_iter().collect()
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
