//! What Go prints for a value inside a JSON document (S41): Rancher's `data.Object.String` over `encoding/json`, with
//! numbers as they are written.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Deserialize;
use serde_json::value::RawValue;

/// A JSON value. Numbers, `true` and `false` stay text, because Go prints them as they are written.
enum Json<'a> {
    Null,
    Text(String),
    Literal(&'a str),
    List(Vec<&'a RawValue>),
    Map(BTreeMap<String, &'a RawValue>),
}

impl<'a> Json<'a> {
    fn of(raw: &'a str) -> Self {
        match raw.bytes().next() {
            Some(b'"') => parse(raw).map(Self::Text),
            Some(b'[') => parse(raw).map(Self::List),
            Some(b'{') => parse(raw).map(Self::Map),
            Some(b'n') | None => None,
            Some(_) => Some(Self::Literal(raw)),
        }
        .unwrap_or(Self::Null)
    }

    /// Prints the value as inside a map or a list.
    fn print(&self, to: &mut String) {
        match self {
            Self::Null => to.push_str("<nil>"),
            Self::Text(text) => to.push_str(text),
            Self::Literal(text) => to.push_str(text),
            Self::List(values) => {
                to.push('[');
                for (index, value) in values.iter().enumerate() {
                    to.push_str(if index == 0 { "" } else { " " });
                    Json::of(value.get()).print(to);
                }
                to.push(']');
            }
            Self::Map(values) => {
                to.push_str("map[");
                for (index, (key, value)) in values.iter().enumerate() {
                    let space = if index == 0 { "" } else { " " };
                    let _ = write!(to, "{space}{key}:"); // writing to a String cannot fail
                    Json::of(value.get()).print(to);
                }
                to.push(']');
            }
        }
    }
}

fn parse<'a, T: Deserialize<'a>>(raw: &'a str) -> Option<T> {
    serde_json::from_str(raw).ok()
}

/// A JSON document whose levels are parsed once, however many paths lead through them.
pub(super) struct Document<'a> {
    text: &'a str,
    /// Fields of the maps on the paths so far, by path; `None` if the value is not a map.
    levels: BTreeMap<String, Option<BTreeMap<String, &'a RawValue>>>,
}

impl<'a> Document<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self {
            text,
            levels: BTreeMap::new(),
        }
    }

    /// The trimmed text of the field at `path`. Empty if it is missing or null, or if the path leads through a value
    /// that is not a map. For a list, the text of its first element.
    pub(super) fn lookup(&mut self, path: &str) -> String {
        let mut raw = self.text;
        let mut end = 0;
        for key in path.split('.') {
            let above = &path[..end];
            if !self.levels.contains_key(above) {
                let fields = match Json::of(raw) {
                    Json::Map(fields) => Some(fields),
                    _ => None,
                };
                self.levels.insert(above.to_owned(), fields);
            }
            let fields = self.levels.get(above).and_then(Option::as_ref);
            let Some(value) = fields.and_then(|fields| fields.get(key)) else {
                return String::new();
            };
            raw = value.get();
            end += key.len() + usize::from(end > 0);
        }
        let value = match Json::of(raw) {
            Json::List(values) => values.first().map_or(Json::Null, |first| Json::of(first.get())),
            value => value,
        };
        let mut text = String::new();
        if !matches!(value, Json::Null) {
            value.print(&mut text);
        }
        text.trim().to_owned()
    }
}
