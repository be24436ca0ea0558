//! Names grouped by what they belong to, such as the Jobs on a node or the pods of a Job. Iteration is ordered, so that
//! decisions are deterministic.

use std::collections::BTreeSet;

use foldhash::HashMap;

use refit_facts::store::Id;

/// Names grouped by what they belong to. Empty groups are removed.
#[derive(Debug)]
pub(crate) struct Index<K, N>(HashMap<K, BTreeSet<N>>);

impl<K, N> Default for Index<K, N> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<K: Id, N: Id> Index<K, N> {
    pub(crate) fn of(&self, key: &str) -> impl Iterator<Item = &N> {
        self.0.get(key).into_iter().flatten()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.keys()
    }

    /// All groups, ordered.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &BTreeSet<N>)> {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all.into_iter()
    }

    pub(crate) fn add(&mut self, key: &K, name: &N) {
        self.0.entry(key.clone()).or_default().insert(name.clone());
    }

    pub(crate) fn drop(&mut self, key: &K, name: &N) {
        if let Some(names) = self.0.get_mut(key.borrow()) {
            names.remove(name.borrow());
            if names.is_empty() {
                self.0.remove(key.borrow());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Index;
    use refit_facts::Text;

    #[test]
    fn an_index_iterates_in_key_order_and_drops_empty_keys() {
        let mut index = Index::<Text, Text>::default();
        for (key, name) in [("b", "2"), ("a", "3"), ("b", "1"), ("c", "4")] {
            index.add(&key.into(), &name.into());
        }
        index.drop(&"c".into(), &"4".into());
        index.drop(&"c".into(), &"4".into());
        let all: Vec<_> = index
            .iter()
            .map(|(key, names)| (&**key, names.iter().map(|name| &**name).collect::<Vec<_>>()))
            .collect();
        assert_eq!(all, [("a", vec!["3"]), ("b", vec!["1", "2"])]);
        assert_eq!(index.of("b").count(), 2);
        assert_eq!(index.of("c").count(), 0);
    }
}
