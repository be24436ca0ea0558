//! The end of a pod: its work is done, or somebody wants it to end.

use jiff::{SignedDuration, Timestamp};

use super::{Slot, Turn};
use crate::rehearse::podlife::{Delay, Exit, Power, containers, is_terminal, later, report};

/// What a pod gets that does not say how long it may take to stop.
const GRACE_PERIOD_SECONDS: i64 = 30;

/// Why a pod must end.
pub(super) struct Order {
    /// Reason and message that the status gets; a deletion gives none.
    why: Option<(&'static str, &'static str)>,
    since: Timestamp,
    grace: SignedDuration,
}

const DEADLINE: (&str, &str) = (
    "DeadlineExceeded",
    "Pod was active on the node longer than the specified deadline",
);
const SHUTDOWN: (&str, &str) = (
    "Terminated",
    "Pod was terminated in response to imminent node shutdown.",
);

impl Turn<'_> {
    /// When the last of the containers ended that the pod is for, or the init container that failed it.
    pub(super) fn work_ended_at(&self) -> Option<Timestamp> {
        let ended_at =
            |slot: Slot| containers::last_exit(self.container(slot)).and_then(containers::finished_at);
        let failed = |slot: &Slot| {
            let exit = containers::last_exit(self.container(*slot));
            exit.is_some_and(|exit| exit.exit_code != 0 && !self.restarts(*slot, exit.exit_code))
        };
        if let Some(failed) = self.init_slots().find(failed) {
            return ended_at(failed);
        }
        let done = self.regular_slots().all(|slot| self.is_done(slot));
        if done {
            self.regular_slots().filter_map(ended_at).max()
        } else {
            None
        }
    }

    /// Whether the container has ended for good.
    pub(super) fn is_done(&self, slot: Slot) -> bool {
        containers::last_exit(self.container(slot)).is_some_and(|exit| !self.restarts(slot, exit.exit_code))
    }

    pub(super) fn stop_sidecars(&mut self, since: Timestamp) {
        self.kill(since, self.grace_period());
    }

    /// Whether sidecars were stopped because the work has ended: the sandbox goes with them.
    pub(super) fn has_stopped_sidecars(&self) -> bool {
        let ended_at = |slot| containers::last_exit(self.container(slot)).and_then(containers::finished_at);
        let mut sidecars = self
            .init_slots()
            .filter(|slot| self.is_sidecar(*slot))
            .filter_map(ended_at);
        self.work_ended_at()
            .is_some_and(|work| sidecars.any(|sidecar| sidecar >= work))
    }

    fn grace_period(&self) -> SignedDuration {
        SignedDuration::from_secs(
            self.spec
                .termination_grace_period_seconds
                .unwrap_or(GRACE_PERIOD_SECONDS),
        )
    }

    /// Why the pod must end now, if it must.
    pub(super) fn order(&mut self) -> Option<Order> {
        let meta = &self.pod.metadata;
        if self.machine.power == Power::ShuttingDown {
            let since = *self.life.stopping_since.get_or_insert(self.now);
            return Some(Order {
                why: Some(SHUTDOWN),
                since,
                grace: self.grace_period(),
            });
        }
        if let Some(deadline) = self.deadline()
            && self.due(deadline)
        {
            return Some(Order {
                why: Some(DEADLINE),
                since: deadline,
                grace: self.grace_period(),
            });
        }
        meta.deletion_timestamp.as_ref()?;
        let since = *self.life.stopping_since.get_or_insert(self.now);
        let grace = meta.deletion_grace_period_seconds.map(SignedDuration::from_secs);
        Some(Order {
            why: None,
            since,
            grace: grace.unwrap_or_else(|| self.grace_period()),
        })
    }

    fn deadline(&self) -> Option<Timestamp> {
        let started_at = self.life.status.start_time.as_ref()?.0;
        Some(later(
            started_at,
            SignedDuration::from_secs(self.spec.active_deadline_seconds?),
        ))
    }

    pub(super) fn stop(&mut self, order: &Order) {
        self.kill(order.since, order.grace);
        if self.runs() {
            let phase = if order.why.is_some() {
                "Failed"
            } else {
                self.phase(false)
            };
            self.condition(phase, self.has_sandbox());
        } else {
            self.terminate(order);
        }
    }

    /// Containers stop in their own time, or are killed at the end of the grace period. That is told once all have stopped.
    fn kill(&mut self, since: Timestamp, grace: SignedDuration) {
        let running = self
            .slots()
            .filter(|slot| containers::is_running(self.container(*slot)));
        let ends: Vec<(Slot, i32, Timestamp)> = running
            .map(|slot| {
                let behaviour = self.behaviour_of(slot);
                match behaviour.stop {
                    Delay::After(delay) if delay < grace => {
                        (slot, behaviour.stop_exit_code, later(since, delay))
                    }
                    _ => (slot, 137, later(since, grace)),
                }
            })
            .collect();
        let last = ends.iter().map(|(_, _, at)| *at).max();
        if last.is_some_and(|last| self.due(last)) {
            for (slot, code, at) in ends {
                self.end(slot, Exit { code, message: None }, at);
            }
        }
    }

    /// All containers have stopped and none will start: the pod is over.
    fn terminate(&mut self, order: &Order) {
        for slot in self.slots() {
            // It waits for no restart any more.
            let status = self.container_mut(slot);
            if !containers::is_terminated(status) && containers::last_exit(status).is_some() {
                status.state = status.last_state.take();
            }
        }
        let phase = if order.why.is_some() {
            "Failed"
        } else {
            self.phase(true)
        };
        self.condition(phase, false);
        self.lose_the_rest();
        self.set_phase(if is_terminal(Some(phase)) { phase } else { "Failed" });
        if let Some((reason, message)) = order.why {
            self.life.status.reason = Some(reason.to_owned());
            self.life.status.message = Some(message.to_owned());
            if order.why == Some(SHUTDOWN) {
                let disrupted =
                    report::terminated_by_kubelet(message, self.pod.metadata.generation, self.now);
                let conditions = self.life.status.conditions.get_or_insert_default();
                conditions.retain(|condition| condition.type_ != disrupted.type_);
                conditions.insert(0, disrupted);
            }
        }
    }

    /// Containers that should have left a trace by now and have not. Before the pod was initialized that is said of the
    /// init containers only, up to the last that was started.
    pub(super) fn lose_the_rest(&mut self) {
        let touched = |slot: &Slot| self.container(*slot).container_id.is_some();
        let inits: Vec<Slot> = self.init_slots().collect();
        let attempted = inits.iter().rposition(touched).map_or(1, |last| last + 1);
        let initialized = inits.last().is_none_or(|last| self.passed(*last))
            || self.regular_slots().any(|slot| touched(&slot));
        let regulars = self.regular_slots().filter(|_| initialized);
        for slot in inits.into_iter().take(attempted).chain(regulars) {
            if !containers::is_terminated(self.container(slot)) {
                self.changed = true;
                containers::lose(self.container_mut(slot));
            }
        }
    }

    fn passed(&self, slot: Slot) -> bool {
        let status = self.container(slot);
        if self.is_sidecar(slot) {
            return containers::is_running(status);
        }
        containers::last_exit(status).is_some_and(|exit| exit.exit_code == 0)
    }
}
