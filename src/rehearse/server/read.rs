//! Get, list and watch. All pages of a list have one resource version.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{BufMut as _, BytesMut};
use tokio::sync::mpsc;

use super::Reply;
use super::route::Object as ApiRequest;
use super::watch_body::WatchEvents;
use crate::json::{Value, json};
use crate::state::State;
use crate::status_error::StatusError;
use crate::store::{Event, Filter, Object, SavedList, line};

/// Default duration of a watch. A real server chooses 30 to 60 minutes at random.
const WATCH_SECONDS: u64 = 45 * 60;

impl State {
    pub(super) fn serve_get(&self, request: &ApiRequest) -> Result<Reply, StatusError> {
        let found = self.store.get(request.kind, &request.key());
        let object = found.ok_or_else(|| StatusError::not_found(request.kind, &request.name))?;
        Ok(Reply::Whole(200, object.json(request.metadata_only).clone()))
    }

    pub(super) fn serve_list(&mut self, request: &ApiRequest) -> Result<Reply, StatusError> {
        let filter = filter(request)?;
        let limit = usize::try_from(request.number("limit")?).unwrap_or_default();
        let token = request.parameter("continue");
        let list = if token.is_empty() {
            let asked_for = request.number("resourceVersion")?;
            if request.parameter("resourceVersionMatch") == "Exact" {
                return Err(StatusError::unsupported("a list of an exact version"));
            }
            // An API server that lags, or whose etcd was restored. Its watch cache waits for three seconds first.
            if asked_for > self.store.version() {
                let why = format!(
                    "Too large resource version: {asked_for}, current: {}",
                    self.store.version()
                );
                return Err(StatusError::timeout(why));
            }
            // `resourceVersion=0` may be answered from a cache, which may lag.
            let lag = self.lag[request.kind as usize];
            if lag > 0 && request.parameter("resourceVersion") == "0" {
                let (version, list) = self.store.earlier(request.kind, &filter, lag);
                let rest = list.into();
                SavedList { version, rest }
            } else {
                SavedList {
                    version: self.store.version(),
                    rest: self.store.list(request.kind, &filter).into(),
                }
            }
        } else {
            self.rest(token)?
        };
        let page = if limit == 0 {
            list.rest.len()
        } else {
            limit.min(list.rest.len())
        };
        let (page, rest) = list.rest.split_at(page);
        let mut meta = json!({ "resourceVersion": list.version.to_string() });
        if !rest.is_empty() {
            // With a selector, an API server does not know the number, and omits it (`ListMeta`).
            if !filter.selects() {
                meta["remainingItemCount"] = rest.len().into();
            }
            let number = self.store.save_list(SavedList {
                version: list.version,
                rest: rest.into(),
            });
            let token = json!({ "v": "refit.rs/rehearsal", "list": number });
            meta["continue"] = URL_SAFE_NO_PAD.encode(token.to_string()).into();
        }
        Ok(whole(request, &meta, page))
    }

    fn rest(&self, token: &str) -> Result<SavedList, StatusError> {
        let invalid =
            || StatusError::bad_request("continue key is not valid: it was not made by this server");
        let text = URL_SAFE_NO_PAD.decode(token).map_err(|_| invalid())?;
        let token: Value = serde_json::from_slice(&text).map_err(|_| invalid())?;
        let number = token["list"].as_u64().ok_or_else(invalid)?;
        self.store.saved_list(number).ok_or_else(|| {
            StatusError::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new \
                 list without the continue parameter, or use the continue token in this response to retrieve the \
                 remainder of the results.",
            )
        })
    }

    pub(super) fn serve_watch(&mut self, request: &ApiRequest) -> Result<Reply, StatusError> {
        let filter = filter(request)?;
        let (to, events) = mpsc::unbounded_channel();
        let mut since = request.number("resourceVersion")?;
        if since == 0 {
            // Starts at any version, with the existing objects first.
            since = self.store.version();
            for object in self.store.list(request.kind, &filter) {
                let _ = to.send(Event::added(object));
            }
        }
        let watched = self.store.watch(request.kind, filter, since, to);
        // The API server sends this error as an event of a watch, and not as a response (`Watch` in cacher.go).
        let error = watched.err().map(|oldest| {
            let status_error = StatusError::expired(format!("too old resource version: {since} ({oldest})"));
            line("ERROR", &status_error.status().to_bytes())
        });
        let seconds = match request.number("timeoutSeconds")? {
            0 => WATCH_SECONDS,
            seconds => seconds,
        };
        let bookmarks = matches!(request.parameter("allowWatchBookmarks"), "1" | "true");
        Ok(Reply::Watch(
            request.kind,
            WatchEvents {
                events,
                error,
                metadata_only: request.metadata_only,
                merges: self.economical,
                seconds,
                bookmarks,
            },
        ))
    }
}

fn filter(request: &ApiRequest) -> Result<Filter, StatusError> {
    Filter::parse(
        request.kind,
        request.namespace.as_deref(),
        request.parameter("labelSelector"),
        request.parameter("fieldSelector"),
    )
}

fn whole(request: &ApiRequest, meta: &Value, items: &[Arc<Object>]) -> Reply {
    let facts = request.kind.resource_type();
    let (kind, version) = if request.metadata_only {
        (
            "PartialObjectMetadataList".to_owned(),
            "meta.k8s.io/v1".to_owned(),
        )
    } else {
        (format!("{}List", facts.kind), facts.api_version())
    };
    let size: usize = items
        .iter()
        .map(|item| item.json(request.metadata_only).len() + 1)
        .sum();
    let mut body = BytesMut::with_capacity(size + 256);
    body.put_slice(
        format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",\"metadata\":{meta},\"items\":[")
            .as_bytes(),
    );
    for (place, item) in items.iter().enumerate() {
        if place > 0 {
            body.put_u8(b',');
        }
        body.put_slice(item.json(request.metadata_only));
    }
    body.put_slice(b"]}");
    Reply::Whole(200, body.freeze())
}
