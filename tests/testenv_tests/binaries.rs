//! The build of the control plane's programs.

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use tempfile::TempDir;

use crate::testenv::binaries::{Binaries, NODES, Program, kubernetes_version, required_go, toolchain};

#[test]
fn a_build_continues_after_a_failure() {
    let dir = TempDir::new().unwrap();
    let binaries = Binaries::in_folder(dir.path());
    let made = Mutex::new(Vec::new());
    let write = |may: &'static [&str]| {
        let made = &made;
        move |program: &Program, output: &Path, _: &str| {
            fs::write(output, program.name)?;
            anyhow::ensure!(may.contains(&program.name), "no more memory");
            made.lock().unwrap().push(program.name);
            Ok(())
        }
    };
    let error = binaries.fill(|_| (), write(&["etcd"])).unwrap_err();
    assert!(format!("{error:#}").contains("no more memory"));
    assert!(!binaries.path("kube-apiserver").exists(), "programs are complete");

    let rest = &[
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubectl",
    ];
    binaries.fill(|_| (), write(rest)).unwrap();
    assert_eq!(made.lock().unwrap().len(), 5);
    let unfinished = fs::read_dir(dir.path()).unwrap().flatten();
    let unfinished = unfinished.filter(|entry| entry.path().extension().is_some_and(|it| it == "unfinished"));
    assert_eq!(unfinished.count(), 0);
}

#[test]
fn a_build_without_go_names_the_version_that_is_needed() {
    let error = format!("{:#}", toolchain("no-such-go").unwrap_err());
    assert!(error.contains("needs Go 1.26.0 or newer"), "{error}");
    assert!(error.contains("REFIT_TEST_KUBECONFIG"), "{error}");
    assert_eq!(required_go(), "1.26.0");
}

#[test]
fn the_kubelet_is_of_the_kubernetes_that_the_control_plane_is_of() {
    let kubelet = include_str!("../testenv/go/kubelet/go.mod");
    let wanted = format!("k8s.io/kubernetes {}", kubernetes_version());
    assert!(
        kubelet.lines().any(|line| line.trim().starts_with(&wanted)),
        "no {wanted}"
    );
    let names: Vec<_> = NODES.programs.iter().map(|program| program.name).collect();
    assert_eq!(
        names,
        [
            "debian",
            "kubelet",
            "containerd",
            "containerd-shim-runc-v2",
            "ctr"
        ]
    );
}
