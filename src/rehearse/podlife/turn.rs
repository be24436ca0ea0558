//! One look of the kubelet at one pod: what has become due is done, and the status that follows is written.

mod run;
mod stop;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, HostIP, Pod, PodIP, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::behaviour::{ContainerBehaviour, PLAIN, is_sidecar};
use super::report::{self, Look, Statuses};
use super::{Behaviour, Exit, Life, Machine, Started, Step, Write};
use super::{admission, containers, is_terminal, later};
use crate::api::{SentinelName, SentinelReport};

pub(super) struct Turn<'a> {
    life: &'a mut Life,
    pod: &'a Pod,
    spec: &'a PodSpec,
    machine: &'a Machine,
    behaviour: &'a Behaviour,
    now: Timestamp,
    boot_tag: String,
    /// Statuses of the containers, each in the place that it has in the spec.
    inits: Vec<ContainerStatus>,
    regulars: Vec<ContainerStatus>,
    changed: bool,
    /// Containers that ended in this turn.
    ended: Vec<Slot>,
    started: Vec<Started>,
    reboots: bool,
    removed: Vec<SentinelName>,
    sentinels: Vec<(SentinelName, SentinelReport)>,
    wake: Option<Timestamp>,
}

/// One of the pod's containers: the n-th of those before the others, or of the others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slot {
    Init(usize),
    Regular(usize),
}

