//! The life of a pod on a kubelet: given the Pod, its machine, how it is to behave and the time, which status comes next
//! and when to look again.
//!
//! Phases, conditions and container statuses are those that a kubelet of Kubernetes 1.36 writes (`tests/facts` holds what one
//! wrote). Two looks that a real kubelet would report one after the other may be one status here; nothing else is left out but
//! `resources`, `user` and `volumeMounts`. A [`Life`] goes on from the Pod's status alone, to the second; what it remembers
//! beside that makes it exact.
//!
//! It has no clock, no random number and no connection, and it must never need one.

mod admission;
mod behaviour;
mod command;
mod containers;
mod errand;
mod report;
#[cfg(test)]
mod tests;
mod turn;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodStatus, Taint};

pub(in crate::rehearse) use admission::{selects, tolerates};
pub use behaviour::{Behaviour, Boot, ComesBack, Defaults, Delay, Reboots, STEERING_PREFIX, SteeringError};
pub use command::ContainerStart;
use turn::Turn;

use crate::api::{SentinelName, SentinelReport};

/// The machine under a pod, as its kubelet knows it.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Name of the Node.
    pub name: String,
    /// Labels of the Node.
    pub labels: BTreeMap<String, String>,
    /// Taints of the Node.
    pub taints: Vec<Taint>,
    /// The node's address, and that of its pods on the host's network.
    pub ip: String,
    /// Whether the kubelet runs.
    pub power: Power,
    /// `status.nodeInfo.bootID`: containers do not outlive it.
    pub boot_id: String,
    /// When this boot began. Containers of an earlier one are said to have ended then.
    pub booted_at: Timestamp,
    /// The sentinels below `/run`, by name: what [`Step::keep_sentinels`] has left in this boot. A boot begins without any.
    pub sentinels: BTreeMap<SentinelName, SentinelReport>,
}

/// Whether the kubelet runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Power {
    /// It runs.
    #[default]
    On,
    /// It refuses pods and ends those that run (graceful node shutdown, KEP-2000).
    ShuttingDown,
    /// Nothing happens and nothing is said.
    Off,
}

/// How a container ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    /// Exit code; anything but 0 is a failure.
    pub code: i32,
    /// Termination message, cut as a kubelet cuts it.
    pub message: Option<String>,
}

/// A container that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// Name of the container.
    pub container: String,
    /// `restartCount` of this start.
    pub attempt: i32,
}

/// What is to be told to the API server.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// The status, whole as far as it is the kubelet's.
    Status(Box<PodStatus>),
    /// Deletion with a grace period of 0: the containers are gone.
    Remove,
}

/// What comes next in a pod's life.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct Step {
    /// To be written. The next step is asked for once it has been.
    pub write: Option<Write>,
    /// Containers that were started just now.
    pub started: Vec<Started>,
    /// A container reboots its node now. [`Behaviour::boot`] says how the node comes back.
    pub reboots: bool,
    /// Sentinels of earlier tries that were removed just now, before others were written.
    pub removed: Vec<SentinelName>,
    /// Sentinels that were written just now.
    pub sentinels: Vec<(SentinelName, SentinelReport)>,
    /// When something is next to happen, unless the Pod, the machine or the behaviour changes before.
    pub wake: Option<Timestamp>,
}

impl Step {
    /// Carries out on a machine what the step does to its sentinels.
    pub fn keep_sentinels(&self, machine: &mut Machine) {
        for name in &self.removed {
            machine.sentinels.remove(name);
        }
        machine.sentinels.extend(self.sentinels.iter().cloned());
    }
}

/// A pod on its kubelet.
#[derive(Clone, Debug, Default)]
pub struct Life {
    status: PodStatus,
    /// When it was first seen that the pod must end.
    stopping_since: Option<Timestamp>,
    /// Ends that were reported, by container and attempt.
    exits: Vec<(Started, Exit)>,
    /// Restart counts before the first start of this boot: a kubelet forgets its back-offs when it starts.
    restarts_before_boot: Vec<(String, i32)>,
}

impl Life {
    /// Takes up a pod where its status says that it is.
    #[must_use]
    pub fn adopt(pod: &Pod) -> Self {
        let meta = &pod.metadata;
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

    /// What comes next. Asking again at the same time without a change gives no second write.
    pub fn step(&mut self, pod: &Pod, machine: &Machine, behaviour: &Behaviour, now: Timestamp) -> Step {
        if machine.power == Power::Off {
            return Step::default();
        }
        if is_terminal(self.status.phase.as_deref()) {
            return Step {
                write: removal(pod),
                ..Step::default()
            };
        }
        Turn::new(self, pod, machine, behaviour, now).map_or_else(Step::default, Turn::take)
    }

    /// A container whose effect is real has ended.
    pub fn report(&mut self, started: Started, exit: Exit) {
        self.exits
            .retain(|(known, _)| known.container != started.container);
        self.exits.push((started, exit));
    }

    /// The containers that run.
    pub fn running(&self) -> impl Iterator<Item = Started> {
        let inits = self.status.init_container_statuses.iter().flatten();
        inits
            .chain(self.status.container_statuses.iter().flatten())
            .filter(|status| containers::is_running(status))
            .map(|status| Started {
                container: status.name.clone(),
                attempt: status.restart_count,
            })
    }
}

/// Whether a pod in this phase has come to its end.
pub(super) fn is_terminal(phase: Option<&str>) -> bool {
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// A pod that has ended is deleted when somebody wants it to be; one without a grace period the API server deletes itself.
fn removal(pod: &Pod) -> Option<Write> {
    let wanted =
        pod.metadata.deletion_timestamp.is_some() && pod.metadata.deletion_grace_period_seconds != Some(0);
    wanted.then_some(Write::Remove)
}

/// FNV-1a, 64 bits, with a zero byte after each part: the same on every machine, which a `Hasher` of std does not promise.
fn fnv1a(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn later(time: Timestamp, duration: SignedDuration) -> Timestamp {
    time.checked_add(duration).unwrap_or(Timestamp::MAX)
}
