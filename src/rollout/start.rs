//! Which nodes start now: the next in the order, if a slot is free, the gate is open, and no other disruptive Plan
//! works on the node.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::blocker::{Blocker, Joining};
use super::decide::Report;
use super::node::NodeState;
use super::plan::PlanState;
use super::pod_blockers::{PodBlockerResult, PodBlockers};
use super::resolve::Resolution;
use super::state::ClusterState;
use super::status::SlotRoom;
use super::step::Key;
use super::targets::{Reach, TargetState};
use super::wave::WaveProgress;
use super::{dependencies, failure, fields, on_request};
use refit_api::names;
use refit_facts::{NodeName, PlanName};

mod cluster_limits;
mod group;
mod joining;
mod locks;
mod quorum;
mod schedule;
mod taints;
mod versions;

use group::CurrentGroup;
use joining::joining;
pub(super) use locks::DisruptionLocks;
use locks::is_disturbed;
pub(super) use schedule::Openings;
use taints::Tolerations;
use versions::VersionLimits;

/// The states of the nodes that each Plan has started.
pub(super) type NodeStates = BTreeMap<PlanName, BTreeMap<NodeName, NodeState>>;

/// Why no node of a Plan may start now.
pub(super) fn gate(
    cluster: &ClusterState,
    plan: &PlanState,
    now: Timestamp,
    requeue_at: &mut Option<Timestamp>,
) -> Option<Blocker> {
    let Resolution::Resolved(resolved) = &plan.resolution else {
        return Some(Blocker::NotReady);
    };
    // `unproven`: a Plan that was listed without refit's status may have lost fields to an old CRD. Starting it could
    // ignore a `suspend`.
    if plan.invalid.is_some() || plan.unproven {
        return Some(Blocker::NotReady);
    }
    if fields::are_pruned(&plan.facts) {
        return Some(Blocker::SpecPruned);
    }
    if let Some(what) = cluster.missing_permission(plan) {
        return Some(Blocker::MissingPermission { what });
    }
    if let Some(frozen) = cluster_limits::frozen(cluster) {
        return Some(frozen);
    }
    if plan.is_aborted() {
        let by = plan.author(names::ANNOTATION_ABORT);
        return Some(Blocker::Aborted { by });
    }
    if plan.is_suspended() {
        let by = plan.author(names::ANNOTATION_SUSPENDED);
        return Some(Blocker::Suspended { by });
    }
    if plan.limit() == 0 {
        return Some(Blocker::ConcurrencyZero);
    }
    if let Some(offered) = &resolved.withdrawn {
        let (offered, current) = (offered.to_string(), resolved.version.to_string());
        return Some(Blocker::ChannelWithdrawn { offered, current });
    }
    if let Some(range) = &resolved.out_of_range {
        let (version, range) = (resolved.version.to_string(), range.to_string());
        return Some(Blocker::VersionOutOfRange { version, range });
    }
    if let Some(blocker) = dependencies::blocker(cluster, plan, now) {
        return Some(blocker);
    }
    if plan.targets.eligible() > 0
        && let Some(blocker) = schedule::blocker(cluster, plan, now, requeue_at)
    {
        return Some(blocker);
    }
    if let Some(blocker) = failure::blocker(cluster, plan) {
        return Some(blocker);
    }
    plan.job_blocker(false).or_else(|| image_blocker(cluster, plan))
}

/// Blocks Plans while the registry has not answered about an image, or says that it does not exist.
fn image_blocker(cluster: &ClusterState, plan: &PlanState) -> Option<Blocker> {
    // No registry is asked for a finished Plan, which may have to repeat, or to run again on a node that has drifted.
    if plan.targets.eligible() == 0 {
        return None;
    }
    let image = plan.digests.missing().or_else(|| plan.digests.open().next())?;
    let key = Key::Digest(plan.facts.name.clone(), image.clone());
    let failure = cluster.failures_by_step.get(&key);
    let (image, pins) = (image.clone(), plan.digests.pins());
    match plan.digests.answer_of_missing(&image) {
        // The last answer counts, and a failure is later.
        Some(answer) if failure.is_none() => Some(Blocker::ImageMissing {
            answer: answer.to_owned(),
            image,
            pins,
        }),
        _ => Some(Blocker::DigestUnknown {
            why: failure.map_or(String::new(), |failure| failure.message.clone()),
            image,
            pins,
        }),
    }
}

