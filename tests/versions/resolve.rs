//! `refit resolve`: what it prints, and what it ends with. None of it needs a cluster.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use super::{TAGS, registry_state};
use crate::channels::registry::Registry;
use crate::support::channel::ChannelServer;

async fn resolve(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_refit"));
    command.current_dir(folder).arg("resolve").args(arguments);
    for (name, _) in std::env::vars() {
        if ["REFIT_", "HTTP", "http", "GITHUB_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
        {
            command.env_remove(name);
        }
    }
    tokio::task::spawn_blocking(move || command.output().unwrap())
        .await
        .unwrap()
}

fn said(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (
        output.status.code().unwrap(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[tokio::test]
async fn a_channel_gives_its_version_as_it_was_released() {
    let server = ChannelServer::start().await;
    server.redirects("/stable", "/v1.33.2+k3s1");
    let (url, folder) = (server.url("/stable"), folder());
    let (code, out, err) = said(&resolve(folder.path(), &["-o", "name", &url]).await);
    assert_eq!((code, out.as_str(), err.as_str()), (0, "v1.33.2+k3s1\n", ""));
    let (code, out, _) = said(&resolve(folder.path(), &[&url, "--current", "v1.33.1+k3s1"]).await);
    assert_eq!(
        (code, out),
        (
            0,
            format!("{url}: v1.33.2+k3s1\n  the current version is v1.33.1+k3s1\n")
        )
    );
}

#[tokio::test]
async fn what_is_refused_says_so_and_ends_with_one() {
    let server = ChannelServer::start().await;
    server.redirects("/stable", "/v1.33.2+k3s1");
    server.is_a_page("/page");
    let (url, folder) = (server.url("/stable"), folder());
    for (arguments, why) in [
        (
            vec!["--range", "~1.32"],
            "v1.33.2+k3s1 is not taken: it is not in spec.versionPolicy.range, ~1.32; a range that has it lets it through",
        ),
        (
            vec!["--current", "v1.34.0+k3s1", "--range", "*"],
            "v1.33.2+k3s1 is not taken: it is older than v1.34.0-k3s1; spec.versionPolicy.allowDowngrade lets it through",
        ),
        (
            vec!["--minimum-age", "1h"],
            "and spec.versionPolicy.minimumAge is 1h0m0s; a shorter one lets it through sooner",
        ),
    ] {
        let arguments = [arguments, vec![url.as_str()]].concat();
        let (code, out, err) = said(&resolve(folder.path(), &arguments).await);
        assert_eq!(code, 1, "{arguments:?}");
        assert!(out.starts_with(&format!("{url}: no version\n")), "{out}");
        assert!(
            err.starts_with(&format!("error: {url}: v1.33.2+k3s1 is ")) && err.contains(why),
            "{err}"
        );
    }
    let (code, _, _) = said(
        &resolve(
            folder.path(),
            &["--current", "v1.34.0+k3s1", "--allow-downgrade", &url],
        )
        .await,
    );
    assert_eq!(code, 0);
    let page = server.url("/page");
    let (code, _, err) = said(&resolve(folder.path(), &[&page]).await);
    assert_eq!(
        (code, err),
        (
            1,
            format!(
                "error: {page}: its channel gives no version: the answer is an HTML page, not a version\n"
            )
        )
    );
}

#[tokio::test]
async fn a_plan_is_resolved_as_its_controller_would() {
    let registry = Registry::start(registry_state()).await;
    let folder = folder();
    let text = format!(
        "# two Plans\napiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {{name: server, namespace: ns}}\nspec:\n  channel: {}\n  \
         versionPolicy: {{range: 1.33.x}}\n  upgrade: {{image: i}}\nstatus: {{latestVersion: v1.33.3-k3s1}}\n---\n\
         apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {{name: os, namespace: ns}}\nspec: {{version: '22.04', upgrade: \
         {{image: i}}}}\n",
        registry.channel()
    );
    std::fs::write(folder.path().join("plans.yaml"), text).unwrap();
    let (code, out, err) = said(&resolve(folder.path(), &["plans.yaml"]).await);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let lines: Vec<_> = out.lines().collect();
    assert!(lines[0].starts_with("plans.yaml:"), "{out}");
    assert!(
        lines[0].ends_with(&format!(
            "Plan ns/server: v1.33.4-k3s1 (from {})",
            registry.channel()
        )),
        "{out}"
    );
    for line in [
        "  the current version is v1.33.3-k3s1",
        "  v1.34.0-k3s1: OutOfRange (range)",
        "  v1.33.5-rc1-k3s1: Prerelease (range)",
        "  v1.33.4-k3s1-amd64: Variant",
        "  v1.33.3-k3s1: passes, and is not the newest",
        "  v1.9.0-k3s1: OutOfRange (range), Older (allowDowngrade)",
    ] {
        assert!(lines.contains(&line), "{line}: {out}");
    }
    assert!(
        lines
            .last()
            .unwrap()
            .ends_with("Plan ns/os: 22.04 (from spec.version)"),
        "{out}"
    );

    let (code, out, _) =
        said(&resolve(folder.path(), &["-o", "json", "--plan", "server", "plans.yaml"]).await);
    let json: Value = serde_json::from_str(&out).unwrap();
    let target = &json["targets"][0];
    assert_eq!((code, json["targets"].as_array().unwrap().len()), (0, 1));
    assert_eq!(target["version"], "v1.33.4-k3s1");
    assert_eq!(target["considered"].as_array().unwrap().len(), TAGS.len());
    let of = |version: &str| {
        let all = target["considered"].as_array().unwrap();
        all.iter().find(|one| one["version"] == version).unwrap().clone()
    };
    assert_eq!(of("v1.33.4-k3s1")["passes"], true);
    assert_eq!(of("v1.34.0-k3s1")["refusals"][0]["guard"], "range");
    assert_eq!(of("v1.34.0-k3s1")["refusals"][0]["reason"], "OutOfRange");
}

#[tokio::test]
async fn bad_input_ends_with_two_and_names_file_line_and_field() {
    let folder = folder();
    let write = |name: &str, spec: &str| {
        let text =
            format!("apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {{name: a}}\nspec: {spec}\n");
        std::fs::write(folder.path().join(name), text).unwrap();
    };
    write(
        "range.yaml",
        "{channel: 'http://127.0.0.1:1/x', versionPolicy: {range: newest}, upgrade: {image: i}}",
    );
    write("neither.yaml", "{upgrade: {image: i}}");
    write("filled.yaml", "{version: '${VERSION}', upgrade: {image: i}}");
    for (arguments, why) in [
        (
            vec!["range.yaml"],
            "range.yaml:1: Plan a: spec.versionPolicy.range is invalid, \"newest\" is no range of versions",
        ),
        (
            vec!["neither.yaml"],
            "neither.yaml:1: Plan a: it has neither spec.version nor spec.channel",
        ),
        (
            vec!["filled.yaml"],
            "filled.yaml:1: Plan a: somebody else fills in ${VERSION}",
        ),
        (vec!["missing.yaml"], "missing.yaml: no such file or folder"),
        (
            vec!["--plan", "b", "neither.yaml"],
            "there is no such Plan in these files",
        ),
        (
            vec!["--range", "newest", "range.yaml"],
            "\"newest\" is no range of versions",
        ),
        (
            vec!["--minimum-age", "3d", "range.yaml"],
            "time: unknown unit \"d\" in duration \"3d\"; write for example 72h",
        ),
        (vec!["--minimum-age", "-1h", "range.yaml"], ""),
        (vec![], "TARGET"),
    ] {
        let (code, out, err) = said(&resolve(folder.path(), &arguments).await);
        assert_eq!((code, out.as_str()), (2, ""), "{arguments:?}: {err}");
        assert!(err.contains(why), "{arguments:?}: {err}");
    }
}
