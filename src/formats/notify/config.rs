//! The keys `notifications` and `silences` of the `ConfigMap` `refit`.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::body::{Context, VALUES, body};
use super::notice::{Notice, NoticeKind};
use super::silence::{MAX_DURATION, MIN_DURATION, Matcher};
use super::template::{Escape, Template};
use refit_api::limits::{NOTIFICATIONS, SILENCES};
use refit_api::names::is_secret_name;
use refit_api::open_enum::ClosedEnum as _;
use refit_api::text::shorten;
use refit_base::go::GoDuration;
use refit_base::nearest::nearest;

/// Entries of a list. Each receiver has a connection and marks of its own.
const MAX_ENTRIES: usize = 8;
/// Bytes of a value of the `ConfigMap`.
const MAX_VALUE: usize = 128 << 10;
/// Bytes of a template.
const MAX_TEMPLATE: usize = 16 << 10;
/// Bytes of a name: of a receiver, and of a cluster.
const MAX_NAME: usize = 63;
/// Plans that a receiver may name.
const MAX_PLANS: usize = 256;
/// Bytes of a message of the YAML parser.
const MAX_WHY: usize = 200;
/// How long a roll-out makes no progress before it counts as stalled, as in the alert `RefitRolloutStalled`.
const STALLED_AFTER: SignedDuration = SignedDuration::from_hours(1);
/// The default `duration` of a silence.
const SILENCE: SignedDuration = SignedDuration::from_hours(1);
/// The default `contentType` of a template.
const JSON: &str = "application/json";

/// Receivers of notifications about roll-outs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    pub name: String,
    /// The Secret with its URL.
    pub secret: String,
    pub format: Format,
    pub kinds: BTreeSet<NoticeKind>,
    /// The Plans about which it is notified; all of them if there is none.
    pub plans: Vec<String>,
    /// Name of the cluster for people, if it has one.
    pub cluster: Option<String>,
    pub stalled_after: SignedDuration,
    /// Whether its URL may be plain HTTP.
    pub allow_plain_http: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// `CloudEvents` 1.0 over HTTP.
    CloudEvents(Mode),
    /// An incoming webhook of Slack, which Mattermost, Rocket.Chat and others have, too.
    Slack,
    Template {
        content_type: String,
        body: Template,
    },
}

/// The content mode of `CloudEvents`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Structured,
    Binary,
}

impl Receiver {
    /// Whether it gets notices of this kind about this Plan.
    pub fn wants(&self, kind: NoticeKind, plan: &str) -> bool {
        self.kinds.contains(&kind) && (self.plans.is_empty() || self.plans.iter().any(|known| known == plan))
    }
}

/// An Alertmanager, and what is silenced there while a node is being upgraded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SilenceRule {
    /// The Secret with its URL.
    pub secret: String,
    pub matchers: Vec<Matcher>,
    /// How long a silence lasts unless refit ends it.
    pub duration: SignedDuration,
    pub allow_plain_http: bool,
}

