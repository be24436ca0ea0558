//! Stops a pod: its work is done, or something requests its end.

use jiff::{SignedDuration, Timestamp};

use super::{ContainerIndex, SyncPass};
use crate::pod_lifecycle::{Delay, Exit, Power, containers, is_terminal, later, report};

/// The default grace period.
const GRACE_PERIOD_SECONDS: i64 = 30;

pub(super) struct StopOrder {
    /// Reason and message for the status; a deletion has none.
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

impl SyncPass<'_> {
    /// When the last main container ended, or the init container that failed the pod.
    pub(super) fn work_ended_at(&self) -> Option<Timestamp> {
        let ended_at = |index: ContainerIndex| {
            containers::last_exit(self.container(index)).and_then(containers::finished_at)
        };
        let failed = |index: &ContainerIndex| {
            let exit = containers::last_exit(self.container(*index));
            exit.is_some_and(|exit| exit.exit_code != 0 && !self.restarts(*index, exit.exit_code))
        };
        if let Some(failed) = self.init_indices().find(failed) {
            return ended_at(failed);
        }
        let done = self.regular_indices().all(|index| self.is_done(index));
        if done {
            self.regular_indices().filter_map(ended_at).max()
        } else {
            None
        }
    }

    pub(super) fn is_done(&self, index: ContainerIndex) -> bool {
        containers::last_exit(self.container(index)).is_some_and(|exit| !self.restarts(index, exit.exit_code))
    }

    pub(super) fn stop_sidecars(&mut self, since: Timestamp) {
        self.kill(since, self.grace_period());
    }

    /// Whether sidecars were stopped after the work ended: the sandbox goes with them.
    pub(super) fn has_stopped_sidecars(&self) -> bool {
        let ended_at = |index| containers::last_exit(self.container(index)).and_then(containers::finished_at);
        let mut sidecars = self
            .init_indices()
            .filter(|index| self.is_sidecar(*index))
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

    /// Why the pod must stop now.
    pub(super) fn stop_order(&mut self) -> Option<StopOrder> {
        let meta = &self.pod.metadata;
        if self.machine.power == Power::ShuttingDown {
            let since = *self.lifecycle.stopping_since.get_or_insert(self.now);
            return Some(StopOrder {
                why: Some(SHUTDOWN),
                since,
                grace: self.grace_period(),
            });
        }
        if let Some(deadline) = self.deadline()
            && self.requeue_unless_reached(deadline)
        {
            return Some(StopOrder {
                why: Some(DEADLINE),
                since: deadline,
                grace: self.grace_period(),
            });
        }
        meta.deletion_timestamp.as_ref()?;
        let since = *self.lifecycle.stopping_since.get_or_insert(self.now);
        // A deletion may give the pod another grace period than its spec.
        let grace = meta.deletion_grace_period_seconds.map(SignedDuration::from_secs);
        Some(StopOrder {
            why: None,
            since,
            grace: grace.unwrap_or_else(|| self.grace_period()),
        })
    }

    fn deadline(&self) -> Option<Timestamp> {
        let started_at = self.lifecycle.status.start_time.as_ref()?.0;
        Some(later(
            started_at,
            SignedDuration::from_secs(self.spec.active_deadline_seconds?),
        ))
    }

    pub(super) fn stop(&mut self, order: &StopOrder) {
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

    /// Stops the containers; they are killed after the grace period. It is reported once all have stopped.
    fn kill(&mut self, since: Timestamp, grace: SignedDuration) {
        let running = self
            .indices()
            .filter(|index| containers::is_running(self.container(*index)));
        let ends: Vec<(ContainerIndex, i32, Timestamp)> = running
            .map(|index| {
                let behaviour = self.behaviour_of(index);
                match behaviour.stop {
                    Delay::After(delay) if delay < grace => {
                        (index, behaviour.stop_exit_code, later(since, delay))
                    }
                    // 128 + SIGKILL.
                    _ => (index, 137, later(since, grace)),
                }
            })
            .collect();
        let last = ends.iter().map(|(_, _, at)| *at).max();
        if last.is_some_and(|last| self.requeue_unless_reached(last)) {
            for (index, code, at) in ends {
                self.end(index, Exit { code, message: None }, at);
            }
        }
    }

    /// All containers have stopped and none will start: sets the terminal phase.
    fn terminate(&mut self, order: &StopOrder) {
        for index in self.indices() {
            // No restart follows.
            let status = self.container_mut(index);
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
        self.lose_unstarted();
        // A pod that is stopped before its work has ended has failed (`TerminatePod` of the status manager).
        self.set_phase(if is_terminal(Some(phase)) { phase } else { "Failed" });
        if let Some((reason, message)) = order.why {
            self.lifecycle.status.reason = Some(reason.to_owned());
            self.lifecycle.status.message = Some(message.to_owned());
            if order.why == Some(SHUTDOWN) {
                let disrupted =
                    report::terminated_by_kubelet(message, self.pod.metadata.generation, self.now);
                let conditions = self.lifecycle.status.conditions.get_or_insert_default();
                conditions.retain(|condition| condition.type_ != disrupted.type_);
                conditions.insert(0, disrupted);
            }
        }
    }

    /// Marks containers that should have left a trace and have not. Before the pod was initialized, these are only the
    /// init containers, up to the last started one.
    pub(super) fn lose_unstarted(&mut self) {
        let touched = |index: &ContainerIndex| self.container(*index).container_id.is_some();
        let inits: Vec<ContainerIndex> = self.init_indices().collect();
        let attempted = inits.iter().rposition(touched).map_or(1, |last| last + 1);
        let initialized = inits.last().is_none_or(|last| self.has_passed(*last))
            || self.regular_indices().any(|index| touched(&index));
        let regulars = self.regular_indices().filter(|_| initialized);
        for index in inits.into_iter().take(attempted).chain(regulars) {
            if !containers::is_terminated(self.container(index)) {
                self.changed = true;
                containers::lose(self.container_mut(index));
            }
        }
    }

    fn has_passed(&self, index: ContainerIndex) -> bool {
        let status = self.container(index);
        if self.is_sidecar(index) {
            return containers::is_running(status);
        }
        containers::last_exit(status).is_some_and(|exit| exit.exit_code == 0)
    }
}
