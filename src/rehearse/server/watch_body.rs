//! The body of a watch: changes, a bookmark every minute, and an end after its timeout.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::cluster::Cluster;
use crate::json::json;
use crate::resources::Kind;
use crate::store::{Event, drop_superseded, line};

/// Interval of bookmarks (`defaultBookmarkFrequency`). Without them, a client resumes a quiet watch at a version that
/// may have been compacted.
const BOOKMARK: Duration = Duration::from_secs(60);

pub(super) struct WatchEvents {
    pub(super) events: UnboundedReceiver<Event>,
    /// The line after which it ends.
    pub(super) error: Option<Bytes>,
    pub(super) metadata_only: bool,
    /// Whether it leaves out versions that were superseded before they were read.
    pub(super) merges: bool,
    pub(super) seconds: u64,
    pub(super) bookmarks: bool,
}

pub struct WatchBody {
    cluster: Cluster,
    kind: Kind,
    lines: WatchEvents,
    /// Events that were received and not read yet.
    received: VecDeque<Event>,
    end: Pin<Box<Sleep>>,
    bookmark: Pin<Box<Sleep>>,
}

impl WatchBody {
    pub(super) fn new(cluster: Cluster, kind: Kind, lines: WatchEvents) -> Self {
        let now = Instant::now();
        Self {
            cluster,
            kind,
            end: Box::pin(sleep_until(now + Duration::from_secs(lines.seconds))),
            bookmark: Box::pin(sleep_until(now + BOOKMARK)),
            lines,
            received: VecDeque::new(),
        }
    }

    /// The next event; `None` after the last one.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        if let Some(event) = self.received.pop_front() {
            return Poll::Ready(Some(event));
        }
        let mut all: Vec<Event> = std::task::ready!(self.lines.events.poll_recv(cx))
            .into_iter()
            .collect();
        while self.lines.merges
            && let Ok(event) = self.lines.events.try_recv()
        {
            all.push(event);
        }
        drop_superseded(&mut all);
        self.received = all.into();
        Poll::Ready(self.received.pop_front())
    }

    pub(super) fn poll_line(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(error) = self.lines.error.take() {
            return Poll::Ready(Some(error));
        }
        match self.poll_event(cx) {
            Poll::Ready(Some(event)) => return Poll::Ready(Some(event.line(self.lines.metadata_only))),
            // The server has ended it.
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending => {}
        }
        if self.end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        if self.lines.bookmarks && self.bookmark.as_mut().poll(cx).is_ready() {
            let next = Instant::now() + BOOKMARK;
            self.bookmark.as_mut().reset(next);
            // Polled again, or the timer would not wake this task for the next bookmark.
            let _ = self.bookmark.as_mut().poll(cx);
            return Poll::Ready(Some(self.mark()));
        }
        Poll::Pending
    }

    fn mark(&self) -> Bytes {
        let version = self.cluster.with(|state| state.store.version());
        let facts = self.kind.resource_type();
        let object = json!({
            "kind": facts.kind,
            "apiVersion": facts.api_version(),
            "metadata": { "resourceVersion": version.to_string(), "creationTimestamp": null },
        });
        line("BOOKMARK", object.to_string().as_bytes())
    }
}
