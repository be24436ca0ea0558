//! Why no node of a Plan may start: what concerns the whole Plan. Nodes for which a person has lifted limits have a gate of
//! their own.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::{cluster_limits, schedule};
use crate::blocker::Blocker;
use crate::despite::{Despite, Lifted};
use crate::plan::DerivedPlan;
use crate::resolve::Resolution;
use crate::state::ClusterState;
use crate::step::Key;
use crate::{dependencies, failure, hooks, permissions, pruning};
use refit_api::exemption::StartLimit;
use refit_api::{DespiteStatus, names};
use refit_facts::NodeName;

/// The gates of a Plan.
#[derive(Debug, Default)]
pub(crate) struct Gates {
    pub(crate) of_all: Gate,
    /// Those of nodes for which other limits count than for all.
    pub(super) of_named: Vec<Gate>,
    /// What status says of the exemptions.
    pub(super) despite: Vec<DespiteStatus>,
}

/// Why nodes may not start.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    pub(crate) shut: Option<Blocker>,
    /// The limits that do not count.
    pub(crate) lifted: Lifted,
    /// The nodes that it is for; empty means all.
    pub(crate) nodes: BTreeSet<NodeName>,
}

impl Gates {
    pub(crate) fn of(
        cluster: &ClusterState,
        plan: &DerivedPlan,
        now: Timestamp,
        requeue_at: &mut Option<Timestamp>,
    ) -> Self {
        let despite = Despite::of(plan);
        let mut gate = |lifted: Lifted, nodes| Gate {
            shut: blocker(cluster, plan, &lifted, now, requeue_at),
            lifted,
            nodes,
        };
        Self {
            of_all: gate(despite.of_all, BTreeSet::new()),
            of_named: despite
                .of_named
                .into_iter()
                .map(|(lifted, nodes)| gate(lifted, nodes))
                .collect(),
            despite: despite.entries,
        }
    }

    /// Why this node may not start.
    pub(crate) fn of_node(&self, node: &str) -> Option<&Blocker> {
        let own = self.of_named.iter().find(|gate| gate.nodes.contains(node));
        own.unwrap_or(&self.of_all).shut.as_ref()
    }

    /// Whether a gate ends once an image is known to exist.
    pub(crate) fn await_existence(&self) -> bool {
        let mut gates = std::iter::once(&self.of_all).chain(&self.of_named);
        gates.any(|gate| gate.shut.as_ref().is_some_and(Blocker::is_about_existence))
    }
}

impl Gate {
    pub(crate) fn lifts(&self, limit: StartLimit) -> bool {
        self.lifted.contains(&limit)
    }

    pub(super) fn is_for(&self, node: &str) -> bool {
        self.nodes.is_empty() || self.nodes.contains(node)
    }
}

/// Why no node may start while only the limits count that are not lifted.
fn blocker(
    cluster: &ClusterState,
    plan: &DerivedPlan,
    lifted: &Lifted,
    now: Timestamp,
    requeue_at: &mut Option<Timestamp>,
) -> Option<Blocker> {
    let suspended = || {
        let by = plan.author(names::ANNOTATION_SUSPENDED);
        plan.is_suspended().then_some(Blocker::Suspended { by })
    };
    let Resolution::Resolved(resolved) = &plan.resolution else {
        // A suspended Plan does not ask its channel for its first version.
        let is_unasked = plan.resolution == Resolution::Pending && plan.resolved.is_none();
        return suspended()
            .filter(|_| is_unasked && plan.invalid.is_none())
            .or(Some(Blocker::NotReady));
    };
    // `unproven`: a Plan that was listed without refit's status may have lost fields to an old CRD. Starting it could
    // ignore a `suspend`.
    if plan.invalid.is_some() || plan.unproven {
        return Some(Blocker::NotReady);
    }
    if pruning::are_pruned(plan) {
        return Some(Blocker::SpecPruned);
    }
    if let Some(missing) = permissions::missing(cluster, plan) {
        return Some(missing);
    }
    if let Some(frozen) = cluster_limits::frozen(cluster) {
        return Some(frozen);
    }
    if plan.is_aborted() {
        let by = plan.author(names::ANNOTATION_ABORT);
        return Some(Blocker::Aborted { by });
    }
    if let Some(suspended) = suspended() {
        return Some(suspended);
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
        && let Some(blocker) = schedule::blocker(cluster, plan, lifted, now, requeue_at)
    {
        return Some(blocker);
    }
    if let Some(blocker) = failure::blocker(cluster, plan) {
        return Some(blocker);
    }
    plan.job_blocker(false)
        .or_else(|| image_blocker(cluster, plan))
        .or_else(|| hooks::gate(cluster, plan, now, requeue_at))
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
