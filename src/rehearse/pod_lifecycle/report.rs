//! The phase and the conditions of a pod.
//!
//! The rules are those of `getPhase` and of `status/generate.go` in Kubernetes 1.36, for pods without restart rules and
//! probes.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, PodCondition, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::behaviour::is_sidecar;
use super::containers::{is_running, is_terminated, last_exit};

/// The kubelet's conditions, in its order.
const READY_TO_START: &str = "PodReadyToStartContainers";
const INITIALIZED: &str = "Initialized";
const READY: &str = "Ready";
const CONTAINERS_READY: &str = "ContainersReady";
const SCHEDULED: &str = "PodScheduled";
const OWN: [&str; 5] = [READY_TO_START, INITIALIZED, READY, CONTAINERS_READY, SCHEDULED];

/// Whether a container that ended with this code is restarted.
pub(super) fn restarts(spec: &PodSpec, container: &Container, before_others: bool, code: i32) -> bool {
    match spec.restart_policy.as_deref() {
        _ if is_sidecar(container) => true,
        Some("Never") => false,
        Some("OnFailure") => code != 0,
        // Also with `Always`, an init container that succeeded does not run again.
        _ => code != 0 || !before_others,
    }
}

/// Container statuses in the order of the spec.
pub(super) struct Statuses<'a> {
    pub(super) inits: &'a [ContainerStatus],
    pub(super) regulars: &'a [ContainerStatus],
}

/// The phase that follows from the container statuses. `stopped` says that no container will be restarted.
pub(super) fn phase(spec: &PodSpec, statuses: &Statuses<'_>, stopped: bool) -> &'static str {
    let mut count = ContainerCounts::default();
    for (container, status) in spec.init_containers.iter().flatten().zip(statuses.inits) {
        if is_sidecar(container) {
            count.sidecar(status);
        } else {
            count.init(spec, container, status);
        }
    }
    for (container, status) in spec.containers.iter().zip(statuses.regulars) {
        count.regular(spec, container, status);
    }
    count.phase(stopped)
}

#[derive(Default)]
struct ContainerCounts {
    pending_inits: usize,
    init_failed: bool,
    running: usize,
    waiting: usize,
    ended: usize,
    ended_for_good: usize,
    succeeded: usize,
}

impl ContainerCounts {
    fn init(&mut self, spec: &PodSpec, container: &Container, status: &ContainerStatus) {
        match last_exit(status) {
            None => self.pending_inits += 1,
            Some(exit) => {
                self.init_failed |= exit.exit_code != 0 && !restarts(spec, container, true, exit.exit_code);
            }
        }
    }

    /// A sidecar that has ended does not affect the phase.
    fn sidecar(&mut self, status: &ContainerStatus) {
        self.running += usize::from(is_running(status));
        self.waiting += usize::from(!is_running(status) && last_exit(status).is_none());
    }

    fn regular(&mut self, spec: &PodSpec, container: &Container, status: &ContainerStatus) {
        match last_exit(status) {
            _ if is_running(status) => self.running += 1,
            None => self.waiting += 1,
            Some(exit) => {
                self.ended += 1;
                self.ended_for_good += usize::from(!restarts(spec, container, false, exit.exit_code));
                self.succeeded += usize::from(is_terminated(status) && exit.exit_code == 0);
            }
        }
    }

    fn phase(&self, stopped: bool) -> &'static str {
        if self.init_failed {
            "Failed"
        } else if self.pending_inits > 0 || self.waiting > 0 {
            "Pending"
        } else if self.running > 0 || !(stopped || self.ended == self.ended_for_good) {
            "Running"
        } else if self.ended == self.succeeded {
            "Succeeded"
        } else {
            "Failed"
        }
    }
}

/// What determines the conditions apart from the statuses.
pub(super) struct ConditionInput {
    /// The phase for the conditions, which may precede the phase in status.
    pub(super) phase: &'static str,
    /// Whether the pod has a sandbox.
    pub(super) sandbox: bool,
    pub(super) generation: Option<i64>,
    pub(super) now: Timestamp,
}

/// Whether the kubelet writes the condition.
pub(super) fn is_own(condition: &PodCondition) -> bool {
    OWN.contains(&condition.type_.as_str())
}

