//! The journal of a real cluster: every change of a test's Nodes, Plans, Jobs and pods, for the invariants that the
//! simulated cluster is checked by, too (`refit_testkit::invariants`).
//!
//! A watch delivers every version of an object, and all versions are from one etcd, so the resource version orders the
//! changes of all kinds. Only after a restart of the API server may a list replace what a watch missed. Then several
//! changes become one, whose client is unknown, and the invariants of refit's own writes do not apply to it; nor to a
//! Job that was created between two known versions of its Plan.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, WatchEvent, WatchParams};
use kube::core::ObjectList;
use refit_rehearse::Kind;
use refit_rehearse::journal::{CLUSTER, Entry, JournalEvent};
use refit_rehearse::store::{Change, Key, Object};
use refit_testkit::invariants::{CONTROLLER, USER};
use serde_json::Value;
use tokio::task::AbortHandle;

use super::audit::{ADMIN, Request, Requests};
use super::context::TestContext;
use super::wait::{self, SOON};

const KINDS: [Kind; 4] = [Kind::Node, Kind::Plan, Kind::Job, Kind::Pod];

/// Pause before a failed request is repeated.
const PAUSE: Duration = Duration::from_millis(50);

/// Watches until it is dropped.
pub struct Journal {
    watches: Vec<(Watch, AbortHandle)>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    changes: Vec<(Timestamp, Kind, Change)>,
    /// The last change of each object.
    last: BTreeMap<(Kind, Key), Change>,
    /// Versions of Plans between which changes are not known.
    gaps: Vec<(u64, u64)>,
}

#[derive(Clone)]
struct Watch {
    kind: Kind,
    api: Api<DynamicObject>,
    list: ListParams,
    state: Arc<Mutex<State>>,
}

impl Journal {
    /// Starts with the objects that exist.
    pub fn start(ctx: &TestContext) -> Self {
        Self::of(ctx, &KINDS)
    }

    /// As [`Self::start`], with objects of these kinds. Of Nodes, only those of the context.
    pub fn of(ctx: &TestContext, kinds: &[Kind]) -> Self {
        let state = Arc::<Mutex<State>>::default();
        let watch = |kind: Kind| {
            let it = kind.resource_type();
            let type_ = GroupVersionKind::gvk(it.group, it.version, it.kind);
            let type_ = ApiResource::from_gvk_with_plural(&type_, it.plural);
            let api = if it.namespaced {
                Api::namespaced_with(ctx.client.clone(), ctx.namespace(), &type_)
            } else {
                Api::all_with(ctx.client.clone(), &type_)
            };
            let list = if kind == Kind::Node {
                ctx.my_node_list()
            } else {
                ListParams::default()
            };
            let state = Arc::clone(&state);
            let watch = Watch {
                kind,
                api,
                list,
                state,
            };
            let task = tokio::spawn(watch.clone().run()).abort_handle();
            (watch, task)
        };
        Self {
            watches: kinds.iter().map(|kind| watch(*kind)).collect(),
            state,
        }
    }

    /// Waits until all earlier changes are in the journal.
    pub async fn caught_up(&self) {
        for (watch, _) in &self.watches {
            let list = watch.api.list(&watch.list).await;
            let list = list.unwrap_or_else(|error| panic!("cannot list {:?}: {error}", watch.kind));
            let (until, listed) = versions(&list);
            wait::eventually("the journal has caught up", SOON, async || {
                let state = lock(&self.state);
                let of_kind = state.last.iter().filter(|((kind, _), _)| *kind == watch.kind);
                let known: BTreeMap<&Key, &Change> =
                    of_kind.map(|((_, key), change)| (key, change)).collect();
                let missing = listed
                    .iter()
                    .find(|(key, version)| known.get(key).is_none_or(|change| change.version < **version));
                let deleted = known.iter().find(|(key, change)| {
                    !change.gone && change.version <= until && !listed.contains_key(**key)
                });
                match (missing, deleted) {
                    (None, None) => Ok(()),
                    missing => Err(format!("{missing:?}")),
                }
            })
            .await;
        }
    }

