//! Objects of one kind, as watches and the answers to writes have shown them, without policy. An older version of an object
//! never replaces a newer one, and one that was seen to be deleted stays deleted.

use std::borrow::Borrow;
use std::collections::{HashSet, VecDeque};
use std::hash::Hash;

use foldhash::HashMap;

use crate::read::Unreadable;

/// What a watch says of the objects of a kind.
#[derive(Debug)]
pub enum Change<T> {
    /// A list begins. Objects that it does not contain no longer exist when it ends.
    ListStarted,
    /// A list has ended, at this resource version.
    ListFinished(u64),
    /// An object exists in this version.
    Object(T),
    /// An object exists, and cannot be read.
    Unreadable(Unreadable),
    Deleted {
        name: String,
        uid: String,
    },
    /// The API server does not know the kind, so there are no objects.
    Unknown,
}

impl<T> Change<T> {
    pub fn map<U>(self, of: impl FnOnce(T) -> U) -> Change<U> {
        match self {
            Self::ListStarted => Change::ListStarted,
            Self::ListFinished(version) => Change::ListFinished(version),
            Self::Object(object) => Change::Object(of(object)),
            Self::Unreadable(unreadable) => Change::Unreadable(unreadable),
            Self::Deleted { name, uid } => Change::Deleted { name, uid },
            Self::Unknown => Change::Unknown,
        }
    }
}

/// A name or a UID.
pub trait Id: Borrow<str> + Clone + Hash + Ord {}

impl<T: Borrow<str> + Clone + Hash + Ord> Id for T {}

/// Which objects the list that runs has contained, by their names.
#[derive(Debug)]
pub struct Listing<N> {
    /// Number of times that a list has begun or ended, so it is odd during a list.
    count: u64,
    seen: Option<HashSet<N>>,
}

impl<N> Default for Listing<N> {
    fn default() -> Self {
        Self { count: 0, seen: None }
    }
}

impl<N: Id> Listing<N> {
    pub fn start(&mut self) {
        self.count += u64::from(self.count.is_multiple_of(2)); // a list that broke off starts again
        self.seen = Some(HashSet::new());
    }

    /// The list contains this object, or it was created meanwhile.
    pub fn mark(&mut self, name: &N) {
        if let Some(seen) = &mut self.seen {
            seen.insert(name.clone());
        }
    }

    /// Whether the list has not contained this object.
    pub fn lacks(&self, name: &str) -> bool {
        self.seen.as_ref().is_some_and(|seen| !seen.contains(name))
    }

    /// Ends the list. Returns those of these objects that it has not contained, ordered.
    pub fn finish<'a>(&mut self, known: impl Iterator<Item = &'a N>) -> Vec<N>
    where
        N: 'a,
    {
        let mut gone: Vec<N> = known
            .filter(|name| self.lacks((*name).borrow()))
            .cloned()
            .collect();
        gone.sort_unstable();
        self.count += 1;
        self.seen = None;
        gone
    }

    pub fn is_running(&self) -> bool {
        !self.count.is_multiple_of(2)
    }

    /// Number of lists that have begun, and of those that have ended.
    pub fn count(&self) -> u64 {
        self.count
    }
}

/// Objects of one kind, by name, with their resource versions. `N` is the type of their names, `U` that of their UIDs.
#[derive(Debug)]
pub struct Store<N, U, T> {
    /// Unordered, for look-ups: a decision makes a dozen of them for each node in progress.
    rows: HashMap<N, Row<U, T>>,
    /// UIDs of deleted objects, so that a late response does not restore one.
    gone: DeletedUids<U>,
    listing: Listing<N>,
}

#[derive(Debug)]
struct Row<U, T> {
    uid: U,
    version: u64,
    object: T,
}

/// Result of an update.
pub enum Put<T> {
    Unchanged,
    /// The object was not known.
    Inserted,
    /// The object differs from this previous one.
    Replaced(T),
}

/// An object for a store.
pub struct Entry<N, U, T> {
    pub name: N,
    pub uid: U,
    pub version: u64,
    pub object: T,
}

impl<N, U, T> Default for Store<N, U, T> {
    fn default() -> Self {
        Self {
            rows: HashMap::default(),
            gone: DeletedUids::default(),
            listing: Listing::default(),
        }
    }
}

