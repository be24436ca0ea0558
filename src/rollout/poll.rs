//! When a channel is polled. Before a poll, the status of one of the channel's Plans says that it begins: if the response
//! ends the controller, as by its memory, the next controller does not ask for it at once, and handles the other Plans.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::plan::DerivedPlan;
use super::resolve;
use super::state::ClusterState;
use super::step::Key;
use refit_api::ChannelRef;
use refit_api::names::ANNOTATION_POLL_NOW;
use refit_api::text::{MAX_NAME, shorten};
use refit_facts::{ChannelFacts, PlanName};

/// How long a channel is not polled after a controller ended during a poll.
const AFTER_INTERRUPTION: SignedDuration = SignedDuration::from_mins(2);

/// The next step of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Poll {
    /// All its Plans are suspended.
    Never,
    At(Timestamp),
    /// A status must say first that the poll begins.
    Announce,
    Now,
}

/// What to do about a channel.
pub(super) fn poll(cluster: &ClusterState, channel: &ChannelRef, now: Timestamp) -> Poll {
    let Some(first) = polling_plans(cluster, channel).next() else {
        return Poll::Never;
    };
    let is_asked_for = !asked_by(cluster, channel).is_empty();
    // A poll in the future was made before the clock was set back.
    let known = newest_answer(cluster, channel).filter(|known| known.polled <= now);
    if let Some(due) = resolve::next_poll(&channel.url, known.as_ref(), cluster.defaults.polling_interval)
        && due > now
        && !is_asked_for
        && !is_offer_unknown(cluster, channel)
    {
        return Poll::At(due);
    }
    // Where no status can be written, none can say that the poll begins.
    let is_unwritable = cluster
        .memory
        .failures
        .contains_key(&Key::Plan(first.facts.name.clone()));
    if cluster.write_block(now).is_some() || is_unwritable {
        return Poll::Now;
    }
    let Some(begun) = begun(first, channel).filter(|begun| *begun <= now) else {
        return Poll::Announce;
    };
    // In whole seconds, as `asked` is stored: otherwise a poll of this process could seem to have begun before its
    // start.
    let started = cluster.memory.started.map_or(i64::MIN, Timestamp::as_second);
    let answered = known.is_some_and(|known| known.polled.as_second() > begun.as_second());
    if answered {
        return Poll::Announce;
    }
    if begun.as_second() >= started {
        return Poll::Now;
    }
    // An earlier controller began it, and no status has its end.
    match begun.checked_add(AFTER_INTERRUPTION) {
        Ok(due) if due > now && !is_asked_for => Poll::At(due),
        _ => Poll::Announce,
    }
}

/// `status.channel.asked` of a Plan: when the poll began whose end no status has.
pub(super) fn asked(
    cluster: &ClusterState,
    plan: &DerivedPlan,
    channel: &ChannelRef,
    now: Timestamp,
) -> Option<Timestamp> {
    let first = polling_plans(cluster, channel).next()?;
    if first.facts.name != plan.facts.name {
        return None;
    }
    let begun = begun(plan, channel);
    match poll(cluster, channel, now) {
        Poll::Announce => Some(now),
        Poll::Now => begun,
        // After an interruption.
        Poll::At(due) => begun.filter(|begun| {
            begun
                .checked_add(AFTER_INTERRUPTION)
                .is_ok_and(|after| after == due)
        }),
        Poll::Never => None,
    }
}

fn begun(plan: &DerivedPlan, channel: &ChannelRef) -> Option<Timestamp> {
    let stored = resolve::stored_channel(&plan.facts, channel)?;
    stored.asked.as_deref()?.parse().ok()
}

fn plans_of_channel<'a>(
    cluster: &'a ClusterState,
    channel: &'a ChannelRef,
) -> impl Iterator<Item = &'a DerivedPlan> {
    let plans = cluster.plans.values();
    plans.filter(move |plan| plan.channel.as_ref() == Some(channel))
}

/// The Plans for which a channel is polled. A suspended Plan takes part only if it asks for a poll.
fn polling_plans<'a>(
    cluster: &'a ClusterState,
    channel: &'a ChannelRef,
) -> impl Iterator<Item = &'a DerivedPlan> {
    plans_of_channel(cluster, channel).filter(move |plan| {
        let is_usable = !plan.facts.is_deleting() && plan.facts.malformed.is_none();
        is_usable && (!plan.is_suspended() || requested_poll(plan, channel).is_some())
    })
}

/// The value of `refit.rs/poll-now` that has not caused a poll yet.
fn requested_poll<'a>(plan: &'a DerivedPlan, channel: &ChannelRef) -> Option<Cow<'a, str>> {
    // Shortened, as it is stored in status and compared with what is stored there.
    let value = shorten(plan.facts.annotation(ANNOTATION_POLL_NOW)?, MAX_NAME);
    let heeded = plan.polled_for.as_deref().or_else(|| {
        let stored = resolve::stored_channel(&plan.facts, channel)?;
        stored.polled_for.as_deref()
    });
    (heeded != Some(&*value)).then_some(value)
}

/// Plans whose annotation `refit.rs/poll-now` has a new value, and that value: each causes one poll.
pub(super) fn asked_by(cluster: &ClusterState, channel: &ChannelRef) -> BTreeMap<PlanName, String> {
    plans_of_channel(cluster, channel)
        .filter(|plan| !plan.facts.is_deleting())
        .filter_map(|plan| {
            Some((
                plan.facts.name.clone(),
                requested_poll(plan, channel)?.into_owned(),
            ))
        })
        .collect()
}

/// Whether a Plan waits for a version of the channel while this process does not know what the channel offers. Until a
/// poll, it cannot tell when the Plan takes the version.
fn is_offer_unknown(cluster: &ClusterState, channel: &ChannelRef) -> bool {
    let waits = |plan: &DerivedPlan| {
        let stored = resolve::stored_channel(&plan.facts, channel);
        stored.is_some_and(|stored| stored.candidate.is_some() || stored.withdrawn.is_some())
    };
    !cluster.world.channels.contains_key(channel) && polling_plans(cluster, channel).any(waits)
}

/// The newest response of a channel that any of its Plans has, because one poll serves all of them.
fn newest_answer(cluster: &ClusterState, channel: &ChannelRef) -> Option<ChannelFacts> {
    polling_plans(cluster, channel)
        .map(|plan| resolve::channel(&plan.facts, channel, &cluster.world.channels))
        .try_fold(None, |newest: Option<ChannelFacts>, answer| {
            // A Plan without a response gets one now.
            let answer = answer?;
            Some(Some(match newest {
                Some(known) if known.polled >= answer.polled => known,
                _ => answer,
            }))
        })
        .flatten()
}
