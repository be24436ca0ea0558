//! `spec.checks`: whether the answers of servers let a node start, and when they are asked.
//!
//! A check is asked only while its answer is needed: when a node could start otherwise, and during soaks. An answer
//! counts for the nodes that start together. Once a node has started, ended or failed, others are needed. They are only in
//! memory: another controller asks again before it starts a node.

use jiff::{SignedDuration, Timestamp};

use super::blocker::Blocker;
use super::decision::Decision;
use super::step::{Query, Step};
use crate::later::later;
use refit_api::text::{MAX_MESSAGE, seconds, shorten};
use refit_api::{Check, CheckAnswer, CheckPhase, CheckStatus, PlanStatus};
use refit_facts::{Hash, PlanName};

/// Minimum time between two requests. Each start or end of a node voids the answers, and in a large roll-out many nodes
/// start or end within a second.
const MIN_PAUSE: SignedDuration = SignedDuration::from_secs(1);

/// The checks of a Plan.
#[derive(Debug, Default)]
pub(super) struct Checks {
    all: Vec<CheckState>,
    /// What has been done in the roll-out when the last answers were given.
    progress: Option<Progress>,
    /// Only answers to later requests count.
    from: Timestamp,
}

/// What makes answers void when it changes.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    pub(super) hash: Option<Hash>,
    pub(super) done: i64,
    pub(super) failed: i64,
    /// Hostnames of the nodes that have a slot in the stored status.
    pub(super) applying: Vec<String>,
}

impl Progress {
    /// Whether no node has started, ended or failed since. A slot that is free was in use until its node ended.
    fn is_as(&self, before: &Self) -> bool {
        let had_slot = |name: &String| before.applying.contains(name);
        (&self.hash, self.done, self.failed) == (&before.hash, before.done, before.failed)
            && self.applying.iter().all(had_slot)
    }
}

#[derive(Debug)]
struct CheckState {
    check: Check,
    /// Number of consecutive passes.
    streak: u32,
    /// When the last answered request was sent.
    asked: Option<Timestamp>,
    answer: Option<CheckAnswer>,
    /// When the last answer became good, or ceased to be.
    since: Option<Timestamp>,
    /// Whether the last known answer was not good, also if that is only in the stored status.
    is_failing: bool,
    /// What the message of the blocker says: the last answer, but not each of its numbers, because each message is an event.
    shown: String,
    /// When it last passed after it had failed.
    recovered: Option<Timestamp>,
}

impl CheckState {
    fn new(check: Check, stored: Option<&CheckStatus>) -> Self {
        let failed = stored.filter(|stored| stored.phase == CheckPhase::Failing);
        Self {
            streak: 0,
            asked: None,
            answer: None,
            since: failed.and_then(|stored| stored.since.as_deref()?.parse().ok()),
            is_failing: failed.is_some(),
            shown: failed
                .and_then(|stored| stored.message.clone())
                .unwrap_or_default(),
            recovered: None,
            check,
        }
    }

    fn interval(&self) -> SignedDuration {
        SignedDuration::try_from(self.check.interval).unwrap_or(SignedDuration::MAX)
    }

    fn timeout(&self) -> SignedDuration {
        SignedDuration::try_from(self.check.timeout).unwrap_or(SignedDuration::MAX)
    }

    /// When it is asked next.
    fn due(&self, from: Timestamp) -> Timestamp {
        let Some(asked) = self.asked else {
            return Timestamp::MIN;
        };
        let pause = if asked < from { MIN_PAUSE } else { self.interval() };
        later(asked, pause)
    }

    /// Whether the last answer is good, and so new that the next one cannot be missing.
    fn is_fresh(&self, now: Timestamp) -> bool {
        let age = self.interval().saturating_add(self.timeout());
        let end = self.asked.and_then(|asked| asked.checked_add(age).ok());
        !self.is_failing && self.asked.is_some_and(|asked| asked <= now) && end.is_some_and(|end| now <= end)
    }

    fn apply(&mut self, asked: Timestamp, answer: CheckAnswer, counts: bool, now: Timestamp) {
        // Nothing is asked while no node can start. Passes before and after such a gap are not consecutive.
        let longest = self.interval().saturating_mul(2).saturating_add(self.timeout());
        let is_next = self
            .asked
            .is_some_and(|before| before <= asked && asked.duration_since(before) <= longest);
        if !answer.passed || !is_next {
            self.streak = 0;
        }
        if answer.passed && counts {
            self.streak = self.streak.saturating_add(1);
        }
        let is_failing = !answer.passed;
        if self.since.is_none() || is_failing != self.is_failing {
            self.since = Some(now);
        }
        if self.is_failing && answer.passed {
            self.recovered = Some(now);
        }
        if is_failing != self.is_failing || without_numbers(&self.shown) != without_numbers(&answer.message) {
            self.shown.clone_from(&answer.message);
        }
        self.is_failing = is_failing;
        self.asked = Some(asked);
        self.answer = Some(answer);
    }

