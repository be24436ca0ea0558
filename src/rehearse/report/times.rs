//! Formats the times of a rehearsal: since its start, or as clock times in the time zone of the Plans' windows.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::offset;
use crate::api::Plan;
use crate::api::window::Window;

#[derive(Clone, Debug)]
pub struct TimeFormat {
    start: Timestamp,
    clock: Option<Zones>,
}

#[derive(Clone, Debug)]
struct Zones {
    /// Time zones of the windows, by Plan.
    windows: BTreeMap<String, TimeZone>,
    /// Time zone of everything without a window.
    otherwise: TimeZone,
}

impl TimeFormat {
    /// Times since the start of the rehearsal.
    pub fn since(start: Timestamp) -> Self {
        Self { start, clock: None }
    }

    /// Clock times in the zone of a Plan's window. A Plan without one uses the zone that all windows share, or else
    /// UTC.
    pub fn clock<'p>(start: Timestamp, plans: impl IntoIterator<Item = &'p Plan>) -> Self {
        let windows: BTreeMap<String, TimeZone> = plans
            .into_iter()
            .filter_map(|plan| {
                let window = Window::parse(plan.spec.window.as_ref()?, &TimeZone::system()).ok()?;
                Some((plan.metadata.name.clone()?, window.zone().clone()))
            })
            .collect();
        let mut zones = windows.values();
        let shared = zones
            .next()
            .filter(|first| zones.all(|zone| zone == *first))
            .cloned();
        let clock = Zones {
            windows,
            otherwise: shared.unwrap_or(TimeZone::UTC),
        };
        Self {
            start,
            clock: Some(clock),
        }
    }

    pub fn is_clock(&self) -> bool {
        self.clock.is_some()
    }

    /// A time of a Plan.
    pub fn of_plan(&self, plan: &str, at: Timestamp) -> String {
        match &self.clock {
            None => offset(at.duration_since(self.start)),
            Some(zones) => written(at, zones.windows.get(plan).unwrap_or(&zones.otherwise)),
        }
    }

    /// A time of the whole cluster.
    pub fn of_cluster(&self, at: Timestamp) -> String {
        match &self.clock {
            None => offset(at.duration_since(self.start)),
            Some(zones) => written(at, &zones.otherwise),
        }
    }

    /// The start, which is always a clock time, with its day.
    pub fn start(&self) -> String {
        let zone = self
            .clock
            .as_ref()
            .map_or(TimeZone::UTC, |zones| zones.otherwise.clone());
        let start = self.start.to_zoned(zone);
        start.strftime("%a %Y-%m-%d %H:%M:%S %Z").to_string()
    }

    /// A message of the controller about a Plan, whose times are in UTC.
    pub fn in_message(&self, plan: &str, message: &str) -> String {
        let translated = |word: &str| {
            let text = word.trim_end_matches([',', ';', '.', ':', ')']);
            let at: Timestamp = text.parse().ok()?;
            Some(format!("{}{}", self.of_plan(plan, at), &word[text.len()..]))
        };
        if self.clock.is_none() {
            return message.to_owned();
        }
        let words = message.split(' ');
        let words = words.map(|word| translated(word).unwrap_or_else(|| word.to_owned()));
        words.collect::<Vec<_>>().join(" ")
    }

    /// The end, which is always a clock time.
    pub fn end(&self, at: Timestamp) -> String {
        match &self.clock {
            None => written(at, &TimeZone::UTC),
            Some(zones) => written(at, &zones.otherwise),
        }
    }
}

/// `2026-01-05 22:00:05 CET`.
fn written(at: Timestamp, zone: &TimeZone) -> String {
    at.to_zoned(zone.clone())
        .strftime("%Y-%m-%d %H:%M:%S %Z")
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_times_are_in_the_zone_of_the_window() {
        let plan = |name: &str, zone: Option<&str>| -> Plan {
            let mut plan = serde_json::json!({
                "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "metadata": { "name": name },
                "spec": { "concurrency": 1 },
            });
            if let Some(zone) = zone {
                plan["spec"]["window"] =
                    serde_json::json!({ "startTime": "22:00", "endTime": "23:00", "timeZone": zone });
            }
            serde_json::from_value(plan).unwrap()
        };
        let at: Timestamp = "2026-07-05T21:04:05Z".parse().unwrap();
        let start: Timestamp = "2026-07-05T20:00:00Z".parse().unwrap();
        let (berlin, new_york, none) = (
            plan("berlin", Some("Europe/Berlin")),
            plan("york", Some("America/New_York")),
            plan("none", None),
        );
        let one = TimeFormat::clock(start, [&berlin, &none]);
        assert_eq!(one.of_plan("berlin", at), "2026-07-05 23:04:05 CEST");
        assert_eq!(
            one.of_plan("none", at),
            "2026-07-05 23:04:05 CEST",
            "all windows share it"
        );
        let two = TimeFormat::clock(start, [&berlin, &new_york, &none]);
        assert_eq!(two.of_plan("york", at), "2026-07-05 17:04:05 EDT");
        assert_eq!(two.of_plan("none", at), "2026-07-05 21:04:05 UTC");
        assert_eq!(two.end(at), "2026-07-05 21:04:05 UTC");
        assert_eq!(one.start(), "Sun 2026-07-05 22:00:00 CEST");
        let message = "opens at 2026-07-05T21:04:05Z; 3 nodes wait (v1.2.3)";
        assert_eq!(
            one.in_message("berlin", message),
            "opens at 2026-07-05 23:04:05 CEST; 3 nodes wait (v1.2.3)"
        );
        let since = TimeFormat::since(start);
        assert_eq!(since.in_message("berlin", message), message);
        assert_eq!(since.start(), "Sun 2026-07-05 20:00:00 UTC");
        assert_eq!(since.of_plan("berlin", at), "+1:04:05");
        assert_eq!(since.end(at), "2026-07-05 21:04:05 UTC");
    }
}
