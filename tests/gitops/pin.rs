//! `refit pin` as it is run: channels, guards, `--check`, files and what becomes of them.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use super::{command, refit, stderr, stdout};
use crate::channels::registry::{Door, Registry, State, index_digest};
use crate::support::channel::ChannelServer;

fn plan(name: &str, channel: &str, version: &str) -> String {
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

fn pin(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = refit(folder, &[&["pin"], arguments].concat());
    (output.status.code().unwrap(), stdout(&output), stderr(&output))
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_version_of_the_channel_is_written_as_it_was_released_and_the_second_run_writes_nothing() {
    let server = ChannelServer::start().await;
    server.redirects("/stable", "/releases/v1.34.1+k3s1");
    let dir = tempfile::tempdir().unwrap();
    let (dir, url) = (dir.path(), server.url("/stable"));
    fs::write(dir.join("a.yaml"), plan("a", &url, "v1.33.3+k3s1")).unwrap();
    fs::write(dir.join("b.yaml"), plan("b", &url, "\"v1.33.3-k3s1\"")).unwrap();
    let (code, out, err) = pin(dir, &["."]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert_eq!(
        out,
        "./a.yaml:7: Plan system-upgrade/a: v1.33.3+k3s1 -> v1.34.1+k3s1\n./b.yaml:7: Plan system-upgrade/b: v1.33.3-k3s1 -> \
         v1.34.1-k3s1\n"
    );
    assert_eq!(read(dir, "a.yaml"), plan("a", &url, "v1.34.1+k3s1"));
    assert_eq!(read(dir, "b.yaml"), plan("b", &url, "\"v1.34.1-k3s1\""));
    assert_eq!(
        server.asked("/stable").len(),
        1,
        "one question for all Plans of a channel"
    );
    let before = [
        fs::metadata(dir.join("a.yaml")).unwrap().ino(),
        fs::metadata(dir.join("b.yaml")).unwrap().ino(),
    ];
    assert_eq!(pin(dir, &["."]), (0, String::new(), String::new()));
    let after = [
        fs::metadata(dir.join("a.yaml")).unwrap().ino(),
        fs::metadata(dir.join("b.yaml")).unwrap().ino(),
    ];
    assert_eq!(before, after, "the files were not even replaced");
}

#[tokio::test(flavor = "multi_thread")]
async fn check_shows_a_diff_that_applies_and_writes_nothing() {
    let server = ChannelServer::start().await;
    server.redirects("/stable", "/v1.34.1+k3s1");
    let dir = tempfile::tempdir().unwrap();
    let (dir, url) = (dir.path(), server.url("/stable"));
    let text = plan("a", &url, "v1.33.3+k3s1");
    fs::write(dir.join("a.yaml"), &text).unwrap();
    let (code, out, err) = pin(dir, &["--check", "a.yaml"]);
    assert_eq!(code, 1);
    assert_eq!(
        out,
        format!(
            "--- a/a.yaml\n+++ b/a.yaml\n@@ -4,5 +4,5 @@\n spec:\n   # from the channel\n   channel: {url}\n-  version: \
             v1.33.3+k3s1 # by refit\n+  version: v1.34.1+k3s1 # by refit\n   upgrade: {{image: rancher/k3s-upgrade}}\n"
        )
    );
    assert!(err.contains("v1.33.3+k3s1 -> v1.34.1+k3s1"), "{err}");
    assert_eq!(read(dir, "a.yaml"), text);
    fs::write(dir.join("a.yaml"), plan("a", &url, "v1.34.1+k3s1")).unwrap();
    assert_eq!(
        pin(dir, &["--check", "a.yaml"]),
        (0, String::new(), String::new())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_keeps_what_is_outside_and_a_downgrade_wants_to_be_allowed() {
    let server = ChannelServer::start().await;
    server.redirects("/stable", "/v1.34.1+k3s1");
    let dir = tempfile::tempdir().unwrap();
    let (dir, url) = (dir.path(), server.url("/stable"));
    let text = plan("a", &url, "v1.33.3+k3s1");
    fs::write(dir.join("a.yaml"), &text).unwrap();
    let (code, out, err) = pin(dir, &["--range", ">=1.33, <1.34", "a.yaml"]);
    assert_eq!((code, out.as_str()), (0, ""));
    assert!(
        err.contains("stays at v1.33.3+k3s1: v1.34.1+k3s1 is not in the range"),
        "{err}"
    );
    assert_eq!(read(dir, "a.yaml"), text);
    let (code, _, err) = pin(dir, &["--range", "newest", "a.yaml"]);
    assert_eq!(code, 2);
    assert!(err.contains("write for example"), "{err}");

    let newer = plan("a", &url, "v1.35.0+k3s1");
    fs::write(dir.join("a.yaml"), &newer).unwrap();
    let (code, out, err) = pin(dir, &["a.yaml"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(
        err.contains("\"v1.34.1+k3s1\" is older than \"v1.35.0+k3s1\"; --allow-downgrade takes it"),
        "{err}"
    );
    assert_eq!(read(dir, "a.yaml"), newer);
    assert_eq!(pin(dir, &["--allow-downgrade", "a.yaml"]).0, 0);
    assert_eq!(read(dir, "a.yaml"), plan("a", &url, "v1.34.1+k3s1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_that_answers_garbage_changes_nothing_and_holds_up_nobody_else() {
    let server = ChannelServer::start().await;
    server
        .redirects("/stable", "/v1.34.1+k3s1")
        .is_a_page("/page")
        .redirects("/login", "/login?next=stable")
        .redirects("/word", "/releases/maintenance")
        .fails("/broken", 500);
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for name in ["page", "login", "word", "broken", "stable"] {
        let text = plan(name, &server.url(&format!("/{name}")), "v1.33.3+k3s1");
        fs::write(dir.join(format!("{name}.yaml")), text).unwrap();
    }
    let (code, out, err) = pin(dir, &["."]);
    assert_eq!(code, 2, "{err}");
    assert_eq!(
        out,
        "./stable.yaml:7: Plan system-upgrade/stable: v1.33.3+k3s1 -> v1.34.1+k3s1\n"
    );
    for (name, why) in [
        ("page", "its channel gives no version: the answer is an HTML page"),
        (
            "login",
            "its channel gives no version: the redirect's Location has a query",
        ),
        ("word", "\"maintenance\" is no semantic version"),
        (
            "broken",
            "its channel gives no version: unexpected response: HTTP/1.1 500",
        ),
    ] {
        assert!(
            err.contains(&format!("./{name}.yaml:7: Plan system-upgrade/{name}: {why}")),
            "{name}: {err}"
        );
        assert!(
            read(dir, &format!("{name}.yaml")).contains("version: v1.33.3+k3s1"),
            "{name}"
        );
    }
}

#[test]
fn a_version_can_be_given_and_one_plan_be_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let url = "https://channel.invalid/stable";
    let text = |a: &str, b: &str| format!("{}---\n{}", plan("a", url, a), plan("b", url, b));
    fs::write(dir.join("p.yaml"), text("v1.33.3+k3s1", "v1.33.3+k3s1")).unwrap();
    let (code, out, _) = pin(
        dir,
        &["--to", "v1.34.1+k3s1", "--plan", "b", "-o", "json", "p.yaml"],
    );
    assert_eq!(code, 0);
    let out: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(out["plans"].as_array().unwrap().len(), 1);
    let changed = &out["plans"][0];
    assert_eq!(
        (
            &changed["plan"],
            &changed["result"],
            &changed["version"],
            &changed["offered"]
        ),
        (
            &"system-upgrade/b".into(),
            &"changed".into(),
            &"v1.33.3+k3s1".into(),
            &"v1.34.1+k3s1".into()
        )
    );
    assert_eq!(read(dir, "p.yaml"), text("v1.33.3+k3s1", "v1.34.1+k3s1"));
    let (code, _, err) = pin(dir, &["--to", "v1.34.1+k3s1", "--plan", "c", "p.yaml"]);
    assert_eq!(code, 2);
    assert!(err.contains("there is no such Plan in these files"), "{err}");
    let (code, _, err) = pin(dir, &["--to", "v1 beta", "p.yaml"]);
    assert_eq!(code, 2);
    assert!(err.contains("cannot be an image tag and a label value"), "{err}");
}

#[test]
fn a_plan_without_channel_stays_and_says_so_and_a_tag_moves_along_when_asked() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let text = |version: &str, tag: &str| {
        plan("a", "X", version)
            .replace("  channel: X\n", "")
            .replace("rancher/k3s-upgrade", &format!("\"rancher/k3s-upgrade:{tag}\""))
    };
    fs::write(dir.join("p.yaml"), text("v1.33.3+k3s1", "v1.33.3-k3s1")).unwrap();
    let (code, out, err) = pin(dir, &["p.yaml"]);
    assert_eq!((code, out.as_str()), (0, ""));
    assert!(err.contains("it has no channel; --channel gives it one"), "{err}");
    assert_eq!(pin(dir, &["--to", "v1.34.1+k3s1", "--image-tag", "p.yaml"]).0, 0);
    assert_eq!(read(dir, "p.yaml"), text("v1.34.1+k3s1", "v1.34.1-k3s1"));
    assert_eq!(pin(dir, &["--to", "v1.35.0+k3s1", "p.yaml"]).0, 0);
    assert_eq!(
        read(dir, "p.yaml"),
        text("v1.35.0+k3s1", "v1.34.1-k3s1"),
        "the tag is another byte"
    );
}

#[test]
fn standard_input_goes_to_standard_output() {
    let dir = tempfile::tempdir().unwrap();
    let text = plan("a", "https://channel.invalid/stable", "v1.33.3+k3s1");
    let mut child = command(dir.path(), &["pin", "--to=v1.34.1+k3s1", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stdout(&output), text.replace("v1.33.3", "v1.34.1"));
    assert_eq!(
        stderr(&output),
        "<stdin>:7: Plan system-upgrade/a: v1.33.3+k3s1 -> v1.34.1+k3s1\n"
    );
}

#[test]
fn modes_and_links_stay_and_what_cannot_be_written_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let text = plan("a", "https://channel.invalid/stable", "v1.33.3+k3s1");
    fs::create_dir(dir.join("real")).unwrap();
    fs::write(dir.join("real/p.yaml"), &text).unwrap();
    fs::set_permissions(dir.join("real/p.yaml"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("real/p.yaml", dir.join("link.yaml")).unwrap();
    assert_eq!(pin(dir, &["--to=v1.34.1+k3s1", "link.yaml"]).0, 0);
    assert!(fs::symlink_metadata(dir.join("link.yaml")).unwrap().is_symlink());
    assert_eq!(read(dir, "real/p.yaml"), text.replace("v1.33.3", "v1.34.1"));
    assert_eq!(
        fs::metadata(dir.join("real/p.yaml")).unwrap().mode() & 0o7777,
        0o640
    );
    fs::hard_link(dir.join("real/p.yaml"), dir.join("twin.yaml")).unwrap();
    let (code, _, err) = pin(dir, &["--to=v1.35.0+k3s1", "twin.yaml"]);
    assert_eq!(code, 2);
    assert!(err.contains("2 names (hard links) lead to this file"), "{err}");
    assert_eq!(read(dir, "twin.yaml"), text.replace("v1.33.3", "v1.34.1"));
}

#[test]
fn one_file_that_cannot_be_changed_does_not_keep_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let text = plan("a", "https://channel.invalid/stable", "v1.33.3+k3s1");
    fs::write(dir.join("a.yaml"), &text).unwrap();
    fs::write(
        dir.join("b.yaml"),
        format!("{}  version: v1\n", plan("b", "x", "v1")),
    )
    .unwrap();
    fs::write(
        dir.join("c.yaml"),
        "apiVersion: upgrade.cattle.io/v1\nkind: [Plan\n",
    )
    .unwrap();
    let (code, out, err) = pin(dir, &["--to=v1.34.1+k3s1", "."]);
    assert_eq!(code, 2);
    assert!(out.starts_with("./a.yaml:7:"), "{out}");
    assert_eq!(read(dir, "a.yaml"), text.replace("v1.33.3", "v1.34.1"));
    assert!(
        err.contains("./b.yaml:9: the key \"version\" is there for the second time"),
        "{err}"
    );
    assert!(
        err.contains("./c.yaml:") && err.contains("this is not YAML"),
        "{err}"
    );
}

#[test]
fn what_somebody_else_fills_in_is_left_to_them() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for (channel, version) in [
        ("https://channel.invalid/stable", "${VERSION}"),
        ("${CHANNEL}", "v1.33.3"),
    ] {
        let text = plan("a", channel, version);
        fs::write(dir.join("p.yaml"), &text).unwrap();
        let (code, out, err) = pin(dir, &["p.yaml"]);
        assert_eq!((code, out.as_str()), (0, ""), "{err}");
        assert!(err.contains("somebody else fills in ${"), "{err}");
        assert_eq!(read(dir, "p.yaml"), text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_in_a_registry_gives_the_newest_of_the_range_and_images_get_their_digests() {
    let tags = [
        "v1.33.3-k3s1",
        "v1.33.4-k3s1",
        "v1.33.10-k3s1-rc1",
        "v1.34.0-k3s2",
        "v1.34.0-k3s10",
        "v1.35.0-rc1-k3s1",
        "latest",
    ];
    let registry = Registry::start(State {
        door: Door::Token,
        tags: tags.map(str::to_owned).into(),
        ..State::default()
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("logins.json"), registry.docker_config()).unwrap();
    let image = format!("{}/team/k3s", registry.host());
    let text = |version: &str, image: &str| {
        plan("a", &registry.channel(), version).replace("rancher/k3s-upgrade", &format!("'{image}'"))
    };
    fs::write(dir.join("a.yaml"), text("v1.33.3-k3s1", &image)).unwrap();
    let logins = ["--registry-config", "logins.json"];
    let (code, out, err) = pin(dir, &[&["--check", "a.yaml"][..], &logins].concat());
    assert_eq!(
        (code, out.contains("+  version: v1.34.0-k3s10 # by refit")),
        (1, true),
        "{out}{err}"
    );

    let arguments = [&["--range", "~1.33", "--digest", "a.yaml"][..], &logins].concat();
    let (code, out, err) = pin(dir, &arguments);
    let pinned = format!("{image}:v1.33.4-k3s1@{}", index_digest());
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert_eq!(
        out,
        format!(
            "a.yaml:7: Plan system-upgrade/a: v1.33.3-k3s1 -> v1.33.4-k3s1\na.yaml:7: Plan system-upgrade/a: image {pinned}\n"
        )
    );
    assert_eq!(read(dir, "a.yaml"), text("v1.33.4-k3s1", &pinned));
    assert_eq!(
        pin(dir, &arguments),
        (0, String::new(), String::new()),
        "the second run changes nothing"
    );
    // Without --digest a digest stays, and so does the tag that it belongs to.
    let (code, _, err) = pin(
        dir,
        &[&["--range", "~1.33", "--image-tag", "a.yaml"][..], &logins].concat(),
    );
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(read(dir, "a.yaml"), text("v1.33.4-k3s1", &pinned));

    // Another version has another digest, which is not to be had.
    let (code, out, err) = pin(dir, &[&["--digest", "a.yaml"][..], &logins].concat());
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(
        err.contains("image ") && err.contains("there is no such image (HTTP/1.1 404 Not Found)"),
        "{err}"
    );
    assert_eq!(read(dir, "a.yaml"), text("v1.33.4-k3s1", &pinned));
    let (_, _, err) = pin(
        dir,
        &["--range", "~9", "a.yaml", "--registry-config", "logins.json"],
    );
    assert!(err.contains("is not in the range ~9"), "{err}");

    // Without a login nobody is let in, and nothing that was sent is told.
    fs::write(dir.join("logins.json"), r#"{"auths": {}}"#).unwrap();
    let (code, out, err) = pin(dir, &arguments);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(
        err.contains("credentials are asked for, and there are none"),
        "{err}"
    );
    assert!(!err.contains("s3cret"), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn images_that_do_not_follow_the_version_keep_what_they_have() {
    let registry = Registry::start(State::default()).await;
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let image = format!("{}/team/k3s", registry.host());
    for kept in [
        format!("{image}:stable"),
        format!("{image}@{}", index_digest()),
        format!("{image}:v1.0.0@{}", index_digest()),
    ] {
        let text = plan("a", "https://channel.invalid/", "v1.33.3+k3s1")
            .replace("rancher/k3s-upgrade", &format!("'{kept}'"));
        fs::write(dir.join("a.yaml"), &text).unwrap();
        let (code, out, err) = pin(dir, &["--to", "v1.33.4+k3s1", "--digest", "a.yaml"]);
        assert_eq!((code, err.as_str()), (0, ""), "{out}");
        assert_eq!(read(dir, "a.yaml"), text.replace("v1.33.3", "v1.33.4"), "{kept}");
    }
    assert!(registry.log.take().is_empty());
    // A tag that is the version moves along, with or without a digest.
    for moved in [
        format!("{image}:v1.33.3-k3s1"),
        format!("{image}:v1.33.3-k3s1@sha256:{}", "0".repeat(64)),
    ] {
        let text = plan("a", "https://channel.invalid/", "v1.33.3+k3s1")
            .replace("rancher/k3s-upgrade", &format!("'{moved}'"));
        fs::write(dir.join("a.yaml"), &text).unwrap();
        let (code, _, err) = pin(dir, &["--to", "v1.33.4+k3s1", "--digest", "a.yaml"]);
        assert_eq!((code, err.as_str()), (0, ""));
        let pinned = format!("{image}:v1.33.4-k3s1@{}", index_digest());
        let expected = text
            .replace(&moved, &pinned)
            .replace("version: v1.33.3", "version: v1.33.4");
        assert_eq!(read(dir, "a.yaml"), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_for_its_host_and_no_other() {
    let server = ChannelServer::start().await;
    server.redirects("/stable", "/v1.34.1+k3s1");
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(
        dir.join("a.yaml"),
        plan("a", &server.url("/stable"), "v1.33.3+k3s1"),
    )
    .unwrap();
    fs::write(dir.join("token"), "s3cret\n").unwrap();
    let host = server.url("").replace("http://", "");
    for (given, expected) in [(host.as_str(), Some("Bearer s3cret")), ("git.example", None)] {
        let given = format!("{given}=token");
        let (code, out, err) = pin(dir, &["--check", "--token-file", &given, "a.yaml"]);
        assert_eq!(code, 1, "{err}");
        assert!(!out.contains("s3cret") && !err.contains("s3cret"));
        let asked = server.asked("/stable");
        let sent = asked.last().unwrap().headers.get("authorization");
        assert_eq!(sent.map(|value| value.to_str().unwrap()), expected);
    }
    for (given, why) in [
        ("token", "write HOST=FILE"),
        ("a=nowhere", "nowhere cannot be read"),
    ] {
        let (code, _, err) = pin(dir, &["--token-file", given, "a.yaml"]);
        assert_ne!(code, 0);
        assert!(err.contains(why), "{err}");
    }
}
