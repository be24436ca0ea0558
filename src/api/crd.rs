//! The CustomResourceDefinition of the Plan.
//!
//! Types and descriptions come from the derive on `PlanSpec` and `PlanStatus`. What Rust types cannot say, or say too
//! strictly, is brought here to what system-upgrade-controller's own definition admits, refuses and prunes (S9, S10): no
//! field of its changes its type, nothing that it admits is refused, nothing that it prunes is kept. Refit's own fields
//! come on top; `OWN_FIELDS` names them.
//!
//! There are no CEL rules (one of them changes the API server's answer to every other mistake), no defaults (they show
//! up as drift in GitOps tools) and no nullable fields beyond system-upgrade-controller's. Nor is there its
//! `controller-gen.kubebuilder.io/version` annotation: nothing reads it, and that tool did not make this.
//!
//! Pure: reading and writing the definition on a cluster is the controller's.

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray,
    JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;
use serde_json::json;

use super::Plan;

/// Name of the CustomResourceDefinition.
pub const NAME: &str = "plans.upgrade.cattle.io";

/// The version that is served and stored.
pub const VERSION: &str = "v1";

/// Fields that refit adds to system-upgrade-controller's, below the Plan.
///
/// A served schema that lacks one of them prunes it, and a Plan that asked for restraint would run without.
pub const OWN_FIELDS: [[&str; 2]; 15] = [
    ["spec", "channelCASecretRef"],
    ["spec", "channelSecretRef"],
    ["spec", "hostAccess"],
    ["spec", "maxConcurrent"],
    ["spec", "reboot"],
    ["spec", "settle"],
    ["spec", "suspend"],
    ["spec", "versionPolicy"],
    ["status", "active"],
    ["status", "channel"],
    ["status", "nextWindow"],
    ["status", "nodes"],
    ["status", "observedGeneration"],
    ["status", "pinned"],
    ["status", "progress"],
];

/// What `kubectl get plans` shows: name, path, priority. System-upgrade-controller's columns in its order, so that what
/// people read and cut out stays where it was; our own after them.
const COLUMNS: [(&str, &str, Option<i32>); 7] = [
    ("Image", ".spec.upgrade.image", None),
    ("Channel", ".spec.channel", None),
    ("Version", ".spec.version", None),
    (
        "Complete",
        ".status.conditions[?(@.type=='Complete')].status",
        None,
    ),
    ("Message", ".status.conditions[?(@.message!='')].message", None),
    ("Applying", ".status.applying", Some(10)),
    ("Progress", ".status.progress", None),
];

/// What Kubernetes accepts as a quantity, as its own definitions say it.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// What [`plans`] gives, made once: the schema of a container is large, and to derive it takes milliseconds.
static PLANS: LazyLock<CustomResourceDefinition> = LazyLock::new(derive);

/// The definition that refit registers, and that `crds/` holds.
pub fn plans() -> CustomResourceDefinition {
    PLANS.clone()
}

fn derive() -> CustomResourceDefinition {
    let mut crd = Plan::crd();
    crd.spec.names.list_kind = Some("PlanList".to_owned());
    for version in &mut crd.spec.versions {
        version.additional_printer_columns = Some(COLUMNS.map(column).into());
        if let Some(schema) = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut())
        {
            amend(schema);
            amend_root(schema);
        }
    }
    crd
}

/// The definition as YAML, the same bytes every time.
///
/// # Errors
/// None that the definition can cause; the serializer's signature has one.
pub fn to_yaml() -> Result<String, serde_saphyr::ser::Error> {
    serde_saphyr::to_string(&*PLANS)
}

/// Paths of refit's own fields that the definition on the cluster does not serve, such as `spec.suspend`.
///
/// While there is one, no Plan may be written (the API server would drop the field from what it stores) and no node
/// started.
pub fn missing_fields(live: &CustomResourceDefinition) -> Vec<String> {
    let (ours, theirs) = (served_schema(&PLANS), served_schema(live));
    let Some(ours) = ours else {
        return Vec::new();
    };
    let mut missing = Vec::new();
    for [part, field] in OWN_FIELDS {
        let wanted = property(Some(ours), part).and_then(|schema| property(Some(schema), field));
        let Some(wanted) = wanted else { continue };
        if prunes_nothing(theirs) || prunes_nothing(property(theirs, part)) {
            continue;
        }
        let path = format!("{part}.{field}");
        collect_missing(
            wanted,
            property(property(theirs, part), field),
            path,
            &mut missing,
        );
    }
    missing
}

fn collect_missing(
    ours: &JSONSchemaProps,
    theirs: Option<&JSONSchemaProps>,
    path: String,
    missing: &mut Vec<String>,
) {
    let Some(theirs) = theirs else {
        return missing.push(path);
    };
    if prunes_nothing(Some(theirs)) {
        return;
    }
    for (name, schema) in ours.properties.iter().flatten() {
        collect_missing(
            schema,
            property(Some(theirs), name),
            format!("{path}.{name}"),
            missing,
        );
    }
    if let Some(item) = items(ours) {
        collect_missing(item, items(theirs), format!("{path}[]"), missing);
    }
}

fn served_schema(crd: &CustomResourceDefinition) -> Option<&JSONSchemaProps> {
    let version = crd
        .spec
        .versions
        .iter()
        .find(|version| version.name == VERSION && version.served)?;
    version.schema.as_ref()?.open_api_v3_schema.as_ref()
}

