//! What metrics say of the Plans and their nodes. Nothing here decides anything.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::despite::Lifted;
use super::picture::PlanPicture;
use super::resolve;
use super::start::schedule::StartTimes;
use super::state::ClusterState;
use super::targets::TargetState;
use refit_api::{ChannelRef, DrainNote, PlanCondition, PlanStatus, Reason};
use refit_facts::{NodeName, PlanName, PodUid};

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
    /// The latest end that status expects.
    pub expected_end: Option<Timestamp>,
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
    fn of(start_times: &StartTimes<'_>, now: Timestamp) -> Self {
        let is_open = start_times.contains(now);
        // The beginning of an opening that is under way is not known.
        let from = if is_open {
            start_times.closes(now)
        } else {
            Some(now)
        };
        let length = match from.and_then(|from| start_times.next(from)) {
            Some(opens) => start_times
                .closes(opens)
                .map(|closes| closes.duration_since(opens)),
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
    pub fn summary<'a>(
        &'a self,
        plan: &str,
        picture: &PlanPicture,
        now: Timestamp,
    ) -> Option<PlanSummary<'a>> {
        let plan = self.plans.get(plan)?;
        let resolved = plan.resolved.as_ref();
        let known = |channel: &'a ChannelRef| {
            let known = resolve::channel(&plan.facts, channel, &self.world.channels)?;
            Some(ChannelSummary {
                channel,
                polled: known.polled,
                failures: known.failures,
            })
        };
        let start_times = StartTimes::of(self, plan, &Lifted::new());
        Some(PlanSummary {
            version: resolved.map(|resolved| &*resolved.version),
            conditions: &plan.facts.status().conditions,
            selected: plan.targets.selected(),
            done: plan.targets.done(),
            disabled: plan.targets.disabled(),
            limit: plan.limit(),
            is_stopped: plan.is_suspended() || plan.is_aborted() || self.world.limits.are_frozen(),
            claims_kubelets: plan.targets.claim().is_some(),
            window: (!start_times.are_unlimited()).then(|| WindowSummary::of(&start_times, now)),
            channel: plan.channel.as_ref().and_then(known),
            expected_end: expected_end(plan.facts.status()),
            waiting: picture.waiting_by_reason(plan.targets.not_ready()),
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
        self.world.nodes.iter().count()
    }

    /// The Plans of this controller for which nodes are cordoned, and these nodes.
    pub fn cordons(&self) -> impl Iterator<Item = (&str, &NodeName)> {
        let of_node = |name: &'_ NodeName| {
            let (name, node) = self.world.nodes.get_key_value(name)?;
            let ledger = node.ledger.as_ref().filter(|_| node.unschedulable)?;
            Some((name, ledger))
        };
        self.world
            .nodes
            .ledgers
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
        self.world.pods.live().filter_map(|pod| {
            let drain = self.world.nodes.get(pod.node.as_ref()?)?.drain.as_ref()?;
            (*drain.pod == *pod.uid).then_some((&pod.plan, &pod.uid, &drain.note))
        })
    }
}

fn expected_end(status: &PlanStatus) -> Option<Timestamp> {
    let end = status.expected_end.as_ref()?;
    end.latest.parse().ok()
}
