//! Descriptions of simulated nodes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Taint;
use refit_rehearse::pod_lifecycle::Defaults;
use serde_json::{Value, json};

use super::container_task::{CordonTasks, TaskRunner};

/// Longest value that a label can have.
const LABEL_LENGTH: usize = 63;

/// Nodes with common settings.
#[derive(Clone)]
pub struct NodeSet {
    pub nodes: Vec<NodeSpec>,
    /// Pause between renewals of a Lease: half of the node controller's grace period. A renewal costs the API server as
    /// much as a status.
    pub lease_interval: Duration,
    /// Behaviour of pods without steering.
    pub pods: Defaults,
    /// Containers with a real effect.
    pub task_runner: Arc<dyn TaskRunner>,
    /// Whether [`FakeKubelet::start`](super::FakeKubelet::start) waits until the nodes are schedulable.
    pub until_schedulable: bool,
}

#[derive(Clone, Debug)]
pub struct NodeSpec {
    pub name: String,
    /// In addition to hostname, operating system and architecture.
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    /// Label `kubernetes.io/hostname`.
    pub hostname: Option<String>,
    pub os: String,
    pub kubelet_version: String,
    pub unschedulable: bool,
    /// Maximum number of pods.
    pub pods: u32,
    /// Where the API server asks for logs of the pods, at the hostname. Simulated kubelets have none.
    pub logs_port: Option<u16>,
}

impl NodeSpec {
    /// A Linux node whose hostname is its name, unless that is too long for a label.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            taints: Vec::new(),
            hostname: Some(name.to_owned()).filter(|name| name.len() <= LABEL_LENGTH),
            os: "linux".to_owned(),
            kubelet_version: "v1.36.3".to_owned(),
            unschedulable: false,
            pods: 110,
            logs_port: None,
        }
    }

    /// The Node that the kubelet registers.
    pub(super) fn object(&self, status: &Value) -> Value {
        let mut labels = self.labels.clone();
        labels.insert("kubernetes.io/os".to_owned(), self.os.clone());
        labels.insert("kubernetes.io/arch".to_owned(), "amd64".to_owned());
        labels.extend(
            self.hostname
                .iter()
                .map(|name| ("kubernetes.io/hostname".to_owned(), name.clone())),
        );
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": labels, "annotations": self.annotations},
            "spec": {"taints": self.taints, "unschedulable": self.unschedulable},
            "status": status,
        })
    }
}

impl NodeSet {
    /// Nodes with these names.
    pub fn named<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> Self {
        Self {
            nodes: names
                .into_iter()
                .map(|name| NodeSpec::named(name.as_ref()))
                .collect(),
            lease_interval: Duration::from_secs(25),
            pods: Defaults::default(),
            task_runner: Arc::new(CordonTasks),
            until_schedulable: true,
        }
    }

    /// Nodes named by a prefix and four digits.
    pub fn numbered(prefix: &str, count: usize) -> Self {
        Self::named((0..count).map(|index| format!("{prefix}{index:04}")))
    }

    /// Changes each node, given its index.
    #[must_use]
    pub fn each(mut self, change: impl Fn(usize, &mut NodeSpec)) -> Self {
        self.nodes
            .iter_mut()
            .enumerate()
            .for_each(|(index, node)| change(index, node));
        self
    }

    /// Gives all nodes these labels.
    #[must_use]
    pub fn labels<K: Into<String> + Clone, V: Into<String> + Clone>(
        self,
        labels: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let labels: BTreeMap<String, String> = labels
            .into_iter()
            .map(|(key, value)| (key.into(), value.into()))
            .collect();
        self.each(|_, node| node.labels.extend(labels.clone()))
    }

    /// Gives all nodes a label.
    #[must_use]
    pub fn label(self, key: &str, value: &str) -> Self {
        self.labels([(key, value)])
    }

    /// Gives all nodes a taint.
    #[must_use]
    pub fn taint(self, key: &str, value: &str, effect: &str) -> Self {
        let (key, value, effect) = (key.to_owned(), Some(value.to_owned()), effect.to_owned());
        let taint = Taint {
            key,
            value,
            effect,
            time_added: None,
        };
        self.each(|_, node| node.taints.push(taint.clone()))
    }

    /// Annotates all nodes with `fake-kubelet/<key>`, which steers the pods on them.
    #[must_use]
    pub fn steer(self, key: &str, value: &str) -> Self {
        let key = format!("{}{key}", refit_rehearse::pod_lifecycle::STEERING_PREFIX);
        self.each(|_, node| drop(node.annotations.insert(key.clone(), value.to_owned())))
    }

    /// Sets the behaviour of pods without steering.
    #[must_use]
    pub fn pods(mut self, pods: Defaults) -> Self {
        self.pods = pods;
        self
    }

    /// Sets the containers with a real effect, by default `cordon` and `drain`.
    #[must_use]
    pub fn task_runner(mut self, act: impl TaskRunner) -> Self {
        self.task_runner = Arc::new(act);
        self
    }
}
