//! What Go prints for a value inside a JSON document (S41): Rancher's `data.Object.String` over `encoding/json` with
//! numbers as they are written.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Deserialize;
use serde_json::value::RawValue;

/// Values by their kind. Numbers, `true` and `false` stay text, because Go prints them as they are written.
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

    /// The text of the value inside a map or a list.
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
                    let _ = write!(to, "{space}{key}:"); // a String takes whatever is written to it
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

/// The text of the field at `path` in a JSON document, trimmed. Empty where there is none, where it is null, and where the
/// path leads through anything but maps. Of a list it is the text of the first element.
pub(super) fn lookup(document: &str, path: &str) -> String {
    let mut raw = document;
    for key in path.split('.') {
        let Json::Map(fields) = Json::of(raw) else {
            return String::new();
        };
        let Some(value) = fields.get(key) else {
            return String::new();
        };
        raw = value.get();
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
