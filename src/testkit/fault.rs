//! The faults that tests inject into requests: which requests, and what happens to them. One notation for both back ends,
//! the simulated cluster and a proxy in front of a real API server.
//!
//! ```
//! # use refit::rehearse::fault::{Moment, Rule};
//! # use std::time::Duration;
//! Rule::on("create", "jobs").nth(3).answer(409);
//! Rule::on("patch", "nodes").late(Duration::from_secs(3));
//! Rule::write().nth(7).kill(Moment::After);
//! Rule::write().chance(0.05).lose_answer();
//! ```

mod request;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use request::ApiRequest;

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The client gets an error with this code.
    Answer(Moment, u16),
    /// The client never gets a response.
    Hang(Moment),
    Disconnect(Moment),
    /// The request, or its response, is held back.
    Delay(Moment, Duration),
    /// Another client writes the object first.
    Overtake,
    /// The client's process is killed.
    Kill(Moment),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before the API server sees the request, so that it has no effect.
    Before,
    /// After the API server has carried out the request, and before the client has its response.
    After,
}

/// An effect, and the requests that it happens to: by default all with this verb and resource.
#[derive(Clone, Debug)]
pub struct Rule {
    requests: Matches,
    name: Option<String>,
    /// Number of requests before the first effect.
    pass: u64,
    /// Maximum number of effects.
    times: u64,
    /// After `pass`, the effect happens to the first of this many requests.
    every: u64,
    chance: f64,
    effect: Effect,
}

/// In RBAC's notation, and any.
const VERBS: [&str; 9] = [
    "*",
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];

#[derive(Clone, Debug)]
enum Matches {
    /// Verb and resource; `None` is any.
    Resource(Option<String>, Option<String>),
    Writes,
    WritesAndEvents,
}

impl Rule {
    /// Requests with this verb and resource in RBAC's notation (`patch`, `plans/status`); `*` is any.
    ///
    /// # Panics
    /// Panics if there is no such verb: the rule would apply to nothing.
    pub fn on(verb: &str, resource: &str) -> Self {
        assert!(VERBS.contains(&verb), "{verb} is no verb");
        let unless_any = |text: &str| (text != "*").then(|| text.to_owned());
        Self::of(Matches::Resource(unless_any(verb), unless_any(resource)))
    }

    /// All writes except for Leases and Events, whose number depends on time.
    pub fn write() -> Self {
        Self::of(Matches::Writes)
    }

    /// All writes except for Leases.
    pub fn write_or_event() -> Self {
        Self::of(Matches::WritesAndEvents)
    }

    fn of(requests: Matches) -> Self {
        Self {
            requests,
            name: None,
            pass: 0,
            times: u64::MAX,
            every: 1,
            chance: 1.0,
            effect: Effect::Hang(Moment::Before),
        }
    }

    /// Only for the object with this name.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Only the n-th request, from 1.
    #[must_use]
    pub fn nth(self, n: u64) -> Self {
        self.after(n - 1).times(1)
    }

    /// Only the first request.
    #[must_use]
    pub fn once(self) -> Self {
        self.times(1)
    }

    /// Not the first n requests.
    #[must_use]
    pub fn after(mut self, n: u64) -> Self {
        self.pass = n;
        self
    }

    /// At most n times.
    #[must_use]
    pub fn times(mut self, n: u64) -> Self {
        self.times = n;
        self
    }

    /// Only the n-th, 2n-th, … request.
    #[must_use]
    pub fn every(mut self, n: u64) -> Self {
        self.pass = n - 1;
        self.every = n;
        self
    }

    /// Each with this probability, determined by the seed.
    #[must_use]
    pub fn chance(mut self, chance: f64) -> Self {
        self.chance = chance;
        self
    }

    /// The API server does not see the request, and the client gets this error: 403, 404, 409, 410, 429, 500, 503 …
    #[must_use]
    pub fn answer(self, code: u16) -> Self {
        self.effect(Effect::Answer(Moment::Before, code))
    }

