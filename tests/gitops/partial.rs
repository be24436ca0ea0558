//! Patches of Kustomize that are partial Plans in files of their own, whose versions `refit pin` edits.

use super::kustomize::SERVER;
use crate::workdir::Workdir;

const BOTH: &str = "resources: [server.yaml, agent.yaml]\n";
const OLD: &str = "v1.33.3+k3s1";
const NEW: &str = "v1.33.4+k3s1";

/// A patch of the Plan of this name.
fn patch(name: &str, spec: &str) -> String {
    format!("apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {{name: {name}}}\nspec:\n{spec}")
}

fn version(version: &str) -> String {
    patch("all", &format!("  version: {version}\n"))
}

fn tree(files: &[(&str, &str)]) -> Workdir {
    let dir = Workdir::new([]);
    for (name, text) in files {
        std::fs::create_dir_all(dir.path().join(name).parent().unwrap()).unwrap();
        dir.write(name, text);
    }
    dir
}

fn overlay(prefix: &str) -> String {
    format!(
        "namePrefix: {prefix}\nresources: [../base]\npatches: [{{path: version.yaml, target: {{kind: Plan}}}}]\n"
    )
}

/// A folder with two Plans whose version is in `prod/version.yaml`.
fn of_two(server: &str, agent: &str) -> Workdir {
    tree(&[
        ("base/kustomization.yaml", BOTH),
        ("base/server.yaml", server),
        (
            "base/agent.yaml",
            &agent.replace("{name: server}", "{name: agent}"),
        ),
        ("prod/kustomization.yaml", &overlay("prod-")),
        ("prod/version.yaml", &version(OLD)),
    ])
}

fn with(fields: &str) -> String {
    SERVER.replace("spec:\n", &format!("spec:\n{fields}"))
}

#[test]
fn a_patch_of_two_plans_is_not_pinned_by_the_channel_or_the_policy_of_one() {
    let channel = |name: &str| format!("  channel: https://127.0.0.1:1/{name}\n");
    let policy = |range: &str| format!("{}  versionPolicy: {{range: {range}}}\n", channel("a"));
    for (server, agent, differ) in [
        (channel("a"), channel("b"), "channels"),
        (policy("1.33.x"), policy("1.34.x"), "version policies"),
    ] {
        let dir = of_two(&with(&server), &with(&agent));
        // A server that does not answer comes before the policy.
        let refused = dir.run("pin .").ends(2).err_lacks("gives no version");
        refused.err_has(&format!(
            "./prod/version.yaml:5: Plan all: it is a patch of the Plans agent and server, whose {differ} differ"
        ));
        dir.run(&format!("pin --to {NEW} .")).ends(0);
        assert_eq!(dir.read("prod/version.yaml"), version(NEW));
        assert_eq!(dir.read("base/server.yaml"), with(&server));
    }
    let same = of_two(&with(&channel("a")), &with(&channel("a")));
    same.run("pin .").ends(2).err_has("its channel gives no version");
}

#[test]
fn the_images_of_a_plan_whose_version_is_in_a_patch_are_named() {
    let tagged = |tag: &str| SERVER.replace("k3s-upgrade", &format!("k3s-upgrade{tag}"));
    let digest = format!("@sha256:{}", "a".repeat(64));
    for tag in [":v1.33.3-k3s1", &digest] {
        let dir = of_two(SERVER, &tagged(tag));
        let ran = dir.run(&format!("pin --to {NEW} .")).ends(0);
        ran.err_has(&format!(
            "./prod/version.yaml:5: Plan all: image rancher/k3s-upgrade{tag} in ./base/agent.yaml:8 stays, so the version of \
             this patch does not choose what runs"
        ));
        assert_eq!(dir.read("prod/version.yaml"), version(NEW));
    }
    let dir = of_two(SERVER, SERVER);
    dir.run(&format!("pin --to {NEW} .")).ends(0).err_lacks("image");
    let refused = dir.run(&format!("pin --to {NEW} --digest .")).ends(2);
    refused.err_has(
        "--digest does not change the image rancher/k3s-upgrade in ./base/agent.yaml:8, which follows this version; write the \
         image into the patch",
    );
    assert_eq!(dir.read("prod/version.yaml"), version(NEW));
}

