//! The Secrets that Plans have in their hash.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::index::Index;
use refit_facts::store::{Put, Store};
use refit_facts::{PlanName, SecretFacts, Text};

#[derive(Debug, Default)]
pub(crate) struct Secrets {
    table: Store<Text, Text, SecretFacts>,
    /// The Plans that have a Secret in their hash, except those that are being deleted.
    by_name: Index<Text, PlanName>,
    /// The names of these Secrets. `None` if a Plan has changed since they were collected.
    names: Option<Arc<BTreeSet<Text>>>,
    /// Secrets that may not be listed or watched.
    unwatched: BTreeSet<Text>,
}

impl Secrets {
    pub(crate) fn table(&self) -> &Store<Text, Text, SecretFacts> {
        &self.table
    }

    /// Whether the Secret may not be listed or watched.
    pub(crate) fn is_unwatched(&self, name: &str) -> bool {
        self.unwatched.contains(name)
    }

    /// The Plans that have the Secret in their hash.
    pub(crate) fn plans(&self, name: &str) -> impl Iterator<Item = &PlanName> {
        self.by_name.of(name)
    }

    /// The metadata of a Secret was seen in this version; its content must be read again.
    pub(crate) fn seen(&mut self, name: &Text, version: u64) -> bool {
        self.change(name, |secrets| {
            if secrets.get(name) == Some(&SecretFacts::Missing) {
                secrets.forget(name);
            }
            // Read at this very version: its hash is still valid.
            secrets.version(name) != Some(version) && put(secrets, name, version, SecretFacts::Unread)
        })
    }

    /// The content of a Secret was read at this version. A deleted Secret stays deleted.
    pub(crate) fn read(&mut self, name: &Text, version: u64, hash: String) -> bool {
        self.change(name, |secrets| match (secrets.get(name), secrets.version(name)) {
            (Some(SecretFacts::Missing), _) => false,
            (Some(_), Some(known)) if known > version => false,
            (Some(_), _) => secrets.replace(name, version, SecretFacts::Hash(hash)),
            (None, _) => put(secrets, name, version, SecretFacts::Hash(hash)),
        })
    }

    /// A Secret was requested and does not exist. If the watch has reported it in the meantime, the watch is right.
    pub(crate) fn mark_missing(&mut self, name: &Text) -> bool {
        self.change(name, |secrets| {
            secrets.get(name).is_none() && put(secrets, name, 0, SecretFacts::Missing)
        })
    }

    /// A list at this version did not contain the Secret. What was read after that list is right.
    pub(crate) fn absent(&mut self, name: &Text, version: u64) -> bool {
        self.table.version(name).is_none_or(|known| known <= version) && self.remove(name)
    }

    pub(crate) fn remove(&mut self, name: &Text) -> bool {
        self.change(name, |secrets| {
            // Also if nothing was known: a response that is still on its way may show the Secret as it was before.
            secrets.get(name).is_none() && put(secrets, name, 0, SecretFacts::Missing)
                || secrets.alter(name, |known| {
                    std::mem::replace(known, SecretFacts::Missing) != SecretFacts::Missing
                })
        })
    }

    pub(crate) fn set_unwatched(&mut self, name: Text, unwatched: bool) -> bool {
        if unwatched {
            self.unwatched.insert(name)
        } else {
            self.unwatched.remove(&name)
        }
    }

    /// A Plan has changed, and had these Secrets in its hash before, and has those now.
    pub(crate) fn plan_changed(&mut self, plan: &PlanName, before: &BTreeSet<Text>, now: &BTreeSet<Text>) {
        if before == now {
            return;
        }
        for name in before.difference(now) {
            self.by_name.drop(name, plan);
        }
        for name in now.difference(before) {
            self.by_name.add(name, plan);
        }
        self.names = None;
    }

    /// The names of the Secrets that Plans have in their hash: the same set until one of these Plans changes. All others are
    /// forgotten then, because nothing watches them from now on.
    pub(crate) fn retain_hashed(&mut self) -> Arc<BTreeSet<Text>> {
        if let Some(names) = &self.names {
            return Arc::clone(names);
        }
        let names: Arc<BTreeSet<_>> = Arc::new(self.by_name.keys().cloned().collect());
        self.table.retain(|name| names.contains(name));
        self.unwatched.retain(|name| names.contains(name));
        self.names = Some(Arc::clone(&names));
        names
    }

    /// Applies a change of a Secret. One that no Plan has in its hash is forgotten, because nothing watches it.
    fn change(
        &mut self,
        name: &Text,
        change: impl FnOnce(&mut Store<Text, Text, SecretFacts>) -> bool,
    ) -> bool {
        if self.plans(name).next().is_some() {
            change(&mut self.table)
        } else {
            self.table.forget(name)
        }
    }
}

fn put(secrets: &mut Store<Text, Text, SecretFacts>, name: &Text, version: u64, facts: SecretFacts) -> bool {
    !matches!(
        secrets.put(name, &Text::default(), version, facts),
        Put::Unchanged
    )
}