    /// All changes so far in the order of the API server.
    pub fn changes(&self) -> Vec<(Kind, Change)> {
        let mut changes = lock(&self.state).changes.clone();
        changes.sort_by_key(|(_, _, change)| change.version);
        changes
            .into_iter()
            .map(|(_, kind, change)| (kind, change))
            .collect()
    }

    /// All changes in the order of the API server. The client of a change is that of the audited request that makes it.
    pub fn entries(&self, requests: &Requests) -> Vec<Entry> {
        let (mut changes, gaps) = {
            let state = lock(&self.state);
            (state.changes.clone(), state.gaps.clone())
        };
        changes.sort_by_key(|(_, _, change)| change.version);
        let is_unexplained = |kind: Kind, change: &Change| {
            let is_new = kind == Kind::Job && change.old.is_none() && !change.gone;
            let mut gaps = gaps.iter();
            is_new && gaps.any(|(from, until)| (*from..*until).contains(&change.version))
        };
        let requests = requests.by_arrival();
        let mut writes = BTreeMap::<_, Vec<&Request>>::new();
        for request in requests.writes() {
            let resource = request.resource.split('/').next().unwrap_or_default();
            writes
                .entry((resource, request.name.clone()))
                .or_default()
                .push(request);
        }
        let entry = |(at, kind, change): (Timestamp, Kind, Change)| {
            let object = (kind.resource_type().plural, change.new.meta("name").to_owned());
            // A request makes one change at most.
            let who = writes.get_mut(&object).and_then(|writes| {
                let found = writes.iter().position(|request| makes(request, &change))?;
                Some(client(writes.remove(found)))
            });
            let who = who.filter(|_| !is_unexplained(kind, &change));
            Entry {
                at,
                who: who.unwrap_or(CLUSTER).into(),
                what: JournalEvent::Change(kind, change),
            }
        };
        changes.into_iter().map(entry).collect()
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.watches.iter().for_each(|(_, task)| task.abort());
    }
}

impl Watch {
    async fn run(self) {
        let watched = WatchParams {
            label_selector: self.list.label_selector.clone(),
            ..WatchParams::default()
        };
        loop {
            let Ok(list) = self.api.list(&self.list).await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let mut from = self.relist(list);
            while let Some(version) = from.clone() {
                let Ok(events) = self.api.watch(&watched, &version).await else {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                };
                let mut events = events.boxed();
                while let Ok(Some(event)) = events.try_next().await {
                    let (object, gone) = match event {
                        WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
                        WatchEvent::Deleted(object) => (object, true),
                        WatchEvent::Bookmark(_) => continue,
                        WatchEvent::Error(_) => {
                            from = None;
                            break;
                        }
                    };
                    from.clone_from(&object.metadata.resource_version);
                    self.record(object, gone);
                }
            }
        }
    }

    /// Records how a list differs from what is known. Returns its resource version.
    fn relist(&self, list: ObjectList<DynamicObject>) -> Option<String> {
        let (version, listed) = versions(&list);
        let known: Vec<Change> = lock(&self.state).last.values().cloned().collect();
        for change in known.into_iter().filter(|change| !change.gone) {
            let mut object: DynamicObject =
                serde_json::from_slice(change.new.json(false)).expect("an object of the API server");
            if object
                .types
                .as_ref()
                .is_some_and(|it| it.kind == self.kind.resource_type().kind)
                && !listed.contains_key(&key(&object))
            {
                object.metadata.resource_version = Some(version.to_string());
                self.record(object, true);
            }
        }
        let from = list.metadata.resource_version.clone();
        for object in list.items {
            if self.kind == Kind::Plan {
                let mut state = lock(&self.state);
                let known = state.last.get(&(self.kind, key(&object)));
                let from = known.map(|change| change.version);
                let until = self::version(object.metadata.resource_version.as_deref());
                state
                    .gaps
                    .extend(from.filter(|from| *from < until).map(|from| (from, until)));
            }
            self.record(object, false);
        }
        from
    }

