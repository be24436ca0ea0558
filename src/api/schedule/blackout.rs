//! Times in which no node starts.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::invalid::{ErrorList, FieldPath};
use super::super::text::{MAX_NAME, shorten};
use super::super::window::zone;

/// A time in which no node starts, whatever the windows say. Nodes in progress finish.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlackoutSpec {
    /// When it begins: a time such as `2026-12-24T18:00:00+01:00`, a day such as `2026-12-24`, or a day of every year such
    /// as `12-24`. A day begins at midnight. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// When it ends, in the formats of `start`. A day is included. A day of every year requires one as `start`, and may be
    /// in the next year: `12-24` to `01-02`. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// Reason for the blackout, shown in status and messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// IANA time zone of days, such as `Europe/Berlin`, or `Local` for that of the controller. Defaults to UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blackout {
    span: Span,
    /// Time zone of its days.
    zone: TimeZone,
    /// Why; may be empty.
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Span {
    Once {
        start: Timestamp,
        end: Timestamp,
    },
    /// Month and day of the first and of the last day.
    Yearly {
        first: (i8, i8),
        last: (i8, i8),
    },
}

/// A start or an end.
enum Bound {
    At(Timestamp),
    Day(Date),
    Yearly(i8, i8),
}

impl Bound {
    fn parse(text: &str) -> Option<Self> {
        let digits = |text: &str| text.bytes().filter(u8::is_ascii_digit).count();
        match (text.len(), digits(text)) {
            (5, 4) => {
                let (month, day) = text.split_once('-')?;
                let (month, day) = (month.parse().ok()?, day.parse().ok()?);
                // A year that has every day.
                Date::new(2024, month, day).ok()?;
                Some(Self::Yearly(month, day))
            }
            (10, 8) => text.parse().ok().map(Self::Day),
            _ => text.parse().ok().map(Self::At),
        }
    }
}

impl Blackout {
    /// Parses a blackout. `local` is the zone of the process, which `Local` means.
    ///
    /// # Errors
    /// Fails with all errors.
    pub fn parse(spec: &BlackoutSpec, local: &TimeZone) -> Result<Self, ErrorList> {
        let field = FieldPath::root;
        let mut errors = ErrorList::default();
        let (start, end) = (spec.start.as_deref(), spec.end.as_deref());
        let (start, end) = (start.unwrap_or_default(), end.unwrap_or_default());
        let mut bound = |name, text: &str| {
            errors.take(Bound::parse(text.trim()).ok_or_else(|| {
                field(name).invalid(format_args!(
                    "is {:?}: it must be a time such as \"2026-12-24T18:00:00Z\", a day such as \"2026-12-24\", or a day of every \
                     year such as \"12-24\"",
                    shorten(text, MAX_NAME)
                ))
            }))
        };
        let bounds = (bound("start", start), bound("end", end));
        let zone = zone(spec.time_zone.as_deref(), local);
        let zone = zone.map_err(|why| field("timeZone").invalid(format_args!("is invalid, {why}")));
        let zone = errors.take(zone);
        let (Some(zone), (Some(from), Some(until))) = (zone, bounds) else {
            return Err(errors);
        };
        let midnight = |date: Date| date.to_zoned(zone.clone()).map(|at| at.timestamp()).ok();
        let first = |bound| match bound {
            Bound::At(at) => Some(at),
            Bound::Day(date) => midnight(date),
            Bound::Yearly(..) => None,
        };
        let last = |bound| match bound {
            Bound::At(at) => Some(at),
            Bound::Day(date) => midnight(date.tomorrow().ok()?),
            Bound::Yearly(..) => None,
        };
        let span = match (from, until) {
            (Bound::Yearly(month, day), Bound::Yearly(last_month, last_day)) => Span::Yearly {
                first: (month, day),
                last: (last_month, last_day),
            },
            (Bound::Yearly(..), _) | (_, Bound::Yearly(..)) => {
                let problem = format!(
                    "start is {start:?} and end is {end:?}: if one is a day of every year, the other must be, too"
                );
                let hint = "write start and end both with a year, or both without";
                return Err(field("end").says(problem).hint(hint).into());
            }
            (from, until) => match (first(from), last(until)) {
                (Some(from), Some(until)) if from < until => Span::Once {
                    start: from,
                    end: until,
                },
                _ => {
                    let problem = format!("is {end:?}, which is not after start, {start:?}");
                    let hint = "write a later day than the start, in the same form";
                    return Err(field("end").invalid(problem).hint(hint).into());
                }
            },
        };
        let reason = shorten(spec.reason.as_deref().unwrap_or_default(), MAX_NAME).into_owned();
        Ok(Self { span, zone, reason })
    }

    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// The blackout that contains `now`, or the next one: its start and its end. `None` if it is over.
    pub fn current_or_next(&self, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        match &self.span {
            Span::Once { start, end } => (now < *end).then_some((*start, *end)),
            Span::Yearly { first, last } => {
                let year = self.zone.to_datetime(now).year();
                // From the one that began in the last year; a leap day may be missing in up to eight years.
                let spans = (-1..=9).filter_map(|years| yearly(year + years, *first, *last, &self.zone));
                spans.into_iter().find(|(_, end)| now < *end)
            }
        }
    }

    /// When it ends, if it contains `now`.
    pub fn until(&self, now: Timestamp) -> Option<Timestamp> {
        self.current_or_next(now)
            .filter(|(start, _)| *start <= now)
            .map(|(_, end)| end)
    }
}

