//! What comes of a rehearsal, as it is read off the cluster.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize as _;

use super::Rehearsal;
use crate::api::{Plan, names};
use crate::rehearse::cluster::Cluster;
use crate::rehearse::json::Value;
use crate::rehearse::record::Recorder;
use crate::rehearse::resources::Kind;
use crate::rehearse::state::State;

/// Why a rehearsal ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All Plans are complete.
    Complete,
    /// Nothing came closer to its end for this long.
    Quiet(SignedDuration),
    /// The time that was to be looked at is over.
    Limit(SignedDuration),
}

/// A disruption budget, before anything happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetSeen {
    /// Namespace and name.
    pub name: String,
    /// Pods that it is for.
    pub expected: i64,
    /// Those of them that are ready.
    pub healthy: i64,
    /// Those of them that have to be.
    pub desired: i64,
}

impl BudgetSeen {
    /// It would not let a single pod go, were all of them ready.
    pub fn never_allows(&self) -> bool {
        self.expected > 0 && self.desired >= self.expected
    }
}

/// A Plan at the end.
#[derive(Clone, Debug)]
pub struct PlanEnd {
    /// As it is stored.
    pub plan: Plan,
    /// Whether it was to be rehearsed, or was on the cluster anyway.
    pub rehearsed: bool,
    /// Whether it is complete.
    pub complete: bool,
    /// The Plan that its nodes wait for in `prepare`.
    pub depends: Option<String>,
}

impl PlanEnd {
    /// Its name.
    pub fn name(&self) -> &str {
        self.plan.metadata.name.as_deref().unwrap_or_default()
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// Why it ended.
    pub ending: Ending,
    /// When the controller was started.
    pub start: Timestamp,
    /// When it ended: when all was complete, or when something last came closer to that.
    pub end: Timestamp,
    /// Until when was looked.
    pub seen: Timestamp,
    /// The Plans, those that were to be rehearsed first.
    pub plans: Vec<PlanEnd>,
    /// What happened.
    pub record: Recorder,
    /// Budgets, before anything happened.
    pub budgets: Vec<BudgetSeen>,
    /// Labels of all nodes at the end, by name.
    pub nodes: BTreeMap<String, BTreeMap<String, String>>,
    /// Kubelet versions at the end, by node.
    pub kubelets: BTreeMap<String, String>,
    /// Nodes that are still cordoned for a Plan.
    pub cordoned: Vec<String>,
}

impl Rehearsal {
    pub(super) fn outcome(
        &self,
        cluster: &Cluster,
        ending: Ending,
        recorder: Recorder,
        budgets: Vec<BudgetSeen>,
    ) -> Outcome {
        let end = match ending {
            Ending::Complete | Ending::Limit(_) => cluster.clock().now(),
            Ending::Quiet(_) => recorder.progress(),
        };
        let wanted: Vec<&str> = self
            .plans
            .iter()
            .filter_map(|plan| plan["metadata"]["name"].as_str())
            .collect();
        cluster.with(|state| {
            let mut plans: Vec<PlanEnd> = state
                .all(Kind::Plan)
                .filter_map(|plan| Plan::deserialize(plan).ok())
                .map(|plan| {
                    let name = plan.metadata.name.clone().unwrap_or_default();
                    PlanEnd {
                        rehearsed: wanted.contains(&name.as_str()),
                        complete: recorder.is_complete(&name),
                        depends: recorder.depends(&name).map(str::to_owned),
                        plan,
                    }
                })
                .collect();
            let place = |plan: &PlanEnd| wanted.iter().position(|name| *name == plan.name());
            plans.sort_by_key(|plan| (!plan.rehearsed, place(plan)));
            let name = |node: &Value| node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let labels = |node: &Value| {
                let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
                let labels =
                    labels.filter_map(|(key, value)| Some((key.to_owned(), value.as_str()?.to_owned())));
                labels.collect()
            };
            let kubelet = |node: &Value| {
                let version = node["status"]["nodeInfo"]["kubeletVersion"].as_str();
                version.unwrap_or_default().to_owned()
            };
            let cordoned = |node: &&Value| {
                node["metadata"]["annotations"][names::ANNOTATION_CORDON].is_string()
                    && node["spec"]["unschedulable"] == true
            };
            Outcome {
                ending,
                start: self.start,
                end,
                seen: cluster.clock().now(),
                plans,
                record: recorder,
                budgets,
                nodes: state
                    .all(Kind::Node)
                    .map(|node| (name(node), labels(node)))
                    .collect(),
                kubelets: state
                    .all(Kind::Node)
                    .map(|node| (name(node), kubelet(node)))
                    .collect(),
                cordoned: state.all(Kind::Node).filter(cordoned).map(name).collect(),
            }
        })
    }
}

pub(super) fn budgets(state: &State) -> Vec<BudgetSeen> {
    let number = |budget: &Value, field: &str| budget["status"][field].as_i64().unwrap_or_default();
    let text =
        |budget: &Value, field: &str| budget["metadata"][field].as_str().unwrap_or_default().to_owned();
    state
        .all(Kind::Budget)
        .map(|budget| BudgetSeen {
            name: format!("{}/{}", text(budget, "namespace"), text(budget, "name")),
            expected: number(budget, "expectedPods"),
            healthy: number(budget, "currentHealthy"),
            desired: number(budget, "desiredHealthy"),
        })
        .collect()
}
