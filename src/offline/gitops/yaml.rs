//! YAML as kubectl reads it, with source locations.
//!
//! The text is split into documents as kubectl does. A tree is built from the parser's events and their byte spans:
//! aliases and merge keys are followed, and scalars are resolved. A document with a syntax error does not affect the
//! documents after it.

mod node;
mod object;
mod pieces;
mod scalar;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput, StructureStyle};

pub use node::{Kind, Node, Step, Style, SyntaxError};
use object::key_of;
pub use object::{Entry, Key, Object};
use pieces::{folded, has_escape_of_json, pieces, tab, with_line_feeds};
pub use scalar::{is_text_to_all, number};

/// Maximum number of nodes in a document, with the copies that its anchors and aliases take. A Plan has a few dozen; a
/// few lines of aliases to aliases have billions, and anchors within anchors multiply what they contain.
const MAX_NODES: usize = 500_000;
/// Maximum size of the texts in these copies.
const MAX_COPIED: usize = 16 << 20;
/// Maximum depth of a document. The schema of a Plan has about ten levels, and reading one takes a call within a call.
const MAX_DEPTH: usize = 128;

#[derive(Debug, Default)]
pub struct Stream {
    /// The documents without errors, in their order. An empty document is null.
    pub documents: Vec<Node>,
    /// At most one error per document.
    pub errors: Vec<SyntaxError>,
}

pub fn read(text: &str) -> Stream {
    let mut stream = Stream::default();
    for piece in pieces(text) {
        stream.errors.extend(piece.error);
        document(text, &piece.range, piece.is_json, &mut stream);
    }
    stream
}

type Events<'t> = Parser<'t, StrInput<'t>>;

/// Parses the document in a range of the text.
fn document(text: &str, range: &Range<usize>, is_json: bool, stream: &mut Stream) {
    let piece = text.get(range.clone()).unwrap_or_default();
    // In JSON, only a line feed ends a line, and only between values.
    let lines = with_line_feeds(piece).filter(|_| !is_json);
    // Another crate may have enabled comments for the whole build by a Cargo feature.
    let options = granit_parser::options! { emit_comments: false };
    let mut parser = Parser::new_from_str_with_options(lines.as_deref().unwrap_or(piece), options);
    let mut builder = Builder {
        parser: &mut parser,
        text,
        base: range.start,
        is_json,
        anchors: BTreeMap::new(),
        nodes: 0,
        copied: 0,
        depth: 0,
    };
    match builder.document() {
        Ok(None) => {}
        Ok(Some((_, document))) => {
            stream
                .errors
                .extend(tab(text, range, &document).map(SyntaxError::of_tab));
            stream.documents.push(document);
            match builder.document() {
                Ok(Some((offset, next))) if !next.is_null() => stream.errors.push(SyntaxError {
                    offset,
                    message: "kubectl ignores what follows the end of a document; begin it with a line `---`"
                        .to_owned(),
                }),
                Ok(_) => {}
                Err(error) => stream.errors.push(error),
            }
        }
        Err(error) => stream.errors.push(at_tab(&text[..range.end], error)),
    }
}

/// The parser reports a tab that indents a line where the text above it ends.
fn at_tab(text: &str, error: SyntaxError) -> SyntaxError {
    let rest = text.get(error.offset..).unwrap_or_default();
    let indent = |line: &str| line.len() - line.trim_start_matches([' ', '\t']).len();
    if !error.message.ends_with("found a tab") {
        return error;
    }
    let mut start = error.offset;
    for (number, line) in rest.split_inclusive('\n').enumerate() {
        if let Some(tab) = line[..indent(line)].find('\t').filter(|_| number > 0) {
            return SyntaxError::of_tab(start + tab);
        }
        start += line.len();
    }
    error
}

struct Builder<'p, 't> {
    parser: &'p mut Events<'t>,
    /// The whole text; the parser reads a part of it.
    text: &'p str,
    /// Offset of that part.
    base: usize,
    is_json: bool,
    /// Complete nodes, by the anchor that aliases name.
    anchors: BTreeMap<usize, Node>,
    nodes: usize,
    /// Bytes of the texts that anchors and aliases copy.
    copied: usize,
    depth: usize,
}

