//! The `ConfigMap` `refit` in the controller's namespace: limits for all Plans together. While it cannot be parsed, no node
//! starts, because the invalid entry may have been meant to prevent that.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::node_limit::NodeLimit;
use super::schedule::{Blackout, BlackoutSpec};
use super::text::{MAX_MESSAGE, shorten};
use super::validate::MAX_SCHEDULE_ENTRIES;
use refit_base::nearest::nearest;

/// Name of the `ConfigMap`.
pub const NAME: &str = "refit";
pub const FREEZE: &str = "freeze";
pub const MAX_UNAVAILABLE: &str = "maxUnavailable";
pub const MAX_CONCURRENT: &str = "maxConcurrent";
pub const BLACKOUTS: &str = "blackouts";
/// Receivers of notifications about roll-outs. A mistake there stops nothing.
pub const NOTIFICATIONS: &str = "notifications";
/// The Alertmanagers in which alerts of nodes are silenced. A mistake there stops nothing.
pub const SILENCES: &str = "silences";
/// All keys, in the order of the documentation.
pub const KEYS: [&str; 6] = [
    FREEZE,
    MAX_UNAVAILABLE,
    MAX_CONCURRENT,
    BLACKOUTS,
    NOTIFICATIONS,
    SILENCES,
];
/// Bytes of a value in a message.
const MAX_VALUE: usize = 80;
/// Bytes of the blackouts. A `ConfigMap` has up to a mebibyte, and the YAML parser would take a fifth of a second for it.
const MAX_BLACKOUTS: usize = 64 << 10;
/// Fields of a blackout.
const BLACKOUT_FIELDS: [&str; 4] = ["start", "end", "reason", "timeZone"];

/// What holds for all Plans together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Why no node starts.
    pub freeze: Option<String>,
    /// How many nodes of the cluster may be unavailable for a further one to start.
    pub max_unavailable: Option<NodeLimit>,
    /// Maximum number of nodes in progress, of all Plans.
    pub max_concurrent: Option<NodeLimit>,
    pub blackouts: Vec<Blackout>,
}

/// Why the `ConfigMap` is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("key {key:?} is {value:?}: {allowed}")]
pub struct LimitsError {
    pub key: String,
    /// The value, shortened.
    pub value: String,
    pub allowed: String,
}

impl Limits {
    /// Parses the data of the `ConfigMap`. `local` is the zone of the process.
    ///
    /// # Errors
    /// Fails with the first error, by key.
    pub fn parse(data: &BTreeMap<String, String>, local: &TimeZone) -> Result<Self, LimitsError> {
        let mut limits = Self::default();
        for (key, value) in data {
            let error = |allowed: String| LimitsError {
                key: shorten(key, MAX_VALUE).into_owned(),
                value: shorten(value, MAX_VALUE).into_owned(),
                // It may repeat what the author wrote there.
                allowed: shorten(&allowed, MAX_MESSAGE).into_owned(),
            };
            match key.as_str() {
                FREEZE => limits.freeze = Some(freeze(value).map_err(error)?),
                MAX_UNAVAILABLE => limits.max_unavailable = Some(limit(value).map_err(error)?),
                MAX_CONCURRENT => limits.max_concurrent = Some(limit(value).map_err(error)?),
                BLACKOUTS => limits.blackouts = blackouts(value, local).map_err(error)?,
                NOTIFICATIONS | SILENCES => {}
                _ => {
                    let hint =
                        nearest(key, KEYS).map_or_else(String::new, |key| format!("; did you mean {key:?}?"));
                    return Err(error(format!("the keys are {}{hint}", KEYS.join(", "))));
                }
            }
        }
        Ok(limits)
    }
}

fn freeze(value: &str) -> Result<String, String> {
    match value.trim() {
        // An author may mean by this that nodes may start, or that they may not.
        "" | "false" | "no" | "off" => {
            Err("it must be the reason why no node may start; remove the key to let nodes start".to_owned())
        }
        reason => Ok(shorten(reason, MAX_MESSAGE).into_owned()),
    }
}

fn limit(value: &str) -> Result<NodeLimit, String> {
    let value = value.trim();
    let limit = match value.parse::<i32>() {
        Ok(nodes) => IntOrString::Int(nodes),
        Err(_) => IntOrString::String(value.to_owned()),
    };
    NodeLimit::parse(&limit).ok_or_else(|| {
        "it must be a number from 1 on, or a share of the cluster's nodes from 1% to 100%; to let no node start, use freeze"
            .to_owned()
    })
}

