//! Whether a CRD that is served keeps what refit and its users write. Pure.

use std::fmt;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, JSONSchemaProps, JSONSchemaPropsOrArray,
};

use super::ours;

/// Fields whose types are Kubernetes' own. What is within them may be older or newer than ours; that is no reason to
/// stop.
const KUBERNETES_TYPES: [&str; 7] = [
    "envs",
    "envFrom",
    "securityContext",
    "tolerations",
    "nodeSelector",
    "podSelector",
    "imagePullSecrets",
];

/// What a served CRD would prune, or cannot do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingFields(pub Vec<String>);

impl fmt::Display for MissingFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

/// Whether `served` keeps all fields that this build knows. If it does not, a write of any part of a Plan stores it
/// without them, for good.
pub fn serves_our_fields(served: &CustomResourceDefinition) -> Result<(), MissingFields> {
    missing(served, &ours())
}

pub(super) fn missing(
    served: &CustomResourceDefinition,
    wanted: &CustomResourceDefinition,
) -> Result<(), MissingFields> {
    let mut lacking = Vec::new();
    for wanted in &wanted.spec.versions {
        let Some(version) = served
            .spec
            .versions
            .iter()
            .find(|v| v.name == wanted.name && v.served)
        else {
            lacking.push(format!("version {}", wanted.name));
            continue;
        };
        let has_status = |v: &CustomResourceDefinitionVersion| {
            v.subresources
                .as_ref()
                .is_some_and(|subresources| subresources.status.is_some())
        };
        if has_status(wanted) && !has_status(version) {
            lacking.push("subresource status".to_owned());
        }
        let schema = |v: &CustomResourceDefinitionVersion| {
            v.schema.as_ref().and_then(|s| s.open_api_v3_schema.clone())
        };
        if let Some(wanted) = schema(wanted) {
            walk(&schema(version).unwrap_or_default(), &wanted, "", &mut lacking);
        }
    }
    if lacking.is_empty() {
        Ok(())
    } else {
        Err(MissingFields(lacking))
    }
}

fn walk(served: &JSONSchemaProps, wanted: &JSONSchemaProps, path: &str, lacking: &mut Vec<String>) {
    if served.x_kubernetes_preserve_unknown_fields == Some(true) {
        return;
    }
    for (name, wanted) in wanted.properties.iter().flatten() {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        match served
            .properties
            .as_ref()
            .and_then(|properties| properties.get(name))
        {
            // The API server knows these of every object.
            None if matches!(path.as_str(), "apiVersion" | "kind" | "metadata") => {}
            None => lacking.push(path),
            Some(_) if KUBERNETES_TYPES.contains(&name.as_str()) => {}
            Some(served) => walk(served, wanted, &path, lacking),
        }
    }
    if let (Some(served), Some(wanted)) = (items(served), items(wanted)) {
        walk(served, wanted, &format!("{path}[]"), lacking);
    }
}

fn items(schema: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match &schema.items {
        Some(JSONSchemaPropsOrArray::Schema(schema)) => Some(schema),
        _ => None,
    }
}
