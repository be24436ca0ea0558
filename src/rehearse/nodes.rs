//! Generates a cluster: nodes, some of them control-plane nodes, in zones and with workloads. The nodes get the labels
//! that the Plans select by, as far as these do not conflict; assumptions are reported.
//!
//! Pure: the same Plans and the same number give the same objects.

mod conditions;
mod distribution;
mod kubelet_version;
mod labels;
mod workloads;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::json::{Value, json};
use crate::words::pluralized;

pub use conditions::add_conditions;
pub use kubelet_version::is_kubelet_version;
pub use labels::contradiction;
pub use workloads::describe as describe_workloads;
pub use workloads::workloads;

use distribution::{Distribution, Roles};
use labels::{NodeRole, Profile, profiles};
use refit_api::names::{LABEL_HOSTNAME, LABEL_OS};
use refit_api::selector::Selector;
use refit_base::version::{Version, released_version};

/// Kubelet version before the upgrade, unless the Plans start from an older one.
const KUBELET: &str = "v1.33.5";
/// The newest minor version to which nodes of that version can be upgraded without a skip.
const NEXT_MINOR: u64 = 34;
const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const ARCH: &str = "kubernetes.io/arch";
const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
const ROLE_PREFIX: &str = "node-role.kubernetes.io/";
pub(crate) const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
const ETCD: &str = "node-role.kubernetes.io/etcd";
pub(crate) const MASTER: &str = "node-role.kubernetes.io/master";
const WORKER: &str = "node-role.kubernetes.io/worker";
const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

/// The part of a Plan that determines its nodes.
#[derive(Clone, Debug, Default)]
pub struct PlanSelector<'a> {
    pub plan: &'a str,
    pub selector: Option<&'a LabelSelector>,
    /// Image of `upgrade`.
    pub image: &'a str,
    /// The version that the Plan will resolve to.
    pub version: Option<&'a str>,
    pub channel: Option<&'a str>,
    /// Whether the version is that of a kubelet.
    pub installs_kubernetes: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Generated {
    pub nodes: Vec<Value>,
    /// Assumptions about them, a sentence each.
    pub assumed: Vec<String>,
}

/// The build suffix of versions of the distribution that an image or a channel is of, such as `+k3s1`.
pub fn build_of(image: &str, channel: Option<&str>) -> &'static str {
    let plan = PlanSelector {
        image,
        channel,
        ..PlanSelector::default()
    };
    let distribution = Distribution::detect(&[plan], None);
    distribution.map_or("", Distribution::build)
}

