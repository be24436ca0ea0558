//! `spec.window`: when nodes of a Plan may start, parsed as by system-upgrade-controller (S58).
//!
//! A window is open while the local time in its zone is between `startTime` and the end of `endTime`'s second, on one
//! of `days`. A time that summer time skips is never inside, and an hour that occurs twice is inside twice, so no node
//! starts at a time of day that the Plan does not name. A window that ends before it starts is overnight, and belongs
//! to the day on which it starts.
//!
//! Pure: the time and the local zone are arguments, and zones come from the bundled database, so that a Plan means the
//! same on every machine. What a closed window does to a roll-out is decided elsewhere.

use std::fmt;
use std::sync::LazyLock;

use jiff::civil::{Time, Weekday};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::field_enum::inline_schema;
use super::invalid::{ErrorList, FieldPath};

/// Accepted names of each day of the week, from Sunday, as in the schema.
pub const DAYS: [[&str; 4]; 7] = [
    ["0", "su", "sun", "sunday"],
    ["1", "mo", "mon", "monday"],
    ["2", "tu", "tue", "tuesday"],
    ["3", "we", "wed", "wednesday"],
    ["4", "th", "thu", "thursday"],
    ["5", "fr", "fri", "friday"],
    ["6", "sa", "sat", "saturday"],
];

/// How far to look for the next change. A window recurs every week. The second week covers a day that the zone skips
/// (Pacific/Apia had no 30 December 2011), or an opening inside the hour that summer time skips. The rest is margin.
const HORIZON: SignedDuration = SignedDuration::from_hours(5 * 7 * 24);

/// Zones from the database in the binary, because the container image has no other, and a lookup needs no I/O.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// Schema of one of `window.days`. The spec keeps the words as written.
pub(super) struct Day;

inline_schema!(Day { "type": "string", "enum": DAYS.as_flattened() });

/// A time window. It is open on `days` from `startTime` to `endTime`, by the local time in `timeZone`. A window that
/// ends before it starts is overnight, and belongs to the day on which it starts.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TimeWindowSpec {
    /// Days of the week, such as `mo`, `mon` or `monday`, or `0` (Sunday) to `6`. If absent, the window never opens.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<Day>>", length(min = 1))]
    pub days: Option<Vec<String>>,
    /// Start, such as `22:00`, `22:00:30` or `10pm`. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<String>,
    /// End, in the formats of `startTime`. Required.
    ///
    /// The second that it names is inside the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_time: Option<String>,
    /// IANA time zone such as `Europe/Berlin`, or `Local` for that of the controller. Defaults to UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
}

/// A parsed `spec.window`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    days: Days,
    start: Time,
    /// The last second inside the window.
    end: Time,
    zone: TimeZone,
}

impl Window {
    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// The local time at which it opens.
    pub fn start(&self) -> Time {
        self.start
    }

    /// The last second inside.
    pub fn end(&self) -> Time {
        self.end
    }

    pub fn is_every_day(&self) -> bool {
        self.days == Days::ALL
    }

    /// Parses a window, with system-upgrade-controller's messages (S53, S58). `local` is the zone of the process, which
    /// `Local` means.
    ///
    /// # Errors
    /// Fails with all errors, in system-upgrade-controller's order: days, zone, start, end. A missing start or end is an
    /// error. Missing days are not, but such a window never opens.
    pub fn parse(spec: &TimeWindowSpec, local: &TimeZone) -> Result<Self, ErrorList> {
        let mut errors = ErrorList::default();
        let field = FieldPath::root;
        let days = Days::parse(spec.days.as_deref().unwrap_or_default());
        let days = errors.take(days).unwrap_or(Days::ALL);
        let zone = zone(spec.time_zone.as_deref(), local).map_err(|why| field("timeZone").says(why));
        let zone = errors.take(zone);
        let mut time = |name, text: &Option<String>| {
            let time = time(text.as_deref().unwrap_or_default());
            errors.take(time.map_err(|why| field(name).says(why)))
        };
        let (start, end) = (
            time("startTime", &spec.start_time),
            time("endTime", &spec.end_time),
        );
        match (zone, start, end) {
            (Some(zone), Some(start), Some(end)) if errors.is_empty() => Ok(Self {
                days,
                start,
                end,
                zone,
            }),
            _ => Err(errors),
        }
    }

