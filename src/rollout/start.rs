//! Which nodes start now: the next in the order, if a slot is free, the gate is open, and no other disruptive Plan
//! works on the node.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::blocker::Blocker;
use super::decide::Report;
use super::facts::{JobOutcome, NodeFacts, NodeName, PlanName, Text};
use super::fields;
use super::node::{NodeState, Start};
use super::plan::PlanState;
use super::resolve::Resolution;
use super::state::ClusterState;
use super::status::SlotRoom;
use super::step::Key;
use super::targets::TargetState;
use crate::version::Version;

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
    if plan.invalid.is_some() || plan.unproven {
        return Some(Blocker::NotReady);
    }
    if fields::are_pruned(&plan.facts) {
        return Some(Blocker::SpecPruned);
    }
    if let Some(what) = cluster.missing_permission(plan) {
        return Some(Blocker::MissingPermission { what });
    }
    if plan.is_suspended() {
        return Some(Blocker::Suspended);
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
    if let Some(window) = plan.window.as_ref().filter(|_| plan.targets.eligible() > 0) {
        let open = window.contains(now);
        let turn = if open {
            window.closes(now)
        } else {
            window.next_open(now)
        };
        if let Some(at) = turn {
            *requeue_at = Some(requeue_at.map_or(at, |known| known.min(at)));
        }
        if !open {
            return Some(Blocker::WindowClosed { opens: turn });
        }
    }
    plan.job_blocker(false).or_else(|| digest_blocker(cluster, plan))
}

/// Blocks Plans with `pinDigest` while the registry has not resolved a tag.
fn digest_blocker(cluster: &ClusterState, plan: &PlanState) -> Option<Blocker> {
    let image = plan.digests.unknown().next()?;
    let key = Key::Digest(plan.facts.name.clone(), image.clone());
    let why = cluster
        .failures_by_step
        .get(&key)
        .map(|failure| failure.message.clone());
    Some(Blocker::DigestUnknown {
        image: image.clone(),
        why: why.unwrap_or_default(),
    })
}

/// The limit of `maxMinorSkip` between a node's kubelet and the Plan's version.
struct MinorSkips<'a> {
    version: &'a Text,
    parsed: Option<Version>,
    limit: u64,
    /// Results by kubelet version: many nodes share few versions.
    known: BTreeMap<&'a str, Option<Blocker>>,
}

impl<'a> MinorSkips<'a> {
    fn of(plan: &'a PlanState) -> Option<Self> {
        let limit = plan.spec().max_minor_skip()?;
        let version = &plan.resolved.as_ref()?.version;
        Some(Self {
            version,
            parsed: version.parse().ok(),
            limit,
            known: BTreeMap::new(),
        })
    }

    fn blocker(&mut self, node: &'a NodeFacts) -> Option<Blocker> {
        let (version, parsed, limit) = (self.version, self.parsed.as_ref(), self.limit);
        let look = || {
            let skip = parsed.and_then(|version| version.minors_from(&node.kubelet.parse().ok()?));
            skip.is_none_or(|skip| skip > limit).then(|| Blocker::MinorSkip {
                kubelet: node.kubelet.clone(),
                version: version.clone(),
                skip,
                limit,
            })
        };
        self.known.entry(&node.kubelet).or_insert_with(look).clone()
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
        let worked_on = locks.locked_by.keys().filter(is_selected).chain(nodes.keys());
        let unavailable = plan.targets.unavailable().iter().chain(worked_on);
        Some(Self {
            limit,
            unavailable: unavailable.cloned().collect(),
        })
    }

    /// Whether a node may start: one that is unavailable anyway always may.
    fn admits(&self, node: &NodeName) -> bool {
        let unavailable = i64::try_from(self.unavailable.len()).unwrap_or(i64::MAX);
        unavailable < self.limit || self.unavailable.contains(node)
    }

    /// Why no other node may start.
    fn blocker(self, nodes: &BTreeMap<NodeName, NodeState>) -> Blocker {
        let limit = self.limit;
        let others = self.unavailable.into_iter();
        let nodes: Vec<_> = others.filter(|name| !nodes.contains_key(name)).collect();
        if nodes.is_empty() {
            Blocker::NoSlot { limit }
        } else {
            Blocker::MaxUnavailable { limit, nodes }
        }
    }
}

/// The disruptive Plan that works on each node.
pub(super) struct DisruptionLocks<'a> {
    cluster: &'a ClusterState,
    locked_by: BTreeMap<NodeName, PlanName>,
}

impl<'a> DisruptionLocks<'a> {
    /// Locks nodes on which work has begun. Nodes that still have to begin come after them.
    pub(super) fn new(cluster: &'a ClusterState, node_states: &NodeStates) -> Self {
        let pending_create = cluster
            .pending_creates
            .iter()
            .filter(|(_, pending_create)| pending_create.disruptive);
        let mut locked_by: BTreeMap<_, _> = pending_create
            .map(|((plan, node), _)| (node.clone(), plan.clone()))
            .collect();
        for (plan, nodes) in node_states {
            if !cluster.plans.get(plan).is_some_and(|p| p.disruptive) {
                continue;
            }
            for (node, _) in nodes
                .iter()
                .filter(|(_, state)| !state.failed && state.start.is_none())
            {
                locked_by.entry(node.clone()).or_insert_with(|| plan.clone());
            }
        }
        Self { cluster, locked_by }
    }

