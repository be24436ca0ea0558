//! A node: its machine, and the reports of its kubelet.

use std::collections::{BTreeMap, HashSet};

use jiff::Timestamp;
use refit_rehearse::pod_lifecycle::{Machine, Power, STEERING_PREFIX};
use serde_json::{Value, json};

use super::nodeset::NodeSpec;
use super::watch::Head;

/// Duration of Leases, as in kubelets. The node controller uses its own grace period.
const LEASE_SECONDS: i32 = 40;

/// State of a Node's conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Ready,
    /// Reported by the kubelet.
    NotReady,
    /// Set by the node controller after its grace period without a report.
    Unknown,
}

/// A simulated node.
pub(super) struct Node {
    pub(super) set: u64,
    pub(super) spec: NodeSpec,
    pub(super) machine: Machine,
    ip: String,
    /// UID of the Node object, if it exists.
    pub(super) uid: Option<String>,
    /// Version of the last observed Node object.
    version: u64,
    health: Health,
    /// Time of the last transition of Ready, and of the other conditions.
    ready_since: Timestamp,
    known_since: Timestamp,
    pub(super) boots: u32,
    /// Steering annotations of the Node.
    pub(super) annotations: BTreeMap<String, String>,
    /// Steering by [`super::FakeKubelet::behaviour`].
    pub(super) overrides: BTreeMap<String, String>,
    /// Place in the set.
    pub(super) number: usize,
    /// Whether a timer runs for the Lease.
    pub(super) renews: bool,
    /// Whether there is a Lease.
    pub(super) leased: bool,
    pub(super) rebooting: bool,
    /// Whether it has no power, as opposed to no network.
    pub(super) dead: bool,
    /// UIDs of the pods.
    pub(super) pods: HashSet<String>,
}

impl Node {
    pub(super) fn new(set: u64, spec: NodeSpec, number: usize, now: Timestamp) -> Self {
        let [_, _, a, b] = u32::try_from(number).unwrap_or_default().to_be_bytes();
        let machine = Machine {
            name: spec.name.clone(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            power: Power::On,
            boot_id: boot_id(),
            booted_at: now,
            sentinels: BTreeMap::new(),
            runs: BTreeMap::new(),
        };
        Self {
            set,
            ip: format!("100.{}.{a}.{b}", 64 + set % 64), // RFC 6598: shared address space
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
            spec,
        }
    }

    pub(super) fn power_off(&mut self) {
        self.machine.power = Power::Off;
        self.dead = true;
    }

    pub(super) fn boot(&mut self, now: Timestamp) {
        self.machine.power = Power::On;
        self.machine.boot_id = boot_id();
        self.machine.booted_at = now;
        self.machine.sentinels.clear();
        self.boots += 1;
        self.rebooting = false;
        self.dead = false;
    }

    pub(super) fn set_health(&mut self, health: Health, now: Timestamp) {
        if (self.health == Health::Unknown) != (health == Health::Unknown) {
            self.known_since = now;
        }
        if self.health != health {
            self.ready_since = now;
        }
        self.health = health;
    }

    /// Takes over a Node, unless it is older than the last one. Returns whether the steering has changed.
    pub(super) fn observe(&mut self, head: Head<'_>) -> bool {
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

    /// Whether the node has no taints of the node controller.
    pub(super) fn is_schedulable(&self) -> bool {
        self.uid.is_some()
            && !self
                .machine
                .taints
                .iter()
                .any(|taint| taint.key == "node.kubernetes.io/not-ready")
    }

    /// Whether the node controller has declared the node lost.
    pub(super) fn is_lost(&self) -> bool {
        self.machine
            .taints
            .iter()
            .any(|taint| taint.key == "node.kubernetes.io/unreachable")
    }

    /// Whether the kubelet can report.
    pub(super) fn is_reporting(&self) -> bool {
        self.machine.power != Power::Off && self.health != Health::Unknown
    }

    /// The Node that the kubelet registers.
    pub(super) fn object(&self, now: Timestamp) -> Vec<u8> {
        self.spec.object(&self.status(now)).to_string().into_bytes()
    }

    fn status(&self, now: Timestamp) -> Value {
        let resources = json!({
            "cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": self.spec.pods.to_string(),
        });
        let mut status = json!({
            "capacity": resources,
            "allocatable": resources,
            "conditions": self.conditions(now),
            "addresses": [
                {"type": "InternalIP", "address": self.ip},
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
        });
        if let Some(port) = self.spec.logs_port {
            status["daemonEndpoints"] = json!({"kubeletEndpoint": {"Port": port}});
        }
        status
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

    /// The new Lease.
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

    /// The renewal of the Lease.
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

/// A random UUID of version 4, as Linux generates.
fn boot_id() -> String {
    let mut random = fastrand::Rng::new();
    format!(
        "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
        random.u32(..),
        random.u16(..),
        random.u16(..1 << 12),
        random.u16(..1 << 12),
        random.u64(..1 << 48)
    )
}
