//! Shared JSON out of other types, without a copy that is not shared in between.

use std::sync::Arc;

use serde::ser::{
    Error as _, Impossible, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeTuple,
    Serializer,
};
use serde_json::{Error, Number};

use super::{Map, Value, read};

/// Writes a type as shared JSON.
///
/// # Errors
/// It cannot be JSON.
pub fn to_value<T: Serialize + ?Sized>(it: &T) -> Result<Value, Error> {
    it.serialize(Maker)
}

struct Maker;

/// Variants that hold something: no type of Kubernetes is one.
fn no_variants<T>() -> Result<T, Error> {
    Err(Error::custom("a variant that holds something"))
}

impl Serializer for Maker {
    type Ok = Value;
    type Error = Error;
    type SerializeSeq = List;
    type SerializeTuple = List;
    type SerializeTupleStruct = Impossible<Value, Error>;
    type SerializeTupleVariant = Impossible<Value, Error>;
    type SerializeMap = Fields;
    type SerializeStruct = Fields;
    type SerializeStructVariant = Impossible<Value, Error>;

    fn serialize_bool(self, truth: bool) -> Result<Value, Error> {
        Ok(Value::Bool(truth))
    }

    fn serialize_i8(self, number: i8) -> Result<Value, Error> {
        self.serialize_i64(number.into())
    }

    fn serialize_i16(self, number: i16) -> Result<Value, Error> {
        self.serialize_i64(number.into())
    }

    fn serialize_i32(self, number: i32) -> Result<Value, Error> {
        self.serialize_i64(number.into())
    }

    fn serialize_i64(self, number: i64) -> Result<Value, Error> {
        Ok(Value::Number(number.into()))
    }

    fn serialize_u8(self, number: u8) -> Result<Value, Error> {
        self.serialize_u64(number.into())
    }

    fn serialize_u16(self, number: u16) -> Result<Value, Error> {
        self.serialize_u64(number.into())
    }

    fn serialize_u32(self, number: u32) -> Result<Value, Error> {
        self.serialize_u64(number.into())
    }

    fn serialize_u64(self, number: u64) -> Result<Value, Error> {
        Ok(Value::Number(number.into()))
    }

    fn serialize_f32(self, number: f32) -> Result<Value, Error> {
        self.serialize_f64(number.into())
    }

    fn serialize_f64(self, number: f64) -> Result<Value, Error> {
        Ok(Number::from_f64(number).map_or(Value::Null, Value::Number))
    }

    fn serialize_char(self, letter: char) -> Result<Value, Error> {
        Ok(letter.to_string().into())
    }

    fn serialize_str(self, text: &str) -> Result<Value, Error> {
        Ok(text.into())
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<Value, Error> {
        Ok(bytes.iter().map(|byte| u32::from(*byte)).collect())
    }

    fn serialize_none(self) -> Result<Value, Error> {
        Ok(Value::Null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, it: &T) -> Result<Value, Error> {
        it.serialize(self)
    }

    fn serialize_unit(self) -> Result<Value, Error> {
        Ok(Value::Null)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<Value, Error> {
        Ok(Value::Null)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, name: &'static str) -> Result<Value, Error> {
        Ok(name.into())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        it: &T,
    ) -> Result<Value, Error> {
        it.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<Value, Error> {
        no_variants()
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<List, Error> {
        Ok(List(Vec::with_capacity(len.unwrap_or_default())))
    }

    fn serialize_tuple(self, len: usize) -> Result<List, Error> {
        self.serialize_seq(Some(len))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Impossible<Value, Error>, Error> {
        no_variants()
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Impossible<Value, Error>, Error> {
        no_variants()
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Fields, Error> {
        Ok(Fields {
            made: Vec::with_capacity(len.unwrap_or_default()),
            key: None,
        })
    }

    fn serialize_struct(self, _: &'static str, len: usize) -> Result<Fields, Error> {
        self.serialize_map(Some(len))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Impossible<Value, Error>, Error> {
        no_variants()
    }
}

/// A list that is being made.
struct List(Vec<Value>);

impl SerializeSeq for List {
    type Ok = Value;
    type Error = Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, it: &T) -> Result<(), Error> {
        self.0.push(to_value(it)?);
        Ok(())
    }

    fn end(self) -> Result<Value, Error> {
        Ok(self.0.into())
    }
}

impl SerializeTuple for List {
    type Ok = Value;
    type Error = Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, it: &T) -> Result<(), Error> {
        SerializeSeq::serialize_element(self, it)
    }

    fn end(self) -> Result<Value, Error> {
        SerializeSeq::end(self)
    }
}

/// A map that is being made.
struct Fields {
    made: Vec<(Arc<str>, Value)>,
    key: Option<Arc<str>>,
}

impl SerializeMap for Fields {
    type Ok = Value;
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        match to_value(key)? {
            Value::String(text) => self.key = Some(read::name(&text)),
            other => return Err(Error::custom(format!("{other} is no name of a field"))),
        }
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, it: &T) -> Result<(), Error> {
        let key = self
            .key
            .take()
            .ok_or_else(|| Error::custom("a value without a name"))?;
        self.made.push((key, to_value(it)?));
        Ok(())
    }

    fn end(self) -> Result<Value, Error> {
        Ok(Map::of(self.made).into())
    }
}

impl SerializeStruct for Fields {
    type Ok = Value;
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, it: &T) -> Result<(), Error> {
        self.made.push((read::name(key), to_value(it)?));
        Ok(())
    }

    fn end(self) -> Result<Value, Error> {
        SerializeMap::end(self)
    }
}
