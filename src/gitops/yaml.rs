//! YAML as kubectl reads it, with the place of everything in the text.
//!
//! The parser gives events with byte spans; this makes a tree of them, with aliases and merge keys followed and each
//! scalar resolved. It never changes a text, and never gives up on the documents behind one that cannot be read.

mod scalar;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput, StructureStyle};
use serde_json::{Map, Number, Value};

pub use scalar::{is_plain_bool, is_text_to_all};

/// How many nodes a document may have when its aliases are followed. A Plan has a few dozen; a few lines of aliases to
/// aliases have billions.
const MAX_NODES: usize = 500_000;

/// What a text holds.
#[derive(Debug, Default)]
pub struct Stream {
    /// Documents that could be read, in their order. An empty one is null.
    pub documents: Vec<Node>,
    /// What could not be read, at most one mistake a document.
    pub errors: Vec<SyntaxError>,
}

/// Why a document cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SyntaxError {
    /// Where, in bytes from the start.
    pub offset: usize,
    /// What is wrong.
    pub message: String,
}

/// A value and its place.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it is.
    pub kind: Kind,
    /// The bytes of the value: of a scalar with its quotes; of a block in block style only the start is exact.
    pub span: Range<usize>,
    /// How it is written.
    pub style: Style,
    /// Where the alias stands that leads here. The span is that of what it stands for.
    pub alias: Option<Range<usize>>,
    /// How many nodes it is in all.
    size: usize,
}

/// What a node is.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Nothing: `null`, `~`, or no text at all.
    Null,
    /// A bool.
    Bool(bool),
    /// A number.
    Number(Number),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// An object.
    Map(Object),
}

/// How a node is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A scalar without quotes.
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

/// An object: its entries in the order of the text, those of merge keys at the end.
#[derive(Clone, Debug, Default)]
pub struct Object {
    /// Each key once; the last one counts, as in kubectl.
    pub entries: Vec<Entry>,
    /// Keys that are there a second time.
    pub repeated: Vec<Key>,
}

/// A key and its value.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key.
    pub key: Key,
    /// The value.
    pub value: Node,
    /// It comes from a merge key (`<<`).
    pub merged: bool,
}

/// A key and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The key as text.
    pub name: String,
    /// Its bytes, quotes included.
    pub span: Range<usize>,
    /// How it is written.
    pub style: Style,
}

/// Reads all documents of a text.
pub fn read(text: &str) -> Stream {
    let mut stream = Stream::default();
    // Another crate may have switched them on for all.
    let options = granit_parser::options! { emit_comments: false };
    let mut parser = Parser::new_from_str_with_options(text, options);
    loop {
        match document(&mut parser, text) {
            Ok(Some(document)) => stream.documents.push(document),
            Ok(None) => return stream,
            Err(error) => {
                stream.errors.push(error);
                match parser.proceed_next_document() {
                    Ok(true) => {}
                    Ok(false) | Err(_) => return stream,
                }
            }
        }
    }
}

type Events<'t> = Parser<'t, StrInput<'t>>;

fn document<'t>(parser: &mut Events<'t>, text: &'t str) -> Result<Option<Node>, SyntaxError> {
    let mut builder = Builder {
        parser,
        text,
        anchors: BTreeMap::new(),
        nodes: 0,
    };
    loop {
        match builder.next()? {
            None | Some((Event::StreamEnd, _)) => return Ok(None),
            Some((Event::DocumentStart(..), _)) => break,
            Some(_) => {}
        }
    }
    let mut root = Node::scalar(Kind::Null, 0..0, Style::Plain);
    loop {
        match builder.next()? {
            None | Some((Event::StreamEnd | Event::DocumentEnd, _)) => return Ok(Some(root)),
            Some((event, span)) => root = builder.node(event, span)?,
        }
    }
}

struct Builder<'p, 't> {
    parser: &'p mut Events<'t>,
    text: &'t str,
    /// Nodes that aliases may stand for, as far as they are complete.
    anchors: BTreeMap<usize, Node>,
    nodes: usize,
}

