//! Stops a pod: its deadline is over, or it is being deleted.

use jiff::{SignedDuration, Timestamp};

use super::state::{Container, Phase, State};
use super::step::Step;
use super::{Delay, Exit, later};

const DEFAULT_GRACE_SECONDS: i64 = 30;
/// 128 + SIGKILL, also reported for a container that never ran when its pod ends.
const KILLED: i32 = 137;

pub(super) struct StopOrder {
    /// A deletion has no reason.
    reason: Option<&'static str>,
    since: Timestamp,
    grace: SignedDuration,
}

impl Step<'_> {
    /// Why the pod must stop now.
    pub(super) fn stop_order(&mut self) -> Option<StopOrder> {
        let seconds = SignedDuration::from_secs;
        let grace = self.spec.termination_grace_period_seconds;
        let deadline = self.spec.active_deadline_seconds.zip(self.state.accepted_at);
        let deadline = deadline.map(|(limit, accepted_at)| later(accepted_at, seconds(limit)));
        if let Some(since) = deadline.filter(|deadline| self.is_due(*deadline)) {
            return Some(StopOrder {
                reason: Some("DeadlineExceeded"),
                since,
                grace: seconds(grace.unwrap_or(DEFAULT_GRACE_SECONDS)),
            });
        }
        let meta = &self.pod.metadata;
        meta.deletion_timestamp.as_ref()?;
        // A deletion may give the pod another grace period than its spec.
        let grace = meta.deletion_grace_period_seconds.or(grace);
        Some(StopOrder {
            reason: None,
            since: *self.stopping_since.get_or_insert(self.now),
            grace: seconds(grace.unwrap_or(DEFAULT_GRACE_SECONDS)),
        })
    }

    /// Stops the containers, which are killed after the grace period. All their ends are reported at once, with the
    /// terminal phase.
    pub(super) fn stop(&mut self, order: &StopOrder) {
        let mut ends = Vec::new();
        for (index, container) in self.state.containers.iter().enumerate() {
            let behaviour = self.behaviour_of(index);
            let (code, delay) = match behaviour.stop {
                Delay::After(delay) if delay < order.grace => (behaviour.stop_exit_code, delay),
                _ => (KILLED, order.grace),
            };
            if matches!(container.state, State::Running(_)) {
                ends.push((index, code, later(order.since, delay)));
            }
        }
        if let Some(last) = ends.iter().map(|(_, _, at)| *at).max()
            && !self.is_due(last)
        {
            return;
        }
        for (index, code, at) in ends {
            self.end(index, Exit { code, message: None }, at);
        }
        self.end_unstarted();
        let mut regulars = self.state.containers.iter().filter(|one| !one.is_init);
        let succeeded = order.reason.is_none() && regulars.all(|one| one.exit_code() == Some(0));
        // A pod that is stopped before its work has ended has failed.
        self.state.phase = if succeeded {
            Phase::Succeeded
        } else {
            Phase::Failed
        };
        self.state.reason = order.reason.map(str::to_owned);
    }

    /// A container that was next and left no trace is reported as killed, so a reader takes it for one that has begun.
    fn end_unstarted(&mut self) {
        let is_initialized = |one: &Container| !one.is_init || one.exit_code() == Some(0);
        let next = if self.state.containers.iter().all(is_initialized) {
            self.state.containers.len()
        } else {
            1
        };
        for index in 0..next {
            if self.state.containers[index].state == State::Waiting {
                let exit = Exit {
                    code: KILLED,
                    message: None,
                };
                self.end(index, exit, self.now);
            }
        }
    }
}
