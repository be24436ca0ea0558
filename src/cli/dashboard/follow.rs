//! Follows a cluster by watches, and makes the page of what they say, once a second if something has changed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::document::document;
use super::server::Live;
use refit_cluster::clock::Clock;
use refit_cluster::kube::Answer;
use refit_cluster::kube::watch::{Watch, WatchError, WatchEvent};
use refit_facts::read::Identity;
use refit_facts::store::{self, Entry, Store};
use refit_rehearse::Kind;
use refit_rehearse::json::Value;
use refit_rehearse::record::Recorder;
use refit_rehearse::store::{Change, Object};
use refit_view::Snapshot;
use refit_view::read::ObjectKind;

/// How often the page changes at most.
const INTERVAL: Duration = Duration::from_secs(1);
/// How often it changes at least: bars that last grow by as much.
const TICK: Duration = Duration::from_secs(5);
/// Events of watches that wait to be applied. More wait in their connections.
const WAITING: usize = 1_000;

/// The objects of a kind in a namespace, or in all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Source {
    kind: ObjectKind,
    namespace: Option<String>,
}

/// The watch of a source.
#[derive(Default)]
struct Followed {
    /// By UID, as far as the recorder needs them.
    objects: Store<String, String, Arc<Object>>,
    is_watched: bool,
    /// Since when the watch fails, and why.
    failure: Option<(Timestamp, WatchError)>,
}

type Observed = (Source, WatchEvent<Box<RawValue>>);

pub(super) struct Follower {
    client: Client,
    clock: Clock,
    opened: Timestamp,
    /// When the pods were last read that drains wait for.
    reread: Instant,
    snapshot: Snapshot,
    /// What could not be read before the watches.
    gaps: Vec<String>,
    /// By UID, why an object cannot be read.
    unreadable: BTreeMap<String, String>,
    sources: BTreeMap<Source, Followed>,
    /// By namespace, because a recorder knows Plans by their names.
    recorders: BTreeMap<String, Recorder>,
    watches: JoinSet<()>,
    sender: mpsc::Sender<Observed>,
    observed: mpsc::Receiver<Observed>,
}

impl Follower {
    /// Begins to follow the Plans of `read`, which has nothing else, and what belongs to them.
    pub(super) fn new(client: Client, clock: Clock, read: Snapshot) -> Self {
        let (sender, observed) = mpsc::channel(WAITING);
        let opened = clock.now();
        let mut follower = Self {
            client,
            clock,
            opened,
            reread: Instant::now(),
            gaps: read.gaps,
            snapshot: Snapshot {
                now: opened,
                namespace: read.namespace,
                ..Snapshot::default()
            },
            unreadable: BTreeMap::new(),
            sources: BTreeMap::new(),
            recorders: BTreeMap::new(),
            watches: JoinSet::new(),
            sender,
            observed,
        };
        follower.watch(ObjectKind::Plan, follower.snapshot.namespace.clone());
        follower.watch(ObjectKind::Node, None);
        for plan in &read.plans {
            follower.open_namespace(plan.namespace());
        }
        follower
    }

    fn watch(&mut self, kind: ObjectKind, namespace: Option<String>) {
        let source = Source { kind, namespace };
        self.sources.insert(source.clone(), Followed::default());
        let mut watch =
            Watch::<Box<RawValue>>::new(self.client.clone(), kind.selection(source.namespace.as_deref()));
        let sender = self.sender.clone();
        self.watches
            .spawn(async move { while sender.send((source.clone(), watch.next().await)).await.is_ok() {} });
    }

    /// Follows what belongs to the Plans of a namespace.
    fn open_namespace(&mut self, namespace: &str) {
        if self.recorders.contains_key(namespace) {
            return;
        }
        self.recorders
            .insert(namespace.to_owned(), Recorder::live(self.clock.now()));
        for kind in [ObjectKind::Job, ObjectKind::Pod, ObjectKind::Event] {
            self.watch(kind, Some(namespace.to_owned()));
        }
    }

    /// The page, once everything is listed that may be.
    ///
    /// # Errors
    /// Fails if Plans may not be watched.
    pub(super) async fn first(&mut self) -> anyhow::Result<Live> {
        loop {
            for (source, followed) in &self.sources {
                if source.kind == ObjectKind::Plan
                    && let Some((_, error)) = followed.failure.as_ref()
                    && error.answer() == Answer::Forbidden
                {
                    anyhow::bail!("Plans cannot be watched: {error}");
                }
            }
            let is_known = |one: &Followed| one.is_watched || one.failure.is_some();
            if self.sources.values().all(is_known) {
                return Ok(self.live(None));
            }
            self.receive().await;
        }
    }

    /// Publishes the page whenever it has changed.
    pub(super) async fn run(&mut self, publish: &watch::Sender<Arc<Live>>) {
        let (mut is_changed, mut published) = (false, Instant::now());
        loop {
            let wait = if is_changed { INTERVAL } else { TICK };
            tokio::select! {
                () = self.receive() => is_changed = true,
                () = sleep_until(published + wait) => {
                    (is_changed, published) = (false, Instant::now());
                    if self.reread.elapsed() >= TICK {
                        self.snapshot.reread_terminating(&self.client).await;
                        self.reread = Instant::now();
                    }
                    let last = publish.borrow().clone();
                    publish.send_replace(Arc::new(self.live(Some(&last))));
                }
            }
        }
    }

