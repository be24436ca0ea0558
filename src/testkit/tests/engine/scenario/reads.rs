//! What there is in a scenario: objects, status, events and requests.

use std::sync::Arc;

use super::super::super::faults::{FaultInjector, FaultyTransport, Process};
use super::{NAMESPACE, Scenario};
use crate::invariants::{CONTROLLER, Pod};
use refit_api::{NodeProgress, PlanStatus};
use refit_cluster::kube::client::over_transport;
use refit_facts::record::Record;
use refit_facts::{JobFacts, NodeFacts};
use refit_rehearse::Kind;
use refit_rehearse::json::Value;
use refit_rehearse::server::Transport;
use refit_view::{Scope, Snapshot};

impl Scenario {
    pub(super) fn names(&self, kind: Kind) -> Vec<String> {
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
        self.cluster.with(|state| state.all(kind).map(name).collect())
    }

    pub(in crate::tests::engine) fn node(&self, name: &str) -> &NodeFacts {
        &self.invariants.nodes[name].facts
    }

    pub(in crate::tests::engine) fn record(&self, node: &str, plan: &str) -> &Record {
        &self.node(node).records[plan]
    }

    pub(in crate::tests::engine) fn jobs_for(&self, node: &str) -> Vec<&JobFacts> {
        let jobs = self.invariants.jobs.values();
        jobs.filter(|job| *job.node == *node).collect()
    }

    #[track_caller]
    pub(in crate::tests::engine) fn job_for(&self, node: &str) -> JobFacts {
        let jobs = self.jobs_for(node);
        assert_eq!(jobs.len(), 1, "Jobs for {node}: {jobs:?}");
        jobs[0].clone()
    }

    #[track_caller]
    pub(in crate::tests::engine) fn live_job(&self, node: &str) -> JobFacts {
        let mut jobs = self.jobs_for(node).into_iter();
        jobs.find(|job| job.is_live())
            .unwrap_or_else(|| panic!("no Job on {node}"))
            .clone()
    }

    pub(in crate::tests::engine) fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.invariants.pods.values()
    }

    /// Names of the Pods that reboot nodes, or ask for their sentinels.
    pub(in crate::tests::engine) fn reboot_pods(&self) -> Vec<String> {
        let pods = self.pods().filter(|pod| pod.facts.reboot.is_some());
        pods.map(|pod| pod.facts.name.to_string()).collect()
    }

    #[track_caller]
    pub(in crate::tests::engine) fn status(&self, plan: &str) -> &PlanStatus {
        self.invariants.plans[plan]
            .object
            .status
            .as_ref()
            .expect("a status")
    }

    /// Status, reason and message of a condition.
    #[track_caller]
    pub(in crate::tests::engine) fn condition(&self, plan: &str, type_: &str) -> [String; 3] {
        let mut conditions = self.status(plan).conditions.iter();
        let one = conditions
            .find(|one| one.type_ == type_)
            .expect("a condition")
            .clone();
        let reason = one.reason.unwrap_or_default().to_string();
        [one.status, reason, one.message.unwrap_or_default()]
    }

    #[track_caller]
    pub(in crate::tests::engine) fn complete(&self, plan: &str) -> [String; 3] {
        self.condition(plan, "Complete")
    }

    /// Nodes with a slot, from status.
    pub(in crate::tests::engine) fn slots(&self, plan: &str) -> Vec<String> {
        let active = self.status(plan).active.iter().flatten();
        let slots = active.filter(|node| node.phase != "Waiting");
        slots.map(|node| node.name.clone()).collect()
    }

    /// Nodes with an unfinished Job of the Plan.
    pub(in crate::tests::engine) fn live_nodes(&self, plan: &str) -> Vec<String> {
        let jobs = self.invariants.jobs.values();
        let live = jobs.filter(|job| *job.plan == *plan && job.is_live());
        live.map(|job| job.node.to_string()).collect()
    }

    /// The entry of a node in status.
    #[track_caller]
    pub(in crate::tests::engine) fn entry(&self, plan: &str, node: &str) -> NodeProgress {
        let mut active = self.status(plan).active.iter().flatten();
        let entry = active.find(|one| one.name == node);
        entry
            .unwrap_or_else(|| panic!("{node} is not in status.active"))
            .clone()
    }

    /// Phase and reason of a node in status.
    #[track_caller]
    pub(in crate::tests::engine) fn phase(&self, plan: &str, node: &str) -> [String; 2] {
        let entry = self.entry(plan, node);
        [
            entry.phase.to_string(),
            entry.reason.unwrap_or_default().to_string(),
        ]
    }

    pub(in crate::tests::engine) fn hash(&self, plan: &str) -> String {
        self.status(plan).latest_hash.clone().unwrap()
    }

    pub(in crate::tests::engine) fn done_label(&self, node: &str, plan: &str) -> Option<String> {
        let label = self.node(node).labels.of_plan(plan);
        label.map(str::to_owned)
    }

    pub(in crate::tests::engine) fn is_done(&self, node: &str, plan: &str) -> bool {
        self.done_label(node, plan) == Some(self.hash(plan))
    }

    pub(in crate::tests::engine) fn is_cordoned(&self, node: &str) -> bool {
        self.node(node).unschedulable
    }

    /// Messages of the events with this reason.
    pub(in crate::tests::engine) fn events_of(&self, reason: &str) -> Vec<&str> {
        let events = self.events.iter().filter(|(known, _)| known == reason);
        events.map(|(_, message)| message.as_str()).collect()
    }

    pub(in crate::tests::engine) fn events(&self) -> Vec<String> {
        self.events
            .iter()
            .map(|(reason, text)| format!("{reason} {text}"))
            .collect()
    }

    /// Number of requests of the controller with this method and part of the path.
    pub(in crate::tests::engine) fn requests(&self, pattern: &str) -> usize {
        let (method, part) = pattern.split_once(' ').unwrap();
        self.cluster.with(|state| {
            let asked =
                |line: &&String| line.contains(&format!(" {CONTROLLER} {method} ")) && line.contains(part);
            state.trace().iter().filter(asked).count()
        })
    }

    pub(in crate::tests::engine) fn polls(&self) -> usize {
        self.channels.lock().unwrap().polls.len()
    }

    /// What somebody with read access sees; the faults of the controller's requests do not concern them.
    pub(in crate::tests::engine) fn snapshot(&mut self) -> Snapshot {
        self.snapshot_over(&FaultInjector::new(0, 0))
    }

    /// What somebody sees whose requests have these faults.
    pub(in crate::tests::engine) fn snapshot_over(&mut self, faults: &FaultInjector) -> Snapshot {
        let transport = FaultyTransport::new(
            Transport::of_user(&self.cluster, "viewer"),
            faults,
            Some(Process::new()),
        );
        let client = over_transport(transport, None, Arc::default());
        let scope = Scope {
            namespace: None,
            fallback_namespace: NAMESPACE.to_owned(),
        };
        let now = self.now();
        let read = self
            .tasks
            .block_on(self.runtime, Snapshot::read(&client, &scope, now));
        read.unwrap_or_else(|error| self.panic(&format!("the Plans cannot be read: {error}")))
    }
}
