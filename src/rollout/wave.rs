//! The wave of a roll-out: which nodes may start, and what the next wave waits for.
//!
//! The stored status has the wave and since when its nodes have been upgraded, so a restart does not cut a soak short. It
//! is only believed as far as it delays: a lost status begins with the first wave again, and soaks again.

pub(super) mod progress;

use jiff::{SignedDuration, Timestamp};

use super::blocker::Blocker;
use super::node::state::PlanNodes;
use super::open_waves::OpenWaves;
use super::plan::DerivedPlan;
use super::start::gate::Gate;
use crate::later::later;
use progress::WaveProgress;
use refit_api::approval::WaveApproval;
use refit_api::exemption::StartLimit;
use refit_api::text::seconds;
use refit_api::{Wave, WaveNodes, WavePhase, WaveStatus, names};

/// A stored time that is more than this ahead of the clock is from before the clock was set back. Times are stored in
/// whole seconds, rounded up.
const ROUNDED: SignedDuration = SignedDuration::from_secs(1);

/// The wave of a Plan with the limits that count at a gate, unless the Plan has none or no version.
pub(super) fn progress(
    plan: &DerivedPlan,
    nodes: &PlanNodes,
    gate: &Gate,
    now: Timestamp,
) -> Option<WaveProgress> {
    let waves = &plan.selection.waves;
    let hash = &*plan.resolved.as_ref()?.hash;
    let stored = stored(plan, waves, hash);
    let (mut index, mut phase, mut since) = stored.unwrap_or((0, WavePhase::Progressing, now));
    if since > later(now, ROUNDED) {
        since = now;
    }
    let mut until = None;
    let last = waves.len().checked_sub(1)?;
    // A wave can be over at once, and so can the next one.
    while index < last {
        let wave = &waves[index];
        let unready = plan.targets.done_and_not_ready();
        match phase {
            WavePhase::Progressing if !is_over(plan, nodes, index) => break,
            WavePhase::Progressing => (phase, since) = (WavePhase::Soaking, now),
            // A failed node that is tried again belongs to the wave, and must soak, too.
            WavePhase::Soaking | WavePhase::AwaitingApproval if is_at_work(nodes) => {
                (phase, since) = (WavePhase::Progressing, now);
            }
            // An upgraded node was seen not Ready; the wave is not over before it is Ready again.
            WavePhase::Soaking if unready.is_some() => (phase, since) = (WavePhase::Progressing, now),
            WavePhase::Soaking if gate.lifts(StartLimit::Soak) => {
                (phase, since) = (WavePhase::AwaitingApproval, now);
            }
            WavePhase::Soaking => {
                let counts_checks = !gate.lifts(StartLimit::Checks);
                let interrupted = plan.last_unready.max(plan.checks.recovered());
                since = interrupted.map_or(since, |at| at.max(since));
                if counts_checks && plan.checks.failing().is_some() {
                    break;
                }
                let end = later(rounded_up(since), wave.soak);
                if !wave.soak.is_zero() && now < end {
                    until = Some(end);
                    break;
                }
                // A controller that has just started has not asked yet.
                if counts_checks && !wave.soak.is_zero() && !plan.checks.are_fresh(now) {
                    break;
                }
                (phase, since) = (WavePhase::AwaitingApproval, now);
            }
            WavePhase::AwaitingApproval => {
                let approved = plan
                    .facts
                    .annotation(names::ANNOTATION_APPROVE)
                    .unwrap_or_default();
                if wave.approval && !WaveApproval::is_in(approved, &wave.name, hash) {
                    break;
                }
                index += 1;
                (phase, since) = (WavePhase::Progressing, now);
            }
        }
    }
    let wave = &waves[index];
    let blocker = (index < last).then(|| blocker(plan, nodes, wave, phase, until, hash));
    let status = WaveStatus {
        index: i64::try_from(index).unwrap_or(i64::MAX),
        name: wave.name.clone(),
        hash: hash.to_owned(),
        phase: phase.into(),
        since: Some(seconds(rounded_up(since))),
        until: until.map(seconds),
        message: blocker.as_ref().map(ToString::to_string),
    };
    Some(WaveProgress {
        status,
        until,
        blocker,
        room: room(plan, nodes, wave),
        reach: reach(waves, index),
    })
}

