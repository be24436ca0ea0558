//! The outcome of a rehearsal, read from the cluster.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize as _;

use super::Rehearsal;
use crate::cluster::Cluster;
use crate::json::Value;
use crate::pods::is_ready;
use crate::record::Recorder;
use crate::resources::Kind;
use crate::state::State;
use refit_api::schedule::Blackout;
use refit_api::{Plan, names};
use refit_view::read::{NodeObject, ObjectKind};
use refit_view::{PlanOverview, Snapshot};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Complete,
    /// No progress for this long.
    Quiet(SignedDuration),
    /// The maximum simulated time has passed.
    Limit(SignedDuration),
}

/// A disruption budget before the roll-out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetState {
    /// Namespace and name.
    pub name: String,
    /// Number of selected pods.
    pub expected: i64,
    /// Number of ready pods.
    pub healthy: i64,
    /// Minimum number of ready pods.
    pub desired: i64,
}

impl BudgetState {
    /// Whether the budget would allow no eviction even if all pods were ready.
    pub fn never_allows(&self) -> bool {
        self.expected > 0 && self.desired >= self.expected
    }
}

/// A Plan at the end.
#[derive(Clone, Debug)]
pub struct PlanOutcome {
    pub plan: Plan,
    /// False for a Plan that was on the cluster anyway.
    pub rehearsed: bool,
    pub complete: bool,
}

impl PlanOutcome {
    pub fn name(&self) -> &str {
        self.plan.metadata.name.as_deref().unwrap_or_default()
    }
}

#[derive(Debug)]
pub struct Outcome {
    pub ending: Ending,
    pub start: Timestamp,
    /// When all Plans were complete, or when the roll-out last made progress.
    pub end: Timestamp,
    /// The end of the simulation.
    pub seen: Timestamp,
    /// The rehearsed Plans first.
    pub plans: Vec<PlanOutcome>,
    pub record: Recorder,
    /// Budgets before the roll-out.
    pub budgets: Vec<BudgetState>,
    /// Nodes that were not Ready before the roll-out.
    pub not_ready: BTreeSet<String>,
    /// What `refit status` would read at the end.
    pub snapshot: Snapshot,
    /// Nodes that are still cordoned for a Plan.
    pub cordoned: Vec<String>,
    /// Plans that exist, but not here: where, by name.
    pub absent: BTreeMap<String, String>,
    /// Blackouts for all Plans.
    pub blackouts: Vec<Blackout>,
    /// What was made to go wrong, a sentence each.
    pub faults: Vec<String>,
}

impl Outcome {
    /// A Plan as `refit status` would show it at the end.
    pub fn view(&self, end: &PlanOutcome) -> Option<PlanOverview<'_>> {
        let mut plans = self.snapshot.plans.iter();
        let namespace = end.plan.metadata.namespace.as_deref().unwrap_or_default();
        let plan = plans.find(|it| it.namespace == namespace && &*it.facts.name == end.name())?;
        Some(PlanOverview::new(&self.snapshot, plan))
    }

    /// All nodes at the end.
    pub fn nodes(&self) -> impl Iterator<Item = (&String, &NodeObject)> {
        self.snapshot.nodes.iter().flatten()
    }
}

/// State before the roll-out.
pub(super) struct Before {
    pub(super) budgets: Vec<BudgetState>,
    pub(super) not_ready: BTreeSet<String>,
}

impl Rehearsal {
    pub(super) fn outcome(
        &self,
        cluster: &Cluster,
        ending: Ending,
        recorder: Recorder,
        before: Before,
    ) -> Outcome {
        let end = match ending {
            Ending::Complete | Ending::Limit(_) => cluster.clock().now(),
            // The time without progress by which the stall was noticed does not count.
            Ending::Quiet(_) => recorder.progress(),
        };
        let wanted: Vec<&str> = self
            .plans
            .iter()
            .filter_map(|plan| plan["metadata"]["name"].as_str())
            .collect();
        cluster.with(|state| {
            let mut plans: Vec<PlanOutcome> = state
                .all(Kind::Plan)
                .filter_map(|plan| Plan::deserialize(plan).ok())
                .map(|plan| {
                    let name = plan.metadata.name.clone().unwrap_or_default();
                    PlanOutcome {
                        rehearsed: wanted.contains(&name.as_str()),
                        complete: recorder.is_complete(&name),
                        plan,
                    }
                })
                .collect();
            let place = |plan: &PlanOutcome| wanted.iter().position(|name| *name == plan.name());
            plans.sort_by_key(|plan| (!plan.rehearsed, place(plan)));
            let name = |node: &Value| node.meta("name").to_owned();
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
                budgets: before.budgets,
                not_ready: before.not_ready,
                snapshot: snapshot(state, cluster.clock().now()),
                cordoned: state.all(Kind::Node).filter(cordoned).map(name).collect(),
                absent: self.absent.clone(),
                faults: self.assumptions.faults.iter().map(ToString::to_string).collect(),
                blackouts: self.blackouts(),
            }
        })
    }
}

fn snapshot(state: &State, now: Timestamp) -> Snapshot {
    let mut snapshot = Snapshot {
        now,
        ..Snapshot::default()
    };
    for (kind, as_read) in [
        (Kind::Plan, ObjectKind::Plan),
        (Kind::Node, ObjectKind::Node),
        (Kind::Job, ObjectKind::Job),
        (Kind::Pod, ObjectKind::Pod),
    ] {
        let is_of_plan = |object: &&Value| {
            let has_own_kind = matches!(kind, Kind::Plan | Kind::Node);
            has_own_kind || object["metadata"]["labels"][names::LABEL_PLAN].is_string()
        };
        for object in state.all(kind).filter(is_of_plan) {
            let uid = object.meta("uid");
            // What the controller could not read, it has said.
            if let Ok(raw) = serde_json::value::to_raw_value(object) {
                let _ = snapshot.put(as_read, uid, &raw);
            }
        }
    }
    snapshot
}

pub(super) fn not_ready(state: &State) -> BTreeSet<String> {
    let nodes = state.all(Kind::Node).filter(|node| !is_ready(node));
    let name = |node: &Value| node.meta("name").to_owned();
    nodes.map(name).collect()
}

pub(super) fn budgets(state: &State) -> Vec<BudgetState> {
    let number = |budget: &Value, field: &str| budget["status"][field].as_i64().unwrap_or_default();
    let text = |budget: &Value, field: &str| budget.meta(field).to_owned();
    state
        .all(Kind::Budget)
        .map(|budget| BudgetState {
            name: format!("{}/{}", text(budget, "namespace"), text(budget, "name")),
            expected: number(budget, "expectedPods"),
            healthy: number(budget, "currentHealthy"),
            desired: number(budget, "desiredHealthy"),
        })
        .collect()
}
