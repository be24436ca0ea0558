//! The Plans in `examples/`, which users copy, except for what `refit validate` finds (`tests/gitops/corpus.rs`):
//! each has fields that system-upgrade-controller's definition would drop only where this file lists them.

use std::collections::BTreeSet;
use std::path::Path;

use refit_api::crd;
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
fn every_example_works_under_system_upgrade_controller_and_in_the_shipped_manifests() {
    for (file, document) in documents() {
        let is_of_cluster = document["kind"].as_str().unwrap().starts_with("Cluster");
        let expected = if is_of_cluster {
            Value::Null
        } else {
            "system-upgrade".into()
        };
        assert_eq!(document["metadata"]["namespace"], expected, "{file}");
    }
    for (file, plan) in plans() {
        assert_eq!(plan["spec"]["serviceAccountName"], "system-upgrade", "{file}");
        let own = crd::OWN_FIELDS.iter().filter(|[part, field]| {
            let part = format!("/{}", part.replace('.', "/"));
            plan.pointer(&part).is_some_and(|part| part.get(field).is_some())
        });
        let own: Vec<_> = own.map(|[_, field]| *field).collect();
        // They say of themselves that they need refit.
        let expected: &[&str] = match (&*file, plan["metadata"]["name"].as_str()) {
            ("gpu-pool.yaml", _) => &["reboot", "settle", "blockedBy"],
            ("kubeadm-upgrade.yaml", Some("kubeadm-server")) => &["installs"],
            ("kubeadm-upgrade.yaml", _) => &["dependsOn", "installs"],
            ("microos.yaml" | "ubuntu-reboot.yaml", _) => &["reboot", "settle"],
            ("etcd-snapshot.yaml", _) => &["after", "before", "failure"],
            ("weekly-packages.yaml", _) => &["failure", "reboot", "repeat", "settle"],
            ("talos-upgrade.yaml", _) => &["hostAccess", "reboot", "settle", "skipWhen"],
            ("flatcar.yaml" | "reboots.yaml", _) => {
                &["maxUnavailable", "reboot", "settle", "trigger", "windows"]
            }
            ("careful.yaml", _) => &["maxUnavailable", "order", "waves"],
            ("k3s-upgrade.yaml", Some("k3s-agent")) | ("rke2-upgrade.yaml", Some("rke2-agent")) => {
                &["dependsOn"]
            }
            _ => &[],
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
                    // A ServiceAccount of Talos has a Secret of its name.
                    && (document["kind"] == "Secret" || document["apiVersion"] == "talos.dev/v1alpha1")
                    && document["metadata"]["name"] == secret["name"]
            });
            assert!(found, "{file}: {}", secret["name"]);
        }
    }
}

#[test]
fn all_examples_can_be_applied_to_one_cluster() {
    let mut names = BTreeSet::new();
    for (file, document) in documents() {
        let name = (
            document["kind"].to_string(),
            document["metadata"]["name"].to_string(),
        );
        assert!(names.insert(name.clone()), "{file}: {name:?} is in two files");
    }
    let files: BTreeSet<_> = plans().into_iter().map(|(file, _)| file).collect();
    assert_eq!(files.len(), 15, "{files:?}");
}
