//! The roles of nodes, and the label values that each distribution of Kubernetes uses for them.

use std::collections::BTreeMap;

use super::labels::{NodeRole, requirements};
use super::{CONTROL_PLANE, ETCD, MASTER, PlanSelector, ROLE_PREFIX, WORKER};
use refit_api::selector::LabelConstraint;
use refit_base::version::{Version, is_of_talos};

/// A distribution of Kubernetes with its own labels and versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Distribution {
    K3s,
    Rke2,
    Kubeadm,
    Talos,
}

impl Distribution {
    /// Detects the distribution from the version that nodes run, and the Plans' images, versions and channels.
    pub(super) fn detect(plans: &[PlanSelector<'_>], kubelet: Option<&str>) -> Option<Self> {
        let of = |text: &str| {
            let known = [
                ("rke2", Self::Rke2),
                ("k3s", Self::K3s),
                ("kubeadm", Self::Kubeadm),
            ];
            let mut known = known.into_iter();
            known.find_map(|(word, one)| text.contains(word).then_some(one))
        };
        // The image determines what runs; a channel may be on any server.
        let image = |text: &str| {
            // Only the last part: the name of a registry or an organization may contain any of these words.
            of(text.rsplit('/').next().unwrap_or_default()).or(is_of_talos(text).then_some(Self::Talos))
        };
        kubelet
            .and_then(of)
            .or_else(|| plans.iter().find_map(|plan| image(plan.image)))
            .or_else(|| plans.iter().find_map(|plan| plan.version.and_then(of)))
            .or_else(|| plans.iter().find_map(|plan| plan.channel.and_then(of)))
    }

    fn name(self) -> &'static str {
        match self {
            Self::K3s => "K3s",
            Self::Rke2 => "RKE2",
            Self::Kubeadm => "kubeadm",
            Self::Talos => "Talos",
        }
    }

    /// The label `node.kubernetes.io/instance-type` of its nodes.
    fn instance_type(self) -> &'static str {
        match self {
            Self::K3s => "k3s",
            Self::Rke2 => "rke2",
            Self::Kubeadm | Self::Talos => "standard",
        }
    }

    /// The build suffix of its versions.
    pub(super) fn build(self) -> &'static str {
        match self {
            Self::K3s => "+k3s1",
            Self::Rke2 => "+rke2r1",
            Self::Kubeadm | Self::Talos => "",
        }
    }

    /// The first minor version without the role `master`: of Kubernetes (KEP-2067), and of K3s and RKE2 (k3s-io/k3s#12395).
    const fn without_master(self) -> u64 {
        match self {
            Self::K3s | Self::Rke2 => NO_MASTER_SINCE,
            Self::Kubeadm | Self::Talos => 24,
        }
    }
}

/// The minor version from which no distribution sets the role `master`.
const NO_MASTER_SINCE: u64 = 34;

/// The roles of a generated cluster.
#[derive(Clone, Debug)]
pub(super) struct Roles {
    distribution: Option<Distribution>,
    /// Labels of control-plane nodes.
    control: BTreeMap<String, String>,
    /// Label of dedicated etcd nodes, if there are any.
    etcd: Option<String>,
    /// Value of the worker role, if workers have it.
    worker: Option<String>,
    /// Value of roles that the distribution does not set.
    value: String,
    /// The minor version from which the distribution does not set `master`, if the nodes have that version or a newer one.
    without_master: Option<u64>,
    /// Whether a Plan selects or excludes `master`.
    names_master: bool,
}

