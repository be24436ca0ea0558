//! What a kustomization does to fields of Plans: strategic merges and JSON patches (RFC 6902), in the kustomization or in a
//! file of their own, and replacements.

use std::path::Path;

use super::paths::plain;
use super::target::{Metadata, Target};
use crate::gitops::overlay::{Change, Field, SetTo};
use crate::gitops::source::Source;
use crate::gitops::yaml::{self, Kind, Node};

#[derive(Clone, Debug)]
pub(super) enum Transform {
    Patch(Box<Patch>),
    /// Names, labels and annotations of all objects, by which a later patch may select them.
    Add(Metadata),
}

/// A patch that changes a field of Plans.
#[derive(Clone, Debug)]
pub(super) struct Patch {
    pub(super) target: Target,
    pub(super) field: Field,
    pub(super) change: Change,
}

/// A text with patches, and where it is.
struct PatchText<'s> {
    documents: Vec<Node>,
    text: &'s str,
    file: &'s str,
    /// The line of the file before the first one of the text.
    lines_before: usize,
    is_file: bool,
}

/// A kustomization, and where the files are that it names.
#[derive(Clone, Copy)]
pub(super) struct Place<'s> {
    pub(super) node: &'s Node,
    pub(super) source: &'s Source,
    pub(super) folder: &'s Path,
    pub(super) sources: &'s [Source],
}

impl<'s> Place<'s> {
    /// What the kustomization does, in the order of kustomize.
    pub(super) fn transforms(self) -> Vec<Transform> {
        let merges = self.items("patchesStrategicMerge").filter_map(|entry| {
            let text = entry.text()?;
            // An entry is either the name of a file or the patch itself.
            let is_patch = text.contains(['\n', ':']);
            let text = if is_patch {
                self.inline(entry)
            } else {
                self.file(text).map(PatchText::of_file)
            };
            Some(text?.patches(None))
        });
        let first: Vec<_> = merges.flatten().chain(self.targeted("patches")).collect();
        let last = self.targeted("patchesJson6902").chain(self.replacements());
        let patch = |patch| Transform::Patch(Box::new(patch));
        let mut all: Vec<_> = first.into_iter().map(patch).collect();
        all.push(Transform::Add(Metadata::added_by(self.node)));
        all.extend(last.map(patch));
        all
    }

    fn items(self, field: &str) -> std::slice::Iter<'s, Node> {
        self.node.get(field).map(Node::items).unwrap_or_default().iter()
    }

    fn file(self, path: &str) -> Option<&'s Source> {
        let path = plain(&self.folder.join(path));
        let is_it = |source: &&Source| source.path.as_deref().is_some_and(|known| plain(known) == path);
        self.sources.iter().find(is_it)
    }

    fn targeted(self, field: &str) -> impl Iterator<Item = Patch> {
        let patches = move |entry: &'s Node| {
            let text = match entry.get("path").and_then(Node::text) {
                Some(path) => self.file(path).map(PatchText::of_file),
                None => self.inline(entry.get("patch")?),
            };
            let target = entry.get("target").map(Target::read);
            Some(text?.patches(target.as_ref()))
        };
        self.items(field).filter_map(patches).flatten()
    }

    /// The text of a patch within the kustomization.
    fn inline(self, node: &'s Node) -> Option<PatchText<'s>> {
        let text = node.text()?;
        let is_block = self.source.text.get(node.offset()..)?.starts_with(['|', '>']);
        Some(PatchText {
            documents: yaml::read(text).documents,
            text,
            file: &self.source.name,
            // The text of a block scalar begins in the line after its indicator.
            lines_before: self.source.position(node.offset()).line - usize::from(!is_block),
            is_file: false,
        })
    }

    /// What copies values from other fields to those of Plans.
    fn replacements(self) -> impl Iterator<Item = Patch> {
        self.items("replacements").flat_map(move |entry| {
            let file = entry.get("path").and_then(Node::text).map(|path| self.file(path));
            match file {
                None => replacements_in(entry, self.source),
                Some(file) => {
                    let documents = file.into_iter().flat_map(|file| {
                        let documents = file.stream.documents.iter();
                        documents.map(move |document| (file, document))
                    });
                    let all = documents.flat_map(|(file, document)| {
                        // The file has one or a list.
                        let items = document.items().iter().chain(document.object().map(|_| document));
                        items.flat_map(|one| replacements_in(one, file))
                    });
                    all.collect()
                }
            }
        })
    }
}

fn replacements_in(node: &Node, source: &Source) -> Vec<Patch> {
    let mut found = Vec::new();
    for of_target in node.get("targets").map(Node::items).unwrap_or_default() {
        let Some(target) = Target::of_replacement(of_target) else {
            continue;
        };
        for path in of_target.get("fieldPaths").map(Node::items).unwrap_or_default() {
            let name = path.text().and_then(|path| path.strip_prefix("spec."));
            found.extend(name.map(of_spec).map(|field| Patch {
                target: target.clone(),
                field,
                change: Change {
                    to: SetTo::Unknown,
                    file: source.name.clone(),
                    line: source.position(path.offset()).line,
                    is_partial_plan: false,
                },
            }));
        }
    }
    found
}