/// How many more nodes of a Plan may become unavailable.
struct Availability {
    limit: i64,
    /// Nodes that are unavailable, or are about to be because a Plan works on them: each once, whatever the reasons.
    unavailable: BTreeSet<NodeName>,
}

impl Availability {
    fn of(
        plan: &PlanState,
        nodes: &BTreeMap<NodeName, NodeState>,
        locks: &DisruptionLocks<'_>,
    ) -> Option<Self> {
        let limit = plan.nodes_of(plan.spec().max_unavailable.as_ref()?);
        let is_selected =
            |name: &&NodeName| !matches!(plan.targets.state(name), None | Some(TargetState::Disabled));
        // A node that any Plan has begun to disrupt counts before its kubelet shows it, so that two Plans cannot both
        // use the last unit of the limit. A failed node without a slot counts only if it is unavailable.
        let with_slot = nodes.iter().filter(|(_, state)| !state.frees_slot);
        let with_slot = with_slot.map(|(name, _)| name);
        let reserved = locks.cluster.reserved();
        let worked_on = locks.worked_on().chain(reserved).filter(is_selected);
        let worked_on = worked_on.chain(with_slot);
        let unavailable = plan.targets.unavailable().iter().chain(worked_on);
        Some(Self {
            limit,
            unavailable: unavailable.cloned().collect(),
        })
    }

    /// Whether a node may start: one that is unavailable anyway always may. One to which another Plan has only given a slot
    /// may not: that start can still fail.
    fn admits(&self, cluster: &ClusterState, plan: &PlanState, node: &NodeName) -> bool {
        let unavailable = i64::try_from(self.unavailable.len()).unwrap_or(i64::MAX);
        unavailable < self.limit || plan.targets.unavailable().contains(node) || is_disturbed(cluster, node)
    }

    /// Why no other node may start.
    fn blocker(self, nodes: &BTreeMap<NodeName, NodeState>) -> Blocker {
        let limit = self.limit;
        let others = self.unavailable.into_iter();
        let is_other = |name: &NodeName| nodes.get(name).is_none_or(|state| state.frees_slot);
        let nodes: Vec<_> = others.filter(is_other).collect();
        if nodes.is_empty() {
            Blocker::NoSlot { limit }
        } else {
            Blocker::MaxUnavailable { limit, nodes }
        }
    }
}

/// Nodes that pull the image of the upgrade while others are in progress.
const MAX_PREPULLS: usize = 32;

