//! What the kustomizations among the files do to the Plans: the version that their patches set, and their namespace; and
//! which of them load a file.
//!
//! A patch applies to the resources of its kustomization, to those of the bases below it, and, in a component, to those of
//! the kustomization that includes it. Other transformers are not read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::patch::{Patch, patches_of};
use super::paths::{NAMES, is_kustomization, plain};
use crate::gitops::objects::objects;
use crate::gitops::overlay::{Overlay, SetVersion};
use crate::gitops::roots::Roots;
use crate::gitops::source::Source;
use crate::gitops::yaml::{Node, Step};

const FLUX: &str = "kustomize.toolkit.fluxcd.io/";

/// More levels of bases are a cycle.
const MAX_DEPTH: usize = 32;

/// A kustomization. One of Flux adds patches to the folder that it names.
struct Kustomization<'s> {
    /// The folder of its file. Of one of Flux, the file.
    folder: PathBuf,
    source: &'s Source,
    /// The object with the fields of a kustomization.
    node: &'s Node,
    /// Folders and files that it includes.
    resources: Vec<PathBuf>,
    components: Vec<PathBuf>,
    namespace: Option<&'s str>,
    is_flux: bool,
}

/// The files that a kustomization covers. The last of the patches of a file wins.
type Covered<'s> = BTreeMap<PathBuf, (Vec<Patch>, Option<&'s str>)>;

/// Notes in each source which kustomizations among the sources load it, and what they do to its Plans.
pub fn attach(sources: &mut [Source]) {
    let (mut overlays, roots) = overlays(sources);
    for source in sources {
        let Some(path) = source.path.as_deref().map(plain) else {
            continue;
        };
        source.overlays = overlays.remove(&path).unwrap_or_default();
        source.roots = roots_of(&path, &roots);
    }
}

/// The roots of a file. One that no kustomization loads belongs to that of its folder.
fn roots_of(file: &Path, all: &BTreeMap<PathBuf, Roots>) -> Roots {
    let in_folder = |folder: &Path| NAMES.iter().find_map(|name| all.get(&folder.join(name)));
    let of_folder = || file.ancestors().skip(1).find_map(in_folder);
    all.get(file).or_else(of_folder).cloned().unwrap_or_default()
}

/// The overlays and the roots of each file.
fn overlays(sources: &[Source]) -> (BTreeMap<PathBuf, Vec<Overlay>>, BTreeMap<PathBuf, Roots>) {
    let all = kustomizations(sources);
    let included: BTreeSet<&PathBuf> = all
        .iter()
        .flat_map(|one| one.resources.iter().chain(&one.components))
        .collect();
    let mut overlays: BTreeMap<PathBuf, Vec<Overlay>> = BTreeMap::new();
    let mut roots: BTreeMap<PathBuf, Roots> = BTreeMap::new();
    for root in all.iter().filter(|one| !included.contains(&one.folder)) {
        let covered = root.covered(&all, sources, 0);
        for path in covered.keys() {
            roots
                .entry(path.clone())
                .or_default()
                .0
                .insert(root.folder.clone());
        }
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
    (overlays, roots)
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
    let files = sources.iter().filter_map(|source| source.path.as_deref());
    let files: BTreeSet<PathBuf> = files.map(plain).collect();
    let folders: BTreeSet<&Path> = files.iter().flat_map(|file| file.ancestors().skip(1)).collect();
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
                let named = text("path").and_then(|path| flux_folder(path, &folders));
                (named.into_iter().collect(), text("targetNamespace"))
            } else {
                let all: [Vec<PathBuf>; 2] = [paths("resources"), paths("bases")];
                (all.concat(), text("namespace"))
            };
            all.push(Kustomization {
                folder: if is_flux { plain(path) } else { folder.clone() },
                is_flux,
                source,
                node,
                resources,
                components: paths("components"),
                namespace,
            });
        }
    }
    add_below_flux(&mut all);
    all
}

/// The folder among the sources that a path from the root of their repository means.
fn flux_folder(path: &str, folders: &BTreeSet<&Path>) -> Option<PathBuf> {
    let path = plain(Path::new(path.trim_start_matches('/')));
    // The root itself may be that of any repository.
    let is_named = |folder: &&&Path| path.file_name().is_some() && folder.ends_with(&path);
    let named = folders.iter().filter(is_named);
    let nearest = named.min_by_key(|folder| folder.components().count());
    nearest.map(|folder| folder.to_path_buf())
}

/// Adds the kustomizations below the folder of each one of Flux: for a folder without a kustomization, Flux writes one that
/// includes all of them. One that loads the folder in which it is named, as `gotk-sync.yaml` does, includes that, and not
/// the reverse.
fn add_below_flux(all: &mut [Kustomization<'_>]) {
    let known: BTreeSet<PathBuf> = all.iter().map(|one| one.folder.clone()).collect();
    let flux = all.iter().filter(|one| one.is_flux);
    let loads: Vec<(PathBuf, PathBuf)> = flux
        .filter_map(|one| Some((one.folder.clone(), one.resources.first()?.clone())))
        .collect();
    for one in all {
        let folder = if one.is_flux {
            one.resources.first().cloned()
        } else {
            Some(one.folder.clone())
        };
        let Some(folder) = folder else { continue };
        if one.is_flux && !known.contains(&folder) {
            let is_topmost = |other: &&PathBuf| {
                let mut between = other.ancestors().skip(1).take_while(|it| *it != folder);
                !between.any(|it| known.contains(it))
            };
            let below = known.iter().filter(|other| other.starts_with(&folder));
            one.resources.extend(below.filter(is_topmost).cloned());
        }
        let leads_back = |file: &PathBuf| {
            let mut loaded = loads.iter().filter(|(flux, _)| flux == file);
            loaded.any(|(_, loaded)| folder.starts_with(loaded))
        };
        one.resources.retain(|resource| !leads_back(resource));
    }
}

impl<'s> Kustomization<'s> {
    fn covered(&self, all: &[Self], sources: &[Source], depth: usize) -> Covered<'s> {
        let mut covered = Covered::new();
        if depth > MAX_DEPTH {
            return covered;
        }
        covered.extend(
            self.source
                .path
                .as_deref()
                .map(|path| (plain(path), (Vec::new(), None))),
        );
        // A file may have several of Flux.
        let of_folder = |folder: &PathBuf| -> Vec<&Self> {
            let found = all.iter().filter(|one| one.folder == *folder);
            found.collect()
        };
        for resource in self.resources.iter().chain(&self.components) {
            let inner = of_folder(resource);
            if inner.is_empty() {
                // A file, or a folder of Flux, which needs no kustomization.
                let paths = sources.iter().filter_map(|source| source.path.as_deref());
                let paths = paths.map(plain).filter(|path| path.starts_with(resource));
                covered.extend(paths.map(|path| (path, (Vec::new(), None))));
            }
            for one in inner {
                covered.extend(one.covered(all, sources, depth + 1));
            }
        }
        let components = self.components.iter().flat_map(of_folder);
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
