//! Lists and watches of one kind, without end: list in pages, watch, list again if the server has forgotten the version.
//!
//! kube's watcher parses a page as a whole, so that one object that cannot be read would stop its kind for good. This
//! one parses each object by itself, names those that cannot be read, and notices that a server's versions went back, as
//! they do after a restore of etcd: there, a watch from a later version would be silent for hours.

use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

use futures::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _};
use kube::Client;
use kube::api::{ListParams, WatchParams};
use kube::core::{Request, Status};
use kube::runtime::watcher::DefaultBackoff;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::brief;
use super::error::{Answer, is_failure, is_version_ahead};
use super::pages::{Page, Pages};
use refit_facts::Watched;
use refit_facts::read::{Identity, read};
use refit_facts::store::Change;

/// Requested duration of a watch, and how much longer it may take to end before its connection counts as dead.
const WATCH_SECONDS: u32 = 290;
const WATCH_GRACE: Duration = Duration::from_secs(5);
/// A server sends a bookmark every minute. A watch that ended without a line after this time may have waited for a
/// version that the server has not reached, so all objects are listed again.
/// Source: `defaultBookmarkFrequency` in apiserver's `storage/cacher/cacher.go`.
const SILENCE: Duration = Duration::from_secs(150);

/// Maximum length of a page of a list, and of a line of a watch. etcd stores objects of up to 1.5 MiB, and Go's JSON has six
/// bytes for each `<`, `>`, `&` and control character. A single object has to fit, because one that is never read stops its
/// kind. A kubelet may create any number of pods: a page of a hundred such would take more than the memory of the
/// controller, so it is requested again in parts.
const MAX_RESPONSE: u64 = 12 << 20;

/// A change, or how the list or the watch goes.
#[derive(Debug)]
pub enum WatchEvent<K> {
    Change(Change<K>),
    /// The server has accepted the watch.
    Watching,
    /// The versions of the server went back: what was read before may never have been.
    VersionsReset,
    Failed(WatchError),
}

