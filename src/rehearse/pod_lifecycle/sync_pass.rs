//! One sync of a kubelet with a pod: applies what is due, and returns the status to write.

mod run;
mod stop;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, HostIP, Pod, PodIP, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::behaviour::{ContainerBehaviour, PLAIN, Reboots, is_sidecar};
use super::report::{self, ConditionInput, Statuses};
use super::{
    ContainerAttempt, Exit, Machine, PodBehaviour, PodLifecycle, SyncResult, Write, admission, containers,
    is_terminal, later,
};
use refit_api::{SentinelName, SentinelReport};

pub(super) struct SyncPass<'a> {
    lifecycle: &'a mut PodLifecycle,
    pod: &'a Pod,
    spec: &'a PodSpec,
    machine: &'a Machine,
    behaviour: &'a PodBehaviour,
    now: Timestamp,
    boot_tag: String,
    /// Container statuses in the order of the spec.
    inits: Vec<ContainerStatus>,
    regulars: Vec<ContainerStatus>,
    changed: bool,
    /// Containers that ended during this sync.
    ended: Vec<ContainerIndex>,
    started: Vec<ContainerAttempt>,
    reboots: bool,
    removed: Vec<SentinelName>,
    sentinels: Vec<(SentinelName, SentinelReport)>,
    wake: Option<Timestamp>,
}

/// A container by its index among the init containers, or among the others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ContainerIndex {
    Init(usize),
    Regular(usize),
}

impl<'a> SyncPass<'a> {
    /// `None` for a Pod without a spec.
    pub(super) fn new(
        lifecycle: &'a mut PodLifecycle,
        pod: &'a Pod,
        machine: &'a Machine,
        behaviour: &'a PodBehaviour,
        now: Timestamp,
    ) -> Option<Self> {
        let spec = pod.spec.as_ref()?;
        let init_containers = spec.init_containers.as_deref().unwrap_or_default();
        let reason = if init_containers.is_empty() {
            "ContainerCreating"
        } else {
            "PodInitializing"
        };
        let inits = initial_statuses(
            init_containers,
            lifecycle.status.init_container_statuses.take(),
            reason,
        );
        let regulars = initial_statuses(
            &spec.containers,
            lifecycle.status.container_statuses.take(),
            reason,
        );
        let boot_tag = containers::boot_tag(&machine.boot_id);
        let (changed, ended, started, reboots, wake) = (false, Vec::new(), Vec::new(), false, None);
        Some(Self {
            lifecycle,
            pod,
            spec,
            machine,
            behaviour,
            now,
            boot_tag,
            inits,
            regulars,
            changed,
            ended,
            started,
            reboots,
            removed: Vec::new(),
            sentinels: Vec::new(),
            wake,
        })
    }

    pub(super) fn run(mut self) -> SyncResult {
        if self.lifecycle.status.start_time.is_none() {
            let deleted = self.pod.metadata.deletion_timestamp.is_some();
            // The kubelet does not check a pod that it would only terminate (`HandlePodAdditions`).
            let rejection = if deleted {
                None
            } else {
                admission::refuse(self.pod, self.machine, self.behaviour)
            };
            if let Some(rejection) = rejection {
                return self.reject(rejection);
            }
            self.begin();
        }
        let rebooted = self.detect_reboot();
        match self.stop_order() {
            Some(order) => self.stop(&order),
            // The effect of the last reboot is reported before anything starts.
            None if rebooted => self.report(),
            None => {
                self.proceed();
                self.report();
            }
        }
        self.finish()
    }

    fn finish(mut self) -> SyncResult {
        let reportable = self.is_reportable();
        // As in `convertToAPIContainerStatuses`. Init containers keep the order of the spec.
        self.regulars.sort_by(|a, b| a.name.cmp(&b.name));
        let status = &mut self.lifecycle.status;
        status.init_container_statuses = (!self.inits.is_empty()).then_some(self.inits);
        status.container_statuses = Some(self.regulars);
        let write = (self.changed && reportable).then(|| Write::Status(Box::new(status.clone())));
        SyncResult {
            write,
            started: self.started,
            reboots: self.reboots,
            removed: self.removed,
            sentinels: self.sentinels,
            wake: self.wake,
        }
    }