/// Gives free slots to the next nodes, and sets blockers for the others. Their Jobs are created once the stored status
/// names them.
#[expect(
    clippy::too_many_lines,
    reason = "one pass over the queue, in which each limit has its turn"
)]
pub(super) fn start(
    cluster: &ClusterState,
    plan: &PlanState,
    gate: Option<Blocker>,
    nodes: &mut BTreeMap<NodeName, NodeState>,
    locks: &mut DisruptionLocks<'_>,
    now: Timestamp,
) -> Report {
    admit_retries(cluster, plan, nodes, locks);
    let mut report = Report {
        waiting: waiting(plan, nodes),
        wave: WaveProgress::of(plan, nodes, now),
        ..Report::default()
    };
    let limit = plan.limit();
    if report.waiting == 0 {
        return report;
    }
    let wave = report.wave.clone();
    let is_soaking = wave.as_ref().is_some_and(WaveProgress::is_soaking);
    report.asks_checks = is_soaking;
    let failing = || plan.checks.failing().filter(|_| is_soaking);
    let gate = gate
        .or_else(failing)
        .or_else(|| wave.as_ref().and_then(WaveProgress::gate).cloned());
    if gate.is_some() {
        report.blocker = gate;
        return report;
    }
    let reach = wave.as_ref().map_or(Reach::ALL, WaveProgress::reach);
    let mut left = wave.as_ref().map_or(i64::MAX, WaveProgress::room);
    let mut versions = VersionLimits::of(cluster, plan);
    let tolerations = Tolerations::of(plan);
    // Failed nodes count as well, unless `spec.failure` frees their slots: each of them keeps its slot until someone has
    // looked at it (S61).
    let mut free = free_slots(plan, nodes);
    let mut no_room = None;
    let has_candidate = || plan.targets.ready_in(reach).any(|name| !nodes.contains_key(name));
    if free > 0 && left > 0 && has_candidate() {
        report.asks_checks = true;
        if let Some(blocker) = plan.checks.blocker(now) {
            report.blocker = Some(blocker);
            return report;
        }
    }
    let mut availability = Availability::of(plan, nodes, locks);
    let mut held = false;
    let mut cluster_full = None;
    let mut room = SlotRoom::of(nodes);
    let mut full = false;
    let mut pods = PodBlockers::of(cluster, plan, now);
    let mut lists_pods = false;
    let current = CurrentGroup::of(plan, reach, nodes);
    let mut out_of_turn = false;
    let (first, last) = if availability.is_some() || locks.cluster_limits.counts_unavailable() {
        out_of_order(plan, &current, reach)
    } else {
        (Vec::new(), Vec::new())
    };
    let mut queue = first.into_iter().chain(plan.targets.ready_in(reach));
    let mut last = last.into_iter();
    while free > 0 && left > 0 {
        // Once a node has to wait for room, later ones may not overtake it. Those in `last` take no room.
        let waits = held || out_of_turn || cluster_full.is_some() || no_room.is_some();
        let next = if waits { None } else { queue.next() };
        let Some(name) = next.or_else(|| last.next()) else {
            break;
        };
        // The order has all eligible nodes, also those that have started.
        if nodes.contains_key(name) {
            continue;
        }
        if let Some(node) = cluster.nodes.get(name)
            && plan.targets.at_version().contains(name)
        {
            let version = node.kubelet.clone();
            report.nodes.insert(name.clone(), Blocker::AtVersion { version });
            continue;
        }
        if !current.admits(name) {
            out_of_turn = true; // the nodes of a group come together
            continue;
        }
        if let Some(blocker) = locks.room_blocker(plan, nodes, free, name) {
            no_room = Some(blocker);
            continue;
        }
        if availability
            .as_ref()
            .is_some_and(|availability| !availability.admits(cluster, plan, name))
        {
            held = true;
            continue;
        }
        if let Some(limit) = locks.cluster_limits.blocker(name) {
            cluster_full = Some(limit);
            continue;
        }
        let Some(node) = cluster.nodes.get(name) else {
            continue;
        };
        if let Some(joining) = joining(cluster, &tolerations, node, now) {
            if let Joining::Until(until) = joining {
                report.requeue(until);
            }
            report.nodes.insert(name.clone(), Blocker::NodeJoining(joining));
            continue;
        }
        let version = || versions.as_mut().and_then(|limits| limits.blocker(node));
        let blocker = node_blocker(cluster, plan, locks, name).or_else(version);
        if let Some(blocker) = blocker.or_else(|| tolerations.blocker(node)) {
            report.nodes.insert(name.clone(), blocker);
            continue;
        }
        match pods
            .as_mut()
            .map_or(PodBlockerResult::Free, |pods| pods.check(node, free))
        {
            PodBlockerResult::Free => {}
            PodBlockerResult::Blocked(blocker) => {
                report.nodes.insert(name.clone(), blocker);
                continue;
            }
            PodBlockerResult::Later => {
                // Pods are being listed for as many nodes as slots are free. The next decision continues with them.
                lists_pods = true;
                break;
            }
        }
        let mut starting = NodeState::starting(node, now);
        // Status stores the boot with the slot, before the Job exists. If all evidence of the upgrade is lost later,
        // this is what tells whether the node has rebooted since.
        starting.boot = plan.spec().may_reboot().then(|| node.boot_id.clone());
        if !room.take(name, &starting) {
            full = true;
            break;
        }
        nodes.insert(name.clone(), starting);
        // Plans that are decided later in the same pass must see this start, although nothing is written yet.
        locks.lock(plan, name);
        if let Some(availability) = &mut availability {
            availability.unavailable.insert(name.clone());
        }
        report.waiting -= 1;
        free -= 1;
        left -= 1;
    }
    if free <= 0 && plan.spec().prepulls() {
        let is_fit = |name: &&NodeName| {
            let node = cluster.nodes.get(name);
            node.is_some_and(|node| {
                joining(cluster, &tolerations, node, now).is_none() && tolerations.blocker(node).is_none()
            })
        };
        let next = queue
            .filter(|name| !nodes.contains_key(*name) && !plan.targets.at_version().contains(*name))
            .filter(is_fit);
        let most = usize::try_from(limit).unwrap_or_default().min(MAX_PREPULLS);
        report.prepulls = next.take(most).cloned().collect();
    }
    if let Some(pods) = pods {
        report.asks_pods = pods.asks;
        pods.again.into_iter().for_each(|at| report.requeue(at));
    }
    report.blocker = if free <= 0 {
        (report.waiting > 0).then_some(Blocker::NoSlot { limit })
    } else if no_room.is_some() {
        no_room
    } else if cluster_full.is_some() {
        cluster_full
    } else if lists_pods {
        Some(Blocker::PodsPending { why: None })
    } else if full {
        Some(Blocker::StatusFull { slots: nodes.len() })
    } else if let Some(availability) = availability.filter(|_| held) {
        Some(availability.blocker(nodes))
    } else if out_of_turn {
        current.blocker(nodes, &report)
    } else if let Some(blocker) = wave.as_ref().and_then(WaveProgress::blocker) {
        (report.waiting > 0).then(|| blocker.clone())
    } else {
        // All nodes that can start have started. The others have a blocker above, or are not Ready.
        plan.targets
            .not_ready()
            .any(|name| !nodes.contains_key(name))
            .then_some(Blocker::NodeNotReady)
    };
    report
}