    /// The API server does not see the request, and the client gets no response.
    #[must_use]
    pub fn hang(self) -> Self {
        self.effect(Effect::Hang(Moment::Before))
    }

    /// The request takes effect, and the client gets no response.
    #[must_use]
    pub fn hang_after(self) -> Self {
        self.effect(Effect::Hang(Moment::After))
    }

    /// The connection breaks before the API server sees the request.
    #[must_use]
    pub fn refuse(self) -> Self {
        self.effect(Effect::Disconnect(Moment::Before))
    }

    /// The request takes effect, and the connection breaks before the response.
    #[must_use]
    pub fn lose_answer(self) -> Self {
        self.effect(Effect::Disconnect(Moment::After))
    }

    /// The request is held back.
    #[must_use]
    pub fn delay(self, by: Duration) -> Self {
        self.effect(Effect::Delay(Moment::Before, by))
    }

    /// The response is held back.
    #[must_use]
    pub fn late(self, by: Duration) -> Self {
        self.effect(Effect::Delay(Moment::After, by))
    }

    #[must_use]
    pub fn overtake(self) -> Self {
        self.effect(Effect::Overtake)
    }

    #[must_use]
    pub fn kill(self, moment: Moment) -> Self {
        self.effect(Effect::Kill(moment))
    }

    #[must_use]
    pub fn effect(mut self, effect: Effect) -> Self {
        self.effect = effect;
        self
    }

    fn matches(&self, request: &ApiRequest) -> bool {
        let is = |wanted: &Option<String>, known: &str| wanted.as_deref().is_none_or(|it| it == known);
        let matches = match &self.requests {
            Matches::Resource(verb, resource) => is(verb, &request.verb) && is(resource, &request.resource),
            Matches::Writes => request.is_write(),
            Matches::WritesAndEvents => request.is_write_or_event(),
        };
        matches && is(&self.name, &request.name)
    }
}

/// Rules in effect. The effects depend on the rules, the seed and the order of the requests, and on nothing else.
#[derive(Debug)]
pub struct Rules {
    seed: u64,
    rules: Vec<ActiveRule>,
}

#[derive(Debug)]
struct ActiveRule {
    rule: Rule,
    /// Number of requests that it matched.
    matched: u64,
    effects: u64,
}

impl Rules {
    pub fn new(seed: u64) -> Self {
        let rules = Vec::new();
        Self { seed, rules }
    }

    pub fn add(&mut self, rule: Rule) {
        self.rules.push(ActiveRule {
            rule,
            matched: 0,
            effects: 0,
        });
    }

    pub fn clear(&mut self) {
        self.rules.clear();
    }

    /// Whether a rule has not had all its effects.
    pub fn is_pending(&self) -> bool {
        self.rules.iter().any(|active| active.effects < active.rule.times)
    }

    /// The effect of the first rule that has one. All rules that match the request count it.
    pub fn apply(&mut self, request: &ApiRequest) -> Option<Effect> {
        let mut first = None;
        for (active, index) in self.rules.iter_mut().zip(0..) {
            if first.is_none() {
                // A seed for each rule: two with the same chance would otherwise affect the same requests.
                first = active.apply(request, self.seed ^ (index << 32));
            } else if active.rule.matches(request) {
                active.matched += 1;
            }
        }
        first
    }
}

impl ActiveRule {
    fn apply(&mut self, request: &ApiRequest, seed: u64) -> Option<Effect> {
        if !self.rule.matches(request) {
            return None;
        }
        self.matched += 1;
        let applies = self.matched > self.rule.pass
            && (self.matched - self.rule.pass - 1).is_multiple_of(self.rule.every)
            && self.effects < self.rule.times
            && random_portion(seed ^ self.matched) < self.rule.chance;
        if !applies {
            return None;
        }
        self.effects += 1;
        Some(self.rule.effect)
    }
}

/// A pseudo-random number from 0 to 1 that depends on the input only (the mixing step of `SplitMix64`).
fn random_portion(input: u64) -> f64 {
    let mut bits = input.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    f64::from((bits >> 32) as u32) / f64::from(u32::MAX)
}