impl<'a> Turn<'a> {
    /// None for a Pod without a spec, which no API server has.
    pub(super) fn new(
        life: &'a mut Life,
        pod: &'a Pod,
        machine: &'a Machine,
        behaviour: &'a Behaviour,
        now: Timestamp,
    ) -> Option<Self> {
        let spec = pod.spec.as_ref()?;
        let init_containers = spec.init_containers.as_deref().unwrap_or_default();
        let reason = if init_containers.is_empty() {
            "ContainerCreating"
        } else {
            "PodInitializing"
        };
        let inits = place(
            init_containers,
            life.status.init_container_statuses.take(),
            reason,
        );
        let regulars = place(&spec.containers, life.status.container_statuses.take(), reason);
        let boot_tag = containers::boot_tag(&machine.boot_id);
        let (changed, ended, started, reboots, wake) = (false, Vec::new(), Vec::new(), false, None);
        Some(Self {
            life,
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

    pub(super) fn take(mut self) -> Step {
        if self.life.status.start_time.is_none() {
            let deleted = self.pod.metadata.deletion_timestamp.is_some();
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
        let rebooted = self.notice_boot();
        match self.order() {
            Some(order) => self.stop(&order),
            // What the last boot left is told before anything new begins.
            None if rebooted => self.report(),
            None => {
                self.proceed();
                self.report();
            }
        }
        self.step()
    }

    fn step(mut self) -> Step {
        let tellable = self.is_tellable();
        self.regulars.sort_by(|a, b| a.name.cmp(&b.name));
        let status = &mut self.life.status;
        status.init_container_statuses = (!self.inits.is_empty()).then_some(self.inits);
        status.container_statuses = Some(self.regulars);
        let write = (self.changed && tellable).then(|| Write::Status(Box::new(status.clone())));
        Step {
            write,
            started: self.started,
            reboots: self.reboots,
            removed: self.removed,
            sentinels: self.sentinels,
            wake: self.wake,
        }
    }

    /// When a reboot makes init containers run again that had succeeded, the API server would refuse to hear that they run
    /// (with `OnFailure` they must stay terminated): a kubelet keeps it to itself until they have ended again.
    fn is_tellable(&self) -> bool {
        let again = |slot: Slot| {
            let status = self.container(slot);
            let last = status
                .last_state
                .as_ref()
                .and_then(|state| state.terminated.as_ref());
            containers::is_running(status) && last.is_some_and(|last| !self.restarts(slot, last.exit_code))
        };
        self.spec.restart_policy.as_deref() == Some("Always") || !self.slots().any(again)
    }

    // -- admission

    fn reject(self, rejection: admission::Rejection) -> Step {
        let status = &mut self.life.status;
        status.phase = Some("Failed".to_owned());
        status.reason = Some(rejection.reason);
        status.message = Some(rejection.message);
        status.start_time = Some(Time(self.now));
        status.observed_generation = self.pod.metadata.generation;
        Step {
            write: Some(Write::Status(Box::new(status.clone()))),
            ..Step::default()
        }
    }

    /// The pod is the kubelet's from now on.
    fn begin(&mut self) {
        self.changed = true;
        let ip = &self.machine.ip;
        let status = &mut self.life.status;
        status.start_time = Some(Time(self.now));
        status.host_ip = Some(ip.clone());
        status.host_ips = Some(vec![HostIP { ip: ip.clone() }]);
        if self.spec.host_network == Some(true) {
            status.pod_ip = Some(ip.clone());
            status.pod_ips = Some(vec![PodIP { ip: ip.clone() }]);
        }
    }

    // -- reboot

    /// Containers of an earlier boot do not run, whatever the status says. Whether there was one.
    fn notice_boot(&mut self) -> bool {
        let mut noticed = false;
        for slot in self.slots() {
            if containers::is_running(self.container(slot)) && !self.is_of_this_boot(slot) {
                let at = self.machine.booted_at;
                containers::end(
                    self.container_mut(slot),
                    Exit {
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

    fn is_of_this_boot(&self, slot: Slot) -> bool {
        self.container(slot)
            .container_id
            .as_deref()
            .is_some_and(|id| id.ends_with(&self.boot_tag))
    }

    /// Whether the pod has a sandbox: a container has been started in this boot.
    fn has_sandbox(&self) -> bool {
        self.slots().any(|slot| self.is_of_this_boot(slot))
    }

    /// Whether containers were started before this boot, and none since.
    fn lost_its_sandbox(&self) -> bool {
        !self.has_sandbox()
            && self
                .slots()
                .any(|slot| self.container(slot).container_id.is_some())
    }

    // -- the report

    /// Brings phase and conditions up to date. The phase of a pod that is over follows once everything is torn down.
    fn report(&mut self) {
        if self.changed {
            self.tell_back_offs();
        }
        let phase = self.phase(false);
        if !is_terminal(Some(phase)) {
            self.condition(phase, self.has_sandbox());
            self.set_phase(phase);
            return;
        }
        let exits = self
            .slots()
            .filter_map(|slot| containers::last_exit(self.container(slot)));
        let ended_at = exits
            .filter_map(containers::finished_at)
            .max()
            .unwrap_or(self.now);
        if self.runs() || !self.due(later(ended_at, self.behaviour.teardown)) {
            self.condition(phase, self.has_sandbox() && !self.has_stopped_sidecars());
            return;
        }
        self.lose_the_rest();
        self.condition(phase, false);
        self.set_phase(phase);
    }

    fn phase(&self, stopped: bool) -> &'static str {
        report::phase(self.spec, &self.statuses(), stopped)
    }

    fn set_phase(&mut self, phase: &str) {
        if self.life.status.phase.as_deref() != Some(phase) {
            self.changed = true;
            self.life.status.phase = Some(phase.to_owned());
        }
    }

    /// Brings the kubelet's conditions up to date. Those of others stand before them and are as the Pod has them.
    fn condition(&mut self, phase: &'static str, sandbox: bool) {
        let look = Look {
            phase,
            sandbox,
            generation: self.pod.metadata.generation,
            now: self.now,
        };
        let old = self.life.status.conditions.as_deref().unwrap_or_default();
        let own = report::conditions(self.spec, &self.statuses(), old, &look);
        let same = old.iter().filter(|condition| report::is_own(condition)).eq(&own);
        self.changed |= !same || self.life.status.observed_generation != look.generation;
        let others = self
            .pod
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        let others = others.filter(|condition| !report::is_own(condition)).cloned();
        self.life.status.conditions = Some(others.chain(own).collect());
        self.life.status.observed_generation = look.generation;
    }

    // -- small things

    /// Whether the time has come. If not, it will be looked at then.
    fn due(&mut self, at: Timestamp) -> bool {
        if at > self.now {
            self.wake_at(at);
        }
        at <= self.now
    }

    fn wake_at(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }

    fn runs(&self) -> bool {
        self.slots()
            .any(|slot| containers::is_running(self.container(slot)))
    }

    fn restarts(&self, slot: Slot, code: i32) -> bool {
        report::restarts(self.spec, self.spec_of(slot), matches!(slot, Slot::Init(_)), code)
    }

    fn statuses(&self) -> Statuses<'_> {
        Statuses {
            inits: &self.inits,
            regulars: &self.regulars,
        }
    }

    fn container(&self, slot: Slot) -> &ContainerStatus {
        match slot {
            Slot::Init(index) => &self.inits[index],
            Slot::Regular(index) => &self.regulars[index],
        }
    }

    fn container_mut(&mut self, slot: Slot) -> &mut ContainerStatus {
        match slot {
            Slot::Init(index) => &mut self.inits[index],
            Slot::Regular(index) => &mut self.regulars[index],
        }
    }

    fn spec_of(&self, slot: Slot) -> &'a Container {
        match slot {
            Slot::Init(index) => &self.spec.init_containers.as_deref().unwrap_or_default()[index],
            Slot::Regular(index) => &self.spec.containers[index],
        }
    }

    fn behaviour_of(&self, slot: Slot) -> &'a ContainerBehaviour {
        let behaviour = match slot {
            Slot::Init(index) => self.behaviour.init.get(index),
            Slot::Regular(index) => self.behaviour.regular.get(index),
        };
        behaviour.unwrap_or(&PLAIN)
    }

    fn is_sidecar(&self, slot: Slot) -> bool {
        matches!(slot, Slot::Init(_)) && is_sidecar(self.spec_of(slot))
    }

    fn init_slots(&self) -> impl DoubleEndedIterator<Item = Slot> + use<> {
        (0..self.inits.len()).map(Slot::Init)
    }

    fn regular_slots(&self) -> impl Iterator<Item = Slot> + use<> {
        (0..self.regulars.len()).map(Slot::Regular)
    }

    fn slots(&self) -> impl Iterator<Item = Slot> + use<> {
        self.init_slots().chain(self.regular_slots())
    }
}

/// The statuses in the order of the spec; a container that has none waits.
fn place(spec: &[Container], statuses: Option<Vec<ContainerStatus>>, reason: &str) -> Vec<ContainerStatus> {
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
