//! Faults between clients and the API server: the random numbers of a seed decide the fault of each request and watch,
//! of the controllers and of containers on nodes.

mod transport;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

use super::rng::Rng;
use crate::fault::Moment::{After, Before};
use crate::fault::{ApiRequest, Effect, Rule, Rules};
pub(super) use transport::{FaultyTransport, Process};

/// Number of faults by kind.
pub(super) type Tally = BTreeMap<&'static str, u64>;

/// The faults of one cluster.
#[derive(Clone)]
pub(super) struct FaultInjector(Arc<Mutex<FaultState>>);

struct FaultState {
    rng: Rng,
    /// Probability of a fault for a request or a watch, in percent.
    fault_percent: u64,
    tally: Tally,
    /// Rules for requests of processes that can die; they precede random faults.
    rules: Rules,
    /// Verbs and resources without permission.
    denied: Vec<(String, String)>,
    /// Resources whose watches are held back.
    held: Vec<String>,
    /// Number of broken watches by resource.
    breaks: BTreeMap<String, u32>,
    wakers: Vec<Waker>,
    /// Number of writes that have arrived from processes that can die.
    writes: u64,
}

impl FaultInjector {
    pub(super) fn new(seed: u64, fault_percent: u64) -> Self {
        Self(Arc::new(Mutex::new(FaultState {
            rng: Rng::new(seed ^ 0x5707),
            fault_percent,
            tally: Tally::new(),
            rules: Rules::new(seed),
            denied: Vec::new(),
            held: Vec::new(),
            breaks: BTreeMap::new(),
            wakers: Vec::new(),
            writes: 0,
        })))
    }

    pub(super) fn add(&self, rule: Rule) {
        self.0.lock().unwrap().rules.add(rule);
    }

    /// Removes all rules. True if they have had all their effects.
    pub(super) fn clear_rules(&self) -> bool {
        let rules = &mut self.0.lock().unwrap().rules;
        let is_pending = rules.is_pending();
        rules.clear();
        !is_pending
    }

    /// Number of writes that have arrived from processes that can die.
    pub(super) fn writes(&self) -> u64 {
        self.0.lock().unwrap().writes
    }

    /// Grants or revokes a permission, such as `create` `jobs`.
    pub(super) fn allow(&self, verb: &str, resource: &str, allowed: bool) {
        let denied = &mut self.0.lock().unwrap().denied;
        denied.retain(|one| *one != (verb.to_owned(), resource.to_owned()));
        if !allowed {
            denied.push((verb.to_owned(), resource.to_owned()));
        }
    }

    fn is_denied(&self, verb: &str, resource: &str) -> bool {
        let state = self.0.lock().unwrap();
        state.denied.iter().any(|(v, r)| v == verb && r == resource)
    }

    /// Holds back the watch of a resource, or delivers all its events.
    pub(super) fn hold_watch(&self, resource: &str, holds: bool) {
        let mut state = self.0.lock().unwrap();
        state.held.retain(|one| one != resource);
        if holds {
            state.held.push(resource.to_owned());
        }
        state.wakers.drain(..).for_each(Waker::wake);
    }

    /// Breaks the open watches of a resource.
    pub(super) fn cut_watches(&self, resource: &str) {
        let mut state = self.0.lock().unwrap();
        *state.breaks.entry(resource.to_owned()).or_default() += 1;
        state.wakers.drain(..).for_each(Waker::wake);
    }

    fn breaks(&self, resource: &str) -> u32 {
        self.0
            .lock()
            .unwrap()
            .breaks
            .get(resource)
            .copied()
            .unwrap_or_default()
    }

    fn poll_held(&self, resource: &str, waker: &Waker) -> bool {
        let mut state = self.0.lock().unwrap();
        if !state.wakers.iter().any(|one| one.will_wake(waker)) {
            state.wakers.push(waker.clone());
        }
        state.held.iter().any(|one| one == resource)
    }

    /// Ends all faults.
    pub(super) fn stop_faults(&self) {
        self.0.lock().unwrap().fault_percent = 0;
    }

    pub(super) fn tally(&self) -> Tally {
        self.0.lock().unwrap().tally.clone()
    }

    pub(super) fn count(&self, kind: &'static str) {
        *self.0.lock().unwrap().tally.entry(kind).or_default() += 1;
    }

    fn apply(&self, request: &ApiRequest, mortal: bool) -> Option<Effect> {
        // `/version` has no part in a roll-out, and would only move the faults of other requests to other seeds.
        if request.resource.is_empty() {
            return None;
        }
        let mut state = self.0.lock().unwrap();
        state.writes += u64::from(mortal && request.is_write_or_event());
        if mortal && let Some(effect) = state.rules.apply(request) {
            return Some(effect);
        }
        let fault_percent = state.fault_percent;
        let rng = &mut state.rng;
        if !rng.chance(fault_percent) {
            return None;
        }
        let writes = !matches!(request.verb.as_str(), "get" | "list" | "watch");
        let (effect, kind) = match rng.below(if writes { 22 } else { 9 }) {
            0 | 1 => (
                Effect::Delay(Before, Duration::from_millis(rng.below(4_000))),
                "late",
            ),
            2 => (
                Effect::Delay(After, Duration::from_millis(rng.below(4_000))),
                "late answer",
            ),
            3 | 4 => (Effect::Answer(Before, 429), "429"),
            5 => (Effect::Answer(Before, 500), "500"),
            6 => (Effect::Hang(Before), "timeout before"),
            7 => (Effect::Hang(After), "timeout after"),
            8 => (Effect::Answer(After, 500), "500 after"),
            9..14 => (Effect::Overtake, "409"),
            14 | 15 => (Effect::Hang(After), "timeout after a write"),
            16 => (Effect::Answer(After, 504), "504 after a write"),
            17 => (Effect::Answer(After, 500), "500 after a write"),
            18 | 19 if mortal => (Effect::Kill(Before), "death before a write"),
            _ if mortal => (Effect::Kill(After), "death after a write"),
            _ => (Effect::Hang(After), "timeout after a write"),
        };
        *state.tally.entry(kind).or_default() += 1;
        Some(effect)
    }

    /// The fault of a watch: the time until it breaks, and whether the server has dropped its history.
    fn watch_fault(&self) -> (Option<Duration>, bool) {
        let mut state = self.0.lock().unwrap();
        let fault_percent = state.fault_percent;
        let breaks = state.rng.chance(fault_percent * 4);
        let forgets = state.rng.chance(fault_percent);
        let after = Duration::from_millis(500 + state.rng.below(90_000));
        if breaks {
            *state.tally.entry("watch broken off").or_default() += 1;
        }
        if forgets {
            *state.tally.entry("410").or_default() += 1;
        }
        (breaks.then_some(after), forgets)
    }

    /// The lag of a cache from which a list was served.
    fn cache_lag(&self) -> Duration {
        let mut state = self.0.lock().unwrap();
        *state.tally.entry("list from a cache that is behind").or_default() += 1;
        Duration::from_millis(state.rng.below(8_000))
    }

    /// The delay of a watch event.
    fn event_delay(&self) -> Duration {
        let mut state = self.0.lock().unwrap();
        let fault_percent = state.fault_percent;
        if !state.rng.chance(fault_percent) {
            return Duration::ZERO;
        }
        *state.tally.entry("event delayed").or_default() += 1;
        Duration::from_millis(state.rng.below(8_000))
    }
}