/// An invalid entry of `notifications` or `silences`, for the event on the `ConfigMap` and for `refit validate`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("key {key:?}: {why}")]
pub struct Problem {
    pub key: &'static str,
    pub why: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ReceiverSpec {
    name: String,
    secret: String,
    format: String,
    mode: Option<String>,
    events: Option<Vec<String>>,
    plans: Option<Vec<String>>,
    cluster: Option<String>,
    stalled_after: Option<String>,
    content_type: Option<String>,
    body: Option<String>,
    #[serde(rename = "allowPlainHTTP", default)]
    allow_plain_http: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SilenceSpec {
    secret: String,
    matchers: Option<Vec<String>>,
    duration: Option<String>,
    #[serde(rename = "allowPlainHTTP", default)]
    allow_plain_http: bool,
}

/// The receivers in the value of `notifications`, and what is wrong there. Entries that are right are used.
pub fn receivers(value: &str) -> (Vec<Receiver>, Vec<Problem>) {
    let mut names = BTreeSet::new();
    list(NOTIFICATIONS, value, |spec: ReceiverSpec| {
        let receiver = receiver(spec)?;
        if names.insert(receiver.name.clone()) {
            Ok(receiver)
        } else {
            Err(format!("another entry has the name {:?}", receiver.name))
        }
    })
}

/// The rules in the value of `silences`, and what is wrong there. Entries that are right are used.
pub fn silence_rules(value: &str) -> (Vec<SilenceRule>, Vec<Problem>) {
    list(SILENCES, value, silence_rule)
}

fn list<S: DeserializeOwned, T>(
    key: &'static str,
    value: &str,
    mut read: impl FnMut(S) -> Result<T, String>,
) -> (Vec<T>, Vec<Problem>) {
    let problem = |why: String| Problem { key, why };
    if value.trim().is_empty() {
        return (Vec::new(), Vec::new());
    }
    if value.len() > MAX_VALUE {
        let why = format!("it has {} bytes, and may have {MAX_VALUE}", value.len());
        return (Vec::new(), vec![problem(why)]);
    }
    let entries: Vec<serde_json::Value> = match serde_saphyr::from_str(value) {
        Ok(entries) => entries,
        Err(error) => {
            let why = format!("it is not a YAML list: {}", first_line(&error.to_string()));
            return (Vec::new(), vec![problem(why)]);
        }
    };
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    if entries.len() > MAX_ENTRIES {
        bad.push(problem(format!(
            "it has {} entries; refit uses the first {MAX_ENTRIES}",
            entries.len()
        )));
    }
    // One by one, so that a mistake in one entry does not stop the notifications of the others.
    for (index, entry) in entries.into_iter().take(MAX_ENTRIES).enumerate() {
        let read = serde_json::from_value(entry)
            .map_err(|error| first_line(&error.to_string()))
            .and_then(&mut read);
        match read {
            Ok(one) => good.push(one),
            Err(why) => bad.push(problem(format!("entry {index}: {why}"))),
        }
    }
    (good, bad)
}

fn first_line(text: &str) -> String {
    shorten(text.lines().next().unwrap_or_default(), MAX_WHY).into_owned()
}

fn receiver(spec: ReceiverSpec) -> Result<Receiver, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if spec.name.is_empty() || spec.name.len() > MAX_NAME || !spec.name.chars().all(is_plain) {
        return Err(format!(
            "name is {:?}: it must be at most {MAX_NAME} letters, digits, '-', '_' and '.'",
            shorten(&spec.name, MAX_NAME)
        ));
    }
    let secret = secret(spec.secret)?;
    let cluster = spec.cluster.filter(|name| !name.is_empty());
    if cluster
        .as_ref()
        .is_some_and(|name| name.len() > MAX_NAME || name.chars().any(char::is_control))
    {
        return Err(format!("cluster must be a name of at most {MAX_NAME} characters"));
    }
    let plans = spec.plans.unwrap_or_default();
    if plans.len() > MAX_PLANS {
        return Err(format!(
            "plans has {} names, and may have {MAX_PLANS}",
            plans.len()
        ));
    }
    let kinds = match spec.events {
        None => NoticeKind::ALL.iter().copied().collect(),
        Some(names) => names.iter().map(|name| kind(name)).collect::<Result<_, _>>()?,
    };
    let stalled_after = match spec.stalled_after {
        None => STALLED_AFTER,
        Some(text) => duration(
            "stalledAfter",
            &text,
            SignedDuration::from_secs(1),
            SignedDuration::MAX,
        )?,
    };
    let format = format(
        &spec.format,
        spec.mode.as_deref(),
        spec.content_type,
        spec.body.as_deref(),
    )?;
    let receiver = Receiver {
        name: spec.name,
        secret,
        format,
        kinds,
        plans,
        cluster,
        stalled_after,
        allow_plain_http: spec.allow_plain_http,
    };
    check_json(&receiver)?;
    Ok(receiver)
}

fn secret(name: String) -> Result<String, String> {
    if is_secret_name(&name) {
        Ok(name)
    } else {
        Err(format!(
            "secret is {:?}, which is not the name of a Secret",
            shorten(&name, MAX_NAME)
        ))
    }
}

fn kind(name: &str) -> Result<NoticeKind, String> {
    NoticeKind::named(name).ok_or_else(|| {
        let names: Vec<&str> = NoticeKind::ALL.iter().map(|kind| kind.name()).collect();
        let hint = nearest(name, names.iter().copied())
            .map_or_else(String::new, |name| format!("; did you mean {name}?"));
        format!(
            "events has {:?}; the events are {}{hint}",
            shorten(name, MAX_NAME),
            names.join(", ")
        )
    })
}

fn duration(
    field: &str,
    text: &str,
    least: SignedDuration,
    most: SignedDuration,
) -> Result<SignedDuration, String> {
    let parsed: Result<GoDuration, _> = text.parse();
    let parsed = parsed.map(|duration| SignedDuration::from_nanos(duration.as_nanos()));
    match parsed {
        Ok(duration) if (least..=most).contains(&duration) => Ok(duration),
        _ => Err(format!(
            "{field} is {:?}: it must be a Go duration such as 30m, and at least {least:#}{}",
            shorten(text, MAX_NAME),
            if most == SignedDuration::MAX {
                String::new()
            } else {
                format!(" and at most {most:#}")
            }
        )),
    }
}

fn format(
    name: &str,
    mode: Option<&str>,
    content_type: Option<String>,
    template: Option<&str>,
) -> Result<Format, String> {
    if name != "cloudevents" && mode.is_some() {
        return Err("mode is only for the format cloudevents".to_owned());
    }
    if name != "template" && (content_type.is_some() || template.is_some()) {
        return Err("contentType and body are only for the format template".to_owned());
    }
    match name {
        "cloudevents" => match mode {
            None | Some("structured") => Ok(Format::CloudEvents(Mode::Structured)),
            Some("binary") => Ok(Format::CloudEvents(Mode::Binary)),
            Some(other) => Err(format!(
                "mode is {:?}: it must be structured or binary",
                shorten(other, MAX_NAME)
            )),
        },
        "slack" => Ok(Format::Slack),
        "template" => {
            let text = template.ok_or("the format template needs body")?;
            if text.len() > MAX_TEMPLATE {
                return Err(format!(
                    "body has {} bytes, and may have {MAX_TEMPLATE}",
                    text.len()
                ));
            }
            let content_type = content_type.unwrap_or_else(|| JSON.to_owned());
            if content_type.is_empty() || http::HeaderValue::from_str(&content_type).is_err() {
                return Err("contentType is not a media type such as application/json".to_owned());
            }
            let body =
                Template::parse(text, &VALUES).map_err(|why| format!("body is not a template: {why}"))?;
            Ok(Format::Template { content_type, body })
        }
        other => {
            let formats = ["cloudevents", "slack", "template"];
            let hint =
                nearest(other, formats).map_or_else(String::new, |name| format!("; did you mean {name}?"));
            Err(format!(
                "format is {:?}: it must be cloudevents, slack or template{hint}",
                shorten(other, MAX_NAME)
            ))
        }
    }
}

/// A body that claims to be JSON must be JSON, which is found out before the first roll-out.
fn check_json(receiver: &Receiver) -> Result<(), String> {
    let Format::Template { content_type, .. } = &receiver.format else {
        return Ok(());
    };
    if Escape::of(content_type) != Escape::Json {
        return Ok(());
    }
    let rendered = body(receiver, &Notice::example(), &Context::default());
    serde_json::from_slice::<serde::de::IgnoredAny>(&rendered.bytes)
        .map(drop)
        .map_err(|error| {
            format!("body is not JSON once its values are inserted: put each into quotes, or correct contentType: {error}")
        })
}

fn silence_rule(spec: SilenceSpec) -> Result<SilenceRule, String> {
    let secret = secret(spec.secret)?;
    let matchers = spec
        .matchers
        .unwrap_or_else(|| vec![r#"node="{{ node }}""#.to_owned()]);
    let matchers: Vec<Matcher> = matchers
        .iter()
        .map(|text| Matcher::parse(text))
        .collect::<Result<_, _>>()?;
    if matchers.len() > MAX_ENTRIES {
        return Err(format!(
            "matchers has {} entries, and may have {MAX_ENTRIES}",
            matchers.len()
        ));
    }
    if !matchers.iter().any(Matcher::names_the_node) {
        return Err(
            "no matcher has {{ node }} after = or =~, so that a silence would concern more than the node"
                .to_owned(),
        );
    }
    let duration = match spec.duration {
        None => SILENCE,
        Some(text) => duration("duration", &text, MIN_DURATION, MAX_DURATION)?,
    };
    Ok(SilenceRule {
        secret,
        matchers,
        duration,
        allow_plain_http: spec.allow_plain_http,
    })
}

#[cfg(test)]
mod tests;
