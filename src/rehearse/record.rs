//! What happens in a rehearsal, read off the changes of objects: which Plan is on which node since when, in which phase, what
//! it waits for, and how it ends. It only looks; what it makes of it are facts with times.

mod facts;
mod read;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub use facts::{Effect, Happening, Standing, Stay, Turn, Wait, What};
use jiff::Timestamp;
pub use read::{dependency, is_complete};
use read::{environment, has_ended, has_succeeded, of_plan, text};

use super::resources::Kind;
use super::store::{Change, Object};
use crate::api::DrainNote;
use crate::api::names::{ANNOTATION_DRAIN, ENV_PLAN_LATEST_VERSION, LABEL_CONTROLLER, LABEL_PLAN};
use crate::job::name::plan_label_key;
use crate::rehearse::json::Value;

/// Phase of a node that has no slot yet (`status.active[].phase`).
const WAITING: &str = "Waiting";
/// Phase of a node on which the Plan failed.
const FAILED: &str = "Failed";
/// Phase in which a payload may wait for another Plan.
const PREPARING: &str = "Preparing";
/// Reasons of waiting nodes that are no news: others are worked on, or the Plan is being read.
const ORDINARY: [&str; 2] = ["NoSlot", "NotReady"];
/// Reasons that are known better from the drain's own note.
const NOTED: [&str; 1] = ["DrainWaiting"];
/// Reasons of a single node; the others are those of its Plan.
const OF_NODES: [&str; 7] = [
    "NodeNotReady",
    "NodeBusy",
    "NameTaken",
    "JobLeaving",
    "PodLeaving",
    "JobRefused",
    "SettingMissing",
];

/// A Plan that is looked at.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// Its label on nodes that are done.
    label: String,
    hash: Option<String>,
    version: Option<String>,
    /// The Plan that its `prepare` waits for.
    depends: Option<String>,
    complete: bool,
    turns: BTreeMap<String, Turn>,
}

type WaitKey = (String, Option<String>, String);

/// Looks, and remembers.
#[derive(Debug)]
pub struct Recorder {
    plans: BTreeMap<String, Seen>,
    open: BTreeMap<WaitKey, Wait>,
    closed: Vec<Wait>,
    progress: Timestamp,
    news: Vec<Happening>,
}

impl Recorder {
    /// Looks from now on.
    pub fn new(now: Timestamp) -> Self {
        Self {
            plans: BTreeMap::new(),
            open: BTreeMap::new(),
            closed: Vec::new(),
            progress: now,
            news: Vec::new(),
        }
    }

    /// When something last came closer to its end.
    pub fn progress(&self) -> Timestamp {
        self.progress
    }

    /// What happened since this was last asked.
    pub fn news(&mut self) -> Vec<Happening> {
        std::mem::take(&mut self.news)
    }

    /// Whether a Plan is complete.
    pub fn is_complete(&self, plan: &str) -> bool {
        self.plans.get(plan).is_some_and(|seen| seen.complete)
    }

    /// The Plan that the nodes of a Plan wait for in `prepare`.
    pub fn depends(&self, plan: &str) -> Option<&str> {
        self.plans.get(plan)?.depends.as_deref()
    }

    /// A Plan's nodes that were begun with, by name.
    pub fn turns(&self, plan: &str) -> impl Iterator<Item = (&String, &Turn)> {
        self.plans.get(plan).into_iter().flat_map(|seen| &seen.turns)
    }

    /// All that was waited for, in the order in which it began.
    pub fn waits(&self) -> Vec<Wait> {
        let mut all: Vec<Wait> = self.closed.iter().chain(self.open.values()).cloned().collect();
        all.sort_by(|a, b| {
            (a.since, &a.plan, &a.node, &a.blocker).cmp(&(b.since, &b.plan, &b.node, &b.blocker))
        });
        all
    }

    /// Looks at a change.
    pub fn see(&mut self, kind: Kind, change: &Change, now: Timestamp) -> Option<Effect> {
        match kind {
            Kind::Plan if !change.gone => self.see_plan(&change.new.value, now),
            Kind::Node if !change.gone => self.see_node(change, now),
            Kind::Job if !change.gone => self.see_job(change, now),
            Kind::Pod => return self.see_pod(change, now),
            _ => {}
        }
        None
    }

    fn tell(&mut self, at: Timestamp, plan: &str, node: Option<&str>, what: What) {
        self.news.push(Happening {
            at,
            plan: plan.to_owned(),
            node: node.map(str::to_owned),
            what,
        });
    }

