//! Facts of one kind by name. An older version of an object never replaces a newer one, and one that is gone stays gone.

use std::collections::{HashMap, HashSet, VecDeque};

use foldhash::fast::RandomState;

use super::super::facts::Text;

/// By name, or UID, for look-ups: a decision makes a dozen of them for each node under way. In no order.
pub(in crate::rollout) type ByName<T> = HashMap<Text, T, RandomState>;

/// Facts of one kind by name, with the version in which each is known.
#[derive(Debug)]
pub(in crate::rollout) struct Table<T> {
    rows: ByName<Row<T>>,
    /// UIDs of objects that are gone for good: an answer that comes late does not bring one back.
    gone: Gone,
    /// How many times a list of this kind has begun or ended.
    lists: u64,
}

#[derive(Debug)]
struct Row<T> {
    version: u64,
    listed: bool,
    facts: T,
}

/// What became of facts that came in.
pub(super) enum Put<T> {
    /// They are no news.
    Known,
    /// There were none of the object.
    New,
    /// They are other than these.
    Instead(T),
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            rows: ByName::default(),
            gone: Gone::default(),
            lists: 0,
        }
    }
}

impl<T: PartialEq> Table<T> {
    pub(in crate::rollout) fn get(&self, name: &str) -> Option<&T> {
        self.rows.get(name).map(|row| &row.facts)
    }

    pub(in crate::rollout) fn get_key_value(&self, name: &str) -> Option<(&Text, &T)> {
        self.rows
            .get_key_value(name)
            .map(|(name, row)| (name, &row.facts))
    }

    /// In no order.
    pub(in crate::rollout) fn iter(&self) -> impl Iterator<Item = (&Text, &T)> {
        self.rows.iter().map(|(name, row)| (name, &row.facts))
    }

    pub(super) fn version(&self, name: &str) -> Option<u64> {
        self.rows.get(name).map(|row| row.version)
    }

    pub(super) fn put(&mut self, name: &Text, uid: &str, version: u64, facts: T) -> Put<T> {
        if self.gone.contains(uid) {
            return Put::Known;
        }
        let Some(row) = self.rows.get_mut(name) else {
            let row = Row {
                version,
                listed: true,
                facts,
            };
            self.rows.insert(name.clone(), row);
            return Put::New;
        };
        if version <= row.version && version != 0 {
            return Put::Known;
        }
        row.version = version;
        if row.facts == facts {
            return Put::Known;
        }
        Put::Instead(std::mem::replace(&mut row.facts, facts))
    }

    /// Other facts of an object that is known.
    pub(super) fn replace(&mut self, name: &str, version: u64, facts: T) -> bool {
        let Some(row) = self.rows.get_mut(name) else {
            return false;
        };
        row.version = version;
        let change = row.facts != facts;
        row.facts = facts;
        change
    }

    pub(super) fn alter(&mut self, name: &str, change: impl FnOnce(&mut T) -> bool) -> bool {
        self.rows.get_mut(name).is_some_and(|row| change(&mut row.facts))
    }

    /// The list that is under way shows this one.
    pub(super) fn show(&mut self, name: &str) {
        if let Some(row) = self.rows.get_mut(name) {
            row.listed = true;
        }
    }

    pub(super) fn remove(&mut self, name: &str, uid: &str, uid_of: impl Fn(&T) -> &Text) -> Option<T> {
        let known = uid_of(self.get(name)?);
        if **known != *uid {
            return None;
        }
        self.gone.insert(known.clone());
        self.rows.remove(name).map(|row| row.facts)
    }

    pub(super) fn forget(&mut self, name: &str) -> bool {
        self.rows.remove(name).is_some()
    }

    pub(super) fn begin(&mut self) {
        self.lists += u64::from(self.lists.is_multiple_of(2)); // one that broke off begins anew
        self.rows.values_mut().for_each(|row| row.listed = false);
    }

    /// What the list that ends now has not shown, in order.
    pub(super) fn end<K: Ord>(&mut self, key: impl Fn(&Text, &T) -> K) -> Vec<K> {
        self.lists += 1;
        let unlisted = self.rows.iter().filter(|(_, row)| !row.listed);
        let mut gone: Vec<_> = unlisted.map(|(name, row)| key(name, &row.facts)).collect();
        gone.sort_unstable();
        gone
    }

    pub(in crate::rollout) fn is_being_listed(&self) -> bool {
        !self.lists.is_multiple_of(2)
    }

    pub(super) fn lists(&self) -> u64 {
        self.lists
    }
}

/// How many UIDs of gone objects are remembered: more than can be gone while one request is under way.
const GONE_REMEMBERED: usize = 4096;

/// UIDs of objects that are gone, the latest ones.
#[derive(Debug, Default)]
pub(super) struct Gone {
    uids: HashSet<Text>,
    in_order: VecDeque<Text>,
}

impl Gone {
    pub(super) fn contains(&self, uid: &str) -> bool {
        self.uids.contains(uid)
    }

    pub(super) fn insert(&mut self, uid: Text) {
        if !self.uids.insert(uid.clone()) {
            return;
        }
        self.in_order.push_back(uid);
        if self.in_order.len() > GONE_REMEMBERED
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.uids.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{GONE_REMEMBERED, Gone};

    #[test]
    fn only_the_latest_of_the_gone_are_remembered() {
        let mut gone = Gone::default();
        for number in 0..=GONE_REMEMBERED {
            gone.insert(number.to_string().into());
            gone.insert(number.to_string().into());
        }
        assert!(!gone.contains("0"));
        assert!(gone.contains("1") && gone.contains(&GONE_REMEMBERED.to_string()));
        assert_eq!(gone.uids.len(), gone.in_order.len());
    }
}
