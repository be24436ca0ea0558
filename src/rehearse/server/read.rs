//! Get, list and watch. A list is of one version, however many pages it has.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{BufMut as _, BytesMut};
use tokio::sync::mpsc;

use super::Reply;
use super::route::Object as Asked;
use super::watching::Lines;
use crate::rehearse::fault::Fault;
use crate::rehearse::json::{Value, json};
use crate::rehearse::state::State;
use crate::rehearse::store::{Filter, Object, Snapshot, line};

/// How long a watch lasts that does not say it. Elsewhere it is 30 to 60 minutes, by the dice.
const WATCH_SECONDS: u64 = 45 * 60;

impl State {
    pub(super) fn answer_get(&self, asked: &Asked) -> Result<Reply, Fault> {
        let found = self.store.get(asked.kind, &asked.key());
        let object = found.ok_or_else(|| Fault::not_found(asked.kind, &asked.name))?;
        Ok(Reply::Whole(200, object.json(asked.metadata_only).clone()))
    }

    pub(super) fn answer_list(&mut self, asked: &Asked) -> Result<Reply, Fault> {
        let filter = filter(asked)?;
        let limit = usize::try_from(asked.number("limit")?).unwrap_or_default();
        let token = asked.parameter("continue");
        let list = if token.is_empty() {
            let asked_for = asked.number("resourceVersion")?;
            if asked.parameter("resourceVersionMatch") == "Exact" {
                return Err(Fault::not_played("a list of an exact version"));
            }
            if asked_for > self.store.version() {
                let why = format!(
                    "Too large resource version: {asked_for}, current: {}",
                    self.store.version()
                );
                return Err(Fault::timeout(why));
            }
            // Whoever says 0 takes what a cache has, which may be behind.
            let lag = self.lag[asked.kind as usize];
            if lag > 0 && asked.parameter("resourceVersion") == "0" {
                let (version, list) = self.store.earlier(asked.kind, &filter, lag);
                let rest = list.into();
                Snapshot { version, rest }
            } else {
                Snapshot {
                    version: self.store.version(),
                    rest: self.store.list(asked.kind, &filter).into(),
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
            if !filter.selects() {
                meta["remainingItemCount"] = rest.len().into();
            }
            let number = self.store.keep(Snapshot {
                version: list.version,
                rest: rest.into(),
            });
            let token = json!({ "v": "refit.rs/rehearsal", "list": number });
            meta["continue"] = URL_SAFE_NO_PAD.encode(token.to_string()).into();
        }
        Ok(whole(asked, &meta, page))
    }

    /// What is left of a list that was begun.
    fn rest(&self, token: &str) -> Result<Snapshot, Fault> {
        let invalid = || Fault::bad_request("continue key is not valid: it was not made by this server");
        let text = URL_SAFE_NO_PAD.decode(token).map_err(|_| invalid())?;
        let token: Value = serde_json::from_slice(&text).map_err(|_| invalid())?;
        let number = token["list"].as_u64().ok_or_else(invalid)?;
        self.store.kept(number).ok_or_else(|| {
            Fault::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new \
                 list without the continue parameter, or use the continue token in this response to retrieve the \
                 remainder of the results.",
            )
        })
    }

    pub(super) fn answer_watch(&mut self, asked: &Asked) -> Result<Reply, Fault> {
        let filter = filter(asked)?;
        let (to, events) = mpsc::unbounded_channel();
        let mut since = asked.number("resourceVersion")?;
        if since == 0 {
            // From any version: what is there comes first.
            since = self.store.version();
            for object in self.store.list(asked.kind, &filter) {
                let _ = to.send(line("ADDED", object.json(asked.metadata_only)));
            }
        }
        let watched = self
            .store
            .watch(asked.kind, filter, asked.metadata_only, since, to.clone());
        if let Err(oldest) = watched {
            let fault = Fault::expired(format!("too old resource version: {since} ({oldest})"));
            let _ = to.send(line("ERROR", fault.status().to_string().as_bytes()));
        }
        let seconds = match asked.number("timeoutSeconds")? {
            0 => WATCH_SECONDS,
            seconds => seconds,
        };
        let bookmarks = matches!(asked.parameter("allowWatchBookmarks"), "1" | "true");
        Ok(Reply::Watch(
            asked.kind,
            Lines {
                events,
                seconds,
                bookmarks,
                broken: watched.is_err(),
            },
        ))
    }
}

fn filter(asked: &Asked) -> Result<Filter, Fault> {
    Filter::parse(
        asked.kind,
        asked.namespace.as_deref(),
        asked.parameter("labelSelector"),
        asked.parameter("fieldSelector"),
    )
}

fn whole(asked: &Asked, meta: &Value, items: &[Arc<Object>]) -> Reply {
    let facts = asked.kind.facts();
    let (kind, version) = if asked.metadata_only {
        (
            "PartialObjectMetadataList".to_owned(),
            "meta.k8s.io/v1".to_owned(),
        )
    } else {
        (format!("{}List", facts.kind), facts.api_version())
    };
    let size: usize = items
        .iter()
        .map(|item| item.json(asked.metadata_only).len() + 1)
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
        body.put_slice(item.json(asked.metadata_only));
    }
    body.put_slice(b"]}");
    Reply::Whole(200, body.freeze())
}
