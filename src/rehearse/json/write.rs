//! Shared JSON as text.

use std::cell::RefCell;
use std::fmt;
use std::io::Write as _;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use serde::ser::{Serialize, Serializer};

use super::{Map, Value};

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(truth) => serializer.serialize_bool(*truth),
            Self::Number(number) => number.serialize(serializer),
            Self::String(text) => serializer.serialize_str(text),
            Self::Array(list) => serializer.collect_seq(&**list),
            Self::Object(map) => map.serialize(serializer),
        }
    }
}

impl Serialize for Map {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

thread_local! {
    /// Texts grow here, so that each is in a piece of memory that fits it.
    static DESK: RefCell<Vec<u8>> = RefCell::default();
}

/// The text of a value, and where the values of its own fields are in it, in their order.
#[derive(Debug)]
pub struct Text {
    /// The text.
    pub bytes: Bytes,
    fields: Box<[Range<usize>]>,
}

impl Value {
    /// Its text.
    pub fn to_bytes(&self) -> Bytes {
        DESK.with_borrow_mut(|desk| {
            desk.clear();
            self.write(desk);
            Bytes::copy_from_slice(desk)
        })
    }

    /// Its text, made of that of an earlier version as far as the two share their fields.
    pub fn to_text(&self, earlier: Option<(&Self, &Text)>) -> Text {
        let Self::Object(map) = self else {
            return Text {
                bytes: self.to_bytes(),
                fields: Box::default(),
            };
        };
        let known = |key: &str, value: &Self| {
            let (earlier, text) = earlier?;
            let place = earlier.as_object()?.find(key)?;
            let is_shared = earlier.as_object()?.0[place].1.is_shared_with(value);
            is_shared.then(|| text.bytes.get(text.fields.get(place)?.clone()))?
        };
        DESK.with_borrow_mut(|desk| {
            desk.clear();
            let mut fields = Vec::with_capacity(map.0.len());
            desk.push(b'{');
            for (key, value) in map {
                if desk.len() > 1 {
                    desk.push(b',');
                }
                write_text(key, desk);
                desk.push(b':');
                let start = desk.len();
                match known(key, value) {
                    Some(text) => desk.extend_from_slice(text),
                    None => value.write(desk),
                }
                fields.push(start..desk.len());
            }
            desk.push(b'}');
            Text {
                bytes: Bytes::copy_from_slice(desk),
                fields: fields.into(),
            }
        })
    }

    /// Whether it is the very same map or list. Equal ones may be two.
    fn is_shared_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Array(one), Self::Array(other)) => Arc::ptr_eq(one, other),
            (Self::Object(one), Self::Object(other)) => Arc::ptr_eq(&one.0, &other.0),
            _ => false,
        }
    }

    /// As `serde_json` writes it, and twice as fast: every version of every object that somebody watches is written.
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Null => out.extend_from_slice(b"null"),
            Self::Bool(true) => out.extend_from_slice(b"true"),
            Self::Bool(false) => out.extend_from_slice(b"false"),
            Self::Number(number) => {
                // Nothing can go wrong with what is written into memory.
                let _ = write!(out, "{number}");
            }
            Self::String(text) => write_text(text, out),
            Self::Array(list) => {
                out.push(b'[');
                for (place, item) in list.iter().enumerate() {
                    if place > 0 {
                        out.push(b',');
                    }
                    item.write(out);
                }
                out.push(b']');
            }
            Self::Object(map) => {
                out.push(b'{');
                for (place, (key, value)) in map.iter().enumerate() {
                    if place > 0 {
                        out.push(b',');
                    }
                    write_text(key, out);
                    out.push(b':');
                    value.write(out);
                }
                out.push(b'}');
            }
        }
    }
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    if is_plain(text.as_bytes()) {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        let _ = serde_json::to_writer(out, text);
    }
}

/// Whether a text is written as it is. Most are, and each is looked through in every version of its object, so eight letters
/// at a time.
fn is_plain(text: &[u8]) -> bool {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const TOPS: u64 = u64::from_ne_bytes([0x80; 8]);
    // The top bit of each letter that is below `least`, which is one of ASCII; those of no ASCII are above.
    let below = |letters: u64, least: u8| letters.wrapping_sub(ONES * u64::from(least)) & !letters & TOPS;
    let is = |letters: u64, letter: u8| below(letters ^ (ONES * u64::from(letter)), 1);
    let (eights, rest) = text.as_chunks::<8>();
    let special = |eight: &[u8; 8]| {
        let letters = u64::from_ne_bytes(*eight);
        below(letters, b' ') | is(letters, b'"') | is(letters, b'\\') != 0
    };
    !eights.iter().any(special)
        && rest
            .iter()
            .all(|byte| *byte >= b' ' && !matches!(byte, b'"' | b'\\'))
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.to_bytes()))
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
