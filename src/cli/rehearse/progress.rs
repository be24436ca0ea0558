//! Shows the progress of a rehearsal: as lines in a pipe, or on a terminal as a timeline of a few seconds.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::event_line::line;
use super::timeline::Timeline;
use crate::cli::output;
use refit_cluster::clock::Clock;
use refit_rehearse::record::{EventKind, RolloutEvent};
use refit_rehearse::report::{Report, TimeFormat};
use refit_rehearse::run::Rehearsal;

/// Time between two frames.
const FRAME: Duration = Duration::from_millis(50);
/// Duration of the timeline for each event, …
const PER_HAPPENING: usize = 40; // milliseconds
/// … within these limits.
const SHORTEST: usize = 1_000;
const LONGEST: usize = 6_000;
/// Maximum time without events, in milliseconds; longer ones are shortened to it.
const LONGEST_GAP: i64 = 10 * 60 * 1_000;
/// Delay before a terminal shows how far a rehearsal is.
const PROGRESS_AFTER: SignedDuration = SignedDuration::from_millis(100);

pub(super) struct Progress {
    start: Timestamp,
    times: TimeFormat,
    mode: ProgressMode,
}

enum ProgressMode {
    Quiet,
    /// Lines for a pipe.
    Lines,
    Terminal(Box<Terminal>),
}

struct Terminal {
    events: Vec<RolloutEvent>,
    clock: Clock,
    said: Timestamp,
    done: usize,
}

impl Progress {
    pub(super) fn new(rehearsal: &Rehearsal, quiet: bool, times: &TimeFormat) -> Self {
        let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
        let mode = if quiet {
            ProgressMode::Quiet
        } else if output::is_terminal() && !dumb {
            let clock = Clock::system();
            ProgressMode::Terminal(Box::new(Terminal {
                events: Vec::new(),
                said: clock.now(),
                clock,
                done: 0,
            }))
        } else {
            ProgressMode::Lines
        };
        Self {
            start: rehearsal.start,
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
            ProgressMode::Terminal(terminal) => {
                terminal.events.push(event.clone());
                terminal.done += usize::from(event.what == EventKind::Done);
                let now = terminal.clock.now();
                if now.duration_since(terminal.said) >= PROGRESS_AFTER {
                    terminal.said = now;
                    let at = self.times.of_cluster(event.at);
                    print(&format!("\r\x1b[Krehearsing: {at}, {} nodes done", terminal.done));
                }
            }
        }
    }

    /// Ends the rehearsal. A terminal now shows the timeline.
    pub(super) fn end(self, report: &Report) {
        match self.mode {
            ProgressMode::Quiet => {}
            ProgressMode::Lines => print("\n"),
            ProgressMode::Terminal(terminal) => replay(&terminal.events, self.start, report),
        }
    }
}

fn replay(events: &[RolloutEvent], start: Timestamp, report: &Report) {
    print("\r\x1b[K");
    if events.is_empty() {
        return;
    }
    let plans = report.plans.iter().map(|plan| {
        let nodes = usize::try_from(plan.selected).unwrap_or_default();
        (plan.name.clone(), nodes)
    });
    let mut timeline = Timeline::new(report.times.clone(), plans);
    let millis = (events.len() * PER_HAPPENING).clamp(SHORTEST, LONGEST);
    let frames = Duration::from_millis(millis as u64).as_millis() / FRAME.as_millis();
    let times: Vec<Timestamp> = events.iter().map(|event| event.at).collect();
    let mut rest = events.iter().peekable();
    let mut shown = 0;
    for at in moments(start, &times, i64::try_from(frames).unwrap_or(1)) {
        while let Some(event) = rest.next_if(|event| event.at <= at) {
            timeline.add(event);
        }
        let lines = timeline.frame(at, output::size());
        print(&frame_text(&lines, shown));
        shown = lines.len();
        std::thread::sleep(FRAME);
    }
    print(&frame_text(&[], shown));
}

/// The times of the frames: evenly spaced, except that long times without events are shortened.
fn moments(start: Timestamp, times: &[Timestamp], frames: i64) -> Vec<Timestamp> {
    let mut knots = vec![(0, start)];
    let (mut shown, mut last) = (0, start);
    for time in times {
        let gap = time.duration_since(last).as_millis();
        shown += i64::try_from(gap).unwrap_or_default().clamp(0, LONGEST_GAP);
        knots.push((shown, *time));
        last = *time;
    }
    let moment = |frame: i64| {
        let at = shown * frame / frames;
        let next = knots.partition_point(|(known, _)| *known < at).max(1);
        let (Some((from, since)), Some((to, until))) = (knots.get(next - 1), knots.get(next)) else {
            return last;
        };
        let whole = i64::try_from(until.duration_since(*since).as_millis()).unwrap_or_default();
        let part = i128::from(whole) * i128::from(at - from) / i128::from((to - from).max(1));
        let part = SignedDuration::from_millis(i64::try_from(part).unwrap_or_default());
        since.checked_add(part).unwrap_or(last)
    };
    (1..=frames).map(moment).collect()
}

/// Draws lines over the previous ones.
fn frame_text(lines: &[String], before: usize) -> String {
    let up = if before > 0 {
        format!("\x1b[{before}A")
    } else {
        String::new()
    };
    let mut frame_text = format!("{up}\r");
    for line in lines {
        frame_text.extend(["\x1b[K", &*output::plain(line), "\n"]);
    }
    frame_text.push_str("\x1b[J");
    frame_text
}

fn print(text: &str) {
    // If standard output is closed, the frame is lost.
    let _ = output::raw(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_times_in_which_nothing_happens_pass_faster() {
        let at = |minute: i64| Timestamp::from_second(minute * 60).unwrap();
        let even = moments(at(0), &[at(4), at(8)], 4);
        assert_eq!(even, [at(2), at(4), at(6), at(8)]);
        // Ten minutes, then a day that is shortened to ten, then ten.
        let day = moments(at(0), &[at(10), at(10 + 1_440), at(20 + 1_440)], 6);
        assert_eq!(day, [at(5), at(10), at(730), at(1_450), at(1_455), at(1_460)]);
        assert_eq!(moments(at(0), &[at(0)], 2), [at(0), at(0)]);
    }

    #[test]
    fn a_frame_replaces_the_one_before() {
        let lines = ["a".to_owned(), "b".to_owned()];
        assert_eq!(frame_text(&lines, 0), "\r\x1b[Ka\n\x1b[Kb\n\x1b[J");
        assert_eq!(frame_text(&lines[..1], 2), "\x1b[2A\r\x1b[Ka\n\x1b[J");
    }
}
