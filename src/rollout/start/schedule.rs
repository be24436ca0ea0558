//! When nodes of a Plan may start: `notBefore`, windows, blackouts, and whether a node would finish before they end.

use jiff::{SignedDuration, Timestamp};

use super::super::blocker::Blocker;
use super::super::despite::Lifted;
use super::super::plan::DerivedPlan;
use super::super::state::ClusterState;
use crate::later::requeue;
use refit_api::exemption::StartLimit;
use refit_api::schedule::{Blackout, Windows, blackout_at, next_blackout, next_start};
use refit_api::wait_for;

/// When nodes of a Plan may start by the clock: from `notBefore` on, in its windows, outside of its blackouts and those of
/// all Plans.
pub(crate) struct StartTimes<'a> {
    not_before: Option<Timestamp>,
    windows: Option<&'a Windows>,
    blackouts: [&'a [Blackout]; 2],
}

/// Whether nodes may start now.
#[derive(Debug, PartialEq, Eq)]
pub struct Opening {
    pub is_open: bool,
    /// Length of the next opening; zero if there is none, and absent if it never closes.
    pub length: Option<SignedDuration>,
}

impl<'a> StartTimes<'a> {
    /// With the limits that count.
    pub(crate) fn of(cluster: &'a ClusterState, plan: &'a DerivedPlan, lifted: &Lifted) -> Self {
        let counts = |limit| !lifted.contains(&limit);
        let in_window = counts(StartLimit::Window);
        let not_before = plan.spec().not_before.as_ref().filter(|_| in_window);
        Self {
            // A Plan with an invalid time starts no node.
            not_before: not_before.and_then(|text| text.parse().ok()),
            windows: plan.parsed.windows.as_ref().filter(|_| in_window),
            blackouts: if counts(StartLimit::Blackout) {
                [&plan.parsed.blackouts, cluster.world.limits.blackouts()]
            } else {
                [&[], &[]]
            },
        }
    }

    /// Whether they are always open.
    pub(crate) fn are_unlimited(&self) -> bool {
        let has_windows = self.windows.is_some();
        !has_windows && self.not_before.is_none() && self.blackouts.iter().all(|all| all.is_empty())
    }

    pub(crate) fn contains(&self, now: Timestamp) -> bool {
        self.not_before.is_none_or(|at| now >= at)
            && self.is_in_window(now)
            && self.blackouts.iter().all(|all| blackout_at(all, now).is_none())
    }

    /// The first time from `now` on at which they are open.
    pub(crate) fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let now = self.not_before.map_or(now, |at| at.max(now));
        next_start(now, &self.blackouts, |at| self.window_opens(at))
    }

    /// When the opening that contains `now` ends; `None` if it does not.
    pub(crate) fn closes(&self, now: Timestamp) -> Option<Timestamp> {
        self.window_closes(now)
            .into_iter()
            .chain(self.next_blackout(now))
            .min()
    }

    /// What metrics say of them.
    pub(crate) fn opening(&self, now: Timestamp) -> Opening {
        let is_open = self.contains(now);
        // The beginning of an opening that is under way is not known.
        let from = if is_open { self.closes(now) } else { Some(now) };
        let length = match from.and_then(|from| self.next(from)) {
            Some(opens) => self.closes(opens).map(|closes| closes.duration_since(opens)),
            None => (!is_open).then_some(SignedDuration::ZERO),
        };
        Opening { is_open, length }
    }

    fn is_in_window(&self, now: Timestamp) -> bool {
        self.windows.is_none_or(|windows| windows.contains(now))
    }

    fn window_opens(&self, at: Timestamp) -> Option<Timestamp> {
        self.windows.map_or(Some(at), |windows| windows.next_open(at))
    }

    fn window_closes(&self, now: Timestamp) -> Option<Timestamp> {
        self.windows?.closes(now)
    }

    fn next_blackout(&self, now: Timestamp) -> Option<Timestamp> {
        let next = self.blackouts.iter().filter_map(|all| next_blackout(all, now));
        next.min()
    }
}

/// Why no node may start at this time. Requests the next decision for when that may change.
pub(super) fn blocker(
    cluster: &ClusterState,
    plan: &DerivedPlan,
    lifted: &Lifted,
    now: Timestamp,
    requeue_at: &mut Option<Timestamp>,
) -> Option<Blocker> {
    let start_times = StartTimes::of(cluster, plan, lifted);
    if let Some(at) = start_times.not_before.filter(|at| now < *at) {
        requeue(requeue_at, at);
        return Some(Blocker::NotBefore { at });
    }
    let current = |blackouts| blackout_at(blackouts, now);
    let (own, of_all) = (
        current(start_times.blackouts[0]),
        current(start_times.blackouts[1]),
    );
    let longest = own.iter().chain(&of_all).max_by_key(|(_, until)| *until);
    if let Some((blackout, until)) = longest {
        requeue(requeue_at, *until);
        return Some(Blocker::Blackout {
            of_all: own.is_none_or(|(own, _)| own != *blackout),
            reason: blackout.reason.clone(),
            until: *until,
            opens: start_times.next(now),
        });
    }
    // Without both figures nothing is known of the duration, and the first node may start at any time in the window.
    let needs = plan.longest_run().into_iter().chain(plan.time_limit).min();
    // system-upgrade-controller starts nodes until the end of `window`, and so does refit.
    let starts_until_end = plan.spec().window.is_some();
    let never_fits = || {
        let windows = start_times.windows.filter(|_| !starts_until_end);
        let longest = windows.and_then(|_| plan.longest_window(now));
        longest.filter(|length| needs.is_some_and(|needs| *length < needs))
    };
    let waits = || {
        let waits = plan.spec().drain_waits().unwrap_or_default();
        wait_for::longest(&waits)
    };
    let too_short = |end, opens| Blocker::WindowTooShort {
        end,
        limit: plan.time_limit,
        waits: waits(),
        longest_run: plan.longest_run(),
        longest_window: never_fits(),
        opens,
    };
    if !start_times.is_in_window(now) {
        // Also when it opens into a blackout, whose end is the next change then.
        requeue(requeue_at, start_times.window_opens(now));
        if never_fits().is_some()
            && let Some(opens) = start_times.window_opens(now)
        {
            return Some(too_short(opens, Some(opens)));
        }
        return Some(Blocker::WindowClosed {
            field: if starts_until_end {
                "spec.window"
            } else {
                "spec.windows"
            },
            opens: start_times.next(now),
        });
    }
    let closes = start_times.window_closes(now);
    requeue(requeue_at, closes);
    let closes = closes.filter(|_| !starts_until_end);
    let end = closes.into_iter().chain(start_times.next_blackout(now)).min()?;
    requeue(requeue_at, end);
    let needs = needs?;
    let last_start = end.checked_sub(needs).ok()?;
    if now <= last_start {
        // The decision at that very moment would still start nodes.
        let passed = last_start.checked_add(SignedDuration::from_millis(1));
        requeue(requeue_at, passed.ok());
        return None;
    }
    Some(too_short(end, start_times.next(end)))
}
