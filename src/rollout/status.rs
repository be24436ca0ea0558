//! What a Plan says of itself: conditions, counts, nodes and the events that go with a change. Starts, results and
//! conditions are written at once, or 30 ms after the status before; mere progress is written with them, or waits for two
//! seconds.

mod events;
mod history;
mod limits;
mod origin;

pub(super) use limits::SlotRoom;

use jiff::{SignedDuration, Timestamp};
use std::borrow::Cow;

use super::blocker::Blocker;
use super::conditions::{ConditionUpdate, conditions};
use super::decision::Decision;
use super::failure::with_decision;
use super::node::state::{NodeState, PlanNodes};
use super::obstacle::{self, unreadable};
use super::permissions;
use super::picture::PlanPicture;
use super::plan::DerivedPlan;
use super::resolve::{self, Resolution};
use super::state::ClusterState;
use super::step::{Key, Step};
use super::{differs, hooks, poll, pruning};
use refit_api::text::{MAX_MESSAGE, seconds, shorten};
use refit_api::{
    ChannelStatus, ConditionType, DespiteStatus, FirstSeen, Hook, HookPhase, NodePhase, NodeProgress,
    PlanStatus, Reason, WaveStatus, annotation, redacted,
};
use refit_base::go::GoDuration;
use refit_base::version::policy::{Held, Refusal};
use refit_base::version::tag::munge;
use refit_facts::NodeName;

/// Waiting nodes fill `status.active` up to this number of entries.
const MAX_ACTIVE: usize = 100;
/// How long mere progress may wait. A drain publishes its note every four seconds, and what it waits for is to be in status
/// within ten.
const PROGRESS_INTERVAL: SignedDuration = SignedDuration::from_secs(2);
/// Changes are collected for this time after each status write. A status that names a hundred nodes costs the API server as
/// much as ten writes of a node; without a pause, status writes would be most of its load in a large roll-out. A free
/// slot waits for half the pause on average, besides the label, the status and the Job.
const PAUSE: SignedDuration = SignedDuration::from_millis(30);

/// Computes the status of a Plan, and requests a write if it has changed.
pub(super) fn report(
    cluster: &ClusterState,
    plan: &DerivedPlan,
    picture: &PlanPicture,
    now: Timestamp,
    decision: &mut Decision,
) {
    // Secrets are read within a moment, in which the conditions would change to not resolved and back.
    if plan.resolution == Resolution::Reading && unreadable(cluster, plan).is_none() {
        return;
    }
    // A write in the future was made before the clock was set back, and would delay the next one until then.
    let written = plan.written.filter(|written| *written <= now);
    let due = |wait| written.and_then(|written| written.checked_add(wait).ok());
    // During the pause, the status is not computed.
    if let Some(due) = due(PAUSE).filter(|due| *due > now) {
        decision.requeue(due);
        return;
    }
    let stored = plan.facts.status();
    let mut status = status(cluster, plan, picture, now);
    let reported = status.obstacle.as_ref().and_then(obstacle::reported_at);
    decision.requeue(reported.filter(|at| *at > now));
    status.expected_end.clone_from(&stored.expected_end);
    limits::truncate_to_budget(&mut status, |entry| limits::is_recorded(cluster, plan, entry));
    if status == *stored {
        // Not while a status write is in flight: either write would make the other one stale.
        if let Err(note) = pruning::note(plan) {
            decision.steps.push(Step::NoteFields {
                plan: plan.facts.name.clone(),
                note,
            });
        }
        return;
    }
    // Time alone changes it, and time alone does not cause a write.
    let current = status.history.as_ref().and_then(|history| history.first());
    status.expected_end = history::expected_end(cluster, plan, picture, current, now);
    let is_progress = significant_fields(&status) == significant_fields(stored);
    if let Some(due) = due(PROGRESS_INTERVAL).filter(|due| is_progress && *due > now) {
        decision.requeue(due);
        return;
    }
    decision.steps.extend(refused_event(cluster, plan));
    let mut events = events::events(plan, stored, &status);
    // While the status could not be written, an event of its own may have said the same.
    events.retain(|event| {
        let sent = cluster.unwritten_plan_event(&plan.facts, event.reason, event.message.clone());
        !plan.has_sent(&sent)
    });
    let plan = plan.facts.name.clone();
    decision.steps.push(Step::WriteStatus {
        plan,
        status: Box::new(status),
        events,
        background: is_progress,
    });
}

