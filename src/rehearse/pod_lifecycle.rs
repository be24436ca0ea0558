//! The lifecycle of a pod on a kubelet: given the Pod, its machine, its behaviour and the time, this computes the next
//! status and when to sync again.
//!
//! A status says what refit, its drains and the controllers of a cluster read: phase, Ready, and the state of each
//! container. A sidecar (KEP-753) is an init container like any other. A [`PodLifecycle`] can continue from the Pod's
//! status alone, with a precision of a second.
//!
//! It must not use a clock, randomness or a connection.

mod behaviour;
mod command;
mod refit_container;
mod state;
mod steering;
mod step;
mod stop;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, Taint};

pub use behaviour::{Boot, ComesBack, Defaults, Delay, PodBehaviour, Reboots};
pub use command::ContainerStart;
pub use state::{ContainerAttempt, Exit};
use state::{PodState, State};
pub use steering::STEERING_PREFIX;
use step::Step;

use crate::json::Value;
use refit_api::{SentinelName, SentinelReport};

/// The machine of a pod, as its kubelet knows it.
#[derive(Clone, Debug)]
pub struct Machine {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    pub power: Power,
    /// `status.nodeInfo.bootID`. No container survives a change.
    pub boot_id: String,
    /// Start of this boot, which is reported as the end of containers of earlier boots.
    pub booted_at: Timestamp,
    /// Sentinels in `/run`. A new boot has none.
    pub sentinels: BTreeMap<SentinelName, SentinelReport>,
    /// Number of starts by name of the container.
    pub runs: BTreeMap<String, u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Power {
    #[default]
    On,
    Off,
}

/// A write to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// [`PodLifecycle::status`].
    Status,
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
    /// Changes of sentinels; those without a report are removed.
    pub sentinels: Vec<(SentinelName, Option<SentinelReport>)>,
    /// When to sync again, unless the Pod, the machine or the behaviour changes before.
    pub wake: Option<Timestamp>,
}

impl SyncResult {
    /// Applies what the containers did to their machine.
    pub fn apply(&self, machine: &mut Machine) {
        for started in &self.started {
            *machine.runs.entry(started.container.clone()).or_default() += 1;
        }
        for (name, report) in &self.sentinels {
            match report {
                Some(report) => machine.sentinels.insert(name.clone(), report.clone()),
                None => machine.sentinels.remove(name),
            };
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct PodLifecycle {
    state: PodState,
    /// When the kubelet first saw that the pod must stop.
    stopping_since: Option<Timestamp>,
    /// Reported ends, by container and attempt.
    exits: Vec<(ContainerAttempt, Exit)>,
}

impl PodLifecycle {
    /// Continues a pod from its status.
    #[must_use]
    pub fn adopt(pod: &Pod) -> Self {
        let meta = &pod.metadata;
        // The deletion timestamp is the end of the grace period; the pod began to stop when that period began.
        let grace = SignedDuration::from_secs(meta.deletion_grace_period_seconds.unwrap_or_default());
        Self {
            state: PodState::read(pod),
            stopping_since: meta
                .deletion_timestamp
                .as_ref()
                .map(|until| later(until.0, -grace)),
            exits: Vec::new(),
        }
    }

    /// The status as the kubelet knows it.
    #[must_use]
    pub fn status(&self) -> Value {
        self.state.status()
    }

    /// Computes the next result. A repeated call at the same time without a change writes nothing.
    pub fn sync(
        &mut self,
        pod: &Pod,
        machine: &Machine,
        behaviour: &PodBehaviour,
        now: Timestamp,
    ) -> SyncResult {
        let mut result = SyncResult::default();
        let Some(spec) = pod.spec.as_ref().filter(|_| machine.power == Power::On) else {
            return result;
        };
        // A terminal phase is final, also in another boot. Without a grace period the API server removes the pod itself.
        if self.state.is_terminal() {
            let is_deleted = pod.metadata.deletion_timestamp.is_some();
            let removes = is_deleted && pod.metadata.deletion_grace_period_seconds != Some(0);
            result.write = removes.then_some(Write::Remove);
            return result;
        }
        let before = self.state.clone();
        Step {
            pod,
            spec,
            machine,
            behaviour,
            now,
            exits: &self.exits,
            stopping_since: &mut self.stopping_since,
            state: &mut self.state,
            result: &mut result,
        }
        .run();
        result.write = (self.state != before).then_some(Write::Status);
        result
    }

    /// Reports the end of a container with a real effect.
    pub fn report_exit(&mut self, started: ContainerAttempt, exit: Exit) {
        self.exits
            .retain(|(known, _)| known.container != started.container);
        self.exits.push((started, exit));
    }

    pub fn running(&self) -> impl Iterator<Item = ContainerAttempt> {
        let containers = self.state.containers.iter();
        let running = containers.filter(|container| matches!(container.state, State::Running(_)));
        running.map(state::Container::attempt)
    }
}

fn later(time: Timestamp, duration: SignedDuration) -> Timestamp {
    time.checked_add(duration).unwrap_or(Timestamp::MAX)
}
