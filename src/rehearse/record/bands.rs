//! What concerns a whole Plan: its waves, what ran once for the roll-out, and what it waited for.

use jiff::Timestamp;
use serde::Deserialize as _;

use super::events::WaveSpan;
use super::read::{is_complete, text};
use super::{EventKind, HookRun, Recorder, Wait, hooks, live};
use crate::json::Value;
use crate::store::Change;
use crate::words::{MIN_WAIT, duration, pluralized};
use refit_api::{Hook, HookStatus, OpenEnum, Reason, WavePhase};
use refit_formats::page::{Band, BandKind};

/// Waits that the phases of waves show, or the Jobs of `before` and `after`.
const SHOWN_BY_OTHERS: [Reason; 5] = [
    Reason::BeforeRunning,
    Reason::AfterRunning,
    Reason::WaveInProgress,
    Reason::WaveSoaking,
    Reason::WaveNotApproved,
];

impl Recorder {
    /// The last wave of `status.wave`, if it is one of this roll-out.
    pub(super) fn observe_wave(&mut self, name_of_plan: &str, plan: &Value, now: Timestamp) {
        let status = &plan["status"];
        let wave = &status["wave"];
        let (name, phase) = (
            text(wave, "name"),
            OpenEnum::<WavePhase>::from(text(wave, "phase")),
        );
        if name.is_empty() || wave["hash"] != status["latestHash"] {
            return;
        }
        let since = self.began(wave, now);
        let Some(seen) = self.plans.get_mut(name_of_plan) else {
            return;
        };
        let due = text(wave, "until").parse().ok();
        if let Some(last) = seen.waves.last_mut() {
            if last.name == name && last.phase == phase && last.until.is_none() {
                last.due = due;
                return;
            }
            last.until.get_or_insert(since);
        }
        // The status of the last wave is never removed.
        if seen.complete || is_complete(plan) {
            return;
        }
        if self.is_live {
            live::make_room(&mut seen.waves);
        }
        seen.waves.push(WaveSpan {
            name: name.to_owned(),
            phase,
            since,
            until: None,
            due,
            started: seen.started(),
        });
    }

    /// The Jobs of `before` and `after` of a Plan, in the order of their starts.
    pub fn hook_runs(&self, plan: &str) -> &[HookRun] {
        self.plans.get(plan).map_or(&[], |seen| &seen.hooks)
    }

    pub(super) fn observe_hooks(&mut self, plan: &str, status: &Value, now: Timestamp) {
        for hook in Hook::ALL {
            let of = HookStatus::deserialize(&status[hook.as_str()]).ok();
            let seen = self.plans.get_mut(plan);
            let phase = seen.and_then(|seen| hooks::observe(&mut seen.hooks, hook, of.as_ref(), now));
            if let Some(phase) = phase {
                if self.is_live
                    && let Some(seen) = self.plans.get_mut(plan)
                {
                    live::make_room(&mut seen.hooks);
                }
                self.note_progress(plan, now);
                self.emit(now, plan, None, EventKind::Hook(hook, phase));
            }
        }
    }

    pub(super) fn close_wave(&mut self, plan: &str, now: Timestamp) {
        let last = self.plans.get_mut(plan).and_then(|seen| seen.waves.last_mut());
        if let Some(last) = last {
            last.until.get_or_insert(now);
        }
    }

    /// Waves that have soaked although none of their nodes had to be upgraded.
    pub fn soaks_without_nodes(&self, plan: &str) -> Vec<&str> {
        let waves = self.plans.get(plan).map(|seen| seen.waves.as_slice());
        let waves = waves.unwrap_or_default().iter();
        let mut before = 0;
        let mut empty = Vec::new();
        for soak in waves.filter(|wave| wave.phase == WavePhase::Soaking) {
            if soak.started == before && !empty.contains(&soak.name.as_str()) {
                empty.push(soak.name.as_str());
            }
            before = soak.started;
        }
        empty
    }

