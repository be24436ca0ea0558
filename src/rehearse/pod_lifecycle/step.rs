//! One step of a pod's state machine: `Pending → (init containers, one by one) → Running → Succeeded or Failed`.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodSpec};

use super::behaviour::{ContainerBehaviour, PLAIN};
use super::refit_container::{self, Outcome};
use super::state::{Container, End, Phase, PodState, State};
use super::{ComesBack, ContainerAttempt, Delay, Exit, Machine, PodBehaviour, Reboots, SyncResult, later};
use refit_cluster::node_fit::{selects, tolerates};

/// Maximum back-off (`MaxContainerBackOff`).
const MAX_BACKOFF: SignedDuration = SignedDuration::from_mins(5);
/// What containerd reports for a container whose end it has not seen (`unknownExitCode`).
const UNSEEN: i32 = 255;

pub(super) struct Step<'a> {
    pub(super) pod: &'a Pod,
    pub(super) spec: &'a PodSpec,
    pub(super) machine: &'a Machine,
    pub(super) behaviour: &'a PodBehaviour,
    pub(super) now: Timestamp,
    pub(super) exits: &'a [(ContainerAttempt, Exit)],
    pub(super) stopping_since: &'a mut Option<Timestamp>,
    pub(super) state: &'a mut PodState,
    pub(super) result: &'a mut SyncResult,
}

impl<'a> Step<'a> {
    pub(super) fn run(mut self) {
        if self.state.accepted_at.is_none() {
            self.state.accepted_at = Some(self.now);
            // The kubelet does not check a pod that it would only terminate (`HandlePodAdditions`).
            let is_deleted = self.pod.metadata.deletion_timestamp.is_some();
            if let Some(reason) = self.refusal().filter(|_| !is_deleted) {
                self.state.reason = reason.split(':').next().map(str::to_owned);
                self.state.phase = Phase::Failed;
                self.state.containers.clear();
                return;
            }
        }
        let is_rebooted = self.end_earlier_boots();
        match self.stop_order() {
            Some(order) => self.stop(&order),
            // The effect of a reboot is reported before anything starts.
            None if is_rebooted => self.state.phase = self.phase(),
            None => self.advance(),
        }
        let mut regulars = self.state.containers.iter().filter(|one| !one.is_init);
        let ready =
            self.state.phase == Phase::Running && regulars.all(|one| matches!(one.state, State::Running(_)));
        if self.state.ready.is_none_or(|(was_ready, _)| was_ready != ready) {
            self.state.ready = Some((ready, self.now));
        }
    }

