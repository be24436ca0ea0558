//! The fields of these objects, by the definitions in `deploy/`.

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::Value;

use crate::gitops::Rule;
use crate::gitops::check::Subject;
use crate::gitops::check::schema::{below, bounds, integer};
use crate::gitops::objects::FrontEnd;
use crate::gitops::placeholder::is_whole_placeholder;
use crate::gitops::yaml::{Kind, Node, Object};
use refit_base::nearest::nearest;

const FILES: [&str; 3] = [
    include_str!("../../../../../deploy/overlays/nodeops/crds.yaml"),
    include_str!("../../../../../deploy/overlays/maintenance/crds.yaml"),
    include_str!("../../../../../deploy/overlays/maintenance-kubevirt/crds.yaml"),
];

// A test shows that the files can be read.
static DEFINITIONS: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(|| {
    let objects = FILES.into_iter().flat_map(|text| {
        let objects: Vec<Value> = serde_saphyr::from_multiple(text).unwrap_or_default();
        objects
    });
    objects
        .filter_map(|object| serde_json::from_value(object).ok())
        .collect()
});

fn schema(kind: FrontEnd) -> Option<&'static JSONSchemaProps> {
    let is_it = |one: &&CustomResourceDefinition| {
        one.spec.group == kind.group() && one.spec.names.kind == kind.kind()
    };
    let definition = DEFINITIONS.iter().find(is_it)?;
    let mut versions = definition.spec.versions.iter();
    versions.find_map(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref())
}

impl Subject<'_> {
    /// Reports fields that do not exist, are missing, or have another type. Returns whether the object can be read.
    pub(super) fn check_fields(&mut self, kind: FrontEnd) -> bool {
        let node = self.object.node;
        schema(kind).is_some_and(|schema| self.check_value("", schema, node, node.offset()))
    }

    /// Checks the value of a field, which begins at `key`.
    fn check_value(&mut self, field: &str, schema: &JSONSchemaProps, node: &Node, key: usize) -> bool {
        let (wanted, fits) = match schema.type_.as_deref() {
            Some("object") => ("an object", node.object().is_some()),
            Some("array") => ("a list", matches!(node.kind, Kind::List(_))),
            Some("string") => ("text", node.text().is_some()),
            Some("boolean") => ("true or false", matches!(node.kind, Kind::Bool(_))),
            Some("integer") => ("a whole number", integer(node).is_some()),
            _ => return true,
        };
        if !fits {
            if node.text().is_some_and(is_whole_placeholder) {
                self.report_placeholder(field, node);
            } else {
                let is_long = matches!(node.kind, Kind::List(_) | Kind::Map(_));
                let at = if is_long { key } else { node.offset() };
                let number = matches!(node.kind, Kind::Number(_) | Kind::Bool(_)) && wanted == "text";
                let hint = number.then(|| "put the value in quotes".to_owned());
                self.report_wrong_type(field, wanted, node, at, hint);
            }
            return false;
        }
        match &node.kind {
            Kind::Map(object) => self.check_object(field, schema, object, key),
            Kind::List(items) => {
                let Some(JSONSchemaPropsOrArray::Schema(of_item)) = &schema.items else {
                    return true;
                };
                let mut is_readable = true;
                for (index, item) in items.iter().enumerate() {
                    is_readable &=
                        self.check_value(&format!("{field}[{index}]"), of_item, item, item.offset());
                }
                is_readable
            }
            _ => self.check_bounds(field, schema, node),
        }
    }

    fn check_bounds(&mut self, field: &str, schema: &JSONSchemaProps, node: &Node) -> bool {
        let (least, most) = bounds(schema);
        let is_out = |number: &i64| !(least..=most).contains(&i128::from(*number));
        let Some(number) = integer(node).filter(is_out) else {
            return true;
        };
        let message = format!("{field} is {number}; it must be from {least} to {most}");
        self.report_at(Rule::NotAllowed, node.offset(), Some(field), message, None);
        false
    }

    fn check_object(&mut self, field: &str, schema: &JSONSchemaProps, object: &Object, key: usize) -> bool {
        let mut is_readable = true;
        for entry in object.entries.iter().filter(|entry| !entry.value.is_null()) {
            let name = entry.key.name.as_str();
            let path = below(field, name);
            let properties = schema.properties.as_ref();
            let of_value = match &schema.additional_properties {
                Some(JSONSchemaPropsOrBool::Schema(values)) => Some(&**values),
                _ => properties.and_then(|properties| properties.get(name)),
            };
            if let Some(of_value) = of_value {
                is_readable &= self.check_value(&path, of_value, &entry.value, entry.key.span.start);
            } else if let Some(properties) = properties {
                let names = properties.keys().map(String::as_str);
                let hint = match nearest(name, names.clone()) {
                    Some(near) if object.entry(near).is_some() => {
                        format!("remove it; {near} is there already")
                    }
                    Some(near) => {
                        self.renamed.insert(below(field, near));
                        format!("did you mean `{near}`?")
                    }
                    None => format!("the fields are {}", names.collect::<Vec<_>>().join(", ")),
                };
                let message = format!("a {} has no field {path}", self.object.kind);
                self.report_at(
                    Rule::UnknownField,
                    entry.key.span.start,
                    Some(&path),
                    message,
                    Some(hint),
                );
            }
        }
        for name in schema.required.iter().flatten() {
            let entry = object.entry(name);
            if entry.is_some_and(|entry| self.is_given(entry)) {
                continue;
            }
            let path = below(field, name);
            let of_field = schema.properties.as_ref().and_then(|all| all.get(name));
            let about = of_field.and_then(|schema| schema.description.clone());
            let message = format!("{path} is missing");
            self.report_at(
                Rule::MissingField,
                entry.map_or(key, |entry| entry.key.span.start),
                Some(&path),
                message,
                about.map(|about| about.trim_end_matches('.').to_owned()),
            );
            is_readable = false;
        }
        is_readable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_definition_with_a_spec() {
        for kind in FrontEnd::ALL {
            let schema = schema(kind).unwrap();
            let properties = schema.properties.as_ref().unwrap();
            assert!(properties["spec"].required.is_some(), "{kind:?}");
        }
    }
}
