//! The programs of the control plane: built once, and found afterwards.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::support::binaries::{
    Binaries, NODES, Program, cache_dir, kubernetes_version, required_go, toolchain,
};

#[test]
fn many_at_once_build_once() {
    let dir = TempDir::new().unwrap();
    let made = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let binaries = Binaries::in_folder(dir.path());
                let write = |program: &Program, output: &Path, _: &str| {
                    fs::write(output, "half")?;
                    thread::sleep(Duration::from_millis(20));
                    fs::write(output, "whole")?;
                    made.lock().unwrap().push(program.name);
                    Ok(())
                };
                binaries.fill(|_| (), write).unwrap();
                assert_eq!(
                    fs::read_to_string(binaries.path("kube-apiserver")).unwrap(),
                    "whole"
                );
            });
        }
    });
    let all = [
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubectl",
    ];
    assert_eq!(*made.lock().unwrap(), all);
}

#[test]
fn a_build_that_failed_goes_on_where_it_was() {
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
    assert!(
        !binaries.path("kube-apiserver").exists(),
        "what is there is whole"
    );

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
fn without_go_one_is_told_which_version_is_needed() {
    let error = format!("{:#}", toolchain("no-such-go").unwrap_err());
    assert!(error.contains("needs Go 1.26.0 or newer"), "{error}");
    assert!(error.contains("REFIT_TEST_KUBECONFIG"), "{error}");
    assert_eq!(required_go(), "1.26.0");
}

#[test]
fn versions_are_those_of_the_modules() {
    assert_eq!(kubernetes_version(), "v1.36.3");
    assert!(include_str!("../bed/etcd/go.mod").contains("go.etcd.io/etcd/server/v3 v3.7.3"));
}

#[test]
fn the_cache_is_outside_of_the_source_tree() {
    let cache = cache_dir().unwrap();
    assert!(
        !cache.starts_with(env!("CARGO_MANIFEST_DIR")),
        "{}",
        cache.display()
    );
}

#[test]
fn the_kubelet_is_of_the_kubernetes_that_the_control_plane_is_of() {
    let kubelet = include_str!("../bed/kubelet/go.mod");
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
