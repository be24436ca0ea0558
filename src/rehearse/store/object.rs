//! One object in one version. It never changes; what it looks like on the wire is worked out once, for whoever wants it.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::rehearse::json::{Text, Value, json};

/// Namespace and name. The namespace is empty for objects of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl Key {
    /// A key.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

/// An object in one version.
#[derive(Debug)]
pub struct Object {
    /// Its JSON.
    pub value: Value,
    /// `metadata.resourceVersion`.
    pub version: u64,
    whole: OnceLock<Text>,
    metadata: OnceLock<Bytes>,
}

impl Object {
    /// An object of this version.
    pub fn new(mut value: Value, version: u64) -> Self {
        value["metadata"]["resourceVersion"] = version.to_string().into();
        Self {
            value,
            version,
            whole: OnceLock::new(),
            metadata: OnceLock::new(),
        }
    }

    /// The object on the wire, or its metadata alone as `PartialObjectMetadata`.
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
            &self.text_after(None).bytes
        }
    }

    /// The object on the wire, as [`Self::json`] has it. What it shares with an earlier version need not be written anew.
    pub fn json_after(&self, earlier: Option<&Self>, metadata_only: bool) -> &Bytes {
        if !metadata_only {
            self.text_after(earlier);
        }
        self.json(metadata_only)
    }

    fn text_after(&self, earlier: Option<&Self>) -> &Text {
        self.whole.get_or_init(|| {
            let earlier = earlier.and_then(|earlier| Some((&earlier.value, earlier.whole.get()?)));
            self.value.to_text(earlier)
        })
    }

    /// Where it is kept.
    pub fn key(&self) -> Key {
        Key::new(self.meta("namespace"), self.meta("name"))
    }

    /// A text of its metadata; empty where there is none.
    pub fn meta(&self, field: &str) -> &str {
        self.value["metadata"][field].as_str().unwrap_or_default()
    }

    /// Its UID.
    pub fn uid(&self) -> &str {
        self.meta("uid")
    }

    /// A text below a JSON pointer; empty where there is none.
    pub fn text(&self, pointer: &str) -> &str {
        text(&self.value, pointer)
    }

    /// A label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.value["metadata"]["labels"].get(key)?.as_str()
    }

    /// Whether it has been told to go.
    pub fn is_leaving(&self) -> bool {
        is_leaving(&self.value)
    }

    /// UIDs of its owners.
    pub fn owners(&self) -> impl Iterator<Item = &str> {
        let owners = self.value["metadata"]["ownerReferences"].as_array();
        owners
            .into_iter()
            .flatten()
            .filter_map(|owner| owner["uid"].as_str())
    }

    /// UID of the owner that is in charge.
    pub fn controller(&self) -> Option<&str> {
        let owners = self.value["metadata"]["ownerReferences"].as_array();
        let in_charge = owners
            .into_iter()
            .flatten()
            .find(|owner| owner["controller"] == true)?;
        in_charge["uid"].as_str()
    }
}

/// A text below a JSON pointer; empty where there is none.
pub fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Whether an object has been told to go.
pub fn is_leaving(value: &Value) -> bool {
    value["metadata"]["deletionTimestamp"].is_string()
}

/// Whether something keeps an object that has been told to go.
pub fn has_finalizers(value: &Value) -> bool {
    value["metadata"]["finalizers"]
        .as_array()
        .is_some_and(|finalizers| !finalizers.is_empty())
}
