//! Storage: objects in their newest version, one version counter, a bounded history, and watches. Writes are validated
//! before they come here.

mod event;
pub mod object;
pub mod select;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedSender;

use crate::json::Value;
use refit_api::names::ControlPlaneRole;
use refit_cluster::drain::NodeVersions;

pub use event::{Event, drop_superseded, line};
pub use object::{Key, Object};
pub use select::Filter;

use super::resources::Kind;

#[derive(Clone, Debug)]
pub struct Change {
    pub version: u64,
    pub old: Option<Arc<Object>>,
    /// The new object; for a deletion, the last one with the version of the deletion.
    pub new: Arc<Object>,
    /// Whether the object was deleted.
    pub gone: bool,
}

#[derive(Debug)]
struct Watcher {
    filter: Filter,
    to: UnboundedSender<Event>,
}

#[derive(Debug, Default)]
struct Table {
    objects: BTreeMap<Key, Arc<Object>>,
    history: VecDeque<Change>,
    /// Changes up to this version have been dropped.
    forgotten: u64,
    watchers: Vec<Watcher>,
}

/// The remaining pages of a list, all of one version.
#[derive(Clone, Debug)]
pub struct SavedList {
    pub version: u64,
    pub rest: Arc<[Arc<Object>]>,
}

/// All objects at one moment.
#[derive(Clone)]
pub struct Backup {
    version: u64,
    tables: [BTreeMap<Key, Arc<Object>>; Kind::ALL.len()],
}

/// Maximum number of unfinished lists. Tokens of older ones expire (410), as they do after a compaction.
const MAX_SAVED_LISTS: usize = 64;

#[derive(Debug)]
pub struct Store {
    version: u64,
    tables: [Table; Kind::ALL.len()],
    /// Number of changes kept per kind.
    history: usize,
    // Only looked up, never iterated, so their order does not matter.
    by_owner: HashMap<String, BTreeSet<(Kind, Key)>>,
    by_uid: HashMap<String, (Kind, Key)>,
    pods_by_node: HashMap<String, BTreeSet<Key>>,
    /// Nodes of the control plane: the version of the API server is asked for often, and most nodes are workers.
    control_plane: BTreeSet<Key>,
    /// The version of the last change of a pod, by node.
    pods_changed: HashMap<String, u64>,
    saved_lists: VecDeque<(u64, SavedList)>,
    lists: u64,
}

