//! The one value to write where it follows from what was written: `900` from `15m`, `"1"` from `1`.
//!
//! People paste hints unread, so the field must accept it, in its own unit. If the intention is ambiguous, there is none.

mod time;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray,
};
use serde_json::Value;

use super::path::no_indices;
use crate::gitops::yaml::{Kind, Node, is_text_to_all, number};
use refit_base::go::GoDuration;
use time::seconds;
pub(super) use time::{duration, time_of_day};

/// The unit of a field, beyond its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// A Go duration, as text.
    Duration,
    Seconds,
    /// A time of day, as text.
    Time,
    /// A file mode, which people write in octal.
    Mode,
    None,
}

impl Unit {
    pub(super) fn of(field: &str) -> Self {
        let field = no_indices(field);
        match field.strip_prefix("spec.").unwrap_or_default() {
            "postCompleteDelay"
            | "reboot.timeout"
            | "settle.timeout"
            | "settle.minReady"
            | "drain.timeout"
            | "drain.loadBalancerDelay"
            | "drain.settleDelay"
            | "versionPolicy.minimumAge"
            | "repeat.every"
            | "waves.soak" => Self::Duration,
            "jobActiveDeadlineSecs"
            | "drain.gracePeriod"
            | "drain.skipWaitForDeleteTimeout"
            | "tolerations.tolerationSeconds" => Self::Seconds,
            "window.startTime" | "window.endTime" | "windows.startTime" | "windows.endTime" => Self::Time,
            "secrets.defaultMode" => Self::Mode,
            // Fields of lists, such as the windows of a Plan.
            field => match field.rsplit('.').next() {
                Some("timeout" | "duration" | "soak" | "backoff" | "interval") => Self::Duration,
                _ => Self::None,
            },
        }
    }

    /// A value of this unit, if nothing says which one is meant.
    pub(super) const fn example(self) -> Option<&'static str> {
        match self {
            Self::Duration => Some("write a duration such as `30s`, `15m` or `1h30m`"),
            Self::Seconds => Some("write a number of seconds, such as `900`"),
            Self::Time => Some("write a time such as `\"22:00\"`"),
            Self::Mode => Some("write the mode as a number, such as `0400`"),
            Self::None => None,
        }
    }
}

/// The value that the author of `node` meant, as YAML. `written` is the source text of a scalar.
pub(super) fn meant(field: &str, schema: &JSONSchemaProps, node: &Node, written: &str) -> Option<String> {
    match schema.type_.as_deref() {
        Some("string") => text(field, schema, node, written),
        Some("boolean") => truth(node).map(|truth| truth.to_string()),
        Some("integer") => whole_number(field, node.text()?.trim()),
        Some("array") => list(schema, node, written),
        // `drain: {}` drains with the defaults, and `daemonSets: {}` means all.
        Some("object")
            if matches!(field, "spec.drain" | "spec.settle.daemonSets")
                && matches!(node.kind, Kind::Bool(true)) =>
        {
            Some("{}".to_owned())
        }
        // Of the fields of type int-or-string, only the node limits have a minimum; the other one is a duration.
        None if schema.minimum.is_some() => share(node),
        _ => None,
    }
}

fn text(field: &str, schema: &JSONSchemaProps, node: &Node, written: &str) -> Option<String> {
    if !matches!(node.kind, Kind::Number(_) | Kind::Bool(_)) {
        return None;
    }
    let has_form = ["image", "timeZone", "channel", "start", "end"];
    match Unit::of(field) {
        Unit::Duration => match &node.kind {
            Kind::Number(number) => {
                let is_plain = written.bytes().all(|b| b.is_ascii_digit()) && !written.starts_with('0');
                let text = if is_plain {
                    written.to_owned()
                } else {
                    number.to_string()
                };
                duration(&text).filter(|duration| takes_duration(field, duration))
            }
            _ => None,
        },
        Unit::Time => time_of_day(written).map(quoted),
        _ if schema.enum_.is_some() => allowed(schema, written).map(quoted),
        _ if has_form.contains(&field.rsplit('.').next().unwrap_or_default()) => None,
        _ if field == "spec.version" && matches!(node.kind, Kind::Bool(_)) => None,
        _ if field.contains("requiredFiles[") => None,
        // The label of a node is `true`, however a selector spells the bool.
        _ => Some(quoted(match &node.kind {
            Kind::Bool(value) if written.eq_ignore_ascii_case(&value.to_string()) => value.to_string(),
            _ => written.to_owned(),
        })),
    }
}