    /// The wave whose nodes were upgraded at a time.
    pub(super) fn wave_at(&self, plan: &str, at: Timestamp) -> Option<&str> {
        let mut waves = self.plans.get(plan)?.waves.iter();
        let wave = waves.rfind(|wave| wave.since <= at && wave.until.is_none_or(|until| at <= until))?;
        Some(&wave.name)
    }

    /// A node that works on Plans has another boot ID.
    pub(super) fn note_boot(&mut self, change: &Change) {
        let boot = |value: &Value| value["status"]["nodeInfo"]["bootID"].as_str().map(str::to_owned);
        let before = change.old.as_deref().and_then(|old| boot(&old.value));
        let after = boot(&change.new.value);
        if before.is_none() || after.is_none() || before == after {
            return;
        }
        let node = change.new.meta("name");
        let runs = self
            .plans
            .values_mut()
            .filter_map(|seen| seen.turns.get_mut(node));
        for run in runs.filter(|run| run.until.is_none()) {
            run.boots += 1;
        }
    }

    /// The waves of a Plan, or the time of its work, and its waits.
    pub fn bands(&self, plan: &str, end: Timestamp) -> Vec<Band> {
        let Some(seen) = self.plans.get(plan) else {
            return Vec::new();
        };
        let band = |kind, label: String, from: Timestamp, to: Option<Timestamp>| Band {
            plan: plan.to_owned(),
            kind,
            label,
            from: from.as_second(),
            to: to.map(Timestamp::as_second),
            message: None,
        };
        let mut bands: Vec<Band> = seen
            .waves
            .iter()
            .filter(|wave| wave.until != Some(wave.since))
            .map(|wave| {
                let (kind, label) = match wave.phase.known() {
                    Some(WavePhase::Soaking) => {
                        let long = wave.due.or(wave.until).unwrap_or(end).duration_since(wave.since);
                        (BandKind::Wait, format!("{} · soak {}", wave.name, duration(long)))
                    }
                    Some(WavePhase::AwaitingApproval) => {
                        (BandKind::Wait, format!("{} · approval", wave.name))
                    }
                    _ => (BandKind::Work, wave.name.clone()),
                };
                band(kind, label, wave.since, wave.until)
            })
            .collect();
        let runs = || self.node_runs(plan).map(|(_, run)| run);
        if bands.is_empty()
            && let Some(first) = runs().map(|run| run.since).min()
        {
            let ends = runs().map(|run| run.until.unwrap_or(end)).max();
            let is_over = runs().all(|run| run.until.is_some());
            let label = pluralized(runs().count(), "node");
            bands.push(band(BandKind::Work, label, first, ends.filter(|_| is_over)));
        }
        let hooks = seen.hooks.iter().map(|run| run.to_wait(plan));
        bands.extend(hooks.map(|wait| Band {
            message: Some(wait.message.clone()),
            ..band(BandKind::Wait, wait.blocker, wait.since, wait.until)
        }));
        let waits = self.waits().into_iter().filter(|wait| {
            let is_long = wait
                .until
                .is_none_or(|until| until.as_second() - wait.since.as_second() >= MIN_WAIT);
            let is_shown = wait
                .reason
                .known()
                .is_some_and(|reason| SHOWN_BY_OTHERS.contains(&reason));
            wait.plan == plan && wait.node.is_none() && is_long && !is_shown
        });
        bands.extend(waits.map(|wait| Band {
            message: Some(wait.message.clone()),
            ..band(BandKind::Wait, wait.awaited(), wait.since, wait.until)
        }));
        bands
    }
}

impl Wait {
    /// What it waits for, in a few words.
    pub(super) fn awaited(&self) -> String {
        if self.reason == self.blocker.as_str() {
            self.blocker.clone()
        } else {
            format!("waits for {}", self.blocker)
        }
    }
}