#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    #[error("{}", brief(.0))]
    Request(#[from] kube::Error),
    #[error("{0}")]
    Connection(#[from] io::Error),
    #[error("{}", brief_status(.0))]
    Ended(Box<Status>),
    #[error("the list has no resource version")]
    NoResourceVersion,
    #[error("a line is not a watch event: {0}")]
    Line(serde_json::Error),
    #[error("the response is longer than any object")]
    TooLong,
}

fn brief_status(status: &Status) -> &str {
    if status.message.is_empty() {
        "the server has ended the watch"
    } else {
        &status.message
    }
}

impl WatchError {
    pub fn answer(&self) -> Answer {
        match self {
            Self::Request(kube::Error::Api(status)) | Self::Ended(status) => Answer::of_status(status),
            _ => Answer::None,
        }
    }

    /// Whether only a list helps, because the server does not have the version any more, or not yet.
    fn needs_list(&self) -> bool {
        match self {
            Self::Request(kube::Error::Api(status)) | Self::Ended(status) => {
                Answer::of_status(status) == Answer::Expired || is_version_ahead(status)
            }
            // After these it is not known which changes were missed.
            Self::Line(_) | Self::NoResourceVersion | Self::TooLong => true,
            Self::Request(_) | Self::Connection(_) => false,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Path of the kind, in a namespace or of all.
    pub path: String,
    pub labels: Option<String>,
    pub fields: Option<String>,
    /// Objects per page of a list.
    pub page: u32,
    /// Whether only metadata is read.
    pub metadata_only: bool,
}

pub struct Watch<K> {
    client: Client,
    selection: Selection,
    state: State,
    /// Events that were received and not returned yet.
    received: VecDeque<WatchEvent<K>>,
    /// The latest version that the server has shown.
    latest: u64,
    backoff: DefaultBackoff,
    failed: bool,
    /// [`MAX_RESPONSE`].
    max: u64,
    kind: PhantomData<fn() -> K>,
}

enum State {
    Start,
    List(Pages),
    /// Everything is known up to this version.
    Listed(String),
    Watching {
        version: String,
        lines: Pin<Box<dyn AsyncBufRead + Send>>,
        since: tokio::time::Instant,
        silent: bool,
    },
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    type_: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

impl<K: Watched> Watch<K> {
    pub fn new(client: Client, selection: Selection) -> Self {
        Self {
            client,
            selection,
            state: State::Start,
            received: VecDeque::new(),
            latest: 0,
            backoff: DefaultBackoff::default(),
            failed: false,
            max: MAX_RESPONSE,
            kind: PhantomData,
        }
    }

    /// The next event. After an error it waits before it tries again: the pause is not reset by a success, so that a list
    /// that fails repeatedly is not retried without one, but by two quiet minutes. Not cancel-safe.
    pub async fn next(&mut self) -> WatchEvent<K> {
        loop {
            if let Some(event) = self.received.pop_front() {
                return event;
            }
            if std::mem::take(&mut self.failed)
                && let Some(pause) = self.backoff.next()
            {
                tokio::time::sleep(pause).await;
            }
            match self.advance().await {
                Ok(()) => {}
                Err(error) => {
                    self.failed = true;
                    if error.needs_list() {
                        self.state = State::Start;
                    }
                    return WatchEvent::Failed(error);
                }
            }
        }
    }

    async fn advance(&mut self) -> Result<(), WatchError> {
        match std::mem::replace(&mut self.state, State::Start) {
            State::Start => {
                self.state = State::List(self.pages());
                self.received.push_back(WatchEvent::Change(Change::ListStarted));
                Ok(())
            }
            // A list that fails begins anew, because the server may have forgotten its version.
            State::List(pages) => self.list(pages).await,
            State::Listed(version) => {
                self.state = State::Listed(version.clone());
                let lines = self.start_watch(&version).await?;
                self.received.push_back(WatchEvent::Watching);
                self.state = State::Watching {
                    version,
                    lines,
                    since: tokio::time::Instant::now(),
                    silent: true,
                };
                Ok(())
            }
            State::Watching {
                version,
                mut lines,
                since,
                silent,
            } => {
                let mut line = Vec::new();
                match read_line(&mut lines, &mut line, self.max).await {
                    Ok(true) => {
                        let (version, outcome) = self.take_line(&line, version);
                        self.state = State::Watching {
                            version,
                            lines,
                            since,
                            silent: false,
                        };
                        outcome
                    }
                    // The state is `Start` here, so a list follows. A watch that never showed a line may be one of a
                    // server that has not got the version.
                    Ok(false) if silent && since.elapsed() >= SILENCE => Ok(()),
                    Ok(false) => {
                        self.state = State::Listed(version);
                        Ok(())
                    }
                    // The watch resumes at its last version, unless the error needs a list (`next`).
                    Err(error) => {
                        self.state = State::Listed(version);
                        Err(error)
                    }
                }
            }
        }
    }

    fn pages(&self) -> Pages {
        // Without a resourceVersion the response is not older than the request (KEP-2340). The order of the first lists
        // relies on that (src/controller/observe.rs).
        let params = ListParams {
            label_selector: self.selection.labels.clone(),
            field_selector: self.selection.fields.clone(),
            limit: Some(self.selection.page),
            ..ListParams::default()
        };
        let request = Request::new(&self.selection.path);
        Pages::new(request, params, self.selection.metadata_only)
    }

    async fn list(&mut self, mut pages: Pages) -> Result<(), WatchError> {
        let Some(text) = pages.text(&self.client, self.max).await? else {
            if self.selection.page <= 1 {
                return Err(WatchError::TooLong);
            }
            self.selection.page /= 2;
            pages.resize(self.selection.page);
            self.state = State::List(pages);
            return Ok(());
        };
        // Items stay raw text: each is parsed by itself, so that one that cannot be read does not spoil its page.
        let page: Page<&RawValue> = serde_json::from_slice(&text).map_err(kube::Error::SerdeError)?;
        let version = page.metadata.resource_version.filter(|it| !it.is_empty());
        let has_more = pages.advance(page.metadata.continue_)?;
        // Without a version no watch could continue from this list, and changes in between would be lost.
        if version.is_none() && !has_more {
            return Err(WatchError::NoResourceVersion);
        }
        if let Some(version) = &version
            && self.note_version(version)
        {
            return Ok(());
        }
        for item in page.items.into_iter().flatten() {
            self.received.push_back(WatchEvent::Change(Self::object(item)));
        }
        match version {
            Some(version) if !has_more => {
                let finished = Change::ListFinished(self.latest);
                self.received.push_back(WatchEvent::Change(finished));
                self.state = State::Listed(version);
            }
            _ => self.state = State::List(pages),
        }
        Ok(())
    }

    async fn start_watch(&mut self, version: &str) -> Result<Pin<Box<dyn AsyncBufRead + Send>>, WatchError> {
        // By default kube requests bookmarks, on which `SILENCE` relies.
        let params = WatchParams {
            label_selector: self.selection.labels.clone(),
            field_selector: self.selection.fields.clone(),
            timeout: Some(WATCH_SECONDS),
            ..WatchParams::default()
        };
        let request = Request::new(&self.selection.path);
        let request = if self.selection.metadata_only {
            request.watch_metadata(&params, version)
        } else {
            request.watch(&params, version)
        };
        let request = request.map_err(kube::Error::BuildRequest)?;
        Ok(Box::pin(self.client.request_stream(request).await?))
    }

    fn object(raw: &RawValue) -> Change<K> {
        match read::<K>(raw) {
            Ok(object) => Change::Object(object),
            Err(unreadable) => match K::salvage(raw, &unreadable) {
                Some(object) => Change::Object(object),
                None => Change::Unreadable(unreadable),
            },
        }
    }

    /// Takes a line of a watch, and returns the version up to which everything is known.
    fn take_line(&mut self, line: &[u8], version: String) -> (String, Result<(), WatchError>) {
        let Line { type_, object } = match serde_json::from_slice::<Line<'_>>(line) {
            Ok(line) => line,
            // The end of a connection in the middle of a line.
            Err(error) if error.is_eof() => return (version, Ok(())),
            Err(error) => {
                let error = match serde_json::from_slice::<Status>(line) {
                    Ok(status) if is_failure(&status) => WatchError::Ended(status.boxed()),
                    _ => WatchError::Line(error),
                };
                return (version, Err(error));
            }
        };
        if type_ == "ERROR" {
            let status = serde_json::from_str::<Status>(object.get());
            // An ERROR line may hold something else than a Status, for example behind a proxy.
            let status = status.unwrap_or_else(|_| Status::failure(object.get(), "Unknown"));
            return (version, Err(WatchError::Ended(status.boxed())));
        }
        let Identity {
            name,
            uid,
            resource_version,
            ..
        } = Identity::of(object);
        let change = match &*type_ {
            "ADDED" | "MODIFIED" => Self::object(object),
            "DELETED" => Change::Deleted { name, uid },
            // Of no use without a version, and harmless.
            "BOOKMARK" if resource_version.is_empty() => return (version, Ok(())),
            "BOOKMARK" => {
                self.note_version(&resource_version);
                return (resource_version, Ok(()));
            }
            // A type of a later Kubernetes. Its object comes with the next list at the latest.
            _ => return (version, Ok(())),
        };
        if resource_version.is_empty() {
            return (version, Err(WatchError::NoResourceVersion));
        }
        if !self.note_version(&resource_version) {
            self.received.push_back(WatchEvent::Change(change));
        }
        (resource_version, Ok(()))
    }

    /// Notes a version that the server has shown. Versions of a kind are numbers that only grow (KEP-5504).
    fn note_version(&mut self, version: &str) -> bool {
        // A version that is not a number proves nothing, so it is neither compared nor stored.
        let version = version.parse().unwrap_or(u64::MAX);
        if version < self.latest {
            self.received.push_back(WatchEvent::VersionsReset);
            return true;
        }
        if version != u64::MAX {
            self.latest = version;
        }
        false
    }
}

/// Reads a line. Returns false at the end.
async fn read_line(
    lines: &mut Pin<Box<dyn AsyncBufRead + Send>>,
    line: &mut Vec<u8>,
    max: u64,
) -> Result<bool, WatchError> {
    let limit = Duration::from_secs(WATCH_SECONDS.into()) + WATCH_GRACE;
    let mut lines = lines.as_mut().take(max);
    match tokio::time::timeout(limit, lines.read_until(b'\n', line)).await {
        Ok(Ok(_)) if lines.limit() == 0 => Err(WatchError::TooLong),
        Ok(Ok(bytes)) => Ok(bytes > 0),
        // A server that ends, or a proxy with a time limit, may do so in the middle of a chunk.
        Ok(Err(error)) if is_unexpected_end(&error) => Ok(false),
        Ok(Err(error)) => Err(error.into()),
        // The server ends each watch by itself at the requested time, so this connection is dead.
        Err(_) => Ok(false),
    }
}

fn is_unexpected_end(error: &io::Error) -> bool {
    let inner = error.get_ref().map(|it| it as &(dyn std::error::Error + 'static));
    let mut causes = std::iter::successors(inner, |it| it.source()).take(16);
    let is_end = |error: &io::Error| error.kind() == io::ErrorKind::UnexpectedEof;
    is_end(error)
        || causes.any(|it| it.downcast_ref::<io::Error>().is_some_and(is_end))
        // kube's own watcher recognizes the end within a chunk by this text, too (kube-client's client/mod.rs).
        || error.to_string().contains("unexpected EOF during chunk")
}

#[cfg(test)]
mod tests;
