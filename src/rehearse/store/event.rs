//! What a watch shows of a change.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};

use super::object::Object;
use super::{Change, Filter};

/// An event of a watch. It becomes text only when the watcher reads it.
#[derive(Clone, Debug)]
pub struct Event {
    type_: &'static str,
    object: Arc<Object>,
}

impl Event {
    pub fn added(object: Arc<Object>) -> Self {
        let type_ = "ADDED";
        Self { type_, object }
    }

    /// The event of a change, as a watcher with this filter sees it.
    pub(super) fn of(change: &Change, filter: &Filter) -> Option<Self> {
        let before = change.old.as_ref().is_some_and(|old| filter.matches(old));
        let after = !change.gone && filter.matches(&change.new);
        let type_ = match (before, after) {
            (false, false) => return None,
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
        };
        let object = if type_ == "DELETED" && !change.gone {
            // The last version that matched the filter, with the version of the change (`convertToWatchEvent` of
            // k8s.io/apiserver).
            let old = change.old.as_ref()?;
            Arc::new(Object::new(old.value.clone(), change.version))
        } else {
            Arc::clone(&change.new)
        };
        Some(Self { type_, object })
    }

    pub fn line(&self, metadata_only: bool) -> Bytes {
        line(self.type_, self.object.json(metadata_only))
    }
}

/// Leaves out versions of objects that had a newer one before the watcher read them. The last version before a deletion
/// stays: only that one says how a pod ended.
pub fn drop_superseded(events: &mut Vec<Event>) {
    let mut newer = HashSet::new();
    let mut keep: Vec<bool> = events
        .iter()
        .rev()
        .map(|event| match event.type_ {
            "DELETED" => {
                newer.remove(event.object.uid());
                true
            }
            _ => newer.insert(event.object.uid()),
        })
        .collect();
    events.retain(|_| keep.pop().unwrap_or(true));
}

/// A line of a watch.
pub fn line(type_: &str, object: &[u8]) -> Bytes {
    let mut line = BytesMut::with_capacity(object.len() + 40);
    line.put_slice(b"{\"type\":\"");
    line.put_slice(type_.as_bytes());
    line.put_slice(b"\",\"object\":");
    line.put_slice(object);
    line.put_slice(b"}\n");
    line.freeze()
}
