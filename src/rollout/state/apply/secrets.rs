//! Secrets, as far as Plans have them in their hash.

use crate::job::digest;
use crate::rollout::facts::{SecretFacts, Text};
use crate::rollout::state::ClusterState;
use crate::rollout::state::table::Put;

impl ClusterState {
    /// The metadata of a Secret was seen in this version; its content must be read again.
    pub(super) fn apply_secret(&mut self, name: &Text, version: u64) -> bool {
        if self.secrets.get(name) == Some(&SecretFacts::Missing) {
            self.secrets.forget(name);
        }
        // Read at this very version: its hash is still valid.
        self.secrets.version(name) != Some(version)
            && !matches!(
                self.secrets.put(name, "", version, SecretFacts::Unread),
                Put::Unchanged
            )
    }

    /// The content of a Secret was read at this version. A deleted Secret stays deleted.
    pub(super) fn apply_secret_hash(&mut self, name: &Text, version: u64, hash: String) -> bool {
        match (self.secrets.get(name), self.secrets.version(name)) {
            (Some(SecretFacts::Missing), _) => false,
            (Some(_), Some(known)) if known > version => false,
            (Some(_), _) => self.secrets.replace(name, version, SecretFacts::Hash(hash)),
            (None, _) => {
                self.is_hashed(name)
                    && matches!(
                        self.secrets.put(name, "", version, SecretFacts::Hash(hash)),
                        Put::Inserted
                    )
            }
        }
    }

    /// A Secret was requested and does not exist. If the watch has reported it in the meantime, the watch is right.
    pub(super) fn mark_secret_missing(&mut self, name: &Text) -> bool {
        self.secrets.get(name).is_none()
            && matches!(self.secrets.put(name, "", 0, SecretFacts::Missing), Put::Inserted)
    }

    pub(super) fn remove_secret(&mut self, name: &str) -> bool {
        if self.is_hashed(name) {
            return self.secrets.alter(name, |known| {
                std::mem::replace(known, SecretFacts::Missing) != SecretFacts::Missing
            });
        }
        self.secrets.forget(name)
    }

    /// Whether a Plan has the Secret in its hash.
    fn is_hashed(&self, name: &str) -> bool {
        let mut plans = self.plans.values();
        plans.any(|plan| digest::hashed_secrets(plan.spec()).any(|secret| secret == name))
    }
}
