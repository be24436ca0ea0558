//! Files that are not what a command expects: no YAML, another encoding, a Plan within another object, as `kubectl get`
//! prints it, or with two specs. Each command says so, and none succeeds without a word.

use refit_offline::gitops::check::{Options, check};

use super::pin::plan;
use super::source;
use crate::workdir::Workdir;

const NOWHERE: &str = "https://channel.invalid/";

fn example() -> String {
    let text = plan("a", NOWHERE, "v1.33.4+k3s1");
    text.replace(
        "  upgrade:",
        "  concurrency: 1\n  nodeSelector: {matchLabels: {a: b}}\n  upgrade:",
    )
}

#[test]
fn a_file_that_is_not_yaml_has_a_hint_for_the_cause() {
    let good = example();
    let conflict = good.replace(
        "  upgrade:",
        "<<<<<<< HEAD\n  cordon: true\n=======\n>>>>>>> main\n  upgrade:",
    );
    for (text, hint) in [
        (
            good.replace("  concurrency", "\tconcurrency"),
            "the line has a tab",
        ),
        (conflict, "Git has left a merge conflict in the file"),
        (
            good.replace("v1.33.4+k3s1 # by refit", "{{ .version }}"),
            "this looks like a template",
        ),
        (
            good.replace("v1.33.4+k3s1 # by refit", "\"v1.33.4+k3s1"),
            "a quote is opened and not closed",
        ),
        (
            format!("- {}", good.replace('\n', "\n  ")),
            "write each object as a document",
        ),
    ] {
        let found = check(&[source("plan.yaml", &text)], &Options::default()).findings;
        let hints: Vec<_> = found.iter().filter_map(|found| found.hint.as_deref()).collect();
        assert!(
            hints.iter().any(|one| one.contains(hint)),
            "{hint}: {found:#?}\n{text}"
        );
        // A Plan that breaks off has no mistakes of its own.
        assert!(
            !hints.iter().any(|hint| hint.starts_with("add ")),
            "{found:#?}\n{text}"
        );
    }
}

#[test]
fn a_file_in_utf_16_is_refused() {
    let utf_16 = |bytes: fn(u16) -> [u8; 2]| example().encode_utf16().flat_map(bytes).collect::<Vec<u8>>();
    for bytes in [
        utf_16(u16::to_le_bytes),
        utf_16(u16::to_be_bytes),
        [&[0xff, 0xfe][..], &utf_16(u16::to_le_bytes)].concat(),
    ] {
        let dir = Workdir::new([]);
        dir.write("p.yaml", &bytes);
        for command in [
            "validate p.yaml",
            "pin --to v1.34.1+k3s1 p.yaml",
            "resolve p.yaml",
            "rehearse p.yaml",
        ] {
            dir.run(command)
                .ends(2)
                .err_has("p.yaml: the file is UTF-16; save it as UTF-8");
        }
        assert_eq!(std::fs::read(dir.path().join("p.yaml")).unwrap(), bytes);
    }
}

#[test]
fn a_plan_within_another_object_or_text_is_named_where_there_is_no_other() {
    let inner = example().replace('\n', "\n      ");
    for text in [
        format!("apiVersion: v1\nkind: ConfigMap\ndata:\n  plan.yaml: |\n      {inner}\n"),
        format!("#cloud-config\nwrite_files:\n- path: /p\n  content: |\n      {inner}\n"),
        format!("- kubernetes.core.k8s:\n    definition:\n      {inner}\n"),
        format!(
            "apiVersion: kubernetes.crossplane.io/v1alpha2\nkind: Object\nspec:\n  forProvider:\n    manifest:\n      {inner}\n"
        ),
        "{\"plan.json\": {\"apiVersion\": \"upgrade.cattle.io/v1\", \"kind\": \"Plan\"}}".to_owned(),
    ] {
        let dir = Workdir::new([("a.yaml", "kind: ConfigMap\n"), ("b.yaml", &text)]);
        let why = "error: there is no Plan in these files; b.yaml mentions one within another object or text, which refit does \
                   not read";
        for command in [
            "validate",
            "pin --to v1",
            "resolve",
            "render --node n",
            "rehearse",
        ] {
            dir.run(&format!("{command} a.yaml b.yaml")).ends(2).err_has(why);
            let none = dir.run(&format!("{command} a.yaml")).ends(2);
            none.err_has(
                "there is no Plan in these files; they have 1 ConfigMap; `refit example` prints a Plan\n",
            );
        }
        assert_eq!(dir.read("b.yaml"), text);
    }
}

#[test]
fn a_plan_that_is_lost_in_its_document_is_an_error_with_its_line_in_every_command() {
    let nodes = "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Node, metadata: {name: n}}]\n";
    let item = format!("- {}", example().replace('\n', "\n  "));
    for (text, line, rule) in [
        (
            example() + "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n",
            11,
            "duplicate-key",
        ),
        (example() + nodes, 11, "duplicate-key"),
        (
            format!("apiVersion: v1\nkind: List\nitems:\n{item}\nitems: []\n"),
            15,
            "duplicate-key",
        ),
        (example().replace("kind: Plan", "kind: plan"), 2, "not-a-plan"),
        (item.clone(), 1, "not-a-plan"),
    ] {
        let other = example().replace("name: a", "name: b");
        let dir = Workdir::new([("other.yaml", &other), ("p.yaml", &text)]);
        for (command, code) in [
            ("validate .", 1),
            ("pin --to v1.34.1+k3s1 .", 2),
            ("resolve .", 2),
            ("render . --node n --label a=b", 1),
            ("rehearse . -q --nodes 1", 2),
            ("rehearse p.yaml -q --nodes 1", 2),
        ] {
            let ran = dir.run(command).ends(code);
            let said = format!("{}{}", ran.out, ran.err);
            let is_it = |said: &str| said.contains(&format!("p.yaml:{line}:")) && said.contains(rule);
            assert!(said.lines().any(is_it), "{text}\n{ran:#?}");
        }
        assert_eq!(dir.read("p.yaml"), text);
    }
}

