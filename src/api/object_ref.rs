//! References to the objects that a reason is about.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An object that a reason is about, and where to look next.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// Kind, such as `Node`, `Plan`, `Job`, `Pod` or `ConfigMap`.
    #[serde(default)]
    pub kind: String,
    /// Namespace. Absent for objects without one, and for those in the namespace of the Plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the object. It may not exist, as a Plan in `dependsOn`.
    #[serde(default)]
    pub name: String,
}

impl ObjectRef {
    /// How many objects a reason names at most.
    pub const MAX: usize = 5;

    /// An object without a namespace, or in that of the Plan.
    pub fn new(kind: &str, name: impl Into<String>) -> Self {
        Self {
            kind: kind.to_owned(),
            namespace: None,
            name: name.into(),
        }
    }

    pub fn node(name: impl Into<String>) -> Self {
        Self::new("Node", name)
    }

    pub fn plan(name: impl Into<String>) -> Self {
        Self::new("Plan", name)
    }

    /// A pod that is given as namespace and name with `/` between them.
    pub fn pod(path: &str) -> Self {
        Self::at("Pod", path)
    }

    /// An object that is given as namespace and name with `/` between them.
    pub fn at(kind: &str, path: &str) -> Self {
        let (namespace, name) = path
            .split_once('/')
            .map_or((None, path), |(namespace, name)| (Some(namespace), name));
        Self {
            namespace: namespace.map(str::to_owned),
            ..Self::new(kind, name)
        }
    }

    /// The names of the objects of a kind.
    pub fn named<'a>(about: &'a [Self], kind: &'a str) -> impl Iterator<Item = &'a str> {
        let of_kind = about.iter().filter(move |object| object.kind == kind);
        of_kind.map(|object| object.name.as_str())
    }
}
