//! All objects of a kind, and what becomes of them. What is not needed is not decoded.

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

/// Objects of a page of a list.
const PAGE: usize = 500;
/// First and longest pause before a watch that broke is begun again.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// What is read of an object before it is known whether it matters.
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

/// What a watch tells.
pub(super) enum News {
    /// An object is there: its JSON.
    Item(Vec<u8>),
    /// An object is there, has changed or is gone: an [`Event`] as JSON.
    Event(Vec<u8>),
    /// From here on all that are there are told, …
    Listing,
    /// … and these were all.
    Listed,
}

/// A line of a watch.
#[derive(Deserialize)]
pub(super) struct Event<'a, T> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Cow<'a, str>,
    pub(super) object: T,
}

impl News {
    /// What is known of the object at first sight, and whether it is gone.
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

    /// The object, whole.
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

/// Tells all objects under `path` (which has a query) and then what becomes of them, until nobody listens.
pub(super) async fn follow(requests: Requests, path: &'static str, news: mpsc::UnboundedSender<News>) {
    let mut pause = PAUSE.0;
    let mut version = None;
    while !news.is_closed() {
        let from = match version.take() {
            Some(version) => Ok(version),
            None => list(&requests, path, &news).await,
        };
        let followed = match from {
            Ok(mut from) => {
                let result = watch(&requests, path, &mut from, &news, &mut pause).await;
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
async fn list(requests: &Requests, path: &str, news: &mpsc::UnboundedSender<News>) -> Result<String> {
    let _ = news.send(News::Listing);
    let version = tell_list(requests, path, news).await?;
    let _ = news.send(News::Listed);
    Ok(version)
}

/// Tells the objects under `path` (which has a query); the version of the list.
pub(super) async fn tell_list(
    requests: &Requests,
    path: &str,
    news: &mpsc::UnboundedSender<News>,
) -> Result<String> {
    let mut next = String::new();
    loop {
        let page = requests.get(&format!("{path}&limit={PAGE}{next}")).await?;
        let list: List<'_> = serde_json::from_slice(&page).context("this is no list")?;
        for item in list.items {
            let _ = news.send(News::Item(item.get().as_bytes().to_vec()));
        }
        match list.metadata.next.filter(|next| !next.is_empty()) {
            Some(token) => next = format!("&continue={token}"),
            None => return Ok(list.metadata.resource_version.into_owned()),
        }
    }
}

/// What becomes of the objects after `version`, which goes along. Whether the version is too old to go on.
async fn watch(
    requests: &Requests,
    path: &str,
    version: &mut String,
    news: &mpsc::UnboundedSender<News>,
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
            if tell(&mut line, version, news)? {
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
fn tell(line: &mut Vec<u8>, version: &mut String, news: &mpsc::UnboundedSender<News>) -> Result<bool> {
    // The API server writes the type first. If it did not, bookmarks would be taken for objects, and do no harm.
    if line.starts_with(br#"{"type":"BOOKMARK""#) {
        #[derive(Deserialize)]
        struct Mark<'a> {
            #[serde(borrow)]
            metadata: ListMeta<'a>,
        }
        let mark: Event<'_, Mark<'_>> = serde_json::from_slice(line).context("this is no bookmark")?;
        *version = mark.object.metadata.resource_version.into_owned();
    } else if line.starts_with(br#"{"type":"ERROR""#) {
        // Mostly 410: what comes after the version has been forgotten.
        return Ok(true);
    } else {
        let _ = news.send(News::Event(std::mem::take(line)));
    }
    Ok(false)
}
