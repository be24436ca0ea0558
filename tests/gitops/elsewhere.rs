//! Versions and channels that Kustomize takes from elsewhere, by `replacements` or the operation `copy`: refit does not know
//! them, and asks nobody in their place.

use super::kustomize::{dir, patched, with};
use super::pin::stable;
use crate::channels::registry::{Registry, State};
use crate::workdir::Workdir;

/// `server.yaml` with one replacement of this field, which is in line 6.
fn replaced(field: &str, server: &str) -> Workdir {
    let kustomization = format!(
        "resources: [server.yaml]
replacements:
- source: {{kind: ConfigMap, name: versions, fieldPath: data.k3s}}
  targets:
  - select: {{kind: Plan}}
    fieldPaths: [spec.{field}]
    options: {{create: true}}
"
    );
    dir(&kustomization, server)
}

const PLACE: &str = "./kustomization.yaml:6";

#[test]
fn what_kustomize_takes_from_elsewhere_is_unknown_whatever_the_file_has() {
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: a, labels: {kubernetes.io/hostname: a, node-role.kubernetes.io/control-plane: \"true\"}}\nstatus: \
                {nodeInfo: {kubeletVersion: v1.33.4+k3s1}}\n";
    let copy = |field: &str| {
        patched(&format!(
            "- {{op: copy, from: /metadata/annotations/v, path: /spec/{field}}}"
        ))
    };
    let elsewhere = "is what Kustomize takes from elsewhere (./kustomization.yaml:5)";
    for own in ["v0.0.0+k3s0", "'>=1.30'", "0"] {
        let dir = dir(&copy("version"), &with(&format!("  version: {own}\n")));
        dir.write("node.yaml", node);
        let found = dir.run("validate .").ends(0);
        found.out_has("[patch]").err_has("1 note");
        for command in ["resolve .", "render . --node a"] {
            dir.run(command).err_has(&format!("spec.version {elsewhere}"));
        }
        dir.run("rehearse . --nodes 3 --version v1.34.1+k3s1 -q")
            .ends(0)
            .out_has("server  v1.34.1-k3s1");
        dir.run("pin .").ends(0);
    }
    let dir = dir(&copy("channel"), &with("  channel: https://127.0.0.1:1\n"));
    for command in ["resolve .", "pin ."] {
        let ran = dir.run(command).err_has(&format!("spec.channel {elsewhere}"));
        ran.err_lacks("127.0.0.1");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_from_elsewhere_is_neither_pinned_from_the_channel_nor_asked_for_as_an_image() {
    let registry = Registry::start(State::default()).await;
    let image = format!("{}/team/k3s-upgrade", registry.host());
    let (_server, url) = stable("v1.34.9+k3s1").await;
    for own in ["", "  version: v1.33.0+k3s1\n"] {
        let server =
            with(&format!("{own}  channel: {url}\n")).replace("rancher/k3s-upgrade", &format!("'{image}'"));
        let dir = replaced("version", &server);
        for command in ["pin .", "pin --check ."] {
            let ran = dir.run(command).ends(0);
            ran.err_has(&format!(
                "a patch of Kustomize sets its version: {PLACE} (from elsewhere)"
            ));
        }
        assert_eq!(dir.read("server.yaml"), server);
        dir.run("validate --online .").ends(0).out_lacks("image-missing");
        assert!(registry.log.take().is_empty(), "{own:?}");
        let ran = dir.run("rehearse . --nodes 3").ends(0);
        ran.err_has(&format!("Plan server: version v1.34.1+k3s1 replaces spec.version, which Kustomize takes from elsewhere ({PLACE})"));
    }
}

#[test]
fn a_channel_from_elsewhere_is_asked_by_no_command() {
    for own in ["", "  channel: https://127.0.0.1:1/stable\n"] {
        let dir = replaced("channel", &with(own));
        let kept = dir.run("pin .").ends(0).err_lacks("127.0.0.1");
        kept.err_has(&format!(
            "spec.channel is what Kustomize takes from elsewhere ({PLACE})"
        ))
        .err_has("give the version with --to");
        let found = dir.run("validate --online .").ends(0);
        found
            .out_has("Kustomize sets spec.channel from elsewhere")
            .out_lacks("gives no version");
        for (flags, version) in [
            ("--online", "v1.34.1+k3s1"),
            ("--version v1.34.2+k3s1", "v1.34.2+k3s1"),
        ] {
            let ran = dir.run(&format!("rehearse . --nodes 3 {flags}")).ends(0);
            ran.err_lacks("127.0.0.1").err_has(&format!(
                "version {version} replaces spec.channel, which Kustomize takes from elsewhere ({PLACE})"
            ));
        }
        dir.run("pin --to v1.34.1+k3s1 .").ends(0);
        assert!(dir.read("server.yaml").contains("version: v1.34.1+k3s1"));
    }
}
