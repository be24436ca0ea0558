//! Plans of several clusters in one repository: they are compared only if one kustomization, one object of Flux or one
//! Application of Argo CD loads them.

use super::kustomize::SERVER;
use crate::workdir::Workdir;

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

fn argo(path: &str) -> String {
    format!(
        "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {{name: plans}}\nspec: {{source: {{repoURL: \
         'https://example.com/fleet', path: {path}}}}}\n"
    )
}

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
    let (a_apps, b_apps) = (
        a_flux.replace("clusters", "apps"),
        b_flux.replace("clusters", "apps"),
    );
    let (a_argo, b_argo) = (argo("clusters/a"), argo("clusters/b"));
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
        (
            "folders of objects of Flux that others load",
            &[
                ("flux/a.yaml", &a_apps),
                ("apps/a/plans.yaml", &a_flux),
                ("flux/b.yaml", &b_apps),
                ("apps/b/plans.yaml", &b_flux),
            ],
        ),
        (
            "folders of Argo CD",
            &[("argo/a.yaml", &a_argo), ("argo/b.yaml", &b_argo)],
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
    let (a, b) = (flux.replace("all", "a"), flux.replace("all", "b"));
    let both = format!("{a}---\n{b}");
    let (a_argo, b_argo) = (argo("a"), argo("b"));
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
        // A kustomization loads the objects of Flux, or of Argo CD, that load both.
        (
            &[
                ("flux/kustomization.yaml", "resources: [a.yaml, b.yaml]\n"),
                ("flux/a.yaml", &a),
                ("flux/b.yaml", &b),
                ("a/server.yaml", &server),
                ("b/server.yaml", &server),
            ],
            &[duplicate],
        ),
        (
            &[
                ("argo/kustomization.yaml", "resources: [a.yaml, b.yaml]\n"),
                ("argo/a.yaml", &a_argo),
                ("argo/b.yaml", &b_argo),
                ("a/server.yaml", &server),
                ("b/server.yaml", &server),
            ],
            &[duplicate],
        ),
        // Those of one file are applied together.
        (
            &[
                ("flux/both.yaml", &both),
                ("a/server.yaml", &server),
                ("b/server.yaml", &server),
            ],
            &[duplicate],
        ),
        // An object of Flux loads another one, which is of the same cluster.
        (
            &[
                ("flux/a.yaml", &a),
                ("a/b.yaml", &b),
                ("a/agent.yaml", &agent),
                ("b/server.yaml", &server),
            ],
            &skew,
        ),
        // They load each other.
        (
            &[
                ("a/b.yaml", &b),
                ("a/server.yaml", &server),
                ("b/a.yaml", &a),
                ("b/server.yaml", &server),
            ],
            &[duplicate],
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

#[test]
fn an_artifact_of_flux_is_not_this_repository() {
    let (prod, staging) = (server("v1.33.3+k3s1"), server("v1.34.1+k3s1"));
    let artifact = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: podinfo}\nspec: \
                    {path: ./, sourceRef: {kind: OCIRepository, name: podinfo}, targetNamespace: podinfo}\n";
    let dir = Workdir::new([]);
    for (folder, plan) in [("clusters/prod", prod), ("clusters/staging", staging)] {
        std::fs::create_dir_all(dir.path().join(folder)).unwrap();
        dir.write(&format!("{folder}/server.yaml"), plan);
        dir.write(&format!("{folder}/podinfo.yaml"), artifact);
        let resources = "resources: [server.yaml, podinfo.yaml]\n";
        dir.write(&format!("{folder}/kustomization.yaml"), resources);
    }
    dir.run("validate .").ends(0).out_lacks("duplicate-object");
}
