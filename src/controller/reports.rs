//! Reports objects that cannot be read, in the log and for Nodes in an event: once for each version of an object, and at
//! a limited rate, because a client that writes such an object may do so many times a second.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::Resource;
use tokio::time::Instant;

use crate::events::Source;
use crate::outbox::Outbox;
use refit_api::Reason;
use refit_api::text::{MAX_MESSAGE, MAX_NAME, shorten};
use refit_cluster::clock::Clock;
use refit_facts::Watched;
use refit_facts::read::Unreadable;

/// Objects whose last reported version is remembered.
const REMEMBERED: usize = 256;
/// Reports in a row, after which the rest of [`INTERVAL`] is quiet.
const BURST: u32 = 30;
const INTERVAL: Duration = Duration::from_secs(600);

#[derive(Clone)]
pub(super) struct Reports {
    outbox: Outbox,
    source: Source,
    clock: Clock,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// By kind and UID: the version, and when it was reported.
    reported: HashMap<String, (String, Instant)>,
    in_order: VecDeque<String>,
    /// When the interval began, and the number of reports in it.
    interval: Option<(Instant, u32)>,
    /// Objects that were skipped, and reports that were left out.
    skipped: u64,
    left_out: u64,
}

impl State {
    /// Whether this version of an object is to be reported now.
    fn admit(&mut self, key: &str, version: &str, now: Instant) -> bool {
        if let Some((known, at)) = self.reported.get(key)
            && (known == version || now.duration_since(*at) < INTERVAL)
        {
            return false;
        }
        let (start, count) = self
            .interval
            .filter(|(start, _)| now.duration_since(*start) < INTERVAL)
            .unwrap_or((now, 0));
        self.interval = Some((start, count + 1));
        if count >= BURST {
            self.left_out += 1;
            return false;
        }
        if self
            .reported
            .insert(key.to_owned(), (version.to_owned(), now))
            .is_none()
        {
            self.in_order.push_back(key.to_owned());
        }
        if self.in_order.len() > REMEMBERED
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.reported.remove(&oldest);
        }
        true
    }
}

impl Reports {
    pub(super) fn new(outbox: Outbox, source: Source, clock: Clock) -> Self {
        Self {
            outbox,
            source,
            clock,
            state: Arc::default(),
        }
    }

    /// Reports an object that cannot be read.
    pub(super) fn report(&self, kind: &str, unreadable: &Unreadable) {
        let Unreadable {
            name,
            namespace,
            uid,
            resource_version,
            why,
        } = unreadable;
        let why = shorten(why, MAX_MESSAGE);
        let message = format!("refit cannot read this {kind}, and leaves it alone: {why}");
        self.write(kind, [namespace, name, uid, resource_version], &message, true);
    }

    pub(super) fn report_ignored<K: Watched + Resource<DynamicType = ()>>(&self, object: &K) {
        let Some(ignored) = object.ignored_time() else {
            return;
        };
        let meta = object.meta();
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (namespace, name, uid) = (text(&meta.namespace), text(&meta.name), text(&meta.uid));
        // Only its first version: it can be read, and changes often.
        self.write(
            &K::kind(&()),
            [&namespace, &name, &uid, "ignored"],
            &ignored,
            false,
        );
    }

    fn write(&self, kind: &str, object: [&str; 4], message: &str, skipped: bool) {
        let [namespace, name, uid, version] = object.map(|text| shorten(text, MAX_NAME));
        let key = format!("{kind}/{uid}/{namespace}/{name}");
        let (skipped, left_out) = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.skipped += u64::from(skipped);
            if !state.admit(&key, &version, Instant::now()) {
                return;
            }
            (state.skipped, std::mem::take(&mut state.left_out))
        };
        let reason = Reason::ObjectUnreadable;
        tracing::warn!(
            kind, %namespace, %name, %uid, %version, skipped, left_out,
            "{reason}: {message}"
        );
        if kind == "Node" && !name.is_empty() {
            let key = format!("{uid}.{version}");
            let event = self
                .source
                .event_of_node(&name, &key, reason, message, self.clock.now());
            self.outbox.put(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_is_reported_once_and_an_object_not_often() {
        let (mut state, now) = (State::default(), Instant::now());
        assert!(state.admit("a", "1", now));
        assert!(!state.admit("a", "1", now));
        assert!(!state.admit("a", "2", now), "too soon");
        assert!(!state.admit("a", "1", now + INTERVAL), "the same version");
        assert!(state.admit("a", "2", now + INTERVAL));
    }

    #[test]
    fn a_flood_of_objects_is_counted_and_forgotten() {
        let (mut state, now) = (State::default(), Instant::now());
        let admitted = (0..10_000)
            .filter(|n| state.admit(&n.to_string(), "1", now))
            .count();
        assert_eq!(admitted, usize::try_from(BURST).unwrap());
        assert_eq!(state.left_out, 10_000 - u64::from(BURST));
        for round in 1..100 {
            let now = now + INTERVAL * round;
            for number in 0..50 {
                state.admit(&format!("{round}-{number}"), "1", now);
            }
        }
        assert_eq!(state.reported.len(), REMEMBERED);
        assert_eq!(state.in_order.len(), REMEMBERED);
    }
}