    /// Whether `now` is inside the window.
    pub fn contains(&self, now: Timestamp) -> bool {
        let wall = self.zone.to_datetime(now);
        let clock = second_of_day(wall.time());
        let (start, end) = (second_of_day(self.start), second_of_day(self.end));
        let today = self.days.has(wall.weekday());
        if start > end {
            let yesterday = self.days.has(wall.weekday().previous());
            (clock >= start && today) || (clock <= end && yesterday)
        } else {
            (start..=end).contains(&clock) && today
        }
    }

    /// When the window is open next: `now` if it is open. `None` if it never opens.
    pub fn next_open(&self, now: Timestamp) -> Option<Timestamp> {
        self.first(now, true)
    }

    /// When the window closes next. `None` if it is closed, and if it never closes (every day from `00:00` to
    /// `23:59:59`).
    pub fn closes(&self, now: Timestamp) -> Option<Timestamp> {
        if self.contains(now) {
            self.first(now, false)
        } else {
            None
        }
    }

    /// The first time from `now` on at which the window is open, or closed.
    ///
    /// A window changes only when the local time reaches its start, passes its end, or jumps. So it is enough to check
    /// `now` and these times. (Midnight changes nothing, because an overnight window keeps its day.)
    fn first(&self, now: Timestamp, open: bool) -> Option<Timestamp> {
        let until = now.saturating_add(HORIZON).ok()?;
        let mut at = now;
        while at <= until {
            if self.contains(at) == open {
                return Some(at);
            }
            at = self.next_change(at)?;
        }
        None
    }

    /// The next time after `at` at which the window may open or close.
    fn next_change(&self, at: Timestamp) -> Option<Timestamp> {
        const DAY: i64 = 24 * 60 * 60;
        let clock = second_of_day(self.zone.to_datetime(at).time());
        let until_clock_shows = |second: i64| match (second - clock).rem_euclid(DAY) {
            0 => DAY,
            seconds => seconds,
        };
        let seconds =
            until_clock_shows(second_of_day(self.start)).min(until_clock_shows(second_of_day(self.end) + 1));
        let whole = at.as_second() - i64::from(at.subsec_nanosecond() < 0); // rounds down, also before 1970
        let by_clock = Timestamp::from_second(whole.checked_add(seconds)?).ok()?;
        // If the local time jumps before, the computed time is wrong: check at the jump.
        let jump = self.zone.following(at).next().map(|jump| jump.timestamp());
        Some(jump.map_or(by_clock, |jump| jump.min(by_clock)))
    }
}

impl fmt::Display for Window {
    /// Prints `Mon,Tue 22:00:00-04:00:00 Europe/Berlin`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let zone = self.zone.iana_name().unwrap_or("Local");
        write!(f, "{} {}-{} {zone}", self.days, self.start, self.end)
    }
}

/// A set of days of the week, one bit per day from Sunday.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Days(u8);

impl Days {
    const ALL: Self = Self(0b111_1111);

    /// Ignores empty words and case, as the parser of system-upgrade-controller does; the schema is stricter.
    fn parse(words: &[String]) -> Result<Self, ErrorList> {
        let (mut days, mut errors) = (0, ErrorList::default());
        for (index, word) in words.iter().enumerate().filter(|(_, word)| !word.is_empty()) {
            let day = day(word).map_err(|why| FieldPath::root("days").index(index).says(why));
            days |= errors.take(day).map_or(0, |day| 1 << day);
        }
        errors.finish(Some(Self(days)))
    }

