//! Records a roll-out from changes of objects: which Plan works on which node since when, in which phase, what it waits
//! for, and how it ends. It only observes. A rehearsal has one for its cluster, and `refit dashboard` for a real one.

mod bands;
mod chain;
mod events;
mod hooks;
mod live;
mod new_nodes;
mod outages;
mod read;
mod repetitions;
mod rows;
#[cfg(test)]
mod tests;
mod waits;

use std::collections::{BTreeMap, BTreeSet};

pub use events::{Effect, EventKind, NodeRun, PhaseSpan, RolloutEvent, VersionStep, Wait};
pub use hooks::HookRun;
use jiff::Timestamp;
pub use new_nodes::NewNode;
pub use outages::{Outage, Peak, Roles, TAKEN_DOWN, WORKED_ON, peak};
pub use read::is_complete;
use read::{environment, has_ended, has_succeeded, of_plan, text};
pub use repetitions::Repetitions;

use super::resources::Kind;
use super::store::{Change, Object};
use super::upgrade_script::dependency;
use crate::json::Value;
use events::WaveSpan;
use refit_api::names::{
    ANNOTATION_DRAIN, ANNOTATION_RECORD_PREFIX, ENV_PLAN_LATEST_VERSION, LABEL_CONTROLLER, LABEL_PLAN,
    plan_label,
};
use refit_api::{NodeDrain, NodePhase, OpenEnum, Reason};
use refit_facts::{Phase, Record};
use refit_formats::page::RowState;

/// Phases in which `prepare` may wait; status may lag behind the start of the container.
const BEFORE_THE_UPGRADE: [NodePhase; 3] = [NodePhase::Pending, NodePhase::Starting, NodePhase::Preparing];
/// Reasons that are not reported: the node waits for a slot, or the Plan is being processed.
const ORDINARY: [Reason; 2] = [Reason::NoSlot, Reason::NotReady];
/// Reasons of a single node, each with a wait of its own; the others concern the whole Plan.
const OF_NODES: [Reason; 8] = [
    Reason::NodeNotReady,
    Reason::NodeJoining,
    Reason::NodeBusy,
    Reason::NameTaken,
    Reason::JobLeaving,
    Reason::PodLeaving,
    Reason::JobRefused,
    Reason::SettingMissing,
];

/// Reasons of nodes that many may have at once, and again each time that a slot is free: such nodes share a wait.
const OF_SOME_NODES: [Reason; 9] = [
    Reason::DrainSkipped,
    Reason::DrainWouldBlock,
    Reason::MinorSkip,
    Reason::NodeIsNewer,
    Reason::PodBlocks,
    Reason::PodsPending,
    Reason::RebootIneffective,
    Reason::Skipped,
    Reason::TaintNotTolerated,
];

#[derive(Clone, Debug, Default)]
struct PlanRecord {
    /// Its label on done nodes.
    label: String,
    hash: Option<String>,
    version: Option<String>,
    /// The Plan that its `prepare` waits for.
    depends: Option<String>,
    /// The Plans in its `dependsOn`.
    depends_on: Vec<String>,
    complete: bool,
    repetitions: Repetitions,
    turns: BTreeMap<String, NodeRun>,
    /// Its waves, in their order.
    waves: Vec<WaveSpan>,
    /// Jobs of its `before` and `after`.
    hooks: Vec<HookRun>,
    /// Nodes that have waited for a reason of [`OF_SOME_NODES`], by its name.
    waiting: BTreeMap<&'static str, BTreeSet<String>>,
    /// Nodes with a slot whose Job has not been seen yet. It saves a search of all runs at each change of the Plan.
    without_job: BTreeSet<String>,
}

impl PlanRecord {
    /// Keeps the runs of done nodes apart from those to the next version.
    fn keep_done(&mut self) {
        let turns = std::mem::take(&mut self.turns).into_iter();
        let (done, others): (Vec<_>, Vec<_>) = turns.partition(|(_, run)| run.state == RowState::Done);
        self.repetitions.earlier.extend(done);
        self.turns.extend(others);
    }