    fn see_plan(&mut self, plan: &Value, now: Timestamp) {
        let name = text(&plan["metadata"], "name").to_owned();
        let status = &plan["status"];
        let seen = self.plans.entry(name.clone()).or_default();
        seen.label = plan_label_key(&name);
        seen.depends = dependency(&plan["spec"]["prepare"]);
        let depends = seen.depends.clone();
        seen.hash = status["latestHash"].as_str().map(str::to_owned);
        let version = status["latestVersion"].as_str().map(str::to_owned);
        if version.is_some() && seen.version != version {
            seen.version.clone_from(&version);
            self.progress = now;
            self.tell(now, &name, None, What::Resolved(version.unwrap_or_default()));
        }
        let mut waited: BTreeSet<WaitKey> = BTreeSet::new();
        let mut here: BTreeSet<&str> = BTreeSet::new();
        for entry in status["active"].as_array().into_iter().flatten() {
            let (node, phase) = (text(entry, "name"), text(entry, "phase"));
            let (reason, message) = (text(entry, "reason"), text(entry, "message"));
            if phase == WAITING {
                if reason.is_empty() || ORDINARY.contains(&reason) {
                    continue;
                }
                let of = OF_NODES.contains(&reason).then_some(node);
                waited.insert(self.waits_for(&name, of, reason, reason, message, now));
                continue;
            }
            here.insert(node);
            self.see_active(&name, node, phase, (reason, message), now);
            if phase == FAILED {
                continue;
            }
            if let Some(other) = depends.as_deref().filter(|_| phase == PREPARING)
                && !self.is_complete(other)
            {
                let blocker = format!("Plan {other}");
                let message = format!("for Plan {other}, in `prepare`");
                waited.insert(self.waits_for(&name, Some(node), "Prepare", &blocker, &message, now));
            }
            if !reason.is_empty() && !NOTED.contains(&reason) {
                waited.insert(self.waits_for(&name, Some(node), reason, reason, message, now));
            }
        }
        self.let_go_of(&name, &here);
        self.close_waits(now, |key, wait| {
            key.0 == name && wait.reason != BUDGET && !waited.contains(key)
        });
        let is_complete = is_complete(plan);
        let seen = self.plans.entry(name.clone()).or_default();
        let was_complete = std::mem::replace(&mut seen.complete, is_complete);
        if is_complete && !was_complete {
            self.progress = now;
            self.tell(now, &name, None, What::Complete);
        }
    }

    /// A node that has its slot.
    fn see_active(&mut self, plan: &str, node: &str, phase: &str, why: (&str, &str), now: Timestamp) {
        let turn = self.turn(plan, node, now);
        let (reason, message) = why;
        let said = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        if turn.standing != Standing::Done {
            turn.reason = said(reason);
            turn.message = said(message);
        }
        if turn.stays.last().is_some_and(|stay| stay.phase == phase) {
            return;
        }
        if let Some(last) = turn.stays.last_mut() {
            last.until = Some(now);
        }
        turn.stays.push(Stay {
            phase: phase.to_owned(),
            since: now,
            until: None,
        });
        self.progress = now;
        if phase == FAILED {
            let turn = self.turn(plan, node, now);
            turn.standing = Standing::Failed;
            turn.until = Some(now);
            let what = What::Failed {
                reason: reason.to_owned(),
                message: message.to_owned(),
            };
            self.tell(now, plan, Some(node), what);
        } else {
            let turn = self.turn(plan, node, now);
            if turn.standing == Standing::Failed {
                turn.standing = Standing::Working;
                turn.until = None;
            }
            self.tell(now, plan, Some(node), What::Phase(phase.to_owned()));
        }
    }

    /// The turn of a Plan on a node, which begins now if it has not.
    fn turn(&mut self, plan: &str, node: &str, now: Timestamp) -> &mut Turn {
        let begun = self
            .plans
            .get(plan)
            .is_some_and(|seen| seen.turns.contains_key(node));
        if !begun {
            self.progress = now;
            self.tell(now, plan, Some(node), What::Begins);
        }
        let seen = self.plans.entry(plan.to_owned()).or_default();
        let begins = || Turn::new(now, None, Standing::Working);
        seen.turns.entry(node.to_owned()).or_insert_with(begins)
    }

    /// Nodes that had a slot and gave it back before anything was begun are as if they had never had it.
    fn let_go_of(&mut self, plan: &str, here: &BTreeSet<&str>) {
        if let Some(seen) = self.plans.get_mut(plan) {
            seen.turns.retain(|node, turn| {
                turn.has_job || turn.standing != Standing::Working || here.contains(node.as_str())
            });
        }
    }

    fn see_node(&mut self, change: &Change, now: Timestamp) {
        let node = change.new.meta("name");
        let done: Vec<String> = self
            .plans
            .iter()
            .filter(|(_, seen)| {
                let label = |object: &Object| object.label(&seen.label).map(str::to_owned);
                let before = change.old.as_deref().and_then(label);
                let after = label(&change.new);
                seen.hash.is_some() && after == seen.hash && before != after
            })
            .map(|(plan, _)| plan.clone())
            .collect();
        for plan in done {
            let turn = self.turn(&plan, node, now);
            turn.standing = Standing::Done;
            turn.until = Some(now);
            (turn.reason, turn.message) = (None, None);
            if let Some(last) = turn.stays.last_mut() {
                last.until = Some(now);
            }
            self.progress = now;
            self.tell(now, &plan, Some(node), What::Done);
            self.close_waits(now, |key, _| key.0 == plan && key.1.as_deref() == Some(node));
        }
    }

