//! The timeline on a terminal: a bar for each Plan, a line for each node in progress. Pure: events and the time are
//! arguments, and lines are the result.

use std::collections::BTreeMap;

use jiff::Timestamp;

use refit_api::{NodePhase, OpenEnum};
use refit_rehearse::record::{EventKind, RolloutEvent};
use refit_rehearse::report::TimeFormat;
use refit_rehearse::verdict::duration;

const BAR: usize = 24;

/// The state of the screen.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    times: TimeFormat,
    plans: Vec<Bar>,
    rows: BTreeMap<(String, String), Row>,
}

#[derive(Clone, Debug)]
struct Bar {
    plan: String,
    nodes: usize,
    done: usize,
    failed: usize,
    waits: Option<String>,
}

#[derive(Clone, Debug)]
struct Row {
    since: Timestamp,
    /// `None` before its first phase.
    phase: Option<OpenEnum<NodePhase>>,
    waits: Option<String>,
}

impl Timeline {
    /// Plans by name, with their number of nodes.
    pub(super) fn new(times: TimeFormat, plans: impl IntoIterator<Item = (String, usize)>) -> Self {
        let bar = |(plan, nodes)| Bar {
            plan,
            nodes,
            done: 0,
            failed: 0,
            waits: None,
        };
        Self {
            times,
            plans: plans.into_iter().map(bar).collect(),
            rows: BTreeMap::new(),
        }
    }

    pub(super) fn add(&mut self, event: &RolloutEvent) {
        let Some(bar) = self.plans.iter_mut().find(|bar| bar.plan == event.plan) else {
            return;
        };
        let Some(node) = &event.node else {
            match &event.what {
                EventKind::Waits { reason, .. } => bar.waits = Some(reason.to_string()),
                EventKind::Resumed | EventKind::Complete => bar.waits = None,
                EventKind::Repeats(_) => (bar.done, bar.failed) = (0, 0),
                _ => {}
            }
            return;
        };
        let key = (event.plan.clone(), node.clone());
        match &event.what {
            EventKind::NodeStarted => {
                self.rows.insert(
                    key,
                    Row {
                        since: event.at,
                        phase: None,
                        waits: None,
                    },
                );
            }
            EventKind::Phase(phase) => {
                if let Some(row) = self.rows.get_mut(&key) {
                    row.phase = Some(phase.clone());
                }
            }
            EventKind::Waits { reason, message } => {
                if let Some(row) = self.rows.get_mut(&key) {
                    let text = if message.is_empty() {
                        reason.as_str()
                    } else {
                        message
                    };
                    let text = self.times.in_message(&event.plan, text);
                    row.waits = Some(text.split_whitespace().collect::<Vec<_>>().join(" "));
                }
            }
            EventKind::Resumed => {
                if let Some(row) = self.rows.get_mut(&key) {
                    row.waits = None;
                }
            }
            EventKind::Done => {
                bar.done += 1;
                self.rows.remove(&key);
            }
            EventKind::Failed { reason, .. } => {
                bar.failed += 1;
                if let Some(row) = self.rows.get_mut(&key) {
                    row.phase = Some(NodePhase::Failed.into());
                    row.waits = Some(reason.to_string());
                }
            }
            EventKind::Resolved(_) | EventKind::Complete | EventKind::Repeats(_) => {}
        }
    }

    /// The screen at that time, within so many lines and columns.
    pub(super) fn frame(&self, at: Timestamp, (lines, columns): (usize, usize)) -> Vec<String> {
        let shown = self.times.of_cluster(at);
        let mut frame = vec![if self.times.is_clock() {
            shown
        } else {
            format!("{shown}  {}", at.strftime("%a %Y-%m-%d %H:%M UTC"))
        }];
        let width = self.plans.iter().map(|bar| bar.plan.chars().count()).max();
        let width = width.unwrap_or_default();
        frame.extend(self.plans.iter().map(|bar| bar.line(width)));
        let room = lines.saturating_sub(frame.len() + 2);
        let names = self.rows.keys().take(room).map(|(_, node)| node.chars().count());
        let node_width = names.max().unwrap_or_default();
        for ((plan, node), row) in self.rows.iter().take(room) {
            let took = duration(at.duration_since(row.since));
            let waits = row.waits.as_deref().unwrap_or_default();
            frame.push(format!(
                "  {plan:width$}  {node:node_width$}  {:<10} {took:>7}  {waits}",
                row.phase.as_deref().unwrap_or_default()
            ));
        }
        if self.rows.len() > room {
            frame.push(format!("  … and {} more", self.rows.len() - room));
        }
        for line in &mut frame {
            let cut: String = line.chars().take(columns.saturating_sub(1)).collect();
            cut.trim_end().clone_into(line);
        }
        frame
    }
}

impl Bar {
    fn line(&self, width: usize) -> String {
        let full = (BAR * self.done)
            .checked_div(self.nodes)
            .unwrap_or_default()
            .min(BAR);
        let bar: String = (0..BAR)
            .map(|place| if place < full { '#' } else { '.' })
            .collect();
        let failed = match self.failed {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        let waits = self
            .waits
            .as_deref()
            .map_or_else(String::new, |waits| format!("  {waits}"));
        format!(
            "{:width$}  [{bar}] {}/{}{failed}{waits}",
            self.plan, self.done, self.nodes
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use refit_api::Reason;

    fn at(minute: u8) -> Timestamp {
        format!("2026-01-05T09:{minute:02}:00Z").parse().unwrap()
    }

    fn timeline(events: &[(u8, Option<&str>, EventKind)]) -> Timeline {
        let mut timeline = Timeline::new(TimeFormat::since(at(0)), [("k3s".to_owned(), 4)]);
        for (minute, node, what) in events {
            timeline.add(&RolloutEvent {
                at: at(*minute),
                plan: "k3s".to_owned(),
                node: node.map(str::to_owned),
                what: what.clone(),
            });
        }
        timeline
    }

    #[test]
    fn there_is_a_bar_for_a_plan_and_a_line_for_a_node() {
        let waits = EventKind::Waits {
            reason: Reason::DrainWaiting.into(),
            message: "shop/web-1 waits".to_owned(),
        };
        let timeline = timeline(&[
            (0, Some("node-1"), EventKind::NodeStarted),
            (4, Some("node-1"), EventKind::Done),
            (4, Some("node-2"), EventKind::NodeStarted),
            (5, Some("node-2"), EventKind::Phase(NodePhase::Draining.into())),
            (5, Some("node-2"), waits),
        ]);
        assert_eq!(
            timeline.frame(at(6), (24, 80)),
            [
                "+0:06:00  Mon 2026-01-05 09:06 UTC",
                "k3s  [######..................] 1/4",
                "  k3s  node-2  Draining        2m  shop/web-1 waits",
            ]
        );
    }

    #[test]
    fn a_frame_fits_the_terminal() {
        let names: Vec<String> = (0..30).map(|number| format!("node-{number}")).collect();
        let begun: Vec<_> = names
            .iter()
            .map(|name| (0, Some(name.as_str()), EventKind::NodeStarted))
            .collect();
        let frame = timeline(&begun).frame(at(1), (12, 20));
        assert_eq!(frame.len(), 11);
        assert!(frame.iter().all(|line| line.chars().count() < 20), "{frame:?}");
        assert_eq!(frame[10], "  … and 22 more");
    }
}
