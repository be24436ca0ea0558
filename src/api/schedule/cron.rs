//! The five fields of a cron expression, as crontab(5) defines them. A time that summer time skips never comes, and an
//! hour that occurs twice comes twice, as in `spec.window`. Own code, because the crate `croner` follows Vixie cron
//! there: a fixed time that summer time skips comes at the end of the gap, and one that occurs twice comes once, so
//! that a window could open at a time that its Plan does not name.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::super::invalid::{FieldPath, Invalid};

/// How far to look ahead: from one 29 February to the next there can be eight years.
const HORIZON: SignedDuration = SignedDuration::from_hours((366 * 8 + 7) * 24);
const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// A parsed expression: a set of numbers for each field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Both the day of the month and the day of the week are restricted: then either suffices.
    either_day: bool,
}

impl Cron {
    /// Parses `minute hour day-of-month month day-of-week`. The error says what is wrong.
    fn parse(text: &str) -> Result<Self, String> {
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else {
            return Err(format!(
                "it has {} fields, and must have 5: minute, hour, day of the month, month, day of the week",
                fields.len()
            ));
        };
        let weekday_set = field("day of the week", weekdays, 0, 7, &WEEKDAYS)?;
        Ok(Self {
            minutes: field("minute", minutes, 0, 59, &[])?,
            hours: field("hour", hours, 0, 23, &[])?,
            days: field("day of the month", days, 1, 31, &[])?,
            months: field("month", months, 1, 12, &MONTHS)?,
            // 7 is Sunday, too.
            weekdays: weekday_set | (weekday_set >> 7),
            either_day: !days.starts_with('*') && !weekdays.starts_with('*'),
        })
    }

    /// Parses the text of a field. `never` is what follows if no date matches.
    pub(crate) fn of_field(field: &FieldPath, text: &str, never: &str) -> Result<Self, Invalid> {
        let cron = Self::parse(text).map_err(|why| field.invalid(format_args!("is {text:?}: {why}")))?;
        // The syntax allows days that no month has, such as `0 0 30 2 *`.
        if cron.next(Timestamp::UNIX_EPOCH, &TimeZone::UTC).is_none() {
            let problem = format!("is {text:?}: no date matches, {never}");
            return Err(field.invalid(problem).hint("write a day that the month has"));
        }
        Ok(cron)
    }

    fn has_day(&self, date: Date) -> bool {
        let month = has(self.months, date.month());
        let day = has(self.days, date.day());
        let weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        month
            && if self.either_day {
                day || weekday
            } else {
                day && weekday
            }
    }

    /// The first time from `from` on.
    pub(crate) fn next(&self, from: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        self.next_until(from, from.saturating_add(HORIZON).ok()?, zone)
    }

    /// The first time from `from` to `until`.
    ///
    /// Between two changes of its clock a zone has one offset. So each time that the clock shows there comes once; one
    /// that a change skips belongs to no such period, and one that it repeats to two.
    pub(super) fn next_until(&self, from: Timestamp, until: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let mut at = from;
        while at <= until {
            let offset = zone.to_offset(at);
            let change = zone.following(at).next().map(|change| change.timestamp());
            let last = change.map_or(until, |change| change.min(until));
            let shown = self.first_shown(offset.to_datetime(at), offset.to_datetime(last).date());
            let found = shown.and_then(|shown| offset.to_timestamp(shown).ok());
            if let Some(found) = found.filter(|found| *found <= until)
                && change.is_none_or(|change| found < change)
            {
                return Some(found);
            }
            at = change?;
        }
        None
    }

    /// The first matching date and time from `from` to the end of the day `last`.
    fn first_shown(&self, from: DateTime, last: Date) -> Option<DateTime> {
        let mut at = from;
        while at.date() <= last {
            let found = self.has_day(at.date()).then(|| self.first_of_day(at.time()));
            if let Some(time) = found.flatten() {
                return Some(at.date().to_datetime(time));
            }
            let next = if has(self.months, at.month()) {
                at.date().tomorrow()
            } else {
                at.date().last_of_month().tomorrow()
            };
            at = next.ok()?.to_datetime(Time::midnight());
        }
        None
    }

    /// The first matching time of a day from `from` on.
    fn first_of_day(&self, from: Time) -> Option<Time> {
        let is_full_hour = from.second() == 0 && from.subsec_nanosecond() == 0;
        // 60 if only the next hour has a whole minute.
        let first = from.minute() + i8::from(!is_full_hour);
        let (hour, minutes) = (from.hour()..24)
            .filter(|hour| has(self.hours, *hour))
            .map(|hour| {
                (
                    hour,
                    if hour == from.hour() {
                        self.minutes >> first << first
                    } else {
                        self.minutes
                    },
                )
            })
            .find(|(_, minutes)| *minutes != 0)?;
        let minute = i8::try_from(minutes.trailing_zeros()).ok()?;
        Time::new(hour, minute, 0, 0).ok()
    }
}

fn has(set: u64, number: i8) -> bool {
    u32::try_from(number).is_ok_and(|number| set & (1 << number) != 0)
}

