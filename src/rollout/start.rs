//! Which nodes start now: the next in the order, if a slot is free, the gate is open, and no other disruptive Plan
//! works on the node.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::blocker::Blocker;
use super::node::state::NodeState;
use super::open_waves::OpenWaves;
use super::picture::PlanPicture;
use super::plan::DerivedPlan;
use super::resolve::Resolution;
use super::state::ClusterState;
use super::step::Key;
use super::targets::TargetState;
use super::wave::progress::WaveProgress;
use super::{dependencies, failure, pruning};
use super::{permissions, wave};
use refit_api::names;
use refit_facts::NodeName;

mod admission;
mod availability;
mod busy;
mod cluster_limits;
mod effective;
mod group;
mod joining;
mod leaving;
pub(super) mod limit;
pub(super) mod locks;
mod of_all_plans;
mod quorum;
mod room;
pub(super) mod schedule;
mod skipped;
pub(super) mod taints;
mod versions;

use admission::Limits;
use availability::Availability;
use group::CurrentGroup;
use joining::joining;
use limit::{Turn, Verdict};
use locks::DisruptionLocks;
use taints::Tolerations;

/// Why no node of a Plan may start now.
pub(super) fn gate(
    cluster: &ClusterState,
    plan: &DerivedPlan,
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
    if pruning::are_pruned(plan) {
        return Some(Blocker::SpecPruned);
    }
    if let Some(what) = permissions::missing(cluster, plan) {
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
fn image_blocker(cluster: &ClusterState, plan: &DerivedPlan) -> Option<Blocker> {
    // No registry is asked for a finished Plan, which may have to repeat, or to run again on a node that has drifted.
    if plan.targets.eligible() == 0 {
        return None;
    }
    let image = plan.digests.missing().or_else(|| plan.digests.open().next())?;
    let key = Key::Digest(plan.facts.name.clone(), image.clone());
    let failure = cluster.memory.failures.get(&key);
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

/// Nodes that pull the image of the upgrade while others are in progress.
const MAX_PREPULLS: usize = 32;

/// Gives free slots to the next nodes, and sets blockers for the others. Their Jobs are created once the stored status
/// names them.
pub(super) fn start<'a>(
    cluster: &'a ClusterState,
    plan: &'a DerivedPlan,
    gate: Option<Blocker>,
    nodes: &mut BTreeMap<NodeName, NodeState>,
    locks: &mut DisruptionLocks<'a>,
    now: Timestamp,
) -> PlanPicture {
    let mut picture = PlanPicture::default();
    admit_retries(cluster, plan, nodes, locks, now, &mut picture);
    picture.waiting = waiting(plan, nodes);
    picture.wave = wave::progress(plan, nodes, now);
    if picture.waiting == 0 {
        return picture;
    }
    // Its answers count for the soak, whatever else keeps nodes from starting.
    picture.asks_checks = picture.wave.as_ref().is_some_and(WaveProgress::is_soaking);
    picture.blocker = gate.or_else(|| wave_gate(plan, picture.wave.as_ref()));
    if picture.blocker.is_some() {
        return picture;
    }
    let wave = picture.wave.clone();
    let reach = wave.as_ref().map_or(OpenWaves::ALL, WaveProgress::reach);
    let mut left = wave.as_ref().map_or(i64::MAX, WaveProgress::room);
    // Failed nodes count as well, unless `spec.failure` frees their slots: each of them keeps its slot until someone has
    // looked at it (S61).
    let mut free = free_slots(plan, nodes);
    let has_candidate = || plan.targets.ready_in(reach).any(|name| !nodes.contains_key(name));
    if free > 0 && left > 0 && has_candidate() {
        picture.asks_checks = true;
        picture.blocker = plan.checks.blocker(now);
        if picture.blocker.is_some() {
            return picture;
        }
    }
    let group = CurrentGroup::of(plan, reach, nodes);
    let availability = Availability::of(plan, nodes, locks);
    let counts_unavailable = availability.is_some() || locks.cluster_limits.counts_unavailable();
    let mut queue = Queue::of(plan, &group, reach, counts_unavailable);
    let mut limits = Limits::of_start(cluster, plan, nodes, group, availability);
    let mut held = None;
    while free > 0 && left > 0 {
        let Some(name) = queue.next(held.is_some()) else {
            break;
        };
        // The order has all eligible nodes, also those that have started.
        let Some(node) = cluster
            .world
            .nodes
            .get(name)
            .filter(|_| !nodes.contains_key(name))
        else {
            continue;
        };
        let mut turn = Turn {
            cluster,
            plan,
            node,
            nodes,
            locks,
            free,
            now,
            picture: &mut picture,
        };
        match limits.admit(&mut turn) {
            Verdict::Go => {}
            Verdict::Skip(blocker) => {
                picture.nodes.insert(name.clone(), blocker);
                continue;
            }
            Verdict::Stop(blocker) => {
                held.get_or_insert(blocker);
                continue;
            }
            Verdict::End(blocker) => {
                held.get_or_insert(blocker);
                break;
            }
        }
        nodes.insert(
            name.clone(),
            NodeState::starting(plan.spec(), plan.next_attempt(node), node, now),
        );
        // Plans that are decided later in the same pass must see this start, although nothing is written yet.
        locks.lock(plan, name);
        limits.take(name);
        picture.waiting -= 1;
        free -= 1;
        left -= 1;
    }
    if free <= 0 && plan.spec().prepulls() {
        picture.prepulls = prepulls(cluster, plan, nodes, queue, now);
    }
    let limit = plan.limit();
    picture.blocker = if free <= 0 {
        (picture.waiting > 0).then_some(Blocker::NoSlot { limit })
    } else if held.is_some() {
        held
    } else if let Some(blocker) = wave.as_ref().and_then(WaveProgress::blocker) {
        (picture.waiting > 0).then(|| blocker.clone())
    } else {
        // All nodes that can start have started. The others have a blocker above, or are not Ready.
        let mut not_ready = plan.targets.not_ready();
        let waits = not_ready.any(|name| !nodes.contains_key(name));
        waits.then_some(Blocker::NodeNotReady)
    };
    picture
}

/// Why the wave lets no node start now.
fn wave_gate(plan: &DerivedPlan, wave: Option<&WaveProgress>) -> Option<Blocker> {
    let wave = wave?;
    let failing = plan.checks.failing().filter(|_| wave.is_soaking());
    failing.or_else(|| wave.gate().cloned())
}

/// The nodes that pull the image next.
fn prepulls(
    cluster: &ClusterState,
    plan: &DerivedPlan,
    nodes: &BTreeMap<NodeName, NodeState>,
    queue: Queue<'_>,
    now: Timestamp,
) -> Vec<NodeName> {
    let tolerations = Tolerations::of(plan);
    let is_fit = |name: &&NodeName| {
        let node = cluster.world.nodes.get(name);
        node.is_some_and(|node| {
            joining(cluster, &tolerations, node, now).is_none() && tolerations.blocker(node).is_none()
        })
    };
    let next = queue
        .turns
        .filter(|name| !nodes.contains_key(*name) && !plan.targets.at_version().contains(*name))
        .filter(is_fit);
    let most = usize::try_from(plan.limit()).unwrap_or_default();
    next.take(most.min(MAX_PREPULLS)).cloned().collect()
}

/// The nodes in the order in which they have their turn.
struct Queue<'a> {
    turns: Box<dyn Iterator<Item = &'a NodeName> + 'a>,
    /// Those that take no room: they have their turn at the end, also if others wait for room.
    last: std::vec::IntoIter<&'a NodeName>,
}

impl<'a> Queue<'a> {
    fn of(
        plan: &'a DerivedPlan,
        group: &CurrentGroup<'_>,
        reach: OpenWaves,
        counts_unavailable: bool,
    ) -> Self {
        let (first, last) = if counts_unavailable {
            out_of_order(plan, group, reach)
        } else {
            (Vec::new(), Vec::new())
        };
        Self {
            turns: Box::new(first.into_iter().chain(plan.targets.ready_in(reach))),
            last: last.into_iter(),
        }
    }

    /// The next node. Once one waits for room, later ones may not overtake it.
    fn next(&mut self, waits: bool) -> Option<&'a NodeName> {
        let next = if waits { None } else { self.turns.next() };
        next.or_else(|| self.last.next())
    }
}

