//! Deserializes shared JSON from text, and other types from shared JSON.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{Deserialize, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Error, Number};

use super::{Map, Value};

/// Maximum number of interned field names. Kubernetes' types have a few hundred; labels and annotations add some.
const MAX_INTERNED: usize = 4_096;

thread_local! {
    /// Interned field names: every object repeats them, and most are longer than their values.
    static INTERNED: RefCell<HashSet<Arc<str>>> = RefCell::default();
    /// Bytes that values may still take while they are read.
    static MEMORY: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Reads values that may take so many bytes together. Returns false if they would take more; the reader then got an
/// error from one of them.
pub(crate) fn within_memory<T>(bytes: usize, read: impl FnOnce() -> T) -> (T, bool) {
    MEMORY.set(bytes);
    let read = read();
    (read, MEMORY.replace(usize::MAX) > 0)
}

/// Takes the memory of a value and its text.
fn take_memory<E: serde::de::Error>(text: usize) -> Result<(), E> {
    let left = MEMORY.get();
    if left == usize::MAX {
        return Ok(());
    }
    // A field has a name and a value; a text has a header.
    let value = size_of::<(Arc<str>, Value)>() + text;
    MEMORY.set(left.saturating_sub(value));
    // Not `<=`: 0 tells `within_memory` that the limit was exceeded.
    if value < left {
        Ok(())
    } else {
        Err(E::custom("the values take too much memory"))
    }
}

/// The interned name of a field.
pub(super) fn name(text: &str) -> Arc<str> {
    INTERNED.with_borrow_mut(|known| {
        if let Some(name) = known.get(text) {
            return Arc::clone(name);
        }
        let name: Arc<str> = text.into();
        if known.len() < MAX_INTERNED {
            known.insert(Arc::clone(&name));
        }
        name
    })
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Deserialize::deserialize(deserializer)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Value, E> {
        Ok(Value::Bool(truth))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        // JSON has no NaN and no infinity; `serde_json::Value` reads them as null, too.
        Ok(Number::from_f64(number).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
        take_memory(text.len())?;
        Ok(Value::String(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::with_capacity(seq.size_hint().unwrap_or_default());
        while let Some(item) = seq.next_element()? {
            take_memory(0)?;
            list.push(item);
        }
        // The list lives as long as the object, and a vector that grew may have twice the capacity.
        list.shrink_to_fit();
        Ok(Value::Array(Arc::new(list)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut fields = Vec::with_capacity(access.size_hint().unwrap_or_default());
        while let Some(Name(key)) = access.next_key()? {
            take_memory(0)?;
            fields.push((key, access.next_value()?));
        }
        Ok(Map::of(fields).into())
    }
}

/// A field name during deserialization.
struct Name(Arc<str>);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ValueVisitor;
        impl Visitor<'_> for ValueVisitor {
            type Value = Name;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a field")
            }
            fn visit_str<E>(self, text: &str) -> Result<Name, E> {
                Ok(Name(name(text)))
            }
        }
        deserializer.deserialize_str(ValueVisitor)
    }
}

impl Map {
    /// Sorts fields; of two with the same name the later one counts.
    pub(super) fn of(mut fields: Vec<(Arc<str>, Value)>) -> Self {
        if !fields.is_sorted_by(|(one, _), (next, _)| one < next) {
            fields.reverse();
            fields.sort_by(|(one, _), (other, _)| one.cmp(other)); // stable: the later of two comes first
            fields.dedup_by(|(one, _), (other, _)| one == other);
        }
        Self(fields.into())
    }
}

impl<'de> IntoDeserializer<'de, Error> for &'de Value {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for &'de Value {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Value::Null => visitor.visit_unit(),
            Value::Bool(truth) => visitor.visit_bool(*truth),
            Value::Number(number) => number.deserialize_any(visitor),
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(list) => {
                let mut items = SeqDeserializer::new(list.iter());
                let made = visitor.visit_seq(&mut items)?;
                items.end()?;
                Ok(made)
            }
            Value::Object(map) => {
                let mut fields = MapDeserializer::new(map.iter());
                let made = visitor.visit_map(&mut fields)?;
                fields.end()?;
                Ok(made)
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self {
            Value::String(text) => visitor.visit_enum((&**text).into_deserializer()),
            _ => Err(Error::custom("only the name of a variant is an enum here")),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}
