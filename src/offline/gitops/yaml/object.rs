//! Objects: their entries by key, and merge keys.

use std::collections::BTreeMap;
use std::ops::Range;

use super::node::{Kind, Node, Style, SyntaxError};
use super::scalar;

/// Objects with more keys have an index.
const LINEAR_SEARCH_MAX: usize = 16;

#[derive(Clone, Debug, Default)]
pub struct Object {
    /// Each key once; the last one counts, as in kubectl.
    pub entries: Vec<Entry>,
    /// Second occurrences of keys.
    pub repeated: Vec<Key>,
    /// Positions of the entries, if there are many.
    places: BTreeMap<String, usize>,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub key: Key,
    pub value: Node,
    /// The offset of the merge key (`<<`) that the entry comes from.
    pub merged: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    pub name: String,
    /// With its quotes.
    pub span: Range<usize>,
    pub style: Style,
    /// Of a repeated key, where it was before.
    pub earlier: Option<usize>,
}

pub(super) fn key_of(node: Node) -> Result<Key, SyntaxError> {
    let span = node.alias.unwrap_or(node.span);
    let name = match node.kind {
        Kind::Text(text) => text,
        Kind::Bool(value) => value.to_string(),
        Kind::Number(number) => scalar::key(&number),
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
        earlier: None,
    })
}

impl Object {
    pub(super) fn insert(&mut self, key: Key, value: Node) {
        match self.position(&key.name) {
            Some(position) => {
                let entry = &mut self.entries[position];
                if entry.merged.is_none() {
                    self.repeated.push(Key {
                        earlier: Some(entry.key.span.start),
                        ..key.clone()
                    });
                }
                *entry = Entry {
                    key,
                    value,
                    merged: None,
                };
            }
            None => self.push(Entry {
                key,
                value,
                merged: None,
            }),
        }
    }

    fn push(&mut self, entry: Entry) {
        let position = self.entries.len();
        if position >= LINEAR_SEARCH_MAX {
            if self.places.is_empty() {
                let known = self.entries.iter().enumerate();
                let known = known.map(|(position, entry)| (entry.key.name.clone(), position));
                self.places = known.collect();
            }
            self.places.insert(entry.key.name.clone(), position);
        }
        self.entries.push(entry);
    }

    fn position(&self, key: &str) -> Option<usize> {
        if self.places.is_empty() {
            return self.entries.iter().position(|entry| entry.key.name == key);
        }
        self.places.get(key).copied()
    }

    /// Merges an object, or a list of objects, where the first wins. Following kubectl, and unlike the YAML
    /// specification, merged entries override the keys above the merge key and not those below it.
    pub(super) fn merge(&mut self, key: &Node, value: Node) -> Result<(), SyntaxError> {
        let offset = key.span.start;
        match value.kind {
            Kind::Map(object) => {
                for Entry { key, value, .. } in object.entries {
                    let entry = Entry {
                        key,
                        value,
                        merged: Some(offset),
                    };
                    match self.position(&entry.key.name) {
                        Some(known) => self.entries[known] = entry,
                        None => self.push(entry),
                    }
                }
                Ok(())
            }
            // kubectl takes a list only where it is written, not an alias of one.
            Kind::List(items)
                if value.alias.is_none() && items.iter().all(|item| matches!(item.kind, Kind::Map(_))) =>
            {
                items.into_iter().rev().try_for_each(|item| self.merge(key, item))
            }
            _ => Err(SyntaxError {
                offset,
                message: "only an object, or a list of objects, can be merged".to_owned(),
            }),
        }
    }

    pub fn entry(&self, key: &str) -> Option<&Entry> {
        Some(&self.entries[self.position(key)?])
    }
}