impl<'t> Builder<'_, 't> {
    fn next(&mut self) -> Result<Option<(Event<'t>, Span)>, SyntaxError> {
        match self.parser.next_event() {
            None => Ok(None),
            Some(Ok(next)) => Ok(Some(next)),
            Some(Err(error)) => Err(self.syntax(&error)),
        }
    }

    /// The next event within a document, which has an end.
    fn expect(&mut self) -> Result<(Event<'t>, Span), SyntaxError> {
        let end = self.text.len();
        self.next()?.ok_or_else(|| SyntaxError {
            offset: end,
            message: "the document ends too early".to_owned(),
        })
    }

    fn syntax(&self, error: &ScanError) -> SyntaxError {
        let offset = error.marker().byte_offset().unwrap_or(self.text.len());
        SyntaxError {
            offset: offset.min(self.text.len()),
            message: error.info(),
        }
    }

    fn node(&mut self, event: Event<'t>, span: Span) -> Result<Node, SyntaxError> {
        let span = span.byte_range().unwrap_or_default();
        let start = span.start;
        let (node, anchor) = match event {
            Event::Scalar(value, style, anchor, tag) => {
                let tag = tag.as_ref().map(|tag| tag.core_suffix().unwrap_or("str"));
                (self.scalar(&value, style, tag, span), anchor)
            }
            Event::Alias(id) => {
                let mut node = self.anchors.get(&id).cloned().ok_or_else(|| SyntaxError {
                    offset: span.start,
                    message: "the alias stands within what it stands for".to_owned(),
                })?;
                node.alias = Some(span.clone());
                (node, 0)
            }
            Event::SequenceStart(style, anchor, _) => (self.list(style, span.clone())?, anchor),
            Event::MappingStart(style, anchor, _) => (self.map(style, span.clone())?, anchor),
            _ => {
                return Err(SyntaxError {
                    offset: span.start,
                    message: "a value is missing here".to_owned(),
                });
            }
        };
        self.count(if node.alias.is_some() { node.size } else { 1 }, start)?;
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    /// Stops before aliases of aliases fill the memory.
    fn count(&mut self, nodes: usize, offset: usize) -> Result<(), SyntaxError> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > MAX_NODES {
            return Err(SyntaxError {
                offset,
                message: format!("the document has more than {MAX_NODES} values, its aliases followed"),
            });
        }
        Ok(())
    }

    fn scalar(&self, value: &str, style: ScalarStyle, tag: Option<&str>, span: Range<usize>) -> Node {
        let style = match style {
            ScalarStyle::Plain => Style::Plain,
            ScalarStyle::SingleQuoted => Style::Single,
            ScalarStyle::DoubleQuoted => Style::Double,
            ScalarStyle::Literal | ScalarStyle::Folded => Style::Block,
        };
        // What is not there at all is reported as `~`, with the span of whatever came before.
        let written = self.text.get(span.clone()).unwrap_or_default();
        let absent = style == Style::Plain && value == "~" && written != "~";
        let kind = match tag {
            Some("str") => Kind::Text(if absent { String::new() } else { value.to_owned() }),
            Some(_) => scalar::resolve(if absent { "" } else { value }),
            None if absent => Kind::Null,
            None if style == Style::Plain => scalar::resolve(value),
            None => Kind::Text(value.to_owned()),
        };
        let span = if absent { span.end..span.end } else { span };
        Node::scalar(kind, span, style)
    }

    fn list(&mut self, style: StructureStyle, mut span: Range<usize>) -> Result<Node, SyntaxError> {
        let mut items = Vec::new();
        loop {
            let (event, at) = self.expect()?;
            if event == Event::SequenceEnd {
                span.end = at.byte_range().map_or(span.end, |at| at.end);
                break;
            }
            items.push(self.node(event, at)?);
        }
        let size = items.iter().map(|item| item.size).sum::<usize>() + 1;
        Ok(Node {
            kind: Kind::List(items),
            span,
            style: structure(style),
            alias: None,
            size,
        })
    }

    fn map(&mut self, style: StructureStyle, mut span: Range<usize>) -> Result<Node, SyntaxError> {
        let mut object = Object::default();
        let mut merged = Vec::new();
        let mut size = 1_usize;
        loop {
            let (event, at) = self.expect()?;
            if event == Event::MappingEnd {
                span.end = at.byte_range().map_or(span.end, |at| at.end);
                break;
            }
            let is_merge = matches!(&event, Event::Scalar(key, ScalarStyle::Plain, _, None) if key == "<<");
            let key = self.node(event, at)?;
            let (event, at) = self.expect()?;
            let value = self.node(event, at)?;
            size = size.saturating_add(key.size).saturating_add(value.size);
            if is_merge {
                merged.push((key, value));
            } else {
                object.insert(key_of(key)?, value, false);
            }
        }
        for (key, value) in merged {
            object.merge(&key, value)?;
        }
        Ok(Node {
            kind: Kind::Map(object),
            span,
            style: structure(style),
            alias: None,
            size,
        })
    }
}

