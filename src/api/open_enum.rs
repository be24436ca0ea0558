//! A closed list of words in an API that stays open: words of another version of refit, or of Kubernetes, are kept as
//! they are.

use std::fmt;
use std::ops::Deref;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A closed list of words, each with a variant.
pub trait ClosedEnum: Copy + Eq + 'static {
    /// The word in status, events and conditions.
    fn name(self) -> &'static str;

    fn named(name: &str) -> Option<Self>;
}

/// Declares a [`ClosedEnum`]: each variant has the name of its word and a description.
#[macro_export]
macro_rules! closed_enum {
    ($(#[$doc:meta])* $enum:ident { $($variant:ident $about:literal)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $enum {
            $(#[doc = $about] $variant,)*
        }

        impl $enum {
            /// All variants, in the order of the documents.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The word in objects.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant),)* }
            }

            pub const fn about(self) -> &'static str {
                match self { $(Self::$variant => $about,)* }
            }
        }

        impl $crate::open_enum::ClosedEnum for $enum {
            fn name(self) -> &'static str {
                self.name()
            }

            fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.name() == name)
            }
        }

        impl std::fmt::Display for $enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl serde::Serialize for $enum {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }
    };
}
pub use closed_enum;

/// A word in an object: a variant of the list, or a word that this version does not know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OpenEnum<T> {
    Known(T),
    /// Any other word, as it was read.
    Other(String),
}

impl<T: ClosedEnum> OpenEnum<T> {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(known) => known.name(),
            Self::Other(other) => other,
        }
    }

    /// The variant, if it is known.
    pub fn known(&self) -> Option<T> {
        match self {
            Self::Known(known) => Some(*known),
            Self::Other(_) => None,
        }
    }

    /// Whether there is no word.
    pub fn is_empty(&self) -> bool {
        self.as_str().is_empty()
    }
}

impl<T> Default for OpenEnum<T> {
    fn default() -> Self {
        Self::Other(String::new())
    }
}

impl<T: ClosedEnum> From<T> for OpenEnum<T> {
    fn from(known: T) -> Self {
        Self::Known(known)
    }
}

impl<T: ClosedEnum> From<&str> for OpenEnum<T> {
    fn from(text: &str) -> Self {
        T::named(text).map_or_else(|| Self::Other(text.to_owned()), Self::Known)
    }
}

impl<T: ClosedEnum> Deref for OpenEnum<T> {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl<T: ClosedEnum> PartialEq<T> for OpenEnum<T> {
    fn eq(&self, other: &T) -> bool {
        self.known() == Some(*other)
    }
}

impl<T: ClosedEnum> PartialEq<str> for OpenEnum<T> {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl<T: ClosedEnum> PartialEq<&str> for OpenEnum<T> {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl<T: ClosedEnum> fmt::Display for OpenEnum<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl<T: ClosedEnum> Serialize for OpenEnum<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de, T: ClosedEnum> Deserialize<'de> for OpenEnum<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(T::named(&text).map_or(Self::Other(text), Self::Known))
    }
}

/// An unrestricted string for the API server: an enum in the schema would refuse words of other versions.
impl<T: ClosedEnum> JsonSchema for OpenEnum<T> {
    fn inline_schema() -> bool {
        String::inline_schema()
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        String::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}