    /// After a reboot, init containers that had succeeded run again. The API server refuses a status in which they run
    /// (with `OnFailure` they must stay terminated), so a kubelet does not report it until they have ended again.
    fn is_reportable(&self) -> bool {
        let again = |index: ContainerIndex| {
            let status = self.container(index);
            let last = status
                .last_state
                .as_ref()
                .and_then(|state| state.terminated.as_ref());
            containers::is_running(status) && last.is_some_and(|last| !self.restarts(index, last.exit_code))
        };
        self.spec.restart_policy.as_deref() == Some("Always") || !self.indices().any(again)
    }

    // -- admission

    fn reject(self, rejection: admission::Rejection) -> SyncResult {
        let status = &mut self.lifecycle.status;
        status.phase = Some("Failed".to_owned());
        status.reason = Some(rejection.reason);
        status.message = Some(rejection.message);
        status.start_time = Some(Time(self.now));
        status.observed_generation = self.pod.metadata.generation;
        SyncResult {
            write: Some(Write::Status(Box::new(status.clone()))),
            ..SyncResult::default()
        }
    }

    /// The kubelet accepts the pod.
    fn begin(&mut self) {
        self.changed = true;
        let ip = &self.machine.ip;
        let status = &mut self.lifecycle.status;
        status.start_time = Some(Time(self.now));
        status.host_ip = Some(ip.clone());
        status.host_ips = Some(vec![HostIP { ip: ip.clone() }]);
        // In the host network, the address of the pod is known before it has a sandbox.
        if self.spec.host_network == Some(true) {
            status.pod_ip = Some(ip.clone());
            status.pod_ips = Some(vec![PodIP { ip: ip.clone() }]);
        }
    }

    // -- reboot

    /// Ends containers of earlier boots, whatever the status says. Returns whether there were any.
    fn detect_reboot(&mut self) -> bool {
        let mut noticed = false;
        for index in self.indices() {
            if containers::is_running(self.container(index)) && !self.is_of_this_boot(index) {
                let at = self.machine.booted_at;
                containers::end(
                    self.container_mut(index),
                    Exit {
                        // The exit code of containerd for a container whose end it has not seen (`unknownExitCode`).
                        code: 255,
                        message: None,
                    },
                    "Unknown",
                    at,
                    false,
                );
                noticed = true;
            }
        }
        self.changed |= noticed;
        noticed
    }

    fn is_of_this_boot(&self, index: ContainerIndex) -> bool {
        self.container(index)
            .container_id
            .as_deref()
            .is_some_and(|id| id.ends_with(&self.boot_tag))
    }

    /// Whether a container has been started in this boot, and so the pod has a sandbox.
    fn has_sandbox(&self) -> bool {
        self.indices().any(|index| self.is_of_this_boot(index))
    }

    /// Whether containers were started before this boot and none in it.
    fn lost_its_sandbox(&self) -> bool {
        !self.has_sandbox()
            && self
                .indices()
                .any(|index| self.container(index).container_id.is_some())
    }

    // -- the report

    /// Updates phase and conditions. The terminal phase follows once all containers are torn down.
    fn report(&mut self) {
        if self.changed {
            self.report_back_offs();
        }
        let phase = self.phase(false);
        if !is_terminal(Some(phase)) {
            self.condition(phase, self.has_sandbox());
            self.set_phase(phase);
            return;
        }
        let exits = self
            .indices()
            .filter_map(|index| containers::last_exit(self.container(index)));
        let ended_at = exits
            .filter_map(containers::finished_at)
            .max()
            .unwrap_or(self.now);
        if self.runs() || !self.requeue_unless_reached(later(ended_at, self.behaviour.teardown)) {
            self.condition(phase, self.has_sandbox() && !self.has_stopped_sidecars());
            return;
        }
        self.lose_unstarted();
        self.condition(phase, false);
        let has_succeeded = phase == "Succeeded" && self.lifecycle.status.phase.as_deref() != Some(phase);
        let mut containers = self.behaviour.init.iter().chain(&self.behaviour.regular);
        self.reboots |= has_succeeded && containers.any(|it| it.reboots == Reboots::Afterwards);
        self.set_phase(phase);
    }

