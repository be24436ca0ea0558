//! One node: its machine, and what its kubelet says of it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use jiff::Timestamp;
use refit::rehearse::podlife::{Machine, Power, STEERING_PREFIX};
use serde_json::{Value, json};

use super::nodeset::NodeSpec;
use super::watch::Head;

/// How long a Lease is valid, as kubelets say it. The node controller goes by its own grace period.
const LEASE_SECONDS: i32 = 40;

/// What the conditions of a Node say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Ready,
    /// The kubelet says so itself.
    NotReady,
    /// The node controller says so when it has heard nothing for its grace period.
    Unknown,
}

/// A node whose kubelet is played here.
pub(super) struct Node {
    pub(super) set: u64,
    pub(super) spec: NodeSpec,
    pub(super) machine: Machine,
    /// UID of the Node object; none while there is no such object.
    pub(super) uid: Option<String>,
    /// Version of what is known of the Node object.
    version: u64,
    health: Health,
    /// Since when Ready, and the other conditions, have the status that they have.
    ready_since: Timestamp,
    known_since: Timestamp,
    pub(super) boots: u32,
    /// Annotations of the Node object that steer.
    pub(super) annotations: BTreeMap<String, String>,
    /// Steering that is not on the object.
    pub(super) overrides: BTreeMap<String, String>,
    /// Place in the set.
    pub(super) number: usize,
    /// Whether a timer runs for the Lease.
    pub(super) renews: bool,
    /// Whether there is a Lease.
    pub(super) leased: bool,
    pub(super) rebooting: bool,
    /// Without power, and not only without a network.
    pub(super) dead: bool,
    /// UIDs of the pods.
    pub(super) pods: HashSet<String>,
    /// Starts by container.
    pub(super) runs: HashMap<String, u32>,
    /// Pods that were started, by the UID of their owner.
    pub(super) pods_of_owners: HashMap<String, i32>,
}

