//! What the nodes of a Plan wait for, or have waited for since this process leads: the table of the page.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{MAX_WAIT, PlanTimeline};
use refit_api::text::shorten;
use refit_api::{NodePhase, OpenEnum, Reason};
use refit_formats::page::WaitCard;
use refit_rollout::Report;

/// Rows of the table.
const MAX_CARDS: usize = 20;

/// Those that last first, and of them the longest.
pub(super) fn cards(plan: &PlanTimeline, report: &Report, now: Timestamp) -> Vec<WaitCard> {
    let mut cards = of_rows(plan, now);
    cards.extend(of_the_rest(plan, report, now));
    cards.sort_by_key(|card| (card.is_over, std::cmp::Reverse(card.seconds)));
    cards.truncate(MAX_CARDS);
    cards
}

/// The waits of single nodes.
fn of_rows(plan: &PlanTimeline, now: Timestamp) -> Vec<WaitCard> {
    let mut groups: BTreeMap<(OpenEnum<Reason>, bool), WaitCard> = BTreeMap::new();
    for row in plan.rows.values() {
        let mut of_row: BTreeMap<OpenEnum<Reason>, (i64, bool, Option<&String>)> = BTreeMap::new();
        for span in row.spans.iter().filter(|span| span.phase == NodePhase::Waiting) {
            let Some(reason) = &span.reason else { continue };
            let seconds = span.to.unwrap_or_else(|| now.as_second()) - span.from;
            let (sum, lasts, message) = of_row.entry(reason.clone()).or_default();
            *sum += seconds;
            *lasts |= span.to.is_none();
            *message = span.message.as_ref();
        }
        for (reason, (seconds, lasts, message)) in of_row {
            let card = groups
                .entry((reason.clone(), !lasts))
                .or_insert_with(|| WaitCard {
                    reason,
                    message: String::new(),
                    seconds: 0,
                    nodes: Some(0),
                    is_over: !lasts,
                });
            card.nodes = card.nodes.map(|nodes| nodes + 1);
            if seconds >= card.seconds {
                card.seconds = seconds;
                card.message = message.cloned().unwrap_or_default();
            }
        }
    }
    groups.into_values().collect()
}

/// What all other nodes wait for, which have no rows.
fn of_the_rest(plan: &PlanTimeline, report: &Report, now: Timestamp) -> Option<WaitCard> {
    let blocker = report.blocker.as_ref()?;
    let rest = report.waiting.saturating_sub(report.nodes.len());
    let (reason, since) = plan.blocked?;
    (rest > 0).then(|| WaitCard {
        reason: reason.into(),
        message: shorten(&blocker.to_string(), MAX_WAIT).into_owned(),
        seconds: now.duration_since(since).as_secs().max(0),
        nodes: (!report.slots.is_empty() || !report.nodes.is_empty()).then_some(rest),
        is_over: false,
    })
}