/// The wave in the stored status, if it is one of this Plan at this hash. A wave is known by its name.
fn stored(plan: &DerivedPlan, waves: &[Wave], hash: &str) -> Option<(usize, WavePhase, Timestamp)> {
    let stored = plan
        .facts
        .status()
        .wave
        .as_ref()
        .filter(|stored| stored.hash == hash)?;
    let index = waves.iter().position(|wave| wave.name == stored.name)?;
    let since = stored.since.as_deref()?.parse().ok()?;
    Some((index, stored.phase.known()?, since))
}

/// The nodes that may start while this wave is the last one that has begun: those of the waves up to it, and if it takes a
/// number of nodes, those that no selector names.
fn reach(waves: &[Wave], index: usize) -> OpenWaves {
    match waves.get(index).map(|wave| &wave.nodes) {
        Some(WaveNodes::Selected(_)) => OpenWaves::up_to(index, false),
        Some(WaveNodes::UpTo(_)) => OpenWaves::up_to(index, true),
        Some(WaveNodes::Rest) | None => OpenWaves::ALL,
    }
}

/// Whether no node of the wave is left, and all upgraded nodes are Ready.
fn is_over(plan: &DerivedPlan, nodes: &PlanNodes, index: usize) -> bool {
    let waves = &plan.selection.waves;
    let is_full = matches!(waves[index].nodes, WaveNodes::UpTo(_)) && room(plan, nodes, &waves[index]) <= 0;
    let has_next = || plan.targets.next_in_order(reach(waves, index), nodes).is_some();
    !is_at_work(nodes) && (is_full || !has_next()) && plan.targets.done_and_not_ready().is_none()
}

/// Whether a node is in progress, or has failed and holds the roll-out.
fn is_at_work(nodes: &PlanNodes) -> bool {
    nodes.values().any(|state| !state.is_given_up())
}

/// How many more nodes the wave takes, besides those that are done, have a slot, or have failed.
fn room(plan: &DerivedPlan, nodes: &PlanNodes, wave: &Wave) -> i64 {
    let WaveNodes::UpTo(limit) = &wave.nodes else {
        return i64::MAX;
    };
    let selected = usize::try_from(plan.targets.selected()).unwrap_or_default();
    let started = nodes.keys().filter(|name| plan.targets.is_eligible(name)).count();
    let count = |nodes: usize| i64::try_from(nodes).unwrap_or(i64::MAX);
    count(limit.of(selected)) - plan.targets.done - count(started)
}

/// Why the nodes of later waves wait.
fn blocker(
    plan: &DerivedPlan,
    nodes: &PlanNodes,
    wave: &Wave,
    phase: WavePhase,
    until: Option<Timestamp>,
    hash: &str,
) -> Blocker {
    let name = wave.name.clone();
    match phase {
        WavePhase::Progressing => {
            let failed = nodes
                .iter()
                .find(|(_, state)| state.failed && !state.is_given_up());
            let failed = failed.map(|(node, _)| (node.clone(), "failed"));
            let unready = || {
                let unready = plan.targets.done_and_not_ready();
                unready.map(|node| (node.clone(), "is upgraded and not Ready"))
            };
            Blocker::WaveInProgress {
                wave: name,
                held_by: failed.or_else(unready),
            }
        }
        WavePhase::Soaking => Blocker::WaveSoaking { wave: name, until },
        WavePhase::AwaitingApproval => Blocker::WaveNotApproved {
            approval: WaveApproval::new(&name, hash).to_string(),
            wave: name,
        },
    }
}

/// Status stores whole seconds. A successor that read an earlier time would end the soak early.
fn rounded_up(at: Timestamp) -> Timestamp {
    match at.subsec_nanosecond() {
        0 => at,
        _ => Timestamp::from_second(at.as_second().saturating_add(1)).unwrap_or(at),
    }
}