impl Roles {
    pub(super) fn of(plans: &[PlanSelector<'_>], distribution: Option<Distribution>, kubelet: &str) -> Self {
        let since = distribution.map_or(NO_MASTER_SINCE, Distribution::without_master);
        let minor = kubelet
            .parse::<Version>()
            .ok()
            .and_then(|version| version.minor());
        let without_master = minor.is_some_and(|minor| minor >= since).then_some(since);
        let asked: Vec<_> = plans.iter().map(requirements).collect();
        let is_wanted =
            |all: &BTreeMap<&str, LabelConstraint>, role: &str| all.get(role).is_some_and(|one| one.present);
        // The label must be absent, or must not have its usual value.
        let is_unwanted = |all: &BTreeMap<&str, LabelConstraint>, role: &str| {
            let unwanted = |one: &LabelConstraint| !one.present && (one.absent || !one.denied.is_empty());
            all.get(role).is_some_and(unwanted)
        };
        let mentioned = |role: Option<&str>| {
            let of_role = |key: &str| match role {
                Some(role) => key == role,
                None => [CONTROL_PLANE, MASTER, ETCD].contains(&key),
            };
            let named = || asked.iter().flatten().filter(|(key, _)| of_role(key));
            let wanted = named().find_map(|(_, one)| one.first_value().cloned());
            wanted.or_else(|| named().find_map(|(_, one)| one.denied.first().cloned()))
        };
        let value = match distribution {
            Some(Distribution::K3s | Distribution::Rke2) => "true".to_owned(),
            Some(Distribution::Kubeadm | Distribution::Talos) => String::new(),
            None => mentioned(None).unwrap_or_else(|| "true".to_owned()),
        };
        let value_of = |role: &str| match distribution {
            Some(_) => value.clone(),
            None => mentioned(Some(role)).unwrap_or_else(|| value.clone()),
        };
        let etcd_alone = asked
            .iter()
            .any(|all| is_wanted(all, ETCD) && is_unwanted(all, CONTROL_PLANE));
        let etcd_apart = asked
            .iter()
            .any(|all| is_wanted(all, CONTROL_PLANE) && is_unwanted(all, ETCD));
        let has_all_roles = !value.is_empty();
        // kubeadm never sets `etcd`; a Plan that names it expects nodes with it.
        let is_named = |role: &str| {
            let named = |one: &LabelConstraint| one.present || !one.denied.is_empty();
            asked.iter().any(|all| all.get(role).is_some_and(named))
        };
        let is_there = |role: &str| has_all_roles || is_named(role);
        let mut control = BTreeMap::from([(CONTROL_PLANE.to_owned(), value_of(CONTROL_PLANE))]);
        if is_there(MASTER) && without_master.is_none() {
            control.insert(MASTER.to_owned(), value_of(MASTER));
        }
        if is_there(ETCD) && !etcd_apart {
            control.insert(ETCD.to_owned(), value_of(ETCD));
        }
        // No distribution sets a role on its workers; Rancher and people do.
        let worker = asked
            .iter()
            .filter(|all| ![CONTROL_PLANE, MASTER].iter().any(|role| is_wanted(all, role)))
            .filter_map(|all| all.get(WORKER))
            .find(|one| one.present)
            .map(|one| one.first_value().cloned().unwrap_or_else(|| "true".to_owned()));
        Self {
            distribution,
            control,
            etcd: etcd_alone.then(|| value_of(ETCD)),
            worker,
            value,
            without_master,
            names_master: asked.iter().any(|all| all.contains_key(MASTER)),
        }
    }

    /// Role labels of a class of nodes.
    pub(super) fn labels(&self, role: NodeRole) -> BTreeMap<String, String> {
        match role {
            NodeRole::Control => self.control.clone(),
            NodeRole::Etcd => {
                let etcd = self.etcd.iter();
                etcd.map(|value| (ETCD.to_owned(), value.clone())).collect()
            }
            NodeRole::Worker => {
                let worker = self.worker.iter();
                worker.map(|value| (WORKER.to_owned(), value.clone())).collect()
            }
        }
    }

    /// Whether there are dedicated etcd nodes.
    pub(super) fn has_etcd_nodes(&self) -> bool {
        self.etcd.is_some()
    }

    /// Whether only the distribution sets this role.
    pub(super) fn is_given(&self, key: &str) -> bool {
        let is_role = self.control.contains_key(key) || (key == ETCD && self.etcd.is_some());
        // A role that it no longer sets is on no node.
        self.distribution.is_some() && is_role || (key == MASTER && self.without_master.is_some())
    }

    /// Values for a role that a Plan requires to exist, best first.
    pub(super) fn plain_value(&self, key: &str) -> Option<&str> {
        key.starts_with(ROLE_PREFIX).then_some(self.value.as_str())
    }

    pub(super) fn instance_type(&self) -> &'static str {
        self.distribution.map_or("standard", Distribution::instance_type)
    }

    /// Describes the assumed labels of control-plane nodes.
    pub(super) fn describe(&self) -> String {
        let roles: Vec<String> = self
            .control
            .iter()
            .map(|(key, value)| {
                let role = key.strip_prefix(ROLE_PREFIX).unwrap_or(key);
                format!("{role}={value:?}")
            })
            .collect();
        let whose = self
            .distribution
            .map_or_else(String::new, |one| format!(", as {} has it", one.name()));
        let master = self.without_master.filter(|_| self.names_master);
        let master = master.map_or_else(String::new, |since| {
            let whose = self.distribution.map_or("Kubernetes", Distribution::name);
            format!("; {whose} does not set the role master from 1.{since} on")
        });
        format!(
            "control-plane nodes have the roles {}{whose}{master}",
            roles.join(", ")
        )
    }
}

/// Whether a label is a role.
pub(super) fn is_role(key: &str) -> bool {
    [CONTROL_PLANE, MASTER, ETCD, WORKER].contains(&key)
}
