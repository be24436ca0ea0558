//! The bodies and headers of notifications.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::config::{Format, Mode, Receiver};
use super::notice::Notice;
use super::template::Escape;
use refit_api::Severity;

/// The values of a template.
pub(super) const VALUES: [&str; 14] = [
    "event",
    "type",
    "id",
    "time",
    "severity",
    "cluster",
    "namespace",
    "plan",
    "version",
    "node",
    "wave",
    "reason",
    "message",
    "text",
];
/// `application/cloudevents+json` is always UTF-8; the parameter is in the examples of the specification.
const CLOUDEVENTS_JSON: &str = "application/cloudevents+json; charset=utf-8";
const JSON: &str = "application/json";

/// Where notifications come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// UID of the namespace `kube-system`.
    pub cluster_id: String,
    pub namespace: String,
    /// Name of the controller.
    pub controller: String,
}

impl Context {
    /// The `source` of `CloudEvents`: with `id`, it is unique.
    fn source(&self) -> String {
        let Self {
            cluster_id,
            namespace,
            controller,
        } = self;
        format!("/clusters/{cluster_id}/namespaces/{namespace}/refit/{controller}")
    }
}

/// What a request contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    pub content_type: String,
    /// Further headers.
    pub headers: Vec<(&'static str, String)>,
    pub bytes: Vec<u8>,
}

/// The request that tells a receiver.
pub fn body(receiver: &Receiver, notice: &Notice, context: &Context) -> Body {
    let plain = |content_type: &str, bytes: Vec<u8>| Body {
        content_type: content_type.to_owned(),
        headers: Vec::new(),
        bytes,
    };
    match &receiver.format {
        Format::CloudEvents(Mode::Structured) => {
            let event = attributes(notice, context);
            let mut event: serde_json::Map<String, Value> = event
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value.into()))
                .collect();
            event.insert("datacontenttype".to_owned(), JSON.into());
            event.insert("data".to_owned(), data(receiver, notice, context));
            plain(CLOUDEVENTS_JSON, Value::Object(event).to_string().into_bytes())
        }
        Format::CloudEvents(Mode::Binary) => {
            let headers = attributes(notice, context).into_iter().map(|(name, value)| {
                let name = match name {
                    "specversion" => "ce-specversion",
                    "id" => "ce-id",
                    "source" => "ce-source",
                    "type" => "ce-type",
                    "subject" => "ce-subject",
                    _ => "ce-time",
                };
                (name, header(&value))
            });
            Body {
                headers: headers.collect(),
                ..plain(JSON, data(receiver, notice, context).to_string().into_bytes())
            }
        }
        Format::Slack => {
            let sign = match notice.kind.severity() {
                Severity::Warning => ":warning: ",
                Severity::Normal => "",
            };
            let cluster = receiver
                .cluster
                .as_ref()
                .map_or_else(String::new, |name| format!("[{name}] "));
            let text = format!("{sign}{}", slack(&format!("{cluster}{}", notice.text())));
            plain(JSON, json!({ "text": text }).to_string().into_bytes())
        }
        Format::Template { content_type, body } => {
            let values = values(receiver, notice, context);
            plain(
                content_type,
                body.render(&values, Escape::of(content_type)).into_bytes(),
            )
        }
    }
}

/// The attributes of a `CloudEvent`.
fn attributes(notice: &Notice, context: &Context) -> Vec<(&'static str, String)> {
    let subject = match &notice.node {
        Some(node) => format!("{}/{node}", notice.plan),
        None => notice.plan.clone(),
    };
    vec![
        ("specversion", "1.0".to_owned()),
        ("id", notice.id.clone()),
        ("source", context.source()),
        ("type", notice.kind.event_type().to_owned()),
        ("subject", subject),
        ("time", format!("{:.0}", notice.time)),
    ]
}

fn data(receiver: &Receiver, notice: &Notice, context: &Context) -> Value {
    let mut values = values(receiver, notice, context);
    // A CloudEvent has these as attributes.
    for name in ["type", "id", "time"] {
        values.remove(name);
    }
    values.retain(|_, value| !value.is_empty());
    json!(values)
}

fn values(receiver: &Receiver, notice: &Notice, context: &Context) -> BTreeMap<&'static str, String> {
    let optional = |value: &Option<String>| value.clone().unwrap_or_default();
    BTreeMap::from([
        ("event", notice.kind.name().to_owned()),
        ("type", notice.kind.event_type().to_owned()),
        ("id", notice.id.clone()),
        ("time", format!("{:.0}", notice.time)),
        ("severity", notice.kind.severity().name().to_owned()),
        ("cluster", optional(&receiver.cluster)),
        ("namespace", context.namespace.clone()),
        ("plan", notice.plan.clone()),
        ("version", notice.version.clone()),
        ("node", optional(&notice.node)),
        ("wave", optional(&notice.wave)),
        ("reason", notice.reason.as_deref().unwrap_or_default().to_owned()),
        ("message", notice.message.clone()),
        ("text", notice.text()),
    ])
}

/// A value of a header: other characters than printable ASCII, the space, `"` and `%` are percent-encoded
/// (`CloudEvents`, HTTP binding, 3.1.3.2).
fn header(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_graphic() && !matches!(byte, b'"' | b'%') {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// Text of a message of Slack: these three characters are markup, with which a text could mention everybody in the channel.
fn slack(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests;