/// Parses `*`, `5`, `1-5`, `*/10`, `1-5/2` and lists of them.
fn field(name: &str, text: &str, min: u32, max: u32, names: &[&str]) -> Result<u64, String> {
    let number = |word: &str| {
        let index = names.iter().position(|name| name.eq_ignore_ascii_case(word));
        // Months count from 1, days of the week from 0.
        let base = u32::from(names.len() == MONTHS.len());
        let by_name = index.and_then(|at| u32::try_from(at).ok()).map(|at| at + base);
        let plain = || {
            word.parse()
                .ok()
                .filter(|_| word.bytes().all(|b| b.is_ascii_digit()))
        };
        by_name
            .or_else(plain)
            .filter(|number| (min..=max).contains(number))
            .ok_or_else(|| format!("{word:?} is not a valid {name}, which is a number from {min} to {max}"))
    };
    let mut set = 0;
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            None => (part, None),
            Some((range, step)) => {
                let step: Option<u32> = step.parse().ok().filter(|step| *step > 0);
                let step = step.ok_or_else(|| format!("{part:?} has no step such as `*/15`"))?;
                (range, Some(step))
            }
        };
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => (min, max),
            Some((first, last)) => (number(first)?, number(last)?),
            None => {
                let first = number(range)?;
                (first, if step.is_some() { max } else { first })
            }
        };
        if first > last {
            return Err(format!("{part:?} ends before it begins"));
        }
        let numbers = (first..=last).step_by(usize::try_from(step.unwrap_or(1)).unwrap_or(usize::MAX));
        set |= numbers.fold(0, |set, number| set | (1 << number));
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(expression: &str, from: &str, zone: &str) -> Option<String> {
        let zone = jiff::tz::TimeZone::get(zone).unwrap();
        let at = Cron::parse(expression)
            .unwrap()
            .next(from.parse().unwrap(), &zone);
        at.map(|at| at.to_string())
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn the_next_time_is_the_first_one_that_every_field_allows() {
        for (expression, from, zone, then) in [
            (
                "0 22 * * *",
                "2026-01-01T09:00:00Z",
                "UTC",
                "2026-01-01T22:00:00Z",
            ),
            (
                "0 22 * * *",
                "2026-01-01T22:00:00Z",
                "UTC",
                "2026-01-01T22:00:00Z",
            ),
            (
                "0 22 * * *",
                "2026-01-01T22:00:00.5Z",
                "UTC",
                "2026-01-02T22:00:00Z",
            ),
            (
                "*/15 * * * *",
                "2026-01-01T09:01:00Z",
                "UTC",
                "2026-01-01T09:15:00Z",
            ),
            (
                "5/20 9 * * *",
                "2026-01-01T09:06:00Z",
                "UTC",
                "2026-01-01T09:25:00Z",
            ),
            (
                "30 2 * * sat",
                "2026-01-01T09:00:00Z",
                "UTC",
                "2026-01-03T02:30:00Z",
            ),
            ("0 3 * * 7", "2026-01-01T09:00:00Z", "UTC", "2026-01-04T03:00:00Z"),
            ("0 3 * * 0", "2026-01-01T09:00:00Z", "UTC", "2026-01-04T03:00:00Z"),
            (
                "0 3 1,15 MAR-jun *",
                "2026-01-01T09:00:00Z",
                "UTC",
                "2026-03-01T03:00:00Z",
            ),
            // Either day suffices when both are restricted.
            (
                "0 3 13 * fri",
                "2026-01-01T09:00:00Z",
                "UTC",
                "2026-01-02T03:00:00Z",
            ),
            // Leap days, also across 2100, which is no leap year.
            (
                "0 0 29 2 *",
                "2026-01-01T00:00:00Z",
                "UTC",
                "2028-02-29T00:00:00Z",
            ),
            (
                "0 0 29 2 *",
                "2096-03-01T00:00:00Z",
                "UTC",
                "2104-02-29T00:00:00Z",
            ),
            // Zones, and the hours that summer time skips and repeats.
            (
                "0 1 * * *",
                "2026-01-01T00:30:00Z",
                "Europe/Berlin",
                "2026-01-02T00:00:00Z",
            ),
            (
                "30 2 * * *",
                "2026-03-29T00:00:00Z",
                "Europe/Berlin",
                "2026-03-30T00:30:00Z",
            ),
            (
                "30 2 * * *",
                "2026-10-25T00:00:00Z",
                "Europe/Berlin",
                "2026-10-25T00:30:00Z",
            ),
            (
                "30 2 * * *",
                "2026-10-25T00:31:00Z",
                "Europe/Berlin",
                "2026-10-25T01:30:00Z",
            ),
            (
                "0 9 * * *",
                "2026-01-01T00:00:00Z",
                "Asia/Kathmandu",
                "2026-01-01T03:15:00Z",
            ),
            // The day that Samoa skipped.
            (
                "0 9 30 12 *",
                "2011-12-01T00:00:00Z",
                "Pacific/Apia",
                "2012-12-29T19:00:00Z",
            ),
        ] {
            assert_eq!(
                next(expression, from, zone).as_deref(),
                Some(then),
                "{expression} from {from} in {zone}"
            );
        }
        assert_eq!(next("0 0 30 2 *", "2026-01-01T00:00:00Z", "UTC"), None);
    }

    #[test]
    fn an_error_names_the_field() {
        for (expression, error) in [
            ("0 22 * *", "it has 4 fields, and must have 5"),
            ("@daily", "it has 1 fields"),
            (
                "60 * * * *",
                "\"60\" is not a valid minute, which is a number from 0 to 59",
            ),
            ("0 24 * * *", "\"24\" is not a valid hour"),
            ("0 0 0 * *", "\"0\" is not a valid day of the month"),
            ("0 0 * 13 *", "\"13\" is not a valid month"),
            ("0 0 * * 8", "\"8\" is not a valid day of the week"),
            ("0 0 * * montag", "\"montag\" is not a valid day of the week"),
            ("*/0 * * * *", "\"*/0\" has no step"),
            ("30-10 * * * *", "\"30-10\" ends before it begins"),
            ("+5 * * * *", "\"+5\" is not a valid minute"),
        ] {
            let known = Cron::parse(expression).unwrap_err();
            assert!(known.starts_with(error), "{expression}: {known}");
        }
    }
}
