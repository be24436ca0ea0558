//! Which objects a list or a watch is about: namespace, labels, and the few fields that can be selected by.

use super::object::Object;
use crate::api::selector::Selector;
use crate::rehearse::fault::Fault;
use crate::rehearse::resources::Kind;

/// What objects are selected by.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Namespace; absent means all.
    pub namespace: Option<String>,
    labels: Option<Selector>,
    fields: Vec<Field>,
}

#[derive(Clone, Debug)]
struct Field {
    pointer: &'static str,
    value: String,
    differs: bool,
}

impl Filter {
    /// All objects of a namespace, or of all.
    pub fn of(namespace: Option<&str>) -> Self {
        Self {
            namespace: namespace.map(str::to_owned),
            ..Self::default()
        }
    }

    /// Reads `labelSelector` and `fieldSelector`.
    pub fn parse(kind: Kind, namespace: Option<&str>, labels: &str, fields: &str) -> Result<Self, Fault> {
        let mut filter = Self::of(namespace);
        if !labels.is_empty() {
            let selector = labels
                .parse::<Selector>()
                .map_err(|error| Fault::bad_request(format!("unable to parse requirement: {error}")))?;
            filter.labels = Some(selector);
        }
        for part in fields.split(',').filter(|part| !part.is_empty()) {
            let (name, value, differs) = if let Some((name, value)) = part.split_once("!=") {
                (name, value, true)
            } else if let Some((name, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (name, value, false)
            } else {
                return Err(Fault::bad_request(format!(
                    "invalid selector: {fields:?}; can't understand {part:?}"
                )));
            };
            let pointer = match (kind, name) {
                (_, "metadata.name") => "/metadata/name",
                (_, "metadata.namespace") => "/metadata/namespace",
                (Kind::Pod, "spec.nodeName") => "/spec/nodeName",
                (Kind::Pod, "status.phase") => "/status/phase",
                _ => {
                    return Err(Fault::bad_request(format!("field label not supported: {name}")));
                }
            };
            filter.fields.push(Field {
                pointer,
                value: value.to_owned(),
                differs,
            });
        }
        Ok(filter)
    }

    /// Whether the object is let through.
    pub fn matches(&self, object: &Object) -> bool {
        let in_namespace = self
            .namespace
            .as_deref()
            .is_none_or(|namespace| namespace == object.meta("namespace"));
        in_namespace
            && self
                .fields
                .iter()
                .all(|field| (object.text(field.pointer) == field.value) != field.differs)
            && self
                .labels
                .as_ref()
                .is_none_or(|labels| labels.matches_by(|key| object.label(key)))
    }

    /// Whether anything but the namespace selects.
    pub fn selects(&self) -> bool {
        self.labels.is_some() || !self.fields.is_empty()
    }

    /// The node by which pods are selected.
    pub fn node(&self) -> Option<&str> {
        let field = self
            .fields
            .iter()
            .find(|field| field.pointer == "/spec/nodeName" && !field.differs)?;
        Some(&field.value)
    }
}
