//! A parsed file: its text, its documents and its line offsets.

use std::path::{Path, PathBuf};

use super::objects::{FrontEnd, Object};
use super::overlay::{Change, Field, Overlay, SetTo};
use super::placeholder::in_comment;
use super::position::{Lines, Position};
use super::roots::Roots;
use super::yaml::{self, Node, Stream};
use refit_api::names::GROUP;

/// Name of standard input in messages.
pub const STDIN: &str = "<stdin>";

#[derive(Debug)]
pub struct Source {
    /// The name in messages: the path as it was given.
    pub name: String,
    /// `None` for standard input.
    pub path: Option<PathBuf>,
    pub text: String,
    pub stream: Stream,
    /// What kustomizations among the files do to the Plans of this one.
    pub overlays: Vec<Overlay>,
    /// The kustomizations among the files that load this one.
    pub roots: Roots,
    lines: Lines,
}

impl Source {
    /// Parses the documents of a text.
    pub fn new(name: impl Into<String>, path: Option<&Path>, text: String) -> Self {
        Self {
            name: name.into(),
            path: path.map(Path::to_owned),
            stream: yaml::read(&text),
            overlays: Vec::new(),
            roots: Roots::default(),
            lines: Lines::new(&text),
            text,
        }
    }

    /// Whether the file does not parse because it is a template, as in a Helm chart.
    pub fn is_template(&self) -> bool {
        !self.stream.errors.is_empty() && (self.text.contains("{{") || self.text.contains("{%"))
    }

    /// A hint to append to the error about a text that cannot be parsed; empty if the cause is unknown.
    pub fn render_first(&self) -> &'static str {
        if self.is_template() {
            "; this looks like a template, so render it first, as with `helm template`"
        } else {
            ""
        }
    }

    /// Whether it is a template, and contains no Plan and no other object that refit handles.
    pub fn is_template_without_plan(&self) -> bool {
        let groups = FrontEnd::ALL.into_iter().map(FrontEnd::group);
        let mut groups = groups.chain([GROUP]);
        self.is_template() && !groups.any(|group| self.text.contains(group))
    }

    /// Another text under the same name and path.
    #[must_use]
    pub fn with_text(&self, text: String) -> Self {
        Self::new(self.name.clone(), self.path.as_deref(), text)
    }

    /// What kustomizations do to a Plan of this file.
    pub fn overlay(&self, object: &Object<'_>) -> Option<&Overlay> {
        let is_it = |overlay: &&Overlay| overlay.plan.0 == object.document && overlay.plan.1 == object.path;
        self.overlays.iter().find(is_it)
    }

    /// What kustomizations set a field of a Plan to: all of them or, if the Plan lacks the field, one of them.
    pub fn change(&self, object: &Object<'_>, field: Field) -> Option<&Change> {
        let changes = self.overlay(object)?.changes.get(&field)?;
        let spec = object.node.get("spec").and_then(Node::object);
        let own = spec.and_then(|spec| spec.entry(field.name()));
        let has_own = field == Field::Plan
            || own.is_some_and(|own| !own.value.is_null() || in_comment(self, own).is_some());
        let one = || changes.all.first().filter(|_| !has_own);
        changes.common().or_else(one)
    }

    /// The text of a field of a Plan, as kustomizations leave it.
    pub fn text_of<'s>(&'s self, object: &Object<'s>, field: Field) -> Option<&'s str> {
        match self.change(object, field).map(|change| &change.to) {
            Some(SetTo::Text(text)) => Some(text),
            Some(SetTo::Nothing | SetTo::Unknown) => None,
            _ => object.node.get("spec")?.get(field.name())?.text(),
        }
    }

    pub fn position(&self, offset: usize) -> Position {
        self.lines.position(&self.text, offset)
    }

    /// The line of this number, counted from 1, without its line break.
    pub fn line(&self, number: usize) -> &str {
        self.lines.line(&self.text, number).trim_end_matches(['\r', '\n'])
    }

    /// Byte range of the line around an offset, with its line break.
    pub fn line_of(&self, offset: usize) -> std::ops::Range<usize> {
        self.lines.line_of(&self.text, offset)
    }
}
