//! Compares the definition with `tests/fixtures/suc-schema.txt`, which lists type, format, bounds, defaults and
//! required fields of system-upgrade-controller's schema, one line per field. The cluster test `schema` checks the same
//! with an API server.

mod reference;

use std::collections::BTreeMap;

use super::*;
use crate::PlanSpec;
use refit_fixtures::generated::assert_committed;
use refit_fixtures::sample;

/// One line for each schema from `path` down: its type and its other properties by name, without the description.
fn facts(schema: &JSONSchemaProps, path: &str, lines: &mut Vec<String>) {
    let json = serde_json::to_value(schema).unwrap();
    let words: BTreeMap<_, _> = json.as_object().unwrap().iter().collect();
    let mut line = vec![if path.is_empty() { "." } else { path }.to_owned()];
    line.extend(schema.type_.clone());
    for (name, value) in words {
        let name = name.trim_start_matches("x-kubernetes-");
        match name {
            "type" | "description" | "properties" | "items" | "additionalProperties" => {}
            "required" => line.push(format!("required={}", list(value, true))),
            "enum" | "list-map-keys" => line.push(format!("{name}={}", list(value, false))),
            _ => line.push(format!(
                "{name}={}",
                value.as_str().map_or(value.to_string(), str::to_owned)
            )),
        }
    }
    lines.push(line.join(" "));
    for (name, property) in schema.properties.iter().flatten() {
        facts(property, &format!("{path}.{name}"), lines);
    }
    match &schema.items {
        None => {}
        Some(JSONSchemaPropsOrArray::Schema(item)) => facts(item, &format!("{path}[]"), lines),
        Some(JSONSchemaPropsOrArray::Schemas(_)) => lines.push(format!("{path} tuple")),
    }
    match &schema.additional_properties {
        None => {}
        Some(JSONSchemaPropsOrBool::Schema(value)) => facts(value, &format!("{path}{{}}"), lines),
        Some(JSONSchemaPropsOrBool::Bool(any)) => lines.push(format!("{path}{{}} {any}")),
    }
}

fn list(value: &serde_json::Value, sorted: bool) -> String {
    let words = value.as_array().unwrap().iter();
    let mut words: Vec<_> = words.map(|word| word.as_str().unwrap()).collect();
    if sorted {
        words.sort_unstable();
    }
    words.join(",")
}

fn facts_of(crd: &CustomResourceDefinition) -> Vec<String> {
    let mut lines = Vec::new();
    facts(served_schema(crd).unwrap(), "", &mut lines);
    lines
}

fn is_own(line: &str) -> bool {
    OWN_FIELDS.iter().any(|[part, field]| {
        line.strip_prefix(&format!(".{part}.{field}"))
            .is_some_and(|rest| rest.starts_with([' ', '.', '[', '{']))
    })
}

#[test]
fn nothing_of_system_upgrade_controller_s_schema_is_changed_and_only_our_fields_are_added() {
    let theirs: Vec<_> = include_str!("../../../tests/fixtures/suc-schema.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    let mut ours = facts_of(&plans());
    ours.retain(|line| !is_own(line));
    // The one exception: a Plan with a trigger, which their definition prunes, can have no `upgrade`.
    let spec = ours
        .iter_mut()
        .find(|line| line.starts_with(".spec object"))
        .unwrap();
    assert_eq!(
        spec,
        r#".spec object anyOf=[{"required":["upgrade"]},{"required":["trigger"]}]"#
    );
    ".spec object required=upgrade".clone_into(spec);
    assert_eq!(ours.join("\n"), theirs.join("\n"));
}

#[test]
fn our_own_fields_have_no_default_and_are_not_required() {
    let mut own = facts_of(&plans());
    own.retain(|line| is_own(line));
    // A label selector is a type of Kubernetes, which requires its key and operator.
    own.retain(|line| !line.contains(".matchExpressions[] "));
    // They have the shape of `prepare`, which the test above pins.
    let containers = ["preflight", "verify", "before", "after"].map(|name| format!(".spec.{name}"));
    let is_container = |line: &String| containers.iter().any(|container| line.starts_with(container));
    own.retain(|line| !is_container(line));
    assert!(own.len() > OWN_FIELDS.len(), "{own:#?}");
    for line in own {
        for word in ["default=", "required=", "nullable=", "validations=", "uint"] {
            assert!(!line.contains(word), "{line}");
        }
    }
}

#[test]
fn the_definition_is_named_and_shaped_as_system_upgrade_controller_s() {
    let crd = plans();
    assert_eq!(crd.metadata.name.as_deref(), Some(NAME));
    let mut rest = serde_json::to_value(&crd.spec).unwrap();
    rest["versions"][0].as_object_mut().unwrap().remove("schema");
    let column = |name: &str, path: &str| json!({"name": name, "type": "string", "jsonPath": path});
    let wide =
        |name: &str, path: &str| json!({"name": name, "type": "string", "jsonPath": path, "priority": 10});
    assert_eq!(
        rest,
        json!({
            "group": "upgrade.cattle.io",
            "names": {"kind": "Plan", "listKind": "PlanList", "plural": "plans", "singular": "plan"},
            "scope": "Namespaced",
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    wide("Image", ".spec.upgrade.image"),
                    wide("Channel", ".spec.channel"),
                    column("Version", ".status.latestVersion"),
                    column("Complete", ".status.conditions[?(@.type=='Complete')].status"),
                    column("Progress", ".status.progress"),
                    column("Message", ".status.message"),
                    wide("Applying", ".status.applying"),
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
            }],
        })
    );
}

