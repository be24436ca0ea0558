//! The nodes of a test on a simulated cluster. Its own kubelets run their pods; this registers the nodes, and does what a
//! test does to machines.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use refit_rehearse::Kind;
use refit_rehearse::pod_lifecycle::{Machine, STEERING_PREFIX};
use serde_json::{Value, json};

use super::machine::{Health, Node};
use super::nodeset::{NodeSet, NodeSpec};
use super::remote::NodeChange;
use crate::testenv::simulated::Simulated;

pub(super) struct SimulatedKubelets {
    simulated: Simulated,
    nodes: Mutex<BTreeMap<String, NodeSpec>>,
}

impl SimulatedKubelets {
    pub(super) fn register(simulated: &Simulated, set: NodeSet) -> Self {
        let this = Self {
            simulated: simulated.clone(),
            nodes: Mutex::default(),
        };
        for spec in set.nodes {
            this.put(&spec);
            this.nodes().insert(spec.name.clone(), spec);
        }
        this
    }

    fn put(&self, spec: &NodeSpec) {
        let number = self.simulated.next_number();
        let node = Node::new(0, spec.clone(), number as usize, self.simulated.now());
        let mut object: Value = serde_json::from_slice(&node.object(self.simulated.now())).expect("a Node");
        // The same in every run, as all else.
        object["status"]["nodeInfo"]["bootID"] = json!(format!("00000000-0000-4000-8000-{number:012x}"));
        let put = self.simulated.cluster().put(object);
        put.unwrap_or_else(|error| panic!("cannot make Node {}: {}", spec.name, error.message));
    }

    pub(super) fn change(&self, name: &str, change: NodeChange) {
        let cluster = self.simulated.cluster();
        match change {
            NodeChange::PowerOff => cluster.with(|state| state.set_power(name, false)),
            NodeChange::Boot => {
                let before = self.conditions(name);
                cluster.with(|state| state.set_power(name, true));
                self.patch_status(name, &json!({ "conditions": before }));
            }
            NodeChange::SetHealth(health) => self.set_health(name, health),
            NodeChange::KubeletVersion(version) => {
                self.patch_status(name, &json!({ "nodeInfo": { "kubeletVersion": version } }));
            }
            NodeChange::Delete => {
                let deleted = cluster.delete(Kind::Node, "", name);
                deleted.unwrap_or_else(|error| panic!("cannot delete Node {name}: {}", error.message));
            }
            NodeChange::Recreate => self.put(&self.nodes()[name].clone()),
            NodeChange::Steer(steering) => self.steer(name, &steering),
            NodeChange::LoseSentinels => cluster.with(|state| state.lose_sentinels(name)),
            NodeChange::Disconnect | NodeChange::Reconnect => {
                panic!("not simulated: this test needs a real control plane")
            }
        }
    }

    pub(super) fn machine(&self, name: &str) -> Machine {
        let machine = |state: &mut refit_rehearse::State| state.kubelets().machine(name).cloned();
        let machine = self.simulated.cluster().with(machine);
        machine.unwrap_or_else(|| panic!("there is no node {name}"))
    }

    pub(super) fn runs(&self, name: &str, container: &str) -> u32 {
        self.simulated
            .cluster()
            .with(|state| state.kubelets().runs_of(name, container))
    }

    pub(super) fn boots(&self, name: &str) -> u32 {
        self.simulated.boots(name)
    }

    /// Replaces earlier steering of this kind; that of the set stays below it.
    fn steer(&self, name: &str, steering: &BTreeMap<String, String>) {
        let known = self.object(name);
        let keys = known["metadata"]["annotations"].as_object().into_iter().flatten();
        let mut annotations: BTreeMap<String, Value> = keys
            .filter(|(key, _)| key.starts_with(STEERING_PREFIX))
            .map(|(key, _)| (key.clone(), Value::Null))
            .collect();
        let of_set = self.nodes()[name].annotations.clone();
        for (key, value) in of_set.into_iter().chain(steering.clone()) {
            annotations.insert(key, value.into());
        }
        let patch = json!({ "metadata": { "annotations": annotations } });
        let patched = self.simulated.cluster().patch(Kind::Node, "", name, patch);
        patched.unwrap_or_else(|error| panic!("cannot steer Node {name}: {}", error.message));
    }

    fn set_health(&self, name: &str, health: Health) {
        let (status, reason, message) = match health {
            Health::Ready => ("True", "KubeletReady", "kubelet is posting ready status"),
            Health::NotReady => ("False", "KubeletNotReady", "container runtime is down"),
            Health::Unknown => (
                "Unknown",
                "NodeStatusUnknown",
                "Kubelet stopped posting node status.",
            ),
        };
        let now = self.simulated.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let mut conditions = self.conditions(name);
        for condition in &mut conditions {
            if condition["type"] == "Ready" {
                if condition["status"] != status {
                    condition["lastTransitionTime"] = json!(now);
                }
                condition["status"] = json!(status);
                condition["reason"] = json!(reason);
                condition["message"] = json!(message);
                condition["lastHeartbeatTime"] = json!(now);
            }
        }
        self.patch_status(name, &json!({ "conditions": conditions }));
    }

    fn conditions(&self, name: &str) -> Vec<Value> {
        let conditions = self.object(name)["status"]["conditions"].as_array().cloned();
        conditions.unwrap_or_default()
    }

    fn object(&self, name: &str) -> Value {
        let object = self.simulated.cluster().get(Kind::Node, "", name);
        let object = object.unwrap_or_else(|| panic!("there is no node {name}"));
        serde_json::to_value(object).expect("a Node is JSON")
    }

    fn patch_status(&self, name: &str, status: &Value) {
        let patch = json!({ "status": status });
        let patched = self.simulated.cluster().patch_status(Kind::Node, "", name, patch);
        patched.unwrap_or_else(|error| panic!("cannot patch Node {name}: {}", error.message));
    }

    fn nodes(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, NodeSpec>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
