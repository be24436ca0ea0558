//! The programs of the test environment, their Go modules, and the durations of their builds.

/// A Go module that only lists dependencies.
#[derive(Debug)]
pub struct Module {
    pub name: &'static str,
    pub go_mod: &'static str,
    pub go_sum: &'static str,
    /// Build tags that omit parts.
    pub tags: &'static str,
}

/// The module in the folder of its name, with these tags.
macro_rules! module {
    ($name:literal, $tags:literal) => {
        Module {
            name: $name,
            go_mod: include_str!(concat!("../go/", $name, "/go.mod")),
            go_sum: include_str!(concat!("../go/", $name, "/go.sum")),
            tags: $tags,
        }
    };
}

const ETCD: Module = module!("etcd", "");
pub const KUBE: Module = module!("kube", "");
/// The oldest Kubernetes on which the suite runs: that of the oldest releases of K3s and RKE2 which are still maintained.
pub const OLDEST_KUBE: Module = module!("kube-1.32", "");
/// A Kubernetes that the distributions do not have yet, for its alpha features.
pub const NEXT_KUBE: Module = module!("kube-1.37", "");
/// A module of its own, because only tests with real nodes need its dependencies.
const KUBELET: Module = module!("kubelet", "");
// The omitted snapshotters need headers of C libraries.
const CONTAINERD: Module = module!("containerd", "no_btrfs,no_zfs,no_devmapper,no_tracing");

// The clients of clouds, with which it would find targets, are most of its code.
const PROMETHEUS: Module = module!("prometheus", "remove_all_sd");

const HELM: Module = module!("helm", "");

/// The source of a program.
#[derive(Debug)]
pub enum Source {
    Go {
        module: &'static Module,
        package: &'static str,
    },
    /// Packages, unpacked into one folder.
    Debian(&'static [&'static str]),
}

impl Source {
    /// Its part of the digest of the set.
    pub fn parts(&self) -> Vec<&'static str> {
        match self {
            Self::Go { module, package } if module.tags.is_empty() => vec![package],
            Self::Go { module, package } => vec![package, module.tags],
            Self::Debian(packages) => packages.to_vec(),
        }
    }
}

/// A program, and the seconds of its build on two cores with an empty cache.
#[derive(Debug)]
pub struct Program {
    pub name: &'static str,
    pub source: Source,
    pub cold_seconds: u64,
}

const fn go(
    name: &'static str,
    module: &'static Module,
    package: &'static str,
    cold_seconds: u64,
) -> Program {
    Program {
        name,
        source: Source::Go { module, package },
        cold_seconds,
    }
}

/// Programs that are built together, in one folder.
#[derive(Debug)]
pub struct Set {
    /// Its name in messages.
    pub what: &'static str,
    pub modules: &'static [&'static Module],
    /// The module whose version of Kubernetes the programs report.
    pub kubernetes: &'static Module,
    pub programs: &'static [Program],
}

/// Etcd, and the control plane of a module of Kubernetes.
const fn control_plane(module: &'static Module) -> [Program; 5] {
    [
        go("etcd", &ETCD, "go.etcd.io/etcd/server/v3", 45),
        go(
            "kube-apiserver",
            module,
            "k8s.io/kubernetes/cmd/kube-apiserver",
            390,
        ),
        go(
            "kube-controller-manager",
            module,
            "k8s.io/kubernetes/cmd/kube-controller-manager",
            100,
        ),
        go(
            "kube-scheduler",
            module,
            "k8s.io/kubernetes/cmd/kube-scheduler",
            10,
        ),
        go("kubectl", module, "k8s.io/kubernetes/cmd/kubectl", 35),
    ]
}

pub const CONTROL_PLANE: Set = Set {
    what: "the control plane",
    modules: &[&ETCD, &KUBE],
    kubernetes: &KUBE,
    programs: &const { control_plane(&KUBE) },
};

pub const OLDEST_CONTROL_PLANE: Set = Set {
    what: "the control plane of Kubernetes 1.32",
    modules: &[&ETCD, &OLDEST_KUBE],
    kubernetes: &OLDEST_KUBE,
    programs: &const { control_plane(&OLDEST_KUBE) },
};

pub const NEXT_CONTROL_PLANE: Set = Set {
    what: "the control plane of Kubernetes 1.37",
    modules: &[&ETCD, &NEXT_KUBE],
    kubernetes: &NEXT_KUBE,
    programs: &const { control_plane(&NEXT_KUBE) },
};

pub const CHARTS: Set = Set {
    what: "Helm",
    modules: &[&HELM],
    kubernetes: &KUBE,
    programs: &[go("helm", &HELM, "helm.sh/helm/v4/cmd/helm", 150)],
};

pub const NODES: Set = Set {
    what: "real nodes",
    modules: &[&KUBELET, &CONTAINERD],
    kubernetes: &KUBE,
    programs: &[
        // First, because it is the most likely to fail.
        Program {
            name: "debian",
            source: Source::Debian(&["runc", "containernetworking-plugins", "busybox-static"]),
            cold_seconds: 10,
        },
        // After the control plane, with which it shares most packages.
        go("kubelet", &KUBELET, "k8s.io/kubernetes/cmd/kubelet", 30),
        go(
            "containerd",
            &CONTAINERD,
            "github.com/containerd/containerd/v2/cmd/containerd",
            45,
        ),
        go(
            "containerd-shim-runc-v2",
            &CONTAINERD,
            "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
            10,
        ),
        go(
            "ctr",
            &CONTAINERD,
            "github.com/containerd/containerd/v2/cmd/ctr",
            10,
        ),
    ],
};

pub const MONITORING: Set = Set {
    what: "monitoring",
    modules: &[&PROMETHEUS],
    kubernetes: &KUBE,
    programs: &[
        go(
            "promtool",
            &PROMETHEUS,
            "github.com/prometheus/prometheus/cmd/promtool",
            150,
        ),
        go(
            "prometheus",
            &PROMETHEUS,
            "github.com/prometheus/prometheus/cmd/prometheus",
            60,
        ),
    ],
};