impl Store {
    /// An empty store that keeps so many changes per kind.
    pub fn new(history: usize) -> Self {
        Self {
            version: 1,
            tables: Default::default(),
            history,
            by_owner: HashMap::new(),
            by_uid: HashMap::new(),
            pods_by_node: HashMap::new(),
            control_plane: BTreeSet::new(),
            pods_changed: HashMap::new(),
            saved_lists: VecDeque::new(),
            lists: 0,
        }
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn get(&self, kind: Kind, key: &Key) -> Option<&Arc<Object>> {
        self.tables[kind as usize].objects.get(key)
    }

    /// All objects of a kind, sorted by key.
    pub fn all(&self, kind: Kind) -> impl Iterator<Item = &Arc<Object>> {
        self.tables[kind as usize].objects.values()
    }

    /// Objects of a kind in a namespace, sorted by name.
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

    /// Kind and key of the object with this UID.
    pub fn find(&self, uid: &str) -> Option<&(Kind, Key)> {
        self.by_uid.get(uid)
    }

    /// Objects with this UID among their owner references.
    pub fn owned_by(&self, uid: &str) -> impl Iterator<Item = &(Kind, Key)> {
        self.by_owner.get(uid).into_iter().flatten()
    }

    pub fn pods_on(&self, node: &str) -> impl Iterator<Item = &Arc<Object>> {
        let keys = self.pods_by_node.get(node).into_iter().flatten();
        keys.filter_map(|key| self.get(Kind::Pod, key))
    }

    /// Nodes of the control plane, by name.
    pub fn control_plane(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.control_plane
            .iter()
            .filter_map(|key| self.get(Kind::Node, key))
    }

    /// When a node, and when the pods on it, last changed.
    pub fn versions_of_node(&self, name: &str) -> NodeVersions {
        let node = self.get(Kind::Node, &Key::new("", name));
        NodeVersions {
            // A deleted Node has no version. That of the store changes with every write, so the drain reads again.
            node: node.map_or(self.version, |node| node.version),
            pods: self.pods_changed.get(name).copied().unwrap_or_default(),
        }
    }

    /// Objects that match a filter, sorted by key.
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

    /// Stores a change or a deletion, and notifies watchers.
    pub fn commit(&mut self, kind: Kind, key: &Key, new: Option<Value>) -> Change {
        self.version += 1;
        let version = self.version;
        let old = self.get(kind, key).cloned();
        let gone = new.is_none();
        let value = new.unwrap_or_else(|| old.as_ref().map(|old| old.value.clone()).unwrap_or_default());
        let new = Arc::new(Object::new(value, version));
        let found_as_before = |old: &Arc<Object>| !gone && is_indexed_alike(kind, old, &new);
        let found_as_before = old.as_ref().is_some_and(found_as_before);
        if let Some(old) = old.as_ref().filter(|_| !found_as_before) {
            self.unindex(kind, key, old);
        }
        if kind == Kind::Pod {
            match self.pods_changed.get_mut(new.text("/spec/nodeName")) {
                Some(changed) => *changed = version,
                None => drop(
                    self.pods_changed
                        .insert(new.text("/spec/nodeName").to_owned(), version),
                ),
            }
        }
        let table = &mut self.tables[kind as usize];
        if gone {
            table.objects.remove(key);
        } else {
            table.objects.insert(key.clone(), new.clone());
            if !found_as_before {
                self.index(kind, key, &new);
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
            let event = Event::of(&change, &watcher.filter);
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

    /// The objects of a kind, for [`Store::restore`].
    pub fn backup(&self) -> Backup {
        Backup {
            version: self.version,
            tables: self.tables.each_ref().map(|table| table.objects.clone()),
        }
    }

    /// Restores etcd from a backup: versions go back, and all watches end.
    pub fn restore(&mut self, backup: Backup) {
        self.version = backup.version;
        for (table, objects) in self.tables.iter_mut().zip(backup.tables) {
            *table = Table {
                objects,
                ..Table::default()
            };
        }
        self.saved_lists.clear();
        (self.by_owner, self.by_uid, self.pods_by_node, self.control_plane) = Default::default();
        for kind in Kind::ALL {
            let objects = self.tables[kind as usize].objects.clone();
            for (key, object) in &objects {
                self.index(kind, key, object);
            }
        }
    }

    /// Drops the history, as an API server does after compaction or a restart.
    pub fn forget(&mut self) {
        for table in &mut self.tables {
            table.history.clear();
            table.forgotten = self.version;
        }
        self.saved_lists.clear();
    }

    /// Replaces an object without a new version or a notification: another CRD changes how a Plan is shown, and does
    /// not write it.
    pub fn replace_in_place(&mut self, kind: Kind, key: &Key, value: Value) {
        if let Some(object) = self.tables[kind as usize].objects.get_mut(key) {
            *object = Arc::new(Object::new(value, object.version));
        }
    }

    /// Ends all watches of a kind, and drops its history.
    pub fn expire_watches(&mut self, kind: Kind) {
        let table = &mut self.tables[kind as usize];
        table.watchers.clear();
        table.history.clear();
        table.forgotten = self.version;
    }

    /// All objects of a kind as they were `lag` versions ago, limited by the history, and that version.
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

    /// Sends all changes after `since` to `to`.
    ///
    /// # Errors
    /// Fails with the oldest known version if `since` is older.
    pub fn watch(
        &mut self,
        kind: Kind,
        filter: Filter,
        since: u64,
        to: UnboundedSender<Event>,
    ) -> Result<(), u64> {
        let table = &mut self.tables[kind as usize];
        if since < table.forgotten {
            return Err(table.forgotten);
        }
        // Objects of some kinds never change, and their watches are renewed every few minutes.
        table.watchers.retain(|watcher| !watcher.to.is_closed());
        let later = table.history.partition_point(|change| change.version <= since);
        for change in table.history.range(later..) {
            if let Some(event) = Event::of(change, &filter) {
                let _ = to.send(event); // a closed watcher is removed with the next change
            }
        }
        table.watchers.push(Watcher { filter, to });
        Ok(())
    }

    /// Stores the rest of a list, and returns its number.
    pub fn save_list(&mut self, snapshot: SavedList) -> u64 {
        self.lists += 1;
        self.saved_lists.push_back((self.lists, snapshot));
        if self.saved_lists.len() > MAX_SAVED_LISTS {
            self.saved_lists.pop_front();
        }
        self.lists
    }

    /// The rest of a list by its number.
    pub fn saved_list(&self, number: u64) -> Option<SavedList> {
        let found = self.saved_lists.iter().find(|(known, _)| *known == number);
        found.map(|(_, snapshot)| snapshot.clone())
    }

    fn index(&mut self, kind: Kind, key: &Key, object: &Object) {
        self.by_uid.insert(object.uid().to_owned(), (kind, key.clone()));
        for owner in object.owners() {
            let owned = self.by_owner.entry(owner.to_owned()).or_default();
            owned.insert((kind, key.clone()));
        }
        if kind == Kind::Node && is_control_plane(object) {
            self.control_plane.insert(key.clone());
        }
        let node = object.text("/spec/nodeName");
        if kind == Kind::Pod && !node.is_empty() {
            let pods = self.pods_by_node.entry(node.to_owned()).or_default();
            pods.insert(key.clone());
        }
    }

    fn unindex(&mut self, kind: Kind, key: &Key, object: &Object) {
        self.by_uid.remove(object.uid());
        for owner in object.owners() {
            if let Some(owned) = self.by_owner.get_mut(owner) {
                owned.remove(&(kind, key.clone()));
                if owned.is_empty() {
                    self.by_owner.remove(owner);
                }
            }
        }
        if kind == Kind::Node {
            self.control_plane.remove(key);
        }
        if kind == Kind::Pod
            && let Some(pods) = self.pods_by_node.get_mut(object.text("/spec/nodeName"))
        {
            pods.remove(key);
        }
    }
}

/// Whether both versions have the same index entries. Most writes change only a status, which no index covers.
fn is_indexed_alike(kind: Kind, old: &Object, new: &Object) -> bool {
    let same = |field: &str| old.value["metadata"][field] == new.value["metadata"][field];
    same("uid")
        && same("ownerReferences")
        && old.text("/spec/nodeName") == new.text("/spec/nodeName")
        && (kind != Kind::Node || is_control_plane(old) == is_control_plane(new))
}

fn is_control_plane(node: &Object) -> bool {
    let labels = &node.value["metadata"]["labels"];
    let mut names = ControlPlaneRole::ControlPlane.labels().iter();
    names.any(|name| labels[*name].as_str().is_some_and(|value| value != "false"))
}
