//! The items of a list in JSON, one by one, so that those that are not needed take no memory.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::ChannelError;
use super::body::Body;

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
    let take = |item: T| match with(item) {
        Ok(()) => true,
        Err(error) => {
            failed = Some(error);
            false
        }
    };
    let item = PhantomData;
    let read = match list {
        List::Root => body.json(
            Items {
                take,
                item,
                or_null: false,
            },
            what,
        ),
        List::Field(name) | List::Optional(name) => {
            let is_optional = matches!(list, List::Optional(_));
            body.json(
                Field {
                    name,
                    is_optional,
                    items: Items {
                        take,
                        item,
                        or_null: is_optional,
                    },
                },
                what,
            )
        }
    };
    match failed {
        Some(error) => Err(error),
        None => read,
    }
}

struct Items<F, T> {
    take: F,
    item: PhantomData<T>,
    or_null: bool,
}

impl<'de, T: DeserializeOwned, F: FnMut(T) -> bool> DeserializeSeed<'de> for &mut Items<F, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: DeserializeOwned, F: FnMut(T) -> bool> DeserializeSeed<'de> for Items<F, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(mut self, deserializer: D) -> Result<(), D::Error> {
        (&mut self).deserialize(deserializer)
    }
}

impl<'de, T: DeserializeOwned, F: FnMut(T) -> bool> Visitor<'de> for &mut Items<F, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(item) = list.next_element()? {
            if !(self.take)(item) {
                // Only an error ends the list early. `each` returns that of `with` in its place.
                return Err(A::Error::custom("no further item is wanted"));
            }
        }
        Ok(())
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        if self.or_null {
            Ok(())
        } else {
            Err(E::custom("null is not a list"))
        }
    }
}

struct Field<F, T> {
    name: &'static str,
    is_optional: bool,
    items: Items<F, T>,
}

impl<'de, T: DeserializeOwned, F: FnMut(T) -> bool> DeserializeSeed<'de> for Field<F, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T: DeserializeOwned, F: FnMut(T) -> bool> Visitor<'de> for Field<F, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with a list {:?}", self.name)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<(), A::Error> {
        let mut is_found = self.is_optional;
        while let Some(name) = fields.next_key::<String>()? {
            if name == self.name {
                fields.next_value_seed(&mut self.items)?;
                is_found = true;
            } else {
                fields.next_value::<IgnoredAny>()?;
            }
        }
        if is_found {
            Ok(())
        } else {
            Err(A::Error::missing_field(self.name))
        }
    }
}