    /// How many nodes have been started, once for each roll-out.
    fn started(&self) -> usize {
        self.repetitions.earlier.len() + self.turns.len()
    }
}

type WaitKey = (String, Option<String>, String);

/// The state of the recording.
#[derive(Debug)]
pub struct Recorder {
    plans: BTreeMap<String, PlanRecord>,
    open: BTreeMap<WaitKey, Wait>,
    closed: Vec<Wait>,
    progress: Timestamp,
    /// Plan and node: released because pods had not ended, which nothing ends in a rehearsal. Further attempts are no progress
    /// before they come to the upgrade.
    skipped: BTreeSet<(String, String)>,
    events: Vec<RolloutEvent>,
    steps: Vec<VersionStep>,
    new_nodes: Vec<NewNode>,
    /// Whether it follows a real cluster ([`Self::live`]).
    is_live: bool,
}

impl Recorder {
    pub fn new(now: Timestamp) -> Self {
        Self {
            plans: BTreeMap::new(),
            open: BTreeMap::new(),
            closed: Vec::new(),
            progress: now,
            skipped: BTreeSet::new(),
            events: Vec::new(),
            steps: Vec::new(),
            new_nodes: Vec::new(),
            is_live: false,
        }
    }

    /// When the roll-out last made progress.
    pub fn progress(&self) -> Timestamp {
        self.progress
    }

    /// The nodes that were kept free of pods, in the order in which that began.
    pub fn new_nodes(&self) -> &[NewNode] {
        &self.new_nodes
    }

    /// Takes the events since the last call.
    pub fn take_events(&mut self) -> Vec<RolloutEvent> {
        std::mem::take(&mut self.events)
    }

    pub fn is_complete(&self, plan: &str) -> bool {
        self.plans.get(plan).is_some_and(|seen| seen.complete)
    }

    /// The Plan that a Plan waits for: by its `dependsOn` the first that is not complete, or in `prepare`.
    fn depends(&self, plan: &str) -> Option<&str> {
        let seen = self.plans.get(plan)?;
        let mut others = seen.depends_on.iter().map(String::as_str);
        let others = others.find(|other| !self.is_complete(other));
        others.or(seen.depends.as_deref())
    }

    /// The nodes that a Plan has started, by name; those of an earlier roll-out before those of its repetition.
    pub fn node_runs(&self, plan: &str) -> impl Iterator<Item = (&String, &NodeRun)> {
        self.plans.get(plan).into_iter().flat_map(|seen| {
            let earlier = seen.repetitions.earlier.iter().map(|(node, run)| (node, run));
            earlier.chain(&seen.turns)
        })
    }

    /// All waits, in the order of their starts.
    pub fn waits(&self) -> Vec<Wait> {
        let mut all: Vec<Wait> = self.closed.iter().chain(self.open.values()).cloned().collect();
        all.sort_by(|a, b| {
            (a.since, &a.plan, &a.node, &a.blocker).cmp(&(b.since, &b.plan, &b.node, &b.blocker))
        });
        all
    }

    pub fn observe(&mut self, kind: Kind, change: &Change, now: Timestamp) -> Option<Effect> {
        match kind {
            Kind::Plan if change.gone && self.is_live => self.forget(change.new.meta("name")),
            Kind::Plan if !change.gone => self.observe_plan(&change.new.value, now),
            Kind::Node if !change.gone => self.observe_node(change, now),
            // A Job outlives its roll-out: on a cluster that was not followed from its start, it proves no run.
            Kind::Job if !change.gone && !self.is_live => self.observe_job(change, now),
            Kind::Pod => return self.observe_pod(change, now),
            _ => {}
        }
        None
    }

    fn emit(&mut self, at: Timestamp, plan: &str, node: Option<&str>, what: EventKind) {
        if self.is_live {
            return; // Nobody takes them.
        }
        self.events.push(RolloutEvent {
            at,
            plan: plan.to_owned(),
            node: node.map(str::to_owned),
            what,
        });
    }

