//! What kustomizations among the files do to a Plan: it is checked as they leave it.

use serde_json::{Value, json};

use super::subject::Subject;
use crate::gitops::overlay::{Change, Changes, Field, SetTo};
use crate::gitops::rule::Rule;
use crate::gitops::yaml::Node;

const RENDERED: &str = "validate the output of kustomize: `kustomize build … | refit validate -`";

impl<'a> Subject<'a> {
    /// Reports a patch, which is no Plan of its own.
    pub(super) fn report_part_of_plan(&mut self) {
        let message = "this is a part of a Plan of the files, as of an overlay: refit does not check it";
        self.report(
            Rule::Patch,
            "metadata.name",
            message.to_owned(),
            Some(RENDERED.to_owned()),
        );
    }

    /// Reports a Plan that is never applied.
    pub(super) fn report_deleted(&mut self, by: &Change) {
        let message = format!(
            "a patch of Kustomize deletes this Plan ({}): refit does not check it",
            by.place()
        );
        self.report(Rule::Patch, "metadata.name", message, None);
    }

    /// Sets namespace, version and channel as kustomizations do, and names the patches.
    pub(super) fn apply_overlay(&mut self, read: &mut Value) {
        let Some(overlay) = self.source.overlay(self.object) else {
            return;
        };
        if let (Some(namespace), Some(metadata)) = (&overlay.namespace, read["metadata"].as_object_mut()) {
            metadata.insert("namespace".to_owned(), json!(namespace));
        }
        for field in Field::OF_SPEC {
            let name = field.name();
            let Some(changes) = overlay.changes.get(&field).filter(|of| !of.all.is_empty()) else {
                continue;
            };
            let used = self.source.change(self.object, field);
            // The controller ignores the channel of a Plan with a version.
            let is_ignored = field == Field::Channel && read["spec"]["version"].is_string();
            // What the file itself has is not applied.
            let path = format!("spec.{name}");
            self.found
                .retain(|one| used.is_none() || one.field.as_ref() != Some(&path));
            if !is_ignored || used.is_none_or(|change| change.to != SetTo::Nothing) {
                self.report_changes(name, changes, used);
            }
            let Some(spec) = read["spec"].as_object_mut() else {
                continue;
            };
            match used.map(|change| &change.to) {
                Some(SetTo::Text(text)) => drop(spec.insert(name.to_owned(), json!(text))),
                // The text of the file is not what is applied.
                Some(SetTo::Nothing | SetTo::Unknown) => drop(spec.remove(name)),
                Some(SetTo::NoText(_)) | None => {}
            }
        }
    }

    fn report_changes(&mut self, name: &str, changes: &Changes, used: Option<&Change>) {
        let field = format!("spec.{name}");
        for change in &changes.all {
            if let SetTo::NoText(written) = &change.to {
                let place = change.place();
                let message =
                    format!("{field} must be text, but a patch of Kustomize sets it to {written} ({place})");
                let hint = "write text there, in quotes if it looks like a number".to_owned();
                self.report(Rule::WrongType, &field, message, Some(hint));
            }
        }
        let is_text = |change: &&Change| !matches!(change.to, SetTo::NoText(_));
        let all: Vec<&Change> = changes.all.iter().filter(is_text).collect();
        let Some(first) = all.first() else { return };
        let set = all.iter().map(|change| change.describe());
        let set = set.collect::<Vec<_>>().join(", ");
        let is_common = changes.common().is_some();
        let (message, hint) = match &first.to {
            SetTo::Nothing if is_common => (
                format!("a patch of Kustomize removes {field} ({})", first.place()),
                "a value here has no effect".to_owned(),
            ),
            SetTo::Unknown if is_common => (
                format!("Kustomize sets {field} {set}, so refit does not know it"),
                RENDERED.to_owned(),
            ),
            _ if is_common => (
                format!("a patch of Kustomize sets {field}: {set}"),
                format!("change the {name} there"),
            ),
            _ => {
                let which = if changes.is_partial {
                    "in some overlays only"
                } else {
                    "in each overlay to another value"
                };
                let with = used.map_or_else(|| "its own".to_owned(), Change::describe);
                (
                    format!("Kustomize sets {field} {which}: {set}; refit uses {with}"),
                    RENDERED.to_owned(),
                )
            }
        };
        self.report(Rule::Patch, &field, message, Some(hint));
    }

    /// The text of a field, as kustomizations leave it.
    pub(super) fn text(&self, field: &str) -> Option<&'a str> {
        match field_of(field) {
            Some(field) => self.source.text_of(self.object, field),
            None => self.node(field).and_then(Node::text),
        }
    }

    /// Whether the field was refused for its type, which has been reported, or set to what refit does not know.
    pub(super) fn is_refused(&self, field: &str, read: Option<&String>) -> bool {
        let change = field_of(field).and_then(|field| self.source.change(self.object, field));
        let has = match change.map(|change| &change.to) {
            Some(SetTo::Text(_) | SetTo::Nothing) => false,
            Some(SetTo::NoText(_) | SetTo::Unknown) => true,
            None => self.has(field),
        };
        has && read.is_none()
    }
}

fn field_of(path: &str) -> Option<Field> {
    let name = path.strip_prefix("spec.")?;
    Field::OF_SPEC.into_iter().find(|field| field.name() == name)
}