    /// Why the kubelet does not run a pod that is bound to its node. Resources are not simulated.
    fn refusal(&self) -> Option<&'a str> {
        let steered = self.behaviour.reject.as_deref();
        let (selector, affinity) = (self.spec.node_selector.as_ref(), self.spec.affinity.as_ref());
        let affinity = (!selects(selector, affinity, &self.machine.name, &self.machine.labels))
            .then_some("NodeAffinity");
        let tolerations = self.spec.tolerations.as_deref().unwrap_or_default();
        // NoSchedule concerns the scheduler only: Jobs of refit run on a cordoned node.
        let mut evicting = self
            .machine
            .taints
            .iter()
            .filter(|taint| taint.effect == "NoExecute");
        let taint = evicting
            .any(|taint| !tolerations.iter().any(|one| tolerates(one, taint)))
            .then_some("TaintToleration");
        steered.or(affinity).or(taint)
    }

    /// Ends containers of earlier boots, whatever the status says. Returns whether there were any.
    fn end_earlier_boots(&mut self) -> bool {
        let mut any = false;
        for index in 0..self.state.containers.len() {
            let is_running = matches!(self.state.containers[index].state, State::Running(_));
            if is_running && !self.is_of_this_boot(index) {
                let exit = Exit {
                    code: UNSEEN,
                    message: None,
                };
                self.end(index, exit, self.machine.booted_at);
                any = true;
            }
        }
        any
    }

    fn is_of_this_boot(&self, index: usize) -> bool {
        self.state.containers[index].boot.as_ref() == Some(&self.machine.boot_id)
    }

    /// Init containers in order, and then the others side by side.
    fn advance(&mut self) {
        let inits = self.state.containers.iter().filter(|one| one.is_init).count();
        if (0..inits).all(|index| self.drive(index)) {
            for index in inits..self.state.containers.len() {
                self.drive(index);
            }
        }
        self.state.phase = self.phase();
        let mut containers = self.behaviour.containers.iter();
        self.result.reboots |= self.state.phase == Phase::Succeeded
            && self.behaviour.boot.comes_back != ComesBack::SameBoot
            && containers.any(|container| container.reboots == Reboots::Afterwards);
    }

    /// Advances one container. Returns whether it has succeeded for good.
    fn drive(&mut self, index: usize) -> bool {
        if let State::Running(since) = self.state.containers[index].state {
            let Some((exit, at)) = self.exit_now(index, since) else {
                return false;
            };
            self.end(index, exit, at);
        }
        let container = &self.state.containers[index];
        let due = match &container.state {
            State::Ended(end) if !self.restarts(container, end.exit.code) => return end.exit.code == 0,
            State::Ended(end) if self.is_of_this_boot(index) => {
                Some(later(end.at, backoff(self.behaviour.backoff, container.restarts)))
            }
            State::Ended(_) | State::Waiting | State::Running(_) => self.first_start(),
        };
        if due.is_some_and(|due| self.is_due(due)) {
            self.start(index);
        }
        false
    }

    /// Only the first container of a boot waits for the sandbox and the image.
    fn first_start(&self) -> Option<Timestamp> {
        if (0..self.state.containers.len()).any(|index| self.is_of_this_boot(index)) {
            return Some(self.now);
        }
        let Delay::After(delay) = self.behaviour.start else {
            return None;
        };
        let accepted_at = self.state.accepted_at.unwrap_or(self.now);
        Some(later(accepted_at.max(self.machine.booted_at), delay))
    }

    fn start(&mut self, index: usize) {
        let now = self.now;
        let container = &mut self.state.containers[index];
        if let State::Ended(end) = std::mem::replace(&mut container.state, State::Running(now)) {
            container.last = Some(end);
            container.restarts += 1;
        }
        container.boot = Some(self.machine.boot_id.clone());
        self.result.started.push(container.attempt());
    }

    /// How and when a running container ended, if it has.
    fn exit_now(&mut self, index: usize, since: Timestamp) -> Option<(Exit, Timestamp)> {
        let behaviour = self.behaviour_of(index);
        let started = self.state.containers[index].attempt();
        if behaviour.has_task {
            let reported = self.exits.iter().find(|(known, _)| *known == started);
            return reported.map(|(_, exit)| (exit.clone(), self.now));
        }
        let Delay::After(run) = behaviour.run else {
            return None;
        };
        let at = later(since, run);
        if !self.is_due(at) {
            return None;
        }
        // Also of the pod that a Job creates after a failure.
        let runs = self.machine.runs.get(&started.container);
        let is_first = runs.is_none_or(|runs| *runs <= 1);
        let steered = Exit {
            code: behaviour
                .exit_code_first
                .filter(|_| is_first)
                .unwrap_or(behaviour.exit_code),
            message: behaviour.message.clone(),
        };
        let outcome = match behaviour.reboots {
            Reboots::Always => Outcome::Reboots,
            Reboots::Once if is_first => Outcome::Reboots,
            Reboots::Once | Reboots::Not | Reboots::Afterwards => {
                let spec = self
                    .spec
                    .init_containers
                    .iter()
                    .flatten()
                    .chain(&self.spec.containers);
                let spec = spec.into_iter().nth(index)?;
                let required = self.behaviour.reboot_required;
                refit_container::outcome(spec, self.machine, required, steered, &mut self.result.sentinels)
            }
        };
        match outcome {
            Outcome::Ends(exit) => Some((exit, at)),
            Outcome::Reboots => {
                self.result.reboots = self.behaviour.boot.comes_back != ComesBack::SameBoot;
                None
            }
        }
    }

    pub(super) fn end(&mut self, index: usize, exit: Exit, at: Timestamp) {
        self.state.containers[index].state = State::Ended(End { exit, at });
    }

    fn restarts(&self, container: &Container, code: i32) -> bool {
        match self.spec.restart_policy.as_deref() {
            Some("Never") => false,
            Some("OnFailure") => code != 0,
            _ => code != 0 || !container.is_init,
        }
    }

    /// The phase of a pod that nothing stops (`getPhase`).
    fn phase(&self) -> Phase {
        let ended_for_good = |one: &Container| one.exit_code().filter(|code| !self.restarts(one, *code));
        let failed = |one: &&Container| ended_for_good(one).is_some_and(|code| code != 0);
        let (inits, regulars): (Vec<_>, Vec<_>) = self.state.containers.iter().partition(|one| one.is_init);
        if inits.iter().any(failed) {
            Phase::Failed
        } else if inits.iter().any(|one| ended_for_good(one).is_none())
            || regulars.iter().any(|one| one.state == State::Waiting)
        {
            Phase::Pending
        } else if regulars.iter().any(|one| ended_for_good(one).is_none()) {
            Phase::Running
        } else if regulars.iter().any(failed) {
            Phase::Failed
        } else {
            Phase::Succeeded
        }
    }

    /// Whether the time has come. If not, it becomes a wake-up time.
    pub(super) fn is_due(&mut self, at: Timestamp) -> bool {
        if at > self.now {
            self.result.wake = Some(self.result.wake.map_or(at, |wake| wake.min(at)));
        }
        at <= self.now
    }

    pub(super) fn behaviour_of(&self, index: usize) -> &'a ContainerBehaviour {
        self.behaviour.containers.get(index).unwrap_or(&PLAIN)
    }
}

/// The back-off before the next start after so many restarts. The first restart is immediate.
pub(super) fn backoff(first: SignedDuration, restarts: i32) -> SignedDuration {
    let Some(doublings) = u32::try_from(restarts - 1).ok() else {
        return SignedDuration::ZERO;
    };
    first
        .saturating_mul(1 << doublings.min(30))
        .min(MAX_BACKOFF.max(first))
}
