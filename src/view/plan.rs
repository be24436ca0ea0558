//! A Plan as people see it: counts, nodes by phase, and what holds it. From refit's status, or, if another controller
//! wrote the status, from labels and Jobs.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::read::Snapshot;
use super::selected::not_selected;
use super::time;
use refit_api::selector::Selector;
use refit_api::{
    CheckStatus, DespiteStatus, NodeCounts, NodePhase, NodeProgress, Obstacle, PlanState, Reason, WaveStatus,
    names,
};
use refit_facts::{JobOutcome, PlanFacts, PodStage};
use refit_formats::convert::op_plan::owner;

/// States of nodes that are not phases: status only counts them.
pub(super) const DONE: &str = "Done";
pub(super) const DISABLED: &str = "Disabled";

/// A Plan with everything derived from it.
#[derive(Debug)]
pub struct PlanOverview<'a> {
    pub plan: &'a PlanFacts,
    pub snapshot: &'a Snapshot,
    pub counts: NodeCounts,
    /// Whether the counts are known: without status of refit they need Nodes.
    pub counted: bool,
    /// Whether another controller than refit wrote the status.
    pub foreign: bool,
    /// Nodes that are in progress, have failed or wait; done ones only if they are still known to be.
    pub nodes: Vec<NodeProgress>,
    /// What holds it.
    pub obstacle: Option<Obstacle>,
    /// What releases it then.
    pub remedy: String,
    /// Commands for that.
    pub commands: Vec<String>,
    pub complete: bool,
}

impl<'a> PlanOverview<'a> {
    /// `namespace/name`.
    pub fn title(&self) -> String {
        format!("{}/{}", self.plan.namespace(), self.plan.name)
    }

    pub fn version(&self) -> Option<&str> {
        self.plan.status().latest_version.as_deref()
    }

    /// The number of nodes in each phase, done ones included.
    pub fn phases(&self) -> BTreeMap<&str, i64> {
        let mut phases = BTreeMap::new();
        for node in self.nodes.iter().filter(|node| node.has_slot()) {
            *phases.entry(node.phase.as_str()).or_insert(0) += 1;
        }
        let counted = [
            (DONE, self.counts.done),
            (NodePhase::Waiting.name(), self.counts.waiting),
            (Reason::Skipped.name(), self.counts.skipped.unwrap_or_default()),
            (DISABLED, self.counts.disabled),
        ];
        for (name, count) in counted.into_iter().filter(|(_, count)| *count > 0) {
            phases.insert(name, count);
        }
        phases
    }

    pub fn state(&self) -> PlanState {
        match &self.obstacle {
            _ if self.counts.failed > 0 => PlanState::Failed,
            // system-upgrade-controller's condition is True then, too.
            Some(obstacle) if obstacle.reason == Reason::NoNodes => PlanState::Held,
            _ if self.complete && self.is_current() => PlanState::Complete,
            Some(obstacle) if self.counts.applying == 0 && !obstacle.is_expected() => PlanState::Held,
            Some(_) if self.counts.applying == 0 => PlanState::Waiting,
            _ => PlanState::Running,
        }
    }

    /// Whether the status describes the current spec.
    pub fn is_current(&self) -> bool {
        is_current(self.plan)
    }

    /// The last wave that has begun, if it is one of the present roll-out.
    pub fn wave(&self) -> Option<&WaveStatus> {
        let status = self.plan.status();
        let wave = status.wave.as_ref()?;
        (status.latest_hash.as_deref() == Some(&*wave.hash)).then_some(wave)
    }

    /// When the Plan repeats next, if it does.
    pub fn repeats(&self) -> Option<String> {
        let next = self.plan.status().repeat.as_ref()?.next.as_deref()?;
        let at: Timestamp = next.parse().ok()?;
        Some(if at > self.snapshot.now {
            format!("next at {next}")
        } else {
            format!("due since {next}, once this roll-out is over and nodes may start")
        })
    }

    pub fn node(&self, name: &str) -> Option<&NodeProgress> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// Whether the node's label has the current hash.
    pub fn has_done_label(&self, name: &str) -> bool {
        let node = self.snapshot.node(name);
        let label = node.and_then(|node| node.facts.labels.of_plan(&self.plan.name));
        label.is_some() && label == self.plan.status().latest_hash.as_deref()
    }

    /// Why the Plan does not select a node, as far as the Node can be read.
    pub fn not_selected(&self, name: &str) -> Option<String> {
        not_selected(self, self.snapshot.node(name)?)
    }

    /// The limits in spite of which nodes start.
    pub fn despite(&self) -> impl Iterator<Item = &DespiteStatus> {
        let all = self.plan.status().despite.iter().flatten();
        all.filter(|it| it.is_in_effect())
    }

    /// When it is expected to end, from now: status is written only when something happens.
    pub fn expected_end(&self) -> Option<(Timestamp, Timestamp)> {
        let end = self
            .plan
            .status()
            .expected_end
            .as_ref()
            .filter(|_| !self.complete)?;
        let [earliest, latest] = [&end.earliest, &end.latest].map(|text| text.parse::<Timestamp>());
        let (earliest, latest) = (earliest.ok()?, latest.ok()?);
        (latest > self.snapshot.now).then_some((earliest.max(self.snapshot.now), latest))
    }

