//! The timeline on a terminal: a bar for each Plan, a line for each node that is worked on. Pure: what happened and the time
//! come in, lines come out.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::rehearse::record::{Happening, What};
use crate::rehearse::report::offset;
use crate::rehearse::verdict::duration;

/// Width of the bars.
const BAR: usize = 24;

/// What is on the screen.
#[derive(Clone, Debug)]
pub(super) struct Screen {
    start: Timestamp,
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
    phase: String,
    waits: Option<String>,
}

impl Screen {
    /// Plans by name, with how many nodes they are for.
    pub(super) fn new(start: Timestamp, plans: impl IntoIterator<Item = (String, usize)>) -> Self {
        let bar = |(plan, nodes)| Bar {
            plan,
            nodes,
            done: 0,
            failed: 0,
            waits: None,
        };
        Self {
            start,
            plans: plans.into_iter().map(bar).collect(),
            rows: BTreeMap::new(),
        }
    }

    /// Takes in what happened.
    pub(super) fn hear(&mut self, happening: &Happening) {
        let Some(bar) = self.plans.iter_mut().find(|bar| bar.plan == happening.plan) else {
            return;
        };
        let Some(node) = &happening.node else {
            match &happening.what {
                What::Waits { reason, .. } => bar.waits = Some(reason.clone()),
                What::GoesOn | What::Complete => bar.waits = None,
                _ => {}
            }
            return;
        };
        let key = (happening.plan.clone(), node.clone());
        match &happening.what {
            What::Begins => {
                self.rows.insert(
                    key,
                    Row {
                        since: happening.at,
                        phase: String::new(),
                        waits: None,
                    },
                );
            }
            What::Phase(phase) => {
                if let Some(row) = self.rows.get_mut(&key) {
                    row.phase.clone_from(phase);
                }
            }
            What::Waits { reason, message } => {
                if let Some(row) = self.rows.get_mut(&key) {
                    let text = if message.is_empty() { reason } else { message };
                    row.waits = Some(text.split_whitespace().collect::<Vec<_>>().join(" "));
                }
            }
            What::GoesOn => {
                if let Some(row) = self.rows.get_mut(&key) {
                    row.waits = None;
                }
            }
            What::Done => {
                bar.done += 1;
                self.rows.remove(&key);
            }
            What::Failed { reason, .. } => {
                bar.failed += 1;
                if let Some(row) = self.rows.get_mut(&key) {
                    "Failed".clone_into(&mut row.phase);
                    row.waits = Some(reason.clone());
                }
            }
            What::Resolved(_) | What::Complete => {}
        }
    }

    /// The screen at that time, in so many lines and columns at most.
    pub(super) fn frame(&self, at: Timestamp, (lines, columns): (usize, usize)) -> Vec<String> {
        let clock = at.strftime("%a %Y-%m-%d %H:%M UTC");
        let mut frame = vec![format!("{}  {clock}", offset(at.duration_since(self.start)))];
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
                row.phase
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

    fn at(minute: u8) -> Timestamp {
        format!("2026-01-05T09:{minute:02}:00Z").parse().unwrap()
    }

    fn screen(happenings: &[(u8, Option<&str>, What)]) -> Screen {
        let mut screen = Screen::new(at(0), [("k3s".to_owned(), 4)]);
        for (minute, node, what) in happenings {
            screen.hear(&Happening {
                at: at(*minute),
                plan: "k3s".to_owned(),
                node: node.map(str::to_owned),
                what: what.clone(),
            });
        }
        screen
    }

    #[test]
    fn there_is_a_bar_for_a_plan_and_a_line_for_a_node() {
        let waits = What::Waits {
            reason: "DrainWaiting".to_owned(),
            message: "shop/web-1 waits".to_owned(),
        };
        let screen = screen(&[
            (0, Some("node-1"), What::Begins),
            (4, Some("node-1"), What::Done),
            (4, Some("node-2"), What::Begins),
            (5, Some("node-2"), What::Phase("Draining".to_owned())),
            (5, Some("node-2"), waits),
        ]);
        assert_eq!(
            screen.frame(at(6), (24, 80)),
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
            .map(|name| (0, Some(name.as_str()), What::Begins))
            .collect();
        let frame = screen(&begun).frame(at(1), (12, 20));
        assert_eq!(frame.len(), 11);
        assert!(frame.iter().all(|line| line.chars().count() < 20), "{frame:?}");
        assert_eq!(frame[10], "  … and 22 more");
    }
}