#[test]
fn every_field_is_described() {
    fn walk(schema: &JSONSchemaProps, path: &str) {
        for (name, property) in schema.properties.iter().flatten() {
            let path = format!("{path}.{name}");
            assert!(property.description.is_some() || path == ".metadata", "{path}");
            walk(property, &path);
        }
        if let Some(item) = items(schema) {
            walk(item, &format!("{path}[]"));
        }
    }
    walk(served_schema(&plans()).unwrap(), "");
}

#[test]
fn the_committed_reference_has_every_field() {
    assert_committed("docs/plan.md", &reference::markdown());
}

#[test]
fn the_committed_definition_is_the_one_that_is_registered() {
    let yaml = to_yaml().unwrap();
    assert_committed("crds/plans.upgrade.cattle.io.yaml", &yaml);
    let read: CustomResourceDefinition = serde_saphyr::from_str(&yaml).unwrap();
    assert_eq!(read, plans());
}

/// refit's CRD with a change of the schema.
fn changed(change: impl FnOnce(&mut JSONSchemaProps)) -> CustomResourceDefinition {
    let mut crd = plans();
    let validation = crd.spec.versions[0].schema.as_mut().unwrap();
    change(validation.open_api_v3_schema.as_mut().unwrap());
    crd
}

fn part<'a>(root: &'a mut JSONSchemaProps, name: &str) -> &'a mut JSONSchemaProps {
    root.properties.as_mut().unwrap().get_mut(name).unwrap()
}

#[test]
fn a_definition_that_prunes_our_fields_is_recognised() {
    assert_eq!(missing_fields(&plans()), Vec::<String>::new());

    let of_suc = changed(|root| {
        for &[name, field] in OWN_FIELDS.iter() {
            let part = name.split('.').fold(&mut *root, part);
            part.properties.as_mut().unwrap().remove(field);
        }
    });
    let own = OWN_FIELDS.iter().map(|[part, field]| format!("{part}.{field}"));
    assert_eq!(missing_fields(&of_suc), own.collect::<Vec<_>>());

    let of_an_older_refit = changed(|root| {
        let active = part(part(root, "status"), "active");
        let Some(JSONSchemaPropsOrArray::Schema(item)) = &mut active.items else {
            panic!("not a list")
        };
        item.properties.as_mut().unwrap().remove("attempt");
    });
    assert_eq!(missing_fields(&of_an_older_refit), ["status.active[].attempt"]);

    let without_a_field_of_suc = changed(|root| {
        part(root, "spec")
            .properties
            .as_mut()
            .unwrap()
            .remove("exclusive");
    });
    let keeps_all = changed(|root| {
        root.properties = None;
        root.x_kubernetes_preserve_unknown_fields = Some(true);
    });
    for complete in [without_a_field_of_suc, keeps_all] {
        assert_eq!(missing_fields(&complete), Vec::<String>::new());
    }
}

#[test]
fn every_field_of_the_spec_is_read_and_written_under_the_name_that_the_schema_has() {
    let sample = sample::spec();
    let read: PlanSpec = serde_json::from_value(sample.clone().into()).unwrap();
    assert_eq!(
        serde_json::to_value(read).unwrap(),
        serde_json::Value::Object(sample)
    );
}

#[test]
fn a_version_that_is_not_served_misses_everything() {
    let mut crd = plans();
    crd.spec.versions[0].served = false;
    assert_eq!(missing_fields(&crd).len(), OWN_FIELDS.len());
    crd.spec.versions[0].served = true;
    crd.spec.versions[0].name = "v2".to_owned();
    assert_eq!(missing_fields(&crd).len(), OWN_FIELDS.len());
}

#[test]
fn wrapped_lines_are_joined_and_paragraphs_and_lists_stay() {
    assert_eq!(join_lines("one\ntwo"), "one two");
    assert_eq!(join_lines("one\n\ntwo\nthree"), "one\n\ntwo three");
    assert_eq!(join_lines("one:\n  - a\n  - b"), "one:\n  - a\n  - b");
    assert_eq!(join_lines(""), "");
}
