//! The items of a list in JSON, one by one, so that those that are not needed take no memory.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::body::Body;
use super::error::ChannelError;

/// Where the list is in the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    /// The response is the list.
    Root,
    /// A field that must be there.
    Field(&'static str),
    /// A field that may be absent or null.
    Optional(&'static str),
}

/// Calls `with` for each item of the list, up to its first error.
pub(super) fn each<T: DeserializeOwned>(
    body: &mut Body,
    list: List,
    what: &'static str,
    mut with: impl FnMut(T) -> Result<(), ChannelError>,
) -> Result<(), ChannelError> {
    let mut failed = None;
    let mut items = Items {
        list,
        is_inside: list == List::Root,
        take: |item: T| with(item).map_err(|error| failed = Some(error)).is_ok(),
        item: PhantomData,
    };
    let read = body.json(&mut items, what);
    failed.map_or(read, Err)
}

struct Items<F, T> {
    list: List,
    /// Whether the next value is the list itself.
    is_inside: bool,
    take: F,
    item: PhantomData<T>,
}

impl<'de, T: DeserializeOwned, F: FnMut(T) -> bool> DeserializeSeed<'de> for &mut Items<F, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: DeserializeOwned, F: FnMut(T) -> bool> Visitor<'de> for &mut Items<F, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list: {:?}", self.list)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        if !self.is_inside {
            return Err(A::Error::custom("the list is in a field"));
        }
        while let Some(item) = list.next_element()? {
            if !(self.take)(item) {
                // Only an error ends the list early. `each` returns that of `with` in its place.
                return Err(A::Error::custom("no further item is wanted"));
            }
        }
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        match self.list {
            List::Optional(_) if self.is_inside => Ok(()),
            _ => Err(E::custom("null is not a list")),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let (name, mut is_found) = match self.list {
            List::Field(name) if !self.is_inside => (name, false),
            List::Optional(name) if !self.is_inside => (name, true),
            _ => return Err(A::Error::custom("an object is not a list")),
        };
        while let Some(field) = fields.next_key::<String>()? {
            if field == name {
                (self.is_inside, is_found) = (true, true);
                fields.next_value_seed(&mut *self)?;
                self.is_inside = false;
            } else {
                fields.next_value::<IgnoredAny>()?;
            }
        }
        if is_found {
            Ok(())
        } else {
            Err(A::Error::missing_field(name))
        }
    }
}