/// The event that says that the status cannot be stored. No node starts meanwhile, and status cannot say why.
fn refused_event(cluster: &ClusterState, plan: &DerivedPlan) -> Option<Step> {
    if !permissions::are_granted(cluster, plan) {
        return None; // `MissingPermission` says what is missing
    }
    let failures = &cluster.memory.failures;
    let failure = failures.get(&Key::Plan(plan.facts.name.clone()))?;
    // A permission may have been granted again since, and the next attempt is some seconds away.
    if !failure.is_of_object {
        return None;
    }
    let text = format!(
        "the status cannot be stored, so no node starts: {}",
        shorten(&failure.message, MAX_MESSAGE / 2)
    );
    event_once(cluster, plan, Reason::StatusRefused, text)
}

/// Writes an event about why the Plan is not written, once for each edition of the definition.
pub(super) fn event_once(
    cluster: &ClusterState,
    plan: &DerivedPlan,
    reason: Reason,
    text: String,
) -> Option<Step> {
    let event = cluster.unwritten_plan_event(&plan.facts, reason, text);
    (!plan.has_sent(&event)).then(|| Step::WriteEvents {
        plan: plan.facts.name.clone(),
        events: vec![event],
    })
}

fn status(cluster: &ClusterState, plan: &DerivedPlan, picture: &PlanPicture, now: Timestamp) -> PlanStatus {
    let stored = plan.facts.status();
    let resolved = plan.resolution.resolved();
    let applying = picture.slots.values().filter(|s| !s.frees_slot);
    let applying: Vec<String> = applying.map(|s| s.hostname.clone()).collect();
    let counts = picture.counts;
    let next_window = picture
        .blocker
        .as_ref()
        .and_then(Blocker::next_window)
        .map(seconds);
    let (conditions, obstacle) = conditions(cluster, plan, picture, now);
    let mut status = PlanStatus {
        message: obstacle::summary(obstacle.as_ref(), &conditions),
        conditions,
        obstacle,
        latest_version: resolved
            .map(|r| r.version.to_string())
            .or_else(|| stored.latest_version.clone()),
        latest_hash: resolved
            .map(|r| r.hash.to_string())
            .or_else(|| stored.latest_hash.clone()),
        applying: (!applying.is_empty()).then_some(applying),
        observed_generation: Some(plan.facts.generation()),
        nodes: Some(counts),
        progress: Some(format!("{}/{}", counts.done, counts.selected)),
        active: Some(active(cluster, plan, picture)),
        active_omitted: None,
        version_differs: differs::status(plan, &picture.differs),
        wave: wave(plan, picture),
        checks: plan.checks.status(stored),
        channel: channel(cluster, plan, now),
        pinned: resolved.and_then(|r| plan.digests.status(&r.hash)),
        repeat: picture.repeat.clone(),
        next_window,
        longest_run: longest_run(cluster, plan, &picture.slots),
        expected_end: None,
        history: None,
        origin: origin::origin(&plan.facts),
        before: hooks::status(cluster, plan, Hook::Before, now).map(Box::new),
        after: hooks::status(cluster, plan, Hook::After, now).map(Box::new),
        despite: None,
    };
    degrade(plan, &mut status, now);
    let complete = status.is_true(ConditionType::Complete);
    status.despite = despite(picture, complete && picture.slots.is_empty(), now);
    status.history = history::history(cluster, plan, &picture.slots, &status, complete, now);
    status
}

/// A hook that failed for good degrades the Plan.
fn degrade(plan: &DerivedPlan, status: &mut PlanStatus, now: Timestamp) {
    let Some(failed) = hooks::failed(plan, status) else {
        return;
    };
    let degraded = ConditionUpdate::new(ConditionType::Degraded, failed.reason(), failed.to_string());
    let degraded = degraded.into_condition(plan.facts.status(), now);
    status.conditions.retain(|it| it.type_ != ConditionType::Degraded);
    status.conditions.push(degraded);
}

/// The exemptions, which end with the roll-out.
fn despite(picture: &PlanPicture, is_over: bool, now: Timestamp) -> Option<Vec<DespiteStatus>> {
    let mut all = picture.despite.clone();
    for it in all.iter_mut().filter(|it| is_over && it.is_in_effect()) {
        it.ended = Some(seconds(now));
    }
    (!all.is_empty()).then_some(all)
}