/// Generates nodes, labelled so that the Plans select some of them; `kubelet` is the version that they run.
pub fn generate(count: usize, plans: &[PlanSelector<'_>], kubelet: Option<&str>) -> Generated {
    // With three, etcd keeps its quorum while one of them is upgraded.
    let control = match count {
        0..=2 => count.min(1),
        3..=6 => 1,
        _ => 3,
    };
    let given = kubelet;
    let distribution = Distribution::detect(plans, given);
    let kubelet = given.map_or_else(|| older_kubelet(plans, distribution), str::to_owned);
    let roles = Roles::of(plans, distribution, &kubelet);
    let etcd = if roles.has_etcd_nodes() && count > 2 * control {
        control
    } else {
        0
    };
    let role_of = |index: usize| match index {
        index if index < control => (NodeRole::Control, index),
        index if index < control + etcd => (NodeRole::Etcd, index - control),
        index => (NodeRole::Worker, index - control - etcd),
    };
    let mut nodes: Vec<Draft> = (0..count)
        .map(|index| Draft::new(index, role_of(index), &roles))
        .collect();
    let etcd_text = match etcd {
        0 => String::new(),
        etcd => format!(", {}", pluralized(etcd, "etcd node")),
    };
    let mut assumed = vec![format!(
        "{}{etcd_text} and {} in {}, Linux, kubelet {kubelet} (change it with --kubelet)",
        pluralized(control, "control-plane node"),
        pluralized(count - control - etcd, "worker"),
        pluralized(ZONES.len().min(count), "zone")
    )];
    assumed.push(roles.describe());
    name_as_asked(&mut nodes, plans, &roles, &mut assumed);
    for role in NodeRole::ALL {
        let of_class: Vec<usize> = (0..count).filter(|index| nodes[*index].role == role).collect();
        if of_class.is_empty() {
            continue;
        }
        let profiles = profiles(role, plans, &base(role, &roles), &roles);
        for (place, index) in of_class.iter().enumerate() {
            if let Some(profile) = profiles.get(place % profiles.len().max(1)) {
                nodes[*index].apply_profile(profile);
            }
        }
        if profiles.len() > of_class.len() {
            assumed.push(format!(
                "the Plans select {} kinds of {}, but only {} exist; to rehearse all, use more --nodes or fewer Plans",
                profiles.len(),
                role.word(),
                of_class.len()
            ));
        }
    }
    assumed.extend(describe_labels(&nodes, plans));
    let ahead = given
        .is_none()
        .then(|| upgraded_control_plane(&nodes, plans))
        .flatten();
    if let Some(version) = &ahead {
        assumed.push(format!(
            "the control plane, which no Plan upgrades, runs {version} already (--kubelet gives all nodes one version)"
        ));
    }
    let kubelet_of = |node: &Draft| {
        let is_control = node.role == NodeRole::Control;
        ahead.as_deref().filter(|_| is_control).unwrap_or(&kubelet)
    };
    Generated {
        nodes: nodes.iter().map(|node| node.object(kubelet_of(node))).collect(),
        assumed,
    }
}

/// A kubelet version from which the oldest version of the Plans is an upgrade that skips no minor version.
fn older_kubelet(plans: &[PlanSelector<'_>], distribution: Option<Distribution>) -> String {
    let versions = plans.iter().filter_map(|plan| plan.version);
    let versions = versions.filter(|version| is_kubelet_version(version));
    let versions = versions.filter_map(|version| version.parse::<Version>().ok());
    let oldest = versions.min_by(Version::compare_numbers);
    let usual: Option<Version> = KUBELET.parse().ok();
    let is_next = |oldest: &Version| {
        let is_newer = |usual: &Version| oldest.compare_numbers(usual).is_gt();
        usual.as_ref().is_some_and(is_newer) && oldest.minor() <= Some(NEXT_MINOR)
    };
    let version = match oldest {
        Some(oldest) if !is_next(&oldest) => {
            format!("v1.{}.0", oldest.minor().unwrap_or_default().saturating_sub(1))
        }
        _ => KUBELET.to_owned(),
    };
    version + distribution.map_or("", Distribution::build)
}

/// The version that the control plane must have for the Plans to start, if none of them upgrades it.
fn upgraded_control_plane(nodes: &[Draft], plans: &[PlanSelector<'_>]) -> Option<String> {
    let installing = || plans.iter().filter(|plan| plan.installs_kubernetes);
    let selects = |plan: &PlanSelector<'_>| {
        let selector = Selector::new(plan.selector).ok();
        let mut control = nodes.iter().filter(|node| node.role == NodeRole::Control);
        selector.is_some_and(|selector| control.any(|node| selector.matches(&node.labels)))
    };
    if installing().any(selects) {
        return None;
    }
    let versions = installing().filter_map(|plan| plan.version);
    let versions = versions.filter(|version| is_kubelet_version(version));
    let versions = versions.filter_map(|version| version.parse::<Version>().ok());
    let newest = versions.max_by(Version::compare_numbers)?;
    Some(released_version(newest.text()))
}

#[derive(Clone, Debug)]
struct Draft {
    name: String,
    role: NodeRole,
    index: usize,
    labels: BTreeMap<String, String>,
    /// Labels added for the Plans.
    asked: BTreeMap<String, String>,
}

impl Draft {
    fn new(index: usize, (role, place): (NodeRole, usize), roles: &Roles) -> Self {
        let prefix = match role {
            NodeRole::Control => "control",
            NodeRole::Etcd => "etcd",
            NodeRole::Worker => "node",
        };
        let name = format!("{prefix}-{}", place + 1);
        let mut labels = base(role, roles);
        labels.insert(ZONE.to_owned(), ZONES[index % ZONES.len()].to_owned());
        Self {
            name,
            role,
            index,
            labels,
            asked: BTreeMap::new(),
        }
    }

    fn apply_profile(&mut self, profile: &Profile) {
        self.labels = labels::apply_profile(&self.labels, profile);
        let asked = profile
            .iter()
            .filter_map(|(key, value)| Some((key.clone(), value.clone()?)));
        self.asked.extend(asked);
    }

    fn object(&self, kubelet: &str) -> Value {
        let mut labels = self.labels.clone();
        labels.insert(LABEL_HOSTNAME.to_owned(), self.name.clone());
        let (high, low) = (self.index / 250, self.index % 250 + 1);
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": self.name, "labels": labels },
            "spec": {},
            "status": {
                "addresses": [
                    { "type": "InternalIP", "address": format!("10.0.{high}.{low}") },
                    { "type": "Hostname", "address": self.name },
                ],
                "conditions": [{
                    "type": "Ready", "status": "True", "reason": "KubeletReady",
                    "message": "kubelet is posting ready status",
                }],
                "nodeInfo": {
                    "bootID": format!("00000000-0000-4000-8000-{:012x}", self.index + 1),
                    "kubeletVersion": kubelet,
                    "operatingSystem": labels.get(LABEL_OS),
                    "architecture": labels.get(ARCH),
                },
            },
        })
    }
}

/// The default labels of a node.
fn base(role: NodeRole, roles: &Roles) -> BTreeMap<String, String> {
    let mut labels: BTreeMap<String, String> = [
        (LABEL_OS, "linux"),
        (ARCH, "amd64"),
        (REGION, "region-1"),
        (ZONE, ZONES[0]),
        (INSTANCE_TYPE, roles.instance_type()),
        (LABEL_HOSTNAME, "any"),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect();
    labels.extend(roles.labels(role));
    labels
}

/// Gives nodes the hostnames that Plans name.
fn name_as_asked(nodes: &mut [Draft], plans: &[PlanSelector<'_>], roles: &Roles, assumed: &mut Vec<String>) {
    let mut given = Vec::new();
    for plan in plans {
        let role = labels::role_of(plan, roles);
        for name in labels::hostnames(plan) {
            if given.contains(&name) {
                continue;
            }
            let free = nodes
                .iter_mut()
                .find(|node| node.role == role && !given.contains(&node.name));
            if let Some(node) = free {
                node.name.clone_from(&name);
                given.push(name);
            }
        }
    }
    if !given.is_empty() {
        assumed.push(format!(
            "nodes have the names that Plans select: {}",
            given.join(", ")
        ));
    }
}

/// Describes the added labels and the number of their nodes.
fn describe_labels(nodes: &[Draft], plans: &[PlanSelector<'_>]) -> Vec<String> {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (key, value) in nodes.iter().flat_map(|node| &node.asked) {
        *counts.entry((key, value)).or_default() += 1;
    }
    let mut described: Vec<String> = counts
        .into_iter()
        .map(|((key, value), count)| {
            format!(
                "label {key}={value} on {}, which a Plan selects",
                pluralized(count, "node")
            )
        })
        .collect();
    for plan in plans {
        if let Some(why) = contradiction(plan) {
            described.push(format!("Plan {} selects no node at all: {why}", plan.plan));
        }
    }
    described
}

#[cfg(test)]
mod tests;
