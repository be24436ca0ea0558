//! Silences of Alertmanager (its API, version 2) for nodes that are being upgraded.
//!
//! The silence itself is the record: `createdBy` names this controller, and the comment has the key of the node's
//! attempt. So a new leader finds the silences of its predecessors, ends those that are no longer needed, and creates
//! none twice.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::config::SilenceRule;
use super::template::{Escape, Template};
use refit_api::digest::short_digest;
use refit_api::text::shorten;
use refit_api::{NodePhase, NodeProgress};
use refit_facts::PlanFacts;

pub(super) const MIN_DURATION: SignedDuration = SignedDuration::from_mins(1);
/// A silence that is forgotten must end by itself.
pub const MAX_DURATION: SignedDuration = SignedDuration::from_hours(24);
/// Length of a key, in hex digits.
const KEY: usize = 16;
/// What stands before the key in a comment.
const BEFORE_KEY: &str = "refit ";

/// A condition on a label, in Alertmanager's notation: `node="{{ node }}"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matcher {
    name: String,
    value: Template,
    is_regex: bool,
    is_equal: bool,
}

impl Matcher {
    /// Parses a matcher in Alertmanager's syntax, whose value is a template.
    ///
    /// # Errors
    /// Fails if the text has no operator, the label's name is invalid, the value is not a quoted text or a single word, or
    /// the template is invalid. The message shows the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = || {
            format!(
                "a matcher is {:?}: it must be as in Alertmanager, such as node=\"{{{{ node }}}}\" or instance=~\"{{{{ node }}}}(:[0-9]+)?\"",
                shorten(text, 60)
            )
        };
        let at = text.find(['=', '!']).ok_or_else(bad)?;
        let (name, rest) = (text[..at].trim(), &text[at..]);
        // `=` is a prefix of `=~`, so it comes last.
        let operators = [
            ("=~", true, true),
            ("!~", true, false),
            ("!=", false, false),
            ("=", false, true),
        ];
        let (operator, is_regex, is_equal) = operators
            .into_iter()
            .find(|(operator, ..)| rest.starts_with(operator))
            .ok_or_else(bad)?;
        let value = rest[operator.len()..].trim();
        let value = match value.strip_prefix('"') {
            Some(_) => serde_json::from_str::<String>(value).map_err(|_| bad())?,
            None if value.contains(['"', ' ']) => return Err(bad()),
            None => value.to_owned(),
        };
        let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !starts_well || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(bad());
        }
        let value =
            Template::parse(&value, &["node", "plan"]).map_err(|why| format!("a matcher is wrong: {why}"))?;
        let matcher = Self {
            name: name.to_owned(),
            value,
            is_regex,
            is_equal,
        };
        // Found at configuration time, because Alertmanager would refuse the silence only when a node starts. It
        // compiles the value with Go's `regexp`, whose syntax is nearly the same.
        if is_regex && regex::Regex::new(&matcher.value("node", "plan")).is_err() {
            return Err(format!(
                "the matcher {:?} has no regular expression",
                shorten(text, 60)
            ));
        }
        Ok(matcher)
    }

    /// Whether only alerts of the node match. `!=` and `!~` would silence those of all other nodes.
    pub(super) fn names_the_node(&self) -> bool {
        self.is_equal && self.value.has("node")
    }

    fn value(&self, node: &str, plan: &str) -> String {
        let values = BTreeMap::from([("node", node.to_owned()), ("plan", plan.to_owned())]);
        let escape = if self.is_regex {
            Escape::Regex
        } else {
            Escape::None
        };
        self.value.render(&values, escape)
    }
}

/// The nodes that a Plan works on, by its stored status, with a key for this attempt there. One that has failed is not silenced:
/// a person must repair it.
pub fn down(plan: &PlanFacts) -> impl Iterator<Item = (String, &NodeProgress)> {
    let status = plan.status();
    let hash = status.latest_hash.as_deref().unwrap_or_default();
    let active = status.active.iter().flatten();
    let works = active.filter(|node| node.phase != NodePhase::Waiting && node.phase != NodePhase::Failed);
    works.map(move |node| {
        let attempt = node.attempt.unwrap_or(1).to_string();
        let uid = node.uid.as_deref().unwrap_or(&node.name);
        (short_digest(&[&plan.uid, hash, uid, &attempt], KEY), node)
    })
}

/// The author of the silences of a controller.
pub fn created_by(cluster_id: &str, namespace: &str, controller: &str) -> String {
    format!("refit {namespace}/{controller} ({cluster_id})")
}

/// The body of a request for a silence of a node that a Plan works on.
pub fn silence(
    rule: &SilenceRule,
    plan: &PlanFacts,
    (key, node): (&str, &str),
    created_by: &str,
    now: Timestamp,
) -> Value {
    let version = plan.status().latest_version.as_deref().unwrap_or_default();
    let plan = &plan.name;
    let matchers = rule.matchers.iter().map(|matcher| {
        json!({
            "name": matcher.name,
            "value": matcher.value(node, plan),
            "isRegex": matcher.is_regex,
            "isEqual": matcher.is_equal,
        })
    });
    let matchers: Vec<Value> = matchers.collect();
    let ends = now.saturating_add(rule.duration).unwrap_or(Timestamp::MAX);
    json!({
        "matchers": matchers,
        "startsAt": format!("{now:.3}"),
        "endsAt": format!("{ends:.3}"),
        "createdBy": created_by,
        "comment": format!("Plan {plan} upgrades node {node} to {version} ({BEFORE_KEY}{key})"),
    })
}

/// A silence of this controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownSilence {
    pub id: String,
    pub key: String,
    /// Whether it has not ended.
    pub is_active: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    id: String,
    #[serde(default)]
    created_by: String,
    #[serde(default)]
    comment: String,
    #[serde(default)]
    status: ListedStatus,
}

#[derive(Default, Deserialize)]
struct ListedStatus {
    #[serde(default)]
    state: String,
}

/// The silences of this controller in the answer to a list of all.
///
/// # Errors
/// Fails if `list` is not a list of silences.
pub fn known_silences(list: &[u8], created_by: &str) -> Result<Vec<KnownSilence>, String> {
    let listed: Vec<Listed> =
        serde_json::from_slice(list).map_err(|_| "the answer is not a list of silences".to_owned())?;
    let ours = listed
        .into_iter()
        .filter(|silence| silence.created_by == created_by);
    let known = ours.filter_map(|silence| {
        let comment = silence.comment.strip_suffix(')')?;
        let key = comment.rsplit_once(&format!("({BEFORE_KEY}"))?.1.to_owned();
        Some(KnownSilence {
            id: silence.id,
            key,
            // A silence whose start is ahead of the clock of Alertmanager is `pending`, and begins later.
            is_active: silence.status.state != "expired",
        })
    });
    Ok(known.collect())
}

#[cfg(test)]
mod tests;