/// The longest time that a node has taken, rounded up, where the end of a window or a blackout needs it.
///
/// `history` has a similar figure, but counts a node when its label is stored. By then the slot is free, and a Plan
/// that did not know the figure yet would report `WindowTooShort` for a moment. So this one is stored with the success,
/// before the label.
fn longest_run(cluster: &ClusterState, plan: &DerivedPlan, nodes: &PlanNodes) -> Option<String> {
    let has_blackouts = !plan.parsed.blackouts.is_empty() || !cluster.world.limits.blackouts().is_empty();
    if plan.spec().windows.is_none() && !has_blackouts {
        return None;
    }
    let seen = nodes.values().filter_map(|state| state.took);
    let longest = seen.chain(plan.longest_run()).max()?;
    let seconds = longest.as_secs() + i64::from(longest.subsec_nanos() > 0);
    Some(GoDuration::from_nanos(seconds.saturating_mul(1_000_000_000)).to_string())
}

/// The wave. While the Plan has no version, the stored one stays, so that its soak need not begin again.
fn wave(plan: &DerivedPlan, picture: &PlanPicture) -> Option<WaveStatus> {
    if plan.selection.waves.is_empty() {
        return None;
    }
    let wave = picture.wave.as_ref().map(|wave| wave.status.clone());
    wave.or_else(|| plan.facts.status().wave.clone())
}

fn active(cluster: &ClusterState, plan: &DerivedPlan, picture: &PlanPicture) -> Vec<NodeProgress> {
    let entry = |(name, s): (&NodeName, &NodeState)| NodeProgress {
        name: name.to_string(),
        uid: Some(s.uid.to_string()),
        phase: s.phase.into(),
        since: s.since.map(seconds),
        job: s.job.as_deref().map(str::to_owned),
        attempt: s.attempt,
        boot_id: s.boot.as_deref().map(str::to_owned),
        reason: s.reason.clone(),
        message: s
            .message
            .as_deref()
            .map(|message| with_decision(message, s.decision.as_deref())),
        about: s.about.clone(),
    };
    let slots = &picture.slots;
    let mut out: Vec<_> = slots.iter().map(entry).collect();
    let room = MAX_ACTIVE.saturating_sub(out.len());
    let waiting = plan.targets.ready().map(|name| (name, true));
    let waiting = waiting.chain(plan.targets.not_ready().map(|name| (name, false)));
    let waiting = waiting.filter(|(name, _)| !slots.contains_key(*name)).take(room);
    out.extend(waiting.map(|(name, is_ready)| {
        let blocker = picture.why(name, is_ready);
        NodeProgress {
            name: name.to_string(),
            phase: NodePhase::Waiting.into(),
            reason: blocker.map(|b| b.reason().into()),
            message: blocker.map(|blocker| format!("{blocker:#}")),
            about: blocker.map(Blocker::about).unwrap_or_default(),
            ..NodeProgress::default()
        }
    }));
    debug_assert!(
        out.len() >= MAX_ACTIVE || picture.counts_waiting_as(&out, plan.targets.not_ready()),
        "metrics count other waits than status lists: {out:?}"
    );
    let room = MAX_ACTIVE.saturating_sub(out.len());
    let skipped = plan.targets.skipped.iter();
    let skipped = skipped.filter(|name| !slots.contains_key(*name)).take(room);
    out.extend(skipped.filter_map(|name| skipped_entry(cluster, plan, name)));
    out
}

/// The entry of a node that a user excludes.
fn skipped_entry(cluster: &ClusterState, plan: &DerivedPlan, name: &NodeName) -> Option<NodeProgress> {
    let version = plan.resolved.as_ref().map(|resolved| &*resolved.version);
    let node = cluster.world.nodes.get(name)?;
    let mut entries = node.skip.as_deref().into_iter().flat_map(annotation::entries);
    let entry = entries.find(|entry| entry.concerns(&plan.facts.name, version))?;
    let blocker = Blocker::Skipped {
        version: version.unwrap_or("every version").to_owned(),
        by: entry.author().map(Cow::into_owned),
    };
    Some(NodeProgress {
        name: name.to_string(),
        phase: NodePhase::Waiting.into(),
        reason: Some(blocker.reason().into()),
        message: Some(blocker.to_string()),
        ..NodeProgress::default()
    })
}

