//! What the page shows of a cluster: its objects as `refit status` shows them, and the timelines of a recorder.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::summary::{bands, chain, figures, verdict};
use refit_api::names::plan_label;
use refit_api::{DespiteStatus, ExpectedEnd, NodePhase, NodeProgress, RollOut};
use refit_base::version::released_version;
use refit_formats::page::{Document, Held, PlanCard, Row, RowState, Source, Span, count_versions, failures};
use refit_rehearse::record::Recorder;
use refit_rehearse::report::{allowed, wait_cards, zone_of};
use refit_view::plan::Obstacle;
use refit_view::{PlanOverview, Snapshot};

/// Rows that are drawn, so that a page has a size that browsers show.
const MAX_ROWS: usize = 10_000;
/// Spans of a row, the last ones: a node that fails and is retried for days has any number.
const MAX_SPANS: usize = 20;
/// Rows of the table of waits, of each Plan.
const MAX_WAITS: usize = 20;

/// The page. `recorders` are those of the namespaces, and have recorded since `opened`, if they have.
pub(super) fn document(
    snapshot: &Snapshot,
    recorders: &BTreeMap<String, Recorder>,
    opened: Option<Timestamp>,
) -> Document {
    let namespaces: BTreeSet<_> = snapshot.plans.iter().map(|plan| &plan.namespace).collect();
    let mut document = Document {
        notes: vec![match opened {
            Some(opened) => format!(
                "Recorded since {opened:.0}. Nodes that were done before are counted, and have no row; of nodes that were in progress \
                 the timeline begins with their phase at that time."
            ),
            None => format!(
                "The cluster at {:.0}. Nodes that are done are counted, and have no row; of the others only the current phase is known.",
                snapshot.now
            ),
        }],
        versions: count_versions(
            snapshot
                .nodes
                .iter()
                .flatten()
                .map(|(_, node)| &*node.facts.kubelet),
        ),
        ..Document::new(
            Source::Cluster,
            "Roll-outs",
            opened.unwrap_or(snapshot.now),
            snapshot.now,
        )
    };
    let views: Vec<_> = snapshot
        .plans
        .iter()
        .map(|plan| PlanOverview::new(snapshot, plan))
        .collect();
    let mut shown = Vec::new();
    for view in &views {
        let name = if namespaces.len() > 1 {
            view.title()
        } else {
            view.plan.facts.name.to_string()
        };
        let recorder = recorders.get(&view.plan.namespace);
        if view.foreign {
            document.notes.push(format!(
                "The status of Plan {name} is of another controller; its nodes are counted by labels and Jobs."
            ));
        }
        let despite = view.despite().filter(|_| !view.complete);
        let remark =
            |it: &DespiteStatus| format!("Nodes of Plan {name} start in spite of {}.", it.describe());
        document.remarks.extend(despite.map(remark));
        let of_plan = rows(view, &name, recorder);
        document
            .bands
            .extend(bands(view, &name, recorder, document.start));
        document.figures.evicted += of_plan.iter().map(|row| row.evicted).sum::<usize>();
        document.rows.extend(of_plan);
        document.plans.push(card(view, name.clone(), recorder));
        shown.push(Shown { view, name, recorder });
    }
    document.failures = failures(&document.rows);
    document.verdict = verdict(&shown);
    figures(&shown, &mut document);
    document.chain = chain(&shown, snapshot.now);
    if document.rows.len() > MAX_ROWS {
        document.rows.truncate(MAX_ROWS);
        document.notes.push(format!("Only {MAX_ROWS} nodes are drawn."));
    }
    let gaps = snapshot.gaps.iter().map(|gap| format!("Not shown: {gap}"));
    document.notes.extend(gaps);
    document
}

/// A Plan under the name that the page has for it.
pub(super) struct Shown<'s> {
    pub(super) view: &'s PlanOverview<'s>,
    pub(super) name: String,
    pub(super) recorder: Option<&'s Recorder>,
}

fn card(view: &PlanOverview<'_>, name: String, recorder: Option<&Recorder>) -> PlanCard {
    let counts = view.counts;
    let mut waits = recorder.map_or_else(Vec::new, |recorder| {
        wait_cards(recorder, &view.plan.facts.name, view.snapshot.now)
    });
    waits.truncate(MAX_WAITS);
    let history = view.plan.facts.status().history.iter().flatten();
    let history = history.map(|entry| RollOut {
        version: released_version(&entry.version),
        ..entry.clone()
    });
    PlanCard {
        name,
        version: view.version().map(released_version),
        state: view.state(),
        selected: counts.selected,
        allowed: allowed(&view.plan.facts.object.spec, counts.selected),
        done: counts.done,
        applying: counts.applying,
        waiting: counts.waiting,
        failed: counts.failed,
        held: view.obstacle.as_ref().map(held),
        expected_end: view.expected_end().map(|(earliest, latest)| ExpectedEnd {
            earliest: format!("{earliest:.0}"),
            latest: format!("{latest:.0}"),
        }),
        history: history.collect(),
        waits,
    }
}

fn held(obstacle: &Obstacle) -> Held {
    Held {
        reason: obstacle.reason.clone(),
        message: obstacle.says(),
        remedy: obstacle.remedy.clone(),
        commands: obstacle.commands.clone(),
    }
}

/// The nodes of a Plan: what has been recorded of each, and where each is now.
fn rows(view: &PlanOverview<'_>, name: &str, recorder: Option<&Recorder>) -> Vec<Row> {
    let (plan, now) = (&view.plan.facts.name, view.snapshot.now);
    let mut rows = recorder.map_or_else(BTreeMap::new, |recorder| recorder.rows(plan, now));
    for (node, row) in &mut rows {
        if view.node(node).is_none() {
            leave(view, node, row);
        }
    }
    for node in &view.nodes {
        let row = rows
            .entry(node.name.clone())
            .or_insert_with(|| Row::new(plan, &node.name));
        enter(node, row, now);
    }
    let finish = |mut row: Row| {
        name.clone_into(&mut row.plan);
        row.zone = view
            .snapshot
            .node(&row.node)
            .and_then(|node| zone_of(&node.labels));
        row.spans.drain(..row.spans.len().saturating_sub(MAX_SPANS));
        row
    };
    rows.into_values().map(finish).collect()
}

/// The node is where status says.
fn enter(node: &NodeProgress, row: &mut Row, now: Timestamp) {
    row.state = match node.phase.known() {
        Some(NodePhase::Failed) => RowState::Failed,
        Some(NodePhase::Waiting) => RowState::Waiting,
        _ => RowState::Applying,
    };
    row.reason.clone_from(&node.reason);
    row.message.clone_from(&node.message);
    if row.spans.is_empty() && node.has_slot() {
        let since = node.since.as_deref().and_then(|since| since.parse().ok());
        row.spans.push(Span {
            phase: node.phase.clone(),
            from: since.unwrap_or(now).min(now).as_second(),
            to: None,
            reason: node.reason.clone().filter(|_| node.is_failed()),
            message: None,
        });
    }
}

/// Status does not name the node any more.
fn leave(view: &PlanOverview<'_>, node: &str, row: &mut Row) {
    let labels = view.snapshot.node(node).map(|node| &node.labels);
    let label = labels.and_then(|labels| labels.get(&plan_label(&view.plan.facts.name)));
    let hash = view.plan.facts.status().latest_hash.as_ref();
    if hash.is_some() && label == hash {
        row.state = RowState::Done;
    } else if matches!(row.state, RowState::Applying | RowState::Failed) {
        row.state = RowState::Released;
    }
    (row.reason, row.message) = (None, None);
}