fn of_spec(name: &str) -> Field {
    let mut all = Field::OF_SPEC.into_iter();
    all.find(|field| field.name() == name).unwrap_or(Field::Other)
}

impl<'s> PatchText<'s> {
    fn of_file(source: &'s Source) -> Self {
        Self {
            documents: source.stream.documents.clone(),
            text: &source.text,
            file: &source.name,
            lines_before: 0,
            is_file: true,
        }
    }

    fn patches(&self, target: Option<&Target>) -> Vec<Patch> {
        let mut found = Vec::new();
        for document in &self.documents {
            let is_merge = document.object().is_some();
            let target = target.cloned().or_else(|| Target::of_object(document));
            // Without a target, a JSON patch applies to nothing.
            let Some(target) = target.filter(Target::is_of_plans) else {
                continue;
            };
            let changes = if is_merge {
                self.merge(document)
            } else {
                document
                    .items()
                    .iter()
                    .flat_map(|one| self.operation(one))
                    .collect()
            };
            found.extend(changes.into_iter().map(|(field, change)| Patch {
                target: target.clone(),
                field,
                change,
            }));
        }
        found
    }

    /// What a partial Plan changes.
    fn merge(&self, document: &Node) -> Vec<(Field, Change)> {
        let directive = |node: &Node| node.get("$patch").and_then(Node::text).map(str::to_owned);
        if directive(document).as_deref() == Some("delete") {
            return vec![(Field::Plan, self.change(SetTo::Nothing, document))];
        }
        let Some(spec) = document.get("spec") else {
            return Vec::new();
        };
        let is_whole = spec.is_null() || directive(spec).is_some_and(|directive| directive != "merge");
        let change = |field: Field| {
            let change = match spec.get(field.name()) {
                Some(value) => self.set(value),
                None if is_whole => self.change(SetTo::Nothing, spec),
                None => return None,
            };
            let is_partial_plan = self.is_file && matches!(change.to, SetTo::Text(_) | SetTo::NoText(_));
            let change = Change {
                is_partial_plan,
                ..change
            };
            Some((field, change))
        };
        let mut entries = spec.object().into_iter().flat_map(|spec| &spec.entries);
        let is_other = |name: &str| !name.starts_with('$') && of_spec(name) == Field::Other;
        let other = entries.find(|entry| is_other(&entry.key.name));
        let other = other.map(|entry| (Field::Other, self.change(SetTo::Unknown, &entry.value)));
        Field::OF_SPEC
            .into_iter()
            .filter_map(change)
            .chain(other)
            .collect()
    }

    /// What an operation of a JSON patch changes.
    fn operation(&self, operation: &Node) -> Vec<(Field, Change)> {
        let text = |name: &str| operation.get(name).and_then(Node::text);
        let (Some(op), Some(path)) = (text("op"), text("path")) else {
            return Vec::new();
        };
        let change = |field: Field| {
            let name = field.name();
            let is_it = |path: &str| path.strip_prefix("/spec/") == Some(name);
            let to = |to| Some(self.change(to, operation.get("path")?));
            let change = match (op, operation.get("value")) {
                ("add" | "replace", Some(value)) if is_it(path) => Some(self.set(value)),
                ("add" | "replace", Some(value)) if path == "/spec" => match value.get(name) {
                    Some(value) => Some(self.set(value)),
                    None => to(SetTo::Nothing),
                },
                ("copy" | "move", _) if is_it(path) || path == "/spec" => to(SetTo::Unknown),
                ("remove", _) if is_it(path) || path == "/spec" => to(SetTo::Nothing),
                ("move", _) if text("from").is_some_and(is_it) => to(SetTo::Nothing),
                _ => None,
            };
            Some((field, change?))
        };
        let is_other = path
            .strip_prefix("/spec/")
            .is_some_and(|name| op != "test" && of_spec(name) == Field::Other);
        let other = is_other.then(|| (Field::Other, self.change(SetTo::Unknown, operation)));
        Field::OF_SPEC
            .into_iter()
            .filter_map(change)
            .chain(other)
            .collect()
    }

    /// What a patch with this value makes of the field.
    fn set(&self, value: &Node) -> Change {
        let to = match &value.kind {
            Kind::Null => SetTo::Nothing,
            Kind::Text(text) if text.is_empty() => SetTo::Nothing,
            Kind::Text(text) => SetTo::Text(text.clone()),
            Kind::List(_) => SetTo::NoText("a list".to_owned()),
            Kind::Map(_) => SetTo::NoText("an object".to_owned()),
            Kind::Bool(_) | Kind::Number(_) => {
                let written = self.text.get(value.span.clone()).unwrap_or_default();
                SetTo::NoText(written.to_owned())
            }
        };
        self.change(to, value)
    }

    fn change(&self, to: SetTo, at: &Node) -> Change {
        let before = self.text.get(..at.offset()).unwrap_or_default();
        Change {
            to,
            file: self.file.to_owned(),
            line: self.lines_before + before.matches('\n').count() + 1,
            is_partial_plan: false,
        }
    }
}