    fn status(&self, stored: Option<&CheckStatus>) -> CheckStatus {
        let name = self.check.name.clone();
        // An answer that another controller got is better than none.
        let Some(answer) = &self.answer else {
            return stored.cloned().unwrap_or_else(|| CheckStatus {
                name,
                phase: CheckPhase::Pending.into(),
                ..CheckStatus::default()
            });
        };
        let phase = if self.is_failing {
            CheckPhase::Failing
        } else {
            CheckPhase::Passing
        };
        CheckStatus {
            name,
            phase: phase.into(),
            since: self.since.map(seconds),
            message: Some(shorten(&answer.message, MAX_MESSAGE).into_owned()),
        }
    }
}

fn without_numbers(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_ascii_digit() && !matches!(c, '.' | '-'))
        .collect()
}

impl Checks {
    /// Takes the checks of the spec. One that is as before keeps its answers.
    pub(super) fn read(&mut self, checks: Vec<Check>, stored: &PlanStatus) {
        let mut before = std::mem::take(&mut self.all);
        self.all = checks
            .into_iter()
            .map(|check| {
                if let Some(index) = before.iter().position(|state| state.check == check) {
                    return before.swap_remove(index);
                }
                let stored = stored_entry(stored, &check.name);
                CheckState::new(check, stored)
            })
            .collect();
    }

    /// Requires new answers if a node has started, ended or failed.
    pub(super) fn refresh(&mut self, progress: Progress, now: Timestamp) {
        let before = self.progress.replace(progress);
        let (before, now_is) = (before.as_ref(), self.progress.as_ref());
        if before
            .zip(now_is)
            .is_some_and(|(before, progress)| !progress.is_as(before))
        {
            self.from = now;
            for state in &mut self.all {
                state.streak = 0;
            }
        }
    }

    /// Applies the answer to a request.
    pub(super) fn apply(&mut self, check: &Check, asked: Timestamp, answer: CheckAnswer, now: Timestamp) {
        let from = self.from;
        // The check may have been edited since.
        if let Some(state) = self.all.iter_mut().find(|state| state.check == *check) {
            state.apply(asked, answer, asked >= from, now);
        }
    }

    /// The time of day was set by so much.
    pub(super) fn shift_times(&mut self, shift: impl Fn(&mut Timestamp) + Copy) {
        shift(&mut self.from);
        for state in &mut self.all {
            state.asked.iter_mut().for_each(shift);
            state.recovered.iter_mut().for_each(shift);
        }
    }

    /// Asks those that are due.
    pub(super) fn ask(&self, plan: &PlanName, now: Timestamp, decision: &mut Decision) {
        for state in &self.all {
            let due = state.due(self.from);
            // A request in the future was sent before the clock was set back.
            if due <= now || state.asked.is_some_and(|asked| asked > now) {
                decision.steps.push(Step::Query(Query::Check {
                    plan: plan.clone(),
                    check: Box::new(state.check.clone()),
                }));
            } else {
                decision.requeue(due);
            }
        }
    }

    /// Why no node may start.
    pub(super) fn blocker(&self, now: Timestamp) -> Option<Blocker> {
        self.failing().or_else(|| {
            let is_open = |state: &&CheckState| state.streak >= state.check.passes && state.is_fresh(now);
            let state = self.all.iter().find(|state| !is_open(state))?;
            Some(Blocker::CheckPending {
                check: state.check.name.clone(),
                passed: state.streak.min(state.check.passes),
                passes: state.check.passes,
            })
        })
    }

    /// The first check whose last answer was not good.
    pub(super) fn failing(&self) -> Option<Blocker> {
        let state = self.all.iter().find(|state| state.is_failing)?;
        Some(Blocker::CheckFailing {
            check: state.check.name.clone(),
            answer: state.shown.clone(),
            since: state.since,
        })
    }

    /// Whether the last answers to all are good and not old.
    pub(super) fn are_fresh(&self, now: Timestamp) -> bool {
        self.all.iter().all(|state| state.is_fresh(now))
    }

    /// When one of them last passed after it had failed.
    pub(super) fn recovered(&self) -> Option<Timestamp> {
        self.all.iter().filter_map(|state| state.recovered).max()
    }

    pub(super) fn status(&self, stored: &PlanStatus) -> Option<Vec<CheckStatus>> {
        let of = |state: &CheckState| state.status(stored_entry(stored, &state.check.name));
        (!self.all.is_empty()).then(|| self.all.iter().map(of).collect())
    }
}

fn stored_entry<'a>(stored: &'a PlanStatus, name: &str) -> Option<&'a CheckStatus> {
    let mut stored = stored.checks.iter().flatten();
    stored.find(|stored| stored.name == name)
}
