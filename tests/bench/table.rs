//! Figures beside their budgets, and the times that are measured.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::ROUNDS;
use crate::testenv::{process, terminal};

/// Figures and their budgets.
#[derive(Default)]
pub(super) struct Table {
    pub(super) over: Vec<String>,
    /// Results of figures that are measured several times.
    found: BTreeMap<String, Vec<f64>>,
}

impl Table {
    pub(super) fn row(&mut self, what: &str, found: f64, unit: &str, budget: Option<f64>) {
        let limit = budget.map_or_else(String::new, |budget| format!("≤ {budget} {unit}"));
        let verdict = match budget {
            Some(budget) if found > budget => "OVER",
            Some(_) => "ok",
            None => "",
        };
        let line = format!("{what:<72} {found:>9.2} {unit:<10} {limit:<16} {verdict}");
        terminal::say(&line);
        if verdict == "OVER" {
            self.over.push(line);
        }
    }

    /// Adds a figure that is measured [`ROUNDS`] times, of which the median is judged: the speed of a machine varies by
    /// a third within minutes.
    pub(super) fn round(&mut self, what: &str, found: f64, unit: &str, budget: f64) {
        let all = self.found.entry(what.to_owned()).or_default();
        all.push(found);
        let (round, median) = (all.len(), median(all));
        self.row(&format!("{what}, round {round} of {ROUNDS}"), found, unit, None);
        if round == ROUNDS {
            self.row(&format!("{what}, median"), median, unit, Some(budget));
        }
    }

    pub(super) fn processor(&mut self, title: &str, of: &str, what: &Took) {
        if let Some(processor) = what.processor {
            let title = format!("{title}: processor time of all, {of}");
            self.row(&title, processor.as_secs_f64(), "s", None);
        }
    }
}

/// Measured times.
pub(super) struct Took {
    pub(super) took: Duration,
    /// Processor time of the whole machine, if available.
    processor: Option<Duration>,
}

pub(super) struct Span {
    began: Instant,
    busy: Option<Duration>,
}

impl Span {
    pub(super) fn begin() -> Self {
        Self {
            began: Instant::now(),
            busy: process::machine_busy(),
        }
    }

    pub(super) fn end(self) -> Took {
        let busy = process::machine_busy().zip(self.busy);
        Took {
            took: self.began.elapsed(),
            processor: busy.map(|(now, then)| now.saturating_sub(then)),
        }
    }
}

pub(super) fn median(all: &[f64]) -> f64 {
    let mut all = all.to_vec();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or_default()
}
