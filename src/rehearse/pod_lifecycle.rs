//! The lifecycle of a pod on a kubelet: given the Pod, its machine, its behaviour and the time, this computes the next
//! status and when to sync again.
//!
//! Phases, conditions and container statuses are those of a kubelet of Kubernetes 1.36 (`tests/recordings` has
//! recordings of one). Two consecutive status writes of a real kubelet may be one here, and `resources`, `user` and
//! `volumeMounts` are omitted; nothing else differs. A [`PodLifecycle`] can continue from the Pod's status alone, with
//! a precision of a second; its own memory makes it exact.
//!
//! It must not use a clock, randomness or a connection.

mod admission;
mod behaviour;
mod command;
mod containers;
mod refit_container;
mod report;
mod sync_pass;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodStatus, Taint};

pub(crate) use admission::{selects, tolerates};
pub use behaviour::{
    Boot, ComesBack, Defaults, Delay, PodBehaviour, Reboots, STEERING_PREFIX, SteeringError,
};
pub use command::ContainerStart;
use sync_pass::SyncPass;

use refit_api::{SentinelName, SentinelReport};

/// The machine of a pod, as its kubelet knows it.
#[derive(Clone, Debug)]
pub struct Machine {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    /// The address of the node, and of pods in the host network.
    pub ip: String,
    pub power: Power,
    /// `status.nodeInfo.bootID`. No container survives a change.
    pub boot_id: String,
    /// Start of this boot, which is reported as the end of containers of earlier boots.
    pub booted_at: Timestamp,
    /// Sentinels in `/run`, as [`SyncResult::keep_sentinels`] stored them. A new boot has none.
    pub sentinels: BTreeMap<SentinelName, SentinelReport>,
}

/// State of the kubelet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Power {
    #[default]
    On,
    /// It refuses pods and stops running ones (graceful node shutdown, KEP-2000).
    ShuttingDown,
    /// The machine is off.
    Off,
}

/// How a container ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    pub code: i32,
    /// Termination message, truncated as by a kubelet.
    pub message: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerAttempt {
    pub container: String,
    /// `restartCount` of this start.
    pub attempt: i32,
}

/// A write to the API server.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// The kubelet's status of the pod.
    Status(Box<PodStatus>),
    /// Deletion with grace period 0, after the containers are gone.
    Remove,
}

#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct SyncResult {
    /// To be written before the next sync.
    pub write: Option<Write>,
    /// Containers that have just started.
    pub started: Vec<ContainerAttempt>,
    /// A container reboots its node now. [`PodBehaviour::boot`] says how the node comes back.
    pub reboots: bool,
    /// Sentinels of earlier attempts, removed before new ones are written.
    pub removed: Vec<SentinelName>,
    /// Newly written sentinels.
    pub sentinels: Vec<(SentinelName, SentinelReport)>,
    /// When to sync again, unless the Pod, the machine or the behaviour changes before.
    pub wake: Option<Timestamp>,
}

impl SyncResult {
    /// Applies the changes of sentinels to a machine.
    pub fn keep_sentinels(&self, machine: &mut Machine) {
        for name in &self.removed {
            machine.sentinels.remove(name);
        }
        machine.sentinels.extend(self.sentinels.iter().cloned());
    }
}

#[derive(Clone, Debug, Default)]
pub struct PodLifecycle {
    status: PodStatus,
    /// When the kubelet first saw that the pod must stop.
    stopping_since: Option<Timestamp>,
    /// Reported ends, by container and attempt.
    exits: Vec<(ContainerAttempt, Exit)>,
    /// Restart counts before the first start of this boot: a restarted kubelet forgets its back-offs.
    restarts_before_boot: Vec<(String, i32)>,
}

impl PodLifecycle {
    /// Continues a pod from its status.
    #[must_use]
    pub fn adopt(pod: &Pod) -> Self {
        let meta = &pod.metadata;
        // The deletion timestamp is the end of the grace period; the pod began to stop when that period began.
        let grace = SignedDuration::from_secs(meta.deletion_grace_period_seconds.unwrap_or_default());
        let stopping_since = meta
            .deletion_timestamp
            .as_ref()
            .map(|until| later(until.0, -grace));
        Self {
            status: pod.status.clone().unwrap_or_default(),
            stopping_since,
            ..Self::default()
        }
    }

    /// The status as the kubelet knows it.
    #[must_use]
    pub fn status(&self) -> &PodStatus {
        &self.status
    }

    /// Computes the next result. A repeated call at the same time without a change writes nothing.
    pub fn sync(
        &mut self,
        pod: &Pod,
        machine: &Machine,
        behaviour: &PodBehaviour,
        now: Timestamp,
    ) -> SyncResult {
        if machine.power == Power::Off {
            return SyncResult::default();
        }
        // A terminal phase is final, also in another boot.
        if is_terminal(self.status.phase.as_deref()) {
            return SyncResult {
                write: removal(pod),
                ..SyncResult::default()
            };
        }
        SyncPass::new(self, pod, machine, behaviour, now).map_or_else(SyncResult::default, SyncPass::run)
    }

    /// Reports the end of a container with a real effect.
    pub fn report_exit(&mut self, started: ContainerAttempt, exit: Exit) {
        self.exits
            .retain(|(known, _)| known.container != started.container);
        self.exits.push((started, exit));
    }

    pub fn running(&self) -> impl Iterator<Item = ContainerAttempt> {
        let inits = self.status.init_container_statuses.iter().flatten();
        inits
            .chain(self.status.container_statuses.iter().flatten())
            .filter(|status| containers::is_running(status))
            .map(|status| ContainerAttempt {
                container: status.name.clone(),
                attempt: status.restart_count,
            })
    }
}

pub(super) fn is_terminal(phase: Option<&str>) -> bool {
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Removes a terminated pod that is being deleted; without a grace period the API server removes it itself.
fn removal(pod: &Pod) -> Option<Write> {
    let wanted =
        pod.metadata.deletion_timestamp.is_some() && pod.metadata.deletion_grace_period_seconds != Some(0);
    wanted.then_some(Write::Remove)
}

/// FNV-1a, 64 bits, with a zero byte after each part. Stable across machines, which std's `Hasher` does not guarantee.
fn fnv1a(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn later(time: Timestamp, duration: SignedDuration) -> Timestamp {
    time.checked_add(duration).unwrap_or(Timestamp::MAX)
}
