//! Formats the times of a rehearsal: since its start, or as clock times in the time zone of the Plans' windows and
//! blackouts.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use refit_api::Plan;
use refit_api::schedule::Blackout;

#[derive(Clone, Debug)]
pub struct TimeFormat {
    start: Timestamp,
    clock: Option<Zones>,
}

#[derive(Clone, Debug)]
struct Zones {
    /// Time zones of the windows and blackouts, by Plan.
    plans: BTreeMap<String, TimeZone>,
    /// Time zone of everything without one.
    otherwise: TimeZone,
}

impl TimeFormat {
    /// Times since the start of the rehearsal.
    pub fn since(start: Timestamp) -> Self {
        Self { start, clock: None }
    }

    /// Clock times in the zone of a Plan's first window, or else of its first blackout. A Plan without either uses the zone
    /// that all others share, or else that of the first blackout for all Plans, or UTC.
    pub fn clock<'p>(
        start: Timestamp,
        plans: impl IntoIterator<Item = &'p Plan>,
        for_all: &[Blackout],
    ) -> Self {
        let local = TimeZone::system();
        let zone = |plan: &Plan| {
            let windows = plan.spec.start_windows(&local);
            let window = windows.iter().flat_map(|windows| &windows.0).next();
            match window {
                Some(window) => Some(window.zone().clone()),
                None => plan
                    .spec
                    .valid_blackouts(&local)
                    .first()
                    .map(|one| one.zone().clone()),
            }
        };
        let plans: BTreeMap<String, TimeZone> = plans
            .into_iter()
            .filter_map(|plan| Some((plan.metadata.name.clone()?, zone(plan)?)))
            .collect();
        let mut zones = plans.values();
        let shared = match zones.next() {
            Some(first) => zones.all(|zone| zone == first).then_some(first),
            None => for_all.first().map(Blackout::zone),
        };
        let otherwise = shared.cloned().unwrap_or(TimeZone::UTC);
        Self {
            start,
            clock: Some(Zones { plans, otherwise }),
        }
    }

    /// Name of the zone of what concerns the whole cluster.
    pub fn zone(&self) -> &str {
        let zone = self.clock.as_ref().and_then(|zones| zones.otherwise.iana_name());
        zone.unwrap_or("UTC")
    }

    pub fn of_plan(&self, plan: &str, at: Timestamp) -> String {
        match &self.clock {
            None => offset(at.duration_since(self.start)),
            Some(zones) => written(at, zones.plans.get(plan).unwrap_or(&zones.otherwise)),
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

/// `+1:02:03`.
pub fn offset(since: SignedDuration) -> String {
    let seconds = since.as_secs().max(0);
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    if hours < 24 {
        format!("+{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("+{}d {:02}:{minutes:02}:{seconds:02}", hours / 24, hours % 24)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(name: &str, spec: &serde_json::Value) -> Plan {
        let mut plan = serde_json::json!({
            "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "metadata": { "name": name }, "spec": spec,
        });
        plan["spec"]["concurrency"] = 1.into();
        serde_json::from_value(plan).unwrap()
    }

    #[test]
    fn clock_times_are_in_the_zone_of_the_window() {
        let plan = |name: &str, zone: Option<&str>| -> Plan {
            let window = zone.map(
                |zone| serde_json::json!({ "startTime": "22:00", "endTime": "23:00", "timeZone": zone }),
            );
            plan(name, &serde_json::json!({ "window": window }))
        };
        let at: Timestamp = "2026-07-05T21:04:05Z".parse().unwrap();
        let start: Timestamp = "2026-07-05T20:00:00Z".parse().unwrap();
        let (berlin, new_york, none) = (
            plan("berlin", Some("Europe/Berlin")),
            plan("york", Some("America/New_York")),
            plan("none", None),
        );
        let one = TimeFormat::clock(start, [&berlin, &none], &[]);
        assert_eq!(one.of_plan("berlin", at), "2026-07-05 23:04:05 CEST");
        assert_eq!(
            one.of_plan("none", at),
            "2026-07-05 23:04:05 CEST",
            "all windows share it"
        );
        let two = TimeFormat::clock(start, [&berlin, &new_york, &none], &[]);
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
    #[test]
    fn clock_times_are_in_the_zone_of_several_windows_and_of_blackouts() {
        let of = |spec: &str| plan("a", &serde_json::from_str(spec).unwrap());
        let windows =
            of(r#"{"windows": [{"cron": "0 22 * * fri", "duration": "4h", "timeZone": "Europe/Berlin"}]}"#);
        let blackout = of(r#"{"blackouts": [{"start": "12-24", "end": "12-26", "timeZone": "Asia/Tokyo"}]}"#);
        let none = plan("b", &serde_json::json!({}));
        let start: Timestamp = "2026-07-05T20:00:00Z".parse().unwrap();
        let times = |plan: &Plan, for_all: &[Blackout]| {
            let times = TimeFormat::clock(start, [plan, &none], for_all);
            ["a", "b"].map(|plan| times.of_plan(plan, start))
        };
        assert_eq!(times(&windows, &[]), ["2026-07-05 22:00:00 CEST"; 2]);
        assert_eq!(times(&blackout, &[]), ["2026-07-06 05:00:00 JST"; 2]);
        let for_all = blackout.spec.valid_blackouts(&TimeZone::UTC);
        assert_eq!(times(&none, &for_all), ["2026-07-06 05:00:00 JST"; 2]);
    }
}