#[test]
fn a_patch_that_pin_does_not_change_is_named_as_by_the_other_commands() {
    let dir = Workdir::new([
        (
            "kustomization.yaml",
            "patches: [{path: p.json}]\nresources: [plan.yaml]\n",
        ),
        (
            "p.json",
            "[{\"op\": \"replace\", \"path\": \"/spec/version\", \"value\": \"v1\"}]",
        ),
        ("plan.yaml", &example()),
    ]);
    for command in ["validate", "pin --to v1.33.4+k3s1", "resolve"] {
        dir.run(&format!("{command} ."))
            .ends(0)
            .err_has("p.json: skipped, a patch of Kustomize");
    }
}

#[test]
fn a_job_is_not_rendered_for_a_placeholder_or_from_a_file_that_kubectl_refuses() {
    for (version, what) in [
        ("${VERSION}", "a variable, as Flux and envsubst replace it"),
        ("#@ data.values.version", "an expression of ytt"),
    ] {
        let text = example().replace("v1.33.4+k3s1 # by refit", version);
        let dir = Workdir::new([("p.yaml", &text)]);
        let ran = dir.run("render p.yaml --node n --label a=b").ends(1).prints("");
        ran.err_has("p.yaml:1: Plan system-upgrade/a: spec.version is \"")
            .err_has(what)
            .err_has(", or give one with --version");
        let given = dir
            .run("render p.yaml --node n --label a=b --version v1.33.4+k3s1")
            .ends(0);
        given.out_has("rancher/k3s-upgrade:v1.33.4-k3s1");
    }
    let dir = Workdir::new([("p.yaml", &format!("%YAML 1.1\n---\n{}", example()))]);
    dir.run("render p.yaml --node n --label a=b")
        .ends(1)
        .err_has("p.yaml:2: this is not YAML");
}

#[test]
fn a_plan_with_two_specs_or_versions_is_an_error_of_pin_and_resolve_whatever_the_last_one_is() {
    let to = "pin --to v1.34.1+k3s1 p.yaml";
    for (second, commands) in [
        (
            "spec: {concurrency: 2}\n",
            ["pin p.yaml", to, "resolve p.yaml"].as_slice(),
        ),
        ("  version: v1.34.1+k3s1\n", &[to, "resolve p.yaml"]),
    ] {
        let text = example() + second;
        let dir = Workdir::new([("p.yaml", &text)]);
        for command in commands {
            dir.run(command).ends(2).err_has("appears twice");
        }
        assert_eq!(dir.read("p.yaml"), text);
    }
}

#[test]
fn an_image_with_only_a_digest_is_named_because_the_version_does_not_choose_what_runs() {
    let image = format!("rancher/k3s-upgrade@sha256:{}", "0".repeat(64));
    let text = example().replace("rancher/k3s-upgrade", &image);
    let dir = Workdir::new([("p.yaml", &text)]);
    dir.run("validate p.yaml").ends(1).out_has(
        "spec.upgrade.image has a digest and no tag, so spec.version does not choose what runs [image-tag]",
    );
    dir.run("pin --to v1.34.1+k3s1 p.yaml").ends(0).err_has(
        "has a digest and no tag, so the version does not choose what runs; give it the version as its tag",
    );
    assert_eq!(dir.read("p.yaml"), text.replace("v1.33.4", "v1.34.1"));
}

#[test]
fn a_plan_as_kubectl_get_prints_it_is_rehearsed() {
    let text = example().replace(
        "namespace: system-upgrade}",
        "namespace: system-upgrade, uid: 6a0f, resourceVersion: \"123\", generation: 4, creationTimestamp: \"2025-01-01T00:00:00Z\"}",
    );
    let dir = Workdir::new([("p.yaml", &(text + "status: {latestVersion: v1.32.1-k3s1}\n"))]);
    dir.run("rehearse p.yaml --nodes 2 -q")
        .ends(0)
        .out_has("complete: 1 Plan");
    let notes = dir.run("validate p.yaml").ends(0);
    notes.out_has("the API server refuses the Plan unless its own value is the same");
}

#[test]
fn a_path_of_windows_may_have_its_drive() {
    let volume = |path: &str| {
        let volume = format!(
            "{{image: rancher/k3s-upgrade, volumes: [{{name: k, source: 'C:\\k', destination: '{path}'}}]}}"
        );
        let text = example().replace("{image: rancher/k3s-upgrade}", &volume);
        check(&[source("plan.yaml", &text)], &Options::default()).findings
    };
    let errors = |path: &str| {
        volume(path)
            .iter()
            .filter(|found| found.message.contains("':'"))
            .count()
    };
    assert_eq!([r"C:\k", "C:/k", "/etc:/etc"].map(errors), [0, 0, 1]);
}
