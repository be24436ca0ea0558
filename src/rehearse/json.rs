//! JSON whose parts are shared: a copy of an object is a pointer more, and a change of it copies the maps on the way to what
//! changes and nothing else. A cluster is many objects that are nearly alike, in many versions that are nearly alike: of
//! pods of one template the template is kept once, and of a pod's versions what they have in common.
//!
//! It reads like `serde_json::Value`: what is not there is null, fields come in the order of their names.

mod convert;
mod make;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::ops::{Index, IndexMut};
use std::sync::Arc;

pub(crate) use convert::json;
pub use make::to_value;
pub use serde_json::Number;
pub use write::Text;

/// A value.
#[derive(Clone, Default)]
pub enum Value {
    /// Nothing.
    #[default]
    Null,
    /// A truth.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A text.
    String(Arc<str>),
    /// A list.
    Array(Arc<Vec<Self>>),
    /// A map.
    Object(Map),
}

/// The fields of an object, in the order of their names. A list in one piece takes a tenth of the room of a tree, and no object
/// of Kubernetes has so many fields that a tree would be found through faster.
#[derive(Clone, Default)]
pub struct Map(Arc<[Field]>);

type Field = (Arc<str>, Value);

/// In maps of more fields than this a name is looked for by halves.
const FEW: usize = 16;

static NULL: Value = Value::Null;

impl Map {
    /// A map of no fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where a field is.
    fn find(&self, key: &str) -> Option<usize> {
        if self.0.len() > FEW {
            return self.place(key).ok();
        }
        // Most names differ in their lengths already.
        let is_it = |(known, _): &Field| known.len() == key.len() && **known == *key;
        self.0.iter().position(is_it)
    }

    /// Where a field is, or where it belongs.
    fn place(&self, key: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| (**known).cmp(key))
    }

    /// A field.
    pub fn get(&self, key: &str) -> Option<&Value> {
        Some(&self.0[self.find(key)?].1)
    }

    /// A field, to be changed.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        let place = self.find(key)?;
        Some(&mut Arc::make_mut(&mut self.0)[place].1)
    }

    /// Writes a field.
    pub fn insert(&mut self, key: impl AsRef<str>, value: Value) {
        *self.or_insert(key.as_ref(), Value::Null) = value;
    }

    /// Takes a field away.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let place = self.find(key)?;
        let value = self.0[place].1.clone();
        self.retain(|name| name != key);
        Some(value)
    }

    /// Takes all fields away but those.
    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        let kept = self.0.iter().filter(|(key, _)| keep(key));
        self.0 = kept.cloned().collect();
    }

    /// A field, which is made if it is not there.
    pub fn or_insert(&mut self, key: &str, default: Value) -> &mut Value {
        let place = match self.place(key) {
            Ok(place) => place,
            Err(place) => {
                let (before, after) = self.0.split_at(place);
                let new = std::iter::once((read::name(key), default));
                self.0 = before
                    .iter()
                    .cloned()
                    .chain(new)
                    .chain(after.iter().cloned())
                    .collect();
                place
            }
        };
        &mut Arc::make_mut(&mut self.0)[place].1
    }

    /// Whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All fields, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Value)> {
        let fields = Arc::make_mut(&mut self.0).iter_mut();
        fields.map(|(key, value)| (&**key, value))
    }

    /// Whether there is such a field.
    pub fn contains_key(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    /// All fields.
    pub fn iter(&self) -> Iter<'_> {
        self.0.iter().map(|(key, value)| (key, value))
    }
}

