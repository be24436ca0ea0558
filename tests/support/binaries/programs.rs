//! What the test bed is made of: programs, the modules that they are built from, and how long that takes.

/// A Go module that is nothing but a list of what to build.
#[derive(Debug)]
pub struct Module {
    pub name: &'static str,
    pub go_mod: &'static str,
    pub go_sum: &'static str,
    /// Build tags: what is left out.
    pub tags: &'static str,
}

const ETCD: Module = Module {
    name: "etcd",
    go_mod: include_str!("../../bed/etcd/go.mod"),
    go_sum: include_str!("../../bed/etcd/go.sum"),
    tags: "",
};
pub const KUBE: Module = Module {
    name: "kube",
    go_mod: include_str!("../../bed/kube/go.mod"),
    go_sum: include_str!("../../bed/kube/go.sum"),
    tags: "",
};
/// Of Kubernetes as well. On its own, because it needs more than the control plane does, and whoever has no use for nodes
/// need not fetch that.
const KUBELET: Module = Module {
    name: "kubelet",
    go_mod: include_str!("../../bed/kubelet/go.mod"),
    go_sum: include_str!("../../bed/kubelet/go.sum"),
    tags: "",
};
const CONTAINERD: Module = Module {
    name: "containerd",
    go_mod: include_str!("../../bed/containerd/go.mod"),
    go_sum: include_str!("../../bed/containerd/go.sum"),
    // The snapshotters that are left out need headers of C libraries.
    tags: "no_btrfs,no_zfs,no_devmapper,no_tracing",
};

/// What a program is made of.
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
    /// What it adds to the digest of its set.
    pub fn parts(&self) -> Vec<&'static str> {
        match self {
            Self::Go { module, package } if module.tags.is_empty() => vec![package],
            Self::Go { module, package } => vec![package, module.tags],
            Self::Debian(packages) => packages.to_vec(),
        }
    }
}

/// A program, and how many seconds it takes on two cores when nothing of it has been built before.
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

/// What is built together and kept in one folder.
#[derive(Debug)]
pub struct Set {
    /// What messages call it.
    pub what: &'static str,
    pub modules: &'static [&'static Module],
    pub programs: &'static [Program],
}

pub const CONTROL_PLANE: Set = Set {
    what: "the control plane",
    modules: &[&ETCD, &KUBE],
    programs: &[
        go("etcd", &ETCD, "go.etcd.io/etcd/server/v3", 45),
        go(
            "kube-apiserver",
            &KUBE,
            "k8s.io/kubernetes/cmd/kube-apiserver",
            390,
        ),
        go(
            "kube-controller-manager",
            &KUBE,
            "k8s.io/kubernetes/cmd/kube-controller-manager",
            100,
        ),
        go(
            "kube-scheduler",
            &KUBE,
            "k8s.io/kubernetes/cmd/kube-scheduler",
            10,
        ),
        go("kubectl", &KUBE, "k8s.io/kubernetes/cmd/kubectl", 35),
    ],
};

pub const NODES: Set = Set {
    what: "real nodes",
    modules: &[&KUBELET, &CONTAINERD],
    programs: &[
        // First, because it is what may be refused.
        Program {
            name: "debian",
            source: Source::Debian(&["runc", "containernetworking-plugins", "busybox-static"]),
            cold_seconds: 10,
        },
        // After the control plane, with which it shares most.
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
