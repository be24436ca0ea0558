//! The kubelets of all nodes. `pod_lifecycle` decides what a pod does; this connects it with the cluster: which pods a
//! node has, when to sync each of them, and what to write.

pub(super) mod container_task;
mod pod;
mod prepare;
mod sync;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures::future::AbortHandle;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Taint;
use serde::Deserialize as _;

use super::pod_lifecycle::{Boot, Defaults, Machine, Power, STEERING_PREFIX};
use super::store::{Change, Object};
use pod::{ContainerTask, Pod};

const BOOT: SignedDuration = SignedDuration::from_mins(2);

#[derive(Clone, Debug)]
pub struct DefaultBehaviour {
    /// The default behaviour of a pod, and the duration of a boot.
    pub defaults: Defaults,
    /// Steering for all pods, by annotation key with prefix (see `pod_lifecycle`).
    pub steering: BTreeMap<String, String>,
}

impl Default for DefaultBehaviour {
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

#[derive(Debug)]
struct Node {
    machine: Machine,
    /// Steering from the Node's annotations.
    steering: BTreeMap<String, String>,
    pods: BTreeSet<String>,
    /// How the machine comes back, while it reboots.
    rebooting: Option<Boot>,
    /// Set while the machine is off.
    silent_since: Timestamp,
}

#[derive(Debug)]
pub struct Kubelets {
    default_behaviour: DefaultBehaviour,
    nodes: BTreeMap<String, Node>,
    /// By UID, unordered. Boxed, because pods are large and a map has spare capacity.
    pods: HashMap<String, Box<Pod>>,
    new_tasks: Vec<ContainerTask>,
}

impl Kubelets {
    pub fn new(default_behaviour: DefaultBehaviour) -> Self {
        Self {
            default_behaviour,
            nodes: BTreeMap::new(),
            pods: HashMap::new(),
            new_tasks: Vec::new(),
        }
    }

    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    pub fn machine(&self, node: &str) -> Option<&Machine> {
        self.nodes.get(node).map(|node| &node.machine)
    }

    /// Removes all sentinels from a machine.
    pub fn forget_sentinels(&mut self, node: &str) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.machine.sentinels.clear();
        }
    }

    pub fn machines(&self) -> impl Iterator<Item = &Machine> {
        self.nodes.values().map(|node| &node.machine)
    }

    /// Number of starts of containers with this name on a node.
    pub fn runs_of(&self, node: &str, container: &str) -> u32 {
        let runs = self.machine(node).and_then(|machine| machine.runs.get(container));
        runs.copied().unwrap_or_default()
    }

    /// Processes a change of a Node. Returns the UIDs of pods that behave differently from now on.
    pub(super) fn node_changed(&mut self, change: &Change) -> Vec<String> {
        let (object, gone) = (&change.new, change.gone);
        let name = object.meta("name");
        if !gone && change.old.as_ref().is_some_and(|old| is_same(old, object)) {
            return Vec::new();
        }
        if gone {
            if let Some(node) = self.nodes.remove(name) {
                for uid in &node.pods {
                    self.pods.remove(uid);
                }
            }
            return Vec::new();
        }
        let node = self.nodes.entry(name.to_owned()).or_insert_with(|| Node {
            machine: Machine {
                name: name.to_owned(),
                labels: BTreeMap::new(),
                taints: Vec::new(),
                power: Power::On,
                boot_id: object.text("/status/nodeInfo/bootID").to_owned(),
                booted_at: Timestamp::UNIX_EPOCH,
                sentinels: BTreeMap::new(),
                runs: BTreeMap::new(),
            },
            steering: BTreeMap::new(),
            pods: BTreeSet::new(),
            rebooting: None,
            silent_since: Timestamp::UNIX_EPOCH,
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
        // A Node may be created before its kubelet has reported a boot.
        if node.machine.boot_id.is_empty() {
            object
                .text("/status/nodeInfo/bootID")
                .clone_into(&mut node.machine.boot_id);
        }
        if std::mem::replace(&mut node.steering, steering) == node.steering {
            return Vec::new();
        }
        for uid in &node.pods {
            if let Some(pod) = self.pods.get_mut(uid) {
                pod.steer(node, &self.default_behaviour);
            }
        }
        node.pods.iter().cloned().collect()
    }

    /// Processes a change of a bound pod. Returns its UID if its kubelet has to sync it.
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
        pod.steer(node, &self.default_behaviour);
        Some(uid.to_owned())
    }

    /// Takes the started containers that have a real effect.
    pub(super) fn take_tasks(&mut self) -> Vec<ContainerTask> {
        std::mem::take(&mut self.new_tasks)
    }

    /// Registers the task of such a container, so that it can be aborted.
    pub(super) fn task_started(&mut self, task: &ContainerTask, abort: AbortHandle) {
        let pod = self.pods.get_mut(&task.pod_uid);
        match pod.and_then(|pod| pod.running_task(&task.started)) {
            Some(act) => act.abort = Some(abort),
            // The container was stopped before its task could start.
            None => abort.abort(),
        }
    }
}

/// Whether the change does not concern the kubelet.
fn is_same(old: &Object, new: &Object) -> bool {
    let same = |pointer: &str| old.value.pointer(pointer) == new.value.pointer(pointer);
    let known = !new.text("/status/nodeInfo/bootID").is_empty();
    known && same("/metadata/labels") && same("/metadata/annotations") && same("/spec/taints")
}
