//! What metrics say of the Plans and their nodes. Nothing here decides anything.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::decide::Report;
use super::node::NodeState;
use super::plan::PlanState;
use super::resolve;
use super::start::Openings;
use super::state::ClusterState;
use super::targets::TargetState;
use refit_api::{ChannelRef, DrainNote, NodePhase, OpenEnum, PlanCondition, PlanStatus, Reason};
use refit_facts::{NodeName, PlanName, PodUid};

/// A node that has a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    pub phase: NodePhase,
    /// Why it does not progress, or has failed.
    pub reason: Option<OpenEnum<Reason>>,
    /// As in `status.active[].since`.
    pub since: Option<Timestamp>,
}

pub(super) fn slots(nodes: &BTreeMap<NodeName, NodeState>) -> BTreeMap<NodeName, Slot> {
    let slot = |(name, state): (&NodeName, &NodeState)| {
        let slot = Slot {
            phase: state.phase,
            reason: state.reason.clone(),
            since: state.since,
        };
        (name.clone(), slot)
    };
    nodes.iter().map(slot).collect()
}

/// A Plan, apart from its nodes in progress.
#[derive(Debug)]
pub struct PlanSummary<'a> {
    /// The version that it rolls out, once resolved.
    pub version: Option<&'a str>,
    pub conditions: &'a [PlanCondition],
    /// Numbers of nodes, as in `status.nodes`.
    pub selected: i64,
    pub done: i64,
    pub disabled: i64,
    /// Most nodes in progress at a time.
    pub limit: i64,
    /// Whether no node may start: the Plan is suspended or aborted, or everything is frozen.
    pub is_stopped: bool,
    /// Whether the kubelets of done nodes are compared with the version.
    pub claims_kubelets: bool,
    pub window: Option<WindowSummary>,
    pub channel: Option<ChannelSummary<'a>>,
    /// Number of waiting nodes by reason.
    pub waiting: BTreeMap<Reason, usize>,
}

/// When nodes of a Plan may start, by its windows and all blackouts.
#[derive(Debug, PartialEq, Eq)]
pub struct WindowSummary {
    pub is_open: bool,
    /// Length of the next opening; zero if there is none, and absent if it never closes.
    pub length: Option<SignedDuration>,
}

impl WindowSummary {
    fn of(openings: &Openings<'_>, now: Timestamp) -> Self {
        let is_open = openings.contains(now);
        // The beginning of an opening that is under way is not known.
        let from = if is_open { openings.closes(now) } else { Some(now) };
        let length = match from.and_then(|from| openings.next(from)) {
            Some(opens) => openings.closes(opens).map(|closes| closes.duration_since(opens)),
            None => (!is_open).then_some(SignedDuration::ZERO),
        };
        Self { is_open, length }
    }
}

/// The channel of a Plan.
#[derive(Debug)]
pub struct ChannelSummary<'a> {
    pub channel: &'a ChannelRef,
    pub polled: Timestamp,
    /// Consecutive polls that failed.
    pub failures: u32,
}

impl ClusterState {
    /// What metrics say of a Plan, given what the last decision said of it.
    pub fn summary<'a>(&'a self, plan: &str, report: &Report, now: Timestamp) -> Option<PlanSummary<'a>> {
        let plan = self.plans.get(plan)?;
        let resolved = plan.resolved.as_ref();
        let known = |channel: &'a ChannelRef| {
            let known = resolve::channel(&plan.facts, channel, &self.channels)?;
            Some(ChannelSummary {
                channel,
                polled: known.polled,
                failures: known.failures,
            })
        };
        let openings = Openings::of(self, plan);
        Some(PlanSummary {
            version: resolved.map(|resolved| &*resolved.version),
            conditions: &plan.facts.status().conditions,
            selected: plan.targets.selected(),
            done: plan.targets.done(),
            disabled: plan.targets.disabled(),
            limit: plan.limit(),
            is_stopped: plan.is_suspended() || plan.is_aborted() || self.is_frozen(),
            claims_kubelets: plan.targets.claim().is_some(),
            window: (!openings.are_unlimited()).then(|| WindowSummary::of(&openings, now)),
            channel: plan.channel.as_ref().and_then(known),
            waiting: waiting_by_reason(plan, report),
        })
    }

    /// The stored status of a Plan.
    pub fn status(&self, plan: &str) -> Option<&PlanStatus> {
        self.plans.get(plan).map(|plan| plan.facts.status())
    }

    /// The conditions of a Plan in its stored status.
    pub fn conditions(&self, plan: &str) -> &[PlanCondition] {
        self.plans
            .get(plan)
            .map_or(&[], |plan| &plan.facts.status().conditions)
    }

    pub fn is_done(&self, plan: &str, node: &str) -> bool {
        let state = self.plans.get(plan).and_then(|plan| plan.targets.state(node));
        state == Some(&TargetState::Done)
    }

    /// Number of Nodes that exist.
    pub fn node_count(&self) -> usize {
        self.nodes.iter().count()
    }

    /// The Plans of this controller for which nodes are cordoned, and these nodes.
    pub fn cordons(&self) -> impl Iterator<Item = (&str, &NodeName)> {
        let of_node = |name: &'_ NodeName| {
            let (name, node) = self.nodes.get_key_value(name)?;
            let ledger = node.ledger.as_ref().filter(|_| node.unschedulable)?;
            Some((name, ledger))
        };
        self.ledgers
            .iter()
            .filter_map(of_node)
            .flat_map(|(name, ledger)| {
                let ours = ledger.holders.iter().filter(|holder| {
                    holder.namespace == self.defaults.namespace
                        && holder.controller == self.defaults.job.controller_name
                });
                ours.map(move |holder| (holder.plan.as_str(), name))
            })
    }

    /// The progress of drains, as the pods on the nodes report it in an annotation of their node.
    pub fn drains(&self) -> impl Iterator<Item = (&PlanName, &PodUid, &DrainNote)> {
        self.live_pods().filter_map(|pod| {
            let drain = self.nodes.get(pod.node.as_ref()?)?.drain.as_ref()?;
            (*drain.pod == *pod.uid).then_some((&pod.plan, &pod.uid, &drain.note))
        })
    }
}

/// Number of waiting nodes by the reason that status gives for them.
fn waiting_by_reason(plan: &PlanState, report: &Report) -> BTreeMap<Reason, usize> {
    let mut counts = BTreeMap::new();
    for blocker in report.nodes.values() {
        *counts.entry(blocker.reason()).or_default() += 1;
    }
    let mut rest = report.waiting.saturating_sub(report.nodes.len());
    let shut = report
        .blocker
        .as_ref()
        .is_some_and(|blocker| !blocker.is_capacity());
    if !shut {
        let has_own = |name: &&NodeName| report.nodes.contains_key(*name) || report.slots.contains_key(*name);
        let not_ready = plan
            .targets
            .not_ready()
            .filter(|name| !has_own(name))
            .count()
            .min(rest);
        if not_ready > 0 {
            *counts.entry(Reason::NodeNotReady).or_default() += not_ready;
        }
        rest -= not_ready;
    }
    if let Some(blocker) = report.blocker.as_ref().filter(|_| rest > 0) {
        *counts.entry(blocker.reason()).or_default() += rest;
    }
    counts
}
