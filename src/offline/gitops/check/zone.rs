//! What a time zone that does not exist was meant to be.

use refit_base::nearest::nearest;

pub(super) fn zone_hint(zone: &str) -> String {
    let database = jiff::tz::TimeZoneDatabase::bundled();
    let names: Vec<_> = database.available().map(|name| name.to_string()).collect();
    let same = |name: &&String| {
        let city = name.rsplit('/').next().unwrap_or_default();
        let zone = zone.trim().replace(' ', "_");
        name.eq_ignore_ascii_case(&zone) || city.eq_ignore_ascii_case(&zone)
    };
    // `GMT+2` is not `Etc/GMT+2`, which is west of Greenwich.
    let near = offset_zone(zone).or_else(|| names.iter().find(same).cloned());
    // Three letters are near to many zones.
    let near = near.or_else(|| {
        let near = nearest(zone, names.iter().map(String::as_str));
        near.filter(|near| near.contains('/') && zone.contains('/'))
            .map(str::to_owned)
    });
    near.map_or_else(
        || match place_of_abbreviation(zone) {
            Some(place) => format!("write a name such as `{place}`, because an abbreviation is not a zone"),
            None => "write an IANA name such as `Europe/Berlin`; upper and lower case differ".to_owned(),
        },
        |near| format!("did you mean `{near}`?"),
    )
}

/// A place whose clocks show the abbreviation. Other places may use it for another time. `EST`, `MST`, `CET` and `EET`
/// are names of zones in the IANA database, so they are valid as they are.
fn place_of_abbreviation(zone: &str) -> Option<&'static str> {
    Some(match zone.trim().to_uppercase().as_str() {
        "PST" | "PDT" | "PT" => "America/Los_Angeles",
        "MDT" | "MT" => "America/Denver",
        "CDT" | "CT" => "America/Chicago",
        "EDT" | "ET" => "America/New_York",
        "BST" => "Europe/London",
        "CEST" | "MEZ" | "MESZ" => "Europe/Berlin",
        "EEST" => "Europe/Helsinki",
        "IST" => "Asia/Kolkata",
        "JST" => "Asia/Tokyo",
        "SGT" => "Asia/Singapore",
        "AEST" | "AEDT" => "Australia/Sydney",
        _ => return None,
    })
}

/// The zone of a fixed offset, such as `UTC+2`. Its name has the other sign, as in POSIX.
fn offset_zone(zone: &str) -> Option<String> {
    let upper = zone.replace(' ', "").to_uppercase();
    let offset = upper.trim_start_matches("UTC").trim_start_matches("GMT");
    let (sign, hours) = match (offset.strip_prefix('+'), offset.strip_prefix('-')) {
        (Some(hours), _) => ('-', hours),
        (_, Some(hours)) => ('+', hours),
        _ => return (upper == "UTC" || upper == "GMT" || upper == "Z").then(|| "UTC".to_owned()),
    };
    let hours = hours.trim_end_matches(":00");
    let hours: u8 = hours
        .strip_suffix("00")
        .filter(|hours| !hours.is_empty())
        .unwrap_or(hours)
        .parse()
        .ok()?;
    match hours {
        0 => Some("UTC".to_owned()),
        1..=12 => Some(format!("Etc/GMT{sign}{hours}")),
        _ => None,
    }
}