fn channel(cluster: &ClusterState, plan: &DerivedPlan, now: Timestamp) -> Option<ChannelStatus> {
    let channel = plan.channel.as_ref()?;
    let asked = poll::asked(cluster, plan, channel, now).map(seconds);
    let identity = ChannelStatus {
        url: Some(redacted(&channel.url).into_owned()),
        secrets: resolve::secrets_of(channel),
        asked,
        ..ChannelStatus::default()
    };
    let Some(known) = resolve::channel(&plan.facts, channel, &cluster.world.channels) else {
        return identity.asked.is_some().then_some(identity);
    };
    let stored_channel = resolve::stored_channel(&plan.facts, channel);
    let next_poll = resolve::next_poll(&channel.url, Some(&known), cluster.defaults.polling_interval);
    let refused = plan.resolution.resolved().and_then(|r| r.refused.clone());
    // Keeps the stored status of a channel that this process has not polled yet.
    let kept = stored_channel.filter(|_| plan.choice().is_none()).cloned();
    let ChannelStatus {
        url, secrets, asked, ..
    } = identity;
    let mut status = ChannelStatus {
        url,
        secrets,
        asked,
        last_polled: Some(known.polled.to_string()),
        next_poll: next_poll.filter(|_| !plan.is_suspended()).map(seconds),
        polled_for: plan
            .polled_for
            .clone()
            .or_else(|| stored_channel.and_then(|stored_channel| stored_channel.polled_for.clone())),
        last_error: known.error.or(refused),
        ..kept.unwrap_or_default()
    };
    let Some(choice) = plan.choice() else {
        return Some(status);
    };
    status.withdrawn.clone_from(&choice.withdrawn);
    if let Some(held) = choice.held.as_ref().filter(|held| is_candidate(held)) {
        let due = match &held.refusal {
            Refusal::TooYoung { due, .. } => Some(seconds(*due)),
            _ => None,
        };
        status.candidate = Some(held.version.clone());
        status.since = Some(seconds(held.since));
        status.due = due;
        status.reason = Some(Reason::from(&held.refusal).into());
        status.message = Some(held.message.clone());
    }
    let seen = choice.seen.iter().map(|(version, since)| FirstSeen {
        version: version.clone(),
        since: seconds(*since),
    });
    let of_candidate = status.candidate.as_deref().map(munge);
    let seen: Vec<_> = seen
        .filter(|seen| of_candidate.as_ref() != Some(&seen.version))
        .collect();
    status.seen = (!seen.is_empty()).then_some(seen);
    Some(status)
}

/// Whether it is a version at least. Anything else is reported as an error.
fn is_candidate(held: &Held) -> bool {
    !matches!(held.refusal, Refusal::Accident(_))
}

/// The significant part of a status, to be compared. Everything else is mere progress.
fn significant_fields(status: &PlanStatus) -> impl PartialEq {
    let conditions = status.conditions.iter().map(|c| {
        (
            c.type_.as_str(),
            c.status.as_str(),
            c.reason.as_deref(),
            c.message.as_deref(),
        )
    });
    let failed = status.active.iter().flatten().filter(|node| node.is_failed());
    let channel = status.channel.as_ref().map(|channel| {
        [
            channel.last_error.as_deref(),
            channel.candidate.as_deref(),
            channel.reason.as_deref(),
            channel.withdrawn.as_deref(),
            channel.polled_for.as_deref(),
            channel.asked.as_deref(),
        ]
    });
    let wave = status.wave.as_ref();
    let checks = status.checks.iter().flatten();
    let hooks = Hook::ALL.iter().filter_map(|hook| hook.status(status));
    let hooks = hooks.map(|stored| {
        // What its pod waits for while it runs is progress.
        let is_progress = stored.phase == HookPhase::Running;
        let message = stored.message.as_deref().filter(|_| !is_progress);
        (stored.job.as_str(), &stored.phase, message)
    });
    (
        [
            status.latest_version.as_deref(),
            status.latest_hash.as_deref(),
            status.next_window.as_deref(),
            status.longest_run.as_deref(),
        ],
        conditions.collect::<Vec<_>>(),
        status.applying.as_deref(),
        status.observed_generation,
        failed.map(|node| node.name.as_str()).collect::<Vec<_>>(),
        channel,
        status.pinned.as_ref(),
        status.repeat.as_ref(),
        wave.map(|wave| (wave.name.as_str(), &wave.phase, wave.since.as_deref())),
        checks
            .map(|check| (check.name.as_str(), &check.phase))
            .collect::<Vec<_>>(),
        hooks.collect::<Vec<_>>(),
        status.despite.as_deref(),
    )
}
