//! Shows a rehearsal: as lines in a pipe; on a terminal as a bar while it computes, and then as a replay of a few seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::event_line::line;
use crate::cli::output;
use refit_api::HookPhase;
use refit_rehearse::record::{EventKind, RolloutEvent};
use refit_rehearse::report::{Report, TimeFormat};
use refit_rehearse::run::Rehearsal;

/// Time between two frames of the replay.
const FRAME: Duration = Duration::from_millis(50);
/// Events of a frame, unless the replay becomes shorter or longer than these numbers of frames.
const EVENTS_PER_FRAME: usize = 2;
const FRAMES: [usize; 2] = [20, 120];
/// A rehearsal that takes less time needs no bar.
const BAR_AFTER: Duration = Duration::from_secs(1);

pub(super) struct Progress {
    times: TimeFormat,
    mode: ProgressMode,
}

enum ProgressMode {
    Quiet,
    /// Lines for a pipe.
    Lines,
    Terminal {
        events: Vec<RolloutEvent>,
        done: BTreeSet<String>,
        bar: ProgressBar,
    },
}

impl Progress {
    pub(super) fn new(rehearsal: &Rehearsal, quiet: bool, times: &TimeFormat) -> Self {
        let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
        let mode = if quiet {
            ProgressMode::Quiet
        } else if output::is_terminal() && !dumb {
            ProgressMode::Terminal {
                events: Vec::new(),
                done: BTreeSet::new(),
                bar: bar(rehearsal.initial_cluster.nodes().len()),
            }
        } else {
            ProgressMode::Lines
        };
        Self {
            times: times.clone(),
            mode,
        }
    }

    pub(super) fn add(&mut self, event: &RolloutEvent) {
        match &mut self.mode {
            ProgressMode::Quiet => {}
            ProgressMode::Lines => {
                if let Some(line) = line(event, &self.times) {
                    print(&format!("{}\n", output::plain(&line)));
                }
            }
            ProgressMode::Terminal { events, done, bar } => {
                if bar.is_hidden() && bar.elapsed() >= BAR_AFTER {
                    bar.set_draw_target(ProgressDrawTarget::stdout());
                }
                if event.what == EventKind::Done {
                    done.extend(event.node.clone());
                    bar.set_position(done.len() as u64);
                }
                bar.set_message(format!(
                    "nodes done; rehearsing {}",
                    self.times.of_cluster(event.at)
                ));
                events.push(event.clone());
            }
        }
    }

    /// Ends the rehearsal. A terminal now shows the replay.
    pub(super) fn end(self, report: &Report) {
        match self.mode {
            ProgressMode::Quiet => {}
            ProgressMode::Lines => print("\n"),
            ProgressMode::Terminal { events, bar, .. } => {
                bar.finish_and_clear();
                replay(&events, report);
            }
        }
    }
}

/// Shows equally many events in each frame, so that a night in which nothing happens is short.
fn replay(events: &[RolloutEvent], report: &Report) {
    let plans = report
        .plans
        .iter()
        .map(|plan| (plan.name.as_str(), plan.selected));
    let mut screen = Screen::new(
        &report.times,
        &plans.collect::<Vec<_>>(),
        ProgressDrawTarget::stdout(),
    );
    let frames = (events.len() / EVENTS_PER_FRAME).clamp(FRAMES[0], FRAMES[1]);
    for frame in 0..frames {
        let [from, to] = [frame, frame + 1].map(|frame| events.len() * frame / frames);
        events[from..to].iter().for_each(|event| screen.add(event));
        std::thread::sleep(FRAME);
    }
    // Without a terminal there is nothing to clear.
    let _ = screen.bars.clear();
}

/// The time, a bar for each Plan, and a line for each node in progress.
struct Screen<'a> {
    bars: MultiProgress,
    times: &'a TimeFormat,
    clock: ProgressBar,
    plans: BTreeMap<String, ProgressBar>,
    nodes: BTreeMap<(String, String), ProgressBar>,
}

impl<'a> Screen<'a> {
    /// Plans by name, with their number of nodes.
    fn new(times: &'a TimeFormat, plans: &[(&str, i64)], target: ProgressDrawTarget) -> Self {
        let bars = MultiProgress::with_draw_target(target);
        let width = plans.iter().map(|(plan, _)| plan.chars().count()).max();
        let width = width.unwrap_or_default();
        let clock = bars.add(text_line());
        let plans = plans.iter().map(|(plan, nodes)| {
            let bar = bars.add(bar(usize::try_from(*nodes).unwrap_or_default()));
            bar.set_prefix(format!("{:width$}  ", output::one_line(plan)));
            ((*plan).to_owned(), bar)
        });
        Self {
            times,
            plans: plans.collect(),
            nodes: BTreeMap::new(),
            clock,
            bars,
        }
    }