fn property<'a>(schema: Option<&'a JSONSchemaProps>, name: &str) -> Option<&'a JSONSchemaProps> {
    schema?.properties.as_ref()?.get(name)
}

fn items(schema: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match schema.items.as_ref()? {
        JSONSchemaPropsOrArray::Schema(item) => Some(item),
        JSONSchemaPropsOrArray::Schemas(_) => None,
    }
}

fn prunes_nothing(schema: Option<&JSONSchemaProps>) -> bool {
    schema.is_some_and(|schema| schema.x_kubernetes_preserve_unknown_fields == Some(true))
}

fn column((name, json_path, priority): (&str, &str, Option<i32>)) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition {
        name: name.to_owned(),
        json_path: json_path.to_owned(),
        priority,
        type_: "string".to_owned(),
        ..CustomResourceColumnDefinition::default()
    }
}

/// The derive's schema of the Plan requires `spec`, and lacks what all objects have.
fn amend_root(schema: &mut JSONSchemaProps) {
    schema.required = None;
    let properties = schema.properties.get_or_insert_default();
    for (name, type_, description) in [
        ("apiVersion", "string", "Always `upgrade.cattle.io/v1`."),
        ("kind", "string", "Always `Plan`."),
        ("metadata", "object", ""),
    ] {
        let schema = JSONSchemaProps {
            type_: Some(type_.to_owned()),
            description: (!description.is_empty()).then(|| description.to_owned()),
            ..JSONSchemaProps::default()
        };
        properties.insert(name.to_owned(), schema);
    }
}

/// Brings a schema and all below it to Kubernetes' form.
fn amend(schema: &mut JSONSchemaProps) {
    schema.title = None;
    schema.nullable = None;
    schema.default = None;
    schema.description = schema.description.take().map(|text| join_lines(&text));
    if let Some(words) = &mut schema.enum_ {
        words.retain(|word| !word.0.is_null()); // optional means that it may be absent
    }
    if schema.x_kubernetes_int_or_string == Some(true) {
        schema.any_of = Some(["integer", "string"].map(of_type).into());
    }
    for (name, property) in schema.properties.iter_mut().flatten() {
        amend(property);
        amend_property(name, property);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(item)) = &mut schema.items {
        amend(item);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &mut schema.additional_properties {
        amend(value);
    }
}

/// What the name of a field tells: how Kubernetes' own types merge, and what Go's types say differently from ours.
fn amend_property(name: &str, schema: &mut JSONSchemaProps) {
    match name {
        "nodeSelector" | "podSelector" | "fieldRef" | "resourceFieldRef" => atomic_map(schema),
        "configMapRef" | "secretRef" | "configMapKeyRef" | "secretKeyRef" => reference(schema),
        "fileKeyRef" => {
            atomic_map(schema);
            default(schema, "optional", json!(false));
        }
        "imagePullSecrets" => {
            if let Some(JSONSchemaPropsOrArray::Schema(item)) = &mut schema.items {
                reference(item);
            }
        }
        "matchExpressions" | "values" | "add" | "drop" => {
            schema.x_kubernetes_list_type = Some("atomic".to_owned());
        }
        "conditions" => {
            schema.x_kubernetes_list_type = Some("map".to_owned());
            schema.x_kubernetes_list_map_keys = Some(vec!["type".to_owned()]);
        }
        "maxConcurrent" => {
            // At least one node, and what 32 bits hold. A share is text, whose form `validate` looks at.
            schema.minimum = Some(1.0);
            schema.maximum = Some(f64::from(i32::MAX));
        }
        "divisor" => schema.pattern = Some(QUANTITY.to_owned()),
        "skipWaitForDeleteTimeout" => schema.format = None, // an `int` in Go, which has no format
        _ => {}
    }
}

fn atomic_map(schema: &mut JSONSchemaProps) {
    schema.x_kubernetes_map_type = Some("atomic".to_owned());
}

/// A reference by name. Kubernetes does not require the name, and fills in the empty one.
fn reference(schema: &mut JSONSchemaProps) {
    atomic_map(schema);
    default(schema, "name", json!(""));
    schema.required = schema
        .required
        .take()
        .map(|names| {
            names
                .into_iter()
                .filter(|name| name != "name")
                .collect::<Vec<_>>()
        })
        .filter(|names| !names.is_empty());
}

fn default(schema: &mut JSONSchemaProps, field: &str, value: serde_json::Value) {
    if let Some(property) = schema
        .properties
        .as_mut()
        .and_then(|properties| properties.get_mut(field))
    {
        property.default = Some(JSON(value));
    }
}

fn of_type(type_: &str) -> JSONSchemaProps {
    JSONSchemaProps {
        type_: Some(type_.to_owned()),
        ..JSONSchemaProps::default()
    }
}

/// Doc comments are wrapped for editors; `kubectl explain` wraps for itself. Paragraphs and lists stay.
fn join_lines(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    for line in text.split('\n') {
        let continues = line.starts_with(|first: char| !first.is_whitespace())
            && joined.ends_with(|last: char| !last.is_whitespace());
        if continues {
            joined.push(' ');
        } else if !joined.is_empty() {
            joined.push('\n');
        }
        joined.push_str(line);
    }
    joined
}

#[cfg(test)]
mod tests;
