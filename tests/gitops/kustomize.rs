//! Plans whose version a patch of Kustomize sets.

use refit_offline::gitops::kustomize::attach;
use refit_offline::gitops::overlay::{Field, SetTo};

use super::source;
use crate::workdir::Workdir;

pub(super) const SERVER: &str = "apiVersion: upgrade.cattle.io/v1
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

pub(super) fn dir(kustomization: &str, server: &str) -> Workdir {
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
    let overlays = plans.flat_map(|source| &source.overlays);
    let changes = overlays.flat_map(|overlay| &overlay.changes[&Field::Version].all);
    changes
        .map(|change| match &change.to {
            SetTo::Text(version) => format!("{} {version}", change.place()),
            to => format!("{} {to:?}", change.place()),
        })
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
        ("patches: [{path: patch.yaml, target: {version: v1beta1}}]\n".to_owned(), None),
        ("patches: [{path: patch.yaml, target: {labelSelector: \"tier in (prod),!canary\"}}]\n".to_owned(), None),
        (
            "patches: [{path: patch.yaml, target: {labelSelector: \"tier!=prod,!canary\"}}]\n".to_owned(),
            Some("k/patch.yaml:5 v2"),
        ),
        ("patches: [{path: patch.yaml, target: {annotationSelector: a=b}}]\n".to_owned(), None),
        ("patches: [{path: patch.yaml, target: {labelSelector: \"=(\"}}]\n".to_owned(), None),
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
    let test = "resources: [../base]\ncomponents: [../several]\n";
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
        (
            "r/several/kustomization.yaml",
            "kind: Component\ncomponents: [../newest]\n",
        ),
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
fn the_names_and_labels_that_kustomizations_add_before_a_patch_select_its_plans() {
    let patch = |field: &str, selector: &str| {
        format!(
            "{field}:\n- target: {{{selector}}}\n  patch: |\n    - {{op: add, path: /spec/version, value: v1}}\n"
        )
    };
    let base = "resources: [server.yaml]\nnameSuffix: -k3s\nlabels: [{pairs: {tier: prod}}]\ncommonAnnotations: {a: b}\n";
    for (base_patch, over_patch, expected) in [
        (
            "",
            patch("patches", "labelSelector: tier=prod"),
            Some("k/prod/kustomization.yaml:5 v1"),
        ),
        (
            "",
            patch("patches", "annotationSelector: a=b"),
            Some("k/prod/kustomization.yaml:5 v1"),
        ),
        ("", patch("patches", "labelSelector: tier!=prod"), None),
        // Those of the same kustomization are added after its `patches`.
        (&patch("patches", "labelSelector: tier=prod"), String::new(), None),
        (
            &patch("patchesJson6902", "labelSelector: tier=prod"),
            String::new(),
            Some("k/base/kustomization.yaml:8 v1"),
        ),
        (
            "",
            patch("patches", "name: server-k3s"),
            Some("k/prod/kustomization.yaml:5 v1"),
        ),
        // By its first name, too.
        (
            "",
            patch("patches", "name: server"),
            Some("k/prod/kustomization.yaml:5 v1"),
        ),
        (&patch("patches", "name: server-k3s"), String::new(), None),
    ] {
        let files = [
            ("k/base/kustomization.yaml", &format!("{base}{base_patch}")),
            ("k/base/server.yaml", &SERVER.to_owned()),
            (
                "k/prod/kustomization.yaml",
                &format!("resources: [../base]\n{over_patch}"),
            ),
        ];
        let files = files.map(|(name, text)| (name, text.as_str()));
        assert_eq!(set(&files), Vec::from_iter(expected), "{base_patch}{over_patch}");
    }
}

#[test]
fn kustomizations_that_include_each_other_end() {
    let both = "resources: [../a, ../b, server.yaml]\ncomponents: [../a, ../b]\n";
    let files = [
        ("r/a/kustomization.yaml", both),
        ("r/b/kustomization.yaml", both),
        ("r/b/server.yaml", SERVER),
        ("r/c/kustomization.yaml", "resources: [../a]\n"),
    ];
    assert_eq!(set(&files), [""; 0]);
}

#[test]
fn a_patch_replaces_the_version_and_the_channel_of_the_plan_for_every_command() {
    let server = with("  version: v1.33.0+k3s1\n  channel: https://a.example.com/stable\n");
    let kustomization = "resources: [server.yaml]\nnamespace: system-upgrade\npatches: [{path: p.json, target: {kind: Plan}}]\n";
    let patch = "[{\"op\": \"replace\", \"path\": \"/spec/version\", \"value\": \"v1.34.1+k3s1\"},
{\"op\": \"replace\", \"path\": \"/spec/channel\", \"value\": \"github://k3s-io\"}]";
    let dir = dir(kustomization, &server);
    dir.write("p.json", patch);
    let found = dir.run("validate .").ends(1);
    found
        .out_has("server.yaml:5:12: note: a patch of Kustomize sets spec.version: \"v1.34.1+k3s1\" (./p.json:1) [patch]")
        .out_has("a patch of Kustomize sets spec.channel: \"github://k3s-io\" (./p.json:2) [patch]")
        .out_has("[bad-channel]");
    dir.write("p.json", patch.replace("github://k3s-io", "github://k3s-io/k3s"));
    dir.run("validate .").ends(0);
    let ran = dir.run("rehearse . --nodes 3 -q").ends(0);
    ran.out_has("server  v1.34.1-k3s1");
    dir.run("render . --node a").ends(0).out_has(":v1.34.1-k3s1");
    dir.run("resolve -o name .").ends(0).prints("v1.34.1+k3s1\n");
}

/// A rehearsal of one node at a time says nothing about a Plan of which a patch makes five.
#[test]
fn a_rehearsal_names_patches_of_fields_that_it_does_not_apply() {
    let operation = "[{op: replace, path: /spec/concurrency, value: 5}]";
    let merge =
        "{apiVersion: upgrade.cattle.io/v1, kind: Plan, metadata: {name: server}, spec: {concurrency: 5}}";
    let replaced = "resources: [server.yaml]\nreplacements:\n- source: {kind: ConfigMap}\n  targets:\n  - select: {kind: \
                    Plan}\n    fieldPaths: [spec.concurrency]\n";
    let patch = |patch: &str| {
        format!("resources: [server.yaml]\npatches:\n- target: {{kind: Plan}}\n  patch: '{patch}'\n")
    };
    let server = with("  version: v1.33.0+k3s1\n");
    for (kustomization, line) in [(patch(operation), 4), (patch(merge), 4), (replaced.to_owned(), 6)] {
        let dir = dir(&kustomization, &server);
        dir.run("rehearse . --nodes 3 -q").ends(0).err_has(&format!(
            "Kustomize changes more than its version and channel (./kustomization.yaml:{line}), which is not rehearsed; rehearse \
             the output of kustomize"
        ));
    }
    let dir = dir(
        &patch("[{op: replace, path: /spec/version, value: v1.34.1+k3s1}]"),
        &server,
    );
    let ran = dir.run("rehearse . --nodes 3 -q").ends(0);
    assert!(!ran.err.contains("is not rehearsed"), "{ran:?}");
}

#[test]
fn overlays_with_different_versions_leave_that_of_the_plan() {
    let patch = |version: &str| {
        format!(
            "resources: [../base]\npatches:\n- target: {{kind: Plan}}\n  patch: '[{{op: add, path: /spec/version, value: {version}}}]'\n"
        )
    };
    let dir = Workdir::new([]);
    for folder in ["a", "b", "base"] {
        std::fs::create_dir(dir.path().join(folder)).unwrap();
    }
    let server = with("  version: v1.33.0+k3s1\n");
    dir.write("base/server.yaml", &server);
    dir.write("base/kustomization.yaml", "resources: [server.yaml]\n");
    dir.write("a/kustomization.yaml", patch("v1.34.1+k3s1"));
    dir.write("b/kustomization.yaml", patch("v1.34.2+k3s1"));
    let found = dir.run("validate .").ends(0);
    found.out_has(
        "note: Kustomize sets spec.version in each overlay to another value: \"v1.34.1+k3s1\" (./a/kustomization.yaml:4), \
         \"v1.34.2+k3s1\" (./b/kustomization.yaml:4); refit uses its own [patch]",
    );
    dir.run("resolve -o name .").ends(0).prints("v1.33.0+k3s1\n");
    dir.run("rehearse . --nodes 3 -q").ends(0).err_has(
        "its version is not the same in all overlays of Kustomize (\"v1.34.1+k3s1\" (./a/kustomization.yaml:4), \"v1.34.2+k3s1\"",
    );
    let refused = dir.run("pin --to v1.34.2+k3s1 .").ends(2);
    refused.err_has("write v1.34.2+k3s1 in ./a/kustomization.yaml:4");
    // One that sets none uses that of the Plan.
    dir.write("b/kustomization.yaml", "resources: [../base]\n");
    dir.run("validate .").ends(0).out_has("in some overlays only");
    dir.run("resolve -o name .").ends(0).prints("v1.33.0+k3s1\n");
    dir.run("pin --to v1.34.1+k3s1 .").ends(0);
    assert_eq!(dir.read("base/server.yaml"), server.replace("1.33.0", "1.34.1"));
    // The same version in all of them is that of the Plan.
    dir.write("b/kustomization.yaml", patch("v1.34.2+k3s1"));
    dir.write("a/kustomization.yaml", patch("v1.34.2+k3s1"));
    dir.run("resolve -o name .").ends(0).prints("v1.34.2+k3s1\n");
}

/// What `pin` would write into the base counts for all overlays.
#[test]
fn the_base_of_overlays_with_different_channels_is_not_pinned_by_one_of_them() {
    let channel = |name: &str| {
        format!(
            "resources: [../base]\npatches:\n- target: {{kind: Plan}}\n  patch: '[{{op: add, path: /spec/channel, value: \
             \"https://127.0.0.1:1/{name}\"}}]'\n"
        )
    };
    let dir = Workdir::new([]);
    for folder in ["prod", "staging", "base"] {
        std::fs::create_dir(dir.path().join(folder)).unwrap();
    }
    dir.write("base/server.yaml", SERVER);
    dir.write("base/kustomization.yaml", "resources: [server.yaml]\n");
    dir.write("staging/kustomization.yaml", channel("latest"));
    dir.write("prod/kustomization.yaml", channel("stable"));
    dir.run("pin .")
        .err_has("it has no channel")
        .err_lacks("127.0.0.1");
    // If all have one channel, that is asked.
    dir.write("prod/kustomization.yaml", channel("latest"));
    dir.run("pin .").ends(2).err_has("its channel gives no version");
    assert_eq!(dir.read("base/server.yaml"), SERVER);
}

#[test]
fn one_overlay_without_a_version_does_not_keep_the_others_from_theirs() {
    let dir = Workdir::new([]);
    for folder in ["dev", "prod", "base"] {
        std::fs::create_dir(dir.path().join(folder)).unwrap();
    }
    let server = with("  version: v1.33.0+k3s1\n");
    dir.write("base/server.yaml", &server);
    dir.write("base/kustomization.yaml", "resources: [server.yaml]\n");
    dir.write("prod/kustomization.yaml", "resources: [../base]\n");
    dir.write(
        "dev/kustomization.yaml",
        "resources: [../base]\npatches:\n- target: {kind: Plan}\n  patch: '[{op: remove, path: /spec/version}]'\n",
    );
    dir.run("pin --to v1.33.4+k3s1 .").ends(0);
    assert_eq!(dir.read("base/server.yaml"), server.replace("1.33.0", "1.33.4"));
}

#[test]
fn a_placeholder_in_a_patch_is_not_checked() {
    for own in ["", "  version: v1.33.0+k3s1\n"] {
        let kustomization = KUSTOMIZATION.replace("v1.33.3+k3s1", "'${K3S_VERSION}'");
        let dir = dir(
            &kustomization,
            &with(&format!("{own}  channel: https://a.example.com\n")),
        );
        let found = dir.run("validate .").ends(0);
        found
            .out_has("spec.version is the placeholder \"${K3S_VERSION}\"")
            .out_has("[patch]");
        dir.run("rehearse . --nodes 3 -q").ends(0);
        dir.run("resolve .")
            .ends(2)
            .err_has("set the version where the placeholder gets its value");
        let kept = dir.run("pin --to v1.33.4+k3s1 .").ends(0);
        kept.err_has(&format!("{VALUE} (${{K3S_VERSION}})"));
        assert_eq!(dir.read("kustomization.yaml"), kustomization);
    }
}

/// The Plan with more fields.
pub(super) fn with(fields: &str) -> String {
    SERVER.replace("spec:\n", &format!("spec:\n{fields}"))
}

pub(super) fn patched(patch: &str) -> String {
    let patch = patch.replace('\n', "\n      ");
    format!("resources: [server.yaml]\npatches:\n  - target: {{kind: Plan}}\n    patch: |\n      {patch}\n")
}

#[test]
fn a_version_that_a_patch_removes_or_copies_is_reported_and_not_pinned() {
    let replacements = "resources: [server.yaml]
replacements:
- source: {kind: ConfigMap, name: versions, fieldPath: data.k3s}
  targets:
  - select: {kind: Plan}
    fieldPaths: [spec.concurrency, spec.version]
";
    let copy = "- {op: copy, from: /metadata/annotations/v, path: /spec/version}";
    for (kustomization, line, finding, refusal) in [
        (
            patched("- {op: remove, path: /spec/version}"),
            5,
            "a patch of Kustomize removes spec.version",
            "v1.33.4+k3s1 has no effect, since",
        ),
        (
            patched("- {op: move, from: /spec/version, path: /metadata/annotations/v}"),
            5,
            "removes spec.version",
            "v1.33.4+k3s1 has no effect, since",
        ),
        (
            patched("spec: {version: null}"),
            5,
            "removes spec.version",
            "v1.33.4+k3s1 has no effect, since",
        ),
        (
            patched("- {op: replace, path: /spec, value: {}}"),
            5,
            "removes spec.version",
            "v1.33.4+k3s1 has no effect, since",
        ),
        (
            patched(copy),
            5,
            "so refit does not know it",
            "write v1.33.4+k3s1 where",
        ),
        (
            replacements.to_owned(),
            6,
            "so refit does not know it",
            "write v1.33.4+k3s1 where",
        ),
    ] {
        let server = with("  version: v1.33.0+k3s1\n  channel: https://a.example.com/stable\n");
        let dir = dir(&kustomization, &server);
        let place = format!("./kustomization.yaml:{line}");
        let code = i32::from(kustomization.contains("path: /spec,"));
        let found = dir.run("validate .").ends(code);
        found
            .out_has(finding)
            .out_has(&format!("({place})"))
            .out_has("note: ");
        let refused = dir.run("pin --to v1.33.4+k3s1 .").ends(2);
        refused.err_has(refusal).err_has(&place);
        assert_eq!(dir.read("server.yaml"), server);
        dir.run("pin --to v1.33.0+k3s1 .").ends(0).err_has(&place);
    }
    // Other Plans, and other fields.
    for other in [
        "{kind: Node}",
        "{kind: Plan, name: agent}",
        "{kind: Plan}\n    reject: [{name: s.*}]",
    ] {
        let dir = dir(
            &replacements.replace("{kind: Plan}", other),
            &with("  version: v1.33.0+k3s1\n"),
        );
        dir.run("validate .").ends(0).out_lacks("[patch]");
    }
    // The version of the Plan is still that of its channel, which the controller ignores.
    let removed = dir(
        &patched("- {op: remove, path: /spec/channel}"),
        &with("  version: v1.33.0+k3s1\n  channel: https://a.example.com\n"),
    );
    removed.run("validate .").ends(0).out_lacks("[patch]");
    removed
        .run("pin .")
        .ends(2)
        .err_has("its channel gives no version");
    // Nothing is left to resolve, or nobody knows what.
    let gone = dir(
        &patched("- {op: remove, path: /spec/version}"),
        &with("  version: v1.33.0+k3s1\n"),
    );
    gone.run("validate .").ends(1).out_has("[no-version]");
    let known = dir(&patched(copy), SERVER);
    known.run("validate .").ends(0).out_lacks("no-version");
}

#[test]
fn a_version_of_a_patch_that_is_no_text_is_an_error() {
    for (patch, written) in [
        ("- {op: add, path: /spec/version, value: 1.340}", "1.340"),
        ("spec: {version: true}", "true"),
        ("spec: {version: [v1]}", "a list"),
    ] {
        let dir = dir(
            &patched(patch),
            &with("  channel: https://a.example.com/stable\n"),
        );
        let found = dir.run("validate .").ends(1);
        found.out_has(&format!(
            "spec.version must be text, but a patch of Kustomize sets it to {written} (./kustomization.yaml:5) [wrong-type]"
        ));
        dir.run("rehearse . --nodes 3 -q").ends(2);
        let refused = dir.run("pin --to v1.33.4+k3s1 .").ends(2);
        refused.err_has(&format!(
            "./kustomization.yaml:5 has {written}, which must be text"
        ));
    }
}

#[test]
fn a_channel_that_a_patch_sets_is_that_of_the_plan() {
    let dir = dir(&patched("spec: {channel: \"${CHANNEL}\"}"), SERVER);
    let found = dir.run("validate .").ends(0);
    found
        .out_has("a patch of Kustomize sets spec.channel")
        .out_has("spec.channel is the placeholder");
    dir.run("pin .").ends(0).err_has("spec.channel is \"${CHANNEL}\"");
    dir.write(
        "kustomization.yaml",
        patched("- {op: add, path: /spec/channel, value: https://a.example.com/stable}"),
    );
    dir.run("validate .").ends(0).out_lacks("no-version");
}

#[test]
fn a_plan_that_a_patch_deletes_is_skipped() {
    let delete = "$patch: delete\napiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {name: server}";
    let dir = dir(&patched(delete), SERVER);
    let found = dir.run("validate .").ends(0);
    found
        .out_has("./server.yaml:3:18: note: a patch of Kustomize deletes this Plan (./kustomization.yaml:5)");
    dir.run("rehearse . --nodes 3")
        .ends(2)
        .err_has("is skipped, since a patch of Kustomize deletes it");
    dir.run("pin --to v1.33.4+k3s1 .")
        .ends(0)
        .err_has("deletes it: ./kustomization.yaml:5");
    assert_eq!(dir.read("server.yaml"), SERVER);
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