    /// The events about the Plan, the oldest first.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = &'a super::read::EventLine> {
        let (namespace, name) = (self.plan.namespace(), &self.plan.name);
        let snapshot = self.snapshot;
        snapshot
            .events
            .iter()
            .filter(move |event| event.namespace == *namespace && event.plan == **name)
    }

    pub fn to_json(&self) -> Value {
        let status = self.plan.status();
        let nodes = self.nodes.iter().map(|node| {
            json!({
                "name": node.name, "phase": node.phase, "since": node.since, "job": node.job,
                "attempt": node.attempt, "reason": node.reason, "message": node.message,
            })
        });
        let held_by = self.obstacle.as_ref().map(|it| {
            json!({
                "reason": it.reason, "message": it.message, "node": it.node, "remedy": self.remedy,
                "commands": self.commands,
            })
        });
        json!({
            "namespace": self.plan.namespace(),
            "name": &*self.plan.name,
            "version": status.latest_version,
            "hash": status.latest_hash,
            "state": self.state(),
            "counts": self.counted.then_some(NodeCounts { skipped: self.counts.skipped.or(Some(0)), ..self.counts }),
            "phases": self.phases(),
            "heldBy": held_by,
            "wave": status.wave,
            "repeat": status.repeat,
            "checks": status.checks,
            "despite": status.despite,
            "expectedEnd": status.expected_end,
            "origin": status.origin,
            "nodeOp": owner(self.plan),
            "history": status.history,
            "statusOfAnotherController": self.foreign,
            "nodes": nodes.collect::<Vec<_>>(),
        })
    }
}

/// The phase of a check, for how long, and its last answer.
pub(super) fn check_says(check: &CheckStatus, now: Timestamp) -> String {
    let since = time::lasting(check.since.as_deref(), now);
    let message = check.message.as_deref();
    let message = message.map_or_else(String::new, |it| format!(": {it}"));
    format!("{}{since}{message}", check.phase)
}

/// Whether another controller than refit wrote the status: system-upgrade-controller writes conditions, but never
/// `observedGeneration`.
pub(super) fn is_foreign(plan: &PlanFacts) -> bool {
    let status = plan.status();
    status.observed_generation.is_none() && !status.conditions.is_empty()
}

/// Whether the status describes the current spec.
pub(super) fn is_current(plan: &PlanFacts) -> bool {
    match plan.status().observed_generation {
        Some(seen) => seen >= plan.generation(),
        None => is_foreign(plan),
    }
}

/// The nodes of a Plan from their labels and Jobs, for a status that has only `applying`.
pub(super) fn derived(snapshot: &Snapshot, plan: &PlanFacts) -> (NodeCounts, Vec<NodeProgress>, bool) {
    let status = plan.status();
    let (mut counts, mut views) = (NodeCounts::default(), Vec::new());
    let hash = status.latest_hash.as_deref().unwrap_or_default();
    let applying: BTreeSet<&str> = status.applying.iter().flatten().map(String::as_str).collect();
    let spec = &plan.object.spec;
    let selector = Selector::new(spec.node_selector.as_ref()).unwrap_or_else(|_| Selector::nothing());
    for (name, node) in snapshot.nodes.iter().flatten() {
        let label = |key: &str| node.facts.labels.get(key);
        if !selector.matches_by(label) || label(names::LABEL_HOSTNAME).is_none() {
            continue;
        }
        match node.facts.labels.of_plan(&plan.name) {
            Some(names::LABEL_VALUE_DISABLED) => {
                counts.disabled += 1;
                continue;
            }
            Some(done) if done == hash && !hash.is_empty() => counts.done += 1,
            // `status.applying` lists hostnames, which may differ from the names of the nodes.
            _ if applying.contains(node.facts.hostname()) => {
                let view = applying_view(snapshot, plan, name);
                if view.is_failed() {
                    counts.failed += 1;
                } else {
                    counts.applying += 1;
                }
                views.push(view);
            }
            _ => {
                counts.waiting += 1;
                views.push(NodeProgress {
                    name: name.clone(),
                    phase: NodePhase::Waiting.into(),
                    reason: (!node.facts.ready).then(|| Reason::NodeNotReady.into()),
                    message: (!node.facts.ready).then(|| "the node is not Ready".to_owned()),
                    ..NodeProgress::default()
                });
            }
        }
        counts.selected += 1;
    }
    views.sort_by_key(|view| (!view.has_slot(), view.name.clone()));
    (counts, views, snapshot.nodes.is_some())
}

/// A node that the controller names in `applying`, as its last Job shows it.
fn applying_view(snapshot: &Snapshot, plan: &PlanFacts, name: &str) -> NodeProgress {
    let job = snapshot
        .jobs_on(plan, name)
        .into_iter()
        .rfind(|job| job.facts.verifies.is_none());
    let pod = job.and_then(|job| snapshot.pod_of(job));
    let (mut reason, mut message) = (None, None);
    let phase = match job.map(|job| &job.facts.outcome) {
        Some(JobOutcome::Failed {
            reason: word,
            message: text,
            ..
        }) => {
            let last = pod.and_then(|pod| pod.facts.failed.as_ref());
            reason = Some(word.as_str().into());
            message = Some(last.map_or_else(|| text.clone(), |last| format!("{text}: {last}")));
            NodePhase::Failed
        }
        Some(JobOutcome::Complete { .. }) => NodePhase::Settling,
        Some(_) => pod.map_or(PodStage::Unbound, |pod| pod.facts.stage).phase(),
        None => NodePhase::Pending,
    };
    if let Some(why) = pod.and_then(|pod| pod.facts.waiting.clone()) {
        reason = Some(Reason::PodWaiting.into());
        message = Some(why);
    }
    NodeProgress {
        name: name.to_owned(),
        phase: phase.into(),
        since: job.map(|job| format!("{:.0}", job.facts.created)),
        job: job.map(|job| job.facts.name.to_string()),
        attempt: job.map(|job| job.facts.attempt),
        reason,
        message,
        ..NodeProgress::default()
    }
}
