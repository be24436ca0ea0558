//! What can wait while nodes are coming and going. Half of what a large roll-out asks of the API server are the marks of
//! finished Jobs and their events, for which no node waits.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::rollout::MARK_WAITS;
use crate::rollout::facts::Text;

/// So many nodes that begin or are done within [`BUSY_WITHIN`] are many.
const MANY: usize = 50;
const BUSY_WITHIN: Duration = Duration::from_secs(5);
/// How long a mark waits at most.
const LONGEST: Duration = MARK_WAITS.unsigned_abs();

/// Jobs whose marks wait.
#[derive(Debug, Default)]
pub struct PutOff {
    /// When the last [`MANY`] nodes began or were done.
    nodes: VecDeque<Instant>,
    /// In the order in which they were put off, and when.
    jobs: VecDeque<(Instant, Text)>,
}

impl PutOff {
    /// A node begins or is done.
    pub fn node_moves(&mut self, now: Instant) {
        if self.nodes.len() == MANY {
            self.nodes.pop_front();
        }
        self.nodes.push_back(now);
    }

    /// The API server has something better to do.
    pub fn is_busy(&self, now: Instant) -> bool {
        self.busy_until().is_some_and(|until| now < until)
    }

    fn busy_until(&self) -> Option<Instant> {
        let first = self.nodes.front().filter(|_| self.nodes.len() == MANY)?;
        Some(*first + BUSY_WITHIN)
    }

    /// The mark of this Job waits from now on.
    pub fn push(&mut self, job: Text, now: Instant) {
        self.jobs.push_back((now, job));
    }

    /// The next one that need not wait any longer.
    pub fn pop_due(&mut self, now: Instant) -> Option<Text> {
        self.due().filter(|due| *due <= now)?;
        let (_, job) = self.jobs.pop_front()?;
        Some(job)
    }

    /// When the next one need not wait any longer, if no node moves before.
    pub fn due(&self) -> Option<Instant> {
        let (since, _) = self.jobs.front()?;
        let quiet = self.busy_until().unwrap_or(*since);
        Some(quiet.min(*since + LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_due(put_off: &mut PutOff, now: Instant) -> Vec<Text> {
        std::iter::from_fn(|| put_off.pop_due(now)).collect()
    }

    #[test]
    fn marks_wait_while_many_nodes_move_and_go_in_order_after_that() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut put_off = PutOff::default();
        assert_eq!(put_off.due(), None);
        for node in 0..49 {
            put_off.node_moves(at(node * 100));
        }
        assert!(!put_off.is_busy(at(4800)), "forty-nine are not many");
        put_off.node_moves(at(4900));
        assert!(put_off.is_busy(at(4999)));
        assert!(
            !put_off.is_busy(at(5000)),
            "fifty within more than five seconds are not"
        );
        put_off.push("a".into(), at(4900));
        put_off.push("b".into(), at(4950));
        put_off.node_moves(at(4960));
        assert_eq!(put_off.pop_due(at(5099)), None);
        assert_eq!(put_off.due(), Some(at(5100)));
        assert_eq!(all_due(&mut put_off, at(5100)), ["a".into(), "b".into()]);
        assert_eq!(put_off.due(), None);
    }

    #[test]
    fn no_mark_waits_longer_than_a_minute() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut put_off = PutOff::default();
        put_off.push("a".into(), at(0));
        put_off.push("b".into(), at(1));
        for _ in 0..MANY {
            put_off.node_moves(at(60));
        }
        assert_eq!(put_off.pop_due(at(59)), None);
        assert_eq!(all_due(&mut put_off, at(60)), ["a".into()]);
        assert_eq!(put_off.due(), Some(at(61)));
    }
}
