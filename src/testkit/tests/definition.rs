//! The served CRD of Plans: refit's, or system-upgrade-controller's without refit's fields.

use refit_api::crd;
use refit_rehearse::json::Value;
use refit_rehearse::store::Key;
use refit_rehearse::write::WriteTarget;
use refit_rehearse::{Cluster, Kind};

/// refit's CRD without descriptions, which are three quarters of its text: to read it is a large part of what each start
/// of a controller costs in a test.
pub(super) fn without_descriptions() -> serde_json::Value {
    let mut definition = serde_json::to_value(crd::plans()).unwrap();
    remove_descriptions(&mut definition);
    definition
}

fn remove_descriptions(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(fields) => {
            // A field of that name would have a schema.
            fields.retain(|name, value| name != "description" || !value.is_string());
            fields.values_mut().for_each(remove_descriptions);
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(remove_descriptions),
        _ => {}
    }
}

/// Replaces the served CRD.
pub(super) fn put(cluster: &Cluster, theirs: bool) {
    let mut definition = serde_json::to_value(crd::plans()).unwrap();
    if theirs {
        let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        for [part, name] in crd::OWN_FIELDS.iter() {
            if let Some(fields) = schema[part]["properties"].as_object_mut() {
                fields.remove(*name);
            }
        }
    }
    cluster.with(|state| {
        let key = Key::new("", crd::NAME);
        let _ = state.update(Kind::Definition, &key, WriteTarget::Whole, false, |old| {
            let mut new = old.clone();
            new["spec"] = Value::from(&definition["spec"]);
            Ok(new)
        });
    });
}
