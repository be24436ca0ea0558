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
/// No more overlays of one kustomization include a file.
const MAX_WAYS: usize = 64;

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

/// The files that a kustomization covers, with its folder and those below it, and what happens to each on every way to it:
/// several overlays below one kustomization may include one base, with a `namePrefix` each.
type Covered<'s> = BTreeMap<PathBuf, Vec<Way<'s>>>;

#[derive(Clone, Default)]
struct Way<'s> {
    transforms: Vec<Transform>,
    namespace: Option<&'s str>,
}

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
    let is_root = |one: &Kustomization<'_>| one.own.as_ref().is_none_or(|own| !included.contains(own));
    let mut overlays: BTreeMap<PathBuf, Vec<Overlay>> = BTreeMap::new();
    let mut loaded = Loaded::new();
    let mut reader = Reader {
        all: &all,
        sources,
        known: BTreeMap::new(),
    };
    for (index, root) in all.iter().enumerate().filter(|(_, one)| is_root(one)) {
        let covered = reader.covered(index, 0);
        if let Some(path) = root.source.path.as_deref() {
            // The objects of a file are applied together.
            let of_file = loaded.entry(whole(path)).or_default();
            of_file.extend(covered.keys().map(|path| whole(path)));
        }
        for source in sources {
            let Some((path, ways)) = source
                .path
                .as_deref()
                .and_then(|path| covered.get_key_value(&plain(path)))
            else {
                continue;
            };
            let of_file = overlays.entry(path.clone()).or_default();
            for object in objects(&source.stream.documents) {
                for way in ways.iter().filter(|_| object.is_plan()) {
                    let changes = changes(&way.transforms, &object);
                    add(
                        of_file,
                        (object.document, object.path.clone()),
                        changes,
                        way.namespace,
                    );
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
        matches!(field, Field::Plan | Field::Other) || own.is_some()
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
        &[Field::Version, Field::Channel, Field::Other, Field::Plan]
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

/// Reads each kustomization once, however many include it.
struct Reader<'k, 's> {
    all: &'k [Kustomization<'s>],
    sources: &'s [Source],
    /// By index. Of kustomizations that include each other, the one that is being read covers nothing.
    known: BTreeMap<usize, Covered<'s>>,
}

impl<'k, 's> Reader<'k, 's> {
    fn of_folder(&self, folder: &Path) -> Option<usize> {
        let mut all = self.all.iter();
        all.position(|one| one.own.as_deref() == Some(folder))
    }

    fn covered(&mut self, index: usize, depth: usize) -> Covered<'s> {
        if let Some(known) = self.known.get(&index) {
            return known.clone();
        }
        let mut covered = Covered::new();
        if depth > MAX_DEPTH {
            return covered;
        }
        self.known.insert(index, Covered::new());
        let one = &self.all[index];
        covered.extend(one.own.iter().map(|own| (own.clone(), Vec::new())));
        for resource in one.resources.iter().chain(&one.components) {
            let inner = match self.of_folder(resource) {
                Some(inner) => self.covered(inner, depth + 1),
                None => Covered::from([(resource.clone(), vec![Way::default()])]),
            };
            for (path, ways) in inner {
                let all = covered.entry(path).or_default();
                all.extend(ways);
                all.truncate(MAX_WAYS);
            }
        }
        let mut transforms = Vec::new();
        self.add_transforms(one, depth, &mut BTreeSet::new(), &mut transforms);
        for way in covered.values_mut().flatten() {
            way.transforms.extend(transforms.iter().cloned());
            way.namespace = one.namespace.or(way.namespace);
        }
        self.known.insert(index, covered.clone());
        covered
    }

    /// What a kustomization does: first its components, each once.
    fn add_transforms(
        &self,
        one: &'k Kustomization<'s>,
        depth: usize,
        seen: &mut BTreeSet<&'k Path>,
        transforms: &mut Vec<Transform>,
    ) {
        for folder in one.components.iter().filter(|_| depth < MAX_DEPTH) {
            let component = self.of_folder(folder).filter(|_| seen.insert(folder));
            if let Some(component) = component {
                self.add_transforms(&self.all[component], depth + 1, seen, transforms);
            }
        }
        let place = Place {
            node: one.node,
            source: one.source,
            folder: &one.folder,
            sources: self.sources,
        };
        transforms.extend(place.transforms());
    }
}
