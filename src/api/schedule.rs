//! `spec.windows` and `spec.blackouts`: when nodes may start.
//!
//! Pure, like [`window`](super::window), whose rules for summer time and for zones hold here, too.

mod blackout;
mod cron;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use blackout::{Blackout, BlackoutSpec};
pub(super) use cron::Cron;

use super::invalid::{ErrorList, FieldPath};
use super::window::{Day, TimeWindowSpec, Window, zone};
use refit_base::go::GoDuration;

/// Longest `duration` of a window.
const MAX_DURATION: SignedDuration = SignedDuration::from_hours(7 * 24);
/// How many openings to follow: blackouts can hide many.
const MAX_CHANGES: usize = 400;
/// How many times windows are evaluated for one answer. A window that opens every minute is followed
/// up to `OPEN_FOR_GOOD`.
const MAX_EVALUATIONS: usize = 12_000;
/// How long windows must stay open to count as always open.
const OPEN_FOR_GOOD: SignedDuration = SignedDuration::from_hours(8 * 24);
/// How far to look for the longest opening.
const HORIZON: SignedDuration = SignedDuration::from_hours(5 * 7 * 24);

/// A time window: `days` from `startTime` to `endTime`, as in `spec.window`, or `duration` from each time that `cron` names.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WindowSpec {
    /// Days of the week, such as `mo`, `mon` or `monday`, or `0` (Sunday) to `6`. Required without `cron`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<Day>>", length(min = 1))]
    pub days: Option<Vec<String>>,
    /// Start, such as `22:00`, `22:00:30` or `10pm`. Required without `cron`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<String>,
    /// End, in the formats of `startTime`. Required without `cron`.
    ///
    /// An overnight window ends before it starts, and belongs to the day on which it starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_time: Option<String>,
    /// When the window opens, as minute, hour, day of the month, month, day of the week: `0 22 * * fri` is Friday at
    /// ten in the evening.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// How long the window stays open, as a Go duration such as `4h`, up to seven days. Required with `cron`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// IANA time zone such as `Europe/Berlin`, or `Local` for that of the controller. Defaults to UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
}

/// One of `spec.windows`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanWindow {
    Weekly(Window),
    Cron { cron: Box<CronWindow> },
}

/// A window that opens at the times of a cron expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronWindow {
    text: String,
    cron: Cron,
    duration: SignedDuration,
    zone: TimeZone,
}

impl PlanWindow {
    /// Parses a window. `local` is the zone of the process, which `Local` means.
    ///
    /// # Errors
    /// Fails with all errors.
    pub fn parse(spec: &WindowSpec, local: &TimeZone) -> Result<Self, ErrorList> {
        const EITHER: &str = "use either cron and duration, or days, startTime and endTime";
        let field = FieldPath::root;
        let Some(text) = &spec.cron else {
            if spec.duration.is_some() {
                let problem = format!("it has duration without cron: {EITHER}");
                let error = field("duration")
                    .says(problem)
                    .hint("remove it, or add a cron expression");
                return Err(error.into());
            }
            return Self::weekly(spec, local);
        };
        let mut errors = ErrorList::default();
        let others = [
            ("days", spec.days.is_some()),
            ("startTime", spec.start_time.is_some()),
            ("endTime", spec.end_time.is_some()),
        ];
        for (name, _) in others.into_iter().filter(|(_, is_set)| *is_set) {
            let problem = format!("it has both cron and {name}: {EITHER}");
            errors.push(field(name).says(problem).hint("remove it"));
        }
        let cron = errors.take(Cron::of_field(&field("cron"), text, "so the window never opens"));
        let duration = spec.duration.as_deref().unwrap_or_default();
        let length = duration.parse::<GoDuration>().ok();
        let length = length.map(|length| SignedDuration::from_nanos(length.as_nanos()));
        let length = length.filter(|length| length.is_positive() && *length <= MAX_DURATION);
        let length = errors.take(length.ok_or_else(|| {
            field("duration").invalid(format_args!(
                "is {duration:?}: it must be a Go duration such as \"4h\", more than 0s and up to seven days"
            ))
        }));
        let zone = zone(spec.time_zone.as_deref(), local).map_err(|why| field("timeZone").says(why));
        let zone = errors.take(zone);
        match (zone, cron, length) {
            (Some(zone), Some(cron), Some(duration)) if errors.is_empty() => Ok(Self::Cron {
                cron: Box::new(CronWindow {
                    text: text.clone(),
                    cron,
                    duration,
                    zone,
                }),
            }),
            _ => Err(errors),
        }
    }

    fn weekly(spec: &WindowSpec, local: &TimeZone) -> Result<Self, ErrorList> {
        let mut errors = ErrorList::default();
        if spec.days.iter().flatten().all(String::is_empty) {
            errors.push(FieldPath::root("days").says("it has no days, so that it never opens"));
        }
        let window = TimeWindowSpec {
            days: spec.days.clone(),
            start_time: spec.start_time.clone(),
            end_time: spec.end_time.clone(),
            time_zone: spec.time_zone.clone(),
        };
        let window = errors.take(Window::parse(&window, local));
        errors.finish(window.map(Self::Weekly))
    }

    pub fn zone(&self) -> &TimeZone {
        match self {
            Self::Weekly(window) => window.zone(),
            Self::Cron { cron } => &cron.zone,
        }
    }

