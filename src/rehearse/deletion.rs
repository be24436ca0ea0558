//! How an API server deletes: what is meant has to be what is there, pods get time to end, and finalizers keep what they keep.

use std::sync::Arc;

use super::fault::Fault;
use super::resources::Kind;
use super::rules;
use super::state::{State, seconds};
use super::store::object::{has_finalizers, is_leaving};
use super::store::{Key, Object};
use super::write::generation;

/// What is said with a deletion (`DeleteOptions`).
#[derive(Clone, Debug, Default)]
pub(super) struct Deletion {
    /// UID that is meant.
    pub(super) uid: Option<String>,
    /// Version that is meant.
    pub(super) version: Option<String>,
    /// Grace period in seconds.
    pub(super) grace: Option<i64>,
    /// `Orphan`, `Background` or `Foreground`; absent means as the type has it.
    pub(super) propagation: Option<String>,
    /// Whether it is only tried.
    pub(super) dry_run: bool,
}

impl State {
    /// Tells an object to go. What is left of it: the object in its last version, and whether it is gone.
    pub(super) fn delete(
        &mut self,
        kind: Kind,
        key: &Key,
        how: &Deletion,
    ) -> Result<(Arc<Object>, bool), Fault> {
        let Some(old) = self.store.get(kind, key).cloned() else {
            return Err(Fault::not_found(kind, &key.name));
        };
        let version = old.meta("resourceVersion");
        for (what, wanted, found) in [
            ("UID", how.uid.as_deref(), old.uid()),
            ("ResourceVersion", how.version.as_deref(), version),
        ] {
            if let Some(wanted) = wanted.filter(|wanted| *wanted != found) {
                return Err(Fault::not_in_record(kind, &key.name, what, wanted, found));
            }
        }
        if how.dry_run {
            return Ok((old, false));
        }
        let mut new = old.value.clone();
        rules::keep_for_dependents(kind, &mut new, how.propagation.as_deref());
        let grace = if kind == Kind::Pod {
            rules::grace(&old, how.grace)
        } else {
            0
        };
        if grace == 0 && !has_finalizers(&new) {
            let change = self.commit(kind, key, None);
            return Ok((change.new, true));
        }
        let known = new["metadata"]["deletionGracePeriodSeconds"].as_i64();
        if is_leaving(&new) && known.is_some_and(|known| known <= grace) && new == old.value {
            return Ok((old, false));
        }
        let now = self.now();
        let until = now
            .checked_add(jiff::SignedDuration::from_secs(grace))
            .unwrap_or(now);
        new["metadata"]["deletionTimestamp"] = seconds(until).into();
        new["metadata"]["deletionGracePeriodSeconds"] = grace.into();
        if kind.facts().counts_generations {
            new["metadata"]["generation"] = (generation(&old.value) + 1).into();
        }
        Ok((self.commit(kind, key, Some(new)).new, false))
    }
}