impl<N: Id, U: Id, T: PartialEq> Store<N, U, T> {
    /// Applies what a watch says. Returns the names of the objects that are new, other ones or gone, each with the object
    /// before. For stores that know their objects from watches alone: an object that was gone may be there again, as after
    /// its label was removed and set again.
    pub fn apply(&mut self, change: Change<Entry<N, U, T>>) -> Vec<(N, Option<T>)> {
        let gone: Vec<N> = match change {
            Change::ListStarted => {
                self.start_list();
                Vec::new()
            }
            Change::Object(entry) => {
                let put = self.put(&entry.name, &entry.uid, entry.version, entry.object);
                self.mark_listed(entry.name.borrow());
                return match put {
                    Put::Unchanged => Vec::new(),
                    Put::Inserted => vec![(entry.name, None)],
                    Put::Replaced(old) => vec![(entry.name, Some(old))],
                };
            }
            // What was known of it stays.
            Change::Unreadable(unreadable) => {
                if let Some(name) = self.name_of(&unreadable.uid) {
                    self.listing.mark(&name);
                }
                Vec::new()
            }
            Change::Deleted { uid, .. } => self.name_of(&uid).into_iter().collect(),
            Change::ListFinished(_) => self.listing.finish(self.rows.keys()),
            Change::Unknown => {
                self.start_list();
                self.listing.finish(self.rows.keys())
            }
        };
        let take = |name: N| {
            self.rows
                .remove(name.borrow())
                .map(|row| (name, Some(row.object)))
        };
        gone.into_iter().filter_map(take).collect()
    }

    fn name_of(&self, uid: &str) -> Option<N> {
        let (name, _) = self.rows.iter().find(|(_, row)| row.uid.borrow() == uid)?;
        Some(name.clone())
    }

    /// Whether a list has ended, so that all objects are known.
    pub fn was_listed(&self) -> bool {
        self.listing.count() > 1
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn get(&self, name: &str) -> Option<&T> {
        self.rows.get(name).map(|row| &row.object)
    }

    pub fn get_key_value(&self, name: &str) -> Option<(&N, &T)> {
        self.rows
            .get_key_value(name)
            .map(|(name, row)| (name, &row.object))
    }

    /// Unordered.
    pub fn iter(&self) -> impl Iterator<Item = (&N, &T)> {
        self.rows.iter().map(|(name, row)| (name, &row.object))
    }

    pub fn version(&self, name: &str) -> Option<u64> {
        self.rows.get(name).map(|row| row.version)
    }

    pub fn put(&mut self, name: &N, uid: &U, version: u64, object: T) -> Put<T> {
        if self.gone.contains(uid.borrow()) {
            return Put::Unchanged;
        }
        let Some(row) = self.rows.get_mut(name.borrow()) else {
            let uid = uid.clone();
            self.rows.insert(name.clone(), Row { uid, version, object });
            self.listing.mark(name);
            return Put::Inserted;
        };
        // 0 stands for a resource version that is not a number, which cannot be compared.
        if version <= row.version && version != 0 {
            return Put::Unchanged;
        }
        // Also if the object is the same: patches carry this version, and an older one would be answered with 409.
        row.version = version;
        if row.object == object {
            return Put::Unchanged;
        }
        row.uid = uid.clone();
        Put::Replaced(std::mem::replace(&mut row.object, object))
    }

    /// Replaces a known object.
    pub fn replace(&mut self, name: &str, version: u64, object: T) -> bool {
        let Some(row) = self.rows.get_mut(name) else {
            return false;
        };
        row.version = version;
        let change = row.object != object;
        row.object = object;
        change
    }

    pub fn alter(&mut self, name: &str, change: impl FnOnce(&mut T) -> bool) -> bool {
        self.rows.get_mut(name).is_some_and(|row| change(&mut row.object))
    }

    pub fn remove(&mut self, name: &str, uid: &str) -> Option<T> {
        self.rows.get(name).filter(|row| row.uid.borrow() == uid)?;
        let row = self.rows.remove(name)?;
        self.gone.insert(row.uid);
        Some(row.object)
    }

    pub fn forget(&mut self, name: &str) -> bool {
        self.rows.remove(name).is_some()
    }

    /// Forgets all other objects.
    pub fn retain(&mut self, is_kept: impl Fn(&N) -> bool) {
        self.rows.retain(|name, _| is_kept(name));
    }

    pub fn start_list(&mut self) {
        self.listing.start();
    }

    /// The list in progress contains this object.
    pub fn mark_listed(&mut self, name: &str) {
        if let Some((name, _)) = self.rows.get_key_value(name) {
            self.listing.mark(name);
        }
    }

    /// Ends a list, and returns names and UIDs of the objects that it did not contain, ordered.
    pub fn finish_list(&mut self) -> Vec<(N, U)> {
        let gone = self.listing.finish(self.rows.keys());
        let with_uid = gone.into_iter().filter_map(|name| {
            let uid = self.rows.get(name.borrow())?.uid.clone();
            Some((name, uid))
        });
        with_uid.collect()
    }

    pub fn listing(&mut self) -> &mut Listing<N> {
        &mut self.listing
    }

    pub fn is_being_listed(&self) -> bool {
        self.listing.is_running()
    }

    /// Number of lists that have begun, and of those that have ended.
    pub fn lists(&self) -> u64 {
        self.listing.count()
    }
}

/// Number of UIDs of deleted objects to remember: more than can be deleted during one request.
const MAX_DELETED_UIDS: usize = 4096;

/// UIDs of deleted objects, the most recent ones.
#[derive(Debug)]
pub struct DeletedUids<U> {
    uids: HashSet<U>,
    in_order: VecDeque<U>,
}

impl<U> Default for DeletedUids<U> {
    fn default() -> Self {
        Self {
            uids: HashSet::new(),
            in_order: VecDeque::new(),
        }
    }
}

impl<U: Id> DeletedUids<U> {
    pub fn contains(&self, uid: &str) -> bool {
        self.uids.contains(uid)
    }

