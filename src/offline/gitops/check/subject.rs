//! An object of a file, and the findings about it.

use std::collections::BTreeSet;

use super::path::steps;
use crate::gitops::finding::{Finding, Levels};
use crate::gitops::objects::Object;
use crate::gitops::placeholder::in_comment;
use crate::gitops::rule::Rule;
use crate::gitops::source::Source;
use crate::gitops::yaml::{Entry, Kind, Node, Step};

/// An object, and the findings about it.
pub(super) struct Subject<'a> {
    pub(super) source: &'a Source,
    pub(super) object: &'a Object<'a>,
    pub(super) levels: &'a Levels,
    pub(super) found: Vec<Finding>,
    /// Absent fields that a hint tells the reader to write, in place of an unknown field.
    pub(super) renamed: BTreeSet<String>,
}

impl<'a> Subject<'a> {
    pub(super) fn new(source: &'a Source, object: &'a Object<'a>, levels: &'a Levels) -> Self {
        Self {
            source,
            object,
            levels,
            found: Vec::new(),
            renamed: BTreeSet::new(),
        }
    }

    /// The findings, without those that follow from others.
    pub(super) fn finish(mut self) -> Vec<Finding> {
        let mut found = std::mem::take(&mut self.found);
        // A misspelt field is not missing too.
        found.retain(|one| one.rule == Rule::UnknownField || !self.is_renamed(one));
        // An empty field neither.
        let reported: BTreeSet<_> = found
            .iter()
            .filter(|one| one.rule != Rule::NullField)
            .filter_map(|one| one.field.clone())
            .collect();
        let is_repeated = |one: &Finding| {
            let is_empty = |field| self.node(field).is_some_and(Node::is_null);
            if one.rule == Rule::ImageTag && is_empty("spec.version") {
                return true;
            }
            one.rule == Rule::NullField && one.field.as_ref().is_some_and(|field| reported.contains(field))
        };
        found.retain(|one| !is_repeated(one));
        found
    }

    /// Whether the finding is about a field that is written under another name.
    pub(super) fn is_renamed(&self, found: &Finding) -> bool {
        let others: &[&str] = match found.rule {
            Rule::NoVersion | Rule::ImageTag => &["spec.version", "spec.channel"],
            Rule::NoConcurrency => &["spec.maxConcurrent"],
            Rule::DrainWithoutServiceAccount => &["spec.serviceAccountName"],
            _ => &[],
        };
        let is_below = |meant: &String| {
            let rest = found.field.as_ref().and_then(|field| field.strip_prefix(meant));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        others.iter().any(|field| self.renamed.contains(*field)) || self.renamed.iter().any(is_below)
    }

    /// Whether the field has a value that is not an object.
    pub(super) fn is_no_object(&self, field: &str) -> bool {
        self.node(field)
            .is_some_and(|node| !node.is_null() && node.object().is_none())
    }

    /// A finding about a field, located at its value, or where the value should be.
    pub(super) fn report(&mut self, rule: Rule, field: &str, message: String, hint: Option<String>) {
        let offset = self.offset(field);
        self.report_at(rule, offset, Some(field), message, hint);
    }

    pub(super) fn report_at(
        &mut self,
        rule: Rule,
        offset: usize,
        field: Option<&str>,
        message: String,
        hint: Option<String>,
    ) {
        self.found
            .extend(self.finding(rule, offset, field, message, hint));
    }

    pub(super) fn finding(
        &self,
        rule: Rule,
        offset: usize,
        field: Option<&str>,
        message: String,
        hint: Option<String>,
    ) -> Option<Finding> {
        Some(Finding {
            file: self.source.name.clone(),
            position: self.source.position(offset),
            rule,
            severity: self.levels.of(rule)?,
            plan: Some(self.object.title()),
            field: field.map(str::to_owned),
            message,
            hint,
        })
    }

    /// The value of a field such as `spec.secrets[0].path`.
    pub(super) fn node(&self, field: &str) -> Option<&'a Node> {
        self.object.node.at(&steps(field))
    }

    /// Whether the field is set and not null, or a comment says that a tool sets it.
    pub(super) fn has(&self, field: &str) -> bool {
        let steps = steps(field);
        let Some((Step::Key(key), way)) = steps.split_last() else {
            return self.node(field).is_some_and(|node| !node.is_null());
        };
        let object = self.object.node.at(way).and_then(Node::object);
        let entry = object.and_then(|object| object.entry(key));
        entry.is_some_and(|entry| self.is_given(entry))
    }

    /// Whether the entry has a value, or a tool sets it.
    pub(super) fn is_given(&self, entry: &Entry) -> bool {
        !entry.value.is_null() || in_comment(self.source, entry).is_some()
    }

    /// Location of a field: a scalar at its value; a list, an object or a null at its key; a missing field at its
    /// closest existing parent.
    pub(super) fn offset(&self, field: &str) -> usize {
        self.offset_at(&steps(field))
    }

    pub(super) fn offset_at(&self, way: &[Step]) -> usize {
        let mut node = self.object.node;
        let mut offset = node.offset();
        for step in way {
            let next = match step {
                Step::Key(key) => node.object().and_then(|object| object.entry(key)).map(|entry| {
                    let is_scalar = !matches!(entry.value.kind, Kind::Null | Kind::List(_) | Kind::Map(_));
                    let at = if is_scalar {
                        entry.value.offset()
                    } else {
                        entry.key.span.start
                    };
                    (at, &entry.value)
                }),
                Step::Index(index) => node.items().get(*index).map(|item| (item.offset(), item)),
            };
            let Some((at, value)) = next else { break };
            (offset, node) = (at, value);
        }
        offset
    }

    /// The source text of a scalar.
    pub(super) fn written(&self, node: &Node) -> &'a str {
        self.source.text.get(node.span.clone()).unwrap_or_default()
    }
}