fn blackouts(value: &str, local: &TimeZone) -> Result<Vec<Blackout>, String> {
    let list = "it must be a YAML list of blackouts, each with start and end, and with reason and timeZone if you like";
    if value.trim().is_empty() {
        return Ok(Vec::new());
    }
    if value.len() > MAX_BLACKOUTS {
        return Err(format!(
            "it has {} bytes, and may have {MAX_BLACKOUTS}",
            value.len()
        ));
    }
    let entries: Vec<serde_json::Map<String, serde_json::Value>> =
        serde_saphyr::from_str(value).map_err(|_| list.to_owned())?;
    if entries.len() > MAX_SCHEDULE_ENTRIES {
        return Err(format!(
            "it has {} entries, and may have {MAX_SCHEDULE_ENTRIES}",
            entries.len()
        ));
    }
    let parse = |(index, entry): (usize, serde_json::Map<String, serde_json::Value>)| {
        if let Some(field) = entry.keys().find(|key| !BLACKOUT_FIELDS.contains(&key.as_str())) {
            return Err(format!(
                "entry {index} has the field {:?}; the fields are {}",
                shorten(field, MAX_VALUE),
                BLACKOUT_FIELDS.join(", ")
            ));
        }
        let spec: BlackoutSpec = serde_json::from_value(entry.into()).map_err(|_| list.to_owned())?;
        Blackout::parse(&spec, local).map_err(|error| format!("entry {index}: {error}"))
    };
    entries.into_iter().enumerate().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &[(&str, &str)]) -> Result<Limits, LimitsError> {
        let data = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Limits::parse(&data.collect(), &TimeZone::UTC)
    }

    #[test]
    fn every_key_is_read() {
        let limits = parse(&[
            ("freeze", " audit "),
            ("maxUnavailable", "3"),
            ("maxConcurrent", "10%\n"),
            (
                "blackouts",
                "- {start: 12-24, end: 01-02, reason: holidays}\n- start: 2026-03-01\n  end: 2026-03-02\n",
            ),
            ("notifications", "anything"),
            ("silences", "anything"),
        ])
        .unwrap();
        assert_eq!(limits.freeze.as_deref(), Some("audit"));
        assert_eq!(limits.max_unavailable, Some(NodeLimit::Nodes(3)));
        assert_eq!(limits.max_concurrent, Some(NodeLimit::Percent(10)));
        let reasons: Vec<_> = limits.blackouts.iter().map(|one| one.reason.as_str()).collect();
        assert_eq!(reasons, ["holidays", ""]);
        assert_eq!(parse(&[]).unwrap(), Limits::default());
    }

    #[test]
    fn long_texts_are_cut_or_refused() {
        let long = "x".repeat(1 << 20);
        let freeze = parse(&[("freeze", &long)]).unwrap().freeze.unwrap();
        assert!(freeze.len() <= MAX_MESSAGE);
        let reason = format!("- {{start: 12-24, end: 12-26, reason: {}}}", "r".repeat(10_000));
        assert!(
            parse(&[("blackouts", &reason)]).unwrap().blackouts[0]
                .reason
                .len()
                <= 256
        );
        let long_text = "f".repeat(1_000); // YAML takes no longer key
        for (blackout, says) in [
            (format!("- {{{long_text}: 1}}"), "has the field \"fff"),
            (format!("- {{start: 12-24, end: {long_text}}}"), "end is \"fff"),
            (
                format!("- {{start: 12-24, end: 12-26, timeZone: {long_text}}}"),
                "unknown time zone fff",
            ),
        ] {
            let error = parse(&[("blackouts", &blackout)]).unwrap_err().to_string();
            assert!(error.contains(says) && error.len() < 1_400, "{error}");
        }
        let error = parse(&[("blackouts", &long)]).unwrap_err().to_string();
        assert!(
            error.ends_with("it has 1048576 bytes, and may have 65536") && error.len() < 300,
            "{error}"
        );
    }

    #[test]
    fn an_invalid_limit_names_the_key_the_value_and_the_allowed_values() {
        for (key, value, allowed) in [
            ("freeze", "", "it must be the reason"),
            ("freeze", "false", "it must be the reason"),
            (
                "frezze",
                "audit",
                "the keys are freeze, maxUnavailable, maxConcurrent, blackouts, notifications, silences; did you mean \"freeze\"?",
            ),
            ("maxUnavailable", "0", "it must be a number from 1 on"),
            ("maxUnavailable", "150%", "it must be a number from 1 on"),
            ("maxConcurrent", "many", "it must be a number from 1 on"),
            ("blackouts", "tomorrow", "it must be a YAML list"),
            ("blackouts", "- {start: 12-24}", "entry 0: end is \"\""),
            (
                "blackouts",
                "- {start: 12-24, end: 12-26, timezone: UTC}",
                "entry 0 has the field \"timezone\"",
            ),
            (
                "blackouts",
                "- {start: 12-24, end: 12-26, timeZone: Bonn}",
                "entry 0: timeZone is invalid",
            ),
        ] {
            let error = parse(&[(key, value)]).unwrap_err();
            assert_eq!((error.key.as_str(), error.value.as_str()), (key, value));
            assert!(error.allowed.starts_with(allowed), "{error}");
        }
    }
}
