//! Hints for windows and blackouts, and cron expressions in the wrong place.

use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use jiff::{Span, ToSpan as _};
use serde_json::{Map, Value, json};

use super::Subject;
use super::instead::{self, Unit, yaml};
use super::schema::no_indices;
use super::zone::zone_hint;
use crate::gitops::Rule;
use crate::gitops::yaml::{Node, Object};
use refit_api::schedule::{Blackout, BlackoutSpec, PlanWindow, WindowSpec};
use refit_api::{PlanSpec, Repeat, RepeatSpec};
use refit_base::go::GoDuration;

const DURATION: &str = "write a duration such as `4h`, up to `168h`, which is seven days";

impl Subject<'_> {
    /// What to write instead of an invalid time. `field` is the path without indices.
    pub(super) fn schedule_hint(&self, path: &str, field: &str, text: &str) -> Option<String> {
        let last = field.rsplit('.').next().unwrap_or_default();
        let is_there = self.has(path);
        Some(match field {
            _ if Unit::of(path) == Unit::Time => {
                let example = if last == "endTime" { "04:00" } else { "22:00" };
                match instead::time_of_day(text) {
                    _ if !is_there => format!("add `{last}: \"{example}\"`"),
                    Some(time) => format!("write `\"{time}\"`"),
                    None if last == "endTime" && is_end_of_day(text) => "write `\"23:59:59\"`".to_owned(),
                    None => format!("write a time such as `\"{example}\"`"),
                }
            }
            _ if last == "timeZone" => {
                let name = text.split_once("zoneinfo/").map_or(text, |(_, name)| name);
                zone_hint(name.trim_start_matches('/'))
            }
            "spec.windows.days" => {
                let verb = if is_there { "write days such as" } else { "add" };
                let name = if is_there { "" } else { "days: " };
                format!("{verb} `{name}[mo, tu, we, th, fr, sa, su]`")
            }
            "spec.windows.cron" | "spec.repeat.cron" => match cron(text) {
                Some(cron) => format!("write `{}`", yaml(&cron.into())),
                None if field == "spec.repeat.cron" => {
                    "write five fields such as `0 3 * * sun`, which is Sunday at 3:00".to_owned()
                }
                None => "write five fields such as `0 22 * * fri`, which is Friday at 22:00".to_owned(),
            },
            "spec.windows.duration" if !is_there => "add `duration: 4h`".to_owned(),
            "spec.windows.duration" => {
                // 4 may be hours.
                let is_number = text.trim().parse::<f64>().is_ok();
                match instead::duration(text)
                    .filter(|duration| !is_number && is_window("0 22 * * *", duration))
                {
                    Some(duration) => format!("write `{duration}`"),
                    None => DURATION.to_owned(),
                }
            }
            "spec.repeat.every" => {
                let spec = |every: &String| RepeatSpec {
                    every: Some(every.clone()),
                    ..RepeatSpec::default()
                };
                let is_valid = |every: &String| Repeat::parse(&spec(every), &TimeZone::UTC).is_ok();
                // 7 may be days.
                let is_number = text.trim().parse::<f64>().is_ok();
                match instead::duration(text).filter(|every| !is_number && is_valid(every)) {
                    Some(every) => format!("write `{every}`"),
                    None => "write a duration such as `24h`, or `168h` for a week".to_owned(),
                }
            }
            "spec.blackouts.start" | "spec.blackouts.end" if !is_there => {
                let (own, other) = (
                    path.strip_suffix(last)?,
                    if last == "start" { "end" } else { "start" },
                );
                let other = self.node(&format!("{own}{other}")).and_then(Node::text);
                let other = other.filter(|other| is_blackout(other, other));
                format!("add `{last}: {}`", yaml(&other.unwrap_or("2026-12-24").into()))
            }
            "spec.blackouts.start" | "spec.blackouts.end" => match day(text) {
                Some(day) => format!("write `\"{day}\"`"),
                // Which zone is meant, only the author knows.
                None if text.contains(':') => {
                    "write the time with its zone, such as `\"2026-12-24T18:00:00+01:00\"`".to_owned()
                }
                None => "write a day such as `\"2026-12-24\"`, or a day of every year such as `\"12-24\"`"
                    .to_owned(),
            },
            _ => return None,
        })
    }

    /// Whether a window has no `cron` for its `duration` because the one in the file was refused.
    pub(super) fn lacks_refused_cron(&self, path: &str, spec: &PlanSpec) -> bool {
        let index = path.strip_prefix("spec.windows[");
        let index = index.and_then(|rest| rest.strip_suffix("].duration")?.parse::<usize>().ok());
        let window = index.and_then(|index| spec.windows.as_ref()?.get(index));
        let cron = path.replace("].duration", "].cron");
        window.is_some_and(|window| window.cron.is_none())
            && (self.has(&cron) || self.renamed.contains(&cron))
    }

    /// `cron` or `duration` in `spec.window`, which only `spec.windows` has: reported once. Returns these fields.
    pub(super) fn cron_of_a_window<'n>(
        &mut self,
        field: &str,
        object: &'n Object,
        key: usize,
    ) -> Vec<&'n str> {
        let is_of_windows = |name: &&str| matches!(*name, "cron" | "schedule" | "duration");
        let names = object.entries.iter().map(|entry| entry.key.name.as_str());
        let names: Vec<_> = names.filter(is_of_windows).collect();
        let Some(first) = names.first().filter(|_| field == "spec.window") else {
            return Vec::new();
        };
        let text = |name: &str| object.entry(name).and_then(|entry| entry.value.text());
        let times = text("cron").or(text("schedule"));
        let hint = match (times, text("duration")) {
            (Some(times), Some(duration)) => of_cron(times, duration, text("timeZone")),
            (None, Some(duration)) => text("startTime")
                .and_then(|start| Some((start, end_time(start, duration)?)))
                .and_then(|(_, end)| of_days(object, &end)),
            _ => None,
        };
        let hint = match hint {
            Some(entry) if self.has("spec.windows") => {
                format!("remove it, after you have moved it into spec.windows: `{entry}`")
            }
            Some(entry) => format!("write `{entry}`"),
            None => "move it to spec.windows, with how long the window stays open, such as \
                     `windows: [{cron: \"0 22 * * fri\", duration: 4h}]`"
                .to_owned(),
        };
        let message = format!("spec.window has no field {first}; only spec.windows has cron and duration");
        self.report_at(Rule::UnknownField, key, Some(field), message, Some(hint));
        let missing = ["days", "startTime", "endTime"].map(|name| format!("{field}.{name}"));
        let missing: Vec<_> = missing.into_iter().filter(|name| !self.has(name)).collect();
        self.renamed.extend(missing);
        names
    }
}

