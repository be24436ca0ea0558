//! The kubelets of all nodes, played by one hand. A pod's life is `podlife`; here is how it meets the cluster: which pods a
//! node has, when each is looked at, and what is written.

pub mod act;
mod live;
mod pod;
mod prepare;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures::future::AbortHandle;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Taint;
use serde::Deserialize as _;

use super::podlife::{Boot, Defaults, Machine, Power, STEERING_PREFIX};
use super::store::{Change, Object};
use act::Errand;
use pod::Pod;

/// How long a machine takes to boot.
const BOOT: SignedDuration = SignedDuration::from_mins(2);

/// How the pods of a cluster behave, and its machines.
#[derive(Clone, Debug)]
pub struct Habits {
    /// What a pod does that nothing steers, and how long a machine takes to boot.
    pub defaults: Defaults,
    /// Steering of all pods, keys with their prefix (see `podlife`).
    pub steering: BTreeMap<String, String>,
}

impl Default for Habits {
    fn default() -> Self {
        Self {
            defaults: Defaults {
                boot: Boot {
                    off: BOOT,
                    ..Boot::default()
                },
                ..Defaults::default()
            },
            steering: BTreeMap::new(),
        }
    }
}

/// A node and its pods.
#[derive(Debug)]
struct Node {
    machine: Machine,
    /// Steering that stands on the Node.
    steering: BTreeMap<String, String>,
    pods: BTreeSet<String>,
    /// How the machine comes back from the reboot that it is in.
    rebooting: Option<Boot>,
    /// Since when the machine is off, if it is.
    silent_since: Timestamp,
    /// Pods that were started, by the UID of their owner.
    pods_of_owners: BTreeMap<String, i32>,
    /// Starts by container.
    runs: BTreeMap<String, u32>,
}

/// All kubelets.
#[derive(Debug)]
pub struct Kubelets {
    habits: Habits,
    nodes: BTreeMap<String, Node>,
    /// By UID, in nobody's order. Pods are large, and a map leaves room between what it holds.
    pods: HashMap<String, Box<Pod>>,
    errands: Vec<Errand>,
}

impl Kubelets {
    /// Kubelets of no nodes yet.
    pub fn new(habits: Habits) -> Self {
        Self {
            habits,
            nodes: BTreeMap::new(),
            pods: HashMap::new(),
            errands: Vec::new(),
        }
    }

    /// How many machines there are.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// The machine of a node.
    pub fn machine(&self, node: &str) -> Option<&Machine> {
        self.nodes.get(node).map(|node| &node.machine)
    }

    /// All machines, by name.
    pub fn machines(&self) -> impl Iterator<Item = &Machine> {
        self.nodes.values().map(|node| &node.machine)
    }

    /// How often containers of this name were started on a node.
    pub fn runs_of(&self, node: &str, container: &str) -> u32 {
        let node = self.nodes.get(node);
        node.and_then(|node| node.runs.get(container).copied())
            .unwrap_or_default()
    }

    /// Takes over what the API server says of a node.
    pub(super) fn node_changed(&mut self, change: &Change) {
        let (object, gone) = (&change.new, change.gone);
        let name = object.meta("name");
        if !gone && change.old.as_ref().is_some_and(|old| is_same(old, object)) {
            return;
        }
        if gone {
            if let Some(node) = self.nodes.remove(name) {
                for uid in &node.pods {
                    self.pods.remove(uid);
                }
            }
            return;
        }
        let address = object.value["status"]["addresses"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|one| one["type"] == "InternalIP")
            .and_then(|one| one["address"].as_str());
        let node = self.nodes.entry(name.to_owned()).or_insert_with(|| Node {
            machine: Machine {
                name: name.to_owned(),
                labels: BTreeMap::new(),
                taints: Vec::new(),
                ip: address.unwrap_or("100.64.0.1").to_owned(),
                power: Power::On,
                boot_id: object.text("/status/nodeInfo/bootID").to_owned(),
                booted_at: Timestamp::UNIX_EPOCH,
                sentinels: BTreeMap::new(),
            },
            steering: BTreeMap::new(),
            pods: BTreeSet::new(),
            rebooting: None,
            silent_since: Timestamp::UNIX_EPOCH,
            pods_of_owners: BTreeMap::new(),
            runs: BTreeMap::new(),
        });
        let texts = |field: &str| -> BTreeMap<String, String> {
            let map = object.value["metadata"][field].as_object();
            map.into_iter()
                .flatten()
                .filter_map(|(key, value)| Some((key.to_owned(), value.as_str()?.to_owned())))
                .collect()
        };
        node.machine.labels = texts("labels");
        node.machine.taints = Vec::<Taint>::deserialize(&object.value["spec"]["taints"]).unwrap_or_default();
        let mut steering = texts("annotations");
        steering.retain(|key, _| key.starts_with(STEERING_PREFIX));
        node.steering = steering;
        if node.machine.boot_id.is_empty() {
            object
                .text("/status/nodeInfo/bootID")
                .clone_into(&mut node.machine.boot_id);
        }
    }

    /// Takes over what the API server says of a pod that is bound. Its UID, if its kubelet has to look at it.
    pub(super) fn pod_changed(&mut self, object: &Object, gone: bool) -> Option<String> {
        let uid = object.uid();
        if gone {
            if let Some(pod) = self.pods.remove(uid)
                && let Some(node) = self.nodes.get_mut(&pod.node)
            {
                node.pods.remove(uid);
            }
            return None;
        }
        let node = self.nodes.get_mut(object.text("/spec/nodeName"))?;
        match self.pods.get_mut(uid) {
            Some(pod) if pod.is_same(object) => return None,
            Some(pod) => pod.replace(object),
            None => {
                let pod = Pod::new(object, node)?;
                node.pods.insert(uid.to_owned());
                self.pods.insert(uid.to_owned(), Box::new(pod));
            }
        }
        let pod = self.pods.get_mut(uid)?;
        pod.steer(node, &self.habits);
        Some(uid.to_owned())
    }

    /// Containers that were started and whose effect is real.
    pub(super) fn errands(&mut self) -> Vec<Errand> {
        std::mem::take(&mut self.errands)
    }

    /// Such a container runs: this ends it.
    pub(super) fn runs(&mut self, errand: &Errand, abort: AbortHandle) {
        let pod = self.pods.get_mut(&errand.pod_uid);
        match pod.and_then(|pod| pod.act(&errand.started)) {
            Some(act) => act.task = Some(abort),
            None => abort.abort(),
        }
    }
}

/// Whether nothing has changed for the kubelet of a node.
fn is_same(old: &Object, new: &Object) -> bool {
    let same = |pointer: &str| old.value.pointer(pointer) == new.value.pointer(pointer);
    let known = !new.text("/status/nodeInfo/bootID").is_empty();
    known && same("/metadata/labels") && same("/metadata/annotations") && same("/spec/taints")
}
