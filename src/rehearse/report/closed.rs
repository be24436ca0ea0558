//! When no node of a Plan may start: its windows are closed, or a blackout is in force.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use refit_api::Plan;
use refit_api::schedule::Blackout;
use refit_formats::page::{Band, BandKind};

/// Of one Plan. A window that opens every minute would fill any page.
const MAX_BANDS: usize = 100;

/// The times between `from` and `to` in which no node of the Plan may start. `for_all` are the blackouts of all Plans.
pub fn closed_bands(plan: &Plan, for_all: &[Blackout], from: Timestamp, to: Timestamp) -> Vec<Band> {
    let name = plan.metadata.name.clone().unwrap_or_default();
    let local = TimeZone::system();
    let band = |label: String, start: Timestamp, end: Timestamp| Band {
        plan: name.clone(),
        kind: BandKind::Closed,
        label,
        from: start.max(from).as_second(),
        to: Some(end.min(to).as_second()),
        message: None,
    };
    let mut bands = Vec::new();
    if let Some(windows) = plan.spec.start_windows(&local) {
        let mut at = from;
        while at < to && bands.len() < MAX_BANDS {
            let opens = windows.next_open(at);
            if opens.is_none_or(|opens| opens > at) {
                bands.push(band(
                    format!("window closed ({windows})"),
                    at,
                    opens.unwrap_or(to),
                ));
            }
            let Some(closes) = opens.and_then(|opens| windows.closes(opens)) else {
                break;
            };
            at = closes;
        }
    }
    let own = plan.spec.valid_blackouts(&local);
    for blackout in own.iter().chain(for_all) {
        let mut at = from;
        while let Some((start, end)) = blackout.current_or_next(at).filter(|(start, _)| *start < to) {
            let label = match blackout.reason.as_str() {
                "" => "blackout".to_owned(),
                reason => format!("blackout: {reason}"),
            };
            bands.push(band(label, start, end));
            at = end;
        }
    }
    bands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_windows_and_blackouts_are_bands() {
        let plan: Plan = serde_json::from_value(serde_json::json!({
            "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "metadata": { "name": "p" },
            "spec": {
                "windows": [{ "cron": "0 22 * * *", "duration": "2h" }],
                "blackouts": [{ "start": "2026-01-06", "end": "2026-01-06", "reason": "audit" }],
            },
        }))
        .unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let bands = closed_bands(&plan, &[], at("2026-01-05T09:00:00Z"), at("2026-01-06T12:00:00Z"));
        let hours = |band: &Band| (band.from - 1_767_603_600, band.to.unwrap() - 1_767_603_600);
        let found: Vec<_> = bands
            .iter()
            .map(|band| (band.label.as_str(), hours(band)))
            .collect();
        let closed = "window closed (0 22 * * * for 2h UTC)";
        assert_eq!(
            found,
            [
                (closed, (0, 13 * 3_600)),
                (closed, (15 * 3_600, 27 * 3_600)),
                ("blackout: audit", (15 * 3_600, 27 * 3_600)),
            ]
        );
    }
}