/// `spec.windows` with one window.
fn of_cron(times: &str, duration: &str, zone: Option<&str>) -> Option<String> {
    let times = if is_window(times, "1h") {
        times.to_owned()
    } else {
        cron(times)?
    };
    let is_number = duration.trim().parse::<f64>().is_ok();
    let duration = instead::duration(duration).filter(|_| !is_number)?;
    if !is_window(&times, &duration) {
        return None;
    }
    let mut window = json!({ "cron": times, "duration": duration });
    if let Some(zone) = zone {
        window["timeZone"] = zone.into();
    }
    Some(format!("windows: {}", yaml(&json!([window]))))
}

/// `spec.window` with this end.
fn of_days(window: &Object, end: &str) -> Option<String> {
    let mut fields = Map::new();
    for entry in &window.entries {
        if !matches!(entry.key.name.as_str(), "duration" | "endTime") {
            fields.insert(entry.key.name.clone(), entry.value.to_json());
        }
    }
    fields.contains_key("days").then_some(())?;
    fields.insert("endTime".to_owned(), end.into());
    Some(format!("window: {}", yaml(&Value::Object(fields))))
}

/// When a window that starts then is over: its last second is inside of it.
fn end_time(start: &str, duration: &str) -> Option<String> {
    let start: Time = instead::time_of_day(start)?.parse().ok()?;
    let duration: GoDuration = instead::duration(duration)?.parse().ok()?;
    let seconds = duration.as_secs();
    // `startTime` and `endTime` span less than a day, and the hint writes them without seconds.
    if !(60..86_400).contains(&seconds) || seconds % 60 != 0 {
        return None;
    }
    let span: Span = seconds.seconds();
    let end = start.wrapping_add(span);
    Some(format!("{:02}:{:02}", end.hour(), end.minute()))
}

/// Whether the time is midnight at the end of the day, which has no number in 24 hours.
pub(super) fn is_end_of_day(text: &str) -> bool {
    matches!(text.trim(), "24:00" | "24:00:00" | "24" | "2400")
}

fn is_window(cron: &str, duration: &str) -> bool {
    let window = WindowSpec {
        cron: Some(cron.to_owned()),
        duration: Some(duration.to_owned()),
        ..WindowSpec::default()
    };
    PlanWindow::parse(&window, &TimeZone::UTC).is_ok()
}

/// The five fields of a cron expression in another dialect, or of a time of day.
fn cron(text: &str) -> Option<String> {
    let text = text.trim().to_lowercase().replace('?', "*");
    let fields: Vec<_> = text.split_whitespace().collect();
    let five = match fields.as_slice() {
        ["@monthly"] => "0 0 1 * *".to_owned(),
        ["@weekly"] => "0 0 * * 0".to_owned(),
        ["@daily" | "@midnight"] => "0 0 * * *".to_owned(),
        ["@hourly"] => "0 * * * *".to_owned(),
        [time] if time.contains(':') => {
            let time: Time = instead::time_of_day(time)?.parse().ok()?;
            format!("{} {} * * *", time.minute(), time.hour())
        }
        [_, _, _, _, _] => text.clone(),
        // Quartz and Spring begin with the second, and Quartz may end with the year.
        ["0", rest @ ..] => {
            let five = rest
                .strip_suffix(&["*"])
                .filter(|five| five.len() == 5)
                .unwrap_or(rest);
            five.join(" ")
        }
        _ => return None,
    };
    is_window(&five, "1h").then_some(five)
}

