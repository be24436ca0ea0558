//! Shared JSON out of text, and other types out of shared JSON.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{Deserialize, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Error, Number};

use super::{Map, Value};

/// How many names of fields are kept once. Those of Kubernetes' types are some hundred, labels and annotations some more.
const NAMES: usize = 4_096;

thread_local! {
    /// The same names stand in every object, and most of them are longer than what they name.
    static KNOWN: RefCell<HashSet<Arc<str>>> = RefCell::default();
}

/// The name of a field, shared with all who bear it.
pub(super) fn name(text: &str) -> Arc<str> {
    KNOWN.with_borrow_mut(|known| {
        if let Some(name) = known.get(text) {
            return Arc::clone(name);
        }
        let name: Arc<str> = text.into();
        if known.len() < NAMES {
            known.insert(Arc::clone(&name));
        }
        name
    })
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
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
        Ok(Number::from_f64(number).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::with_capacity(seq.size_hint().unwrap_or_default());
        while let Some(item) = seq.next_element()? {
            list.push(item);
        }
        list.shrink_to_fit();
        Ok(Value::Array(Arc::new(list)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut fields = Vec::with_capacity(access.size_hint().unwrap_or_default());
        while let Some(Name(key)) = access.next_key()? {
            fields.push((key, access.next_value()?));
        }
        Ok(Map::of(fields).into())
    }
}

/// The name of a field as it is read.
struct Name(Arc<str>);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Name;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a field")
            }
            fn visit_str<E>(self, text: &str) -> Result<Name, E> {
                Ok(Name(name(text)))
            }
        }
        deserializer.deserialize_str(Reader)
    }
}

impl Map {
    /// Fields in any order; of two of one name the later counts.
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