/// The word of an enumeration that was written, in the case that it has there: `false` may mean `"False"`.
fn allowed(schema: &JSONSchemaProps, word: &str) -> Option<String> {
    let mut all = schema.enum_.iter().flatten().filter_map(|one| one.0.as_str());
    all.find(|one| one.eq_ignore_ascii_case(word)).map(str::to_owned)
}

/// Whether a number without a unit can only mean this duration: false for a zero duration in a field that needs a
/// positive one.
fn takes_duration(field: &str, duration: &str) -> bool {
    // 72 may be hours or days, and 4 hours.
    if matches!(
        no_indices(field).as_str(),
        "spec.versionPolicy.minimumAge" | "spec.windows.duration" | "spec.repeat.every"
    ) {
        return false;
    }
    let needs_time = matches!(field, "spec.reboot.timeout" | "spec.settle.timeout");
    let duration = duration.parse::<GoDuration>().unwrap_or_default();
    duration.as_nanos() >= i64::from(needs_time)
}

fn truth(node: &Node) -> Option<bool> {
    match &node.kind {
        Kind::Number(number) => number.as_u64().filter(|bit| *bit < 2).map(|bit| bit == 1),
        Kind::Text(text) => match text.trim().to_lowercase().as_str() {
            "true" | "yes" | "y" | "on" | "1" | "enabled" => Some(true),
            "false" | "no" | "n" | "off" | "0" | "disabled" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

fn whole_number(field: &str, text: &str) -> Option<String> {
    match Unit::of(field) {
        Unit::Mode => {
            let digits = text.trim_start_matches("0o").trim_start_matches('0');
            let mode = u32::from_str_radix(digits, 8)
                .ok()
                .filter(|mode| *mode <= 0o777)?;
            Some(format!("0{mode:o}"))
        }
        Unit::Seconds => match text.parse::<i64>() {
            Ok(seconds) => Some(seconds.to_string()),
            Err(_) => seconds(text).map(|seconds| seconds.to_string()),
        },
        _ => text.parse::<i64>().ok().map(|number| number.to_string()),
    }
}

/// A list with the one word that stands in its place.
fn list(schema: &JSONSchemaProps, node: &Node, written: &str) -> Option<String> {
    let Some(JSONSchemaPropsOrArray::Schema(item)) = &schema.items else {
        return None;
    };
    let word = match &node.kind {
        Kind::Text(text) => yaml_text(text.trim()),
        Kind::Number(_) => quoted(written.to_owned()),
        Kind::Bool(value) => quoted(value.to_string()),
        _ => return None,
    };
    let text = node.text().unwrap_or_default().trim();
    let is_word = !text.contains(|c: char| c.is_whitespace() || ",[]{}$|&;<>~".contains(c));
    let fits = item.enum_.is_none() || allowed(item, text).is_some_and(|word| word == *text);
    (item.type_.as_deref() == Some("string") && is_word && fits).then(|| format!("[{word}]"))
}

fn share(node: &Node) -> Option<String> {
    match &node.kind {
        Kind::Number(number) => {
            let share = number.as_f64().filter(|share| *share > 0.0 && *share < 1.0)?;
            Some(format!("{:.0}%", (share * 100.0).max(1.0)))
        }
        Kind::Text(text) => node_limit(text),
        _ => None,
    }
}

/// A corrected node limit: `3` for `"3"`, `25%` for `25 %`.
pub(super) fn node_limit(text: &str) -> Option<String> {
    let text = text.trim();
    let text = text.trim_end_matches("nodes").trim_end_matches("node").trim_end();
    match text.strip_suffix('%') {
        Some(percent) => {
            let percent: f64 = percent.trim().parse().ok()?;
            (percent > 0.0).then(|| format!("{:.0}%", percent.floor().clamp(1.0, 100.0)))
        }
        None => text.parse::<u32>().ok().map(|nodes| nodes.max(1).to_string()),
    }
}

fn quoted(text: String) -> String {
    Value::from(text).to_string()
}

/// A text as YAML, without quotes where every reader takes it for text.
pub(super) fn yaml_text(text: &str) -> String {
    let is_span = text.parse::<GoDuration>().is_ok() && text.ends_with(|c: char| c.is_ascii_alphabetic());
    // A path or the key of a label has slashes; what is between them is checked by itself.
    let is_plain = text
        .trim_start_matches('/')
        .split('/')
        .all(|part| is_text_to_all(part) || part.starts_with('.') && part.len() > 1)
        || (is_span && number(text).is_none());
    if is_plain && !text.is_empty() {
        text.to_owned()
    } else {
        quoted(text.to_owned())
    }
}
