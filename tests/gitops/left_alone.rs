//! What `refit pin` does not change: numbers that are no versions, placeholders, Plans of other distributions, and
//! files of SOPS; and files that are named twice.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::Value;

use super::pin::{plan, stable};
use crate::channels::registry::{Registry, State, index_digest};
use crate::testenv::channel::ChannelServer;
use crate::workdir::{Ran, Workdir};

const NOWHERE: &str = "https://channel.invalid/";

/// Pins a Plan with this version. Returns the result, and the file if it has changed.
fn pinned(url: &str, version: &str, arguments: &str) -> (Ran, Option<String>) {
    let text = plan("a", url, version);
    let dir = Workdir::new([("p.yaml", &text)]);
    let ran = dir.run(&format!("pin {arguments} p.yaml"));
    let after = dir.read("p.yaml");
    (ran, (after != text).then_some(after))
}

/// Checks that a Plan with this version is not changed.
#[track_caller]
fn kept(url: &str, version: &str, arguments: &str, code: i32) -> Ran {
    let (ran, changed) = pinned(url, version, arguments);
    assert_eq!(
        (ran.code, changed),
        (code, None),
        "{version} {arguments}: {ran:#?}"
    );
    ran
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_is_a_version_and_is_never_downgraded() {
    let (server, url) = stable("1.40").await;
    let newer = kept(&url, "1.50", "", 0).err_has("stays at 1.50: it is newer than 1.40");
    newer.err_has("spec.version is the number 1.50, which the API server refuses");
    let (ran, changed) = pinned(&url, "1.30", "");
    ran.ends(0).out_has("1.30 (a number) -> \"1.40\"");
    assert_eq!(changed, Some(plan("a", &url, "\"1.40\"")));
    // The same number, as text.
    let (ran, changed) = pinned(&url, "1.40", "");
    ran.ends(0);
    assert_eq!(changed, Some(plan("a", &url, "\"1.40\"")));
    for (version, what) in [
        ("1e3", "the number 1e3, which is not a version"),
        ("0x10", "the number 0x10, which is not a version"),
        ("yes", "the bool yes, which is not a version"),
        ("[1.50]", "a list, not a version"),
    ] {
        let ran = kept(&url, version, "", 2);
        ran.err_has(&format!("spec.version is {what}; write a version"));
    }
    server.redirects("/stable", "/2026-07-01");
    kept(&url, "2026-08-01", "", 0).err_has("it is newer than 2026-07-01");
    // A result that YAML reads as text needs no quotes.
    server.redirects("/stable", "/v1.41");
    let (ran, _) = pinned(&url, "1.41", "--check");
    ran.err_has("1.41 (a number) -> v1.41");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_placeholder_stays_in_any_syntax() {
    let (_server, url) = stable("v1.34.1+k3s1").await;
    for version in [
        "${VERSION}",
        "\"{{ .Values.version }}\"",
        "\"{{k3s_install_version|default('v1.23.5+k3s1')}}\"",
        "<new_version>",
        "<path:secret#version>",
        "$(VAR)",
        "#@ data.values.version",
        "v1.33.4+k3s1 #@ data.values.version",
        "REPLACE_ME",
        "TODO",
        "latest",
        "stable",
    ] {
        for arguments in ["", "--to v1.34.1+k3s1", "--allow-downgrade --check"] {
            let ran = kept(&url, version, arguments, 0);
            ran.err_has("p.yaml:7: Plan system-upgrade/a stays as it is: spec.version is \"");
        }
    }
    let variable = "a variable, as Flux and envsubst replace it; ";
    kept("${CHANNEL}", "v1.33.3", "", 0).prints("").err_has(variable);
    kept(&url, "${VERSION}", "", 0).prints("").err_has(variable);
    let advice = "which is not a version; write a version such as v1.33.4+k3s1 there, or delete the line";
    kept(&url, "TODO", "--to v1", 0).err_has(advice);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_keeps_its_distribution_with_any_flags() {
    let server = ChannelServer::start().await;
    server
        .redirects("/k3s", "/v1.34.1+k3s1")
        .redirects("/rke2", "/v1.34.1+rke2r1");
    for (version, channel) in [
        ("v1.33.4+rke2r1", "/k3s"),
        ("v1.33.4-rke2r1", "/k3s"),
        ("v1.35.0+rke2r1", "/k3s"),
        ("v1.33.4+k3s1", "/rke2"),
        ("1.2.3-alpine", "/k3s"),
        // The image is that of K3s.
        ("v1.33.4", "/rke2"),
        ("", "/rke2"),
    ] {
        for arguments in ["", "--allow-downgrade", "--range '*'"] {
            let ran = kept(&server.url(channel), version, arguments, 2);
            ran.err_has("a Plan keeps its distribution");
        }
    }
    kept(
        NOWHERE,
        "v1.33.4+k3s1",
        "--to v1.34.1+rke2r1 --allow-downgrade",
        2,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_word_of_a_channel_is_not_written() {
    let (_server, url) = stable("latest").await;
    let text = plan("a", &url, "X").replace("  version: X # by refit\n", "");
    let dir = Workdir::new([("p.yaml", &text)]);
    let ran = dir.run("pin p.yaml").ends(2);
    ran.err_has("its channel gives \"latest\", which is not a version");
    assert_eq!(dir.read("p.yaml"), text);
}

#[test]
fn a_file_that_sops_guards_is_not_edited() {
    let text = plan("a", NOWHERE, "v1.33.4+k3s1") + "sops: {mac: 'ENC[x]'}\n";
    let dir = Workdir::new([("p.yaml", &text)]);
    let ran = dir.run("pin --to v1.34.1+k3s1 p.yaml").ends(2);
    ran.err_has("run: sops set p.yaml '[\"spec\"][\"version\"]' '\"v1.34.1+k3s1\"'");
    assert_eq!(dir.read("p.yaml"), text);
    dir.run("pin --to v1.33.4+k3s1 p.yaml").ends(0);
    // A number that becomes text breaks the checksum too, and the checksum covers all documents.
    let number = plan("a", NOWHERE, "1.34");
    for (name, text, how) in [
        (
            "a b.yaml",
            number.clone() + "sops: {mac: 'ENC[x]'}\n",
            "run: sops set 'a b.yaml' '[\"spec\"][\"version\"]' '\"1.34\"'",
        ),
        (
            "c.yaml",
            format!("kind: ConfigMap\nsops: {{mac: 'ENC[x]'}}\n---\n{number}"),
            "edit it with: sops c.yaml",
        ),
    ] {
        let dir = Workdir::new([(name, &text)]);
        dir.run("pin --to 1.34 .")
            .ends(2)
            .err_has(&how.replace("'a b", "'./a b").replace("sops c", "sops ./c"));
        assert_eq!(dir.read(name), text, "{name}");
    }
}

#[test]
fn a_broken_document_beside_a_plan_that_is_up_to_date_is_an_error() {
    let text = plan("a", NOWHERE, "v1.33.4+k3s1") + "---\nkind: [Plan\n";
    let dir = Workdir::new([("p.yaml", &text)]);
    let ran = dir.run("pin --to v1.33.4+k3s1 p.yaml").ends(2);
    ran.err_has("p.yaml:").err_has("this is not YAML");
}

#[test]
fn a_file_that_is_named_twice_is_written_once() {
    let dir = Workdir::new([]);
    fs::create_dir(dir.path().join("sub")).unwrap();
    let text = |version: &str| plan("a", NOWHERE, version);
    symlink("z.yaml", dir.path().join("a.yaml")).unwrap();
    symlink("../z.yaml", dir.path().join("sub/b.yaml")).unwrap();
    for arguments in [
        "z.yaml .",
        "z.yaml ./z.yaml sub/../z.yaml",
        "a.yaml z.yaml",
        ". sub '*.yaml'",
    ] {
        dir.write("z.yaml", text("v1.33.4+k3s1"));
        let ran = dir.run(&format!("pin --to v1.34.1+k3s1 {arguments}"));
        let ran = ran.ends(0).reports("");
        assert_eq!(ran.out.lines().count(), 1, "{ran:#?}");
        assert_eq!(dir.read("z.yaml"), text("v1.34.1+k3s1"), "{arguments}");
    }
    assert!(
        fs::symlink_metadata(dir.path().join("a.yaml"))
            .unwrap()
            .is_symlink()
    );
}

#[test]
fn errors_are_in_the_json_too_and_a_template_is_skipped() {
    let template = "{{- if .Values.plans }}\napiVersion: upgrade.cattle.io/v1\nkind: Plan\nspec: {version: {{ .v }}}\n{{- end }}\n";
    let dir = Workdir::new([
        ("a.yaml", &plan("a", NOWHERE, "[v1]")),
        ("b.yaml", "apiVersion: upgrade.cattle.io/v1\nkind: [Plan\n"),
        ("c.yaml", template),
        ("d.yaml", "apiVersion: v1\nkind: ConfigMap\n"),
    ]);
    let errors = |ran: &Ran| -> Vec<String> {
        let errors = ran.json()["errors"].as_array().unwrap().clone();
        errors
            .iter()
            .map(|error| error["message"].as_str().unwrap().to_owned())
            .collect()
    };
    let ran = dir.run("pin --to v1.34.1+k3s1 -o json . none.yaml").ends(2);
    let found = errors(&ran);
    let expected = [
        "none.yaml: no such file",
        "this is not YAML",
        "spec.version is a list",
    ];
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (error, why) in found.iter().zip(expected) {
        assert!(error.contains(why), "{error}");
    }
    ran.err_has("c.yaml:1: skipped, a template");
    assert_eq!(errors(&dir.run("pin -o json none.yaml").ends(2)).len(), 1);
    let empty = dir.run("pin -o json d.yaml").ends(2);
    assert_eq!(
        errors(&empty),
        ["there is no Plan in these files; they have 1 ConfigMap; `refit example` prints a Plan"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_minor_version_that_is_skipped_is_named() {
    let (_server, url) = stable("v1.34.1+k3s1").await;
    let (ran, _) = pinned(&url, "v1.31.4+k3s1", "");
    let ran = ran.out_has("v1.31.4+k3s1 -> v1.34.1+k3s1 (skips minor versions 1.32 to 1.33)");
    let all = format!("{}{}", ran.out, ran.err);
    assert!(all.contains("go to 1.32 first, as with --range ~1.32"), "{all}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_version_of_kubernetes_is_said_to_go_up_by_one_minor_version_at_a_time() {
    const ADVICE: &str = "Kubernetes supports upgrades by one minor version at a time";
    let (server, url) = stable("v1.11.5").await;
    let skipping = |version: &str, image: &str| {
        let text = plan("a", &url, version).replace("rancher/k3s-upgrade", image);
        assert!(text.contains(image));
        let dir = Workdir::new([("p.yaml", &text)]);
        let ran = dir.run("pin p.yaml").ends(0);
        (
            ran.out.contains("skips minor version"),
            format!("{}{}", ran.out, ran.err).contains(ADVICE),
        )
    };
    assert_eq!(skipping("v1.9.0", "ghcr.io/siderolabs/installer"), (true, false));
    let talos_of_plan = "ghcr.io/siderolabs/installer}\n  installs: Kubernetes #";
    assert_eq!(skipping("v1.9.0", talos_of_plan), (true, true));
    server.redirects("/stable", "/releases/v1.34.1");
    assert_eq!(skipping("v1.32.0", "example.com/kubeadm-upgrade"), (true, true));
}

#[test]
fn json_stays_json_when_a_null_or_a_number_becomes_a_version() {
    for version in ["null", "1.30", "\"v1.33.1\""] {
        let dir = Workdir::new([(
            "a.json",
            &format!(
                "{{\"apiVersion\":\"upgrade.cattle.io/v1\",\"kind\":\"Plan\",\"metadata\":{{\"name\":\"a\"}},\"spec\":{{\"version\":{version}}}}}"
            ),
        )]);
        dir.run("pin --to v1.34.1+k3s1 a.json").ends(0);
        let json: Value = serde_json::from_str(&dir.read("a.json")).unwrap();
        assert_eq!(json["spec"]["version"], "v1.34.1+k3s1", "{version}");
    }
}

#[test]
fn a_placeholder_for_a_number_does_not_keep_the_version() {
    let text = plan("a", "x", "v1.33.3+k3s1").replace("spec:\n", "spec:\n  concurrency: ${nodes}\n");
    let dir = Workdir::new([("a.yaml", &text)]);
    dir.run("pin --to v1.33.4+k3s1 a.yaml").ends(0).reports("");
    assert_eq!(dir.read("a.yaml"), text.replace("v1.33.3", "v1.33.4"));
}

#[test]
fn resolve_refuses_a_version_that_the_controller_refuses() {
    let no_tag = "spec.version cannot be an image tag";
    for (version, why) in [
        ("\"v1.34.1 \"", no_tag),
        ("\" v1.34.1\"", no_tag),
        ("\"v1.34.1\\n\"", no_tag),
        ("\"  \"", no_tag),
        ("v1.34.1_", "spec.version is \"v1.34.1_\", which is not a version"),
    ] {
        let dir = Workdir::new([("p.yaml", &plan("a", NOWHERE, version))]);
        dir.run("resolve p.yaml").ends(2).err_has(why);
    }
}

#[test]
fn a_version_that_another_tool_keeps_up_to_date_is_left_to_it_and_resolved() {
    for marker in [
        "# {\"$imagepolicy\": \"flux-system:k3s:tag\"}",
        "# kpt-set: ${version}",
    ] {
        let text = plan("a", NOWHERE, "v1.33.4-k3s1").replace("# by refit", marker);
        let dir = Workdir::new([("p.yaml", &text)]);
        let ran = dir.run("pin --to v1.34.1+k3s1 p.yaml").ends(0);
        ran.err_has("spec.version is \"v1.33.4-k3s1\" with the comment \"# ")
            .err_has("; that tool sets the version; change it there, or remove the comment");
        assert_eq!(dir.read("p.yaml"), text, "{marker}");
        dir.run("resolve -o name p.yaml").ends(0).prints("v1.33.4-k3s1\n");
        let empty = text.replace("v1.33.4-k3s1", "\"\"");
        dir.write("p.yaml", empty.replace(&format!("  channel: {NOWHERE}\n"), ""));
        dir.run("resolve p.yaml").ends(2);
    }
}

#[test]
fn a_file_that_cannot_be_read_has_one_error_and_is_not_said_to_have_no_plan() {
    for (name, text) in [
        ("latin1.yaml", b"kind: Plan # Gr\xfc\xdfe\n".to_vec()),
        (
            "broken.yaml",
            b"apiVersion: upgrade.cattle.io/v1\nkind: [Plan\n".to_vec(),
        ),
    ] {
        let dir = Workdir::new([]);
        std::fs::write(dir.path().join(name), text).unwrap();
        for command in ["pin", "render --node a", "validate", "resolve", "rehearse"] {
            let ran = dir.run(&format!("{command} {name}"));
            let ran = ran.ends(if command == "validate" && name == "broken.yaml" {
                1
            } else {
                2
            });
            ran.err_lacks("there is no Plan");
        }
    }
}

#[test]
fn a_plan_of_a_list_that_sops_guards_is_changed_by_its_path() {
    let items = plan("a", NOWHERE, "v1.33.4+k3s1").replace('\n', "\n  ");
    let text = format!(
        "apiVersion: v1\nkind: List\nitems:\n- kind: ConfigMap\n  apiVersion: v1\n- {}\nsops: {{mac: 'ENC[x]'}}\n",
        items.trim_end()
    );
    let dir = Workdir::new([("p.yaml", &text)]);
    let ran = dir.run("pin --to v1.34.1+k3s1 p.yaml").ends(2);
    ran.err_has("run: sops set p.yaml '[\"items\"][1][\"spec\"][\"version\"]' '\"v1.34.1+k3s1\"'");
    assert_eq!(dir.read("p.yaml"), text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_digest_is_not_written_into_a_file_that_sops_guards() {
    let registry = Registry::start(State::default()).await;
    let image = format!("{}/team/k3s:v1.33.4-k3s1", registry.host());
    let text = plan("a", NOWHERE, "v1.33.4+k3s1").replace("rancher/k3s-upgrade", &format!("'{image}'"))
        + "sops: {mac: 'ENC[x]'}\n";
    let dir = Workdir::new([("p.yaml", &text)]);
    // `sops set` sets one value, and the version stays.
    let ran = dir.run("pin --to v1.33.4+k3s1 --digest p.yaml").ends(2);
    ran.err_has("its images would change, but SOPS guards the file with a checksum")
        .err_has("edit it with: sops p.yaml");
    assert_eq!(dir.read("p.yaml"), text);
    let open = text.replace("'ENC[x]'", "'ENC[x]', mac_only_encrypted: true");
    dir.write("p.yaml", &open);
    dir.run("pin --to v1.33.4+k3s1 --digest p.yaml").ends(0);
    assert_eq!(
        dir.read("p.yaml"),
        open.replace(&image, &format!("{image}@{}", index_digest()))
    );
}

#[test]
fn an_image_with_a_third_version_is_named_when_the_version_moves() {
    let text = plan("a", NOWHERE, "v1.33.4+k3s1");
    for (image, what) in [
        (
            "rancher/k3s-upgrade:v1.32.1-k3s1",
            "so it still runs v1.32.1-k3s1; remove the tag, and refit adds the version",
        ),
        (
            "rancher/k3s-upgrade:v1.33.4-k3s1",
            "so it still runs v1.33.4+k3s1; --image-tag changes the image too",
        ),
    ] {
        let dir = Workdir::new([("p.yaml", &text.replace("rancher/k3s-upgrade", image))]);
        let ran = dir.run("pin --to v1.34.1+k3s1 p.yaml").ends(0);
        ran.err_has(&format!("image {image} keeps its tag, {what}"));
    }
    for image in [
        "rancher/k3s-upgrade",
        "rancher/k3s-upgrade:v1.34.1-k3s1",
        "rancher/k3s-upgrade:stable",
        "alpine:3.20.1",
    ] {
        let dir = Workdir::new([("p.yaml", &text.replace("rancher/k3s-upgrade", image))]);
        dir.run("pin --to v1.34.1+k3s1 p.yaml").ends(0).reports("");
    }
}

/// Two Plans as a tool such as Flux gets them: placeholders in names, namespaces and images.
const TEMPLATES: &str = "apiVersion: upgrade.cattle.io/v1
kind: Plan
metadata: {name: 'server-${CLUSTER}', namespace: '${NAMESPACE}'}
spec:
  concurrency: 1
  version: v1.34.1+k3s1
  nodeSelector: {matchLabels: {node-role.kubernetes.io/control-plane: 'true', pool: '${POOL}'}}
  postCompleteLabels: {example.com/cluster: '${CLUSTER}'}
  upgrade: {image: '${REGISTRY}/rancher/k3s-upgrade'}
---
apiVersion: upgrade.cattle.io/v1
kind: Plan
metadata: {name: 'agent-${CLUSTER}', namespace: '${NAMESPACE}'}
spec:
  concurrency: 1
  version: v1.34.1+k3s1
  dependsOn: [{name: 'server-${CLUSTER}'}]
  nodeSelector: {matchExpressions: [{key: node-role.kubernetes.io/control-plane, operator: DoesNotExist}]}
  prepare: {image: '${REGISTRY}/rancher/k3s-upgrade', args: [prepare, 'server-${CLUSTER}']}
  upgrade: {image: '${REGISTRY}/rancher/k3s-upgrade:${VERSION}'}
";

#[test]
fn placeholders_in_names_namespaces_and_images_do_not_stop_a_rehearsal() {
    let dir = Workdir::new([("p.yaml", TEMPLATES)]);
    let ran = dir.run("rehearse --nodes 3 -q p.yaml").ends(0);
    let ran = ran.out_has("complete: 2 Plans, 3 nodes").out_has("agent-cluster");
    ran.err_has("the namespace system-upgrade replaces the placeholder in metadata.namespace")
        .err_has("the name server-cluster replaces the placeholder in metadata.name")
        .err_has(
            "the image registry/rancher/k3s-upgrade:version replaces the placeholder in spec.upgrade.image",
        )
        .err_has("the value pool replaces the placeholder in spec.nodeSelector.matchLabels.pool")
        .err_has("the value cluster replaces the placeholder in spec.postCompleteLabels.example.com/cluster");
    let helm = TEMPLATES
        .replace("${CLUSTER}", "{{ .Values.cluster }}")
        .replace("${NAMESPACE}", "{{ .Release.Namespace }}")
        .replace("${REGISTRY}", "{{ .Values.registry }}")
        .replace("${VERSION}", "{{ .Values.version }}");
    let dir = Workdir::new([("p.yaml", &helm)]);
    let ran = dir.run("rehearse --nodes 3 -q p.yaml").ends(0);
    ran.out_has("server-values-cluster");
}

#[test]
fn a_namespace_that_is_empty_or_a_placeholder_does_not_stop_a_rendering() {
    let (server, _) = TEMPLATES.split_once("---").unwrap();
    let server = server
        .replace("${REGISTRY}", "docker.io")
        .replace("-${CLUSTER}", "");
    for (namespace, note) in [
        ("", "it has no namespace; assuming system-upgrade"),
        (
            "${NAMESPACE}",
            "the namespace system-upgrade replaces the placeholder",
        ),
    ] {
        let text = server.replace("${NAMESPACE}", namespace);
        let dir = Workdir::new([("p.yaml", &text)]);
        let label = "--label node-role.kubernetes.io/control-plane=true --label pool=pool";
        let ran = dir.run(&format!("render p.yaml --node server-1 {label}"));
        ran.ends(0).err_has(note);
        dir.run("rehearse p.yaml --nodes 2 -q").ends(0).err_has(note);
    }
}
