//! `refit resolve`: what it prints, and its exit codes. None of these tests needs a cluster.

use super::registry::{TAGS, registry_state};
use crate::channels::registry::Registry;
use crate::testenv::channel::{Answer, ChannelServer};
use crate::workdir::Workdir;

async fn stable() -> (ChannelServer, String) {
    let server = ChannelServer::start().await;
    server.redirects("/stable", "/v1.33.2+k3s1");
    let url = server.url("/stable");
    (server, url)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_gives_its_version_as_it_was_released() {
    let (_server, url) = stable().await;
    let dir = Workdir::new([]);
    let ran = dir.run(&format!("resolve -o name {url}")).ends(0).reports("");
    ran.prints("v1.33.2+k3s1\n");
    let ran = dir.run(&format!("resolve {url} --current v1.33.1+k3s1")).ends(0);
    ran.prints(&format!(
        "{url}: v1.33.2+k3s1\n  the current version is v1.33.1+k3s1\n"
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_version_is_reported_and_ends_with_one() {
    let (server, url) = stable().await;
    let dir = Workdir::new([]);
    for (arguments, why) in [
        (
            "--range ~1.32",
            "v1.33.2+k3s1 is not taken: it is not in spec.versionPolicy.range, ~1.32; a range that has it lets it through",
        ),
        (
            "--current v1.34.0+k3s1 --range '*'",
            "v1.33.2+k3s1 is not taken: it is older than v1.34.0-k3s1; spec.versionPolicy.allowDowngrade lets it through",
        ),
        (
            "--minimum-age 1h",
            "and spec.versionPolicy.minimumAge is 1h0m0s; a shorter one lets it through sooner",
        ),
    ] {
        let ran = dir
            .run(&format!("resolve {arguments} {url}"))
            .ends(1)
            .err_has(why);
        let ran = ran.out_starts(&format!("{url}: no version\n"));
        ran.err_starts(&format!("error: {url}: v1.33.2+k3s1 is "));
    }
    let back = format!("resolve --current v1.34.0+k3s1 --allow-downgrade {url}");
    dir.run(&back).ends(0);
    server.is_a_page("/page");
    let page = server.url("/page");
    let ran = dir.run(&format!("resolve {page}")).ends(1);
    ran.reports(&format!(
        "error: {page}: its channel gives no version: the answer is an HTML page, not a version\n"
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_resolved_as_its_controller_would() {
    let registry = Registry::start(registry_state()).await;
    let text = format!(
        "# two Plans\napiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {{name: server, namespace: ns}}\nspec:\n  channel: {}\n  \
         versionPolicy: {{range: 1.33.x}}\n  upgrade: {{image: i}}\nstatus: {{latestVersion: v1.33.3-k3s1}}\n---\n\
         apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {{name: os, namespace: ns}}\nspec: {{version: '22.04', upgrade: \
         {{image: i}}}}\n",
        registry.channel()
    );
    let dir = Workdir::new([("plans.yaml", &text)]);
    let mut ran = dir.run("resolve plans.yaml").ends(0).reports("");
    ran = ran.out_starts("plans.yaml:");
    let server = format!("Plan ns/server: v1.33.4-k3s1 (from {})", registry.channel());
    for line in [
        server.as_str(),
        "  the current version is v1.33.3-k3s1",
        "  v1.34.0-k3s1: OutOfRange (range)",
        "  v1.33.5-rc1-k3s1: Prerelease (range)",
        "  v1.33.4-k3s1-amd64: Variant",
        "  v1.33.3-k3s1: passes, and is not the newest",
        "  v1.9.0-k3s1: OutOfRange (range), Older (allowDowngrade)",
        "Plan ns/os: 22.04 (from spec.version)",
    ] {
        ran = ran.out_has(&format!("{line}\n"));
    }

    let json = dir.run("resolve -o json --plan server plans.yaml").ends(0).json();
    let [target] = json["targets"].as_array().unwrap().as_slice() else {
        panic!("{json}")
    };
    assert_eq!(target["version"], "v1.33.4-k3s1");
    let considered = target["considered"].as_array().unwrap();
    assert_eq!(considered.len(), TAGS.len());
    let of = |version: &str| considered.iter().find(|one| one["version"] == version).unwrap();
    assert_eq!(of("v1.33.4-k3s1")["passes"], true);
    assert_eq!(of("v1.34.0-k3s1")["refusals"][0]["guard"], "range");
    assert_eq!(of("v1.34.0-k3s1")["refusals"][0]["reason"], "OutOfRange");
}

#[test]
fn bad_input_ends_with_two_and_names_file_line_and_field() {
    let plan = |spec: &str| {
        format!(
            "apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {{name: a}}\nspec: {{{spec}, upgrade: {{image: i}}}}\n"
        )
    };
    let channel = "channel: 'http://127.0.0.1:1/x'";
    let dir = Workdir::new([
        (
            "range.yaml",
            &plan(&format!("{channel}, versionPolicy: {{range: newest}}")),
        ),
        ("neither.yaml", &plan("concurrency: 1")),
        ("filled.yaml", &plan("version: '${VERSION}'")),
        ("number.yaml", &plan(&format!("version: 1.50, {channel}"))),
        ("list.yaml", &plan("version: [v1.33.4]")),
    ]);
    let refusals = [
        "range.yaml",
        "neither.yaml",
        "filled.yaml",
        "number.yaml",
        "list.yaml",
        "missing.yaml",
        "--plan b neither.yaml",
        "--range newest range.yaml",
        "--minimum-age 3d range.yaml",
        "--minimum-age -1h range.yaml",
        "",
    ]
    .map(|arguments| {
        let ran = dir.run(&format!("resolve {arguments}")).ends(2).prints("");
        format!("$ refit resolve {arguments}\n{}", ran.err)
    });
    insta::assert_snapshot!(refusals.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_url_without_a_scheme_is_a_channel_and_a_file_of_that_name_is_a_file() {
    let (_server, url) = stable().await;
    let bare = url.replace("http://", "");
    let dir = Workdir::new([]);
    // refit queries it over TLS, which this server does not speak.
    let ran = dir.run(&format!("resolve {bare}")).ends(1);
    ran.err_has(&format!("error: https://{bare}: its channel gives no version"));
    std::fs::create_dir(dir.path().join("plans.example")).unwrap();
    dir.write("plans.example/k3s", "a: b\n");
    let ran = dir.run("resolve plans.example/k3s").ends(2);
    ran.err_has("there is no Plan in these files");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_the_channel_server_does_not_have_is_answered_with_its_names() {
    let server = ChannelServer::start().await;
    let list = r#"{"type": "collection", "data": [{"id": "stable", "latest": "v1.34.1+k3s1"}, {"id": "v1.33", "latest": "v1.33.9+k3s1"}]}"#;
    let answer = Answer::Plain(200, "application/json", list.to_owned());
    server.answers("/v1-release/channels", answer);
    let dir = Workdir::new([]);
    let resolve = |path: &str| dir.run(&format!("resolve {}", server.url(path))).ends(1);
    let wrong = resolve("/v1-release/channels/stabel");
    wrong.err_has(
        "the channel server has no channel \"stabel\"; did you mean \"stable\"? it has stable, v1.33",
    );
    let none = resolve("/v1-release/channels");
    none.err_has("the channel's URL has no channel name after its #; the server has stable, v1.33");
    // Without a list the first answer counts.
    resolve("/elsewhere/stable").err_has("unexpected response: HTTP/1.1 404 Not Found");
}