    pub fn insert(&mut self, uid: U) {
        if !self.uids.insert(uid.clone()) {
            return;
        }
        self.in_order.push_back(uid);
        if self.in_order.len() > MAX_DELETED_UIDS
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.uids.remove(oldest.borrow());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Numbers = Store<String, String, u64>;

    /// An object whose UID is its name in upper case, and whose version is its number.
    fn object(name: &str, number: u64) -> Change<Entry<String, String, u64>> {
        Change::Object(Entry {
            name: name.to_owned(),
            uid: name.to_uppercase(),
            version: number,
            object: number,
        })
    }

    fn changed(name: &str, before: Option<u64>) -> Vec<(String, Option<u64>)> {
        vec![(name.to_owned(), before)]
    }

    fn unreadable(uid: &str) -> Change<Entry<String, String, u64>> {
        let uid = uid.to_owned();
        Change::Unreadable(Unreadable {
            uid,
            ..Unreadable::default()
        })
    }

    #[test]
    fn a_list_removes_what_it_does_not_contain_once_it_has_ended() {
        let mut store = Numbers::default();
        assert_eq!(store.apply(Change::ListStarted), []);
        assert_eq!(store.apply(object("a", 1)), changed("a", None));
        assert_eq!(store.apply(object("b", 2)), changed("b", None));
        assert!(!store.was_listed());
        assert_eq!(store.apply(Change::ListFinished(2)), []);
        assert!(store.was_listed());
        store.apply(Change::ListStarted);
        assert_eq!(store.apply(object("b", 2)), [], "it is as it was");
        // It broke off, and begins anew.
        store.apply(Change::ListStarted);
        assert_eq!(store.apply(object("a", 3)), changed("a", Some(1)));
        assert!(store.get("b").is_some(), "the list may still contain it");
        assert_eq!(store.apply(Change::ListFinished(3)), changed("b", Some(2)));
        assert_eq!(store.apply(Change::Unknown), changed("a", Some(3)));
    }

    #[test]
    fn what_was_known_of_an_object_that_cannot_be_read_any_more_stays() {
        let mut store = Numbers::default();
        store.apply(object("a", 1));
        store.apply(Change::ListStarted);
        assert_eq!(store.apply(unreadable("A")), []);
        assert_eq!(store.apply(unreadable("")), []);
        assert_eq!(store.apply(Change::ListFinished(2)), []);
        assert_eq!(store.get("a"), Some(&1));
    }

    #[test]
    fn an_object_that_is_gone_may_be_there_again_and_another_one_of_its_name_stays() {
        let deleted = |uid: &str| Change::Deleted {
            name: "a".to_owned(),
            uid: uid.to_owned(),
        };
        let mut store = Numbers::default();
        store.apply(object("a", 1));
        assert_eq!(store.apply(deleted("another")), []);
        assert_eq!(store.apply(deleted("A")), changed("a", Some(1)));
        assert_eq!(store.apply(object("a", 2)), changed("a", None));
    }

    #[test]
    fn a_late_answer_neither_restores_an_object_nor_an_older_version_of_it() {
        let (mut store, name, uid) = (Numbers::default(), "a".to_owned(), "A".to_owned());
        store.put(&name, &uid, 2, 2);
        assert!(matches!(store.put(&name, &uid, 1, 1), Put::Unchanged));
        assert_eq!(store.get("a"), Some(&2));
        assert_eq!(store.remove("a", "A"), Some(2));
        assert!(matches!(store.put(&name, &uid, 3, 3), Put::Unchanged));
        assert_eq!(store.get("a"), None);
    }

    #[test]
    fn only_the_latest_deleted_uids_are_remembered() {
        let mut gone = DeletedUids::<String>::default();
        for number in 0..=MAX_DELETED_UIDS {
            gone.insert(number.to_string());
            gone.insert(number.to_string());
        }
        assert!(!gone.contains("0"));
        assert!(gone.contains("1") && gone.contains(&MAX_DELETED_UIDS.to_string()));
        assert_eq!(gone.uids.len(), gone.in_order.len());
    }
}