impl Node {
    pub(super) fn new(set: u64, spec: NodeSpec, number: usize, now: Timestamp) -> Self {
        let [_, _, a, b] = u32::try_from(number).unwrap_or_default().to_be_bytes();
        let machine = Machine {
            name: spec.name.clone(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            ip: format!("100.{}.{a}.{b}", 64 + set % 64), // RFC 6598: nobody's
            power: Power::On,
            boot_id: boot_id(),
            booted_at: now,
            sentinels: BTreeMap::new(),
        };
        Self {
            set,
            machine,
            uid: None,
            version: 0,
            health: Health::Ready,
            ready_since: now,
            known_since: now,
            boots: 1,
            annotations: spec.annotations.clone(),
            overrides: BTreeMap::new(),
            number,
            renews: false,
            leased: false,
            rebooting: false,
            dead: false,
            pods: HashSet::new(),
            runs: HashMap::new(),
            pods_of_owners: HashMap::new(),
            spec,
        }
    }

    /// Nothing runs any more.
    pub(super) fn power_off(&mut self) {
        self.machine.power = Power::Off;
        self.dead = true;
    }

    /// The machine starts anew.
    pub(super) fn boot(&mut self, now: Timestamp) {
        self.machine.power = Power::On;
        self.machine.boot_id = boot_id();
        self.machine.booted_at = now;
        self.machine.sentinels.clear();
        self.boots += 1;
        self.rebooting = false;
        self.dead = false;
    }

    /// What the conditions say from now on.
    pub(super) fn say(&mut self, health: Health, now: Timestamp) {
        if (self.health == Health::Unknown) != (health == Health::Unknown) {
            self.known_since = now;
        }
        if self.health != health {
            self.ready_since = now;
        }
        self.health = health;
    }

    pub(super) fn health(&self) -> Health {
        self.health
    }

    /// Takes over what the API server says of the node, unless it is older than what is known. Whether the steering is
    /// another one.
    pub(super) fn learn(&mut self, head: Head<'_>) -> bool {
        let version = head.metadata.resource_version.parse().unwrap_or(u64::MAX);
        if version <= self.version {
            return false;
        }
        self.version = version;
        self.machine.labels = head.metadata.labels;
        self.machine.taints = head.spec.taints;
        let mut annotations = head.metadata.annotations;
        annotations.retain(|key, _| key.starts_with(STEERING_PREFIX));
        std::mem::replace(&mut self.annotations, annotations) != self.annotations
    }

    /// Whether the node controller lets pods onto the node.
    pub(super) fn is_schedulable(&self) -> bool {
        self.uid.is_some()
            && !self
                .machine
                .taints
                .iter()
                .any(|taint| taint.key == "node.kubernetes.io/not-ready")
    }

    /// Whether the node controller has given up the node.
    pub(super) fn is_given_up(&self) -> bool {
        self.machine
            .taints
            .iter()
            .any(|taint| taint.key == "node.kubernetes.io/unreachable")
    }

    /// Whether the kubelet is there to say otherwise.
    pub(super) fn is_heard(&self) -> bool {
        self.machine.power != Power::Off && self.health != Health::Unknown
    }

    /// The Node as a kubelet makes it when it registers.
    pub(super) fn object(&self, now: Timestamp) -> Vec<u8> {
        self.spec.object(&self.status(now)).to_string().into_bytes()
    }

    fn status(&self, now: Timestamp) -> Value {
        let resources = json!({
            "cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": self.spec.pods.to_string(),
        });
        json!({
            "capacity": resources,
            "allocatable": resources,
            "conditions": self.conditions(now),
            "addresses": [
                {"type": "InternalIP", "address": self.machine.ip},
                {"type": "Hostname", "address": self.spec.hostname.as_ref().unwrap_or(&self.spec.name)},
            ],
            "nodeInfo": {
                "machineID": "", "systemUUID": "", "kernelVersion": "6.1.0-fake", "osImage": "Fake Linux 1",
                "containerRuntimeVersion": "fake://1.0", "kubeProxyVersion": "",
                "kubeletVersion": self.spec.kubelet_version,
                "operatingSystem": self.spec.os,
                "architecture": "amd64",
                "bootID": self.machine.boot_id,
            },
        })
    }

    /// A strategic merge patch: conditions of the same status keep the time of their change.
    pub(super) fn status_patch(&self, now: Timestamp) -> Vec<u8> {
        json!({"metadata": {"uid": self.uid}, "status": self.status(now)})
            .to_string()
            .into_bytes()
    }

    fn conditions(&self, now: Timestamp) -> Vec<Value> {
        let condition = |type_: &str, since, (status, reason, message): (&str, &str, &str)| {
            json!({
                "type": type_, "status": status, "reason": reason, "message": message,
                "lastHeartbeatTime": seconds(now), "lastTransitionTime": seconds(since),
            })
        };
        let silent = (
            "Unknown",
            "NodeStatusUnknown",
            "Kubelet stopped posting node status.",
        );
        let pressures = [
            (
                "MemoryPressure",
                "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available",
            ),
            (
                "DiskPressure",
                "KubeletHasNoDiskPressure",
                "kubelet has no disk pressure",
            ),
            (
                "PIDPressure",
                "KubeletHasSufficientPID",
                "kubelet has sufficient PID available",
            ),
        ];
        let pressures = pressures.map(|(type_, reason, message)| {
            let said = if self.health == Health::Unknown {
                silent
            } else {
                ("False", reason, message)
            };
            condition(type_, self.known_since, said)
        });
        let ready = match self.health {
            Health::Ready => ("True", "KubeletReady", "kubelet is posting ready status"),
            Health::NotReady => ("False", "KubeletNotReady", "container runtime is down"),
            Health::Unknown => silent,
        };
        pressures
            .into_iter()
            .chain([condition("Ready", self.ready_since, ready)])
            .collect()
    }

    /// The Lease as it is made.
    pub(super) fn lease(&self, now: Timestamp) -> Vec<u8> {
        let name = &self.spec.name;
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": self.uid});
        let spec =
            json!({"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": micros(now)});
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "ownerReferences": [owner]},
            "spec": spec,
        })
        .to_string()
        .into_bytes()
    }

    /// The Lease as it is renewed.
    pub(super) fn renewal(now: Timestamp) -> Vec<u8> {
        format!(r#"{{"spec":{{"renewTime":"{}"}}}}"#, micros(now)).into_bytes()
    }
}

fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// As Linux makes them: a random UUID, version 4.
fn boot_id() -> String {
    // The standard library seeds every `RandomState` anew.
    let random = || RandomState::new().build_hasher().finish();
    let (a, b) = (random(), random());
    let (variant, last) = (0x8000 | (b >> 48 & 0x3fff), b & 0xffff_ffff_ffff);
    format!(
        "{:08x}-{:04x}-4{:03x}-{variant:04x}-{last:012x}",
        a >> 32,
        a >> 16 & 0xffff,
        a & 0xfff
    )
}
