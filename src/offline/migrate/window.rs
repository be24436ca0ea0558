//! When a window is open under each of the two controllers.

use jiff::civil::Time;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::{Finding, Severity};
use refit_api::TimeWindowSpec;
use refit_api::window::Window;

/// How far ahead changes of the clocks are looked for.
const HORIZON: SignedDuration = SignedDuration::from_hours(366 * 24);

pub(super) fn check(title: &str, spec: &TimeWindowSpec, now: Timestamp, found: &mut Vec<Finding>) {
    // An invalid window is reported with the Plan.
    let Ok(window) = Window::parse(spec, &TimeZone::UTC) else {
        return;
    };
    found.push(
        Finding::new(
            Severity::Change,
            "window-checked-per-node",
            title,
            format!("window {window}: system-upgrade-controller checks it once, when a roll-out starts, and then continues outside of it; refit checks it before each node, so a long roll-out takes several windows"),
        )
        .remedy("if all nodes must fit into one window, widen it or raise concurrency; `refit rehearse --snapshot context` shows how long the roll-out takes"),
    );
    let (start, end) = (window.start(), window.end());
    if start > end && !window.is_every_day() {
        found.push(
            Finding::new(
                Severity::Change,
                "window-overnight",
                title,
                format!("window {window} is overnight: system-upgrade-controller opens it on each listed day from 00:00 to {end} and from {start} to 24:00; refit opens it at {start} of each listed day and closes it at {end} of the next"),
            )
            .remedy("list the days on which the night starts; the morning before the first of them is no longer open"),
        );
    }
    if let Some(at) = moved_by_clocks(&window, now) {
        let zone = window.zone();
        found.push(
            Finding::new(
                Severity::Note,
                "window-and-clock-change",
                title,
                format!("window {window} begins or ends in an hour that the clocks skip or repeat, next on {}: system-upgrade-controller moves the window then; refit keeps to the local time", zone.to_datetime(at).date()),
            ),
        );
    }
}

/// The next change of the clocks for which the start or the end of the window is a local time that does not exist, or
/// exists twice.
fn moved_by_clocks(window: &Window, now: Timestamp) -> Option<Timestamp> {
    let until = now.saturating_add(HORIZON).ok()?;
    let zone = window.zone();
    let is_ambiguous = |at: Timestamp, time: Time| {
        // A change of the clocks at midnight can skip or repeat times of either day.
        let before = at.saturating_sub(SignedDuration::from_secs(1)).ok();
        let dates = [Some(at), before].map(|at| at.map(|at| zone.to_datetime(at).date()));
        dates
            .into_iter()
            .flatten()
            .any(|date| zone.to_ambiguous_timestamp(date.to_datetime(time)).is_ambiguous())
    };
    zone.following(now)
        .map(|change| change.timestamp())
        .take_while(|at| *at <= until)
        .find(|at| {
            [window.start(), window.end()]
                .into_iter()
                .any(|time| is_ambiguous(*at, time))
        })
}