    /// Starts nodes that already have a slot, unless another disruptive Plan works on them.
    pub(super) fn begin_held_slots(&mut self, node_states: &mut NodeStates) {
        for (name, nodes) in node_states {
            let Some(plan) = self.cluster.plans.get(name) else {
                continue;
            };
            for (node, state) in nodes.iter_mut().filter(|(_, state)| state.start.is_some()) {
                if let Some(blocker) = self.blocker(plan, node) {
                    state.set_blocker(&blocker);
                    continue;
                }
                self.lock(plan, node);
                if let Some(Start::Now(step)) = state.start.take() {
                    state.steps.push(step);
                }
            }
        }
    }

    fn lock(&mut self, plan: &PlanState, node: &NodeName) {
        if plan.disruptive {
            self.locked_by.insert(node.clone(), plan.facts.name.clone());
        }
    }

    /// Why a Plan may not start on a node.
    fn blocker(&self, plan: &PlanState, node: &NodeName) -> Option<Blocker> {
        let name = &plan.facts.name;
        if plan.disruptive
            && let Some(other) = self.locked_by.get(node).filter(|other| *other != name)
        {
            return Some(Blocker::NodeBusy {
                plan: other.to_string(),
            });
        }
        let by_job = self.cluster.jobs_on(node).find_map(|job| {
            if job.plan != *name {
                let blocks = plan.disruptive && job.disruptive && job.parallelism > 0 && job.is_live();
                return blocks.then(|| Blocker::NodeBusy {
                    plan: job.plan.to_string(),
                });
            }
            // While status names the node, the result of a successful Job without `refit.rs/recorded` is yet to be
            // recorded.
            let is_unmarked = matches!(job.outcome, JobOutcome::Complete { .. })
                && !job.recorded
                && plan.resolved.as_ref().is_some_and(|it| it.hash == job.hash);
            let leaving = job.deleting || job.plan_uid != plan.facts.uid || is_unmarked;
            leaving.then(|| Blocker::JobLeaving {
                job: job.name.to_string(),
            })
        });
        by_job.or_else(|| {
            let of_before =
                |pod: &&super::PodFacts| !self.cluster.jobs_on(node).any(|job| job.uid == pod.job_uid);
            let mut pods = self.cluster.live_pods_on(node).filter(of_before);
            let pod = pods.find(|pod| plan.disruptive || pod.plan == *name)?;
            Some(Blocker::PodLeaving {
                pod: pod.name.to_string(),
            })
        })
    }
}

/// Gives free slots to the next nodes, and sets blockers for the others. Their Jobs are created once the stored status
/// names them.
pub(super) fn start(
    cluster: &ClusterState,
    plan: &PlanState,
    gate: Option<Blocker>,
    nodes: &mut BTreeMap<NodeName, NodeState>,
    locks: &mut DisruptionLocks<'_>,
    now: Timestamp,
) -> Report {
    let mut report = Report {
        waiting: waiting(plan, nodes),
        ..Report::default()
    };
    let limit = plan.limit();
    if report.waiting == 0 {
        return report;
    }
    if gate.is_some() {
        report.blocker = gate;
        return report;
    }
    let mut skips = MinorSkips::of(plan);
    let mut free = limit.saturating_sub(i64::try_from(nodes.len()).unwrap_or(i64::MAX));
    let mut availability = Availability::of(plan, nodes, locks);
    let mut held = false;
    let mut room = SlotRoom::of(nodes);
    let mut full = false;
    // Nodes that cost no availability come first: they start though there is no room for others.
    let first = availability
        .iter()
        .flat_map(|_| plan.targets.unavailable_and_ready());
    let first: Vec<_> = first.collect();
    for name in first.into_iter().chain(plan.targets.ready()) {
        if free <= 0 {
            break;
        }
        if nodes.contains_key(name) {
            continue;
        }
        if availability
            .as_ref()
            .is_some_and(|availability| !availability.admits(name))
        {
            held = true;
            break;
        }
        let Some(node) = cluster.nodes.get(name) else {
            continue;
        };
        if let Some(unreadable) = cluster.unreadable_nodes.get(name) {
            let why = unreadable.why.clone();
            report.nodes.insert(name.clone(), Blocker::NodeUnreadable { why });
            continue;
        }
        if let Some(blocker) = locks.blocker(plan, name) {
            report.nodes.insert(name.clone(), blocker);
            continue;
        }
        if let Some(blocker) = skips.as_mut().and_then(|skips| skips.blocker(node)) {
            report.nodes.insert(name.clone(), blocker);
            continue;
        }
        let mut starting = NodeState::starting(node, now);
        starting.boot = plan.spec().may_reboot().then(|| node.boot_id.clone());
        if !room.take(name, &starting) {
            full = true;
            break;
        }
        nodes.insert(name.clone(), starting);
        locks.lock(plan, name);
        if let Some(availability) = &mut availability {
            availability.unavailable.insert(name.clone());
        }
        report.waiting -= 1;
        free -= 1;
    }
    report.blocker = if free <= 0 {
        (report.waiting > 0).then_some(Blocker::NoSlot { limit })
    } else if full {
        Some(Blocker::StatusFull { slots: nodes.len() })
    } else if let Some(availability) = availability.filter(|_| held) {
        Some(availability.blocker(nodes))
    } else {
        // All nodes that can start have started. The others have a blocker above, or are not Ready.
        plan.targets
            .not_ready()
            .any(|name| !nodes.contains_key(name))
            .then_some(Blocker::NodeNotReady)
    };
    report
}

/// Number of eligible nodes that the Plan has not started.
fn waiting(plan: &PlanState, nodes: &BTreeMap<NodeName, NodeState>) -> usize {
    let begun = nodes
        .keys()
        .filter(|name| matches!(plan.targets.state(name), Some(TargetState::Eligible { .. })))
        .count();
    plan.targets.eligible().saturating_sub(begun)
}
