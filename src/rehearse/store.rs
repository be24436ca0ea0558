//! What is stored: the objects in their newest version, one counter for all versions, a bounded history of changes, and who
//! is told of them. What may be written is decided before it comes here.

pub mod object;
pub mod select;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use tokio::sync::mpsc::UnboundedSender;

use crate::rehearse::json::Value;

pub use object::{Key, Object};
pub use select::Filter;

use super::resources::Kind;

/// A change of one object.
#[derive(Clone, Debug)]
pub struct Change {
    /// The version that it made.
    pub version: u64,
    /// What was there before.
    pub old: Option<Arc<Object>>,
    /// What is there now; where that is nothing, the object as it was with the version of its end.
    pub new: Arc<Object>,
    /// Whether it is gone.
    pub gone: bool,
}

/// Somebody who is told of changes.
#[derive(Debug)]
struct Watcher {
    filter: Filter,
    metadata_only: bool,
    to: UnboundedSender<Bytes>,
}

#[derive(Debug, Default)]
struct Table {
    objects: BTreeMap<Key, Arc<Object>>,
    history: VecDeque<Change>,
    /// Changes up to this version are forgotten.
    forgotten: u64,
    watchers: Vec<Watcher>,
}

/// Pages of a list that has begun: all of them are of one version.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The version.
    pub version: u64,
    /// What is left of the list.
    pub rest: Arc<[Arc<Object>]>,
}

/// How many lists that have begun are remembered.
const SNAPSHOTS: usize = 64;

/// All objects.
#[derive(Debug)]
pub struct Store {
    version: u64,
    tables: [Table; Kind::ALL.len()],
    /// How many changes of a kind are remembered.
    history: usize,
    // These are only asked, never gone through: their order is nobody's.
    by_owner: HashMap<String, BTreeSet<(Kind, Key)>>,
    by_uid: HashMap<String, (Kind, Key)>,
    pods_by_node: HashMap<String, BTreeSet<Key>>,
    snapshots: VecDeque<(u64, Snapshot)>,
    lists: u64,
}

impl Store {
    /// An empty store that remembers so many changes of each kind.
    pub fn new(history: usize) -> Self {
        Self {
            version: 1,
            tables: Default::default(),
            history,
            by_owner: HashMap::new(),
            by_uid: HashMap::new(),
            pods_by_node: HashMap::new(),
            snapshots: VecDeque::new(),
            lists: 0,
        }
    }

    /// The newest version of all.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// An object.
    pub fn get(&self, kind: Kind, key: &Key) -> Option<&Arc<Object>> {
        self.tables[kind as usize].objects.get(key)
    }

    /// All objects of a kind, in the order of their keys.
    pub fn all(&self, kind: Kind) -> impl Iterator<Item = &Arc<Object>> {
        self.tables[kind as usize].objects.values()
    }

    /// Objects of a kind in a namespace, in the order of their names.
    pub fn in_namespace<'a>(
        &'a self,
        kind: Kind,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Object>> {
        let objects = self.tables[kind as usize]
            .objects
            .range(Key::new(namespace, "")..);
        objects
            .take_while(move |(key, _)| *key.namespace == *namespace)
            .map(|(_, object)| object)
    }

    /// Where the object with this UID is.
    pub fn find(&self, uid: &str) -> Option<&(Kind, Key)> {
        self.by_uid.get(uid)
    }

    /// Objects that name this UID as an owner's.
    pub fn owned_by(&self, uid: &str) -> impl Iterator<Item = &(Kind, Key)> {
        self.by_owner.get(uid).into_iter().flatten()
    }

    /// Pods that are bound to a node.
    pub fn pods_on(&self, node: &str) -> impl Iterator<Item = &Arc<Object>> {
        let keys = self.pods_by_node.get(node).into_iter().flatten();
        keys.filter_map(|key| self.get(Kind::Pod, key))
    }

    /// Objects that a filter lets through, in the order of their keys.
    pub fn list(&self, kind: Kind, filter: &Filter) -> Vec<Arc<Object>> {
        if let (Kind::Pod, Some(node)) = (kind, filter.node()) {
            return self
                .pods_on(node)
                .filter(|pod| filter.matches(pod))
                .cloned()
                .collect();
        }
        let matches = |object: &&Arc<Object>| filter.matches(object);
        match &filter.namespace {
            Some(namespace) => self
                .in_namespace(kind, namespace)
                .filter(matches)
                .cloned()
                .collect(),
            None => self.all(kind).filter(matches).cloned().collect(),
        }
    }

    /// Writes what an object is now, or that it is gone, and tells those who watch.
    pub fn commit(&mut self, kind: Kind, key: &Key, new: Option<Value>) -> Change {
        self.version += 1;
        let version = self.version;
        let old = self.get(kind, key).cloned();
        let gone = new.is_none();
        let value = new.unwrap_or_else(|| old.as_ref().map(|old| old.value.clone()).unwrap_or_default());
        let new = Arc::new(Object::new(value, version));
        let found_as_before = |old: &Arc<Object>| !gone && is_found_as(old, &new);
        let found_as_before = old.as_ref().is_some_and(found_as_before);
        if let Some(old) = old.as_ref().filter(|_| !found_as_before) {
            self.unlist(kind, key, old);
        }
        let table = &mut self.tables[kind as usize];
        if gone {
            table.objects.remove(key);
        } else {
            table.objects.insert(key.clone(), new.clone());
            if !found_as_before {
                self.enlist(kind, key, &new);
            }
        }
        let change = Change {
            version,
            old,
            new,
            gone,
        };
        let table = &mut self.tables[kind as usize];
        table.watchers.retain(|watcher| {
            let event = event(&change, &watcher.filter, watcher.metadata_only);
            event.map_or_else(|| !watcher.to.is_closed(), |event| watcher.to.send(event).is_ok())
        });
        table.history.push_back(change.clone());
        if table.history.len() > self.history
            && let Some(forgotten) = table.history.pop_front()
        {
            table.forgotten = forgotten.version;
        }
        change
    }