impl<'t> Builder<'_, 't> {
    /// The next document and its offset; `None` at the end.
    fn document(&mut self) -> Result<Option<(usize, Node)>, SyntaxError> {
        // An alias cannot refer to an anchor of another document.
        self.anchors.clear();
        loop {
            match self.next()? {
                None | Some((Event::StreamEnd, _)) => return Ok(None),
                Some((Event::DocumentStart(..), _)) => break,
                Some(_) => {}
            }
        }
        let mut root = (self.base, Node::scalar(Kind::Null, 0..0, Style::Plain));
        loop {
            match self.next()? {
                None | Some((Event::StreamEnd | Event::DocumentEnd, _)) => return Ok(Some(root)),
                Some((event, span)) => {
                    let start = self.range(span).start;
                    root = (start, self.node(event, span)?);
                }
            }
        }
    }

    /// Converts a span of the part to bytes of the whole text.
    fn range(&self, span: Span) -> Range<usize> {
        let range = span.byte_range().unwrap_or_default();
        self.base + range.start..self.base + range.end
    }

    fn next(&mut self) -> Result<Option<(Event<'t>, Span)>, SyntaxError> {
        match self.parser.next_event() {
            None => Ok(None),
            Some(Ok(next)) => Ok(Some(next)),
            Some(Err(error)) => Err(self.syntax(&error)),
        }
    }

    /// The next event within a document, where the end of input is an error.
    fn expect(&mut self) -> Result<(Event<'t>, Span), SyntaxError> {
        let end = self.text.len();
        self.next()?.ok_or_else(|| SyntaxError {
            offset: end,
            message: "the document ends early".to_owned(),
        })
    }

    fn syntax(&self, error: &ScanError) -> SyntaxError {
        let offset = error
            .marker()
            .byte_offset()
            .map_or(self.text.len(), |at| self.base + at);
        SyntaxError {
            offset: offset.min(self.text.len()),
            message: error.info(),
        }
    }

    fn node(&mut self, event: Event<'t>, span: Span) -> Result<Node, SyntaxError> {
        let span = self.range(span);
        let start = span.start;
        let (node, anchor) = match event {
            Event::Scalar(value, style, anchor, tag) => {
                // go-yaml leaves a scalar with an unknown tag as text (`resolve` in its resolve.go).
                let tag = tag.as_ref().map(|tag| tag.core_suffix().unwrap_or("str"));
                (self.scalar(&value, style, tag, span)?, anchor)
            }
            Event::Alias(id) => {
                let mut node = self.anchors.get(&id).cloned().ok_or_else(|| SyntaxError {
                    offset: span.start,
                    message: "an alias is within its own anchor".to_owned(),
                })?;
                node.alias = Some(span);
                (node, 0)
            }
            Event::SequenceStart(style, anchor, _) => {
                (self.nested(start, |it| it.list(style, span))?, anchor)
            }
            Event::MappingStart(style, anchor, _) => (self.nested(start, |it| it.map(style, span))?, anchor),
            _ => {
                return Err(SyntaxError {
                    offset: span.start,
                    message: "a value is missing here".to_owned(),
                });
            }
        };
        match &node.alias {
            Some(_) => self.count_copy(&node, start)?,
            None => self.count(1, start)?,
        }
        if anchor != 0 {
            self.count_copy(&node, start)?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    /// Reads a list or an object, one level deeper.
    fn nested(
        &mut self,
        offset: usize,
        read: impl FnOnce(&mut Self) -> Result<Node, SyntaxError>,
    ) -> Result<Node, SyntaxError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let message = format!("the document has more than {MAX_DEPTH} levels");
            return Err(SyntaxError { offset, message });
        }
        let node = read(self);
        self.depth -= 1;
        node
    }

    /// Stops before copies of copies exhaust the memory.
    fn count_copy(&mut self, node: &Node, offset: usize) -> Result<(), SyntaxError> {
        self.copied = self.copied.saturating_add(node.bytes);
        if self.copied > MAX_COPIED {
            let limit = MAX_COPIED >> 20;
            let message =
                format!("the anchors and aliases of the document repeat more than {limit} MiB of text");
            return Err(SyntaxError { offset, message });
        }
        self.count(node.size, offset)
    }

    fn count(&mut self, nodes: usize, offset: usize) -> Result<(), SyntaxError> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > MAX_NODES {
            return Err(SyntaxError {
                offset,
                message: format!(
                    "the document has more than {MAX_NODES} values when its anchors and aliases are expanded"
                ),
            });
        }
        Ok(())
    }

    fn scalar(
        &self,
        value: &str,
        style: ScalarStyle,
        tag: Option<&str>,
        span: Range<usize>,
    ) -> Result<Node, SyntaxError> {
        let style = match style {
            ScalarStyle::Plain => Style::Plain,
            ScalarStyle::SingleQuoted => Style::Single,
            ScalarStyle::DoubleQuoted => Style::Double,
            ScalarStyle::Literal | ScalarStyle::Folded => Style::Block,
        };
        // The parser reports a missing value as `~`, with the span of the preceding token.
        let written = self.text.get(span.clone()).unwrap_or_default();
        let absent = style == Style::Plain && value == "~" && written != "~";
        let refused = |message: &str| SyntaxError {
            offset: span.start,
            message: message.to_owned(),
        };
        if style == Style::Double && !self.is_json && has_escape_of_json(written) {
            return Err(refused("JSON has this escape, YAML 1.1 has not"));
        }
        let kind = match tag {
            Some("str") => Kind::Text(if absent { String::new() } else { value.to_owned() }),
            Some(tag) => scalar::tagged(tag, if absent { "" } else { value })
                .ok_or_else(|| refused(&format!("the value is no !!{tag}")))?,
            None if absent => Kind::Null,
            None if style == Style::Plain && scalar::is_not_finite(value) => {
                return Err(refused("the API server cannot store this number"));
            }
            None if style == Style::Plain => scalar::resolve(value),
            None if self.is_json => Kind::Text(value.to_owned()),
            None => Kind::Text(folded(value, written)),
        };
        let span = if absent { span.end..span.end } else { span };
        Ok(Node::scalar(kind, span, style))
    }

    fn list(&mut self, style: StructureStyle, mut span: Range<usize>) -> Result<Node, SyntaxError> {
        let mut items = Vec::new();
        loop {
            let (event, at) = self.expect()?;
            if event == Event::SequenceEnd {
                span.end = self.range(at).end;
                break;
            }
            items.push(self.node(event, at)?);
        }
        let size = items.iter().map(|item| item.size).sum::<usize>() + 1;
        let bytes = items.iter().map(|item| item.bytes).sum();
        Ok(Node {
            kind: Kind::List(items),
            span,
            style: structure(style),
            alias: None,
            size,
            bytes,
        })
    }

    fn map(&mut self, style: StructureStyle, mut span: Range<usize>) -> Result<Node, SyntaxError> {
        let mut object = Object::default();
        let (mut size, mut bytes) = (1_usize, 0_usize);
        loop {
            let (event, at) = self.expect()?;
            if event == Event::MappingEnd {
                span.end = self.range(at).end;
                break;
            }
            // A quoted `<<` is an ordinary key (`isMerge` in go-yaml's decode.go).
            let is_merge = matches!(&event, Event::Scalar(key, ScalarStyle::Plain, _, None) if key == "<<");
            let key = self.node(event, at)?;
            let (event, at) = self.expect()?;
            let value = self.node(event, at)?;
            size = size.saturating_add(key.size).saturating_add(value.size);
            bytes = bytes.saturating_add(key.bytes).saturating_add(value.bytes);
            if is_merge {
                object.merge(&key, value)?;
            } else {
                object.insert(key_of(key)?, value);
            }
        }
        Ok(Node {
            kind: Kind::Map(object),
            span,
            style: structure(style),
            alias: None,
            size,
            bytes,
        })
    }
}

fn structure(style: StructureStyle) -> Style {
    match style {
        StructureStyle::Block => Style::Indented,
        StructureStyle::Flow => Style::Flow,
    }
}
