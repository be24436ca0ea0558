//! Which nodes start now: the next in the order, if a slot is free, the gate is open, and no other disruptive Plan
//! works on the node.

use jiff::Timestamp;

use super::blocker::Blocker;
use super::hooks;
use super::node::state::{NodeState, NodeStates, PlanNodes, Start};
use super::open_waves::OpenWaves;
use super::picture::PlanPicture;
use super::plan::DerivedPlan;
use super::state::ClusterState;
use super::targets::TargetState;
use super::wave;
use super::wave::progress::WaveProgress;
use refit_api::exemption::StartLimit;
use refit_api::{Hook, Reason};
use refit_facts::{NodeFacts, NodeName};

mod admission;
mod availability;
mod cluster_limits;
pub(super) mod gate;
mod group;
mod joining;
pub(super) mod limit;
pub(super) mod locks;
mod next;
mod quorum;
pub(super) mod schedule;
mod skipped;
pub(super) mod taints;
pub(super) mod versions;

use admission::Limits;
use availability::Availability;
use gate::{Gate, Gates};
use group::CurrentGroup;
use limit::{Turn, Verdict};
use locks::DisruptionLocks;

/// Begins nodes whose slot is in the stored status, unless another disruptive Plan works on them: their Jobs are created.
pub(super) fn begin_held_slots(locks: &mut DisruptionLocks<'_>, node_states: &mut NodeStates) {
    for (name, nodes) in node_states {
        let Some(plan) = locks.cluster.plans.get(name) else {
            continue;
        };
        for (node, state) in nodes.iter_mut().filter(|(_, state)| state.start.is_some()) {
            let quorum = || locks.quorums.blocker(locks.cluster, plan, node);
            if let Some(blocker) = locks.blocker(plan, node).or_else(quorum) {
                state.set_blocker(&blocker);
                continue;
            }
            locks.lock(plan, node);
            if let Some(Start::Now(step)) = state.start.take() {
                state.steps.push(step);
            }
        }
    }
}

/// Gives free slots to the next nodes, and sets blockers for the others. Their Jobs are created once the stored status
/// names them ([`begin_held_slots`], with the step of `node/begin.rs`).
pub(super) fn start<'a>(
    cluster: &'a ClusterState,
    plan: &'a DerivedPlan,
    gates: Gates,
    nodes: &mut PlanNodes,
    locks: &mut DisruptionLocks<'a>,
    now: Timestamp,
) -> PlanPicture {
    let mut starter = Starter {
        cluster,
        plan,
        nodes,
        locks,
        now,
        picture: PlanPicture::default(),
    };
    starter.admit_retries();
    let wave = wave::progress(plan, starter.nodes, &gates.of_all, now);
    // A node that has its slot already may be what waits for it.
    let waits_for_before = |(name, state): (&NodeName, &NodeState)| {
        state.is_held_by(Reason::BeforeRunning) && gates.of_node(name).is_some_and(Blocker::is_hook_due)
    };
    let is_awaited = starter.nodes.iter().any(waits_for_before);
    let picture = &mut starter.picture;
    picture.waiting = waiting(plan, starter.nodes);
    picture.wave.clone_from(&wave);
    picture.despite.clone_from(&gates.despite);
    picture.starts_hook = is_awaited.then_some(Hook::Before);
    if picture.waiting == 0 {
        starter.finish(gates.of_all.shut);
        return starter.picture;
    }
    let blocker = starter.start(&gates.of_all, wave.as_ref());
    for gate in &gates.of_named {
        // Nodes wait for their turn as others do, unless it is the lifted limits for which they wait.
        if blocker.as_ref().is_some_and(Blocker::may_be_lifted) {
            let wave = wave::progress(plan, starter.nodes, gate, now);
            let blocker = starter.start(gate, wave.as_ref());
            starter.note_waiting(gate, blocker.as_ref());
        }
    }
    let mut picture = starter.picture;
    picture.blocker = blocker.filter(|_| picture.waiting > 0);
    picture
}

/// Starts the nodes of one Plan.
struct Starter<'s, 'a> {
    cluster: &'a ClusterState,
    plan: &'a DerivedPlan,
    nodes: &'s mut PlanNodes,
    locks: &'s mut DisruptionLocks<'a>,
    now: Timestamp,
    picture: PlanPicture,
}