/// Fields of a map.
pub type Iter<'a> = std::iter::Map<
    std::slice::Iter<'a, (Arc<str>, Value)>,
    fn(&'a (Arc<str>, Value)) -> (&'a str, &'a Value),
>;

impl<'a> IntoIterator for &'a Map {
    type Item = (&'a str, &'a Value);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl Value {
    /// A field.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.as_object()?.get(key)
    }

    /// A field, to be changed.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Self> {
        // Nothing is copied for a field that is not there.
        self.get(key)?;
        self.as_object_mut()?.get_mut(key)
    }

    /// What is below a JSON pointer (RFC 6901).
    pub fn pointer(&self, pointer: &str) -> Option<&Self> {
        let mut tokens = pointer.split('/');
        if tokens.next() != Some("") {
            return None;
        }
        let mut found = self;
        for token in tokens {
            found = match found {
                Self::Object(map) if token.contains('~') => {
                    map.get(&token.replace("~1", "/").replace("~0", "~"))?
                }
                Self::Object(map) => map.get(token)?,
                Self::Array(list) => list.get(token.parse::<usize>().ok()?)?,
                _ => return None,
            };
        }
        Some(found)
    }

    /// The text that it is.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The whole number that it is.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Number(number) => number.as_i64(),
            _ => None,
        }
    }

    /// The whole number that it is, if that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Number(number) => number.as_u64(),
            _ => None,
        }
    }

    /// The number that it is.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Number(number) => number.as_f64(),
            _ => None,
        }
    }

    /// The truth that it is.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(truth) => Some(*truth),
            _ => None,
        }
    }

    /// The list that it is.
    pub fn as_array(&self) -> Option<&Vec<Self>> {
        match self {
            Self::Array(list) => Some(list),
            _ => None,
        }
    }

    /// The list that it is, to be changed.
    pub fn as_array_mut(&mut self) -> Option<&mut Vec<Self>> {
        match self {
            Self::Array(list) => Some(Arc::make_mut(list)),
            _ => None,
        }
    }

    /// The map that it is.
    pub fn as_object(&self) -> Option<&Map> {
        match self {
            Self::Object(map) => Some(map),
            _ => None,
        }
    }

    /// The map that it is, to be changed.
    pub fn as_object_mut(&mut self) -> Option<&mut Map> {
        match self {
            Self::Object(map) => Some(map),
            _ => None,
        }
    }

    /// Whether it is nothing.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Whether it is a whole number.
    pub fn is_integer(&self) -> bool {
        matches!(self, Self::Number(number) if !number.is_f64())
    }

    /// Whether it is a text.
    pub fn is_string(&self) -> bool {
        matches!(self, Self::String(_))
    }

    /// Whether it is a list.
    pub fn is_array(&self) -> bool {
        matches!(self, Self::Array(_))
    }

    /// Whether it is a map.
    pub fn is_object(&self) -> bool {
        matches!(self, Self::Object(_))
    }

    /// What it is; null stays behind.
    #[must_use]
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }
}

impl Index<&str> for Value {
    type Output = Self;

    fn index(&self, key: &str) -> &Self {
        self.get(key).unwrap_or(&NULL)
    }
}

impl Index<usize> for Value {
    type Output = Self;

    fn index(&self, place: usize) -> &Self {
        self.as_array().and_then(|list| list.get(place)).unwrap_or(&NULL)
    }
}

impl IndexMut<&str> for Value {
    /// Null becomes a map with that field; so does anything else that has no fields, which is a mistake of who asks.
    fn index_mut(&mut self, key: &str) -> &mut Self {
        if !self.is_object() {
            debug_assert!(self.is_null(), "a field {key:?} of {self}");
            *self = Map::new().into();
        }
        let Self::Object(map) = self else {
            unreachable!("it is an object by now")
        };
        map.or_insert(key, Self::Null)
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(one), Self::Bool(other)) => one == other,
            (Self::Number(one), Self::Number(other)) => one == other,
            (Self::String(one), Self::String(other)) => one == other,
            // What is shared need not be looked into: that is what makes the comparison of two versions cheap.
            (Self::Array(one), Self::Array(other)) => Arc::ptr_eq(one, other) || one == other,
            (Self::Object(one), Self::Object(other)) => Arc::ptr_eq(&one.0, &other.0) || one.0 == other.0,
            _ => false,
        }
    }
}

impl Eq for Value {}
