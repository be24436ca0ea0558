//! `spec.repeat`: when done nodes run the Plan again at the same version. The doc comments of the fields are what
//! `kubectl explain` prints.
//!
//! Pure. Cron expressions and zones are those of `spec.windows`.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::invalid::{ErrorList, at};
use super::schedule::Cron;
use super::window::zone;
use refit_base::go::GoDuration;

/// Shortest `every`: below, a mistyped unit would keep nodes busy all the time.
const MIN_EVERY: SignedDuration = SignedDuration::from_mins(10);
const MOMENT: SignedDuration = SignedDuration::from_nanos(1);
/// How far the clock of the controller that stored a time may be ahead. A time that is further ahead is from before the
/// clock was set back.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_hours(1);

/// When the Plan runs again: at the times that `cron` names, or each time that `every` is over. Exactly one of both.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RepeatSpec {
    /// The times, as minute, hour, day of the month, month, day of the week: `0 3 * * sun` is Sunday at three in the
    /// morning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// Time from one repetition to the next, as a Go duration such as `168h`, at least `10m`.
    ///
    /// It counts from when the last one was due, the first from when the controller saw the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<String>,
    /// IANA time zone of `cron` such as `Europe/Berlin`, or `Local` for that of the controller. Defaults to UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
}

/// `spec.repeat`, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeat(Schedule);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Schedule {
    Cron {
        text: String,
        cron: Cron,
        zone: TimeZone,
    },
    Every(SignedDuration),
}

impl Repeat {
    /// Parses the field. `local` is the zone of the process, which `Local` means.
    ///
    /// # Errors
    /// Fails with all errors.
    pub fn parse(spec: &RepeatSpec, local: &TimeZone) -> Result<Self, ErrorList> {
        let repeat = at("repeat");
        let mut errors = ErrorList::default();
        match (&spec.cron, &spec.every) {
            (None, None) => Err(repeat
                .invalid("has neither cron nor every: write one of them, such as `cron: 0 3 * * sun`")
                .hint("write `{cron: 0 3 * * sun}` or `{every: 168h}`")
                .into()),
            (Some(_), Some(_)) => Err(repeat
                .field("every")
                .invalid("is set, and so is spec.repeat.cron: remove one of them")
                .hint("remove it")
                .into()),
            (None, Some(every)) => {
                if spec.time_zone.is_some() {
                    let problem = "is set, and spec.repeat.cron is not, so that it has no effect: remove it";
                    errors.push(repeat.field("timeZone").invalid(problem).hint("remove it"));
                }
                let parsed = every.parse::<GoDuration>().ok();
                // Status stores whole seconds.
                let parsed = parsed.map(|parsed| SignedDuration::from_nanos(parsed.as_nanos()).as_secs());
                let parsed = parsed
                    .map(SignedDuration::from_secs)
                    .filter(|every| *every >= MIN_EVERY);
                let every = errors.take(parsed.ok_or_else(|| {
                    repeat.field("every").invalid(format_args!(
                        "is {every:?}: it must be a Go duration such as \"168h\", of at least 10m"
                    ))
                }));
                errors.finish(every.map(|every| Self(Schedule::Every(every))))
            }
            (Some(text), None) => {
                let never = "so that the Plan would never repeat";
                let cron = errors.take(Cron::of_field(&repeat.field("cron"), text, never));
                let field = repeat.field("timeZone");
                let zone = zone(spec.time_zone.as_deref(), local);
                let zone = errors.take(zone.map_err(|why| field.invalid(format_args!("is invalid, {why}"))));
                let text = text.clone();
                let schedule = zone
                    .zip(cron)
                    .map(|(zone, cron)| Schedule::Cron { text, cron, zone });
                errors.finish(schedule.map(Self))
            }
        }
    }

    /// When the Plan repeats next, given when the last repetition was due: a time after now.
    pub fn next(&self, last: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
        let last = last.filter(|last| last.duration_since(now) <= CLOCK_SKEW);
        match &self.0 {
            Schedule::Cron { cron, zone, .. } => {
                let after = last.map_or(now, |last| last.max(now));
                cron.next(after.checked_add(MOMENT).ok()?, zone)
            }
            Schedule::Every(every) => {
                let Some(last) = last else {
                    return now.checked_add(*every).ok();
                };
                // Several that were missed are one: the next one is at the same distance from the last as they were.
                let passed = now.duration_since(last).as_secs().max(0) / every.as_secs();
                let times = passed.saturating_add(1);
                let after = SignedDuration::from_secs(every.as_secs().saturating_mul(times));
                last.checked_add(after).ok()
            }
        }
    }
}

/// As status stores it, to notice an edit.
impl std::fmt::Display for Repeat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Schedule::Cron { text, zone, .. } => {
                let zone = zone.iana_name().unwrap_or("Local");
                write!(f, "{text} {zone}")
            }
            Schedule::Every(every) => write!(f, "every {every:#}"),
        }
    }
}

#[cfg(test)]
mod tests;