    fn record(&self, object: DynamicObject, gone: bool) {
        let it = self.kind.resource_type();
        let (key, version) = (key(&object), version(object.metadata.resource_version.as_deref()));
        let mut value = serde_json::to_value(object).expect("an object is JSON");
        // Items of lists have no type.
        value["apiVersion"] = it.api_version().into();
        value["kind"] = it.kind.into();
        let mut state = lock(&self.state);
        let last = state.last.get(&(self.kind, key.clone()));
        if last.is_some_and(|last| last.version >= version) {
            return;
        }
        let change = Change {
            version,
            old: last.filter(|last| !last.gone).map(|last| Arc::clone(&last.new)),
            new: Arc::new(Object::new(value.into(), version)),
            gone,
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "when the test sees a change of a real cluster"
        )]
        let at = Timestamp::now();
        state.changes.push((at, self.kind, change.clone()));
        state.last.insert((self.kind, key), change);
    }
}

/// The version of a list, and those of its objects.
fn versions(list: &ObjectList<DynamicObject>) -> (u64, BTreeMap<Key, u64>) {
    let objects = list.items.iter();
    let objects = objects.map(|object| (key(object), version(object.metadata.resource_version.as_deref())));
    (
        version(list.metadata.resource_version.as_deref()),
        objects.collect(),
    )
}

fn key(object: &DynamicObject) -> Key {
    let metadata = &object.metadata;
    Key::new(
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default(),
    )
}

fn version(text: Option<&str>) -> u64 {
    let version = text.and_then(|text| text.parse().ok());
    version.expect("a resource version")
}

fn client(request: &Request) -> &'static str {
    if request.user == ADMIN { USER } else { CONTROLLER }
}

/// Whether a change is the effect of a request on its object, whatever its response was: the API server may carry out
/// the request of a killed client.
fn makes(request: &Request, change: &Change) -> bool {
    let before = change.old.as_deref();
    let was_deleted = change.gone || change.new.is_being_deleted();
    match (request.verb.as_str(), before) {
        ("create", None) => request.code < 300 || request.code >= 500,
        ("delete", _) => was_deleted && before.is_none_or(|before| !before.is_being_deleted()),
        ("patch" | "update", Some(before)) if !was_deleted => {
            let (old, new) = (plain(before), plain(&change.new));
            match &request.sent {
                // The audit log has no bodies of the administrator's requests.
                Value::Null => ["spec", "metadata"].iter().any(|part| old[part] != new[part]),
                // A JSON patch: what it adds is all that is there.
                Value::Array(operations) => has_added(&new, operations) && !has_added(&old, operations),
                sent => contains(&new, sent) && !contains(&old, sent),
            }
        }
        _ => false,
    }
}

/// An object without what every write changes.
fn plain(object: &Object) -> Value {
    let mut value: Value = serde_json::from_slice(object.json(false)).expect("an object is JSON");
    for field in ["resourceVersion", "managedFields", "generation"] {
        value["metadata"][field] = Value::Null;
    }
    value
}

fn has_added(value: &Value, operations: &[Value]) -> bool {
    operations.iter().all(|operation| {
        let path = operation["path"].as_str().unwrap_or_default();
        path == "/metadata/resourceVersion" || value.pointer(path) == Some(&operation["value"])
    })
}

/// Whether a merge patch would change nothing, apart from its preconditions.
fn contains(value: &Value, patch: &Value) -> bool {
    match patch {
        Value::Object(fields) => fields.iter().all(|(name, patch)| {
            matches!(name.as_str(), "resourceVersion" | "managedFields") || contains(&value[name], patch)
        }),
        patch => value == patch,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
