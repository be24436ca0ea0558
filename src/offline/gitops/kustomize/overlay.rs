//! What the kustomizations among the files do to the Plans: their version and channel, and their namespace; and which of
//! them load a file.
//!
//! A patch applies to the resources of its kustomization, to those of the bases below it, and, in a component, to those of
//! the kustomization that includes it. Flux and Argo CD add patches to a folder of the repository. Other transformers are
//! not read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::outer::{Folders, outer, whole};
use super::patch::{Place, Transform};
use super::paths::{is_kustomization, plain};
use super::target::Metadata;
use crate::gitops::objects::{Object, objects};
use crate::gitops::overlay::{Change, Field, Overlay, SetTo};
use crate::gitops::roots::{Loaded, Roots};
use crate::gitops::source::Source;
use crate::gitops::yaml::{Node, Step};

/// Kustomizations have no more levels.
const MAX_DEPTH: usize = 32;

/// A kustomization.
struct Kustomization<'s> {
    /// The folder in which it is. Those of Flux and Argo CD are no resource of another one.
    own: Option<PathBuf>,
    /// The folder to which its paths are relative.
    folder: PathBuf,
    source: &'s Source,
    /// The object with the fields of a kustomization.
    node: &'s Node,
    /// Folders and files that it includes.
    resources: Vec<PathBuf>,
    components: Vec<PathBuf>,
    namespace: Option<&'s str>,
}

/// The files that a kustomization covers, with its folder and those below it, and what happens to them.
type Covered<'s> = BTreeMap<PathBuf, (Vec<Transform>, Option<&'s str>)>;

/// Notes in each source which kustomizations among the sources load it, and what they do to its Plans.
pub fn attach(sources: &mut [Source]) {
    let (mut overlays, loaded) = overlays(sources);
    let roots = Roots::of(&loaded);
    for source in sources {
        let Some(path) = source.path.as_deref().map(plain) else {
            continue;
        };
        source.overlays = overlays.remove(&path).unwrap_or_default();
        // A file that no kustomization loads belongs to that of its folder.
        let roots = whole(&path).ancestors().find_map(|path| roots.get(path));
        source.roots = roots.cloned().unwrap_or_default();
    }
}

/// The overlays of each file, and what the outermost kustomizations load.
fn overlays(sources: &[Source]) -> (BTreeMap<PathBuf, Vec<Overlay>>, Loaded) {
    let all = kustomizations(sources);
    let included: BTreeSet<&PathBuf> = all
        .iter()
        .flat_map(|one| one.resources.iter().chain(&one.components))
        .collect();
    let is_root = |one: &&Kustomization<'_>| one.own.as_ref().is_none_or(|own| !included.contains(own));
    let mut overlays: BTreeMap<PathBuf, Vec<Overlay>> = BTreeMap::new();
    let mut loaded = Loaded::new();
    for root in all.iter().filter(is_root) {
        let covered = root.covered(&all, sources, &[]);
        if let Some(path) = root.source.path.as_deref() {
            // The objects of a file are applied together.
            let of_file = loaded.entry(whole(path)).or_default();
            of_file.extend(covered.keys().map(|path| whole(path)));
        }
        for source in sources {
            let Some((path, (transforms, namespace))) = source
                .path
                .as_deref()
                .and_then(|path| covered.get_key_value(&plain(path)))
            else {
                continue;
            };
            let of_file = overlays.entry(path.clone()).or_default();
            for object in objects(&source.stream.documents) {
                if object.is_plan() {
                    let changes = changes(transforms, &object);
                    add(of_file, (object.document, object.path), changes, *namespace);
                }
            }
        }
    }
    (overlays, loaded)
}

/// What becomes of a Plan: the last patch of a field wins.
fn changes(transforms: &[Transform], plan: &Object<'_>) -> BTreeMap<Field, Change> {
    let mut metadata = Metadata::of(plan);
    let mut changes = BTreeMap::new();
    for transform in transforms {
        match transform {
            Transform::Add(added) => metadata.add(added),
            Transform::Patch(patch) if patch.target.selects(plan, &metadata) => {
                changes.insert(patch.field, patch.change.clone());
            }
            Transform::Patch(_) => {}
        }
    }
    let has = |field: &Field| {
        let own = plan.node.get("spec").and_then(|spec| spec.get(field.name()));
        *field == Field::Plan || own.is_some()
    };
    changes.retain(|field, change| change.to != SetTo::Nothing || has(field));
    changes
}