    fn observe_plan(&mut self, plan: &Value, now: Timestamp) {
        let name = text(&plan["metadata"], "name").to_owned();
        let status = &plan["status"];
        if self.is_live {
            self.forget_other_roll_out(&name, status);
        }
        let seen = self.plans.entry(name.clone()).or_default();
        seen.label = plan_label(&name);
        seen.depends = dependency(&plan["spec"]["prepare"]);
        let depends_on = plan["spec"]["dependsOn"].as_array().into_iter().flatten();
        seen.depends_on = depends_on.map(|other| text(other, "name").to_owned()).collect();
        let hash = status["latestHash"].as_str().map(str::to_owned);
        if !self.is_live && seen.hash.is_some() && seen.hash != hash {
            seen.keep_done();
        }
        seen.hash = hash;
        let version = status["latestVersion"].as_str().map(str::to_owned);
        if version.is_some() && seen.version != version {
            seen.version.clone_from(&version);
            self.note_progress(&name, now);
            self.emit(now, &name, None, EventKind::Resolved(version.unwrap_or_default()));
        }
        self.observe_repetition(&name, &status["repeat"], now);
        self.observe_wave(&name, plan, now);
        self.observe_hooks(&name, status, now);
        let mut waited: BTreeSet<WaitKey> = BTreeSet::new();
        let mut here: BTreeSet<&str> = BTreeSet::new();
        let mut preparing: BTreeSet<&str> = BTreeSet::new();
        for entry in status["active"].as_array().into_iter().flatten() {
            let (node, message) = (text(entry, "name"), text(entry, "message"));
            let phase = OpenEnum::<NodePhase>::from(text(entry, "phase"));
            let reason = OpenEnum::<Reason>::from(text(entry, "reason"));
            if phase == NodePhase::Waiting {
                let is_ordinary = reason.known().is_some_and(|known| ORDINARY.contains(&known));
                if reason.is_empty() || is_ordinary {
                    continue;
                }
                waited.insert(self.record_waiting(&name, node, &reason, message, now));
                continue;
            }
            here.insert(node);
            let began = self.began(entry, now);
            self.observe_active(&name, node, &phase, (&reason, message), began);
            if phase == NodePhase::Failed {
                continue;
            }
            if phase
                .known()
                .is_some_and(|phase| BEFORE_THE_UPGRADE.contains(&phase))
            {
                preparing.insert(node);
            }
            // The drain's own note is more precise.
            if !reason.is_empty() && reason != Reason::DrainWaiting {
                waited.insert(self.record_wait(&name, Some(node), &reason, &reason, message, now));
            }
        }
        if self.is_live {
            self.close_released(&name, status, &here, now);
        } else {
            self.drop_unstarted(&name, &here);
        }
        self.close_waits(now, |key, wait| {
            let is_noted_elsewhere = match wait.reason.known() {
                Some(Reason::DrainWaiting) => true,
                Some(Reason::Prepare) => wait.node.as_deref().is_some_and(|node| preparing.contains(node)),
                _ => false,
            };
            key.0 == name && !is_noted_elsewhere && !waited.contains(key)
        });
        let seen = self.plans.entry(name.clone()).or_default();
        let is_complete = is_complete(plan) && seen.repetitions.hash_before != seen.hash;
        let was_complete = std::mem::replace(&mut seen.complete, is_complete);
        if is_complete && !was_complete {
            self.note_progress(&name, now);
            self.note_complete(&name, now);
            self.close_wave(&name, now);
            self.emit(now, &name, None, EventKind::Complete);
        }
    }

