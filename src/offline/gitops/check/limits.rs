//! The `ConfigMap` `refit`, whose mistakes let no node of any Plan start.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;

use super::subject::Subject;
use crate::gitops::objects::Object;
use crate::gitops::rule::Rule;
use crate::gitops::yaml::{Entry, Node};
use refit_api::limits::{KEYS, Limits, NAME, NOTIFICATIONS, SILENCES};
use refit_base::nearest::nearest;
use refit_formats::notify::{Problem, receivers, silence_rules};

/// Whether the object is that `ConfigMap`. Another program may have one of this name, with other keys.
pub(super) fn is_limits(object: &Object<'_>) -> bool {
    let is_named =
        object.kind == "ConfigMap" && object.api_version == "v1" && object.metadata("name") == Some(NAME);
    let data = object.node.get("data").and_then(Node::object);
    let mut keys = data
        .into_iter()
        .flat_map(|data| &data.entries)
        .map(|entry| entry.key.name.as_str());
    is_named && keys.any(|key| KEYS.contains(&key) || nearest(key, KEYS).is_some())
}

/// What is wrong with the keys that limit nothing.
fn notify_problems(key: &str, value: &str) -> Vec<Problem> {
    match key {
        NOTIFICATIONS => receivers(value).1,
        SILENCES => silence_rules(value).1,
        _ => Vec::new(),
    }
}

impl Subject<'_> {
    /// Checks each key by itself, so that each mistake has its line.
    pub(super) fn check_limits(&mut self) {
        let data = self.node("data").and_then(Node::object);
        let entries: Vec<&Entry> = data.iter().flat_map(|data| &data.entries).collect();
        for Entry { key, value, .. } in entries {
            let field = format!("data.{}", key.name);
            let Some(text) = value.text() else {
                let message = format!("{field} is not a text, which the API server refuses");
                let hint = Some("put the value in quotes".to_owned());
                self.report_at(Rule::InvalidLimits, value.span.start, Some(&field), message, hint);
                continue;
            };
            for problem in notify_problems(&key.name, text) {
                let message = format!("{problem}; roll-outs would continue without it");
                self.report_at(Rule::InvalidLimits, value.span.start, Some(&field), message, None);
            }
            let one = BTreeMap::from([(key.name.clone(), text.to_owned())]);
            // Only the syntax is checked, so any zone can stand for `Local`.
            if let Err(error) = Limits::parse(&one, &TimeZone::UTC) {
                let offset = if KEYS.contains(&key.name.as_str()) {
                    value.span.start
                } else {
                    key.span.start
                };
                let message = format!("{error}; no node of any Plan would start");
                self.report_at(Rule::InvalidLimits, offset, Some(&field), message, None);
            }
        }
    }
}
