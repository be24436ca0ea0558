//! The way of a pod that is let be: init containers one by one, then the others, restarts and back-offs.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PodIP;

use super::{Slot, Turn};
use crate::api::SentinelReport;
use crate::rehearse::podlife::errand::{self, Ending, Errand};
use crate::rehearse::podlife::{ComesBack, Delay, Exit, Reboots, Started, containers, fnv1a, later};

/// How far a container is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// It has not been started, or not again.
    Waits,
    Runs,
    /// It has ended and is not started again.
    Succeeded,
    Failed,
}

impl Turn<'_> {
    pub(super) fn proceed(&mut self) {
        if self.work_ended_at().is_none() && !self.stays_down() && self.initialize() {
            for slot in self.regular_slots() {
                self.drive(slot);
            }
        }
        if let Some(at) = self.work_ended_at() {
            self.stop_sidecars(at);
        }
    }

    /// A pod that never restarts anything, and one with nothing left to start, get no new sandbox after a reboot.
    fn stays_down(&self) -> bool {
        let never = self.spec.restart_policy.as_deref() == Some("Never");
        self.lost_its_sandbox() && (never || self.regular_slots().all(|slot| self.is_done(slot)))
    }

    /// Runs the init containers one by one, and the sidecars among them from their turn on. Whether the others may run.
    fn initialize(&mut self) -> bool {
        let running_before = self.regular_slots().any(|slot| self.is_of_this_boot(slot));
        for slot in self.init_slots() {
            let wanted = if self.is_sidecar(slot) {
                Progress::Runs
            } else {
                Progress::Succeeded
            };
            if running_before && wanted == Progress::Succeeded {
                continue;
            }
            if self.drive(slot) != wanted && !running_before {
                return false;
            }
        }
        true
    }

    /// Does what is due with one container.
    fn drive(&mut self, slot: Slot) -> Progress {
        if containers::is_running(self.container(slot)) {
            let Some((exit, at)) = self.ending(slot) else {
                return Progress::Runs;
            };
            self.end(slot, exit, at);
        }
        let Some(last) = containers::last_exit(self.container(slot)) else {
            return if self.may_start() {
                self.start(slot)
            } else {
                Progress::Waits
            };
        };
        let (code, ended_at) = (last.exit_code, containers::finished_at(last).unwrap_or(self.now));
        if !self.is_of_this_boot(slot) {
            // A new sandbox: init containers run again even if they had succeeded.
            let again = matches!(slot, Slot::Init(_)) || self.restarts(slot, code);
            return match again {
                true if self.may_start() => self.start(slot),
                true => Progress::Waits,
                false => finished(code),
            };
        }
        if !self.restarts(slot, code) {
            return finished(code);
        }
        if self.due(later(ended_at, self.backoff(slot))) {
            return self.start(slot);
        }
        if let Delay::After(resync) = self.behaviour.resync
            && self.due(later(ended_at, resync))
        {
            self.back_off(slot);
        }
        Progress::Waits
    }

    /// How and when a running container ends, if that is now or was before.
    fn ending(&mut self, slot: Slot) -> Option<(Exit, Timestamp)> {
        let behaviour = self.behaviour_of(slot);
        let status = self.container(slot);
        let attempt = status.restart_count;
        if behaviour.acted {
            let mine = |(started, _): &&(Started, Exit)| {
                started.container == status.name && started.attempt == attempt
            };
            return self
                .life
                .exits
                .iter()
                .find(mine)
                .map(|(_, exit)| (exit.clone(), self.now));
        }
        let Delay::After(run) = behaviour.run else {
            return None;
        };
        let at = later(containers::started_at(status)?, run);
        if !self.due(at) {
            return None;
        }
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
        match Errand::of(self.spec_of(slot)) {
            None => Some((exit, at)),
            Some(errand) => self.ending_of(errand, exit).map(|exit| (exit, at)),
        }
    }

    /// How refit itself ends on a node, where it is steered to end as `steered`.
    fn ending_of(&mut self, errand: Errand, steered: Exit) -> Option<Exit> {
        match errand {
            Errand::Keep { name, always } if steered.code == 0 => {
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
            Errand::Ask { name } if steered.code == 0 => Some(errand::ask(self.machine, &name)),
            Errand::Probe { name } if steered.code == 0 => {
                self.removed.push(name);
                Some(steered)
            }
            Errand::Probe { .. } | Errand::Keep { .. } | Errand::Ask { .. } => Some(steered),
            Errand::Reboot { name, boot_id } => {
                match errand::reboot(self.machine, &name, &boot_id, steered) {
                    Ending::Exit(exit) => Some(exit),
                    Ending::Waits => {
                        self.ask_for_reboot();
                        None
                    }
                }
            }
        }
    }

    fn ask_for_reboot(&mut self) {
        self.reboots = self.behaviour.boot.comes_back != ComesBack::AsIfNothing;
    }

    pub(super) fn end(&mut self, slot: Slot, exit: Exit, at: Timestamp) {
        self.changed = true;
        self.ended.push(slot);
        let code = exit.code;
        let containers = self.inits.len() + self.regulars.len();
        let exit = Exit {
            message: exit.message.map(|message| containers::cut(message, containers)),
            code,
        };
        let before_others = matches!(slot, Slot::Init(_)) && !self.is_sidecar(slot);
        containers::end(
            self.container_mut(slot),
            exit,
            containers::reason(code),
            at,
            before_others,
        );
    }

    /// The first container of a boot waits for the sandbox and the image, the others for nothing.
    fn may_start(&mut self) -> bool {
        if self.has_sandbox() {
            return true;
        }
        let Delay::After(delay) = self.behaviour.start else {
            return false;
        };
        let admitted_at = self
            .life
            .status
            .start_time
            .as_ref()
            .map_or(self.now, |time| time.0);
        self.due(later(admitted_at.max(self.machine.booted_at), delay))
    }

    fn start(&mut self, slot: Slot) -> Progress {
        self.changed = true;
        if containers::last_exit(self.container(slot)).is_some() && !self.is_of_this_boot(slot) {
            let name = self.spec_of(slot).name.clone();
            let before = self.container(slot).restart_count;
            self.life.restarts_before_boot.retain(|(known, _)| *known != name);
            self.life.restarts_before_boot.push((name, before));
        }
        let uid = self.pod.metadata.uid.as_deref().unwrap_or_default();
        let (now, boot) = (self.now, &self.machine.boot_id);
        let ready = matches!(slot, Slot::Regular(_)) || self.is_sidecar(slot);
        let status = self.container_mut(slot);
        let attempt = containers::start(status, uid, boot, ready, now);
        let container = status.name.clone();
        self.started.push(Started { container, attempt });
        self.give_address();
        // What is acted ends when its end is reported.
        if let (false, Delay::After(run)) = (self.behaviour_of(slot).acted, self.behaviour_of(slot).run) {
            self.wake_at(later(now, run));
        }
        Progress::Runs
    }

    /// A pod with a network of its own gets its address with its sandbox.
    fn give_address(&mut self) {
        let status = &mut self.life.status;
        if status.pod_ip.is_none() {
            let [a, b, c, ..] = fnv1a(&[self.pod.metadata.uid.as_deref().unwrap_or_default()]).to_le_bytes();
            let ip = format!("10.{}.{b}.{c}", 128 | a);
            status.pod_ips = Some(vec![PodIP { ip: ip.clone() }]);
            status.pod_ip = Some(ip);
        }
    }

    /// What a kubelet says, whenever it says something, of containers that wait for their next start.
    pub(super) fn tell_back_offs(&mut self) {
        for slot in self.slots() {
            let exit = containers::terminated(self.container(slot)).map(|exit| exit.exit_code);
            let waits = exit.is_some_and(|code| self.restarts(slot, code)) && self.is_of_this_boot(slot);
            if waits && !self.ended.contains(&slot) {
                self.back_off(slot);
            }
        }
    }

    fn back_off(&mut self, slot: Slot) {
        if !containers::is_terminated(self.container(slot)) {
            return;
        }
        self.changed = true;
        let meta = &self.pod.metadata;
        let message = format!(
            "back-off {} restarting failed container={} pod={}_{}({})",
            containers::go_duration(self.backoff(slot)),
            self.spec_of(slot).name,
            meta.name.as_deref().unwrap_or_default(),
            meta.namespace.as_deref().unwrap_or_default(),
            meta.uid.as_deref().unwrap_or_default(),
        );
        let status = self.container_mut(slot);
        status.last_state = status
            .state
            .replace(containers::waiting_state("CrashLoopBackOff", Some(message)));
    }

    /// How long the container waits for its next start. The first restart of a boot is at once.
    fn backoff(&self, slot: Slot) -> SignedDuration {
        let status = self.container(slot);
        let before = self
            .life
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
