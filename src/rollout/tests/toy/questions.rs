//! What tests ask.

use jiff::SignedDuration;

use super::engine::{Fate, Flight};
use super::life::Move;
use super::{Toy, ToyJob};
use crate::api::{NodeProgress, PlanStatus, names};
use crate::rollout::{Blocker, Stage, Step};

impl Toy {
    pub(in super::super) fn status(&self, plan: &str) -> &PlanStatus {
        self.plans[plan]
            .it
            .object
            .status
            .as_ref()
            .unwrap_or_else(|| panic!("{plan} has no status"))
    }

    /// Status, reason and message of a condition.
    pub(in super::super) fn says(&self, plan: &str, type_: &str) -> (String, String, String) {
        let condition = self.status(plan).conditions.iter().find(|c| c.type_ == type_);
        let condition = condition
            .unwrap_or_else(|| panic!("{plan} has no {type_}"))
            .clone();
        (
            condition.status,
            condition.reason.unwrap_or_default(),
            condition.message.unwrap_or_default(),
        )
    }

    pub(in super::super) fn complete(&self, plan: &str) -> (String, String, String) {
        self.says(plan, "Complete")
    }

    /// Nodes that hold a slot, as status says.
    pub(in super::super) fn slots(&self, plan: &str) -> Vec<String> {
        let active = self.status(plan).active.iter().flatten();
        active
            .filter(|n| n.phase != "Waiting")
            .map(|n| n.name.clone())
            .collect()
    }

    /// What status says of a node.
    pub(in super::super) fn entry(&self, plan: &str, node: &str) -> NodeProgress {
        let mut active = self.status(plan).active.iter().flatten();
        active
            .find(|n| n.name == node)
            .unwrap_or_else(|| panic!("{node} is not in status.active"))
            .clone()
    }

    pub(in super::super) fn hash(&self, plan: &str) -> String {
        self.status(plan).latest_hash.clone().unwrap()
    }

    pub(in super::super) fn done_label(&self, node: &str, plan: &str) -> Option<String> {
        self.nodes[node]
            .it
            .facts
            .labels
            .get_joined(names::LABEL_PLAN_PREFIX, plan)
            .map(str::to_owned)
    }

    pub(in super::super) fn is_done(&self, node: &str, plan: &str) -> bool {
        self.done_label(node, plan) == Some(self.hash(plan))
    }

    pub(in super::super) fn is_cordoned(&self, node: &str) -> bool {
        self.nodes[node].it.facts.unschedulable
    }

    /// The Jobs that are for a node, by name.
    pub(in super::super) fn jobs_for(&self, node: &str) -> Vec<&ToyJob> {
        self.jobs
            .values()
            .map(|job| &job.it)
            .filter(|job| job.ours && *job.facts.node == *node)
            .collect()
    }

    /// The one Job that is for a node.
    pub(in super::super) fn job_for(&self, node: &str) -> &ToyJob {
        let jobs = self.jobs_for(node);
        assert_eq!(jobs.len(), 1, "Jobs for {node}: {jobs:?}");
        jobs[0]
    }

    /// The steps that would be taken now.
    pub(in super::super) fn steps(&mut self) -> Vec<Step> {
        self.decision().steps
    }

    /// Why a node waits.
    pub(in super::super) fn blocker(&mut self, plan: &str, node: &str) -> Option<Blocker> {
        let mut reports = self.decision().reports;
        let report = reports.remove(plan)?;
        report.nodes.get(node).cloned().or(report.blocker)
    }

    /// Events with this reason, in the order in which they were written.
    pub(in super::super) fn told_of(&self, reason: &str) -> Vec<&str> {
        self.told
            .iter()
            .filter_map(|text| text.strip_prefix(reason)?.strip_prefix(' '))
            .collect()
    }

    /// The clock moves on, and the controller looks again.
    pub(in super::super) fn later(&mut self, seconds: i64) {
        self.passes(SignedDuration::from_secs(seconds));
        self.settle();
    }

    /// Each node that holds a slot succeeds, until none is left.
    pub(in super::super) fn rolls_out(&mut self) {
        self.runs();
    }

    /// The Job on a node has come so far that its upgrade runs.
    pub(in super::super) fn upgrades(&mut self, node: &str) {
        self.comes_to(node, Stage::Upgrade);
    }
}

/// Turning the wheel by hand.
impl Toy {
    /// The watches tell all that they have.
    pub(in super::super) fn tell_all(&mut self) {
        while let Some(kind) = self.kinds_waiting().first() {
            self.tell(*kind);
        }
    }

    /// The watches tell, what is under way comes to its end, and a decision follows.
    pub(in super::super) fn one_round(&mut self, fate: Fate) {
        self.tell_all();
        for flight in self.sent() {
            self.reaches(flight, fate);
        }
        while !self.engine.flights.is_empty() {
            self.hears(0);
        }
        self.decides();
    }

    pub(in super::super) fn rounds_until(&mut self, holds: impl Fn(&Self) -> bool) {
        for _ in 0..50 {
            if holds(self) {
                return;
            }
            self.one_round(Fate::Fine);
        }
        self.fail("it does not come to that");
    }

    pub(in super::super) fn create_under_way(&self) -> usize {
        let at = self
            .engine
            .flights
            .iter()
            .position(|flight| flight.creates().is_some());
        at.expect("no Job is asked for")
    }

    pub(in super::super) fn engine_creates_other_than(&self, name: &str) -> bool {
        self.engine
            .flights
            .iter()
            .filter_map(Flight::creates)
            .any(|job| job != name)
    }

    pub(in super::super) fn creates(&self, flight: usize) -> bool {
        self.engine.flights[flight].creates().is_some()
    }

    pub(in super::super) fn makes_pod(&self, flight: usize) -> bool {
        self.engine.flights[flight].makes_pod()
    }

    pub(in super::super) fn notes_fields(&self, flight: usize) -> bool {
        self.engine.flights[flight].notes_fields()
    }

    pub(in super::super) fn writes_status(&self, flight: usize) -> bool {
        self.engine.flights[flight].writes_status()
    }

    pub(in super::super) fn patches_node(&self, flight: usize) -> bool {
        self.engine.flights[flight].patches_node()
    }

    pub(in super::super) fn engine_deletes(&self) -> bool {
        self.engine.flights.iter().any(Flight::deletes)
    }

    /// A pod is bound, and the watch does not tell of it.
    pub(in super::super) fn play_silently(&mut self, pod: &str) {
        let pod = &mut self.pods.get_mut(pod).unwrap().it;
        pod.facts.node = Some(pod.target.as_str().into());
        pod.facts.stage = Stage::Starting;
    }

    /// The kubelet goes on with a pod.
    pub(in super::super) fn play_go(&mut self, pod: &str) {
        self.play(&Move::Go(pod.to_owned()));
    }

    /// The Job controller notes how a Job has ended.
    pub(in super::super) fn play_end(&mut self, job: &str) {
        self.play(&Move::EndJob(job.to_owned()));
    }
}
