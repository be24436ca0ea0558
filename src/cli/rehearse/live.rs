//! Tells of a rehearsal while it goes on, or has gone: line by line into a pipe; on a terminal as a timeline that passes
//! within seconds.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::lines::line;
use super::screen::Screen;
use crate::cli::output;
use crate::clock::Clock;
use crate::rehearse::play::Rehearsal;
use crate::rehearse::record::{Happening, What};
use crate::rehearse::report::{Report, offset};

/// How long a picture stays.
const FRAME: Duration = Duration::from_millis(50);
/// The timeline takes this long for each thing that happens, …
const PER_HAPPENING: usize = 40; // milliseconds
/// … within these limits.
const SHORTEST: usize = 1_000;
const LONGEST: usize = 6_000;
/// Times in which nothing happens count as this long at most, in milliseconds.
const LONGEST_GAP: i64 = 10 * 60 * 1_000;
/// How often it is said how far the rehearsal is while it is played.
const SAY: SignedDuration = SignedDuration::from_millis(100);

/// Who hears of a rehearsal.
pub(super) struct Live {
    start: Timestamp,
    way: Way,
}

enum Way {
    /// Nobody.
    Quiet,
    /// Whoever reads the pipe.
    Lines,
    /// Somebody at a terminal.
    Terminal(Box<Terminal>),
}

struct Terminal {
    heard: Vec<Happening>,
    clock: Clock,
    said: Timestamp,
    done: usize,
}

impl Live {
    pub(super) fn new(rehearsal: &Rehearsal, quiet: bool) -> Self {
        let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
        let way = if quiet {
            Way::Quiet
        } else if output::is_watched() && !dumb {
            let clock = Clock::system();
            Way::Terminal(Box::new(Terminal {
                heard: Vec::new(),
                said: clock.now(),
                clock,
                done: 0,
            }))
        } else {
            Way::Lines
        };
        Self {
            start: rehearsal.start,
            way,
        }
    }

    /// Something happened.
    pub(super) fn hear(&mut self, happening: &Happening) {
        match &mut self.way {
            Way::Quiet => {}
            Way::Lines => {
                if let Some(line) = line(happening, self.start) {
                    print(&format!("{line}\n"));
                }
            }
            Way::Terminal(terminal) => {
                terminal.heard.push(happening.clone());
                terminal.done += usize::from(happening.what == What::Done);
                let now = terminal.clock.now();
                if now.duration_since(terminal.said) >= SAY {
                    terminal.said = now;
                    let at = offset(happening.at.duration_since(self.start));
                    print(&format!("\r\x1b[Krehearsing: {at}, {} nodes done", terminal.done));
                }
            }
        }
    }

    /// It is over. On a terminal it now passes in pictures.
    pub(super) fn end(self, report: &Report) {
        match self.way {
            Way::Quiet => {}
            Way::Lines => print("\n"),
            Way::Terminal(terminal) => replay(&terminal.heard, self.start, report),
        }
    }
}

fn replay(heard: &[Happening], start: Timestamp, report: &Report) {
    print("\r\x1b[K");
    if heard.is_empty() {
        return;
    }
    let plans = report.plans.iter().map(|plan| {
        let nodes = usize::try_from(plan.selected).unwrap_or_default();
        (plan.name.clone(), nodes)
    });
    let mut screen = Screen::new(start, plans);
    let millis = (heard.len() * PER_HAPPENING).clamp(SHORTEST, LONGEST);
    let frames = Duration::from_millis(millis as u64).as_millis() / FRAME.as_millis();
    let times: Vec<Timestamp> = heard.iter().map(|happening| happening.at).collect();
    let mut rest = heard.iter().peekable();
    let mut shown = 0;
    for at in moments(start, &times, i64::try_from(frames).unwrap_or(1)) {
        while let Some(happening) = rest.next_if(|happening| happening.at <= at) {
            screen.hear(happening);
        }
        let lines = screen.frame(at, output::size());
        print(&picture(&lines, shown));
        shown = lines.len();
        std::thread::sleep(FRAME);
    }
    print(&picture(&[], shown));
}

/// The times of so many pictures: even, but for long times in which nothing happens, which pass faster.
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

/// Draws lines over those that were drawn before.
fn picture(lines: &[String], before: usize) -> String {
    let up = if before > 0 {
        format!("\x1b[{before}A")
    } else {
        String::new()
    };
    let mut picture = format!("{up}\r");
    for line in lines {
        picture.extend(["\x1b[K", line, "\n"]);
    }
    picture.push_str("\x1b[J");
    picture
}

fn print(text: &str) {
    // With nobody to tell, there is nothing left to do.
    let _ = output::data(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_times_in_which_nothing_happens_pass_faster() {
        let at = |minute: i64| Timestamp::from_second(minute * 60).unwrap();
        let even = moments(at(0), &[at(4), at(8)], 4);
        assert_eq!(even, [at(2), at(4), at(6), at(8)]);
        // Ten minutes, then a day that counts as ten, then ten.
        let day = moments(at(0), &[at(10), at(10 + 1_440), at(20 + 1_440)], 6);
        assert_eq!(day, [at(5), at(10), at(730), at(1_450), at(1_455), at(1_460)]);
        assert_eq!(moments(at(0), &[at(0)], 2), [at(0), at(0)]);
    }

    #[test]
    fn a_picture_takes_the_place_of_the_one_before() {
        let lines = ["a".to_owned(), "b".to_owned()];
        assert_eq!(picture(&lines, 0), "\r\x1b[Ka\n\x1b[Kb\n\x1b[J");
        assert_eq!(picture(&lines[..1], 2), "\x1b[2A\r\x1b[Ka\n\x1b[J");
    }
}
