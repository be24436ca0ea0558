//! Patches of a kustomization that set the version of a Plan: strategic merges and JSON patches (RFC 6902), in the
//! kustomization or in a file of their own.

use std::path::Path;

use regex::Regex;

use super::paths::plain;
use crate::gitops::objects::Object;
use crate::gitops::overlay::SetVersion;
use crate::gitops::source::Source;
use crate::gitops::yaml::{self, Node};
use refit_api::names::GROUP;

/// A patch that sets the version of Plans.
#[derive(Clone, Debug)]
pub(super) struct Patch {
    pub(super) target: Target,
    pub(super) version: SetVersion,
}

/// The objects to which a patch applies. An absent field allows every value.
#[derive(Clone, Debug, Default)]
pub(super) struct Target {
    group: Option<String>,
    kind: Option<String>,
    /// Kustomize reads both as regular expressions that match the whole text.
    name: Option<String>,
    namespace: Option<String>,
}

impl Target {
    fn read(node: &Node) -> Self {
        let text = |field: &str| node.get(field).and_then(Node::text).map(str::to_owned);
        Self {
            group: text("group"),
            kind: text("kind"),
            name: text("name"),
            namespace: text("namespace"),
        }
    }

    pub(super) fn selects(&self, plan: &Object<'_>) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| {
            let whole = |pattern: &String| Regex::new(&format!("^(?:{pattern})$"));
            wanted.as_ref().is_none_or(|wanted| {
                whole(wanted).is_ok_and(|regex| regex.is_match(found.unwrap_or_default()))
            })
        };
        // The kustomization may set the namespace of a Plan without one.
        let namespace = plan.metadata("namespace");
        is(&self.group, Some(GROUP))
            && is(&self.kind, Some("Plan"))
            && is(&self.name, plan.metadata("name"))
            && (namespace.is_none() || is(&self.namespace, namespace))
    }
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

/// The patches of a kustomization, in their order.
pub(super) fn patches_of(node: &Node, source: &Source, folder: &Path, sources: &[Source]) -> Vec<Patch> {
    let items = |field: &str| node.get(field).map(Node::items).unwrap_or_default().iter();
    let of_file = |path: &str| {
        let path = plain(&folder.join(path));
        let is_it = |source: &&Source| source.path.as_deref().is_some_and(|known| plain(known) == path);
        let source = sources.iter().find(is_it)?;
        Some(PatchText {
            documents: source.stream.documents.clone(),
            text: &source.text,
            file: &source.name,
            lines_before: 0,
            is_file: true,
        })
    };
    let merges = items("patchesStrategicMerge").filter_map(|entry| {
        let text = entry.text()?;
        // An entry is either the name of a file or the patch itself.
        let is_patch = text.contains(['\n', ':']);
        let text = if is_patch {
            inline(entry, source)
        } else {
            of_file(text)
        };
        Some((None, text?))
    });
    let others = items("patches")
        .chain(items("patchesJson6902"))
        .filter_map(|entry| {
            let text = match entry.get("path").and_then(Node::text) {
                Some(path) => of_file(path),
                None => inline(entry.get("patch")?, source),
            };
            Some((entry.get("target").map(Target::read), text?))
        });
    let mut found = Vec::new();
    for (target, text) in merges.chain(others) {
        for document in &text.documents {
            found.extend(version_in(document, target.as_ref(), &text));
        }
    }
    found
}

/// The text of a patch within a kustomization.
fn inline<'s>(node: &'s Node, source: &'s Source) -> Option<PatchText<'s>> {
    let text = node.text()?;
    let is_block = source.text.get(node.offset()..)?.starts_with(['|', '>']);
    Some(PatchText {
        documents: yaml::read(text).documents,
        text,
        file: &source.name,
        // The text of a block scalar begins in the line after its indicator.
        lines_before: source.position(node.offset()).line - usize::from(!is_block),
        is_file: false,
    })
}

/// The version that a document of a patch sets.
fn version_in(document: &Node, target: Option<&Target>, text: &PatchText<'_>) -> Option<Patch> {
    let set = |value: &Node| {
        let version = value.text().filter(|version| !version.is_empty())?;
        let line = text.text.get(..value.offset())?.matches('\n').count() + 1;
        Some(SetVersion {
            version: version.to_owned(),
            file: text.file.to_owned(),
            line: text.lines_before + line,
            is_partial_plan: text.is_file && document.object().is_some(),
        })
    };
    if document.object().is_none() {
        let mut operations = document.items().iter().rev();
        let version = operations.find_map(|operation| {
            let field = |name: &str| operation.get(name).and_then(Node::text);
            let value = operation.get("value")?;
            match (field("op")?, field("path")?) {
                ("add" | "replace", "/spec/version") => set(value),
                ("add" | "replace", "/spec") => set(value.get("version")?),
                _ => None,
            }
        })?;
        // Without a target, the patch applies to nothing.
        let target = target?.clone();
        return Some(Patch { target, version });
    }
    let version = set(document.get("spec")?.get("version")?)?;
    let text_of = |node: &Node, field: &str| node.get(field).and_then(Node::text).map(str::to_owned);
    let own = || {
        let metadata = document.get("metadata")?;
        Some(Target {
            group: text_of(document, "apiVersion")?
                .split('/')
                .next()
                .map(regex::escape),
            kind: text_of(document, "kind"),
            name: text_of(metadata, "name").as_deref().map(regex::escape),
            namespace: text_of(metadata, "namespace"),
        })
    };
    let target = target.cloned().or_else(own)?;
    Some(Patch { target, version })
}
