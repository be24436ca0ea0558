//! What to write in place of a value of another type: the value itself where only its form is wrong (`"1"` for `1`), else an
//! example of the field's unit.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use serde_json::Value;

use super::path::no_indices;
use crate::gitops::yaml::{Kind, Node, is_text_to_all, number};
use refit_base::go::GoDuration;

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
    let has_form = ["image", "timeZone", "channel", "start", "end"];
    match (schema.type_.as_deref()?, &node.kind) {
        ("string", _) if Unit::of(field) != Unit::None => None,
        ("string", _)
            if schema
                .enum_
                .as_ref()
                .is_some_and(|all| all.iter().all(|one| one.0 != written)) =>
        {
            None
        }
        ("string", _) if has_form.contains(&field.rsplit('.').next().unwrap_or_default()) => None,
        ("string", Kind::Bool(_)) if field == "spec.version" => None,
        ("string", _) if field.contains("requiredFiles[") => None,
        // The label of a node is `true`, however a selector spells the bool.
        ("string", Kind::Bool(value)) if written.eq_ignore_ascii_case(&value.to_string()) => {
            Some(quoted(value.to_string()))
        }
        ("string", Kind::Number(_) | Kind::Bool(_)) => Some(quoted(written.to_owned())),
        ("boolean", Kind::Text(text)) => Some(text.trim().parse::<bool>().ok()?.to_string()),
        ("integer", Kind::Text(text)) if Unit::of(field) != Unit::Mode => {
            Some(text.trim().parse::<i64>().ok()?.to_string())
        }
        // `drain: {}` drains with the defaults, and `daemonSets: {}` means all.
        ("object", Kind::Bool(true)) if matches!(field, "spec.drain" | "spec.settle.daemonSets") => {
            Some("{}".to_owned())
        }
        _ => None,
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
