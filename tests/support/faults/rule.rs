//! Which requests something happens to, and what.

use std::time::Duration;

use super::asked::Asked;

/// A rule: begins with [`Rule::on`] or [`Rule::write`], says which of those requests, and ends with what
/// happens to them.
///
/// ```ignore
/// Rule::on("create", "jobs").nth(3).answer(409)
/// Rule::on("watch", "nodes").late_events(Duration::from_secs(3))
/// Rule::write().nth(7).kill(Moment::After)
/// Rule::write().chance(0.05).lose_answer()
/// ```
#[derive(Clone, Debug)]
pub struct Rule {
    verb: Option<String>,
    resource: Option<String>,
    name: Option<String>,
    /// Requests that pass before the rule acts.
    pass: u64,
    /// How often it acts at most.
    times: u64,
    /// Of those that do not pass, it acts on the first of so many.
    every: u64,
    chance: f64,
    effect: Effect,
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// The proxy answers with this code; the API server does not see the request.
    Answer(u16),
    /// No answer, ever; the API server does not see the request.
    Hang,
    /// The connection breaks; the API server does not see the request.
    Refuse,
    /// The API server carries the request out, and the connection breaks instead of an answer.
    LoseAnswer,
    /// The answer is held back.
    Late(Duration),
    /// The events of a watch are held back, each as long.
    LateEvents(Duration),
    /// `kill -9` of the controller.
    Kill(Moment),
}

/// When the controller dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The API server does not see the request.
    Before,
    /// The API server has carried the request out; the controller has not read the answer.
    After,
}

impl Rule {
    /// For requests with this verb and resource, as RBAC writes them (`patch`, `plans/status`); `*` is any.
    pub fn on(verb: &str, resource: &str) -> Self {
        let some = |text: &str| (text != "*").then(|| text.to_owned());
        Self {
            verb: some(verb),
            resource: some(resource),
            ..Self::any(Effect::Hang)
        }
    }

    /// For every write, Leases, Events and questions about permissions aside.
    pub fn write() -> Self {
        Self {
            verb: Some(WRITE.to_owned()),
            ..Self::any(Effect::Hang)
        }
    }

    fn any(effect: Effect) -> Self {
        Self {
            verb: None,
            resource: None,
            name: None,
            pass: 0,
            times: u64::MAX,
            every: 1,
            chance: 1.0,
            effect,
        }
    }

    /// Only for the object of this name.
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Only the n-th of them, from 1.
    pub fn nth(self, n: u64) -> Self {
        self.after(n - 1).times(1)
    }

    /// Not the first n of them.
    pub fn after(mut self, n: u64) -> Self {
        self.pass = n;
        self
    }

    /// At most n times.
    pub fn times(mut self, n: u64) -> Self {
        self.times = n;
        self
    }

    /// Only each n-th of them: the n-th, the 2n-th and so on.
    pub fn every(mut self, n: u64) -> Self {
        self.pass = n - 1;
        self.every = n;
        self
    }

    /// Each with this probability, by the proxy's seed.
    pub fn chance(mut self, chance: f64) -> Self {
        self.chance = chance;
        self
    }

    /// The proxy answers in the API server's place: 403, 404, 409, 410, 429, 500, 503 …
    pub fn answer(self, code: u16) -> Self {
        self.does(Effect::Answer(code))
    }

    pub fn hang(self) -> Self {
        self.does(Effect::Hang)
    }

    pub fn refuse(self) -> Self {
        self.does(Effect::Refuse)
    }

    pub fn lose_answer(self) -> Self {
        self.does(Effect::LoseAnswer)
    }

    pub fn late(self, by: Duration) -> Self {
        self.does(Effect::Late(by))
    }

    pub fn late_events(self, by: Duration) -> Self {
        self.does(Effect::LateEvents(by))
    }

    pub fn kill(self, moment: Moment) -> Self {
        self.does(Effect::Kill(moment))
    }

    fn does(mut self, effect: Effect) -> Self {
        self.effect = effect;
        self
    }

    fn is_for(&self, asked: &Asked) -> bool {
        let verb = match self.verb.as_deref() {
            None => true,
            Some(WRITE) => asked.is_write(),
            Some(verb) => verb == asked.verb,
        };
        verb && self
            .resource
            .as_ref()
            .is_none_or(|resource| *resource == asked.resource)
            && self.name.as_ref().is_none_or(|name| *name == asked.name)
    }
}

/// Stands for all verbs that write.
const WRITE: &str = "(write)";

/// A rule at work.
#[derive(Debug)]
pub(super) struct Armed {
    rule: Rule,
    met: u64,
    acted: u64,
}

impl From<Rule> for Armed {
    fn from(rule: Rule) -> Self {
        Self {
            rule,
            met: 0,
            acted: 0,
        }
    }
}

impl Armed {
    /// What the rule does to this request. `index` is the rule's place among the others.
    pub(super) fn meets(&mut self, asked: &Asked, seed: u64, index: usize) -> Option<Effect> {
        if !self.rule.is_for(asked) {
            return None;
        }
        self.met += 1;
        let acts = self.met > self.rule.pass
            && (self.met - self.rule.pass - 1).is_multiple_of(self.rule.every)
            && self.acted < self.rule.times
            && portion(seed ^ (index as u64) << 32 ^ self.met) < self.rule.chance;
        if !acts {
            return None;
        }
        self.acted += 1;
        Some(self.rule.effect.clone())
    }
}

/// A number from 0 to 1 that is as good as random and always the same for the same input (the mixing step of
/// `SplitMix64`).
fn portion(input: u64) -> f64 {
    let mut bits = input.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    f64::from((bits >> 32) as u32) / f64::from(u32::MAX)
}