pub(super) fn conditions(
    spec: &PodSpec,
    statuses: &Statuses<'_>,
    old: &[PodCondition],
    input: &ConditionInput,
) -> Vec<PodCondition> {
    let (initialized, initialized_why) = initialized(spec, statuses, input.phase);
    let (ready, ready_why) = ready(spec, statuses, input.phase);
    let verdicts = [
        (READY_TO_START, input.sandbox, ConditionReason::default()),
        (INITIALIZED, initialized, initialized_why),
        (READY, ready, ready_why.clone()),
        (CONTAINERS_READY, ready, ready_why),
        (SCHEDULED, true, ConditionReason::default()),
    ];
    let conditions = verdicts.into_iter().map(|(type_, holds, why)| {
        let verdict = if holds { "True" } else { "False" };
        let known = old.iter().find(|condition| condition.type_ == type_);
        let since = known
            .filter(|known| known.status == verdict)
            .and_then(|known| known.last_transition_time.clone());
        PodCondition {
            type_: type_.to_owned(),
            status: verdict.to_owned(),
            reason: why.reason.map(str::to_owned),
            message: why.message,
            observed_generation: input.generation,
            last_transition_time: since.or(Some(Time(input.now))),
            last_probe_time: None,
        }
    });
    conditions.collect()
}

/// The condition of a pod that the kubelet itself ended (KEP-3329).
pub(super) fn terminated_by_kubelet(message: &str, generation: Option<i64>, now: Timestamp) -> PodCondition {
    PodCondition {
        type_: "DisruptionTarget".to_owned(),
        status: "True".to_owned(),
        reason: Some("TerminationByKubelet".to_owned()),
        message: Some(message.to_owned()),
        observed_generation: generation,
        last_transition_time: Some(Time(now)),
        last_probe_time: None,
    }
}

#[derive(Clone, Default)]
struct ConditionReason {
    reason: Option<&'static str>,
    message: Option<String>,
}

impl ConditionReason {
    fn reason(reason: &'static str) -> Self {
        Self {
            reason: Some(reason),
            message: None,
        }
    }

    /// True if no container prevents it, else false and the names.
    fn unless_none<'a>(
        reason: &'static str,
        what: &str,
        culprits: impl Iterator<Item = &'a ContainerStatus>,
    ) -> (bool, Self) {
        let names: Vec<&str> = culprits.map(|status| status.name.as_str()).collect();
        if names.is_empty() {
            return (true, Self::default());
        }
        let message = format!("containers with {what} status: [{}]", names.join(" "));
        (
            false,
            Self {
                reason: Some(reason),
                message: Some(message),
            },
        )
    }
}

fn initialized(spec: &PodSpec, statuses: &Statuses<'_>, phase: &str) -> (bool, ConditionReason) {
    if phase == "Succeeded" {
        return (true, ConditionReason::reason("PodCompleted"));
    }
    if statuses
        .regulars
        .iter()
        .any(|status| is_running(status) || is_terminated(status))
    {
        return (true, ConditionReason::default());
    }
    let complete = |container: &Container, status: &ContainerStatus| {
        if is_sidecar(container) {
            status.started == Some(true)
        } else {
            status.ready
        }
    };
    let inits = spec.init_containers.iter().flatten().zip(statuses.inits);
    let incomplete = inits
        .filter(|(container, status)| !complete(container, status))
        .map(|(_, status)| status);
    ConditionReason::unless_none("ContainersNotInitialized", "incomplete", incomplete)
}

fn ready(spec: &PodSpec, statuses: &Statuses<'_>, phase: &str) -> (bool, ConditionReason) {
    match phase {
        "Succeeded" => return (false, ConditionReason::reason("PodCompleted")),
        "Failed" => return (false, ConditionReason::reason("PodFailed")),
        _ => {}
    }
    let inits = spec.init_containers.iter().flatten().zip(statuses.inits);
    let sidecars = inits
        .filter(|(container, _)| is_sidecar(container))
        .map(|(_, status)| status);
    let unready = sidecars.chain(statuses.regulars).filter(|status| !status.ready);
    ConditionReason::unless_none("ContainersNotReady", "unready", unready)
}
