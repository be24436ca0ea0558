//! Limits and orders requests in flight. A node waits for an interactive request. Nothing waits for a background
//! request, such as the annotation `refit.rs/recorded` of a finished Job. Background requests are half of the requests
//! of a large roll-out, and would take processor time from the writes that nodes wait for.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use refit_rollout::{Key, Lane};

/// More requests in flight do not speed up small requests; each only takes longer.
const INTERACTIVE: usize = 16;
const BACKGROUND: usize = 10;
/// Requests to channels and registries, which may hang.
const OUTSIDE: usize = 32;
/// Requests to the servers of checks, which may hang. Apart from channels, because they are asked more often.
const CHECKS: usize = 32;
/// Reads of Secrets. Plans may name thousands that do not exist.
const SECRETS: usize = 4;
/// Drains for maintenances. A drain mostly waits, and has limits of its own for its requests.
const DRAINS: usize = 64;
/// The API server has room if no interactive request was in flight for this time. In a large roll-out there is one
/// every few milliseconds.
const QUIET: Duration = Duration::from_millis(500);
/// Otherwise as many background requests as have a place start together once per interval, so that none starves: a thousand
/// of them wait 100 s at most, and use a twentieth of the capacity of a small API server. Together, because each start is a
/// decision, and so is each end.
const INTERVAL: Duration = Duration::from_secs(1);
/// An interactive request that has waited for this time is overdue: long beside the quarter of a second between a complete
/// Job and the next one when 1,000 nodes are upgraded, 100 at a time (`just bench`).
const OVERDUE: Duration = Duration::from_secs(2);

/// The requests in flight, and those that wait in the lanes for background requests, checks and Secrets.
#[derive(Debug, Default)]
pub struct Lanes {
    counts: [usize; 6],
    /// Since when each request has waited for a place, by lane. Those of drains and to the outside count as interactive.
    waiting: [BTreeMap<Key, Instant>; 6],
    /// When an interactive request last began or ended.
    interactive: Option<Instant>,
    /// When background requests last began.
    background: Option<Instant>,
}

impl Lanes {
    pub fn begin(&mut self, lane: Lane, now: Instant) {
        self.counts[lane as usize] += 1;
        self.note(lane, now);
        if lane == Lane::Background {
            self.background = Some(now);
        }
    }

    pub fn end(&mut self, lane: Lane, now: Instant) {
        let count = &mut self.counts[lane as usize];
        *count = count.saturating_sub(1);
        self.note(lane, now);
    }

    fn note(&mut self, lane: Lane, now: Instant) {
        if lane == Lane::Interactive {
            self.interactive = Some(now);
        }
    }

    /// Whether a request of this lane may start now.
    pub fn has_place(&self, lane: Lane, now: Instant) -> bool {
        let count = self.counts[lane as usize];
        match lane {
            Lane::Interactive => count < INTERACTIVE,
            Lane::External => count < OUTSIDE,
            Lane::Check => count < CHECKS,
            Lane::Secrets => count < SECRETS,
            Lane::Drain => count < DRAINS,
            Lane::Background => {
                let is_due = self.background_from().is_none_or(|from| from <= now);
                count < BACKGROUND && (is_due || self.background == Some(now))
            }
        }
    }

    /// When the next background request may start; `None` if at any time.
    fn background_from(&self) -> Option<Instant> {
        let turn = self.background? + INTERVAL;
        let quiet = self.interactive? + QUIET;
        // A request that is in flight for long is as much load as many short ones.
        let busy = self.counts[Lane::Interactive as usize] > 0;
        Some(if busy { turn } else { turn.min(quiet) })
    }

    /// Notes since when each ready request of the lane has waited. These are all; what is not ready does not wait.
    pub fn note_waiting<T>(&mut self, lane: Lane, ready: &[(Key, T)], now: Instant) {
        let waiting = &mut self.waiting[lane as usize];
        let before = std::mem::take(waiting);
        for (key, _) in ready {
            let since = before.get(key).copied().unwrap_or(now);
            waiting.insert(key.clone(), since);
        }
    }

