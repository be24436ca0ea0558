//! Generates what follows from `deploy/`: the files of the Helm chart, its reference of values, and the one file for
//! `kubectl apply -f`.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use refit_api::names;
use refit_fixtures::generated::{assert_committed, committed};

/// The files that `deploy/kustomization.yaml` lists, without the definition of the Plan.
fn resources() -> Vec<String> {
    let kustomization: Value = serde_saphyr::from_str(&committed("deploy/kustomization.yaml")).unwrap();
    let all: Vec<String> = serde_json::from_value(kustomization["resources"].clone()).unwrap();
    all.into_iter().filter(|file| file != "../crds").collect()
}

/// Files of the chart for what kustomize has as components, and their sources.
const COMPONENTS: [(&str, &str); 24] = [
    ("manage-crd.yaml", "overlays/manage-crd/rbac.yaml"),
    ("delete-pods.yaml", "overlays/delete-pods/rbac.yaml"),
    (
        "delete-pods-admission.yaml",
        "overlays/delete-pods/admission.yaml",
    ),
    (
        "remediation-namespaces.yaml",
        "overlays/remediation/namespaces.yaml",
    ),
    ("remediation.yaml", "overlays/remediation/rbac.yaml"),
    (
        "remediation-machines.yaml",
        "overlays/remediation-machines/rbac.yaml",
    ),
    ("read-workloads.yaml", "overlays/read-workloads/rbac.yaml"),
    ("maintenance-crds.yaml", "overlays/maintenance/crds.yaml"),
    (
        "maintenance-namespaces.yaml",
        "overlays/maintenance/namespaces.yaml",
    ),
    ("maintenance.yaml", "overlays/maintenance/rbac.yaml"),
    (
        "maintenance-admission.yaml",
        "overlays/maintenance/admission.yaml",
    ),
    (
        "maintenance-kubevirt-crds.yaml",
        "overlays/maintenance-kubevirt/crds.yaml",
    ),
    (
        "maintenance-kubevirt-namespaces.yaml",
        "overlays/maintenance-kubevirt/namespaces.yaml",
    ),
    (
        "maintenance-kubevirt.yaml",
        "overlays/maintenance-kubevirt/rbac.yaml",
    ),
    (
        "maintenance-kubevirt-admission.yaml",
        "overlays/maintenance-kubevirt/admission.yaml",
    ),
    ("node-conditions.yaml", "overlays/node-conditions/rbac.yaml"),
    (
        "node-conditions-admission.yaml",
        "overlays/node-conditions/admission.yaml",
    ),
    ("nodeops-crds.yaml", "overlays/nodeops/crds.yaml"),
    ("nodeops.yaml", "overlays/nodeops/rbac.yaml"),
    ("check-drains.yaml", "overlays/check-drains/rbac.yaml"),
    ("service.yaml", "monitoring/service.yaml"),
    ("servicemonitor.yaml", "monitoring/servicemonitor.yaml"),
    ("prometheusrule.yaml", "monitoring/prometheusrule.yaml"),
    ("dashboard.json", "monitoring/dashboard.json"),
];

#[test]
fn the_roles_that_a_missing_permission_names_are_in_deploy() {
    for (file, role) in [
        ("rbac.yaml", names::ROLE),
        ("overlays/check-drains/rbac.yaml", names::ROLE_DRAIN_CHECKS),
        ("overlays/read-workloads/rbac.yaml", names::ROLE_PODS),
        ("overlays/remediation/rbac.yaml", names::ROLE_REMEDIATION),
    ] {
        let text = committed(&format!("deploy/{file}"));
        assert!(text.contains(&format!("\n  name: {role}\n")), "{file}");
    }
}

const DEFINITION: &str = "crds/plans.upgrade.cattle.io.yaml";

#[test]
fn the_committed_chart_has_the_files_of_deploy() {
    // The namespace of a release exists before its objects.
    let files: Vec<String> = resources()
        .into_iter()
        .filter(|file| file != "namespace.yaml")
        .collect();
    for file in &files {
        assert_committed(
            &format!("deploy/chart/files/{file}"),
            &committed(&format!("deploy/{file}")),
        );
    }
    for file in ["rbac.yaml", "admission.yaml", "daemonset.yaml"] {
        assert_committed(
            &format!("deploy/chart/files/agent/{file}"),
            &committed(&format!("deploy/overlays/agent/{file}")),
        );
    }
    assert_committed(
        "deploy/chart/files/agent/kairos-admission.yaml",
        &committed("deploy/overlays/agent-kairos/admission.yaml"),
    );
    assert_committed(
        &format!("deploy/chart/files/{DEFINITION}"),
        &committed(DEFINITION),
    );
    for (file, source) in COMPONENTS {
        assert_committed(
            &format!("deploy/chart/files/components/{file}"),
            &committed(&format!("deploy/{source}")),
        );
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/chart/files");
    let components = std::fs::read_dir(folder.join("components")).unwrap();
    assert_eq!(components.count(), COMPONENTS.len());
    let mut there: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_file())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    there.sort();
    let mut listed = files;
    listed.sort();
    assert_eq!(there, listed);
}

