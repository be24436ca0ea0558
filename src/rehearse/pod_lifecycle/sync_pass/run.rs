//! Runs a pod that is not being stopped: init containers in order, then the others, with restarts and back-offs.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PodIP;

use super::{ContainerIndex, SyncPass};
use crate::pod_lifecycle::refit_container::{RebootEnd, RefitContainer};
use crate::pod_lifecycle::{
    ComesBack, ContainerAttempt, Delay, Exit, Reboots, containers, fnv1a, later, refit_container,
};
use refit_api::SentinelReport;

/// The progress of a container.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Not started, or not restarted yet.
    Waits,
    Runs,
    /// Ended without a restart.
    Succeeded,
    Failed,
}

impl SyncPass<'_> {
    pub(super) fn proceed(&mut self) {
        if self.work_ended_at().is_none() && !self.stays_down() && self.initialize() {
            for index in self.regular_indices() {
                self.drive(index);
            }
        }
        if let Some(at) = self.work_ended_at() {
            self.stop_sidecars(at);
        }
    }

    /// A pod that never restarts, or has nothing left to start, gets no new sandbox after a reboot
    /// (`computePodActions`).
    fn stays_down(&self) -> bool {
        let never = self.spec.restart_policy.as_deref() == Some("Never");
        self.lost_its_sandbox() && (never || self.regular_indices().all(|index| self.is_done(index)))
    }

    /// Runs init containers in order; sidecars keep running. Returns whether the other containers may start.
    fn initialize(&mut self) -> bool {
        let running_before = self.regular_indices().any(|index| self.is_of_this_boot(index));
        for index in self.init_indices() {
            let wanted = if self.is_sidecar(index) {
                Progress::Runs
            } else {
                Progress::Succeeded
            };
            // Once a main container has started in this sandbox, only sidecars start again
            // (`computeInitContainerActions`).
            if running_before && wanted == Progress::Succeeded {
                continue;
            }
            if self.drive(index) != wanted && !running_before {
                return false;
            }
        }
        true
    }

    /// Advances one container.
    fn drive(&mut self, index: ContainerIndex) -> Progress {
        if containers::is_running(self.container(index)) {
            let Some((exit, at)) = self.exit_now(index) else {
                return Progress::Runs;
            };
            self.end(index, exit, at);
        }
        let Some(last) = containers::last_exit(self.container(index)) else {
            return if self.wait_for_start_delay() {
                self.start(index)
            } else {
                Progress::Waits
            };
        };
        let (code, ended_at) = (last.exit_code, containers::finished_at(last).unwrap_or(self.now));
        if !self.is_of_this_boot(index) {
            // In a new sandbox, init containers run again even if they had succeeded.
            let again = matches!(index, ContainerIndex::Init(_)) || self.restarts(index, code);
            return match again {
                true if self.wait_for_start_delay() => self.start(index),
                true => Progress::Waits,
                false => finished(code),
            };
        }
        if !self.restarts(index, code) {
            return finished(code);
        }
        if self.requeue_unless_reached(later(ended_at, self.backoff(index))) {
            return self.start(index);
        }
        if let Delay::After(resync) = self.behaviour.resync
            && self.requeue_unless_reached(later(ended_at, resync))
        {
            self.back_off(index);
        }
        Progress::Waits
    }

    /// How and when a running container ended, if it has.
    fn exit_now(&mut self, index: ContainerIndex) -> Option<(Exit, Timestamp)> {
        let behaviour = self.behaviour_of(index);
        let status = self.container(index);
        let attempt = status.restart_count;
        if behaviour.has_task {
            let mine = |(started, _): &&(ContainerAttempt, Exit)| {
                started.container == status.name && started.attempt == attempt
            };
            return self
                .lifecycle
                .exits
                .iter()
                .find(mine)
                .map(|(_, exit)| (exit.clone(), self.now));
        }
        let Delay::After(run) = behaviour.run else {
            return None;
        };
        let at = later(containers::started_at(status)?, run);
        if !self.requeue_unless_reached(at) {
            return None;
        }
        // The pod that a Job creates after a failure counts its restarts from 0 again.
        let tries = attempt.saturating_add(self.behaviour.earlier);
        if behaviour.reboots == Reboots::Always || (behaviour.reboots == Reboots::Once && tries == 0) {
            self.ask_for_reboot();
            return None;
        }
        let code = behaviour
            .exit_code_first
            .filter(|_| tries == 0)
            .unwrap_or(behaviour.exit_code);
        let exit = Exit {
            code,
            message: behaviour.message.clone(),
        };
        match RefitContainer::of(self.spec_of(index)) {
            None => Some((exit, at)),
            Some(refit_container) => self
                .refit_container_exit(refit_container, exit)
                .map(|exit| (exit, at)),
        }
    }

    /// How refit's own container ends if it is steered to end as `steered`.
    fn refit_container_exit(&mut self, refit_container: RefitContainer, steered: Exit) -> Option<Exit> {
        match refit_container {
            RefitContainer::Keep { name, always } if steered.code == 0 => {
                let report = SentinelReport {
                    boot_id: self.machine.boot_id.clone(),
                    required: always || self.behaviour.reboot_required,
                };
                let message = steered.message.unwrap_or_else(|| report.to_text());
                self.sentinels.push((name, report));
                Some(Exit {
                    message: Some(message),
                    ..steered
                })
            }
            RefitContainer::Ask { name } if steered.code == 0 => {
                Some(refit_container::ask(self.machine, &name))
            }
            RefitContainer::Probe { name } if steered.code == 0 => {
                self.removed.push(name);
                Some(steered)
            }
            RefitContainer::Probe { .. } | RefitContainer::Keep { .. } | RefitContainer::Ask { .. } => {
                Some(steered)
            }
            RefitContainer::Reboot { name, boot_id } => {
                match refit_container::reboot(self.machine, &name, &boot_id, steered) {
                    RebootEnd::Exit(exit) => Some(exit),
                    RebootEnd::Waits => {
                        self.ask_for_reboot();
                        None
                    }
                }
            }
        }
    }

    fn ask_for_reboot(&mut self) {
        self.reboots = self.behaviour.boot.comes_back != ComesBack::SameBoot;
    }

    pub(super) fn end(&mut self, index: ContainerIndex, exit: Exit, at: Timestamp) {
        self.changed = true;
        self.ended.push(index);
        let code = exit.code;
        let containers = self.inits.len() + self.regulars.len();
        let exit = Exit {
            message: exit.message.map(|message| containers::cut(message, containers)),
            code,
        };
        let before_others = matches!(index, ContainerIndex::Init(_)) && !self.is_sidecar(index);
        containers::end(
            self.container_mut(index),
            exit,
            containers::reason(code),
            at,
            before_others,
        );
    }

    /// Only the first container of a boot waits for the sandbox and the image.
    fn wait_for_start_delay(&mut self) -> bool {
        if self.has_sandbox() {
            return true;
        }
        let Delay::After(delay) = self.behaviour.start else {
            return false;
        };
        let admitted_at = self
            .lifecycle
            .status
            .start_time
            .as_ref()
            .map_or(self.now, |time| time.0);
        self.requeue_unless_reached(later(admitted_at.max(self.machine.booted_at), delay))
    }

    fn start(&mut self, index: ContainerIndex) -> Progress {
        self.changed = true;
        if containers::last_exit(self.container(index)).is_some() && !self.is_of_this_boot(index) {
            let name = self.spec_of(index).name.clone();
            let before = self.container(index).restart_count;
            self.lifecycle
                .restarts_before_boot
                .retain(|(known, _)| *known != name);
            self.lifecycle.restarts_before_boot.push((name, before));
        }
        let uid = self.pod.metadata.uid.as_deref().unwrap_or_default();
        let (now, boot) = (self.now, &self.machine.boot_id);
        let ready = matches!(index, ContainerIndex::Regular(_)) || self.is_sidecar(index);
        let status = self.container_mut(index);
        let attempt = containers::start(status, uid, boot, ready, now);
        let container = status.name.clone();
        self.started.push(ContainerAttempt { container, attempt });
        self.assign_pod_ip();
        // A container with a real effect ends when its task reports it.
        if let (false, Delay::After(run)) = (self.behaviour_of(index).has_task, self.behaviour_of(index).run)
        {
            self.requeue(later(now, run));
        }
        Progress::Runs
    }

    /// Assigns the IP of a pod outside of the host network, together with its sandbox.
    fn assign_pod_ip(&mut self) {
        let status = &mut self.lifecycle.status;
        if status.pod_ip.is_none() {
            let [a, b, c, ..] = fnv1a(&[self.pod.metadata.uid.as_deref().unwrap_or_default()]).to_le_bytes();
            let ip = format!("10.{}.{b}.{c}", 128 | a);
            status.pod_ips = Some(vec![PodIP { ip: ip.clone() }]);
            status.pod_ip = Some(ip);
        }
    }

    /// Sets the waiting reason of containers in back-off.
    pub(super) fn report_back_offs(&mut self) {
        for index in self.indices() {
            let exit = containers::terminated(self.container(index)).map(|exit| exit.exit_code);
            let waits = exit.is_some_and(|code| self.restarts(index, code)) && self.is_of_this_boot(index);
            if waits && !self.ended.contains(&index) {
                self.back_off(index);
            }
        }
    }

    fn back_off(&mut self, index: ContainerIndex) {
        if !containers::is_terminated(self.container(index)) {
            return;
        }
        self.changed = true;
        let meta = &self.pod.metadata;
        let message = format!(
            "back-off {} restarting failed container={} pod={}_{}({})",
            containers::go_duration(self.backoff(index)),
            self.spec_of(index).name,
            meta.name.as_deref().unwrap_or_default(),
            meta.namespace.as_deref().unwrap_or_default(),
            meta.uid.as_deref().unwrap_or_default(),
        );
        let status = self.container_mut(index);
        status.last_state = status
            .state
            .replace(containers::waiting_state("CrashLoopBackOff", Some(message)));
    }

    /// The back-off of the container. The first restart of a boot is immediate.
    fn backoff(&self, index: ContainerIndex) -> SignedDuration {
        let status = self.container(index);
        let before = self
            .lifecycle
            .restarts_before_boot
            .iter()
            .find(|(container, _)| *container == status.name);
        containers::backoff(
            self.behaviour.backoff,
            status.restart_count - before.map_or(0, |(_, count)| *count),
        )
    }
}

fn finished(code: i32) -> Progress {
    if code == 0 {
        Progress::Succeeded
    } else {
        Progress::Failed
    }
}
