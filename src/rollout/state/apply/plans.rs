//! Plans, what was written about them, and what their channels and registries said.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::fields;
use crate::plan::PlanState;
use crate::state::ClusterState;
use refit_api::ChannelRef;
use refit_base::version::Offer;
use refit_base::version::policy::Offered;
use refit_facts::{ChannelFacts, PlanFacts, PlanName};

impl ClusterState {
    pub(super) fn apply_plan(&mut self, version: u64, facts: PlanFacts) -> bool {
        if self.deleted_plans.contains(&facts.uid) {
            return false;
        }
        let name = facts.name.clone();
        let secrets = self.plans.get(&name).map(PlanState::watched_secrets);
        let changed = self.update_plan(name.clone(), version, facts);
        if changed {
            self.update_hashed_secrets(&name, secrets);
        }
        changed
    }

    fn update_plan(&mut self, name: PlanName, version: u64, facts: PlanFacts) -> bool {
        let is_listed = self.distrusts_lists && !self.plan_lists.is_multiple_of(2);
        match self.plans.get_mut(&name) {
            Some(plan_state) if plan_state.version > version && version != 0 => false,
            // Of two readings of one version, the one with fewer fields was pruned.
            Some(plan_state)
                if plan_state.version == version
                    && version != 0
                    && !fields::is_richer(&facts, &plan_state.facts) =>
            {
                plan_state.note_read(is_listed);
                false
            }
            Some(plan_state) => {
                plan_state.set_version(version);
                if plan_state.facts == facts {
                    plan_state.note_read(is_listed);
                    return false;
                }
                plan_state.change(facts, &self.defaults);
                plan_state.note_read(is_listed);
                true
            }
            None => {
                let mut plan_state = PlanState::new(version, facts, &self.defaults);
                plan_state.note_read(is_listed);
                self.plans.insert(name, plan_state);
                true
            }
        }
    }

    pub(super) fn remove_plan(&mut self, name: &str, uid: &str) -> bool {
        if self.plans.get(name).is_none_or(|p| *p.facts.uid != *uid) {
            return false;
        }
        if let Some(plan) = self.plans.remove(name) {
            self.update_hashed_secrets(&plan.facts.name, Some(plan.watched_secrets()));
            self.events_sent.remove(name);
            self.unstarted_slots.retain(|(plan, _)| **plan != *name);
            self.deleted_plans.insert(plan.facts.uid);
            // A request in flight cannot be recalled. Other Jobs need no lookup: the garbage collector deletes them
            // with the Plan.
            self.pending_creates
                .retain(|(plan, _), pending_create| pending_create.in_flight || **plan != *name);
        }
        true
    }

    pub(super) fn record_written_status(&mut self, plan: &str, at: Timestamp) {
        // If the response lacked fields, `StepEffect::StatusPruned` follows.
        self.pruned = None;
        if let Some(plan_state) = self.plans.get_mut(plan) {
            plan_state.written = Some(at);
            plan_state.sent = None;
        }
        // From now on status says why nothing happens; should it be written no more, an event has to say so again.
        self.events_sent.remove(plan);
    }

    /// Applies the result of a poll: the offer, or an error.
    pub(super) fn apply_channel_result(
        &mut self,
        channel: &ChannelRef,
        polled: Timestamp,
        answer: Result<Offer, String>,
        asked_by: &BTreeMap<PlanName, String>,
    ) {
        let known = self.channels.get(channel);
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
        self.channels.insert(channel.clone(), facts);
        for (plan, value) in asked_by {
            if let Some(plan_state) = self.plans.get_mut(plan) {
                plan_state.polled_for = Some(value.clone());
            }
        }
        let asked: BTreeSet<_> = self
            .plans
            .values()
            .filter_map(|plan| plan.channel.as_ref())
            .collect();
        self.channels.retain(|channel, _| asked.contains(channel));
    }
}