    /// Applies what the watches have delivered. Cancel-safe.
    async fn receive(&mut self) {
        // The follower has a sender itself, so there is always a next one.
        if let Some((source, event)) = self.observed.recv().await {
            self.apply(&source, event);
        }
        while let Ok((source, event)) = self.observed.try_recv() {
            self.apply(&source, event);
        }
    }

    fn apply(&mut self, source: &Source, event: WatchEvent<Box<RawValue>>) {
        let now = self.clock.now();
        self.snapshot.now = now;
        let Some(followed) = self.sources.get_mut(source) else {
            return;
        };
        match event {
            WatchEvent::Change(change) => self.change(source, change, now),
            WatchEvent::Watching => (followed.is_watched, followed.failure) = (true, None),
            // A list follows.
            WatchEvent::VersionsReset => {}
            WatchEvent::Failed(error) => {
                let since = followed.failure.take().map_or(now, |(since, _)| since);
                followed.failure = Some((since, error));
            }
        }
    }

    fn change(&mut self, source: &Source, change: store::Change<Box<RawValue>>, now: Timestamp) {
        if let store::Change::Object(raw) = &change {
            self.read(source.kind, raw);
        }
        let Some(followed) = self.sources.get_mut(source) else {
            return;
        };
        let changed = followed.objects.apply(change.map(|raw| {
            let uid = Identity::of(&raw).uid;
            Entry {
                name: uid.clone(),
                uid,
                // The one that comes counts: versions may have been reset.
                version: 0,
                object: Arc::new(recorded(source.kind, &raw)),
            }
        }));
        for (uid, old) in changed {
            let followed = self.sources.get(source);
            if let Some(new) = followed.and_then(|followed| followed.objects.get(&uid)).cloned() {
                self.record(source.kind, old, new, false, now);
                continue;
            }
            self.snapshot.remove(source.kind, &uid);
            self.unreadable.remove(&uid);
            if let Some(old) = old {
                self.record(source.kind, Some(Arc::clone(&old)), old, true, now);
            }
        }
    }

    /// Reads an object into the snapshot.
    fn read(&mut self, kind: ObjectKind, raw: &RawValue) {
        let Identity { uid, namespace, .. } = Identity::of(raw);
        match self.snapshot.put(kind, &uid, raw) {
            Ok(()) => _ = self.unreadable.remove(&uid),
            Err(why) => _ = self.unreadable.insert(uid, why),
        }
        if kind == ObjectKind::Plan {
            self.open_namespace(&namespace);
        }
    }

    fn record(
        &mut self,
        kind: ObjectKind,
        old: Option<Arc<Object>>,
        new: Arc<Object>,
        gone: bool,
        now: Timestamp,
    ) {
        let (kind, namespace) = match kind {
            ObjectKind::Plan => (Kind::Plan, Some(new.meta("namespace").to_owned())),
            ObjectKind::Pod => (Kind::Pod, Some(new.meta("namespace").to_owned())),
            ObjectKind::Node => (Kind::Node, None),
            ObjectKind::Job | ObjectKind::Event => return,
        };
        let change = Change {
            version: new.version,
            old,
            new,
            gone,
        };
        for (of, recorder) in &mut self.recorders {
            if namespace.as_ref().is_none_or(|namespace| namespace == of) {
                recorder.observe(kind, &change, now);
            }
        }
    }

    /// The page as it is now.
    fn live(&mut self, last: Option<&Live>) -> Live {
        self.snapshot.now = self.clock.now();
        let failures = || {
            self.sources.iter().filter_map(|(source, followed)| {
                let (since, error) = followed.failure.as_ref()?;
                Some((
                    source.kind.describe(source.namespace.as_deref()),
                    followed,
                    since,
                    error,
                ))
            })
        };
        let never_listed = failures().filter(|(_, followed, ..)| !followed.objects.was_listed());
        let gaps = never_listed.map(|(what, _, _, error)| format!("{what} cannot be read: {error}"));
        let gaps = self.gaps.iter().cloned().chain(gaps);
        let gaps = gaps.chain(self.unreadable.values().cloned()).collect();
        let mut listed = failures().filter(|(_, followed, ..)| followed.objects.was_listed());
        let stale = listed.next().map(|(what, _, since, error)| {
            format!("What is shown may be old: {what} cannot be watched since {since:.0}: {error}")
        });
        self.snapshot.gaps = gaps;
        let mut document = document(&self.snapshot, &self.recorders, Some(self.opened));
        document.stale = stale;
        Live::new(document, last)
    }
}

/// What the recorder needs of an object. A node has kilobytes of images and conditions that it does not: only its boot.
fn recorded(kind: ObjectKind, raw: &RawValue) -> Object {
    let mut value: Value = match kind {
        ObjectKind::Plan | ObjectKind::Node | ObjectKind::Pod => {
            serde_json::from_str(raw.get()).unwrap_or_default()
        }
        ObjectKind::Job | ObjectKind::Event => Value::Null,
    };
    if kind == ObjectKind::Node
        && let Some(node) = value.as_object_mut()
    {
        node.retain(|field| field == "metadata" || field == "status");
        if let Some(status) = node.get_mut("status").and_then(Value::as_object_mut) {
            status.retain(|field| field == "nodeInfo");
        }
    }
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    Object::new(value, 0)
}
