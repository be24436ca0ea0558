//! Waves and zones: a wave follows the one before only after its soak and its approval, and zones follow each other.

use jiff::{SignedDuration, Timestamp};

use super::despite::is_exempt;
use super::{Checked, Invariants};
use refit_api::approval::WaveApproval;
use refit_api::exemption::StartLimit;
use refit_api::{PlanStatus, WavePhase, names};
use refit_facts::PlanFacts;

impl Invariants {
    /// Checks the wave in a status that a controller has written.
    pub(super) fn check_waves(&mut self, at: Timestamp, plan: &str, before: Option<&PlanStatus>) -> Checked {
        let facts = &self.plans[plan];
        let (uid, status) = (facts.uid.to_string(), facts.status());
        let waves = facts.object.spec.waves().unwrap_or_default();
        let stored = before;
        let before = before.and_then(|before| before.wave.as_ref());
        if let Some(wave) = status.wave.as_ref().filter(|_| !waves.is_empty()) {
            let before = before.filter(|before| before.hash == wave.hash);
            let index = |index: i64| usize::try_from(index).unwrap_or_default();
            let (from, to) = (before.map_or(0, |before| index(before.index)), index(wave.index));
            let since: Option<Timestamp> = before
                .filter(|before| before.phase == WavePhase::Soaking)
                .and_then(|before| before.since.as_deref()?.parse().ok());
            // The clock of the controller may have been set since.
            let begun = self.soaking.get(&uid).copied();
            let since = since.map(|since| begun.map_or(since, |begun| begun.min(since)));
            let approved = facts.annotation(names::ANNOTATION_APPROVE).unwrap_or_default();
            let was_waiting = before.is_some_and(|before| before.phase == WavePhase::AwaitingApproval);
            let busy = self.busy.get(&uid).copied();
            let has_soaked = |soak: SignedDuration| {
                since.is_some_and(|since| {
                    at.duration_since(since) >= soak
                        && busy.is_none_or(|busy| begun.is_some_and(|begun| busy <= begun))
                })
            };
            let empty = PlanStatus::default();
            let exempt = is_exempt(facts, stored.unwrap_or(&empty), StartLimit::Soak, None);
            // The wave that waits for approval has soaked, too.
            let soaked = to + usize::from(wave.phase == WavePhase::AwaitingApproval);
            for (index, passed) in waves.iter().enumerate().take(soaked).skip(from) {
                let is_old = index == from && was_waiting;
                invariant!(
                    is_old || exempt || passed.soak == SignedDuration::ZERO || has_soaked(passed.soak),
                    "{plan} ends wave {} without its soak: {before:?}, {wave:?}, last slot {busy:?}",
                    passed.name
                );
            }
            for passed in waves.iter().take(to).skip(from) {
                invariant!(
                    !passed.approval || WaveApproval::is_in(approved, &passed.name, &wave.hash),
                    "{plan} leaves wave {} at {} without approval: {approved:?}",
                    passed.name,
                    wave.hash
                );
            }
            self.waves += u64::from(to > from);
        }
        let is_soaking = |status: &PlanStatus| {
            let wave = status.wave.as_ref();
            let wave = wave.filter(|wave| wave.phase == WavePhase::Soaking)?;
            Some((wave.name.clone(), wave.hash.clone()))
        };
        let soaks = is_soaking(self.plans[plan].status());
        if soaks.is_some() && soaks != stored.and_then(is_soaking) {
            self.soaking.insert(uid.clone(), at);
        }
        if self.plans[plan].status().applying.is_some() {
            self.busy.insert(uid, at);
        }
        Ok(())
    }

    /// The zone of a node, if the Plan orders by one.
    pub(super) fn zone(&self, plan: &PlanFacts, node: &str) -> Option<String> {
        let order = plan.object.spec.order.as_ref()?;
        let key = order
            .iter()
            .find_map(|criterion| criterion.topology_key.as_deref())?;
        let facts = &self.nodes.get(node)?.facts;
        facts.labels.get(key).map(str::to_owned)
    }
}
