//! What a rehearsal tells, as text for people.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};

use super::{Report, WaitReport};
use crate::rehearse::verdict::{counted, duration, one_line};

/// Rows of a table that are shown at most; of more, the first and the last half.
const ROWS: usize = 60;
/// Waits that are told.
const WAITS: usize = 10;
/// Shorter waits are how a roll-out goes.
const WORTH_TELLING: SignedDuration = SignedDuration::from_secs(15);

impl Report {
    /// As JSON, for programs.
    pub fn to_json(&self) -> String {
        // Nothing in it can fail.
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        format!("{text}\n")
    }

    /// As text, for people. The last line is the verdict.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        self.write_turns(&mut text);
        self.write_plans(&mut text);
        self.write_waits(&mut text);
        self.write_warnings(&mut text);
        for reason in self.verdict.reasons.iter().skip(1).rev() {
            line(&mut text, &format!("Plan {} {}", reason.plan, reason.why));
        }
        line(&mut text, &self.verdict.line);
        text
    }

    fn write_turns(&self, text: &mut String) {
        if self.turns.is_empty() {
            return;
        }
        let mut rows = vec![["", "NODE", "PLAN", "START", "END", "TOOK", "RESULT"].map(str::to_owned)];
        for (number, turn) in self.turns.iter().enumerate() {
            let took = turn
                .end
                .map_or_else(|| "-".to_owned(), |end| duration(end.duration_since(turn.start)));
            let result = match &turn.reason {
                Some(reason) => format!("{}: {reason}", turn.result),
                None => turn.result.to_owned(),
            };
            rows.push([
                (number + 1).to_string(),
                turn.node.clone(),
                turn.plan.clone(),
                self.at(turn.start),
                turn.end.map_or_else(|| "-".to_owned(), |end| self.at(end)),
                took,
                result,
            ]);
        }
        table(text, &rows);
        text.push('\n');
    }

    fn write_plans(&self, text: &mut String) {
        let heads = ["PLAN", "VERSION", "DONE", "FAILED", "WAITING", "FIRST", "LAST"];
        let mut rows = vec![heads.map(str::to_owned)];
        for plan in &self.plans {
            let at = |time: Option<Timestamp>| time.map_or_else(|| "-".to_owned(), |time| self.at(time));
            let other = if plan.rehearsed { "" } else { " (on the cluster)" };
            rows.push([
                format!("{}{other}", plan.name),
                plan.version.clone().unwrap_or_else(|| "-".to_owned()),
                format!("{}/{}", plan.done, plan.selected),
                plan.failed.to_string(),
                plan.waiting.to_string(),
                at(plan.start),
                at(plan.end),
            ]);
        }
        table(text, &rows);
        text.push('\n');
    }

    fn write_waits(&self, text: &mut String) {
        let worth = |wait: &&WaitReport| {
            SignedDuration::from_secs(wait.seconds) >= WORTH_TELLING || wait.end.is_none()
        };
        let told: Vec<&WaitReport> = self.waits.iter().filter(worth).collect();
        if told.is_empty() {
            return;
        }
        line(text, "Longest waits:");
        for wait in told.iter().take(WAITS) {
            let who = wait.node.as_deref().unwrap_or("all nodes");
            let long = match wait.end {
                Some(_) => duration(SignedDuration::from_secs(wait.seconds)),
                None => "forever".to_owned(),
            };
            let mut what = format!(
                "  {long:>7}  {who} of {} for {} (from {})",
                wait.plan,
                wait.blocker,
                self.at(wait.start)
            );
            if wait.blocker == wait.reason && !wait.message.is_empty() {
                let _ = write!(what, ": {}", one_line(&wait.message));
            }
            line(text, &what);
        }
        if told.len() > WAITS {
            line(text, &format!("  … and {} more", told.len() - WAITS));
        }
        text.push('\n');
    }

    fn write_warnings(&self, text: &mut String) {
        let before = text.len();
        for budget in &self.budgets_that_never_allow {
            line(
                text,
                &format!("PodDisruptionBudget {budget} never lets a pod go, not even when all are ready"),
            );
        }
        for plan in &self.plans {
            let Some(window) = &plan.window else { continue };
            if window.used > 1 {
                let what = format!("Plan {} needs {} openings of its window", plan.name, window.used);
                line(text, &format!("{what} ({})", window.window));
            }
            if window.shorter_than_a_node {
                let what = "is open for a shorter time than the work on a node takes";
                line(
                    text,
                    &format!("The window of Plan {} ({}) {what}", plan.name, window.window),
                );
            }
            if window.late > 0 {
                line(
                    text,
                    &format!(
                        "{} of Plan {} {} after its window has closed, up to {} later: what is under way is let finish",
                        counted(window.late, "node"),
                        plan.name,
                        if window.late == 1 { "ends" } else { "end" },
                        duration(SignedDuration::from_secs(window.late_seconds))
                    ),
                );
            }
        }
        if !self.cordoned.is_empty() {
            line(text, &format!("Still cordoned: {}", shortened(&self.cordoned)));
        }
        if text.len() > before {
            text.push('\n');
        }
    }

    /// A time since the start.
    fn at(&self, time: Timestamp) -> String {
        offset(time.duration_since(self.start))
    }
}

/// `+1:02:03`.
pub fn offset(since: SignedDuration) -> String {
    let seconds = since.as_secs().max(0);
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    if hours < 24 {
        format!("+{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("+{}d {:02}:{minutes:02}:{seconds:02}", hours / 24, hours % 24)
    }
}

fn shortened(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<&str> = names.iter().take(SHOWN).map(String::as_str).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// A table with its columns aligned. Of many rows, those in the middle are counted.
fn table<const N: usize>(text: &mut String, rows: &[[String; N]]) {
    let cut = rows.len() > ROWS + 1;
    let shown: Vec<&[String; N]> = rows
        .iter()
        .enumerate()
        .filter(|(index, _)| !cut || *index <= ROWS / 2 || *index >= rows.len() - ROWS / 2)
        .map(|(_, row)| row)
        .collect();
    let width = |column: usize| {
        let widths = shown.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    for (index, row) in shown.iter().enumerate() {
        if cut && index == ROWS / 2 + 1 {
            line(
                text,
                &format!("… {} more (-o json has all)", rows.len() - shown.len()),
            );
        }
        let cells = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(column, (cell, width))| {
                // The first column is a number, or a name.
                if column == 0 && cell.chars().all(|c| c.is_ascii_digit()) {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:width$}")
                }
            });
        let cells: Vec<String> = cells.collect();
        line(text, cells.join("  ").trim_end());
    }
}
