//! Secrets, as far as Plans have them in their hash.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::plan::PlanState;
use crate::state::ClusterState;
use crate::state::table::{Put, Table};
use refit_facts::{PlanName, SecretFacts, Text};

impl ClusterState {
    /// The metadata of a Secret was seen in this version; its content must be read again.
    pub(super) fn apply_secret(&mut self, name: &Text, version: u64) -> bool {
        self.change_secret(name, |secrets| {
            if secrets.get(name) == Some(&SecretFacts::Missing) {
                secrets.forget(name);
            }
            // Read at this very version: its hash is still valid.
            secrets.version(name) != Some(version) && put(secrets, name, version, SecretFacts::Unread)
        })
    }

    /// The content of a Secret was read at this version. A deleted Secret stays deleted.
    pub(super) fn apply_secret_hash(&mut self, name: &Text, version: u64, hash: String) -> bool {
        self.change_secret(name, |secrets| match (secrets.get(name), secrets.version(name)) {
            (Some(SecretFacts::Missing), _) => false,
            (Some(_), Some(known)) if known > version => false,
            (Some(_), _) => secrets.replace(name, version, SecretFacts::Hash(hash)),
            (None, _) => put(secrets, name, version, SecretFacts::Hash(hash)),
        })
    }

    /// A Secret was requested and does not exist. If the watch has reported it in the meantime, the watch is right.
    pub(super) fn mark_secret_missing(&mut self, name: &Text) -> bool {
        self.change_secret(name, |secrets| {
            secrets.get(name).is_none() && put(secrets, name, 0, SecretFacts::Missing)
        })
    }

    /// A list at this version did not contain the Secret. What was read after that list is right.
    pub(super) fn apply_absent_secret(&mut self, name: &Text, version: u64) -> bool {
        self.secrets.version(name).is_none_or(|known| known <= version) && self.remove_secret(name)
    }

    pub(super) fn remove_secret(&mut self, name: &Text) -> bool {
        self.change_secret(name, |secrets| {
            // Also if nothing was known: a response that is still on its way may show the Secret as it was before.
            secrets.get(name).is_none() && put(secrets, name, 0, SecretFacts::Missing)
                || secrets.alter(name, |known| {
                    std::mem::replace(known, SecretFacts::Missing) != SecretFacts::Missing
                })
        })
    }

    pub(super) fn apply_secret_watch(&mut self, name: Text, forbidden: bool) -> bool {
        if forbidden {
            self.unwatched_secrets.insert(name)
        } else {
            self.unwatched_secrets.remove(&name)
        }
    }

    /// A Plan has changed, and had these Secrets in its hash before.
    pub(super) fn update_hashed_secrets(&mut self, plan: &PlanName, before: Option<Arc<BTreeSet<Text>>>) {
        let before = before.unwrap_or_default();
        let now = self.plans.get(plan).map(PlanState::watched_secrets);
        let now = now.unwrap_or_default();
        if before == now {
            return;
        }
        for name in before.difference(&now) {
            self.plans_by_secret.drop(name, plan);
        }
        for name in now.difference(&before) {
            self.plans_by_secret.add(name, plan);
        }
        self.hashed_secrets = None;
    }

    /// The names of the Secrets that Plans have in their hash: the same set until one of these Plans changes. All others are
    /// forgotten then, because nothing watches them from now on.
    pub fn retain_hashed_secrets(&mut self) -> Arc<BTreeSet<Text>> {
        if let Some(names) = &self.hashed_secrets {
            return Arc::clone(names);
        }
        let names: Arc<BTreeSet<_>> = Arc::new(self.plans_by_secret.keys().cloned().collect());
        self.secrets.retain(|name| names.contains(name));
        self.unwatched_secrets.retain(|name| names.contains(name));
        self.hashed_secrets = Some(Arc::clone(&names));
        names
    }

    /// Whether a Plan has the Secret in its hash.
    fn is_hashed(&self, name: &str) -> bool {
        self.plans_by_secret.of(name).next().is_some()
    }

    /// Applies a change of a Secret. One that no Plan has in its hash is forgotten, because nothing watches it.
    fn change_secret(
        &mut self,
        name: &Text,
        change: impl FnOnce(&mut Table<Text, Text, SecretFacts>) -> bool,
    ) -> bool {
        let changed = if self.is_hashed(name) {
            change(&mut self.secrets)
        } else {
            self.secrets.forget(name)
        };
        if changed {
            for plan in self.plans_by_secret.of(name) {
                if let Some(plan) = self.plans.get_mut(plan) {
                    plan.secrets.forget_hashes();
                }
            }
        }
        changed
    }
}

fn put(secrets: &mut Table<Text, Text, SecretFacts>, name: &Text, version: u64, facts: SecretFacts) -> bool {
    !matches!(secrets.put(name, "", version, facts), Put::Unchanged)
}