    /// Orders all ready requests of the lane by waiting time, so that each gets its turn whatever arrives later.
    pub fn queue<T>(&mut self, lane: Lane, mut ready: Vec<(Key, T)>, now: Instant) -> Vec<(Key, T)> {
        self.note_waiting(lane, &ready, now);
        let waiting = &self.waiting[lane as usize];
        ready.sort_by_key(|(key, _)| waiting.get(key).copied());
        ready
    }

    /// Whether an interactive request has waited for so long that it comes before those that would come first otherwise: if
    /// creations of Jobs hang, they must not take all places from the patches that uncordon nodes.
    pub fn is_overdue(&self, key: &Key, now: Instant) -> bool {
        let since = self.waiting[Lane::Interactive as usize].get(key);
        since.is_some_and(|since| *since + OVERDUE <= now)
    }

    /// A waiting request has started.
    pub fn dequeue(&mut self, key: &Key) {
        for waiting in &mut self.waiting {
            waiting.remove(key);
        }
    }

    /// The requests in flight in the lanes interactive, background, external, secrets and drains. Checks are external, too.
    pub fn in_flight(&self) -> [usize; 5] {
        let count = |lane: Lane| self.counts[lane as usize];
        [
            count(Lane::Interactive),
            count(Lane::Background),
            count(Lane::External) + count(Lane::Check),
            count(Lane::Secrets),
            count(Lane::Drain),
        ]
    }

    /// Number of waiting background requests.
    pub fn waiting(&self) -> usize {
        self.waiting[Lane::Background as usize].len()
    }

    /// When a waiting background request may start, unless the end of a request allows it earlier. A request that could
    /// start now and has not waits for another one for its object: a time in the past would have the engine decide again
    /// and again, and do nothing else.
    pub fn requeue_at(&self, now: Instant) -> Option<Instant> {
        let free = self.counts[Lane::Background as usize] < BACKGROUND;
        let from = (free && self.waiting() > 0)
            .then(|| self.background_from())
            .flatten()?;
        Some(if from > now { from } else { now + INTERVAL })
    }
}

