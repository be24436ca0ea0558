//! Which folder an object of Flux or an Application of Argo CD applies, and which Plans its patches are for.

use refit_offline::gitops::kustomize::attach;
use refit_offline::gitops::overlay::Field;

use super::kustomize::SERVER;
use super::source;
use crate::workdir::{Workdir, run_in};

#[test]
fn flux_and_argo_cd_name_a_folder_from_the_root_of_the_repository() {
    let patch = "patches:\n  - target: {kind: Plan}\n    patch: '[{op: add, path: /spec/version, value: v1.33.4+k3s1}]'\n";
    let flux = |path: &str| {
        format!("apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nspec:\n  {path}\n  {patch}")
    };
    let argo = format!(
        "apiVersion: argoproj.io/v1alpha1\nkind: Application\nspec:\n  source:\n    path: apps/k3s/app\n    kustomize:\n      {}",
        patch.replace('\n', "\n    ")
    );
    let dir = Workdir::new([]);
    for folder in ["apps/k3s/app", "apps/other/app", "clusters"] {
        std::fs::create_dir_all(dir.path().join(folder)).unwrap();
        dir.write(
            &format!("{folder}/kustomization.yaml"),
            "resources: [server.yaml]\n",
        );
    }
    dir.write("apps/k3s/app/server.yaml", SERVER);
    for (object, place) in [
        (flux("path: ./apps/k3s/app"), "ks.yaml:7"),
        (flux("path: /apps/k3s/"), "ks.yaml:7"),
        (argo, "ks.yaml:9"),
    ] {
        dir.write("apps/k3s/ks.yaml", &object);
        for (folder, line, name) in [
            ("", "validate .", "./apps/k3s/"),
            ("apps", "validate k3s", "k3s/"),
            ("apps/k3s", "validate .", "./"),
            ("apps/k3s/app", "validate .. ", "../"),
        ] {
            let found = run_in(&dir.path().join(folder), line).ends(0);
            found.out_has(&format!("sets spec.version: \"v1.33.4+k3s1\" ({name}{place})"));
        }
    }
    dir.write("apps/k3s/ks.yaml", flux("path: ./apps/other/app"));
    for folder in ["", "apps", "apps/k3s"] {
        run_in(&dir.path().join(folder), "validate .")
            .ends(1)
            .out_has("[no-version]");
    }
    // Without a path it is the whole repository.
    dir.write("apps/k3s/ks.yaml", flux("prune: true"));
    std::fs::create_dir(dir.path().join(".git")).unwrap();
    for folder in ["", "apps/k3s"] {
        run_in(&dir.path().join(folder), "validate .").ends(0);
    }
}

#[test]
fn flux_applies_a_folder_of_its_own_clone() {
    let dir = Workdir::new([]);
    for clone in ["a", "b"] {
        std::fs::create_dir_all(dir.path().join(format!("{clone}/app"))).unwrap();
        dir.write(&format!("{clone}/app/server.yaml"), SERVER);
    }
    let flux = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nspec:\n  path: app\n  patches: [{target: {kind: Plan}, patch: 'spec: {version: v1.33.4+k3s1}'}]\n";
    dir.write("b/ks.yaml", flux);
    let is_patched = || {
        let found = dir.run("validate .").ends(1);
        found
            .out_has("./a/app/server.yaml:4:1: error")
            .out_lacks("./b/app/server.yaml:4:1: error")
            .out_has("ks.yaml:5)");
    };
    is_patched();
    // Below another folder of that path, the root of the clone decides.
    for folder in ["b/.git", "b/flux/app"] {
        std::fs::create_dir_all(dir.path().join(folder)).unwrap();
    }
    std::fs::rename(dir.path().join("b/ks.yaml"), dir.path().join("b/flux/ks.yaml")).unwrap();
    dir.write(
        "b/flux/app/other.yaml",
        SERVER.replace("spec:", "spec:\n  version: v1.33.3+k3s1"),
    );
    is_patched();
}

#[test]
fn a_folder_of_flux_without_a_kustomization_has_those_below_it() {
    let patch = |version: &str| {
        format!(
            "patches:\n- target: {{kind: Plan}}\n  patch: '[{{op: add, path: /spec/version, value: {version}}}]'\n"
        )
    };
    let flux = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nspec: {path: ./apps}\n";
    let app = format!("resources: [server.yaml]\n{}", patch("v1"));
    let files = [
        (
            "flux/two.yaml",
            format!("{flux}---\n{}", flux.replace("apps", "other")).as_str(),
        ),
        (
            "flux/kustomization.yaml",
            "resources: [two.yaml]\nnamespace: flux-system\n",
        ),
        ("apps/k3s/kustomization.yaml", app.as_str()),
        ("apps/k3s/server.yaml", SERVER),
        ("apps/agent.yaml", SERVER),
        ("other/server.yaml", SERVER),
    ]
    .map(|(name, text)| (name.to_owned(), text.to_owned()));
    let mut sources: Vec<_> = files.iter().map(|(name, text)| source(name, text)).collect();
    attach(&mut sources);
    let of = |name: &str| {
        let source = sources.iter().find(|source| source.name == name).unwrap();
        let [overlay] = source.overlays.as_slice() else {
            panic!("{:?}", source.overlays)
        };
        assert_eq!(
            overlay.namespace, None,
            "that of objects of Flux is not that of Plans"
        );
        let changes = &overlay.changes[&Field::Version];
        (changes.all.len(), changes.is_partial)
    };
    assert_eq!(of("apps/k3s/server.yaml"), (1, false));
    assert_eq!(of("apps/agent.yaml"), (0, true));
    assert_eq!(of("other/server.yaml"), (0, true));
}
