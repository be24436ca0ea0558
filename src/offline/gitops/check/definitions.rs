//! The schemas of the objects that refit handles. They come from their CRDs, so a field that is added there is known here.

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::gitops::objects::FrontEnd;
use refit_api::crd;
use refit_api::schema::property;

const FILES: [&str; 3] = [
    include_str!("../../../../deploy/overlays/nodeops/crds.yaml"),
    include_str!("../../../../deploy/overlays/maintenance/crds.yaml"),
    include_str!("../../../../deploy/overlays/maintenance-kubevirt/crds.yaml"),
];

/// The schema of a Plan.
pub(super) static PLAN: LazyLock<JSONSchemaProps> = LazyLock::new(|| {
    let mut plan = schema_of(crd::plans()).unwrap_or_default();
    // The API server drops this field, so its content does not matter.
    let anything = JSONSchemaProps {
        x_kubernetes_preserve_unknown_fields: Some(true),
        ..JSONSchemaProps::default()
    };
    let properties = plan.properties.get_or_insert_default();
    properties.insert("status".to_owned(), anything);
    plan
});

// A test shows that the files can be read.
static FRONT_ENDS: LazyLock<Vec<(FrontEnd, JSONSchemaProps)>> = LazyLock::new(|| {
    let objects = FILES.into_iter().flat_map(|text| {
        let objects: Vec<Value> = serde_saphyr::from_multiple(text).unwrap_or_default();
        objects
    });
    let definitions = objects.filter_map(|object| serde_json::from_value(object).ok());
    let known = definitions.filter_map(|definition: CustomResourceDefinition| {
        let (group, kind) = (&definition.spec.group, &definition.spec.names.kind);
        let mut all = FrontEnd::ALL.into_iter();
        let it = all.find(|it| it.group() == group && it.kind() == kind)?;
        Some((it, schema_of(definition)?))
    });
    known.collect()
});

pub(super) fn of_front_end(kind: FrontEnd) -> Option<&'static JSONSchemaProps> {
    let mut all = FRONT_ENDS.iter();
    all.find(|(it, _)| *it == kind).map(|(_, schema)| schema)
}

/// The schema of a field of a Plan.
pub(super) fn of_field(path: &str) -> Option<&'static JSONSchemaProps> {
    let mut schema = &*PLAN;
    for part in path.split('.') {
        let (name, index) = part
            .split_once('[')
            .map_or((part, false), |(name, _)| (name, true));
        schema = property(schema, name)?;
        if index && let Some(JSONSchemaPropsOrArray::Schema(item)) = &schema.items {
            schema = item;
        }
    }
    Some(schema)
}

/// The schema of the definition's objects, with that of their metadata, which a CRD omits.
fn schema_of(definition: CustomResourceDefinition) -> Option<JSONSchemaProps> {
    let mut versions = definition.spec.versions.into_iter();
    let mut schema = versions.find_map(|version| version.schema?.open_api_v3_schema)?;
    let metadata = SchemaSettings::openapi3()
        .with(|settings| settings.inline_subschemas = true)
        .into_generator()
        .into_root_schema_for::<ObjectMeta>();
    let metadata = serde_json::to_value(metadata).and_then(serde_json::from_value);
    let properties = schema.properties.get_or_insert_default();
    properties.extend(metadata.ok().map(|metadata| ("metadata".to_owned(), metadata)));
    Some(schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_definition_with_a_spec() {
        for kind in FrontEnd::ALL {
            let schema = of_front_end(kind).unwrap();
            let properties = schema.properties.as_ref().unwrap();
            assert!(properties["spec"].required.is_some(), "{kind:?}");
        }
        assert!(of_field("spec.windows[0].cron").unwrap().description.is_some());
    }
}