/// Why the Plan may not start on this node, whatever the others do.
fn node_blocker(
    cluster: &ClusterState,
    plan: &PlanState,
    locks: &DisruptionLocks<'_>,
    name: &NodeName,
) -> Option<Blocker> {
    if let Some(unreadable) = cluster.unreadable_nodes.get(name) {
        let why = unreadable.why.clone();
        return Some(Blocker::NodeUnreadable { why });
    }
    let quorum = || locks.quorums.blocker(cluster, plan, name);
    let ineffective = || on_request::blocker(plan, cluster.nodes.get(name)?);
    locks.blocker(plan, name).or_else(quorum).or_else(ineffective)
}

/// Nodes that cost no availability, and start though there is no room for others: first, or with an order last.
fn out_of_order<'a>(
    plan: &'a PlanState,
    current: &CurrentGroup<'_>,
    reach: Reach,
) -> (Vec<&'a NodeName>, Vec<&'a NodeName>) {
    let unavailable = plan.targets.unavailable_and_ready(reach);
    let unavailable = unavailable.filter(|name| current.admits(name)).collect();
    match plan.spec().order {
        None => (unavailable, Vec::new()),
        Some(_) => (Vec::new(), unavailable),
    }
}

fn free_slots(plan: &PlanState, nodes: &BTreeMap<NodeName, NodeState>) -> i64 {
    let taken = nodes.values().filter(|state| !state.frees_slot).count();
    plan.limit()
        .saturating_sub(i64::try_from(taken).unwrap_or(i64::MAX))
}

/// Gives free slots to failed nodes that are to be tried again and have none. They come before new nodes.
fn admit_retries(
    cluster: &ClusterState,
    plan: &PlanState,
    nodes: &mut BTreeMap<NodeName, NodeState>,
    locks: &mut DisruptionLocks<'_>,
) {
    let waiting = nodes.iter().filter(|(_, state)| state.retry.is_some());
    let waiting: Vec<_> = waiting.map(|(name, _)| name.clone()).collect();
    for name in waiting {
        // For each node anew, as is the availability below: a node that is admitted counts for the next one.
        let current = CurrentGroup::of(plan, Reach::ALL, nodes);
        let blocker = if !current.admits(&name) {
            current.blocker(nodes, &Report::default())
        } else if free_slots(plan, nodes) <= 0 {
            Some(Blocker::NoSlot { limit: plan.limit() })
        } else if let Some(blocker) = locks.room_blocker(plan, nodes, free_slots(plan, nodes), &name) {
            Some(blocker)
        } else {
            let availability = Availability::of(plan, nodes, locks);
            let full = availability.filter(|availability| !availability.admits(cluster, plan, &name));
            let quorum = || locks.quorums.blocker(cluster, plan, &name);
            let blocker = locks.blocker(plan, &name).or_else(quorum);
            let blocker = blocker.or_else(|| locks.cluster_limits.blocker(&name));
            blocker.or_else(|| full.map(|full| full.blocker(nodes)))
        };
        let Some(state) = nodes.get_mut(&name) else {
            continue;
        };
        match (blocker, state.retry.take()) {
            (None, Some(retry)) => {
                *state = *retry;
                locks.lock(plan, &name);
            }
            (Some(blocker), _) => {
                state.decision = Some(format!("it is tried again once it may start: {blocker}"));
            }
            (None, None) => {}
        }
    }
}

/// Number of eligible nodes that the Plan has not started.
fn waiting(plan: &PlanState, nodes: &BTreeMap<NodeName, NodeState>) -> usize {
    let begun = nodes
        .keys()
        .filter(|name| matches!(plan.targets.state(name), Some(TargetState::Eligible { .. })))
        .count();
    plan.targets.eligible().saturating_sub(begun)
}
