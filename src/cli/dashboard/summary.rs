//! What the page says of a cluster as a whole: the verdict, the figures, what holds whole Plans, and what takes long.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::document::Shown;
use refit_api::PlanState;
use refit_formats::page::{Band, Document, Figures, Link, Verdict};
use refit_rehearse::record::{Recorder, Roles, TAKEN_DOWN, WORKED_ON, peak};
use refit_rehearse::report::closed_bands;
use refit_rehearse::report::page::allowed;
use refit_view::PlanOverview;

/// How far ahead closed windows are drawn at least.
const AHEAD: SignedDuration = SignedDuration::from_hours(1);

/// That of the Plan that needs someone most, in the words of `refit status`.
pub(super) fn verdict(plans: &[Shown<'_>]) -> Option<Verdict> {
    const WORST_FIRST: [PlanState; 5] = [
        PlanState::Failed,
        PlanState::Held,
        PlanState::Running,
        PlanState::Waiting,
        PlanState::Complete,
    ];
    let worst = |state: &PlanState| plans.iter().find(|plan| plan.view.state() == *state);
    let (state, plan) = WORST_FIRST
        .into_iter()
        .find_map(|state| Some((state, worst(&state)?)))?;
    let count = |of: fn(&PlanOverview<'_>) -> i64| plans.iter().map(|plan| of(plan.view)).sum::<i64>();
    let (done, selected) = (count(|view| view.counts.done), count(|view| view.counts.selected));
    let progress = format!("{done} of {selected} nodes are done");
    let obstacle = plan.view.obstacle.as_ref();
    let (headline, line) = match (state, obstacle) {
        (PlanState::Complete | PlanState::Running, _) | (_, None) => (
            format!("{state}: {progress}"),
            obstacle.map_or(progress, |it| format!("Plan {}: {}", plan.name, it.says())),
        ),
        (_, Some(obstacle)) => {
            let on = obstacle
                .node
                .as_ref()
                .map_or_else(String::new, |node| format!(" on {node}"));
            (
                format!("{state}: Plan {}{on}: {}", plan.name, obstacle.reason),
                format!("Plan {}: {}; {progress}", plan.name, obstacle.says()),
            )
        }
    };
    Some(Verdict {
        mood: state.into(),
        headline,
        line,
    })
}

/// Adds them to the document, which has the evictions.
pub(super) fn figures(plans: &[Shown<'_>], document: &mut Document) {
    let Some(snapshot) = plans.first().map(|plan| plan.view.snapshot) else {
        return;
    };
    let now = snapshot.now;
    let outages = |phases| {
        plans.iter().flat_map(move |plan| {
            let recorded = plan.recorder.into_iter();
            recorded.flat_map(move |recorder| recorder.outages(&plan.view.plan.name, phases, now))
        })
    };
    let down = peak(outages(WORKED_ON), &BTreeSet::new());
    let nodes = snapshot.nodes.iter().flatten();
    let roles = Roles::of(nodes.map(|(_, node)| &node.facts));
    let is_control = |node: &str| roles.control.contains(node);
    let control = peak(
        outages(TAKEN_DOWN).filter(|one| is_control(one.node)),
        &BTreeSet::new(),
    );
    let first = document
        .rows
        .iter()
        .filter_map(|row| row.spans.first())
        .map(|span| span.from)
        .min();
    let ends = plans.iter().filter_map(|plan| plan.view.expected_end());
    let ends = ends.reduce(|one, other| (one.0.max(other.0), one.1.max(other.1)));
    let limits = |peak: &refit_rehearse::record::Peak<'_>| {
        let at_work = plans
            .iter()
            .filter(|plan| peak.plans.contains(&*plan.view.plan.name));
        let limits = at_work.map(|plan| allowed(&plan.view.plan.object.spec, plan.view.counts.selected));
        limits.sum()
    };
    document.figures = Figures {
        most_down: down.as_ref().map_or(0, |peak| peak.down.len()),
        allowed: down.as_ref().map(limits),
        control_plane: control.map(|peak| (peak.down.len(), roles.control.len())),
        seconds: first.map(|first| now.as_second() - first),
        ends: ends.map(|(earliest, latest)| (earliest.as_second(), latest.as_second())),
        evicted: document.figures.evicted,
    };
}

/// The waves and waits of a Plan, as far as they are recorded, and when its windows are closed.
pub(super) fn bands(
    view: &PlanOverview<'_>,
    name: &str,
    recorder: Option<&Recorder>,
    from: Timestamp,
) -> Vec<Band> {
    let now = view.snapshot.now;
    let ahead = now.duration_since(from).max(AHEAD);
    let until = now.saturating_add(ahead).unwrap_or(now);
    let mut bands = closed_bands(&view.plan.object, &[], from, until);
    bands.extend(
        recorder
            .into_iter()
            .flat_map(|recorder| recorder.bands(&view.plan.name, now)),
    );
    for band in &mut bands {
        name.clone_into(&mut band.plan);
    }
    bands
}

/// The longest of the chains of the namespaces.
pub(super) fn chain(plans: &[Shown<'_>], now: Timestamp) -> Vec<Link> {
    let namespaces: BTreeSet<&str> = plans.iter().map(|plan| plan.view.plan.namespace()).collect();
    let chains = namespaces.into_iter().filter_map(|namespace| {
        let is_here = |plan: &&Shown<'_>| plan.view.plan.namespace() == namespace;
        let names = plans.iter().filter(is_here).map(|plan| &*plan.view.plan.name);
        let recorder = plans.iter().find(is_here)?.recorder?;
        Some(recorder.chain(&names.collect::<Vec<_>>(), now))
    });
    chains
        .max_by_key(|chain| chain.last().map(|link| link.to))
        .unwrap_or_default()
}