/// Steps with their objects. Of several for one object, one is in flight at a time, and after each failure another one is
/// first: a step that is always refused, as for an invalid label of one Plan, must not keep the node cordoned for another
/// Plan. `tries` is the number of failures of an object, if the last step for it has failed.
pub fn take_turns<T>(
    steps: Vec<T>,
    key: impl Fn(&T) -> Key,
    tries: impl Fn(&Key) -> Option<u32>,
) -> Vec<(Key, T)> {
    let mut steps: Vec<_> = steps.into_iter().map(|step| (key(&step), step)).collect();
    let mut failed: BTreeMap<Key, (usize, Vec<usize>)> = BTreeMap::new();
    for (place, (key, _)) in steps.iter().enumerate() {
        if let Some(tries) = tries(key) {
            let tries = usize::try_from(tries).unwrap_or_default();
            let entry = failed.entry(key.clone()).or_insert_with(|| (tries, Vec::new()));
            entry.1.push(place);
        }
    }
    for (tries, places) in failed.into_values() {
        steps.swap(places[0], places[tries % places.len()]);
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_steps_for_an_object_another_one_is_first_after_each_failure() {
        let steps = vec![("a", 1), ("b", 1), ("a", 2), ("b", 2), ("a", 3)];
        let first_of_a = |tries: Option<u32>| {
            let tries = |of: &Key| (*of == key("a")).then_some(tries).flatten();
            let steps = take_turns(steps.clone(), |(name, _)| key(name), tries);
            assert_eq!(steps.len(), 5);
            let first = |name: &str| steps.iter().find(|(of, _)| *of == key(name)).unwrap().1.1;
            assert_eq!(first("b"), 1, "it has not failed");
            first("a")
        };
        assert_eq!(first_of_a(None), 1);
        assert_eq!([1, 2, 3, 4].map(|tries| first_of_a(Some(tries))), [2, 3, 1, 2]);
    }

    fn key(name: &str) -> Key {
        Key::Job(name.into())
    }

    fn try_begin(lanes: &mut Lanes, lane: Lane, now: Instant) -> bool {
        let begins = lanes.has_place(lane, now);
        if begins {
            lanes.begin(lane, now);
        }
        begins
    }

    fn count(lanes: &mut Lanes, lane: Lane, now: Instant) -> usize {
        (0..100).take_while(|_| try_begin(lanes, lane, now)).count()
    }

    #[test]
    fn an_api_server_that_nothing_else_is_asked_of_has_room_for_background_requests() {
        let (mut lanes, now) = (Lanes::default(), Instant::now());
        assert_eq!(count(&mut lanes, Lane::Background, now), BACKGROUND);
    }

    #[test]
    fn background_requests_take_no_place_from_interactive_ones_nor_outside_ones_from_either() {
        let (mut lanes, now) = (Lanes::default(), Instant::now());
        assert_eq!(count(&mut lanes, Lane::External, now), OUTSIDE);
        assert_eq!(count(&mut lanes, Lane::Background, now), BACKGROUND);
        assert_eq!(count(&mut lanes, Lane::Interactive, now), INTERACTIVE);
    }

    #[test]
    fn reads_of_secrets_take_no_place_from_writes_and_each_gets_its_turn() {
        let (mut lanes, start) = (Lanes::default(), Instant::now());
        let read = |name: &str| (Key::Secret(name.into()), ());
        lanes.queue(Lane::Secrets, vec![read("z")], start);
        let later = start + INTERVAL;
        let queue = lanes.queue(Lane::Secrets, vec![read("a"), read("b"), read("z")], later);
        assert_eq!(queue[0], read("z"), "it has waited longest");
        assert_eq!(lanes.waiting(), 0, "no background request waits");
        assert_eq!(lanes.requeue_at(later), None);
        assert_eq!(count(&mut lanes, Lane::Secrets, later), SECRETS);
        assert_eq!(count(&mut lanes, Lane::Interactive, later), INTERACTIVE);
    }

    #[test]
    fn while_interactive_requests_come_and_go_ten_background_requests_begin_together_in_each_second() {
        let (mut lanes, start) = (Lanes::default(), Instant::now());
        let mut begun = Vec::new();
        for millis in (0..3_000).step_by(10) {
            let now = start + Duration::from_millis(millis);
            lanes.begin(Lane::Interactive, now);
            let together = count(&mut lanes, Lane::Background, now);
            for _ in 0..together {
                lanes.end(Lane::Background, now + Duration::from_millis(5));
            }
            begun.extend((together > 0).then_some((millis, together)));
            lanes.end(Lane::Interactive, now);
        }
        assert_eq!(begun, [(0, 10), (1_000, 10), (2_000, 10)]);
    }

    #[test]
    fn an_interactive_request_that_hangs_does_not_stop_background_requests() {
        let (mut lanes, start) = (Lanes::default(), Instant::now());
        lanes.begin(Lane::Interactive, start);
        let minute = (0..60_000).step_by(50).map(|millis| {
            let now = start + Duration::from_millis(millis);
            let together = count(&mut lanes, Lane::Background, now);
            for _ in 0..together {
                lanes.end(Lane::Background, now);
            }
            together
        });
        assert_eq!(minute.sum::<usize>(), 600);
    }

    #[test]
    fn half_a_second_after_the_last_interactive_request_there_is_room() {
        let (mut lanes, start) = (Lanes::default(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        lanes.begin(Lane::Interactive, at(0));
        lanes.end(Lane::Interactive, at(20));
        assert!(try_begin(&mut lanes, Lane::Background, at(20)), "none has begun");
        lanes.end(Lane::Background, at(30));
        assert_eq!(count(&mut lanes, Lane::Background, at(519)), 0);
        assert_eq!(count(&mut lanes, Lane::Background, at(520)), BACKGROUND);
    }

    #[test]
    fn the_background_request_that_waits_longest_is_next_whatever_comes_later() {
        let (mut lanes, start) = (Lanes::default(), Instant::now());
        lanes.begin(Lane::Interactive, start);
        let at = |round: u64| start + INTERVAL * u32::try_from(round).unwrap();
        let mut begun = Vec::new();
        for round in 0..10 {
            // Two more arrive in each round, and sort before all that wait.
            let waiting = (0..=2 * round + 1).rev().filter(|n| !begun.contains(n));
            let ready = waiting.map(|n| (key(&format!("{n:03}")), n)).collect();
            let queue = lanes.queue(Lane::Background, ready, at(round));
            let (key, first) = queue.into_iter().next().unwrap();
            assert!(try_begin(&mut lanes, Lane::Background, at(round)));
            lanes.dequeue(&key);
            lanes.end(Lane::Background, at(round));
            begun.push(first);
        }
        // Requests that arrived together may start in any order.
        assert!(
            begun
                .iter()
                .enumerate()
                .all(|(turn, n)| n.abs_diff(turn as u64) <= 1),
            "{begun:?}"
        );
    }

    #[test]
    fn an_interactive_request_is_overdue_after_two_seconds_without_a_place() {
        let (mut lanes, start) = (Lanes::default(), Instant::now());
        let all = || vec![(key("a"), ()), (key("b"), ())];
        lanes.note_waiting(Lane::Interactive, &all(), start);
        let later = start + OVERDUE;
        lanes.dequeue(&key("b"));
        lanes.note_waiting(Lane::Interactive, &all(), later);
        assert!(lanes.is_overdue(&key("a"), later) && !lanes.is_overdue(&key("b"), later));
        lanes.note_waiting(Lane::Interactive, &all()[1..], later);
        assert!(
            !lanes.is_overdue(&key("a"), later),
            "it is not requested any more"
        );
    }

    #[test]
    fn a_check_that_waits_comes_before_those_that_hang_again() {
        let (mut lanes, start) = (Lanes::default(), Instant::now());
        let later = |seconds| start + Duration::from_secs(seconds);
        let check = |plan: &str| (Key::Check(plan.into(), "x".to_owned()), ());
        let queue = lanes.queue(Lane::Check, vec![check("a"), check("z")], start);
        assert_eq!(queue[0], check("a"));
        assert!(try_begin(&mut lanes, Lane::Check, start));
        lanes.dequeue(&check("a").0);
        let queue = lanes.queue(Lane::Check, vec![check("z")], later(1));
        assert_eq!(queue, [check("z")]);
        let queue = lanes.queue(Lane::Check, vec![check("a"), check("z")], later(2));
        assert_eq!(queue, [check("z"), check("a")]);
        assert_eq!(count(&mut lanes, Lane::Check, later(2)), CHECKS - 1);
        assert_eq!(count(&mut lanes, Lane::External, later(2)), OUTSIDE);
    }

    #[test]
    fn the_engine_wakes_when_the_next_background_request_may_begin() {
        let (mut lanes, start) = (Lanes::default(), Instant::now());
        lanes.begin(Lane::Interactive, start);
        lanes.begin(Lane::Background, start);
        assert_eq!(lanes.requeue_at(start), None, "none waits");
        lanes.queue(Lane::Background, vec![(key("a"), ())], start);
        assert_eq!(lanes.requeue_at(start), Some(start + INTERVAL));
        let late = start + QUIET * 2;
        assert_eq!(lanes.requeue_at(late), Some(late + INTERVAL), "never in the past");
        lanes.dequeue(&key("a"));
        assert_eq!(lanes.requeue_at(start), None);
    }
}
