//! Plans whose version a patch of Kustomize sets, and templates of Terraform.

use refit_offline::gitops::kustomize::attach;

use super::source;
use crate::workdir::Workdir;

const SERVER: &str = "apiVersion: upgrade.cattle.io/v1
kind: Plan
metadata: {name: server}
spec:
  concurrency: 1
  nodeSelector: {matchLabels: {node-role.kubernetes.io/control-plane: \"true\"}}
  tolerations: [{operator: Exists}]
  upgrade: {image: rancher/k3s-upgrade}
";

const KUSTOMIZATION: &str = "namespace: system-upgrade
resources: [server.yaml]
patches:
  - target: {group: upgrade.cattle.io, version: v1, kind: Plan, name: .*}
    patch: |-
      - op: add
        path: /spec/version
        # renovate: datasource=github-releases depName=k3s-io/k3s
        value: v1.33.3+k3s1
";
const VALUE: &str = "kustomization.yaml:9";

fn dir(kustomization: &str, server: &str) -> Workdir {
    Workdir::new([("kustomization.yaml", kustomization), ("server.yaml", server)])
}

#[test]
fn a_version_that_a_patch_sets_is_that_of_the_plan() {
    let dir = dir(KUSTOMIZATION, SERVER);
    dir.run("validate .").ends(0).prints(&format!(
        "./server.yaml:4:1: note: a patch of Kustomize sets spec.version: \"v1.33.3+k3s1\" (./{VALUE}) [patch]
  |
4 | spec:
  | ^^^^
  |
  = hint: change the version there
"
    ));
    // The kustomization counts, too, if only the file of the Plan is named.
    let named = dir.run("validate server.yaml").ends(0);
    named.out_has("[patch]").out_lacks("no-version");
    dir.run("rehearse . --nodes 3 -q")
        .ends(0)
        .out_has("server  v1.33.3-k3s1");
    dir.run("render . --node a")
        .ends(0)
        .out_has("rancher/k3s-upgrade:v1.33.3-k3s1");
}

#[test]
fn pin_names_the_patch_that_sets_the_version_and_leaves_the_plan_alone() {
    let dir = dir(KUSTOMIZATION, SERVER);
    let same = dir.run("pin .").ends(0);
    same.err_has(&format!(
        "a patch of Kustomize sets its version: ./{VALUE} (v1.33.3+k3s1)"
    ));
    dir.run("pin --to v1.33.3+k3s1 .").ends(0);
    let refused = dir.run("pin --to v1.33.4+k3s1 .").ends(2);
    refused.err_has(&format!("write v1.33.4+k3s1 in ./{VALUE}"));
    assert_eq!(
        (dir.read("server.yaml"), dir.read("kustomization.yaml")),
        (SERVER.to_owned(), KUSTOMIZATION.to_owned())
    );
}

#[test]
fn pin_edits_a_patch_that_is_a_partial_plan_by_the_policy_of_its_plan() {
    let server = SERVER.replace(
        "  concurrency",
        "  versionPolicy: {range: \"~1.33\"}\n  concurrency",
    );
    let patch = "apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {name: server}\nspec:\n  version: v1.33.3+k3s1 # now\n";
    let dir = Workdir::new([
        (
            "kustomization.yaml",
            "resources: [server.yaml]\npatches: [{path: version.yaml}]\n",
        ),
        ("server.yaml", &server),
        ("version.yaml", patch),
    ]);
    dir.run("pin --to v1.33.4+k3s1 .").ends(0);
    assert_eq!(dir.read("version.yaml"), patch.replace("1.33.3", "1.33.4"));
    assert_eq!(dir.read("server.yaml"), server);
}

/// The messages about the version of the Plan that patches set.
fn set(files: &[(&str, &str)]) -> Vec<String> {
    let mut sources: Vec<_> = files.iter().map(|(name, text)| source(name, text)).collect();
    attach(&mut sources);
    let is_plan = |source: &&refit_offline::gitops::Source| source.text.contains("kind: Plan");
    let plans = sources
        .iter()
        .filter(is_plan)
        .filter(|source| !source.name.contains("patch"));
    let texts = plans.flat_map(|source| source.overlays.iter().flat_map(|overlay| &overlay.versions));
    texts
        .map(|set| format!("{} {}", set.place(), set.version))
        .collect()
}

#[test]
fn every_form_of_a_patch_is_read_and_only_for_the_plans_that_it_selects() {
    let merge =
        "apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {name: server}\nspec:\n  version: v2\n";
    let other = merge.replace("server", "agent");
    let indented = |text: &str| text.replace('\n', "\n      ");
    for (kustomization, expected) in [
        (format!("patches:\n  - patch: |\n      {}", indented(merge)), Some("k/kustomization.yaml:8 v2")),
        (format!("patchesStrategicMerge:\n  - |\n      {}", indented(merge)), Some("k/kustomization.yaml:8 v2")),
        (format!("patches:\n  - patch: |\n      {}", indented(&other)), None),
        ("patchesStrategicMerge: [patch.yaml]\n".to_owned(), Some("k/patch.yaml:5 v2")),
        ("patches: [{path: ./patch.yaml, target: {kind: Plan, name: serv.*}}]\n".to_owned(), Some("k/patch.yaml:5 v2")),
        ("patches: [{path: patch.yaml, target: {kind: Plan, name: serv}}]\n".to_owned(), None),
        ("patches: [{path: patch.yaml, target: {kind: Node}}]\n".to_owned(), None),
        ("patchesJson6902: [{path: patch.json, target: {kind: Plan, name: server}}]\n".to_owned(), Some("k/patch.json:2 v3")),
        (
            "patches:\n- target: {kind: Plan}\n  patch: '[{\"op\": \"replace\", \"path\": \"/spec/version\", \"value\": \"v4\"}]'\n".to_owned(),
            Some("k/kustomization.yaml:4 v4"),
        ),
    ] {
        let kustomization = format!("resources: [server.yaml]\n{kustomization}");
        let files = [
            ("k/kustomization.yaml", kustomization.as_str()),
            ("k/server.yaml", SERVER),
            ("k/patch.yaml", merge),
            ("k/patch.json", "[{\"op\": \"add\",\n\"path\": \"/spec/version\", \"value\": \"v3\"}]"),
        ];
        assert_eq!(set(&files), Vec::from_iter(expected), "{kustomization}");
    }
}

#[test]
fn overlays_and_components_and_kustomizations_of_flux_patch_the_plans_below_them() {
    let patch = |version: &str| {
        format!(
            "patches:\n- target: {{kind: Plan}}\n  patch: |\n    - {{op: add, path: /spec/version, value: {version}}}\n"
        )
    };
    let prod = format!("resources: [../base]\n{}", patch("v1"));
    let test = "resources: [../base]\ncomponents: [../newest]\n";
    let component = format!("kind: Component\n{}", patch("v2"));
    let flux = format!(
        "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nspec:\n  path: ./clusters/a\n  {}",
        patch("v3").trim_end().replace('\n', "\n  ")
    );
    let files = [
        ("r/base/kustomization.yaml", "resources: [server.yaml]\n"),
        ("r/base/server.yaml", SERVER),
        ("r/prod/kustomization.yaml", &prod),
        ("r/test/kustomization.yaml", test),
        ("r/newest/kustomization.yaml", &component),
        ("r/flux/plans.yaml", &flux),
        ("r/clusters/a/server.yaml", SERVER),
        ("r/clusters/b/server.yaml", SERVER),
    ];
    assert_eq!(
        set(&files),
        [
            "r/prod/kustomization.yaml:5 v1",
            "r/newest/kustomization.yaml:5 v2",
            "r/flux/plans.yaml:8 v3"
        ]
    );
}

#[test]
fn a_part_of_a_plan_is_not_checked_as_a_plan_and_no_hint_makes_it_one() {
    let whole = SERVER.replace(
        "{name: server}\nspec:\n",
        "{name: server, namespace: system-upgrade}\nspec:\n  version: v1.33.3+k3s1\n",
    );
    let part = "apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {name: server}\nspec: {version: v1.33.4+k3s1}\n";
    let dir = Workdir::new([("server.yaml", whole.as_str()), ("prod.yaml", part)]);
    let both = dir.run("validate .").ends(0).out_has("./prod.yaml:3:18: note: ");
    both.out_has("[patch]").out_lacks("duplicate-object");
    let ran = dir.run("rehearse . --nodes 3 -q").ends(0);
    ran.err_has("./prod.yaml:1: skipped, a part of Plan server")
        .out_has("v1.33.3");
    let alone = dir.run("validate prod.yaml").ends(1);
    alone
        .out_has("if this is a patch of Kustomize")
        .out_lacks("add `upgrade");
}

/// A Plan for agents that waits for `server`.
fn agent(version: &str) -> String {
    SERVER
        .replace("{name: server}", "{name: agent}")
        .replace(
            "nodeSelector: {matchLabels: {node-role.kubernetes.io/control-plane: \"true\"}}",
            "nodeSelector: {matchExpressions: [{key: node-role.kubernetes.io/control-plane, operator: DoesNotExist}]}",
        )
        .replace(
            "  upgrade:",
            "  serviceAccountName: system-upgrade\n  dependsOn: [{name: server}]\n  prepare: {image: rancher/k3s-upgrade, args: [prepare, \
             server]}\n  upgrade:",
        )
        .replace("  concurrency", &format!("  version: {version}\n  concurrency"))
}

fn server(version: &str) -> String {
    SERVER.replace("  concurrency", &format!("  version: {version}\n  concurrency"))
}

/// The files and rules of the findings.
fn found(files: &[(&str, &str)]) -> Vec<String> {
    let dir = Workdir::new([]);
    for (name, text) in files {
        std::fs::create_dir_all(dir.path().join(name).parent().unwrap()).unwrap();
        dir.write(name, text);
    }
    let report = dir.run("validate -o json .").json();
    let findings = report["findings"].as_array().unwrap().iter();
    findings
        .map(|found| {
            let text = |field: &str| found[field].as_str().unwrap();
            format!("{} {}", text("file").trim_start_matches("./"), text("rule"))
        })
        .collect()
}

const BOTH: &str = "resources: [server.yaml, agent.yaml]\n";

#[test]
fn plans_of_clusters_side_by_side_are_not_compared() {
    let (older, newer) = ("v1.33.3+k3s1", "v1.34.1+k3s1");
    let (a_server, a_agent, b_server, b_agent) = (server(older), agent(older), server(newer), agent(newer));
    let node = |name: &str, label: &str, version: &str| {
        format!(
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{kubernetes.io/hostname: {name}, \
             {label}: \"true\"}}}}\nstatus: {{nodeInfo: {{kubeletVersion: {version}}}}}\n"
        )
    };
    let nodes = |version: &str| {
        node("server", "node-role.kubernetes.io/control-plane", version) + &node("agent", "agent", version)
    };
    let (a_node, b_node) = (nodes(older), nodes(newer));
    let flux = |name: &str| {
        format!(
            "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {{name: {name}}}\nspec: {{path: \
             ./clusters/{name}}}\n"
        )
    };
    let (a_flux, b_flux) = (flux("a"), flux("b"));
    let plans = [
        ("clusters/a/plans/agent.yaml", a_agent.as_str()),
        ("clusters/a/plans/server.yaml", &a_server),
        ("clusters/b/plans/agent.yaml", &b_agent),
        ("clusters/b/plans/server.yaml", &b_server),
    ];
    let maintenance = "apiVersion: nodemaintenance.medik8s.io/v1beta1\nkind: NodeMaintenance\nmetadata: {name: m}\nspec: {nodeName: worker}\n";
    for (case, more) in [
        (
            "kustomizations",
            &[
                ("clusters/a/plans/kustomization.yaml", BOTH),
                ("clusters/b/plans/kustomization.yaml", BOTH),
            ][..],
        ),
        (
            "kustomizations, with files that they do not load",
            &[
                ("clusters/a/kustomization.yaml", "resources: [plans]\n"),
                ("clusters/a/plans/kustomization.yaml", BOTH),
                ("clusters/a/nodes.yaml", &a_node),
                ("clusters/a/maintenance.yaml", maintenance),
                ("clusters/b/kustomization.yaml", "resources: [plans]\n"),
                ("clusters/b/plans/kustomization.yaml", BOTH),
                ("clusters/b/nodes.yaml", &b_node),
                ("clusters/b/maintenance.yaml", maintenance),
            ],
        ),
        (
            "folders of Flux",
            &[("flux/a.yaml", &a_flux), ("flux/b.yaml", &b_flux)],
        ),
        (
            "folders of Flux that contain their own Kustomization",
            &[
                ("clusters/a/flux-system/gotk-sync.yaml", &a_flux),
                (
                    "clusters/a/flux-system/kustomization.yaml",
                    "resources: [gotk-sync.yaml]\n",
                ),
                ("clusters/a/plans/kustomization.yaml", BOTH),
                ("clusters/b/flux-system/gotk-sync.yaml", &b_flux),
                (
                    "clusters/b/flux-system/kustomization.yaml",
                    "resources: [gotk-sync.yaml]\n",
                ),
                ("clusters/b/plans/kustomization.yaml", BOTH),
            ],
        ),
    ] {
        let files = [&plans[..], more].concat();
        assert_eq!(found(&files), [] as [&str; 0], "{case}");
    }
}

#[test]
fn plans_are_compared_unless_only_different_kustomizations_load_them() {
    let (older, newer, agent) = (
        server("v1.33.3+k3s1"),
        server("v1.34.1+k3s1"),
        agent("v1.34.1+k3s1"),
    );
    let server = older.clone();
    let duplicate = "b/server.yaml duplicate-object";
    let skew = ["a/agent.yaml version-skew", "a/agent.yaml version-skew"];
    let flux = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: all}\nspec: {path: ./all}\n";
    for (files, expected) in [
        // Nothing says which files belong together.
        (
            &[("a/server.yaml", server.as_str()), ("b/server.yaml", &server)][..],
            &[duplicate][..],
        ),
        // One of them is loaded, and nothing says where the other one belongs.
        (
            &[
                ("a/kustomization.yaml", "resources: [server.yaml]\n"),
                ("a/server.yaml", &server),
                ("b/server.yaml", &server),
            ],
            &[duplicate],
        ),
        // A third one loads both.
        (
            &[
                ("kustomization.yaml", "resources: [a, b]\n"),
                ("a/kustomization.yaml", "resources: [server.yaml]\n"),
                ("a/server.yaml", &server),
                ("b/kustomization.yaml", "resources: [server.yaml]\n"),
                ("b/server.yaml", &server),
            ],
            &[duplicate],
        ),
        // A kustomization loads both of a cluster, and the one of the first file may be of any.
        (
            &[
                ("0.yaml", &older),
                ("a/kustomization.yaml", BOTH),
                ("a/agent.yaml", &agent),
                ("a/server.yaml", &newer),
            ],
            &["a/server.yaml duplicate-object"],
        ),
        // Flux makes one of the folder, and of those below it.
        (
            &[
                ("flux/all.yaml", flux),
                ("all/a/kustomization.yaml", "resources: [agent.yaml]\n"),
                ("all/a/agent.yaml", &agent),
                ("all/b/kustomization.yaml", "resources: [server.yaml]\n"),
                ("all/b/server.yaml", &server),
            ],
            &["all/a/agent.yaml version-skew", "all/a/agent.yaml version-skew"],
        ),
        // Two clusters share a base.
        (
            &[
                ("base/kustomization.yaml", "resources: [server.yaml]\n"),
                ("base/server.yaml", &server),
                ("a/kustomization.yaml", "resources: [../base, agent.yaml]\n"),
                ("a/agent.yaml", &agent),
                ("b/kustomization.yaml", "resources: [../base]\n"),
            ],
            &skew,
        ),
        // A Plan of another cluster is not the one that is meant.
        (
            &[
                ("a/kustomization.yaml", "resources: [agent.yaml]\n"),
                ("a/agent.yaml", &agent),
                ("b/kustomization.yaml", "resources: [server.yaml]\n"),
                ("b/server.yaml", &server),
            ],
            &["a/agent.yaml unknown-plan", "a/agent.yaml unknown-plan"],
        ),
    ] {
        assert_eq!(found(files), expected, "{files:?}");
    }
}
