//! `refit status` without a Plan: a line for each, and below them why those are held that wait for a person.

use std::fmt::Write as _;

use super::detail::{Look, bar, differences, gaps_and_maintenances};
use super::explain::explain_plan;
use super::plan::PlanOverview;
use super::read::Snapshot;
use super::time;
use refit_api::{ConditionType, ObjectRef, PlanState, Reason, WavePhase};
use refit_base::table::aligned;
use refit_formats::convert::op_plan::owner;

/// Plans that are explained below the table.
const MAX_EXPLAINED: usize = 5;

const HEAD: [&str; 7] = ["PLAN", "VERSION", "PROGRESS", "STATE", "SINCE", "REASON", "NEXT"];

/// All Plans at a glance, and the nodes in maintenance.
pub(super) fn overview(
    views: &[PlanOverview<'_>],
    snapshot: Option<&Snapshot>,
    gaps: &[String],
    look: &Look,
) -> String {
    let mut out = String::new();
    if views.is_empty() {
        out.push_str("there is no Plan\n");
    } else {
        let rows = views.iter().map(|view| row(view, look));
        let rows: Vec<_> = std::iter::once(HEAD.map(str::to_owned)).chain(rows).collect();
        for line in aligned(&rows, &[]) {
            let _ = writeln!(out, "{line}");
        }
    }
    let held: Vec<_> = views.iter().filter(|view| needs_person(view)).collect();
    for view in held.iter().take(MAX_EXPLAINED) {
        let explanation = explain_plan(view);
        let _ = write!(out, "\n{}", explanation.brief());
        if let Some(owner) = owner(view.plan) {
            let _ = writeln!(out, "of: {owner}");
        }
    }
    match held.len().saturating_sub(MAX_EXPLAINED) {
        0 => {}
        more => {
            let _ = writeln!(out, "\nand {more} more are held: refit explain");
        }
    }
    for view in views {
        let name = name(view);
        for line in differences(view) {
            let _ = writeln!(out, "\n{name}: {line}");
        }
        if view.foreign {
            let _ = writeln!(
                out,
                "\n{name}: status is of another controller; nodes are counted by labels and Jobs"
            );
        }
    }
    gaps_and_maintenances(snapshot, gaps, &mut out);
    out
}

/// With the namespace if there may be several.
fn name(view: &PlanOverview<'_>) -> String {
    match view.snapshot.namespace {
        Some(_) => view.plan.name.to_string(),
        None => view.title(),
    }
}

fn row(view: &PlanOverview<'_>, look: &Look) -> [String; 7] {
    let counts = view.counts;
    let progress = format!("{}/{}", counts.done, counts.selected);
    let progress = match (view.counted, look.bars) {
        (false, _) => "?".to_owned(),
        (true, false) => progress,
        (true, true) => format!("{} {progress}", bar(counts.done, counts.selected)),
    };
    let since = since(view).unwrap_or_default();
    let since = if look.times {
        since.to_owned()
    } else {
        time::since(since, view.snapshot.now).unwrap_or_default()
    };
    let reason = view.obstacle.as_ref().map(|obstacle| obstacle.reason.to_string());
    let differs = || differences(view).next()?.split(':').next().map(str::to_owned);
    [
        name(view),
        view.version().unwrap_or("-").to_owned(),
        progress,
        view.state().to_string(),
        since,
        reason.or_else(differs).unwrap_or_default(),
        next(view, look),
    ]
}

/// Since when the Plan is in its state.
fn since<'v>(view: &'v PlanOverview<'_>) -> Option<&'v str> {
    let status = view.plan.status();
    if let Some(obstacle) = &view.obstacle {
        let stored = status.obstacle.as_ref();
        let stored = stored.filter(|stored| stored.reason == obstacle.reason);
        return stored.and_then(|stored| stored.since.as_deref());
    }
    if view.state() == PlanState::Complete {
        let complete = view.plan.status().condition(ConditionType::Complete)?;
        return complete.last_transition_time.as_deref();
    }
    status
        .history
        .iter()
        .flatten()
        .next()
        .map(|roll_out| roll_out.from.as_str())
}

/// Whether someone has to do something.
fn needs_person(view: &PlanOverview<'_>) -> bool {
    let asks = [
        Reason::Suspended,
        Reason::WaveNotApproved,
        Reason::NotApproved,
        Reason::WindowTooShort,
    ];
    let obstacle = view.obstacle.as_ref();
    obstacle.is_some_and(|it| !it.is_expected() || asks.iter().any(|reason| it.reason == *reason))
}

/// What happens next, and when.
fn next(view: &PlanOverview<'_>, look: &Look) -> String {
    let status = view.plan.status();
    let when = |what: &str, at: Option<&str>| {
        let at = at?.parse().ok()?;
        Some(if look.times {
            format!("{what} at {at:.0}")
        } else {
            format!("{what} {}", time::until(at, view.snapshot.now))
        })
    };
    if needs_person(view) || differences(view).next().is_some() {
        return "see below".to_owned();
    }
    let found = match &view.obstacle {
        Some(obstacle) => match obstacle.reason.known() {
            Some(Reason::WindowClosed | Reason::Waiting | Reason::Blackout) => {
                when("opens", status.next_window.as_deref())
            }
            Some(Reason::WaveSoaking) => {
                let wave = view.wave().filter(|wave| wave.phase == WavePhase::Soaking);
                when("soak ends", wave.and_then(|wave| wave.until.as_deref()))
            }
            Some(Reason::NotBefore) => when("starts", view.plan.object.spec.not_before.as_deref()),
            Some(Reason::DependencyNotComplete) => {
                let mut plans = ObjectRef::named(&obstacle.about, "Plan");
                plans.next().map(|plan| format!("after Plan {plan}"))
            }
            _ => Some("continues by itself".to_owned()),
        },
        None if view.complete => when(
            "repeats",
            status.repeat.as_ref().and_then(|it| it.next.as_deref()),
        ),
        None => {
            let end = view.expected_end();
            end.map(|(earliest, latest)| format!("ends {}", time::range(earliest, latest, view.snapshot.now)))
        }
    };
    found.unwrap_or_default()
}