    fn has(self, day: Weekday) -> bool {
        self.0 & (1 << day.to_sunday_zero_offset()) != 0
    }
}

impl fmt::Display for Days {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHORT: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
        let days: Vec<_> = (0..7)
            .filter(|day| self.0 & (1 << day) != 0)
            .map(|day| SHORT[day])
            .collect();
        f.write_str(if days.is_empty() { "never" } else { "" })?;
        f.write_str(&days.join(","))
    }
}

/// Number of a day, from Sunday. A number may have a sign and leading zeros.
fn day(word: &str) -> Result<usize, String> {
    if let Ok(number) = word.parse::<i64>() {
        return usize::try_from(number)
            .ok()
            .filter(|day| *day < DAYS.len())
            .ok_or_else(|| format!("Invalid weekday, number out of range: {word}"));
    }
    let lower = word.to_lowercase();
    DAYS.iter()
        .position(|words| words[1..].contains(&lower.as_str()))
        .ok_or_else(|| format!("Invalid weekday: {word}"))
}

/// The zone of this name, which is case-sensitive. UTC if absent.
pub(super) fn zone(name: Option<&str>, local: &TimeZone) -> Result<TimeZone, String> {
    let name = name.unwrap_or_default();
    match name {
        "" | "UTC" => return Ok(TimeZone::UTC),
        "Local" => return Ok(local.clone()),
        _ if name.starts_with(['/', '\\']) || name.split('/').any(|part| part == "..") => {
            return Err("time: invalid location name".to_owned());
        }
        _ => {}
    }
    // jiff also finds `europe/berlin`. Go does not, and a Plan must mean the same under both controllers.
    ZONES
        .get(name)
        .ok()
        .filter(|zone| zone.iana_name() == Some(name))
        .ok_or_else(|| format!("unknown time zone {name}"))
}

/// Parses a time of day in one of the formats `15:04`, `15:04:05`, `03:04pm`, `15`, `03pm` and `3pm`.
///
/// These are Go's layouts with their special cases: an hour of the 24-hour clock may have one digit, one of the 12-hour
/// clock with minutes may not; `0pm` is noon; a fraction after the seconds is ignored.
fn time(text: &str) -> Result<Time, String> {
    parse_time(text).ok_or_else(|| format!("Invalid time format: {text}"))
}

fn parse_time(text: &str) -> Option<Time> {
    let (clock, half) = match text.strip_suffix("am") {
        Some(clock) => (clock, Some(0)),
        None => text
            .strip_suffix("pm")
            .map_or((text, None), |clock| (clock, Some(12))),
    };
    let mut parts = clock.splitn(3, ':');
    let hour = parts.next()?;
    let minute = parts.next();
    let second = parts.next();
    let hour = match half {
        None => digits(hour, 1)?,
        Some(_) if second.is_some() => return None,
        Some(half) => match digits(hour, if minute.is_some() { 2 } else { 1 })? {
            12 => half,
            hour @ 0..12 => hour + half,
            _ => return None,
        },
    };
    let minute = minute.map_or(Some(0), |minute| digits(minute, 2))?;
    let second = second.map_or(Some(0), |second| digits(whole_seconds(second)?, 2))?;
    Time::new(hour, minute, second, 0).ok()
}

/// A number of one or two ASCII digits, but at least `least`.
fn digits(text: &str, least: usize) -> Option<i8> {
    let fits = (least..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    fits.then(|| text.parse().ok()).flatten()
}

fn whole_seconds(text: &str) -> Option<&str> {
    match text.split_once(['.', ',']) {
        None => Some(text),
        Some((whole, fraction)) => {
            let is_number = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then_some(whole)
        }
    }
}

/// Seconds since midnight. Windows have a resolution of seconds, and all of `endTime`'s second is inside.
fn second_of_day(time: Time) -> i64 {
    i64::from(time.hour()) * 3600 + i64::from(time.minute()) * 60 + i64::from(time.second())
}

#[cfg(test)]
mod tests;