    fn add(&mut self, event: &RolloutEvent) {
        self.clock.set_message(self.times.of_cluster(event.at));
        let Some(plan) = self.plans.get(&event.plan) else {
            return;
        };
        let Some(node) = &event.node else {
            match &event.what {
                EventKind::Waits { reason, .. } => plan.set_message(output::one_line(reason).into_owned()),
                EventKind::Hook(hook, HookPhase::Running) => {
                    plan.set_message(format!("runs {}", hook.as_str()));
                }
                EventKind::Hook(hook, HookPhase::Failed) => {
                    plan.set_message(format!("FAILED: {}", hook.as_str()));
                }
                EventKind::Resumed | EventKind::Complete | EventKind::Hook(..) => plan.set_message(""),
                EventKind::Repeats(_) => plan.set_position(0),
                _ => {}
            }
            return;
        };
        let key = (event.plan.clone(), node.clone());
        let says = match &event.what {
            EventKind::Done => {
                plan.inc(1);
                if let Some(line) = self.nodes.remove(&key) {
                    self.bars.remove(&line);
                }
                return;
            }
            EventKind::Phase(phase) => phase.to_string(),
            EventKind::Waits { reason, message } if message.is_empty() => format!("waits: {reason}"),
            EventKind::Waits { message, .. } => {
                self.times.in_message(&event.plan, &format!("waits: {message}"))
            }
            EventKind::Failed { reason, .. } => format!("FAILED: {reason}"),
            EventKind::NodeStarted => "begins".to_owned(),
            _ => "continues".to_owned(),
        };
        let line = self
            .nodes
            .entry(key)
            .or_insert_with(|| self.bars.add(text_line()));
        line.set_prefix(format!("  {}  ", output::one_line(node)));
        line.set_message(output::one_line(&says).into_owned());
    }
}

/// A bar that nothing shows yet.
fn bar(nodes: usize) -> ProgressBar {
    let template = ProgressStyle::with_template("{prefix}[{bar:24}] {pos}/{len} {wide_msg}");
    let style = template.unwrap_or_else(|_| ProgressStyle::default_bar());
    let hidden = ProgressDrawTarget::hidden();
    ProgressBar::with_draw_target(Some(nodes as u64), hidden).with_style(style.progress_chars("#."))
}

fn text_line() -> ProgressBar {
    let template = ProgressStyle::with_template("{prefix}{wide_msg}");
    let style = template.unwrap_or_else(|_| ProgressStyle::default_spinner());
    ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()).with_style(style)
}

fn print(text: &str) {
    // If standard output is closed, the line is lost.
    let _ = output::raw(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use refit_api::{NodePhase, Reason};

    #[test]
    fn there_is_a_bar_for_a_plan_and_a_line_for_each_node_in_progress() {
        let at = "2026-01-05T09:00:00Z".parse().unwrap();
        let times = TimeFormat::since(at);
        let mut screen = Screen::new(&times, &[("k3s", 4)], ProgressDrawTarget::hidden());
        let mut add = |node: &str, what: EventKind| {
            screen.add(&RolloutEvent {
                at,
                plan: "k3s".to_owned(),
                node: Some(node.to_owned()).filter(|node| !node.is_empty()),
                what,
            });
            let lines = screen.nodes.values().map(|line| line.prefix() + &line.message());
            let plan = &screen.plans["k3s"];
            (plan.position(), plan.message(), lines.collect::<Vec<_>>())
        };
        add("node-1", EventKind::NodeStarted);
        add("node-2", EventKind::NodeStarted);
        let (done, _, lines) = add("node-1", EventKind::Done);
        assert_eq!((done, lines), (1, vec!["  node-2  begins".to_owned()]));
        add("node-2", EventKind::Phase(NodePhase::Draining.into()));
        let waits = |message: &str| EventKind::Waits {
            reason: Reason::DrainWaiting.into(),
            message: message.to_owned(),
        };
        let (_, _, lines) = add("node-2", waits("shop/\x1b[2Jweb waits"));
        assert_eq!(lines, ["  node-2  waits: shop/\\x1b[2Jweb waits"]);
        let (done, says, _) = add("", waits(""));
        assert_eq!((done, says.as_str()), (1, "DrainWaiting"));
        assert_eq!(add("", EventKind::Repeats(String::new())).0, 0);
    }
}
