//! The tree of a document.

use std::collections::BTreeSet;
use std::ops::Range;

use serde_json::{Map, Number, Value};

use super::object::{Entry, Key, Object};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SyntaxError {
    /// Offset in bytes.
    pub offset: usize,
    pub message: String,
}

impl SyntaxError {
    pub(super) fn of_tab(offset: usize) -> Self {
        Self {
            offset,
            message: "a tab cannot indent a line or follow a dash".to_owned(),
        }
    }
}

/// A value and its location.
#[derive(Clone, Debug)]
pub struct Node {
    pub kind: Kind,
    /// The bytes of the value: a quoted scalar with its quotes. For block style only the start is exact.
    pub span: Range<usize>,
    pub style: Style,
    /// The location of the alias, if there is one. `span` is that of the anchored value.
    pub alias: Option<Range<usize>>,
    /// Number of nodes in the tree below it, including itself.
    pub(super) size: usize,
    /// Bytes of the texts in this tree.
    pub(super) bytes: usize,
}

#[derive(Clone, Debug)]
pub enum Kind {
    /// `null`, `~`, or no text.
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Object),
}

/// The style of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Plain,
    /// `'text'`
    Single,
    /// `"text"`
    Double,
    /// `|` or `>`
    Block,
    /// A list or object by indentation.
    Indented,
    /// `[…]` or `{…}`
    Flow,
}

impl Node {
    pub(super) fn scalar(kind: Kind, span: Range<usize>, style: Style) -> Self {
        let bytes = match &kind {
            Kind::Text(text) => text.len(),
            _ => 0,
        };
        Self {
            kind,
            span,
            style,
            alias: None,
            size: 1,
            bytes,
        }
    }

    /// The location for people: that of the alias, if there is one.
    pub fn offset(&self) -> usize {
        self.alias.as_ref().unwrap_or(&self.span).start
    }

    pub const fn is_null(&self) -> bool {
        matches!(self.kind, Kind::Null)
    }

    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(text) => Some(text),
            _ => None,
        }
    }

    pub const fn object(&self) -> Option<&Object> {
        match &self.kind {
            Kind::Map(object) => Some(object),
            _ => None,
        }
    }

    pub fn items(&self) -> &[Self] {
        match &self.kind {
            Kind::List(items) => items,
            _ => &[],
        }
    }

    /// The value of a key, if this is an object that has it.
    pub fn get(&self, key: &str) -> Option<&Self> {
        Some(&self.object()?.entry(key)?.value)
    }

    pub fn at(&self, path: &[Step]) -> Option<&Self> {
        path.iter().try_fold(self, |node, step| match step {
            Step::Key(key) => node.get(key),
            Step::Index(index) => node.items().get(*index),
        })
    }

    /// The value as JSON, as kubectl sends it.
    pub fn to_json(&self) -> Value {
        match &self.kind {
            Kind::Null => Value::Null,
            Kind::Bool(value) => Value::Bool(*value),
            Kind::Number(number) => Value::Number(number.clone()),
            Kind::Text(text) => Value::String(text.clone()),
            Kind::List(items) => items.iter().map(Self::to_json).collect(),
            Kind::Map(object) => {
                let entry = |entry: &Entry| (entry.key.name.clone(), entry.value.to_json());
                Value::Object(object.entries.iter().map(entry).collect::<Map<_, _>>())
            }
        }
    }

    /// Repeated keys here or below. Those of an alias are reported at its anchor.
    pub fn repeated(&self) -> Vec<&Key> {
        let mut found = Vec::new();
        let mut seen = BTreeSet::new();
        self.collect_repeated(&mut found, &mut seen);
        found
    }

    fn collect_repeated<'n>(&'n self, found: &mut Vec<&'n Key>, seen: &mut BTreeSet<usize>) {
        match &self.kind {
            Kind::List(items) => items.iter().for_each(|item| item.collect_repeated(found, seen)),
            Kind::Map(object) => {
                found.extend(object.repeated.iter().filter(|key| seen.insert(key.span.start)));
                object
                    .entries
                    .iter()
                    .for_each(|entry| entry.value.collect_repeated(found, seen));
            }
            _ => {}
        }
    }
}

/// A step of a path through a document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    Key(String),
    Index(usize),
}

impl Step {
    /// As in a path of `sops set`.
    pub fn in_brackets(&self) -> String {
        match self {
            Self::Key(key) => format!("[{}]", Value::from(key.as_str())),
            Self::Index(index) => format!("[{index}]"),
        }
    }
}

impl From<&str> for Step {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned())
    }
}

impl From<usize> for Step {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}
