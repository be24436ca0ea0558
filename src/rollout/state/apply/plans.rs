//! Plans, what was written about them, and what their channels and registries said.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::plan::DerivedPlan;
use crate::pruning;
use crate::state::ClusterState;
use crate::world::secrets::Secrets;
use refit_api::ChannelRef;
use refit_base::version::Offer;
use refit_base::version::policy::Offered;
use refit_facts::{ChannelFacts, PlanFacts, PlanName, Text};

pub(super) fn put(cluster: &mut ClusterState, version: u64, facts: PlanFacts) -> bool {
    if cluster.deleted_plans.contains(&facts.uid) {
        return false;
    }
    let name = facts.name.clone();
    let secrets = cluster.plans.get(&name).map(DerivedPlan::watched_secrets);
    let changed = update(cluster, name.clone(), version, facts);
    if changed {
        secrets_changed(cluster, &name, secrets);
    }
    changed
}

fn update(cluster: &mut ClusterState, name: PlanName, version: u64, facts: PlanFacts) -> bool {
    let is_listed = cluster.world.definition.distrusts_lists() && cluster.plan_listing.is_running();
    match cluster.plans.get_mut(&name) {
        Some(plan_state) if plan_state.version > version && version != 0 => false,
        // Of two readings of one version, the one with fewer fields was pruned.
        Some(plan_state)
            if plan_state.version == version
                && version != 0
                && !pruning::is_richer(&facts, &plan_state.facts) =>
        {
            plan_state.note_read(is_listed);
            false
        }
        Some(plan_state) => {
            plan_state.set_version(version);
            if *plan_state.facts == facts {
                plan_state.note_read(is_listed);
                return false;
            }
            plan_state.change(facts, &cluster.defaults);
            plan_state.note_read(is_listed);
            true
        }
        None => {
            let mut plan_state = DerivedPlan::new(version, facts, &cluster.defaults);
            plan_state.note_read(is_listed);
            cluster.plan_listing.mark(&name);
            cluster.plans.insert(name, plan_state);
            true
        }
    }
}

pub(super) fn remove(cluster: &mut ClusterState, name: &str, uid: &str) -> bool {
    if cluster.plans.get(name).is_none_or(|p| *p.facts.uid != *uid) {
        return false;
    }
    if let Some(plan) = cluster.plans.remove(name) {
        secrets_changed(cluster, &plan.facts.name, Some(plan.watched_secrets()));
        cluster.deleted_plans.insert(plan.facts.uid.clone());
        // A request in flight cannot be recalled. Other Jobs need no lookup: the garbage collector deletes them
        // with the Plan.
        cluster
            .memory
            .pending_creates
            .retain(|(plan, _), pending_create| pending_create.in_flight || **plan != *name);
    }
    true
}

pub(super) fn status_written(cluster: &mut ClusterState, plan: &str, at: Timestamp) {
    // If the response lacked fields, `StepEffect::StatusPruned` follows.
    cluster.world.definition.not_pruned();
    if let Some(plan_state) = cluster.plans.get_mut(plan) {
        plan_state.written = Some(at);
        plan_state.sent = None;
        // From now on status says why nothing happens; should it be written no more, an event has to say so again.
        plan_state.event_sent = None;
    }
}

/// Applies the result of a poll: the offer, or an error.
pub(super) fn channel(
    cluster: &mut ClusterState,
    channel: &ChannelRef,
    polled: Timestamp,
    answer: Result<Offer, String>,
    asked_by: &BTreeMap<PlanName, String>,
) {
    let known = cluster.world.channels.get(channel);
    let facts = match answer {
        Ok(offer) => {
            let offer = Offered::from(&offer);
            // While the offer is the same, Plans need not choose again.
            let known = known.and_then(|known| known.offer.clone());
            let known = known.filter(|known| **known == offer);
            ChannelFacts {
                polled,
                failures: 0,
                offer: known.or_else(|| Some(Arc::new(offer))),
                error: None,
            }
        }
        Err(error) => ChannelFacts {
            polled,
            failures: known.map_or(0, |k| k.failures).saturating_add(1),
            offer: known.and_then(|k| k.offer.clone()),
            error: Some(error),
        },
    };
    cluster.world.channels.insert(channel.clone(), facts);
    for (plan, value) in asked_by {
        if let Some(plan_state) = cluster.plans.get_mut(plan) {
            plan_state.polled_for = Some(value.clone());
        }
    }
    let asked: BTreeSet<_> = cluster
        .plans
        .values()
        .filter_map(|plan| plan.channel.as_ref())
        .collect();
    cluster
        .world
        .channels
        .retain(|channel, _| asked.contains(channel));
}

/// A Plan has changed, and had these Secrets in its hash before.
fn secrets_changed(cluster: &mut ClusterState, plan: &PlanName, before: Option<Arc<BTreeSet<Text>>>) {
    let now = cluster.plans.get(plan).map(DerivedPlan::watched_secrets);
    let (before, now) = (before.unwrap_or_default(), now.unwrap_or_default());
    cluster.world.secrets.plan_changed(plan, &before, &now);
}

/// Changes what is known of a Secret. Returns whether it has changed.
pub(super) fn secret(
    cluster: &mut ClusterState,
    name: &str,
    change: impl FnOnce(&mut Secrets) -> bool,
) -> bool {
    let changed = change(&mut cluster.world.secrets);
    if changed {
        for plan in cluster.world.secrets.plans(name) {
            if let Some(plan) = cluster.plans.get_mut(plan) {
                plan.secrets.forget_hashes();
            }
        }
    }
    changed
}