    /// Records a node with a slot.
    fn observe_active(
        &mut self,
        plan: &str,
        node: &str,
        phase: &OpenEnum<NodePhase>,
        why: (&OpenEnum<Reason>, &str),
        now: Timestamp,
    ) {
        let is_live = self.is_live;
        let turn = self.node_run(plan, node, now);
        if is_live && turn.state == RowState::Done {
            // The two watches of a real cluster may deliver the label before the last status.
            if !turn.lost_label {
                return;
            }
            (turn.state, turn.until, turn.lost_label) = (RowState::Applying, None, false);
        }
        let (reason, message) = why;
        if turn.state != RowState::Done {
            turn.reason = Some(reason.clone()).filter(|reason| !reason.is_empty());
            turn.message = Some(message.to_owned()).filter(|text| !text.is_empty());
        }
        if turn
            .phases
            .last()
            .is_some_and(|last| last.phase == *phase && (last.until.is_none() || !is_live))
        {
            return;
        }
        if let Some(last) = turn.phases.last_mut() {
            last.until.get_or_insert(now);
        }
        if is_live {
            live::make_room(&mut turn.phases);
        }
        turn.phases.push(PhaseSpan {
            phase: phase.clone(),
            since: now,
            until: None,
        });
        if *phase == NodePhase::Upgrading {
            self.skipped.remove(&(plan.to_owned(), node.to_owned()));
        }
        self.note_progress_on(plan, node, now);
        if *phase == NodePhase::Failed {
            let turn = self.node_run(plan, node, now);
            turn.state = RowState::Failed;
            turn.until = Some(now);
            let what = EventKind::Failed {
                reason: reason.clone(),
                message: message.to_owned(),
            };
            self.emit(now, plan, Some(node), what);
        } else {
            let turn = self.node_run(plan, node, now);
            if turn.state == RowState::Failed {
                turn.state = RowState::Applying;
                turn.until = None;
            }
            self.emit(now, plan, Some(node), EventKind::Phase(phase.clone()));
        }
    }

    /// The run of a Plan on a node, created if needed.
    fn node_run(&mut self, plan: &str, node: &str, now: Timestamp) -> &mut NodeRun {
        let begun = self
            .plans
            .get(plan)
            .is_some_and(|seen| seen.turns.contains_key(node));
        if !begun {
            self.note_progress_on(plan, node, now);
            self.emit(now, plan, Some(node), EventKind::NodeStarted);
        }
        let seen = self.plans.entry(plan.to_owned()).or_default();
        if !begun {
            seen.without_job.insert(node.to_owned());
        }
        let version = &seen.version;
        let begins = || NodeRun {
            version: version.clone(),
            ..NodeRun::new(now, None, RowState::Applying)
        };
        seen.turns.entry(node.to_owned()).or_insert_with(begins)
    }

    /// Removes nodes that got a slot and lost it before anything started.
    fn drop_unstarted(&mut self, plan: &str, here: &BTreeSet<&str>) {
        let Some(PlanRecord {
            turns, without_job, ..
        }) = self.plans.get_mut(plan)
        else {
            return;
        };
        without_job.retain(|node| {
            let is_open = turns
                .get(node)
                .is_some_and(|turn| !turn.has_job && turn.state == RowState::Applying);
            let phases = here.contains(node.as_str());
            if is_open && !phases {
                turns.remove(node);
            }
            is_open && phases
        });
    }