fn add(
    known: &mut Vec<Overlay>,
    plan: (usize, Vec<Step>),
    mut changes: BTreeMap<Field, Change>,
    namespace: Option<&str>,
) {
    let place = known.iter().position(|known| known.plan == plan);
    let place = place.unwrap_or_else(|| {
        known.push(Overlay {
            plan,
            changes: BTreeMap::new(),
            namespace: namespace.map(str::to_owned),
        });
        known.len() - 1
    });
    let overlay = &mut known[place];
    overlay.namespace.take_if(|known| namespace != Some(known));
    // Where the Plan is deleted, no value of it counts.
    let is_deleted = changes.contains_key(&Field::Plan);
    let fields: &[Field] = if is_deleted {
        &[Field::Plan]
    } else {
        &[Field::Version, Field::Channel, Field::Plan]
    };
    for field in fields {
        let known = overlay.changes.entry(*field).or_default();
        match changes.remove(field) {
            Some(change) => known.all.push(change),
            None => known.is_partial = true,
        }
        known.all.sort();
        known.all.dedup();
    }
}

fn kustomizations(sources: &[Source]) -> Vec<Kustomization<'_>> {
    let mut all = Vec::new();
    for source in sources {
        let Some(path) = source.path.as_deref().filter(|path| is_kustomization(path)) else {
            continue;
        };
        let folder = plain(path.parent().unwrap_or(Path::new("")));
        // One of Flux may be in a file of this name.
        let documents = source.stream.documents.iter();
        for node in documents.filter(|document| outer(document).is_empty()) {
            let paths = |field| paths(node, field, &folder);
            all.push(Kustomization {
                own: Some(folder.clone()),
                folder: folder.clone(),
                source,
                node,
                resources: [paths("resources"), paths("bases")].concat(),
                components: paths("components"),
                namespace: text(node, "namespace"),
            });
        }
    }
    let folders = all.iter().filter_map(|one| one.own.clone()).collect();
    let folders = Folders::new(folders, sources);
    for source in sources {
        for outer in source.stream.documents.iter().flat_map(outer) {
            let Some(folder) = folders.find(outer.path, source) else {
                continue;
            };
            all.push(Kustomization {
                own: None,
                source,
                node: outer.node,
                resources: folders.resources(&folder),
                components: paths(outer.node, "components", &folder),
                folder,
                namespace: outer.namespace,
            });
        }
    }
    all
}

fn text<'n>(node: &'n Node, field: &str) -> Option<&'n str> {
    let text = node.get(field).and_then(Node::text);
    text.filter(|text| !text.is_empty())
}

fn paths(node: &Node, field: &str, folder: &Path) -> Vec<PathBuf> {
    let items = node.get(field).map(Node::items).unwrap_or_default();
    let texts = items.iter().filter_map(Node::text);
    texts.map(|path| plain(&folder.join(path))).collect()
}

impl<'s> Kustomization<'s> {
    /// With those that include it, on the way from the root.
    fn covered(&self, all: &[Self], sources: &[Source], way: &[&Self]) -> Covered<'s> {
        let mut covered = Covered::new();
        if self.is_too_deep(way) {
            return covered;
        }
        let inner_way = [way, &[self]].concat();
        covered.extend(self.own.iter().map(|own| (own.clone(), (Vec::new(), None))));
        let of_folder = |folder: &PathBuf| all.iter().find(|one| one.own.as_ref() == Some(folder));
        for resource in self.resources.iter().chain(&self.components) {
            match of_folder(resource) {
                Some(inner) => covered.extend(inner.covered(all, sources, &inner_way)),
                None => {
                    covered.insert(resource.clone(), (Vec::new(), None));
                }
            }
        }
        let transforms = self.transforms(all, sources, &[]);
        for (of_file, namespace) in covered.values_mut() {
            of_file.extend(transforms.iter().cloned());
            *namespace = self.namespace.or(*namespace);
        }
        covered
    }

    /// Some include each other.
    fn is_too_deep(&self, way: &[&Self]) -> bool {
        way.len() > MAX_DEPTH || way.iter().any(|one| std::ptr::eq(*one, self))
    }

    /// Those of the components come first.
    fn transforms(&self, all: &[Self], sources: &[Source], way: &[&Self]) -> Vec<Transform> {
        if self.is_too_deep(way) {
            return Vec::new();
        }
        let way = [way, &[self]].concat();
        let of_folder = |folder: &PathBuf| all.iter().find(|one| one.own.as_ref() == Some(folder));
        let components = self.components.iter().filter_map(of_folder);
        let mut transforms: Vec<_> = components
            .flat_map(|one| one.transforms(all, sources, &way))
            .collect();
        let place = Place {
            node: self.node,
            source: self.source,
            folder: &self.folder,
            sources,
        };
        transforms.extend(place.transforms());
        transforms
    }
}
