//! The Secrets that a Plan has in its hash.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use refit_api::PlanSpec;
use refit_api::names::is_secret_name;
use refit_api::validate::validate_secrets;
use refit_facts::store::Store;
use refit_facts::{SecretFacts, Text};
use refit_job::digest;

/// The Secrets that a Plan has in its hash, and what is known of them. They are looked up again only once one of them has
/// changed: Plans may name ten thousand Secrets, and the response about each causes a decision.
#[derive(Debug, Default)]
pub(crate) struct PlanSecrets {
    names: Arc<BTreeSet<Text>>,
    /// `None` if a Secret or the Plan has changed since.
    hashes: Option<SecretHashes>,
    /// Number of Secrets that were looked up.
    #[cfg(test)]
    pub(crate) looked_up: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SecretHashes {
    /// Secrets are missing, or too many; the message is that of S53.
    Missing(String),
    /// These must be read first.
    Unread(Vec<Text>),
    /// In the order of the spec, with duplicates.
    Read(Vec<String>),
}

impl PlanSecrets {
    pub(crate) fn of(spec: &PlanSpec) -> Self {
        // A Plan with too many Secrets is invalid, and must not cost the watches and requests that the limit
        // prevents.
        let is_valid = validate_secrets(spec).is_ok();
        let names = digest::hashed_secrets(spec).filter(|name| is_valid && is_secret_name(name));
        Self {
            names: Arc::new(names.map(Text::from).collect()),
            ..Self::default()
        }
    }

    /// Those that may exist, so that they are read and watched. The name of each becomes part of a path.
    pub(crate) fn names(&self) -> &Arc<BTreeSet<Text>> {
        &self.names
    }

    /// One of them has changed.
    pub(crate) fn forget_hashes(&mut self) {
        self.hashes = None;
    }

    /// Those that must be read before there is a hash.
    pub(crate) fn unread(&self) -> &[Text] {
        match &self.hashes {
            Some(SecretHashes::Unread(names)) => names,
            Some(SecretHashes::Missing(_) | SecretHashes::Read(_)) | None => &[],
        }
    }

    pub(crate) fn look_up(
        &mut self,
        spec: &PlanSpec,
        secrets: &Store<Text, Text, SecretFacts>,
    ) -> &SecretHashes {
        #[cfg(test)]
        {
            self.looked_up += self.hashes.as_ref().map_or(self.names.len(), |_| 0);
        }
        self.hashes.get_or_insert_with(|| look_up(spec, secrets))
    }
}

fn look_up(spec: &PlanSpec, secrets: &Store<Text, Text, SecretFacts>) -> SecretHashes {
    if let Err(invalid) = validate_secrets(spec) {
        return SecretHashes::Missing(invalid.to_string());
    }
    let (mut hashes, mut missing, mut unread) = (Vec::new(), Vec::new(), Vec::new());
    for name in digest::hashed_secrets(spec) {
        match secrets.get(name) {
            None if !is_secret_name(name) => missing.push(name.to_owned()),
            Some(SecretFacts::Hash(hash)) => hashes.push(hash.clone()),
            Some(SecretFacts::Unread) | None => unread.push(name.into()),
            Some(SecretFacts::Missing) => missing.push(name.to_owned()),
        }
    }
    // The message names all missing Secrets at once.
    if !unread.is_empty() {
        SecretHashes::Unread(unread)
    } else if !missing.is_empty() {
        SecretHashes::Missing(not_found(&missing))
    } else {
        SecretHashes::Read(hashes)
    }
}

fn not_found(secrets: &[String]) -> String {
    let each: Vec<_> = secrets
        .iter()
        .map(|name| format!("secrets \"{name}\" not found"))
        .collect();
    each.join(", ")
}

/// The names of a Plan that has none.
pub(crate) fn no_names() -> Arc<BTreeSet<Text>> {
    static NONE: LazyLock<Arc<BTreeSet<Text>>> = LazyLock::new(Arc::default);
    Arc::clone(&NONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_missing_secrets_are_reported_at_once() {
        assert_eq!(
            not_found(&["x".to_owned(), "y".to_owned()]),
            "secrets \"x\" not found, secrets \"y\" not found"
        );
    }
}