#[test]
fn overlays_of_one_base_below_one_kustomization_are_pinned_both() {
    let server = with("  channel: https://127.0.0.1:1/stable\n");
    let dir = of_two(&server, &server);
    for (name, text) in [
        ("a/kustomization.yaml", overlay("a-")),
        ("a/version.yaml", version(OLD)),
    ] {
        std::fs::create_dir_all(dir.path().join("a")).unwrap();
        dir.write(name, text);
    }
    dir.write("kustomization.yaml", "resources: [a, prod]\n");
    let found = dir.run("validate -o json .").json();
    let found = found["findings"].to_string();
    for file in ["a/version.yaml:5", "prod/version.yaml:5"] {
        assert!(found.contains(file), "{found}");
    }
    let asked = dir.run("pin .").ends(2);
    for folder in ["a", "prod"] {
        let failed = format!("./{folder}/version.yaml:5: Plan all: its channel gives no version");
        assert!(asked.err.contains(&failed), "{asked:#?}");
    }
    dir.run(&format!("pin --to {NEW} .")).ends(0);
    for file in ["a/version.yaml", "prod/version.yaml"] {
        assert_eq!(dir.read(file), version(NEW), "{file}");
    }
    assert_eq!(dir.read("base/server.yaml"), server);
}

#[test]
fn a_patch_without_version_and_channel_gets_none() {
    let image = format!("rancher/k3s-upgrade:v1.33.3-k3s1@sha256:{}", "a".repeat(64));
    for (spec, note) in [
        (
            "  concurrency: 3\n".to_owned(),
            "./prod/version.yaml: skipped, a patch of Kustomize",
        ),
        (
            format!("  upgrade: {{image: '{image}'}}\n"),
            "./prod/version.yaml:5: this patch of Kustomize sets the image rancher/k3s-upgrade:v1.33.3-k3s1@sha256:",
        ),
        (
            "  upgrade: {image: example.com/k3s-upgrade}\n".to_owned(),
            "./prod/version.yaml: skipped, a patch of Kustomize",
        ),
    ] {
        let own = with(&format!("  version: {OLD}\n"));
        let dir = of_two(&own, &own);
        let patch = patch("server", &spec);
        dir.write("prod/version.yaml", &patch);
        dir.run("pin .")
            .ends(0)
            .err_lacks("Plan server stays as it is")
            .err_has(note);
        dir.run(&format!("pin --to {NEW} .")).ends(0);
        assert_eq!(dir.read("prod/version.yaml"), patch);
        assert_eq!(dir.read("base/server.yaml"), own.replace(OLD, NEW));
    }
}

/// Each includes all others, so that there are more ways than anyone can walk.
#[test]
fn many_kustomizations_that_include_each_other_are_read_once() {
    let names: Vec<String> = (0..24).map(|number| format!("k{number}")).collect();
    let all = |field: &str| format!("{field}: [../{}]\n", names.join(", ../"));
    let text = all("resources") + &all("components");
    let mut files: Vec<(String, String)> = names
        .iter()
        .map(|name| (format!("{name}/kustomization.yaml"), text.clone()))
        .collect();
    files.push((
        "root/kustomization.yaml".to_owned(),
        "resources: [../k0, server.yaml]\n".to_owned(),
    ));
    files.push((
        "root/server.yaml".to_owned(),
        with(&format!("  version: {OLD}\n")),
    ));
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    tree(&files).run("validate .").ends(0).out_lacks("[patch]");
}

#[test]
fn a_patch_that_is_named_alone_gets_no_version() {
    let only = patch("server", "  concurrency: 2\n");
    let dir = tree(&[
        ("base/kustomization.yaml", "resources: [server.yaml]\n"),
        ("base/server.yaml", &with(&format!("  version: {OLD}\n"))),
        (
            "prod/kustomization.yaml",
            "resources: [../base]\npatches: [{path: p.yaml}]\n",
        ),
        ("prod/p.yaml", &only),
    ]);
    for files in ["prod/p.yaml", "base/server.yaml prod/p.yaml"] {
        dir.run(&format!("pin --to {NEW} {files}"));
        assert_eq!(dir.read("prod/p.yaml"), only, "{files}");
    }
    assert!(dir.read("base/server.yaml").contains(NEW));
}
