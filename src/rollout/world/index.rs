//! Names by what they belong to: the Jobs on a node, the pods of a Job. Whoever goes through all of it does so in order, so
//! that each decision is made alike.

use std::collections::BTreeSet;

use super::super::facts::Text;
use super::table::ByName;

/// Names by what they belong to. What has none is not in it.
#[derive(Debug, Default)]
pub(in crate::rollout) struct Index(ByName<BTreeSet<Text>>);

impl Index {
    pub(in crate::rollout) fn of(&self, key: &str) -> impl Iterator<Item = &Text> {
        self.0.get(key).into_iter().flatten()
    }

    pub(in crate::rollout) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of it, in order.
    pub(in crate::rollout) fn iter(&self) -> impl Iterator<Item = (&Text, &BTreeSet<Text>)> {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all.into_iter()
    }

    pub(super) fn add(&mut self, key: &Text, name: &Text) {
        self.0.entry(key.clone()).or_default().insert(name.clone());
    }

    pub(super) fn drop(&mut self, key: &Text, name: &Text) {
        if let Some(names) = self.0.get_mut(key) {
            names.remove(name);
            if names.is_empty() {
                self.0.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Index;

    #[test]
    fn all_of_it_comes_in_order_and_nothing_is_left_of_what_has_none() {
        let mut index = Index::default();
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
