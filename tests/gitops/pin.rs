//! `refit pin` as a command: channels, guards, `--check`, and files.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use crate::channels::registry::{Registry, RegistryAuth, State, index_digest};
use crate::testenv::channel::ChannelServer;
use crate::workdir::Workdir;

/// A channel that no test queries.
const NOWHERE: &str = "https://channel.invalid/stable";

pub(super) fn plan(name: &str, channel: &str, version: &str) -> String {
    format!(
        "apiVersion: upgrade.cattle.io/v1
kind: Plan
metadata: {{name: {name}, namespace: system-upgrade}}
spec:
  # from the channel
  channel: {channel}
  version: {version} # by refit
  upgrade: {{image: rancher/k3s-upgrade}}
"
    )
}

/// A server whose channel `/stable` gives this version.
pub(super) async fn stable(version: &str) -> (ChannelServer, String) {
    let server = ChannelServer::start().await;
    server.redirects("/stable", &format!("/releases/{version}"));
    let url = server.url("/stable");
    (server, url)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_version_of_the_channel_is_written_as_it_was_released_and_the_second_run_writes_nothing() {
    let (server, url) = stable("v1.34.1+k3s1").await;
    let dir = Workdir::new([
        ("a.yaml", &plan("a", &url, "v1.33.3+k3s1")),
        ("b.yaml", &plan("b", &url, "\"v1.33.3-k3s1\"")),
    ]);
    dir.run("pin .").ends(0).reports("").prints(
        "./a.yaml:7: Plan system-upgrade/a: v1.33.3+k3s1 -> v1.34.1+k3s1\n\
         ./b.yaml:7: Plan system-upgrade/b: v1.33.3-k3s1 -> v1.34.1-k3s1\n",
    );
    assert_eq!(dir.read("a.yaml"), plan("a", &url, "v1.34.1+k3s1"));
    assert_eq!(dir.read("b.yaml"), plan("b", &url, "\"v1.34.1-k3s1\""));
    assert_eq!(
        server.asked("/stable").len(),
        1,
        "one request for all Plans of a channel"
    );
    let inodes = || ["a.yaml", "b.yaml"].map(|name| fs::metadata(dir.path().join(name)).unwrap().ino());
    let before = inodes();
    let again = dir.run("pin .").ends(0).prints("");
    again.reports("all 2 Plans are up to date\n");
    assert_eq!(inodes(), before, "the files were not even replaced");
}

#[tokio::test(flavor = "multi_thread")]
async fn check_shows_a_diff_that_applies_and_writes_nothing() {
    let (_server, url) = stable("v1.34.1+k3s1").await;
    let text = plan("a", &url, "v1.33.3+k3s1");
    let dir = Workdir::new([("a.yaml", &text)]);
    let diff = format!(
        "--- a/a.yaml\n+++ b/a.yaml\n@@ -4,5 +4,5 @@\n spec:\n   # from the channel\n   channel: {url}\n-  version: \
         v1.33.3+k3s1 # by refit\n+  version: v1.34.1+k3s1 # by refit\n   upgrade: {{image: rancher/k3s-upgrade}}\n"
    );
    let ran = dir.run("pin --check a.yaml").ends(1).prints(&diff);
    ran.reports("a.yaml:7: Plan system-upgrade/a would change: v1.33.3+k3s1 -> v1.34.1+k3s1\n");
    assert_eq!(dir.read("a.yaml"), text);
    let json = dir.run("pin --check -o json a.yaml").json();
    assert_eq!(json["plans"][0]["result"], "wouldChange");
    dir.write("a.yaml", plan("a", &url, "v1.34.1+k3s1"));
    let same = dir.run("pin --check a.yaml").ends(0).prints("");
    same.reports("the Plan is up to date\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_excludes_other_versions_and_a_downgrade_needs_a_flag() {
    let (_server, url) = stable("v1.34.1+k3s1").await;
    let text = plan("a", &url, "v1.33.3+k3s1");
    let dir = Workdir::new([("a.yaml", &text)]);
    let kept = dir.run("pin --range '>=1.33, <1.34' a.yaml").ends(0).prints("");
    kept.err_has("stays at v1.33.3+k3s1: v1.34.1+k3s1 is not in the range");
    assert_eq!(dir.read("a.yaml"), text);
    let invalid = dir.run("pin --range newest a.yaml").ends(2);
    invalid.err_has("write for example");

    let newer = plan("a", &url, "v1.35.0+k3s1");
    dir.write("a.yaml", &newer);
    // A nightly job must not fail because the channel is behind.
    dir.run("pin a.yaml").ends(0).prints("").reports(
        "a.yaml:7: Plan system-upgrade/a stays at v1.35.0+k3s1: it is newer than v1.34.1+k3s1, the version of its channel; to go back, use --allow-downgrade\n",
    );
    dir.run("pin --check a.yaml").ends(0);
    assert_eq!(dir.read("a.yaml"), newer);
    // An explicit request fails.
    let explicit = dir.run("pin --to v1.34.1+k3s1 a.yaml").ends(2);
    explicit.err_has("\"v1.34.1+k3s1\" is older than \"v1.35.0+k3s1\"; --allow-downgrade takes it");
    let back = dir.run("pin --allow-downgrade a.yaml").ends(0);
    back.out_has("v1.35.0+k3s1 -> v1.34.1+k3s1 (a downgrade)\n");
    assert_eq!(dir.read("a.yaml"), plan("a", &url, "v1.34.1+k3s1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_with_an_invalid_response_changes_nothing_and_delays_no_other_plan() {
    let (server, _) = stable("v1.34.1+k3s1").await;
    server
        .is_a_page("/page")
        .redirects("/word", "/releases/maintenance")
        .fails("/broken", 500);
    let dir = Workdir::new([]);
    for name in ["page", "word", "broken", "stable"] {
        let text = plan(name, &server.url(&format!("/{name}")), "v1.33.3+k3s1");
        dir.write(&format!("{name}.yaml"), text);
    }
    let mut ran = dir.run("pin .").ends(2);
    ran = ran.prints("./stable.yaml:7: Plan system-upgrade/stable: v1.33.3+k3s1 -> v1.34.1+k3s1\n");
    for (name, why) in [
        ("page", "its channel gives no version: the answer is an HTML page"),
        ("word", "\"maintenance\" is not a semantic version"),
        (
            "broken",
            "its channel gives no version: unexpected response: HTTP/1.1 500",
        ),
    ] {
        ran = ran.err_has(&format!("./{name}.yaml:7: Plan system-upgrade/{name}: {why}"));
        let text = dir.read(&format!("{name}.yaml"));
        assert!(text.contains("version: v1.33.3+k3s1"), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_to_a_version_that_the_plan_may_not_reach_yet_changes_nothing() {
    let (_server, url) = stable("v1.36.3+k3s1").await;
    let text = plan("a", &url, "v1.34.1+k3s1") + "  versionPolicy: {maxMinorSkip: 1}\n";
    let dir = Workdir::new([("a.yaml", &text)]);
    let kept = dir.run("pin a.yaml").ends(0).prints("");
    kept.err_has(
        "stays at v1.34.1+k3s1: v1.36.3+k3s1 is not taken yet: it is 2 minor versions from v1.34.1+k3s1",
    );
    assert_eq!(dir.read("a.yaml"), text);
    // An explicit request is not restricted.
    dir.run("pin --to v1.36.3+k3s1 a.yaml").ends(0);
    assert_eq!(dir.read("a.yaml"), text.replace("v1.34.1", "v1.36.3"));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_version_of_k3s_is_written_for_kubeadm_and_talos_and_no_other_one_for_k3s() {
    let server = ChannelServer::start().await;
    server
        .redirects("/k3s", "/v1.34.2+k3s1")
        .redirects("/plain", "/v1.34.2");
    let of_k3s = "\"v1.34.2+k3s1\" is a version of k3s, and the Plan's image installs ";
    let plain = "\"v1.34.2\" is not a version of k3s, which the Plan's image installs";
    for (image, version, path, to, why) in [
        (
            "example/kubeadm-upgrade",
            "v1.33.4",
            "/k3s",
            "v1.34.2+k3s1",
            of_k3s,
        ),
        (
            "ghcr.io/siderolabs/talosctl:v1.11",
            "v1.11.5",
            "/k3s",
            "v1.34.2+k3s1",
            of_k3s,
        ),
        ("rancher/k3s-upgrade", "", "/plain", "v1.34.2", plain),
        ("rancher/k3s-upgrade", "v1.33.4", "/plain", "v1.34.2", plain),
        // Of other images refit knows nothing.
        ("example/upgrade", "v1.33.4", "/k3s", "v1.34.2+k3s1", ""),
        ("example/upgrade", "", "/plain", "v1.34.2", ""),
        ("example/kubeadm-upgrade", "v1.33.4", "/plain", "v1.34.2", ""),
        (
            "example/kubeadm-upgrade",
            "v1.33.4+k3s1",
            "/k3s",
            "v1.34.2+k3s1",
            "",
        ),
    ] {
        let line = format!("  version: {version} # by refit\n");
        let text = plan("a", &server.url(path), version).replace("rancher/k3s-upgrade", image);
        let text = if version.is_empty() {
            text.replace(&line, "")
        } else {
            text
        };
        for arguments in ["pin a.yaml".to_owned(), format!("pin --to {to} a.yaml")] {
            let dir = Workdir::new([("a.yaml", &text)]);
            let ran = dir.run(&arguments);
            if why.is_empty() {
                ran.ends(0).out_has(&format!("-> {to}"));
            } else {
                ran.ends(2).prints("").err_has(why);
                assert_eq!(dir.read("a.yaml"), text, "{image} {arguments}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_of_another_distribution_is_named_by_its_newest_version_and_not_by_a_word() {
    let tags = "latest v1.34.1-k3s1 v1.36.3-k3s1 v1.36.3-k3s1-arm64";
    let registry = Registry::start(State {
        tags: tags.split(' ').map(str::to_owned).collect(),
        ..State::default()
    })
    .await;
    let text = plan("a", &registry.channel(), "").replace("k3s-upgrade", "rke2-upgrade");
    let dir = Workdir::new([("a.yaml", &text)]);
    dir.run("pin a.yaml").ends(2).err_has(
        "\"v1.36.3-k3s1\" is a version of k3s, and the Plan's image installs rke2: a Plan keeps its distribution",
    );
}

#[test]
fn a_version_can_be_given_and_one_plan_be_chosen() {
    let text = |a: &str, b: &str| format!("{}---\n{}", plan("a", NOWHERE, a), plan("b", NOWHERE, b));
    let (old, new) = ("v1.33.3+k3s1", "v1.34.1+k3s1");
    let dir = Workdir::new([("p.yaml", &text(old, old))]);
    let out = dir
        .run("pin --to v1.34.1+k3s1 --plan b -o json p.yaml")
        .ends(0)
        .json();
    let expected = serde_json::json!([["system-upgrade/b", "changed", old, new]]);
    let plans = out["plans"].as_array().unwrap().iter();
    let plans: Vec<_> = plans
        .map(|plan| ["plan", "result", "version", "offered"].map(|key| &plan[key]))
        .collect();
    assert_eq!(serde_json::json!(plans), expected);
    assert_eq!(dir.read("p.yaml"), text(old, new));
    let unknown = dir.run("pin --to v1.34.1+k3s1 --plan c p.yaml").ends(2);
    unknown
        .err_has("there is no Plan \"c\" in these files; the Plans are system-upgrade/a, system-upgrade/b");
    dir.run("pin --to v1.34.1+k3s1 --plan system-upgrade/a p.yaml")
        .ends(0);
    assert_eq!(dir.read("p.yaml"), text(new, new));
    // A mistyped name beside a right one changes nothing.
    let one_of_two = dir
        .run("pin --to v1.34.2+k3s1 --plan a --plan other/b p.yaml")
        .ends(2);
    one_of_two.err_has("there is no Plan \"other/b\"");
    assert_eq!(dir.read("p.yaml"), text(new, new));
    let no_tag = dir.run("pin --to 'v1 beta' p.yaml").ends(2);
    no_tag.err_has("cannot be an image tag and a label value");
}

#[test]
fn a_plan_without_a_channel_keeps_its_version_and_a_tag_changes_only_with_image_tag() {
    let text = |version: &str, tag: &str| {
        plan("a", "X", version)
            .replace("  channel: X\n", "")
            .replace("rancher/k3s-upgrade", &format!("\"rancher/k3s-upgrade:{tag}\""))
    };
    let dir = Workdir::new([("p.yaml", &text("v1.33.3+k3s1", "v1.33.3-k3s1"))]);
    let kept = dir.run("pin p.yaml").ends(0).prints("");
    kept.err_has("it has no channel; add spec.channel, or give one with --channel");
    dir.run("pin --to v1.34.1+k3s1 --image-tag p.yaml").ends(0);
    assert_eq!(dir.read("p.yaml"), text("v1.34.1+k3s1", "v1.34.1-k3s1"));
    dir.run("pin --to v1.35.0+k3s1 p.yaml").ends(0).reports(
        "p.yaml:6: Plan system-upgrade/a: image rancher/k3s-upgrade:v1.34.1-k3s1 keeps its tag, so it still runs v1.34.1+k3s1; \
         --image-tag changes the image too\n",
    );
    assert_eq!(dir.read("p.yaml"), text("v1.35.0+k3s1", "v1.34.1-k3s1"));
}

#[test]
fn standard_input_goes_to_standard_output() {
    let text = plan("a", NOWHERE, "v1.33.3+k3s1");
    let ran = Workdir::new([])
        .run_with("pin --to=v1.34.1+k3s1 -", &[], &text)
        .ends(0);
    let ran = ran.prints(&text.replace("v1.33.3", "v1.34.1"));
    ran.reports("<stdin>:7: Plan system-upgrade/a: v1.33.3+k3s1 -> v1.34.1+k3s1\n");
}

#[test]
fn modes_and_links_stay_and_files_that_cannot_be_written_are_reported() {
    let dir = Workdir::new([]);
    let at = |name: &str| dir.path().join(name);
    let text = plan("a", NOWHERE, "v1.33.3+k3s1");
    let changed = text.replace("v1.33.3", "v1.34.1");
    fs::create_dir(at("real")).unwrap();
    dir.write("real/p.yaml", &text);
    fs::set_permissions(at("real/p.yaml"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("real/p.yaml", at("link.yaml")).unwrap();
    dir.run("pin --to=v1.34.1+k3s1 link.yaml").ends(0);
    assert!(fs::symlink_metadata(at("link.yaml")).unwrap().is_symlink());
    assert_eq!(dir.read("real/p.yaml"), changed);
    assert_eq!(fs::metadata(at("real/p.yaml")).unwrap().mode() & 0o7777, 0o640);
    fs::remove_file(at("link.yaml")).unwrap();
    symlink("gone.yaml", at("link.yaml")).unwrap();
    let refused = dir.run("pin --to=v1.35.0+k3s1 link.yaml").ends(2);
    refused.err_has("link.yaml");
    assert_eq!(dir.read("real/p.yaml"), changed);
}

#[test]
fn one_file_that_cannot_be_changed_does_not_affect_the_others() {
    let text = plan("a", NOWHERE, "v1.33.3+k3s1");
    let dir = Workdir::new([
        ("a.yaml", &text),
        ("b.yaml", &format!("{}  version: v1\n", plan("b", "x", "v1"))),
        ("c.yaml", "apiVersion: upgrade.cattle.io/v1\nkind: [Plan\n"),
    ]);
    let ran = dir
        .run("pin --to=v1.34.1+k3s1 .")
        .ends(2)
        .out_starts("./a.yaml:7:");
    assert_eq!(dir.read("a.yaml"), text.replace("v1.33.3", "v1.34.1"));
    let ran = ran.err_has("./b.yaml:9: the key \"version\" appears twice");
    ran.err_has("./c.yaml:").err_has("this is not YAML");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_in_a_registry_gives_the_newest_of_the_range_and_images_get_their_digests() {
    let tags =
        "v1.33.3-k3s1 v1.33.4-k3s1 v1.33.10-k3s1-rc1 v1.34.0-k3s2 v1.34.0-k3s10 v1.35.0-rc1-k3s1 latest";
    let registry = Registry::start(State {
        auth: RegistryAuth::Token,
        tags: tags.split(' ').map(str::to_owned).collect(),
        ..State::default()
    })
    .await;
    let image = format!("{}/team/k3s", registry.host());
    let text = |version: &str, image: &str| {
        plan("a", &registry.channel(), version).replace("rancher/k3s-upgrade", &format!("'{image}'"))
    };
    let dir = Workdir::new([
        ("logins.json", &registry.docker_config()),
        ("a.yaml", &text("v1.33.3-k3s1", &image)),
    ]);
    let pin = |arguments: &str| dir.run(&format!("pin {arguments} a.yaml --registry-config logins.json"));
    pin("--check").ends(0).err_has("the registry has no image");
    registry.set(|state| {
        state.images.insert("v1.34.0-k3s10".to_owned());
    });
    pin("--check")
        .ends(1)
        .out_has("+  version: v1.34.0-k3s10 # by refit");
    registry.set(|state| state.images.clear());

    let with_digest = "--range ~1.33 --digest";
    let pinned = format!("{image}:v1.33.4-k3s1@{}", index_digest());
    pin(with_digest).ends(0).reports("").prints(&format!(
        "a.yaml:7: Plan system-upgrade/a: v1.33.3-k3s1 -> v1.33.4-k3s1\na.yaml:7: Plan system-upgrade/a: image {pinned}\n"
    ));
    let expected = text("v1.33.4-k3s1", &pinned);
    assert_eq!(dir.read("a.yaml"), expected);
    // The second run changes nothing; without --digest, a digest and its tag stay.
    for arguments in [with_digest, "--range ~1.33 --image-tag"] {
        pin(arguments)
            .ends(0)
            .prints("")
            .reports("the Plan is up to date\n");
        assert_eq!(dir.read("a.yaml"), expected, "{arguments}");
    }

    // Another version has another digest, which is unknown.
    let unknown = pin("--digest").ends(2).prints("");
    unknown
        .err_has("image ")
        .err_has("the image does not exist (HTTP/1.1 404 Not Found)");
    assert_eq!(dir.read("a.yaml"), expected);
    pin("--range ~9").err_has("is not in the range ~9");

    // Without a login the registry refuses, and no credential is printed.
    dir.write("logins.json", r#"{"auths": {}}"#);
    let refused = pin(with_digest).ends(2).prints("");
    refused
        .err_has("the server requires credentials, and there are none")
        .err_lacks("s3cret");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_whose_image_does_not_exist_is_not_written() {
    let registry = Registry::start(State::default()).await;
    let image = format!("{}/team/k3s", registry.host());
    let (_server, url) = stable("v1.34.9+k3s1").await;
    let text = |version: &str, image: &str| {
        plan("a", &url, version).replace("rancher/k3s-upgrade", &format!("'{image}'"))
    };
    let before = text("v1.33.3+k3s1", &image);
    let dir = Workdir::new([("a.yaml", &before)]);
    let why = format!(
        "a.yaml:7: Plan system-upgrade/a stays at v1.33.3+k3s1: its channel gives v1.34.9+k3s1, and the registry has no image \
         {image}:v1.34.9-k3s1 (HTTP/1.1 404 Not Found); run refit pin again once it is published\n"
    );
    for line in ["pin a.yaml", "pin --check a.yaml"] {
        dir.run(line).ends(0).prints("").reports(&why);
        assert_eq!(dir.read("a.yaml"), before, "{line}");
    }
    let asked = registry.log.take();
    assert_eq!(asked.len(), 2, "once each: {asked:?}");
    // It is pinned by a command that asks nobody, and once the image exists.
    dir.run("pin --check --to v1.34.9+k3s1 a.yaml")
        .ends(1)
        .out_has("+  version: v1.34.9+k3s1");
    assert!(registry.log.take().is_empty());
    registry.set(|state| {
        state.images.insert("v1.34.9-k3s1".to_owned());
    });
    dir.run("pin a.yaml").ends(0).reports("");
    assert_eq!(dir.read("a.yaml"), text("v1.34.9+k3s1", &image));
    registry.log.take();
    dir.run("pin a.yaml").ends(0).reports("the Plan is up to date\n");
    assert!(registry.log.take().is_empty(), "nothing changes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_is_written_if_the_registry_cannot_be_asked_or_its_image_keeps_its_tag() {
    let registry = Registry::start(State {
        auth: RegistryAuth::Token,
        ..State::default()
    })
    .await;
    let image = format!("{}/team/k3s", registry.host());
    let (_server, url) = stable("v1.34.9+k3s1").await;
    let text = |version: &str, image: &str| {
        plan("a", &url, version).replace("rancher/k3s-upgrade", &format!("'{image}'"))
    };
    let run = |image: &str, arguments: &str| {
        let dir = Workdir::new([
            ("a.yaml", text("v1.33.3+k3s1", image).as_str()),
            ("logins.json", r#"{"auths": {}}"#),
        ]);
        let ran = dir
            .run(&format!("pin {arguments} a.yaml --registry-config logins.json"))
            .ends(0);
        assert!(dir.read("a.yaml").contains("version: v1.34.9+k3s1"), "{ran:#?}");
        ran
    };
    let note = format!(
        "refit cannot ask the registry whether image {image}:v1.34.9-k3s1 exists: the server requires credentials"
    );
    run(&image, "").err_has(&note);
    let tagged = format!("{image}:v1.33.3-k3s1");
    run(&tagged, "--image-tag").err_has(&note);
    registry.log.take();
    run(&tagged, "").err_has("keeps its tag");
    // A host that is not allowed is not asked.
    run("registry.invalid/team/k3s", "").reports("");
    assert!(registry.log.take().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_moves_with_the_version_only_if_its_tag_is_the_version() {
    let registry = Registry::start(State::default()).await;
    let image = format!("{}/team/k3s", registry.host());
    let text = |version: &str, image: &str| {
        plan("a", NOWHERE, version).replace("rancher/k3s-upgrade", &format!("'{image}'"))
    };
    let pinned = |image: &str| {
        let dir = Workdir::new([("a.yaml", &text("v1.33.3+k3s1", image))]);
        dir.run("pin --to v1.33.4+k3s1 --digest a.yaml")
            .ends(0)
            .reports("");
        dir.read("a.yaml")
    };
    for rest in [
        ":stable".to_owned(),
        format!("@{}", index_digest()),
        format!(":v1.0.0@{}", index_digest()),
    ] {
        let kept = format!("{image}{rest}");
        assert_eq!(pinned(&kept), text("v1.33.4+k3s1", &kept));
    }
    assert!(registry.log.take().is_empty());
    let expected = text(
        "v1.33.4+k3s1",
        &format!("{image}:v1.33.4-k3s1@{}", index_digest()),
    );
    for digest in [String::new(), format!("@sha256:{}", "0".repeat(64))] {
        assert_eq!(pinned(&format!("{image}:v1.33.3-k3s1{digest}")), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_sent_only_to_its_host() {
    let (server, url) = stable("v1.34.1+k3s1").await;
    let dir = Workdir::new([
        ("a.yaml", &plan("a", &url, "v1.33.3+k3s1")),
        ("token", "s3cret\n"),
    ]);
    let host = server.url("").replace("http://", "");
    for (host, expected) in [(host.as_str(), Some("Bearer s3cret")), ("git.example", None)] {
        let ran = dir
            .run(&format!("pin --check --token-file {host}=token a.yaml"))
            .ends(1);
        ran.out_lacks("s3cret").err_lacks("s3cret");
        let requests = server.asked("/stable");
        let sent = requests.last().unwrap().headers.get("authorization");
        assert_eq!(sent.map(|value| value.to_str().unwrap()), expected, "{host}");
    }
    for (given, why) in [
        ("token", "write HOST=FILE"),
        ("a=nowhere", "nowhere cannot be read"),
    ] {
        let ran = dir.run(&format!("pin --token-file {given} a.yaml")).err_has(why);
        assert_ne!(ran.code, 0);
    }
}