fn structure(style: StructureStyle) -> Style {
    match style {
        StructureStyle::Block => Style::Indented,
        StructureStyle::Flow => Style::Flow,
    }
}

fn key_of(node: Node) -> Result<Key, SyntaxError> {
    let span = node.alias.unwrap_or(node.span);
    let name = match node.kind {
        Kind::Text(text) => text,
        Kind::Bool(value) => value.to_string(),
        Kind::Number(number) => number.to_string(),
        Kind::Null | Kind::List(_) | Kind::Map(_) => {
            return Err(SyntaxError {
                offset: span.start,
                message: "a key must be text".to_owned(),
            });
        }
    };
    Ok(Key {
        name,
        span,
        style: node.style,
    })
}

impl Object {
    fn insert(&mut self, key: Key, value: Node, merged: bool) {
        let known = self.entries.iter_mut().find(|entry| entry.key.name == key.name);
        match known {
            Some(_) if merged => {}
            Some(entry) => {
                self.repeated.push(key.clone());
                (entry.key, entry.value) = (key, value);
            }
            None => self.entries.push(Entry { key, value, merged }),
        }
    }

    /// Takes over what a merge key brings, and what is not there yet: from an object, or from a list of them.
    fn merge(&mut self, key: &Node, value: Node) -> Result<(), SyntaxError> {
        let offset = key.span.start;
        match value.kind {
            Kind::Map(object) => {
                for entry in object.entries {
                    self.insert(entry.key, entry.value, true);
                }
                Ok(())
            }
            Kind::List(items) if items.iter().all(|item| matches!(item.kind, Kind::Map(_))) => {
                items.into_iter().try_for_each(|item| self.merge(key, item))
            }
            _ => Err(SyntaxError {
                offset,
                message: "only an object, or a list of objects, can be merged".to_owned(),
            }),
        }
    }

    /// The entry of this key.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key.name == key)
    }
}

impl Node {
    fn scalar(kind: Kind, span: Range<usize>, style: Style) -> Self {
        Self {
            kind,
            span,
            style,
            alias: None,
            size: 1,
        }
    }

    /// Where it begins for people: at the alias, if it is one.
    pub fn offset(&self) -> usize {
        self.alias.as_ref().unwrap_or(&self.span).start
    }

    /// It is nothing.
    pub const fn is_null(&self) -> bool {
        matches!(self.kind, Kind::Null)
    }

    /// The text, if it is one.
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The object, if it is one.
    pub const fn object(&self) -> Option<&Object> {
        match &self.kind {
            Kind::Map(object) => Some(object),
            _ => None,
        }
    }

    /// The items, if it is a list.
    pub fn items(&self) -> &[Self] {
        match &self.kind {
            Kind::List(items) => items,
            _ => &[],
        }
    }

    /// The value of a key, if it is an object that has it.
    pub fn get(&self, key: &str) -> Option<&Self> {
        Some(&self.object()?.entry(key)?.value)
    }

    /// The value at the end of a path of keys and indices.
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

    /// Keys that are in an object twice, here or below. What an alias brings is told where it is written.
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

/// A step on a way through a document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// To the value of a key.
    Key(String),
    /// To an item.
    Index(usize),
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
