//! What a Plan says of itself: conditions, counts, nodes and the events that go with a change. Starts, results and
//! conditions are written at once, or soon where many nodes have slots; what is mere progress rides along or waits a second.

mod events;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::blocker::Blocker;
use super::conditions::{conditions, seconds, unreadable};
use super::decide::{Decision, Report};
use super::facts::Text;
use super::fields;
use super::next;
use super::node::Standing;
use super::plan::PlanView;
use super::resolve::{self, Resolution};
use super::step::Step;
use super::world::World;
use crate::api::{ChannelStatus, FirstSeen, NodeCounts, NodeProgress, PinnedStatus, PlanStatus};
use crate::channel::version::munge;
use crate::version::policy::{Held, Refusal};

/// Phase of a node that has not been started.
pub(super) const WAITING: &str = "Waiting";
/// How many nodes `status.active` shows at least, if there are as many: those that wait fill it up to here.
const ACTIVE_SHOWN: usize = 100;
/// How long mere progress may wait.
const PROGRESS_PAUSE: SignedDuration = SignedDuration::from_secs(1);
/// With no more slots than these, news are written at once.
pub(super) const FEW_SLOTS: usize = 5;
/// With more, what is news within a while is written together: what a status costs the API server grows with the nodes in
/// it, and one with a hundred costs as much as several writes of a node. The while is so many times what the last one took,
/// so that a server that has time tells soon, and one that has none is spared.
const PATIENCE: i32 = 8;
/// The same where a node waits for the status to name it, before it can begin.
const IMPATIENCE: i32 = 2;
/// At least.
const SHORTEST_PAUSE: SignedDuration = SignedDuration::from_millis(30);
/// At most.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_millis(500);
/// Works out the status of a Plan and asks for it to be written where it is news.
pub(super) fn report(
    world: &World,
    plan: &PlanView,
    nodes: &BTreeMap<Text, Standing>,
    report: &Report,
    now: Timestamp,
    decision: &mut Decision,
) {
    if matches!(plan.resolution, Resolution::Reading(_)) && unreadable(world, plan).is_none() {
        return;
    }
    // Where news have to wait, it is not asked what they are.
    let awaited = nodes.values().any(|standing| standing.next.is_some());
    let written = plan.written.filter(|written| written.at <= now);
    let due = |rest| written.and_then(|written| written.at.checked_add(rest).ok());
    let news_due = written.and_then(|written| due(pause(nodes.len(), written.took, awaited)));
    if let Some(due) = news_due.filter(|due| *due > now) {
        decision.wake_at(due);
        return;
    }
    let stored = plan.facts.status();
    let status = status(world, plan, nodes, report, now);
    if status == *stored {
        // Not beside a status that is being written: either would make the other one stale.
        if let Err(note) = fields::note(&plan.facts) {
            decision.steps.push(Step::NoteFields {
                plan: plan.facts.name.clone(),
                note,
            });
        }
        return;
    }
    let is_progress = essence(&status) == essence(stored);
    if let Some(due) = due(PROGRESS_PAUSE).filter(|due| is_progress && *due > now) {
        decision.wake_at(due);
        return;
    }
    let events = events::events(plan, stored, &status);
    let plan = plan.facts.name.clone();
    decision.steps.push(Step::WriteStatus {
        plan,
        status: Box::new(status),
        events,
    });
}

/// How long news wait after a status was written, which took so long. Some are awaited: a node can begin with them.
pub(super) fn pause(slots: usize, took: SignedDuration, awaited: bool) -> SignedDuration {
    if slots <= FEW_SLOTS {
        return SignedDuration::ZERO;
    }
    let patience = if awaited { IMPATIENCE } else { PATIENCE };
    took.saturating_mul(patience).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
}

fn status(
    world: &World,
    plan: &PlanView,
    nodes: &BTreeMap<Text, Standing>,
    report: &Report,
    now: Timestamp,
) -> PlanStatus {
    let stored = plan.facts.status();
    let resolved = plan.resolution.resolved();
    let applying: Vec<String> = nodes.values().map(|s| s.hostname.clone()).collect();
    let failed = nodes.values().filter(|s| s.failed).count();
    let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let counts = NodeCounts {
        selected: plan.nodes.selected(),
        done: plan.nodes.done(),
        applying: count(nodes.len() - failed),
        waiting: count(report.waiting),
        failed: count(failed),
        disabled: plan.nodes.disabled(),
    };
    let next_window = match &report.blocker {
        Some(Blocker::WindowClosed { opens }) => opens.map(seconds),
        _ => None,
    };
    PlanStatus {
        conditions: conditions(world, plan, nodes, report, now),
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
        active: Some(active(world, plan, nodes, report)),
        channel: channel(world, plan),
        pinned: resolved.and_then(|r| plan.digests.status(&r.hash)),
        next_window,
    }
}

