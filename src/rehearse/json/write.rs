//! Serializes shared JSON as text.

use std::cell::RefCell;
use std::fmt;

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
    /// A reusable buffer, so that each result is allocated with its exact size.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::default();
}

impl Value {
    pub fn to_bytes(&self) -> Bytes {
        SCRATCH.with_borrow_mut(|buffer| {
            buffer.clear();
            // Cannot fail: memory, and keys that are strings.
            let _ = serde_json::to_writer(&mut *buffer, self);
            Bytes::copy_from_slice(buffer)
        })
    }
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
