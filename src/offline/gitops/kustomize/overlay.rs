//! What the kustomizations among the files do to the Plans: the version that their patches set, and their namespace.
//!
//! A patch applies to the resources of its kustomization, to those of the bases below it, and, in a component, to those of
//! the kustomization that includes it. Other transformers are not read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::patch::{Patch, patches_of};
use super::paths::{is_kustomization, plain};
use crate::gitops::objects::objects;
use crate::gitops::overlay::{Overlay, SetVersion};
use crate::gitops::source::Source;
use crate::gitops::yaml::{Node, Step};

const FLUX: &str = "kustomize.toolkit.fluxcd.io/";

/// More levels of bases are a cycle.
const MAX_DEPTH: usize = 32;

/// A kustomization. One of Flux adds patches to the folder that it names.
struct Kustomization<'s> {
    folder: PathBuf,
    source: &'s Source,
    /// The object with the fields of a kustomization.
    node: &'s Node,
    /// Folders and files that it includes.
    resources: Vec<PathBuf>,
    components: Vec<PathBuf>,
    namespace: Option<&'s str>,
}

/// The files that a kustomization covers. The last of the patches of a file wins.
type Covered<'s> = BTreeMap<PathBuf, (Vec<Patch>, Option<&'s str>)>;

/// Notes in each source what the kustomizations among the sources do to its Plans.
pub fn attach(sources: &mut [Source]) {
    let mut overlays = overlays(sources);
    for source in sources {
        let path = source.path.as_deref().map(plain);
        source.overlays = path.and_then(|path| overlays.remove(&path)).unwrap_or_default();
    }
}

fn overlays(sources: &[Source]) -> BTreeMap<PathBuf, Vec<Overlay>> {
    let all = kustomizations(sources);
    let included: BTreeSet<&PathBuf> = all
        .iter()
        .flat_map(|one| one.resources.iter().chain(&one.components))
        .collect();
    let mut overlays: BTreeMap<PathBuf, Vec<Overlay>> = BTreeMap::new();
    for root in all.iter().filter(|one| !included.contains(&one.folder)) {
        let covered = root.covered(&all, sources, 0);
        for source in sources {
            let Some((path, (patches, namespace))) = source
                .path
                .as_deref()
                .and_then(|path| covered.get_key_value(&plain(path)))
            else {
                continue;
            };
            let of_file = overlays.entry(path.clone()).or_default();
            for object in objects(&source.stream.documents) {
                if object.is_plan() {
                    let last = patches.iter().rev().find(|patch| patch.target.selects(&object));
                    let version = last.map(|patch| patch.version.clone());
                    add(of_file, (object.document, object.path), version, *namespace);
                }
            }
        }
    }
    overlays
}

fn add(
    known: &mut Vec<Overlay>,
    plan: (usize, Vec<Step>),
    version: Option<SetVersion>,
    namespace: Option<&str>,
) {
    match known.iter_mut().find(|known| known.plan == plan) {
        Some(known) => {
            known.versions.extend(version);
            known.versions.sort();
            known.versions.dedup();
            known.namespace.take_if(|known| namespace != Some(known));
        }
        None => known.push(Overlay {
            plan,
            versions: version.into_iter().collect(),
            namespace: namespace.map(str::to_owned),
        }),
    }
}

fn kustomizations(sources: &[Source]) -> Vec<Kustomization<'_>> {
    let mut all = Vec::new();
    for source in sources {
        let Some(path) = source.path.as_deref() else {
            continue;
        };
        let folder = plain(path.parent().unwrap_or(Path::new("")));
        for document in &source.stream.documents {
            let text = |field: &str| document.get(field).and_then(Node::text).unwrap_or_default();
            let is_flux = text("apiVersion").starts_with(FLUX) && text("kind") == "Kustomization";
            let node = match document.get("spec") {
                Some(spec) if is_flux => spec,
                _ if is_kustomization(path) => document,
                _ => continue,
            };
            let paths = |field: &str| {
                let items = node.get(field).map(Node::items).unwrap_or_default();
                items
                    .iter()
                    .filter_map(Node::text)
                    .map(|path| plain(&folder.join(path)))
                    .collect()
            };
            let text = |field: &str| {
                node.get(field)
                    .and_then(Node::text)
                    .filter(|text| !text.is_empty())
            };
            let (resources, namespace) = if is_flux {
                let named = text("path").map(|path| flux_folder(path, sources));
                (named.into_iter().flatten().collect(), text("targetNamespace"))
            } else {
                let all: [Vec<PathBuf>; 2] = [paths("resources"), paths("bases")];
                (all.concat(), text("namespace"))
            };
            all.push(Kustomization {
                folder: if is_flux { plain(path) } else { folder.clone() },
                source,
                node,
                resources,
                components: paths("components"),
                namespace,
            });
        }
    }
    all
}

/// The folder among the sources that a path from the root of their repository means.
fn flux_folder(path: &str, sources: &[Source]) -> Option<PathBuf> {
    let path = plain(Path::new(path.trim_start_matches('/')));
    let folders = sources
        .iter()
        .filter_map(|source| source.path.as_deref()?.parent());
    let mut folders = folders.map(plain).filter(|folder| folder.ends_with(&path));
    folders.next()
}

impl<'s> Kustomization<'s> {
    fn covered(&self, all: &[Self], sources: &[Source], depth: usize) -> Covered<'s> {
        let mut covered = Covered::new();
        if depth > MAX_DEPTH {
            return covered;
        }
        let of_folder = |folder: &PathBuf| all.iter().find(|one| one.folder == *folder);
        for resource in self.resources.iter().chain(&self.components) {
            if let Some(inner) = of_folder(resource) {
                covered.extend(inner.covered(all, sources, depth + 1));
            } else {
                // A file, or a folder of Flux, which needs no kustomization.
                let paths = sources.iter().filter_map(|source| source.path.as_deref());
                let paths = paths.map(plain).filter(|path| path.starts_with(resource));
                covered.extend(paths.map(|path| (path, (Vec::new(), None))));
            }
        }
        let components = self.components.iter().filter_map(of_folder);
        let patches: Vec<_> = components
            .chain([self])
            .flat_map(|one| patches_of(one.node, one.source, &one.folder, sources))
            .collect();
        for (of_file, namespace) in covered.values_mut() {
            of_file.extend(patches.iter().cloned());
            *namespace = self.namespace.or(*namespace);
        }
        covered
    }
}