    fn contains(&self, now: Timestamp) -> bool {
        match self {
            Self::Weekly(window) => window.contains(now),
            Self::Cron { cron } => cron.end(now).is_some(),
        }
    }

    fn next_open(&self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Weekly(window) => window.next_open(now),
            Self::Cron { cron } if cron.end(now).is_some() => Some(now),
            Self::Cron { cron } => cron.cron.next(now, &cron.zone),
        }
    }

    /// When the window closes; `None` if it is closed. `Timestamp::MAX` if it never closes.
    fn closes(&self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Weekly(window) => {
                let is_open = window.contains(now);
                is_open.then(|| window.closes(now).unwrap_or(Timestamp::MAX))
            }
            Self::Cron { cron } => cron.end(now),
        }
    }
}

impl CronWindow {
    /// The end of the opening that contains `now`. Another opening that overlaps it may end later.
    fn end(&self, now: Timestamp) -> Option<Timestamp> {
        let just_closed = now.checked_sub(self.duration).ok()?;
        // An opening that began exactly `duration` ago ends at `now`, and does not contain it.
        let after = just_closed.checked_add(SignedDuration::from_nanos(1)).ok()?;
        let opened = self.cron.next_until(after, now, &self.zone)?;
        opened.checked_add(self.duration).ok()
    }
}

impl std::fmt::Display for PlanWindow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Weekly(window) => window.fmt(f),
            Self::Cron { cron } => {
                let zone = cron.zone.iana_name().unwrap_or("Local");
                write!(f, "{} for {:#} {zone}", cron.text, cron.duration)
            }
        }
    }
}

/// Several windows: open while one of them is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Windows(pub Vec<PlanWindow>);

impl Windows {
    pub fn contains(&self, now: Timestamp) -> bool {
        self.0.iter().any(|window| window.contains(now))
    }

    pub fn next_open(&self, now: Timestamp) -> Option<Timestamp> {
        self.0.iter().filter_map(|window| window.next_open(now)).min()
    }

    /// When the last of the windows that follow each other without a pause closes, or, if that takes too long to
    /// compute, a time until which they stay open. `None` if none is open, or never closes.
    pub fn closes(&self, now: Timestamp) -> Option<Timestamp> {
        self.closes_within(now, &mut { MAX_EVALUATIONS })
    }

    fn closes_within(&self, now: Timestamp, evaluations: &mut usize) -> Option<Timestamp> {
        let mut at = now;
        while let Some(left) = evaluations.checked_sub(self.0.len()) {
            *evaluations = left;
            let ends = self.0.iter().filter_map(|window| window.closes(at));
            let Some(end) = ends.max() else {
                return (at > now).then_some(at);
            };
            if end <= at {
                return None;
            }
            at = end;
            if at.duration_since(now) > OPEN_FOR_GOOD {
                return None;
            }
        }
        (at > now).then_some(at)
    }

    /// The length of the longest opening of the next weeks, as far as it can be computed soon. `None` if one never closes.
    pub fn longest(&self, now: Timestamp) -> Option<SignedDuration> {
        let mut evaluations = MAX_EVALUATIONS;
        let mut longest = SignedDuration::ZERO;
        let mut at = now;
        // A week has no more openings than a person would write; a yearly one is met once.
        while let Some(left) = evaluations.checked_sub(self.0.len()) {
            evaluations = left;
            let Some(opens) = self.next_open(at) else { break };
            let Some(closes) = self.closes_within(opens, &mut evaluations) else {
                return if evaluations < self.0.len() {
                    Some(longest)
                } else {
                    None
                };
            };
            longest = longest.max(closes.duration_since(opens));
            at = closes;
            if at.duration_since(now) > HORIZON {
                break;
            }
        }
        Some(longest)
    }
}

impl std::fmt::Display for Windows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, window) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{window}")?;
        }
        Ok(())
    }
}

/// The blackout that contains `now` and lasts longest.
pub fn blackout_at(blackouts: &[Blackout], now: Timestamp) -> Option<(&Blackout, Timestamp)> {
    let current = blackouts.iter().filter_map(|one| Some((one, one.until(now)?)));
    current.max_by_key(|(_, until)| *until)
}

/// When the next blackout begins.
pub fn next_blackout(blackouts: &[Blackout], now: Timestamp) -> Option<Timestamp> {
    let starts = blackouts.iter().filter_map(|one| one.current_or_next(now));
    starts.map(|(start, _)| start).filter(|start| *start > now).min()
}

/// The first time from `now` on at which nodes may start: outside of all blackouts, and at which `next_open` says that a
/// window is open.
pub fn next_start(
    now: Timestamp,
    blackouts: &[&[Blackout]],
    next_open: impl Fn(Timestamp) -> Option<Timestamp>,
) -> Option<Timestamp> {
    let mut at = now;
    for _ in 0..MAX_CHANGES {
        let ends = blackouts.iter().filter_map(|all| blackout_at(all, at));
        if let Some(end) = ends.map(|(_, end)| end).max() {
            at = end;
            continue;
        }
        match next_open(at)? {
            open if open <= at => return Some(at),
            open => at = open,
        }
    }
    None
}

#[cfg(test)]
mod tests;
