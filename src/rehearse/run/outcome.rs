//! The outcome of a rehearsal, read from the cluster.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::Rehearsal;
use crate::cluster::Cluster;
use crate::json::Value;
use crate::pods::is_ready;
use crate::record::Recorder;
use crate::resources::Kind;
use crate::state::State;
use refit_api::names;
use refit_api::schedule::Blackout;
use refit_facts::{PlanFacts, PlanName};
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

#[derive(Debug)]
pub struct Outcome {
    pub ending: Ending,
    pub start: Timestamp,
    /// When all Plans were complete, or when the roll-out last made progress.
    pub end: Timestamp,
    /// The end of the simulation.
    pub seen: Timestamp,
    /// The rehearsed Plans first.
    pub plans: Vec<PlanFacts>,
    /// How many of them were rehearsed. The others were on the cluster anyway.
    pub rehearsed: usize,
    /// Names of those that are complete.
    pub complete: BTreeSet<PlanName>,
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
    pub fn rehearsed(&self) -> &[PlanFacts] {
        &self.plans[..self.rehearsed]
    }

    /// A Plan as `refit status` would show it at the end.
    pub fn view<'a>(&'a self, plan: &'a PlanFacts) -> PlanOverview<'a> {
        PlanOverview::new(&self.snapshot, plan)
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
            let snapshot = snapshot(state, cluster.clock().now());
            let mut plans = snapshot.plans.clone();
            let place = |plan: &PlanFacts| wanted.iter().position(|name| *name == &*plan.name);
            plans.sort_by_key(|plan| (place(plan).is_none(), place(plan)));
            let names = plans.iter().map(|plan| plan.name.clone());
            let complete = names.filter(|name| recorder.is_complete(name)).collect();
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
                rehearsed: plans.iter().filter(|plan| place(plan).is_some()).count(),
                complete,
                plans,
                record: recorder,
                budgets: before.budgets,
                not_ready: before.not_ready,
                snapshot,
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