impl<'a> Starter<'_, 'a> {
    /// The turn of a node, while so many slots are free.
    fn turn(&mut self, node: &'a NodeFacts, free: i64) -> Turn<'_, 'a> {
        Turn {
            cluster: self.cluster,
            plan: self.plan,
            node,
            nodes: self.nodes,
            locks: self.locks,
            free,
            now: self.now,
            picture: &mut self.picture,
        }
    }

    /// Gives free slots to failed nodes that are to be tried again and have none. They come before new nodes.
    fn admit_retries(&mut self) {
        let waiting = self.nodes.iter().filter(|(_, state)| state.retry.is_some());
        let waiting: Vec<_> = waiting.map(|(name, _)| name.clone()).collect();
        for name in waiting {
            let Some(node) = self.cluster.world.nodes.get(&name) else {
                continue;
            };
            // For each node anew, as is the availability: a node that is admitted counts for the next one.
            let group = CurrentGroup::of(self.plan, OpenWaves::ALL, self.nodes);
            let availability = Availability::of(self.plan, self.nodes, self.locks);
            let free = free_slots(self.plan, self.nodes);
            let mut limits = Limits::of_retry(self.plan, group, availability);
            let held = match limits.admit(&mut self.turn(node, free)) {
                Verdict::Go => None,
                Verdict::Skip(blocker) | Verdict::Stop(blocker) | Verdict::End(blocker) => Some(blocker),
            };
            let Some(state) = self.nodes.get_mut(&name) else {
                continue;
            };
            match (held, state.retry.take()) {
                (None, Some(retry)) => {
                    *state = *retry;
                    self.locks.lock(self.plan, &name);
                }
                (Some(blocker), _) => {
                    state.decision = Some(format!("it is tried again once it may start: {blocker}"));
                }
                (None, None) => {}
            }
        }
    }

    /// Starts nodes that a gate is for, and returns why the others of them wait.
    fn start(&mut self, gate: &Gate, wave: Option<&WaveProgress>) -> Option<Blocker> {
        let (cluster, plan, now) = (self.cluster, self.plan, self.now);
        // Its answers count for the soak, whatever else keeps nodes from starting.
        let counts_checks = !gate.lifts(StartLimit::Checks);
        self.picture.asks_checks |= counts_checks && wave.is_some_and(WaveProgress::is_soaking);
        // What comes before the first node does so once that node could start.
        let before = gate.shut.as_ref().filter(|shut| shut.is_hook_due());
        let shut = gate.shut.clone().filter(|_| before.is_none());
        let shut = shut.or_else(|| wave_gate(plan, gate, wave));
        let reach = wave.map_or(OpenWaves::ALL, |wave| wave.reach);
        if let Some(shut) = shut {
            if gate.nodes.is_empty() {
                self.note_next_for_window(reach, &shut);
            }
            return Some(shut);
        }
        let mut left = wave.map_or(i64::MAX, |wave| wave.room);
        // Failed nodes count as well, unless `spec.failure` frees their slots: each of them keeps its slot until someone
        // has looked at it (S61).
        let mut free = free_slots(plan, self.nodes);
        let is_candidate = |name: &&NodeName| gate.is_for(name) && !self.nodes.contains_key(*name);
        let has_candidate = || plan.targets.ready_in(reach).any(|name| is_candidate(&name));
        if counts_checks && free > 0 && left > 0 && has_candidate() {
            self.picture.asks_checks = true;
            let blocker = plan.checks.blocker(now);
            if blocker.is_some() {
                if gate.nodes.is_empty() {
                    self.note_next(reach);
                }
                return blocker;
            }
        }
        let group = CurrentGroup::of(plan, reach, self.nodes);
        let availability = Availability::of(plan, self.nodes, self.locks);
        let counts_unavailable = availability.is_some() || self.locks.cluster_limits.counts_unavailable();
        let mut queue = Queue::of(plan, &group, reach, counts_unavailable);
        let mut limits = Limits::of_start(cluster, plan, self.nodes, group, availability);
        let mut held = None;
        while free > 0 && left > 0 {
            let Some(name) = queue.next(held.is_some()) else {
                break;
            };
            // The order has all eligible nodes, also those that have started.
            let is_candidate = |name: &NodeName| gate.is_for(name) && !self.nodes.contains_key(name);
            let Some(node) = cluster.world.nodes.get(name).filter(|_| is_candidate(name)) else {
                continue;
            };
            match limits.admit(&mut self.turn(node, free)) {
                Verdict::Go => {
                    if let Some(before) = before {
                        self.picture.starts_hook = Some(Hook::Before);
                        if gate.nodes.is_empty() {
                            self.note_next(reach);
                        }
                        return Some(before.clone());
                    }
                }
                Verdict::Skip(blocker) => {
                    self.picture.nodes.insert(name.clone(), blocker);
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
            let starting = NodeState::starting(plan.spec(), plan.next_attempt(node), node, now);
            self.nodes.insert(name.clone(), starting);
            // Plans that are decided later in the same pass must see this start, although nothing is written yet.
            self.locks.lock(plan, name);
            limits.take(name);
            self.picture.waiting -= 1;
            free -= 1;
            left -= 1;
        }
        if free <= 0 && plan.spec().prepulls() && gate.nodes.is_empty() {
            self.picture.prepulls = self.next_of(queue.turns);
        }
        if gate.nodes.is_empty() {
            self.note_next(reach);
        }
        let waits = self.picture.waiting > 0;
        if free <= 0 {
            let limit = plan.limit();
            return waits.then_some(Blocker::NoSlot { limit });
        }
        if held.is_some() {
            return held;
        }
        if let Some(blocker) = wave.and_then(|wave| wave.blocker.as_ref()) {
            return waits.then(|| blocker.clone());
        }
        // All nodes that can start have started. The others have a blocker above, or are not Ready.
        let mut not_ready = plan.targets.not_ready();
        let waits = not_ready.any(|name| !self.nodes.contains_key(name));
        waits.then_some(Blocker::NodeNotReady)
    }

    /// Notes why nodes with a gate of their own wait, unless that is known.
    fn note_waiting(&mut self, gate: &Gate, blocker: Option<&Blocker>) {
        for name in &gate.nodes {
            let Some(TargetState::Eligible { ready, .. }) = self.plan.targets.state(name) else {
                continue;
            };
            // What holds all of them comes before what they wait for each other.
            let of_all = blocker.filter(|it| !matches!(it, Blocker::NodeNotReady));
            let of_all = of_all.filter(|it| *ready || !it.is_capacity());
            let why = of_all.or((!ready).then_some(&Blocker::NodeNotReady));
            if let Some(why) = why.filter(|_| !self.nodes.contains_key(name)) {
                let why = || why.clone();
                self.picture.nodes.entry(name.clone()).or_insert_with(why);
            }
        }
    }

    /// If all nodes are done: what comes last.
    fn finish(&mut self, gate: Option<Blocker>) {
        if !self.nodes.is_empty() {
            return;
        }
        let picture = &mut self.picture;
        let after = hooks::after(self.cluster, self.plan, self.now, &mut picture.requeue_at);
        let is_due = after.as_ref().is_some_and(Blocker::is_hook_due);
        let gate = gate.filter(|_| is_due);
        picture.starts_hook = (is_due && gate.is_none()).then_some(Hook::After);
        picture.after = gate.or(after);
    }
}

/// Why the wave lets no node start now.
fn wave_gate(plan: &DerivedPlan, gate: &Gate, wave: Option<&WaveProgress>) -> Option<Blocker> {
    let wave = wave?;
    let counts_checks = wave.is_soaking() && !gate.lifts(StartLimit::Checks);
    let failing = plan.checks.failing().filter(|_| counts_checks);
    failing.or_else(|| wave.gate().cloned())
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

fn free_slots(plan: &DerivedPlan, nodes: &PlanNodes) -> i64 {
    let taken = nodes.values().filter(|state| !state.frees_slot).count();
    plan.limit()
        .saturating_sub(i64::try_from(taken).unwrap_or(i64::MAX))
}

/// Number of eligible nodes that the Plan has not started.
fn waiting(plan: &DerivedPlan, nodes: &PlanNodes) -> usize {
    let begun = nodes.keys().filter(|name| plan.targets.is_eligible(name)).count();
    plan.targets.eligible().saturating_sub(begun)
}
