//! `refit migrate --check`: what it reports about the objects of a cluster in a file.

use serde_json::Value;

use crate::workdir::Workdir;

/// The objects of a cluster that runs system-upgrade-controller from its own manifests.
fn cluster(more: &str) -> String {
    let fixtures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let read = |file: &str| std::fs::read_to_string(fixtures.join(file)).unwrap();
    format!(
        "{}\n---\n{}\n---\n{more}",
        read("suc-rbac.yaml"),
        read("suc-deployment.yaml")
    )
}

fn plan(spec: &str) -> String {
    format!(
        "apiVersion: upgrade.cattle.io/v1
kind: Plan
metadata: {{name: agents, namespace: system-upgrade}}
spec: {{version: v1.34.1, nodeSelector: {{}}, serviceAccountName: system-upgrade, upgrade: {{image: rancher/k3s-upgrade}}, {spec}}}
"
    )
}

fn run(snapshot: &str, line: &str) -> crate::workdir::Ran {
    Workdir::new([("cluster.yaml", snapshot)]).run(&format!("migrate --check --snapshot cluster.yaml {line}"))
}

#[test]
fn a_cluster_on_which_nothing_changes_ends_with_0_and_one_that_changes_with_1() {
    let ran = run(&cluster(&plan("concurrency: 1")), "").ends(0);
    ran.prints("")
        .err_has("permissions are not checked")
        .err_has("1 Plan, 0 Jobs, 0 nodes: 0 actions, 0 changes, 0 notes");
    let zero = cluster(&plan("concurrency: 0"));
    run(&zero, "")
        .ends(1)
        .out_starts("change: Plan system-upgrade/agents: ")
        .out_has("ConcurrencyZero")
        .err_has("0 actions, 1 change, ");
    let json = run(&zero, "-o json").ends(1).json();
    assert_eq!([&json["actions"], &json["changes"]], [0, 1]);
    let finding = &json["findings"][0];
    assert_eq!(
        [&finding["severity"], &finding["rule"], &finding["object"]],
        ["change", "concurrency-zero", "Plan system-upgrade/agents"]
    );
    let yaml: Value = serde_saphyr::from_str(&run(&zero, "-o yaml").ends(1).out).unwrap();
    assert_eq!(yaml, json, "both formats say the same");
}

#[test]
fn unreadable_objects_end_with_2() {
    run("{", "")
        .ends(2)
        .err_has("cluster.yaml:1: this is neither YAML nor JSON");
    run("", "").ends(2).err_has("there is no object in it");
    let dir = Workdir::new([]);
    dir.run("migrate --check --snapshot none.yaml")
        .ends(2)
        .err_has("none.yaml cannot be read");
    dir.run("migrate --check --kubeconfig none")
        .ends(2)
        .err_has("error: ");
    // It has nothing else to do than to check.
    dir.run("migrate --snapshot none.yaml")
        .ends(2)
        .err_has("none.yaml cannot be read");
}

#[test]
fn a_plan_that_cannot_be_decoded_is_reported_and_hides_no_other() {
    let broken = plan("concurrency: many").replace("name: agents", "name: broken");
    let both = format!("{broken}---\n{}", plan("concurrency: 0"));
    run(&cluster(&both), "")
        .ends(1)
        .out_has("Plan system-upgrade/broken")
        .out_has("Plan system-upgrade/agents");
}

#[test]
fn objects_of_other_namespaces_do_not_count() {
    let elsewhere = plan("concurrency: 0").replace("namespace: system-upgrade", "namespace: other");
    run(&cluster(&elsewhere), "").ends(0).err_has("0 Plans");
    run(&cluster(&elsewhere), "-n other")
        .ends(1)
        .out_has("no Deployment here")
        .out_has("Plan other/agents");
}

#[test]
fn jobs_nodes_and_the_definition_are_read_from_a_file_too() {
    let more = "apiVersion: v1
kind: Node
metadata: {name: a, labels: {kubernetes.io/hostname: a}}
status: {conditions: [{type: Ready, status: 'False'}]}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: plans.upgrade.cattle.io, labels: {kustomize.toolkit.fluxcd.io/name: apps}}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: apply-agents-on-a
  namespace: system-upgrade
  creationTimestamp: 2026-03-01T00:00:00Z
  labels: {upgrade.cattle.io/controller: system-upgrade-controller, upgrade.cattle.io/plan: agents, upgrade.cattle.io/node: a, upgrade.cattle.io/version: v1.33.0}
spec: {template: {}}
";
    let snapshot = cluster(&format!("{}---\n{more}", plan("concurrency: 1")));
    let report = run(&snapshot, "-o json").ends(1).json();
    let findings = report["findings"].as_array().unwrap();
    let rules: Vec<_> = findings.iter().map(|one| one["rule"].as_str().unwrap()).collect();
    assert_eq!(
        rules,
        ["managed-elsewhere", "nodes-not-ready", "job"],
        "{report:#}"
    );
}

#[test]
fn the_table_of_the_document_is_that_of_the_rules() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join("docs/migrate.md")).unwrap();
    let (_, table) = text
        .split_once("<!-- migrate: compared with the code by a test -->")
        .unwrap();
    let (table, _) = table.split_once("<!-- end of migrate -->").unwrap();
    let rows: Vec<_> = table.lines().filter(|line| line.starts_with("| `")).collect();
    let rules: Vec<_> = refit_offline::migrate::RULES
        .iter()
        .map(|rule| format!("| `{}` | {} |", rule.name, rule.finds))
        .collect();
    assert_eq!(rows, rules);
}
