//! The CustomResourceDefinition of the Plan.
//!
//! Types and descriptions come from the derive on `PlanSpec` and `PlanStatus`. Where Rust types are too strict, or
//! cannot express a constraint, the schema is adapted to what system-upgrade-controller's CRD admits, refuses and
//! prunes (S9, S10): no field of it changes its type, nothing that it admits is refused, nothing that it prunes is
//! kept. [`OWN_FIELDS`] lists the fields that refit adds.
//!
//! There are no CEL rules (a failed one changes the API server's response to every other error), no defaults (GitOps
//! tools report them as drift) and no nullable fields beyond system-upgrade-controller's. The annotation
//! `controller-gen.kubebuilder.io/version` is omitted: nothing reads it, and that tool did not generate this CRD.
//!
//! Pure: the controller reads and writes the CRD on a cluster.

mod fields;

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray,
    JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;
use serde_json::json;

use super::plan::Plan;

pub use fields::{DRAIN_FIELDS_NOT_IN_JOB, FIELDS_IN_JOB, OWN_FIELDS};

pub const NAME: &str = "plans.upgrade.cattle.io";

/// The version that is served and stored.
pub const VERSION: &str = "v1";

/// Columns of `kubectl get plans`: name, path, priority. Those of system-upgrade-controller are all there; long ones are shown
/// with `-o wide`, so that a line fits a terminal. The version is the resolved one, because a Plan with a channel has no other.
const COLUMNS: [(&str, &str, Option<i32>); 8] = [
    ("Image", ".spec.upgrade.image", Some(10)),
    ("Channel", ".spec.channel", Some(10)),
    ("Version", ".status.latestVersion", None),
    (
        "Complete",
        ".status.conditions[?(@.type=='Complete')].status",
        None,
    ),
    ("Progress", ".status.progress", None),
    ("Message", ".status.message", None),
    ("Applying", ".status.applying", Some(10)),
    ("Age", ".metadata.creationTimestamp", None),
];

/// At least one of these fields of the spec must be set.
const ALTERNATIVES: [&str; 2] = ["upgrade", "trigger"];

/// Kubernetes' pattern of a quantity.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// Computed once, because deriving the large schema of a container takes milliseconds.
static PLANS: LazyLock<CustomResourceDefinition> = LazyLock::new(derive);

/// The CRD that refit registers, and that `crds/` contains.
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

/// The CRD as YAML, with stable bytes.
///
/// # Errors
/// Does not fail for this CRD; the serializer's signature requires it.
pub fn to_yaml() -> Result<String, serde_saphyr::ser::Error> {
    serde_saphyr::to_string(&*PLANS)
}

/// Paths of refit's own fields that the CRD on the cluster does not serve, such as `spec.suspend`.
///
/// While one is missing, no Plan may be written, because the API server would drop the field from what it stores, and
/// no node may start.
pub fn missing_fields(live: &CustomResourceDefinition) -> Vec<String> {
    let (ours, theirs) = (served_schema(&PLANS), served_schema(live));
    let Some(ours) = ours else {
        return Vec::new();
    };
    let mut missing = Vec::new();
    for [part, field] in OWN_FIELDS.iter() {
        let wanted = property(nested(Some(ours), part), field);
        let Some(wanted) = wanted else { continue };
        let parents = part.match_indices('.').map(|(at, _)| &part[..at]);
        let mut parents = parents.chain([*part]).map(|parent| nested(theirs, parent));
        // A schema with `x-kubernetes-preserve-unknown-fields` keeps the fields that it does not list.
        if prunes_nothing(theirs) || parents.any(prunes_nothing) {
            continue;
        }
        let path = format!("{part}.{field}");
        collect_missing(wanted, property(nested(theirs, part), field), path, &mut missing);
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

/// The schema at a path of properties, such as `spec.drain`.
fn nested<'a>(schema: Option<&'a JSONSchemaProps>, path: &str) -> Option<&'a JSONSchemaProps> {
    path.split('.').fold(schema, property)
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
        type_: if name == "Age" { "date" } else { "string" }.to_owned(),
        ..CustomResourceColumnDefinition::default()
    }
}

/// Makes `spec` optional in the derived schema, and adds `apiVersion`, `kind` and `metadata`.
fn amend_root(schema: &mut JSONSchemaProps) {
    // A Plan without a spec is admitted (S10).
    schema.required = None;
    let properties = schema.properties.get_or_insert_default();
    if let Some(spec) = properties.get_mut("spec") {
        amend_spec(spec);
    }
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

/// Requires `upgrade` as system-upgrade-controller does (S10), unless there is a `trigger`, which it prunes.
fn amend_spec(spec: &mut JSONSchemaProps) {
    let requires = |field: &str| JSONSchemaProps {
        required: Some(vec![field.to_owned()]),
        ..JSONSchemaProps::default()
    };
    spec.required = None;
    spec.any_of = Some(ALTERNATIVES.map(requires).into());
}

/// Converts a schema and everything below it to a structural schema.
fn amend(schema: &mut JSONSchemaProps) {
    // A default would be stored in every Plan, and GitOps tools would report that as drift. `nullable` would keep a
    // null that system-upgrade-controller's definition prunes.
    schema.title = None;
    schema.nullable = None;
    schema.default = None;
    schema.description = schema.description.take().map(|text| join_lines(&text));
    if let Some(words) = &mut schema.enum_ {
        words.retain(|word| !word.0.is_null()); // an optional field is absent, not null
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

/// Adapts a field by its name: how lists of Kubernetes' types merge, and where Go's types differ from Rust's.
fn amend_property(name: &str, schema: &mut JSONSchemaProps) {
    match name {
        "nodeSelector" | "podSelector" | "fieldRef" | "resourceFieldRef" => atomic_map(schema),
        // That of a check is refit's own, and has a name only.
        "secretRef" if !has_property(schema, "optional") => {}
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
        // Those of `settle` are refit's own, and nobody else writes into the list.
        "conditions" if requires_type(schema) => {
            schema.x_kubernetes_list_type = Some("map".to_owned());
            schema.x_kubernetes_list_map_keys = Some(vec!["type".to_owned()]);
        }
        "divisor" => schema.pattern = Some(QUANTITY.to_owned()),
        "skipWaitForDeleteTimeout" => schema.format = None, // an `int` in Go, which has no format
        _ => {}
    }
}

/// Whether the items of a list require a `type`, as the keys of a list that merges must be.
fn requires_type(schema: &JSONSchemaProps) -> bool {
    let Some(JSONSchemaPropsOrArray::Schema(item)) = &schema.items else {
        return false;
    };
    item.required.iter().flatten().any(|name| name == "type")
}

fn atomic_map(schema: &mut JSONSchemaProps) {
    schema.x_kubernetes_map_type = Some("atomic".to_owned());
}

fn has_property(schema: &JSONSchemaProps, name: &str) -> bool {
    let properties = schema.properties.as_ref();
    properties.is_some_and(|properties| properties.contains_key(name))
}

/// A reference by name. Kubernetes does not require the name, and defaults it to an empty one.
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

/// Joins the lines of a paragraph, because `kubectl explain` wraps them itself.
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