fn active(
    world: &World,
    plan: &PlanView,
    nodes: &BTreeMap<Text, Standing>,
    report: &Report,
) -> Vec<NodeProgress> {
    let entry = |(name, s): (&Text, &Standing)| NodeProgress {
        name: name.to_string(),
        uid: Some(s.uid.to_string()),
        phase: s.phase.to_owned(),
        since: s.since.map(seconds),
        job: s.job.as_deref().map(str::to_owned),
        attempt: s.attempt,
        boot_id: s.boot.as_deref().map(str::to_owned),
        reason: s.reason.clone(),
        message: s.message.clone(),
    };
    let mut out: Vec<_> = nodes.iter().map(entry).collect();
    let mut next = next::count(plan, report);
    let room = ACTIVE_SHOWN.saturating_sub(out.len()).max(next);
    let not_ready = Blocker::NodeNotReady;
    let shut = report
        .blocker
        .as_ref()
        .filter(|b| !matches!(b, Blocker::NoSlot { .. }));
    let waiting = plan.nodes.ready().map(|name| (name, None));
    let waiting = waiting.chain(plan.nodes.not_ready().map(|name| (name, Some(&not_ready))));
    let waiting = waiting.filter(|(name, _)| !nodes.contains_key(*name)).take(room);
    out.extend(waiting.map(|(name, own)| {
        let own = report.nodes.get(name).or(shut).or(own);
        let blocker = own.or(report.blocker.as_ref());
        let is_next = own.is_none() && next > 0;
        next -= usize::from(is_next);
        let node = world.nodes.get(name).filter(|_| is_next);
        NodeProgress {
            name: name.to_string(),
            uid: node.map(|node| node.uid.to_string()),
            phase: WAITING.to_owned(),
            reason: blocker.map(|b| b.reason().to_owned()),
            message: blocker.map(ToString::to_string),
            ..NodeProgress::default()
        }
    }));
    out
}

fn channel(world: &World, plan: &PlanView) -> Option<ChannelStatus> {
    let channel = plan.channel.as_ref()?;
    let known = resolve::channel(&plan.facts, channel, &world.channels)?;
    let told = resolve::told(&plan.facts, channel);
    let next_poll = resolve::next_poll(&channel.url, Some(&known), world.defaults.polling_interval);
    let refused = plan.resolution.resolved().and_then(|r| r.refused.clone());
    let mut status = ChannelStatus {
        url: Some(channel.url.to_string()),
        secrets: resolve::secrets_of(channel),
        last_polled: Some(known.polled.to_string()),
        next_poll: next_poll.map(seconds),
        polled_for: plan
            .polled_for
            .clone()
            .or_else(|| told.and_then(|told| told.polled_for.clone())),
        last_error: known.error.or(refused),
        ..ChannelStatus::default()
    };
    match &plan.choice {
        Some(choice) => {
            status.withdrawn.clone_from(&choice.withdrawn);
            if let Some(held) = choice.held.as_ref().filter(|held| is_candidate(held)) {
                let due = match &held.refusal {
                    Refusal::TooYoung { due, .. } => Some(seconds(*due)),
                    _ => None,
                };
                status.candidate = Some(held.version.clone());
                status.since = Some(seconds(held.since));
                status.due = due;
                status.reason = Some(held.refusal.reason().to_owned());
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
        }
        // What this process has not heard from the channel yet stands as it was told.
        None => {
            if let Some(told) = told {
                status.candidate.clone_from(&told.candidate);
                status.since.clone_from(&told.since);
                status.due.clone_from(&told.due);
                status.reason.clone_from(&told.reason);
                status.message.clone_from(&told.message);
                status.withdrawn.clone_from(&told.withdrawn);
                status.seen.clone_from(&told.seen);
            }
        }
    }
    Some(status)
}

/// It is a version at least. What is none is told as an error.
fn is_candidate(held: &Held) -> bool {
    !matches!(held.refusal, Refusal::Accident(_))
}

/// What of a status is news, and what is mere progress.
#[derive(PartialEq)]
struct Essence<'a> {
    conditions: Vec<(&'a str, &'a str, Option<&'a str>, Option<&'a str>)>,
    version: Option<&'a str>,
    hash: Option<&'a str>,
    applying: Option<&'a [String]>,
    generation: Option<i64>,
    failed: Vec<&'a str>,
    channel: Option<[Option<&'a str>; 5]>,
    pinned: Option<&'a PinnedStatus>,
    next_window: Option<&'a str>,
}

fn essence(status: &PlanStatus) -> Essence<'_> {
    Essence {
        conditions: status
            .conditions
            .iter()
            .map(|c| {
                (
                    c.type_.as_str(),
                    c.status.as_str(),
                    c.reason.as_deref(),
                    c.message.as_deref(),
                )
            })
            .collect(),
        version: status.latest_version.as_deref(),
        hash: status.latest_hash.as_deref(),
        applying: status.applying.as_deref(),
        generation: status.observed_generation,
        failed: status
            .active
            .iter()
            .flatten()
            .filter(|n| n.phase == "Failed")
            .map(|n| n.name.as_str())
            .collect(),
        channel: status.channel.as_ref().map(|channel| {
            [
                channel.last_error.as_deref(),
                channel.candidate.as_deref(),
                channel.reason.as_deref(),
                channel.withdrawn.as_deref(),
                channel.polled_for.as_deref(),
            ]
        }),
        pinned: status.pinned.as_ref(),
        next_window: status.next_window.as_deref(),
    }
}