/// The yearly blackout that begins in this year.
fn yearly(year: i16, first: (i8, i8), last: (i8, i8), zone: &TimeZone) -> Option<(Timestamp, Timestamp)> {
    let last_year = if last < first { year.checked_add(1)? } else { year };
    // In a year without a leap day, it begins on the day after, or ends on the day before.
    let start = match Date::new(year, first.0, first.1) {
        Ok(date) => date,
        Err(_) => Date::new(year, first.0 + 1, 1).ok()?,
    };
    let end = match Date::new(last_year, last.0, last.1) {
        Ok(date) => date.tomorrow().ok()?,
        Err(_) => Date::new(last_year, last.0, 1)
            .ok()?
            .checked_add(1.month())
            .ok()?,
    };
    let midnight = |date: Date| date.to_zoned(zone.clone()).map(|at| at.timestamp()).ok();
    let (start, end) = (midnight(start)?, midnight(end)?);
    (start < end).then_some((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blackout(start: &str, end: &str, zone: &str) -> Result<Blackout, ErrorList> {
        let spec = BlackoutSpec {
            start: Some(start.to_owned()),
            end: Some(end.to_owned()),
            time_zone: Some(zone.to_owned()),
            ..BlackoutSpec::default()
        };
        Blackout::parse(&spec, &TimeZone::UTC)
    }

    #[test]
    fn a_blackout_lasts_from_its_first_to_its_last_day_in_its_zone() {
        for (start, end, zone, now, span) in [
            (
                "2026-12-24T18:00:00+01:00",
                "2026-12-27T00:00:00Z",
                "UTC",
                "2026-01-01T00:00:00Z",
                Some(("2026-12-24T17:00:00Z", "2026-12-27T00:00:00Z")),
            ),
            (
                "2026-12-24",
                "2026-12-26",
                "Europe/Berlin",
                "2026-12-25T00:00:00Z",
                Some(("2026-12-23T23:00:00Z", "2026-12-26T23:00:00Z")),
            ),
            ("2026-12-24", "2026-12-24", "UTC", "2026-12-25T00:00:00Z", None),
            // Every year, across its end.
            (
                "12-24",
                "01-02",
                "UTC",
                "2026-06-01T00:00:00Z",
                Some(("2026-12-24T00:00:00Z", "2027-01-03T00:00:00Z")),
            ),
            (
                "12-24",
                "01-02",
                "UTC",
                "2027-01-02T23:59:59Z",
                Some(("2026-12-24T00:00:00Z", "2027-01-03T00:00:00Z")),
            ),
            (
                "12-24",
                "01-02",
                "America/New_York",
                "2027-01-03T00:00:00Z",
                Some(("2026-12-24T05:00:00Z", "2027-01-03T05:00:00Z")),
            ),
            // Summer time begins and ends on these days, which have 23 and 25 hours.
            (
                "03-29",
                "03-29",
                "Europe/Berlin",
                "2026-03-29T12:00:00Z",
                Some(("2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z")),
            ),
            (
                "10-25",
                "10-25",
                "Europe/Berlin",
                "2026-10-25T12:00:00Z",
                Some(("2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z")),
            ),
            // Leap days.
            (
                "02-29",
                "02-29",
                "UTC",
                "2026-01-01T00:00:00Z",
                Some(("2028-02-29T00:00:00Z", "2028-03-01T00:00:00Z")),
            ),
            (
                "02-29",
                "03-02",
                "UTC",
                "2026-01-01T00:00:00Z",
                Some(("2026-03-01T00:00:00Z", "2026-03-03T00:00:00Z")),
            ),
            (
                "02-20",
                "02-29",
                "UTC",
                "2026-01-01T00:00:00Z",
                Some(("2026-02-20T00:00:00Z", "2026-03-01T00:00:00Z")),
            ),
            (
                "02-29",
                "02-29",
                "UTC",
                "2096-03-02T00:00:00Z",
                Some(("2104-02-29T00:00:00Z", "2104-03-01T00:00:00Z")),
            ),
        ] {
            let found = blackout(start, end, zone)
                .unwrap()
                .current_or_next(now.parse().unwrap());
            let found = found.map(|(start, end)| (start.to_string(), end.to_string()));
            let span = span.map(|(start, end): (&str, &str)| (start.to_owned(), end.to_owned()));
            assert_eq!(found, span, "{start} to {end} in {zone}, seen at {now}");
        }
    }

    #[test]
    fn an_invalid_blackout_names_its_fields() {
        for (start, end, zone, names) in [
            ("tomorrow", "12-24", "UTC", "start"),
            ("", "12-24", "UTC", "start"),
            ("13-01", "13-02", "Mars", "start end timeZone"),
            ("12-24", "2026-12-26", "UTC", "end"),
            ("2026-12-24", "02-30", "UTC", "end"),
            ("2026-12-24", "2026-12-23", "UTC", "end"),
            ("2026-12-24T10:00:00Z", "2026-12-24T10:00:00Z", "UTC", "end"),
            ("2026-12-24T10:00:00", "2026-12-25", "UTC", "start"),
            ("12-24", "12-26", "Europe/Bonn", "timeZone"),
        ] {
            let error = blackout(start, end, zone).unwrap_err();
            let fields: Vec<_> = error.iter().map(|error| error.path.as_str()).collect();
            assert_eq!(fields.join(" "), names, "{start} to {end}: {error}");
        }
    }
}
