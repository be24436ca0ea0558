//! Conversions between shared JSON and `serde_json`.

use std::sync::Arc;

use jiff::Timestamp;

use super::{Map, Value, de};

/// `serde_json::json!` for shared JSON. Interpolated values are copied, so large shared ones are better assigned
/// afterwards.
#[macro_export]
macro_rules! json {
    ($($json:tt)+) => { $crate::json::Value::from(::serde_json::json!($($json)+)) };
}
pub use json;

/// A time in the format of the API: whole seconds.
pub(crate) fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

impl From<serde_json::Value> for Value {
    fn from(plain: serde_json::Value) -> Self {
        Self::from(&plain)
    }
}

impl From<&serde_json::Value> for Value {
    fn from(plain: &serde_json::Value) -> Self {
        match plain {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(truth) => Self::Bool(*truth),
            serde_json::Value::Number(number) => Self::Number(number.clone()),
            serde_json::Value::String(text) => text.as_str().into(),
            serde_json::Value::Array(list) => list.iter().map(Self::from).collect(),
            serde_json::Value::Object(map) => {
                let fields = map.iter();
                let fields = fields.map(|(key, value)| (de::name(key), value.into()));
                Map::of(fields.collect()).into()
            }
        }
    }
}

impl From<&Self> for Value {
    fn from(value: &Self) -> Self {
        value.clone()
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::String(text.into())
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::Bool(truth)
    }
}

impl From<Map> for Value {
    fn from(map: Map) -> Self {
        Self::Object(map)
    }
}

impl<T: Into<Self>> From<Vec<T>> for Value {
    fn from(list: Vec<T>) -> Self {
        list.into_iter().collect()
    }
}

impl<T: Into<Self>> FromIterator<T> for Value {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self::Array(Arc::new(items.into_iter().map(Into::into).collect()))
    }
}

impl<K: AsRef<str>> FromIterator<(K, Value)> for Map {
    fn from_iter<I: IntoIterator<Item = (K, Value)>>(fields: I) -> Self {
        let fields = fields.into_iter();
        Self::of(
            fields
                .map(|(key, value)| (de::name(key.as_ref()), value))
                .collect(),
        )
    }
}

macro_rules! whole_numbers {
    ($($type:ty)*) => { $(
        impl From<$type> for Value {
            fn from(number: $type) -> Self {
                Self::Number(number.into())
            }
        }

        impl PartialEq<$type> for Value {
            fn eq(&self, number: &$type) -> bool {
                matches!(self, Self::Number(own) if *own == (*number).into())
            }
        }
    )* };
}

whole_numbers!(i32 i64 u32 u64 usize);

impl PartialEq<str> for Value {
    fn eq(&self, text: &str) -> bool {
        self.as_str() == Some(text)
    }
}

impl PartialEq<&str> for Value {
    fn eq(&self, text: &&str) -> bool {
        self == *text
    }
}

impl PartialEq<String> for Value {
    fn eq(&self, text: &String) -> bool {
        self == text.as_str()
    }
}

impl PartialEq<bool> for Value {
    fn eq(&self, truth: &bool) -> bool {
        self.as_bool() == Some(*truth)
    }
}

impl PartialEq<serde_json::Value> for Value {
    fn eq(&self, plain: &serde_json::Value) -> bool {
        let plain = Self::from(plain);
        *self == plain
    }
}
