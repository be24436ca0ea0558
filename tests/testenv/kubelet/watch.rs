//! Lists and watches the objects of a kind. Decodes only what is needed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::Taint;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::api::Requests;

/// Page size of lists.
const PAGE: usize = 500;
/// First and longest pause before a broken watch is repeated.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// The part of an object that decides whether the rest is decoded.
#[derive(Debug, Deserialize)]
pub(super) struct Head<'a> {
    #[serde(borrow)]
    pub(super) metadata: Meta<'a>,
    #[serde(borrow, default)]
    pub(super) spec: Spec<'a>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Meta<'a> {
    #[serde(borrow)]
    pub(super) name: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) uid: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) resource_version: Cow<'a, str>,
    pub(super) generation: Option<i64>,
    #[serde(borrow)]
    pub(super) deletion_timestamp: Option<Cow<'a, str>>,
    pub(super) deletion_grace_period_seconds: Option<i64>,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) annotations: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spec<'a> {
    /// Of a Pod.
    #[serde(borrow)]
    pub(super) node_name: Option<Cow<'a, str>>,
    /// Of a Node.
    #[serde(default)]
    pub(super) taints: Vec<Taint>,
}

pub(super) enum WatchEvent {
    /// A listed object as JSON.
    Item(Vec<u8>),
    /// An [`Event`] as JSON.
    Event(Vec<u8>),
    /// A list begins.
    Listing,
    /// The list is complete.
    Listed,
}

/// A line of a watch.
#[derive(Deserialize)]
pub(super) struct Event<'a, T> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Cow<'a, str>,
    pub(super) object: T,
}

impl WatchEvent {
    /// The head of the object, and whether it was deleted.
    pub(super) fn head(&self) -> Option<(Head<'_>, bool)> {
        match self {
            Self::Item(object) => Some((serde_json::from_slice(object).ok()?, false)),
            Self::Event(line) => {
                let event: Event<'_, Head<'_>> = serde_json::from_slice(line).ok()?;
                Some((event.object, event.kind == "DELETED"))
            }
            Self::Listing | Self::Listed => None,
        }
    }

    /// The whole object.
    pub(super) fn object<T: DeserializeOwned>(&self) -> Option<T> {
        match self {
            Self::Item(object) => serde_json::from_slice(object).ok(),
            Self::Event(line) => serde_json::from_slice::<Event<'_, T>>(line)
                .ok()
                .map(|event| event.object),
            Self::Listing | Self::Listed => None,
        }
    }
}

#[derive(Deserialize)]
struct List<'a> {
    #[serde(borrow)]
    metadata: ListMeta<'a>,
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta<'a> {
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
    #[serde(borrow, rename = "continue")]
    next: Option<Cow<'a, str>>,
}

/// Sends all objects under `path` (which has a query), and then their changes, until the receiver is dropped.
pub(super) async fn follow(
    requests: Requests,
    path: &'static str,
    events: mpsc::UnboundedSender<WatchEvent>,
) {
    let mut pause = PAUSE.0;
    let mut version = None;
    while !events.is_closed() {
        let from = match version.take() {
            Some(version) => Ok(version),
            None => list(&requests, path, &events).await,
        };
        let followed = match from {
            Ok(mut from) => {
                let result = watch(&requests, path, &mut from, &events, &mut pause).await;
                result.map(|expired| version = Some(from).filter(|_| !expired))
            }
            Err(error) => Err(error),
        };
        if let Err(error) = followed {
            if pause == PAUSE.0 {
                eprintln!("fake kubelet: {path}: {error:#}");
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }
}

/// All objects; the version from which a watch goes on.
async fn list(requests: &Requests, path: &str, events: &mpsc::UnboundedSender<WatchEvent>) -> Result<String> {
    let _ = events.send(WatchEvent::Listing);
    let version = send_list(requests, path, events).await?;
    let _ = events.send(WatchEvent::Listed);
    Ok(version)
}

/// Sends the objects under `path` (which has a query). Returns the version of the list.
pub(super) async fn send_list(
    requests: &Requests,
    path: &str,
    events: &mpsc::UnboundedSender<WatchEvent>,
) -> Result<String> {
    let mut next = String::new();
    loop {
        let page = requests.get(&format!("{path}&limit={PAGE}{next}")).await?;
        let list: List<'_> = serde_json::from_slice(&page).context("this is no list")?;
        for item in list.items {
            let _ = events.send(WatchEvent::Item(item.get().as_bytes().to_vec()));
        }
        match list.metadata.next.filter(|next| !next.is_empty()) {
            Some(token) => next = format!("&continue={token}"),
            None => return Ok(list.metadata.resource_version.into_owned()),
        }
    }
}

/// Sends the changes after `version`, and advances it. Returns whether the version is too old.
async fn watch(
    requests: &Requests,
    path: &str,
    version: &mut String,
    events: &mpsc::UnboundedSender<WatchEvent>,
    pause: &mut Duration,
) -> Result<bool> {
    let query = format!("{path}&watch=1&allowWatchBookmarks=true&resourceVersion={version}");
    let response = requests.stream(&query).await?;
    if response.status() == http::StatusCode::GONE {
        return Ok(true);
    }
    if !response.status().is_success() {
        bail!("{}", response.status());
    }
    let mut body = response.into_body();
    let mut line = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        let mut rest = &data[..];
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            line.extend_from_slice(&rest[..end]);
            rest = &rest[end + 1..];
            if send_event(&mut line, version, events)? {
                return Ok(true);
            }
            line.clear();
            *pause = PAUSE.0;
        }
        line.extend_from_slice(rest);
    }
    Ok(false)
}

/// Whether the watch has expired.
fn send_event(
    line: &mut Vec<u8>,
    version: &mut String,
    events: &mpsc::UnboundedSender<WatchEvent>,
) -> Result<bool> {
    // The API server writes the type first.
    if line.starts_with(br#"{"type":"ERROR""#) {
        // Usually 410: the history after the version was compacted.
        return Ok(true);
    }
    // The next watch continues from here. A repeated event could run a deleted pod again.
    version_of(line).context("this is no event")?.clone_into(version);
    if !line.starts_with(br#"{"type":"BOOKMARK""#) {
        let _ = events.send(WatchEvent::Event(std::mem::take(line)));
    }
    Ok(false)
}

/// `resourceVersion` of the object in an event, without decoding it: it comes before everything that users can write.
fn version_of(line: &[u8]) -> Option<&str> {
    const KEY: &[u8] = br#""resourceVersion":""#;
    let begin = line.windows(KEY.len()).position(|window| window == KEY)? + KEY.len();
    let length = line[begin..].iter().position(|byte| *byte == b'"')?;
    std::str::from_utf8(&line[begin..begin + length]).ok()
}

#[test]
fn the_version_of_an_event_is_that_of_its_object() {
    let event = br#"{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"resourceVersion","resourceVersion":"12",
        "annotations":{"a":"\"resourceVersion\":\"13\""},"ownerReferences":[]}}}"#;
    assert_eq!(version_of(event), Some("12"));
    assert_eq!(version_of(br#"{"type":"ADDED","object":{}}"#), None);
}
