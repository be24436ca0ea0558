//! One version of an object. Immutable; its serialized form is computed once, on demand.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::json::{Value, json};

/// The namespace is empty for cluster-scoped objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl Key {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

#[derive(Debug)]
pub struct Object {
    pub value: Value,
    /// `metadata.resourceVersion`.
    pub version: u64,
    whole: OnceLock<Bytes>,
    metadata: OnceLock<Bytes>,
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.version == other.version && self.value == other.value
    }
}

impl Object {
    pub fn new(mut value: Value, version: u64) -> Self {
        value["metadata"]["resourceVersion"] = version.to_string().into();
        Self {
            value,
            version,
            whole: OnceLock::new(),
            metadata: OnceLock::new(),
        }
    }

    /// The serialized object, or only its metadata as `PartialObjectMetadata`.
    pub fn json(&self, metadata_only: bool) -> &Bytes {
        if metadata_only {
            let partial = || {
                json!({
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": self.value["metadata"],
                })
            };
            self.metadata.get_or_init(|| partial().to_bytes())
        } else {
            self.whole.get_or_init(|| self.value.to_bytes())
        }
    }

    pub fn key(&self) -> Key {
        Key::new(self.meta("namespace"), self.meta("name"))
    }

    /// A string field of the metadata; empty if absent.
    pub fn meta(&self, field: &str) -> &str {
        self.value.meta(field)
    }

    pub fn uid(&self) -> &str {
        self.meta("uid")
    }

    /// The string at a JSON pointer; empty if absent.
    pub fn text(&self, pointer: &str) -> &str {
        text(&self.value, pointer)
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.value["metadata"]["labels"].get(key)?.as_str()
    }

    /// Whether the deletion has begun.
    pub fn is_being_deleted(&self) -> bool {
        is_being_deleted(&self.value)
    }

    /// UIDs of its owners.
    pub fn owners(&self) -> impl Iterator<Item = &str> {
        let owners = self.value["metadata"]["ownerReferences"].as_array();
        owners
            .into_iter()
            .flatten()
            .filter_map(|owner| owner["uid"].as_str())
    }

    /// UID of its controlling owner.
    pub fn controller(&self) -> Option<&str> {
        let owners = self.value["metadata"]["ownerReferences"].as_array();
        let in_charge = owners
            .into_iter()
            .flatten()
            .find(|owner| owner["controller"] == true)?;
        in_charge["uid"].as_str()
    }
}

/// The string at a JSON pointer; empty if absent.
pub fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Whether the deletion has begun.
pub fn is_being_deleted(value: &Value) -> bool {
    value["metadata"]["deletionTimestamp"].is_string()
}

pub fn has_finalizers(value: &Value) -> bool {
    value["metadata"]["finalizers"]
        .as_array()
        .is_some_and(|finalizers| !finalizers.is_empty())
}