    /// Forgets all changes up to now, as an API server does that has been compacted or started anew.
    pub fn forget(&mut self) {
        for table in &mut self.tables {
            table.history.clear();
            table.forgotten = self.version;
        }
        self.snapshots.clear();
    }

    /// Shows an object as another one than before, without a new version and without a word.
    pub fn show(&mut self, kind: Kind, key: &Key, value: Value) {
        if let Some(object) = self.tables[kind as usize].objects.get_mut(key) {
            *object = Arc::new(Object::new(value, object.version));
        }
    }

    /// Ends all watches of a kind, and forgets its changes.
    pub fn begin_anew(&mut self, kind: Kind) {
        let table = &mut self.tables[kind as usize];
        table.watchers.clear();
        table.history.clear();
        table.forgotten = self.version;
    }

    /// All objects of a kind as they were so many versions ago, and which version that was; no further back than what is
    /// remembered.
    pub fn earlier(&self, kind: Kind, filter: &Filter, lag: u64) -> (u64, Vec<Arc<Object>>) {
        let table = &self.tables[kind as usize];
        let version = self.version.saturating_sub(lag).max(table.forgotten).max(1);
        let mut objects = table.objects.clone();
        let later = table.history.iter().rev();
        for change in later.take_while(|change| change.version > version) {
            let key = change.new.key();
            match &change.old {
                Some(old) => objects.insert(key, Arc::clone(old)),
                None => objects.remove(&key),
            };
        }
        objects.retain(|_, object| filter.matches(object));
        (version, objects.into_values().collect())
    }

    /// Tells `to` of all changes after `since`, and of those to come. The oldest version that is known is the error.
    pub fn watch(
        &mut self,
        kind: Kind,
        filter: Filter,
        metadata_only: bool,
        since: u64,
        to: UnboundedSender<Bytes>,
    ) -> Result<(), u64> {
        let table = &mut self.tables[kind as usize];
        if since < table.forgotten {
            return Err(table.forgotten);
        }
        let later = table.history.partition_point(|change| change.version <= since);
        for change in table.history.range(later..) {
            if let Some(event) = event(change, &filter, metadata_only) {
                let _ = to.send(event); // whoever has gone by now is dropped with the next change
            }
        }
        table.watchers.push(Watcher {
            filter,
            metadata_only,
            to,
        });
        Ok(())
    }

    /// Keeps the rest of a list, and says under which number.
    pub fn keep(&mut self, snapshot: Snapshot) -> u64 {
        self.lists += 1;
        self.snapshots.push_back((self.lists, snapshot));
        if self.snapshots.len() > SNAPSHOTS {
            self.snapshots.pop_front();
        }
        self.lists
    }

    /// What was kept under a number.
    pub fn kept(&self, number: u64) -> Option<Snapshot> {
        let found = self.snapshots.iter().find(|(known, _)| *known == number);
        found.map(|(_, snapshot)| snapshot.clone())
    }

    fn enlist(&mut self, kind: Kind, key: &Key, object: &Object) {
        self.by_uid.insert(object.uid().to_owned(), (kind, key.clone()));
        for owner in object.owners() {
            let owned = self.by_owner.entry(owner.to_owned()).or_default();
            owned.insert((kind, key.clone()));
        }
        let node = object.text("/spec/nodeName");
        if kind == Kind::Pod && !node.is_empty() {
            let pods = self.pods_by_node.entry(node.to_owned()).or_default();
            pods.insert(key.clone());
        }
    }

    fn unlist(&mut self, kind: Kind, key: &Key, object: &Object) {
        self.by_uid.remove(object.uid());
        for owner in object.owners() {
            if let Some(owned) = self.by_owner.get_mut(owner) {
                owned.remove(&(kind, key.clone()));
                if owned.is_empty() {
                    self.by_owner.remove(owner);
                }
            }
        }
        if kind == Kind::Pod
            && let Some(pods) = self.pods_by_node.get_mut(object.text("/spec/nodeName"))
        {
            pods.remove(key);
        }
    }
}

/// Whether an object is found by what the other one was.
fn is_found_as(old: &Object, new: &Object) -> bool {
    let same = |field: &str| old.value["metadata"][field] == new.value["metadata"][field];
    same("uid") && same("ownerReferences") && old.text("/spec/nodeName") == new.text("/spec/nodeName")
}

/// A line of a watch: what the change is to somebody who sees only what the filter lets through.
fn event(change: &Change, filter: &Filter, metadata_only: bool) -> Option<Bytes> {
    let before = change.old.as_ref().is_some_and(|old| filter.matches(old));
    let after = !change.gone && filter.matches(&change.new);
    let type_ = match (before, after) {
        (false, false) => return None,
        (false, true) => "ADDED",
        (true, true) => "MODIFIED",
        (true, false) => "DELETED",
    };
    if type_ == "DELETED" && !change.gone {
        // It is shown as it was when it could last be seen, with the version of the change.
        let old = change.old.as_ref()?;
        let seen = Object::new(old.value.clone(), change.version);
        return Some(line(type_, seen.json(metadata_only)));
    }
    Some(line(
        type_,
        change.new.json_after(change.old.as_deref(), metadata_only),
    ))
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