    fn phase(&self, stopped: bool) -> &'static str {
        report::phase(self.spec, &self.statuses(), stopped)
    }

    fn set_phase(&mut self, phase: &str) {
        if self.lifecycle.status.phase.as_deref() != Some(phase) {
            self.changed = true;
            self.lifecycle.status.phase = Some(phase.to_owned());
        }
    }

    /// Updates the kubelet's conditions, and keeps those of other writers before them.
    fn condition(&mut self, phase: &'static str, sandbox: bool) {
        let input = ConditionInput {
            phase,
            sandbox,
            generation: self.pod.metadata.generation,
            now: self.now,
        };
        let old = self.lifecycle.status.conditions.as_deref().unwrap_or_default();
        let own = report::conditions(self.spec, &self.statuses(), old, &input);
        let same = old.iter().filter(|condition| report::is_own(condition)).eq(&own);
        self.changed |= !same || self.lifecycle.status.observed_generation != input.generation;
        let others = self
            .pod
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        let others = others.filter(|condition| !report::is_own(condition)).cloned();
        self.lifecycle.status.conditions = Some(others.chain(own).collect());
        self.lifecycle.status.observed_generation = input.generation;
    }

    // -- small things

    /// Whether the time has come. If not, it becomes a wake-up time.
    fn requeue_unless_reached(&mut self, at: Timestamp) -> bool {
        if at > self.now {
            self.requeue(at);
        }
        at <= self.now
    }

    fn requeue(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }

    fn runs(&self) -> bool {
        self.indices()
            .any(|index| containers::is_running(self.container(index)))
    }

    fn restarts(&self, index: ContainerIndex, code: i32) -> bool {
        report::restarts(
            self.spec,
            self.spec_of(index),
            matches!(index, ContainerIndex::Init(_)),
            code,
        )
    }

    fn statuses(&self) -> Statuses<'_> {
        Statuses {
            inits: &self.inits,
            regulars: &self.regulars,
        }
    }

    fn container(&self, index: ContainerIndex) -> &ContainerStatus {
        match index {
            ContainerIndex::Init(index) => &self.inits[index],
            ContainerIndex::Regular(index) => &self.regulars[index],
        }
    }

    fn container_mut(&mut self, index: ContainerIndex) -> &mut ContainerStatus {
        match index {
            ContainerIndex::Init(index) => &mut self.inits[index],
            ContainerIndex::Regular(index) => &mut self.regulars[index],
        }
    }

    fn spec_of(&self, index: ContainerIndex) -> &'a Container {
        match index {
            ContainerIndex::Init(index) => &self.spec.init_containers.as_deref().unwrap_or_default()[index],
            ContainerIndex::Regular(index) => &self.spec.containers[index],
        }
    }

    fn behaviour_of(&self, index: ContainerIndex) -> &'a ContainerBehaviour {
        let behaviour = match index {
            ContainerIndex::Init(index) => self.behaviour.init.get(index),
            ContainerIndex::Regular(index) => self.behaviour.regular.get(index),
        };
        behaviour.unwrap_or(&PLAIN)
    }

    fn is_sidecar(&self, index: ContainerIndex) -> bool {
        matches!(index, ContainerIndex::Init(_)) && is_sidecar(self.spec_of(index))
    }

    fn init_indices(&self) -> impl DoubleEndedIterator<Item = ContainerIndex> + use<> {
        (0..self.inits.len()).map(ContainerIndex::Init)
    }

    fn regular_indices(&self) -> impl Iterator<Item = ContainerIndex> + use<> {
        (0..self.regulars.len()).map(ContainerIndex::Regular)
    }

    fn indices(&self) -> impl Iterator<Item = ContainerIndex> + use<> {
        self.init_indices().chain(self.regular_indices())
    }
}

/// The statuses in the order of the spec; a container without one is waiting.
fn initial_statuses(
    spec: &[Container],
    statuses: Option<Vec<ContainerStatus>>,
    reason: &str,
) -> Vec<ContainerStatus> {
    let mut statuses = statuses.unwrap_or_default();
    spec.iter()
        .map(
            |container| match statuses.iter().position(|status| status.name == container.name) {
                Some(index) => statuses.swap_remove(index),
                None => containers::waiting(container, reason),
            },
        )
        .collect()
}