    fn see_job(&mut self, change: &Change, now: Timestamp) {
        let Some((plan, node)) = of_plan(&change.new) else {
            return;
        };
        let failures = |object: &Object| object.value["status"]["failed"].as_i64().unwrap_or_default();
        let before = change.old.as_deref().map(failures);
        let after = failures(&change.new);
        let is_done = |turn: &Turn| turn.standing == Standing::Done;
        let known = self.plans.get(&plan).and_then(|seen| seen.turns.get(&node));
        if known.is_some_and(is_done) {
            return;
        }
        let turn = self.turn(&plan, &node, now);
        turn.has_job = true;
        turn.failures = turn.failures.max(after);
        if before != Some(after) {
            self.progress = now;
        }
    }

    fn see_pod(&mut self, change: &Change, now: Timestamp) -> Option<Effect> {
        change.new.label(LABEL_CONTROLLER)?;
        let plan = change.new.label(LABEL_PLAN)?.to_owned();
        let node = change.new.text("/spec/nodeName").to_owned();
        let drained = |object: &Object| {
            let text = object.value["metadata"]["annotations"][ANNOTATION_DRAIN].as_str()?;
            DrainNote::parse(text)
        };
        let (before, after) = (change.old.as_deref().and_then(drained), drained(&change.new));
        let ended = change.gone || has_ended(&change.new, "drain") || super::state::is_over(&change.new);
        if before != after || ended {
            self.see_drain(&plan, &node, after.as_ref().filter(|_| !ended), now);
            if before.map(|note| note.evicted) != after.map(|note| note.evicted) {
                self.progress = now;
            }
        }
        let was_upgraded = change
            .old
            .as_deref()
            .is_some_and(|old| has_succeeded(old, "upgrade"));
        if was_upgraded || !has_succeeded(&change.new, "upgrade") {
            return None;
        }
        let version = environment(&change.new, "upgrade", ENV_PLAN_LATEST_VERSION)?;
        Some(Effect::Upgraded { node, version })
    }

    /// What a drain says of itself, or that it has ended.
    fn see_drain(&mut self, plan: &str, node: &str, drain: Option<&DrainNote>, now: Timestamp) {
        let mut waited = BTreeSet::new();
        for wait in drain.into_iter().flat_map(|drain| &drain.waiting) {
            let namespace = wait.pod.split('/').next().unwrap_or_default();
            let blocker = match &wait.pdb {
                Some(pdb) => format!("PodDisruptionBudget {namespace}/{pdb}"),
                None => format!("Pod {}", wait.pod),
            };
            let message = format!("{blocker} holds {} ({})", wait.pod, wait.why);
            let key = self.waits_for(plan, Some(node), BUDGET, &blocker, &message, now);
            if let Some(open) = self.open.get_mut(&key) {
                open.since = open.since.min(wait.since);
            }
            waited.insert(key);
        }
        self.close_waits(now, |key, wait| {
            key.0 == plan && key.1.as_deref() == Some(node) && wait.reason == BUDGET && !waited.contains(key)
        });
    }

    /// Something is waited for. Whoever closes what is not waited for any more needs its key.
    fn waits_for(
        &mut self,
        plan: &str,
        node: Option<&str>,
        reason: &str,
        blocker: &str,
        message: &str,
        now: Timestamp,
    ) -> WaitKey {
        let key = (plan.to_owned(), node.map(str::to_owned), blocker.to_owned());
        if let Some(open) = self.open.get_mut(&key) {
            if open.message != message {
                message.clone_into(&mut open.message);
            }
            return key;
        }
        let wait = Wait {
            plan: plan.to_owned(),
            node: node.map(str::to_owned),
            reason: reason.to_owned(),
            blocker: blocker.to_owned(),
            message: message.to_owned(),
            since: now,
            until: None,
        };
        self.open.insert(key.clone(), wait);
        let what = What::Waits {
            reason: reason.to_owned(),
            message: message.to_owned(),
        };
        self.tell(now, plan, node, what);
        key
    }

    fn close_waits(&mut self, now: Timestamp, which: impl Fn(&WaitKey, &Wait) -> bool) {
        let over: Vec<WaitKey> = self
            .open
            .iter()
            .filter(|(key, wait)| which(key, wait))
            .map(|(key, _)| key.clone())
            .collect();
        for key in over {
            if let Some(mut wait) = self.open.remove(&key) {
                wait.until = Some(now);
                self.tell(now, &wait.plan, wait.node.as_deref(), What::GoesOn);
                self.closed.push(wait);
            }
        }
    }
}

/// Reason of a wait for somebody else's pods.
pub const BUDGET: &str = "DrainWaiting";
