//! What the page shows of a cluster: its objects as `refit status` shows them, and the timelines of a recorder.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::summary::{bands, chain, figures, verdict};
use refit_api::{DespiteStatus, ExpectedEnd, RollOut};
use refit_base::version::released_version;
use refit_facts::PlanFacts;
use refit_formats::page::{Document, Held, PlanCard, Source, count_versions, failures};
use refit_rehearse::record::Recorder;
use refit_rehearse::report::page::{allowed, rows, wait_cards};
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
    let namespaces: BTreeSet<_> = snapshot.plans.iter().map(PlanFacts::namespace).collect();
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
            view.plan.name.to_string()
        };
        let recorder = recorders.get(view.plan.namespace());
        if view.foreign {
            document.notes.push(format!(
                "The status of Plan {name} is of another controller; its nodes are counted by labels and Jobs."
            ));
        }
        let despite = view.despite().filter(|_| !view.complete);
        let remark =
            |it: &DespiteStatus| format!("Nodes of Plan {name} start in spite of {}.", it.describe());
        document.remarks.extend(despite.map(remark));
        let mut of_plan = rows(view, &name, recorder);
        for row in &mut of_plan {
            row.spans.drain(..row.spans.len().saturating_sub(MAX_SPANS));
        }
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
        wait_cards(recorder, &view.plan.name, view.snapshot.now)
    });
    waits.truncate(MAX_WAITS);
    let history = view.plan.status().history.iter().flatten();
    let history = history.map(|entry| RollOut {
        version: released_version(&entry.version),
        ..entry.clone()
    });
    PlanCard {
        name,
        version: view.version().map(released_version),
        state: view.state(),
        selected: counts.selected,
        allowed: allowed(&view.plan.object.spec, counts.selected),
        done: counts.done,
        applying: counts.applying,
        waiting: counts.waiting,
        failed: counts.failed,
        held: view.obstacle.as_ref().map(|obstacle| Held {
            reason: obstacle.reason.clone(),
            message: obstacle.says(),
            remedy: view.remedy.clone(),
            commands: view.commands.clone(),
        }),
        expected_end: view.expected_end().map(|(earliest, latest)| ExpectedEnd {
            earliest: format!("{earliest:.0}"),
            latest: format!("{latest:.0}"),
        }),
        history: history.collect(),
        waits,
    }
}