/// The day that is meant by `24.12.2026`, `2026/12/24` or `12/24/2026`, if only one can be meant.
pub(super) fn day(text: &str) -> Option<String> {
    let text = text.trim();
    let parts: Vec<_> = text.split(['.', '/', '-']).collect();
    let [first, second, third] = parts.as_slice() else {
        return None;
    };
    let number = |text: &str| text.parse::<i8>().ok();
    let date = |year: &str, month: i8, day: i8| {
        let year = (year.len() == 4).then(|| year.parse().ok()).flatten()?;
        Date::new(year, month, day).ok().map(|date| date.to_string())
    };
    if first.len() == 4 {
        return date(first, number(second)?, number(third)?);
    }
    let (first, second) = (number(first)?, number(second)?);
    if text.contains('.') {
        return date(third, second, first);
    }
    match (date(third, second, first), date(third, first, second)) {
        (Some(one), Some(other)) if one != other => None,
        (one, other) => one.or(other),
    }
}

/// Whether the text is a day as blackouts write it.
pub(super) fn is_day(text: &str) -> bool {
    is_blackout(text, text)
}

/// A hint for a cron expression in place of windows: how long a window stays open, only its author knows.
pub(super) fn example_of_cron(field: &str, text: &str) -> Option<String> {
    let cron = cron(text).filter(|_| text.split_whitespace().count() >= 5)?;
    let window = yaml(&json!({ "cron": cron, "duration": "4h" }));
    let example = match field {
        "spec.windows" => format!("[{window}]"),
        "spec.window" => format!("windows: [{window}]"),
        field if no_indices(field) == "spec.windows" => window,
        _ => return None,
    };
    Some(format!(
        "write the time and how long the window stays open, such as `{example}`"
    ))
}

fn is_blackout(start: &str, end: &str) -> bool {
    let blackout = BlackoutSpec {
        start: Some(start.to_owned()),
        end: Some(end.to_owned()),
        ..BlackoutSpec::default()
    };
    Blackout::parse(&blackout, &TimeZone::UTC).is_ok()
}

/// A blackout from `2026-12-24`, or from two days with `/`, `..` or `to` between them.
pub(super) fn blackout(text: &str) -> Option<Value> {
    let bound = |text: &str| {
        let text = text.trim();
        if is_blackout(text, text) {
            Some(text.to_owned())
        } else {
            day(text)
        }
    };
    let both = ["..", "/", " to ", " - ", " – ", " until "]
        .into_iter()
        .find_map(|between| {
            let (start, end) = text.split_once(between)?;
            Some((bound(start)?, bound(end)?))
        })
        .or_else(|| bound(text).map(|day| (day.clone(), day)));
    let (start, end) = both?;
    is_blackout(&start, &end).then(|| json!({ "start": start, "end": end }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cron_expression_of_another_dialect_becomes_one_of_five_fields() {
        for (text, five) in [
            ("@weekly", "0 0 * * 0"),
            ("@Daily", "0 0 * * *"),
            ("0 0 22 * * fri", "0 22 * * fri"),
            ("0 0 22 ? * FRI", "0 22 * * fri"),
            ("0 0 22 ? * FRI *", "0 22 * * fri"),
            ("22:00", "0 22 * * *"),
            ("10:30pm", "30 22 * * *"),
        ] {
            assert_eq!(cron(text).as_deref(), Some(five), "{text}");
        }
        for text in [
            "",
            "30 0 22 * * fri",
            "every day",
            "@reboot",
            "0 22 31 2 *",
            "60 22 * * *",
        ] {
            assert_eq!(cron(text), None, "{text}");
        }
    }

    #[test]
    fn a_day_is_read_if_only_one_can_be_meant() {
        for text in [
            "24.12.2026",
            "2026/12/24",
            "12/24/2026",
            "24/12/2026",
            "2026-12-24",
        ] {
            assert_eq!(day(text).as_deref(), Some("2026-12-24"), "{text}");
        }
        for text in ["01/02/2026", "24.12.", "24.12.26", "32.12.2026", "Dec 24", ""] {
            assert_eq!(day(text), None, "{text}");
        }
    }

    #[test]
    fn the_end_of_a_window_is_its_start_and_its_duration() {
        assert_eq!(end_time("22:00", "4h").as_deref(), Some("02:00"));
        assert_eq!(end_time("10pm", "90m").as_deref(), Some("23:30"));
        assert_eq!(end_time("22:00", "24h"), None);
    }
}
