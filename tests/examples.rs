//! The Plans in `examples/`: each is read by the real types, is valid, and says nothing that a cluster would drop, under
//! refit's definition or system-upgrade-controller's. People copy them.

use std::collections::BTreeSet;
use std::path::Path;

use refit::api::selector::Selector;
use refit::api::validate::validate;
use refit::api::{Plan, crd};
use serde_json::Value;

/// The documents of all files, with the names of the files.
fn documents() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let read = |path: &Path| {
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        documents
            .into_iter()
            .map(move |document| (name.clone(), document))
    };
    files.iter().flat_map(|path| read(path)).collect()
}

fn plans() -> Vec<(String, Value)> {
    documents()
        .into_iter()
        .filter(|(_, document)| document["kind"] == "Plan")
        .collect()
}

#[test]
fn every_example_is_a_valid_plan_of_which_nothing_is_dropped() {
    for (file, written) in plans() {
        let plan: Plan = serde_json::from_value(written.clone()).unwrap();
        let name = plan.metadata.name.as_deref().unwrap();
        // Also finds a number where text belongs, such as a version without quotes.
        assert_eq!(serde_json::to_value(&plan).unwrap(), written, "{file}: {name}");
        assert_eq!(validate(name, &plan.spec), Ok(()), "{file}: {name}");
        let selector = Selector::new(plan.spec.node_selector.as_ref()).unwrap();
        assert!(
            !selector.is_nothing() && !selector.is_everything(),
            "{file}: {name} selects carefully"
        );
        assert!(
            plan.spec.concurrency.is_some_and(|nodes| nodes > 0),
            "{file}: {name} starts nodes"
        );
        assert!(
            plan.spec.version.is_some() != plan.spec.channel.is_some(),
            "{file}: {name} has a version"
        );
    }
}

#[test]
fn every_example_works_under_system_upgrade_controller_and_in_the_shipped_manifests() {
    for (file, document) in documents() {
        assert_eq!(document["metadata"]["namespace"], "system-upgrade", "{file}");
    }
    for (file, plan) in plans() {
        assert_eq!(plan["spec"]["serviceAccountName"], "system-upgrade", "{file}");
        let own = crd::OWN_FIELDS
            .iter()
            .filter(|[part, field]| plan[*part].get(field).is_some());
        let own: Vec<_> = own.map(|[_, field]| *field).collect();
        // One says of itself that it needs refit.
        let expected: &[&str] = if file == "ubuntu-reboot.yaml" {
            &["reboot", "settle"]
        } else {
            &[]
        };
        assert_eq!(own, expected, "{file}");
    }
}

#[test]
fn the_secrets_that_the_examples_mount_are_in_the_same_file() {
    for (file, plan) in plans() {
        for secret in plan["spec"]["secrets"].as_array().into_iter().flatten() {
            let found = documents().into_iter().any(|(other, document)| {
                other == file
                    && document["kind"] == "Secret"
                    && document["metadata"]["name"] == secret["name"]
            });
            assert!(found, "{file}: {}", secret["name"]);
        }
    }
}

#[test]
fn the_examples_do_not_get_in_each_other_s_way() {
    let mut names = BTreeSet::new();
    for (file, document) in documents() {
        let name = (
            document["kind"].to_string(),
            document["metadata"]["name"].to_string(),
        );
        assert!(names.insert(name.clone()), "{file}: {name:?} is in two files");
    }
    let files: BTreeSet<_> = plans().into_iter().map(|(file, _)| file).collect();
    assert_eq!(files.len(), 6, "{files:?}");
}