/// Nodes that cost no availability, and start though there is no room for others: first, or with an order last.
fn out_of_order<'a>(
    plan: &'a DerivedPlan,
    current: &CurrentGroup<'_>,
    reach: OpenWaves,
) -> (Vec<&'a NodeName>, Vec<&'a NodeName>) {
    let unavailable = plan.targets.unavailable_and_ready(reach);
    let unavailable = unavailable.filter(|name| current.admits(name)).collect();
    match plan.spec().order {
        None => (unavailable, Vec::new()),
        Some(_) => (Vec::new(), unavailable),
    }
}

fn free_slots(plan: &DerivedPlan, nodes: &BTreeMap<NodeName, NodeState>) -> i64 {
    let taken = nodes.values().filter(|state| !state.frees_slot).count();
    plan.limit()
        .saturating_sub(i64::try_from(taken).unwrap_or(i64::MAX))
}

/// Gives free slots to failed nodes that are to be tried again and have none. They come before new nodes.
fn admit_retries<'a>(
    cluster: &'a ClusterState,
    plan: &'a DerivedPlan,
    nodes: &mut BTreeMap<NodeName, NodeState>,
    locks: &mut DisruptionLocks<'a>,
    now: Timestamp,
    picture: &mut PlanPicture,
) {
    let waiting = nodes.iter().filter(|(_, state)| state.retry.is_some());
    let waiting: Vec<_> = waiting.map(|(name, _)| name.clone()).collect();
    for name in waiting {
        let Some(node) = cluster.world.nodes.get(&name) else {
            continue;
        };
        // For each node anew, as is the availability: a node that is admitted counts for the next one.
        let group = CurrentGroup::of(plan, OpenWaves::ALL, nodes);
        let availability = Availability::of(plan, nodes, locks);
        let free = free_slots(plan, nodes);
        let mut turn = Turn {
            cluster,
            plan,
            node,
            nodes,
            locks,
            free,
            now,
            picture,
        };
        let held = match Limits::of_retry(plan, group, availability).admit(&mut turn) {
            Verdict::Go => None,
            Verdict::Skip(blocker) | Verdict::Stop(blocker) | Verdict::End(blocker) => Some(blocker),
        };
        let Some(state) = nodes.get_mut(&name) else {
            continue;
        };
        match (held, state.retry.take()) {
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
fn waiting(plan: &DerivedPlan, nodes: &BTreeMap<NodeName, NodeState>) -> usize {
    let begun = nodes
        .keys()
        .filter(|name| matches!(plan.targets.state(name), Some(TargetState::Eligible { .. })))
        .count();
    plan.targets.eligible().saturating_sub(begun)
}