    fn observe_node(&mut self, change: &Change, now: Timestamp) {
        let node = change.new.meta("name");
        if self.is_live {
            self.note_lost_label(change);
        } else {
            new_nodes::observe(&mut self.new_nodes, change, now);
        }
        self.note_boot(change);
        let notes = change.new.value["metadata"]["annotations"].as_object();
        for (key, text) in notes.into_iter().flatten() {
            let record = text
                .as_str()
                .filter(|_| key.starts_with(ANNOTATION_RECORD_PREFIX));
            let record = record.and_then(Record::parse);
            if record.is_some_and(|record| record.phase == Phase::Skipped) {
                let plan = key[ANNOTATION_RECORD_PREFIX.len()..].to_owned();
                self.skipped.insert((plan, node.to_owned()));
            }
        }
        let drain = |object: &Object| {
            let text = object.value["metadata"]["annotations"][ANNOTATION_DRAIN].as_str()?;
            NodeDrain::parse(text)
        };
        let (before, after) = (change.old.as_deref().and_then(drain), drain(&change.new));
        if before != after {
            if let Some(NodeDrain { plan, note, .. }) = &after {
                self.observe_drain(plan, node, Some(note), now);
                let seen = self.plans.get_mut(plan);
                if let Some(run) = seen.and_then(|seen| seen.turns.get_mut(node)) {
                    run.evicted = (note.evicted, note.total);
                }
            } else if let Some(NodeDrain { plan, .. }) = &before {
                self.observe_drain(plan, node, None, now);
            }
            // A long drain that still evicts pods has not stalled.
            let evicted = |drain: Option<NodeDrain>| drain.map(|it| it.note.evicted);
            let plan = before.as_ref().or(after.as_ref()).map(|drain| drain.plan.clone());
            let place = (plan.unwrap_or_default(), node.to_owned());
            if evicted(before) != evicted(after) && !self.skipped.contains(&place) {
                self.progress = now;
            }
        }
        let done: Vec<String> = self
            .plans
            .iter()
            .filter(|(_, seen)| {
                let label = |object: &Object| object.label(&seen.label).map(str::to_owned);
                let before = change.old.as_deref().and_then(label);
                let after = label(&change.new);
                // A real cluster has nodes that were done before, and those of a Plan of this name in another namespace.
                let is_own = !self.is_live || (change.old.is_some() && seen.turns.contains_key(node));
                seen.hash.is_some() && after == seen.hash && before != after && is_own
            })
            .map(|(plan, _)| plan.clone())
            .collect();
        for plan in done {
            let version = self.plans.get(&plan).and_then(|seen| seen.version.clone());
            let turn = self.node_run(&plan, node, now);
            turn.version = version;
            turn.state = RowState::Done;
            turn.until = Some(now);
            (turn.reason, turn.message) = (None, None);
            if let Some(last) = turn.phases.last_mut() {
                last.until = Some(now);
            }
            self.note_progress(&plan, now);
            self.emit(now, &plan, Some(node), EventKind::Done);
            self.close_waits(now, |key, _| key.0 == plan && key.1.as_deref() == Some(node));
        }
    }

    fn observe_job(&mut self, change: &Change, now: Timestamp) {
        let Some((plan, node)) = of_plan(&change.new) else {
            return;
        };
        let failures = |object: &Object| object.value["status"]["failed"].as_i64().unwrap_or_default();
        let before = change.old.as_deref().map(failures);
        let after = failures(&change.new);
        let is_done = |turn: &NodeRun| turn.state == RowState::Done;
        let seen = self.plans.get(&plan);
        // A Job outlives the roll-out to an earlier version, and that before a repetition.
        let is_earlier = |seen: &PlanRecord| {
            let has_ended = seen.repetitions.due.is_some() || !seen.turns.contains_key(&node);
            has_ended
                && !seen.repetitions.earlier.is_empty()
                && change.new.label(&seen.label) != seen.hash.as_deref()
        };
        let known = seen.and_then(|seen| seen.turns.get(&node));
        if known.is_some_and(is_done) || seen.is_some_and(is_earlier) {
            return;
        }
        let turn = self.node_run(&plan, &node, now);
        turn.has_job = true;
        turn.failures = turn.failures.max(after);
        if before != Some(after) {
            self.note_progress_on(&plan, &node, now);
        }
    }

    fn observe_pod(&mut self, change: &Change, now: Timestamp) -> Option<Effect> {
        change.new.label(LABEL_CONTROLLER)?;
        let plan = change.new.label(LABEL_PLAN)?.to_owned();
        let node = change.new.text("/spec/nodeName").to_owned();
        if change.gone || has_ended(&change.new, "drain") || super::pods::has_ended(&change.new) {
            self.observe_drain(&plan, &node, None, now);
        }
        let was_upgraded = change
            .old
            .as_deref()
            .is_some_and(|old| has_succeeded(old, "upgrade"));
        if was_upgraded || !has_succeeded(&change.new, "upgrade") {
            return None;
        }
        let version = environment(&change.new, "upgrade", ENV_PLAN_LATEST_VERSION)?;
        Some(Effect::Upgraded { plan, node, version })
    }

    /// Records that an upgrade changed a kubelet's version.
    pub fn see_version(&mut self, step: VersionStep) {
        self.steps.push(step);
    }

    /// Changes of kubelet versions, in their order.
    pub fn version_steps(&self) -> &[VersionStep] {
        &self.steps
    }
}
