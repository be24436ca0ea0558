//! Facts of one kind, by name. An older version of an object never replaces a newer one, and a deleted object stays
//! deleted.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;

/// A name or a UID.
pub(crate) trait Id: Borrow<str> + Clone + Hash + Ord {}

impl<T: Borrow<str> + Clone + Hash + Ord> Id for T {}

/// Facts of one kind, by name, with their resource versions. `N` is the type of their names, `U` that of their UIDs.
#[derive(Debug)]
pub(crate) struct Table<N, U, T> {
    /// Unordered, for look-ups: a decision makes a dozen of them for each node in progress.
    rows: HashMap<N, Row<T>>,
    /// UIDs of deleted objects, so that a late response does not restore one.
    gone: DeletedUids<U>,
    /// Number of times that a list of this kind has begun or ended, so it is odd during a list.
    lists: u64,
}

#[derive(Debug)]
struct Row<T> {
    version: u64,
    listed: bool,
    facts: T,
}

/// Result of an update.
pub(crate) enum Put<T> {
    Unchanged,
    /// The object was not known.
    Inserted,
    /// The facts differ from these previous ones.
    Replaced(T),
}

impl<N, U, T> Default for Table<N, U, T> {
    fn default() -> Self {
        Self {
            rows: HashMap::new(),
            gone: DeletedUids::default(),
            lists: 0,
        }
    }
}

impl<N: Id, U: Id, T: PartialEq> Table<N, U, T> {
    pub(crate) fn len(&self) -> usize {
        self.iter().count()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&T> {
        self.rows.get(name).map(|row| &row.facts)
    }

    pub(crate) fn get_key_value(&self, name: &str) -> Option<(&N, &T)> {
        self.rows
            .get_key_value(name)
            .map(|(name, row)| (name, &row.facts))
    }

    /// Unordered.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&N, &T)> {
        self.rows.iter().map(|(name, row)| (name, &row.facts))
    }

    pub(crate) fn version(&self, name: &str) -> Option<u64> {
        self.rows.get(name).map(|row| row.version)
    }

    pub(crate) fn put(&mut self, name: &N, uid: &str, version: u64, facts: T) -> Put<T> {
        if self.gone.contains(uid) {
            return Put::Unchanged;
        }
        let Some(row) = self.rows.get_mut(name.borrow()) else {
            let row = Row {
                version,
                listed: true,
                facts,
            };
            self.rows.insert(name.clone(), row);
            return Put::Inserted;
        };
        // 0 stands for a resource version that is not a number, which cannot be compared.
        if version <= row.version && version != 0 {
            return Put::Unchanged;
        }
        // Also without a change of facts: patches carry this version, and an older one would be answered with 409.
        row.version = version;
        if row.facts == facts {
            return Put::Unchanged;
        }
        Put::Replaced(std::mem::replace(&mut row.facts, facts))
    }

    /// Replaces the facts of a known object.
    pub(crate) fn replace(&mut self, name: &str, version: u64, facts: T) -> bool {
        let Some(row) = self.rows.get_mut(name) else {
            return false;
        };
        row.version = version;
        let change = row.facts != facts;
        row.facts = facts;
        change
    }

    pub(crate) fn alter(&mut self, name: &str, change: impl FnOnce(&mut T) -> bool) -> bool {
        self.rows.get_mut(name).is_some_and(|row| change(&mut row.facts))
    }

    /// The list in progress contains this object.
    pub(crate) fn mark_listed(&mut self, name: &str) {
        if let Some(row) = self.rows.get_mut(name) {
            row.listed = true;
        }
    }

    pub(crate) fn remove(&mut self, name: &str, uid: &str, uid_of: impl Fn(&T) -> &U) -> Option<T> {
        let known = uid_of(self.get(name)?);
        if known.borrow() != uid {
            return None;
        }
        self.gone.insert(known.clone());
        self.rows.remove(name).map(|row| row.facts)
    }

    pub(crate) fn forget(&mut self, name: &str) -> bool {
        self.rows.remove(name).is_some()
    }

    /// Forgets all other objects.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&N) -> bool) {
        self.rows.retain(|name, _| is_kept(name));
    }

    pub(crate) fn start_list(&mut self) {
        self.lists += u64::from(self.lists.is_multiple_of(2)); // a list that broke off starts again
        self.rows.values_mut().for_each(|row| row.listed = false);
    }

    /// Ends a list, and returns the objects that it did not contain, ordered.
    pub(crate) fn finish_list<K: Ord>(&mut self, key: impl Fn(&N, &T) -> K) -> Vec<K> {
        self.lists += 1;
        let unlisted = self.rows.iter().filter(|(_, row)| !row.listed);
        let mut gone: Vec<_> = unlisted.map(|(name, row)| key(name, &row.facts)).collect();
        gone.sort_unstable();
        gone
    }

    pub(crate) fn is_being_listed(&self) -> bool {
        !self.lists.is_multiple_of(2)
    }

    pub(crate) fn lists(&self) -> u64 {
        self.lists
    }
}

/// Number of UIDs of deleted objects to remember: more than can be deleted during one request.
const MAX_DELETED_UIDS: usize = 4096;

/// UIDs of deleted objects, the most recent ones.
#[derive(Debug)]
pub(crate) struct DeletedUids<U> {
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
    pub(crate) fn contains(&self, uid: &str) -> bool {
        self.uids.contains(uid)
    }

    pub(crate) fn insert(&mut self, uid: U) {
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
    use super::{DeletedUids, MAX_DELETED_UIDS};
    use refit_facts::Text;

    #[test]
    fn only_the_latest_deleted_uids_are_remembered() {
        let mut gone = DeletedUids::<Text>::default();
        for number in 0..=MAX_DELETED_UIDS {
            gone.insert(number.to_string().into());
            gone.insert(number.to_string().into());
        }
        assert!(!gone.contains("0"));
        assert!(gone.contains("1") && gone.contains(&MAX_DELETED_UIDS.to_string()));
        assert_eq!(gone.uids.len(), gone.in_order.len());
    }
}