#[test]
fn the_committed_single_file_has_every_object_of_deploy_with_the_image_of_this_version() {
    let kustomization: Value = serde_saphyr::from_str(&committed("deploy/kustomization.yaml")).unwrap();
    let image = &kustomization["images"][0];
    let (name, tag) = (image["name"].as_str().unwrap(), image["newTag"].as_str().unwrap());
    let mut text = format!(
        "# kubectl apply --server-side -f deploy/refit.yaml\n\
         #\n\
         # The objects of deploy/ in one file, written by a test: just generate. No image is published yet; put your own in place of\n\
         # the one below:\n\
         #\n\
         #   sed 's|{name}:|registry.example.com/refit:|' deploy/refit.yaml | kubectl apply --server-side -f -\n"
    );
    let files = resources().into_iter().map(|file| format!("deploy/{file}"));
    // The namespace comes before what is in it.
    let (namespace, others): (Vec<_>, Vec<_>) = files.partition(|file| file.ends_with("/namespace.yaml"));
    for file in [DEFINITION.to_owned()].into_iter().chain(namespace).chain(others) {
        let content = committed(&file);
        writeln!(text, "---\n{}", content.trim_end().trim_start_matches("---\n")).unwrap();
    }
    let untagged = format!("image: {name}\n");
    assert_eq!(text.matches(&untagged).count(), 1, "one image in deploy/");
    let text = text.replace(&untagged, &format!("image: {name}:{tag}\n"));
    assert_committed("deploy/refit.yaml", &text);
}

#[test]
fn the_chart_has_the_version_of_the_program() {
    let chart: Value = serde_saphyr::from_str(&committed("deploy/chart/Chart.yaml")).unwrap();
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["appVersion"], format!("v{}", env!("CARGO_PKG_VERSION")));
}

/// A key of `values.yaml` with the comment above it.
struct Described {
    path: String,
    text: String,
}

/// The keys that have a comment. The first comment of the file is about the file.
fn described(values: &str) -> Vec<Described> {
    let (_, body) = values.split_once("\n\n").unwrap();
    let mut found = Vec::new();
    let (mut comment, mut parents): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for line in body.lines() {
        let content = line.trim_start();
        if let Some(text) = content.strip_prefix('#') {
            comment.push(text.trim());
            continue;
        }
        let Some((key, _)) = content.split_once(':') else {
            comment.clear();
            continue;
        };
        parents.truncate((line.len() - content.len()) / 2);
        parents.push(key);
        if !comment.is_empty() {
            found.push(Described {
                path: parents.join("."),
                text: comment.join(" "),
            });
        }
        comment.clear();
    }
    found
}

/// The paths of all values that are no maps, or empty ones.
fn leaves(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, field) in fields {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                leaves(field, &path, found);
            }
        }
        _ => found.push(path.to_owned()),
    }
}

#[test]
fn the_committed_reference_of_the_chart_describes_every_value() {
    let text = committed("deploy/chart/values.yaml");
    let values: Value = serde_saphyr::from_str(&text).unwrap();
    let described = described(&text);
    let mut all = Vec::new();
    leaves(&values, "", &mut all);
    for path in &all {
        let is_described = |one: &Described| one.path == *path || path.starts_with(&format!("{}.", one.path));
        assert!(
            described.iter().any(is_described),
            "{path} has no comment in values.yaml"
        );
    }
    let mut table = String::from("| value | default | |\n|---|---|---|\n");
    for Described { path, text } in &described {
        let default = path.split('.').fold(&values, |value, key| &value[key]);
        writeln!(table, "| `{path}` | `{default}` | {text} |").unwrap();
    }
    let readme = committed("deploy/chart/README.md");
    let (start, end) = (
        "<!-- values: generated from values.yaml -->",
        "<!-- end of values -->",
    );
    let (before, rest) = readme
        .split_once(start)
        .expect("the README has the mark of the table");
    let (_, after) = rest.split_once(end).expect("the README has the end of the table");
    assert_committed(
        "deploy/chart/README.md",
        &format!("{before}{start}\n\n{table}\n{end}{after}"),
    );
}

#[test]
fn the_schema_of_the_values_has_every_value_and_no_other() {
    let values: Value = serde_saphyr::from_str(&committed("deploy/chart/values.yaml")).unwrap();
    let schema: Value = serde_json::from_str(&committed("deploy/chart/values.schema.json")).unwrap();
    let (mut of_schema, mut of_values) = (Vec::new(), Vec::new());
    properties(&schema, &schema, "", &mut of_schema);
    leaves(&values, "", &mut of_values);
    // Helm gives it to every chart.
    of_schema.retain(|path| path != "global");
    // Of these, values have examples as defaults.
    let free =
        |path: &&String| !path.starts_with("resources.") && !path.starts_with("monitoring.dashboard.labels.");
    let mut of_values: Vec<_> = of_values.iter().filter(free).cloned().collect();
    of_values.extend(["monitoring.dashboard.labels", "resources"].map(str::to_owned));
    of_schema.sort();
    of_values.sort();
    assert_eq!(of_schema, of_values);
}

/// The paths of all properties that have none themselves; a schema with properties allows no others.
fn properties(schema: &Value, whole: &Value, path: &str, found: &mut Vec<String>) {
    let reference = schema["$ref"].as_str();
    let schema = reference.map_or(schema, |at| whole.pointer(at.trim_start_matches('#')).unwrap());
    let Some(fields) = schema["properties"].as_object() else {
        found.push(path.to_owned());
        return;
    };
    assert_eq!(schema["additionalProperties"], false, "{path}");
    for (name, field) in fields {
        let path = [path, name].join(if path.is_empty() { "" } else { "." });
        properties(field, whole, &path, found);
    }
}
