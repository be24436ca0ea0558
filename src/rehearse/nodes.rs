//! A cluster that nobody has: so many nodes, some of them the control plane, in zones, with workloads on them. The nodes have
//! the labels that the Plans ask for, as far as one set of labels can have them; what was assumed is told.
//!
//! Pure: the same Plans and the same number give the same objects.

mod labels;
mod workloads;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::rehearse::json::{Value, json};

pub(crate) use workloads::told as workloads_told;
pub use workloads::workloads;

use crate::api::names::{LABEL_HOSTNAME, LABEL_OS};
use labels::{Class, Profile, profiles};

/// Kubelet version of the nodes before they are upgraded.
pub const KUBELET_VERSION: &str = "v1.33.5";
const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const ARCH: &str = "kubernetes.io/arch";
const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
/// Labels of a control plane: what K3s and RKE2 give their servers.
const CONTROL_ROLES: [&str; 3] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/etcd",
    "node-role.kubernetes.io/master",
];
const WORKER_ROLE: &str = "node-role.kubernetes.io/worker";
const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

/// A Plan, as far as it says which nodes it is for.
#[derive(Clone, Debug)]
pub struct Asks<'a> {
    /// Its name.
    pub plan: &'a str,
    /// `spec.nodeSelector`.
    pub selector: Option<&'a LabelSelector>,
}

/// Nodes that were made up.
#[derive(Clone, Debug, Default)]
pub struct Generated {
    /// The nodes.
    pub nodes: Vec<Value>,
    /// What was assumed of them, a sentence each.
    pub assumed: Vec<String>,
}

/// Makes up nodes, labelled so that the Plans select some of them.
pub fn generate(count: usize, plans: &[Asks<'_>]) -> Generated {
    let control = match count {
        0..=2 => count.min(1),
        3..=6 => 1,
        _ => 3,
    };
    let mut nodes: Vec<Draft> = (0..count).map(|index| Draft::new(index, control)).collect();
    let mut assumed = vec![format!(
        "{} and {} in {} zones, Linux, kubelet {KUBELET_VERSION}",
        counted(control, "control-plane node"),
        counted(count - control, "worker"),
        ZONES.len().min(count)
    )];
    name_as_asked(&mut nodes, plans, &mut assumed);
    for class in [Class::Control, Class::Worker] {
        let of_class: Vec<usize> = (0..count).filter(|index| nodes[*index].class == class).collect();
        let profiles = profiles(class, plans, &base(class));
        for (place, index) in of_class.iter().enumerate() {
            if let Some(profile) = profiles.get(place % profiles.len().max(1)) {
                nodes[*index].wear(profile);
            }
        }
        if profiles.len() > of_class.len() && !of_class.is_empty() {
            assumed.push(format!(
                "the Plans ask for {} kinds of {}, and there are {}: more --nodes, or fewer Plans at a time, would show all",
                profiles.len(),
                class.word(),
                of_class.len()
            ));
        }
    }
    assumed.extend(told_labels(&nodes, plans));
    Generated {
        nodes: nodes.iter().map(Draft::object).collect(),
        assumed,
    }
}

/// Why a Plan can select no node at all, whatever labels nodes have.
pub fn contradiction(plan: &Asks<'_>) -> Option<String> {
    labels::contradiction(plan)
}

fn counted(number: usize, word: &str) -> String {
    format!("{number} {word}{}", if number == 1 { "" } else { "s" })
}

/// A node that is being made up.
#[derive(Clone, Debug)]
struct Draft {
    name: String,
    class: Class,
    index: usize,
    labels: BTreeMap<String, String>,
    /// Labels that are there for the Plans' sake.
    asked: BTreeMap<String, String>,
}

impl Draft {
    fn new(index: usize, control: usize) -> Self {
        let (class, name) = if index < control {
            (Class::Control, format!("control-{}", index + 1))
        } else {
            (Class::Worker, format!("node-{}", index - control + 1))
        };
        let mut labels = base(class);
        labels.insert(ZONE.to_owned(), ZONES[index % ZONES.len()].to_owned());
        Self {
            name,
            class,
            index,
            labels,
            asked: BTreeMap::new(),
        }
    }

    fn wear(&mut self, profile: &Profile) {
        for (key, value) in profile {
            match value {
                Some(value) => {
                    self.labels.insert(key.clone(), value.clone());
                    self.asked.insert(key.clone(), value.clone());
                }
                None => {
                    self.labels.remove(key);
                }
            }
        }
    }

    fn object(&self) -> Value {
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
                    "kubeletVersion": KUBELET_VERSION,
                    "operatingSystem": labels.get(LABEL_OS),
                    "architecture": labels.get(ARCH),
                },
            },
        })
    }
}

/// Labels of a node before anybody asks for any.
fn base(class: Class) -> BTreeMap<String, String> {
    let mut labels: BTreeMap<String, String> = [
        (LABEL_OS, "linux"),
        (ARCH, "amd64"),
        (REGION, "region-1"),
        (ZONE, ZONES[0]),
        (INSTANCE_TYPE, "standard"),
        (LABEL_HOSTNAME, "any"),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect();
    match class {
        Class::Control => labels.extend(CONTROL_ROLES.map(|role| (role.to_owned(), "true".to_owned()))),
        Class::Worker => {
            labels.insert(WORKER_ROLE.to_owned(), "true".to_owned());
        }
    }
    labels
}

/// Plans that name hostnames get nodes of these names.
fn name_as_asked(nodes: &mut [Draft], plans: &[Asks<'_>], assumed: &mut Vec<String>) {
    let mut given = Vec::new();
    for plan in plans {
        let class = labels::class_of(plan, &base);
        for name in labels::hostnames(plan) {
            if given.contains(&name) {
                continue;
            }
            let free = nodes
                .iter_mut()
                .find(|node| node.class == class && !given.contains(&node.name));
            if let Some(node) = free {
                node.name.clone_from(&name);
                given.push(name);
            }
        }
    }
    if !given.is_empty() {
        assumed.push(format!(
            "nodes have the names that Plans ask for: {}",
            given.join(", ")
        ));
    }
}

/// Which labels were added, on how many nodes.
fn told_labels(nodes: &[Draft], plans: &[Asks<'_>]) -> Vec<String> {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (key, value) in nodes.iter().flat_map(|node| &node.asked) {
        *counts.entry((key, value)).or_default() += 1;
    }
    let mut told: Vec<String> = counts
        .into_iter()
        .map(|((key, value), count)| {
            format!(
                "label {key}={value} on {}, which a Plan asks for",
                counted(count, "node")
            )
        })
        .collect();
    for plan in plans {
        if let Some(why) = labels::contradiction(plan) {
            told.push(format!("Plan {} selects no node at all: {why}", plan.plan));
        }
    }
    told
}

#[cfg(test)]
mod tests;
