//! Filters of lists and watches: namespace, labels, and the supported field selectors.

use super::object::Object;
use crate::resources::Kind;
use crate::status_error::StatusError;
use refit_api::selector::Selector;

#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// `None` means all.
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

    /// Parses `labelSelector` and `fieldSelector`.
    ///
    /// # Errors
    /// Fails with the API server's message if a selector is invalid or not supported for the kind.
    pub fn parse(
        kind: Kind,
        namespace: Option<&str>,
        labels: &str,
        fields: &str,
    ) -> Result<Self, StatusError> {
        let mut filter = Self::of(namespace);
        if !labels.is_empty() {
            let selector = labels
                .parse::<Selector>()
                .map_err(|error| StatusError::bad_request(format!("unable to parse requirement: {error}")))?;
            filter.labels = Some(selector);
        }
        for part in fields.split(',').filter(|part| !part.is_empty()) {
            let (name, value, differs) = if let Some((name, value)) = part.split_once("!=") {
                (name, value, true)
            } else if let Some((name, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (name, value, false)
            } else {
                return Err(StatusError::bad_request(format!(
                    "invalid selector: {fields:?}; can't understand {part:?}"
                )));
            };
            // Each type supports only a few field labels, and the API server refuses all others with 400.
            let pointer = match (kind, name) {
                (_, "metadata.name") => "/metadata/name",
                (_, "metadata.namespace") => "/metadata/namespace",
                (Kind::Pod, "spec.nodeName") => "/spec/nodeName",
                (Kind::Pod, "status.phase") => "/status/phase",
                (Kind::Event, "reason") => "/reason",
                (Kind::Event, "involvedObject.kind") => "/involvedObject/kind",
                (Kind::Event, "involvedObject.uid") => "/involvedObject/uid",
                (Kind::Event, "involvedObject.name") => "/involvedObject/name",
                _ => {
                    return Err(StatusError::bad_request(format!(
                        "field label not supported: {name}"
                    )));
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

    /// Whether there is a selector in addition to the namespace.
    pub fn selects(&self) -> bool {
        self.labels.is_some() || !self.fields.is_empty()
    }

    /// The node in the field selector of pods.
    pub fn node(&self) -> Option<&str> {
        let field = self
            .fields
            .iter()
            .find(|field| field.pointer == "/spec/nodeName" && !field.differs)?;
        Some(&field.value)
    }
}
