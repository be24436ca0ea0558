//! Deletion as in an API server: preconditions, grace periods of pods, and finalizers.

use std::sync::Arc;

use super::resources::Kind;
use super::state::{State, seconds};
use super::status_error::StatusError;
use super::store::object::{has_finalizers, is_being_deleted};
use super::store::{Key, Object};
use super::strategy;
use super::write::generation;

/// `DeleteOptions`.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// Precondition on the UID.
    pub uid: Option<String>,
    /// Precondition on the resource version.
    pub version: Option<String>,
    pub grace: Option<i64>,
    /// `Orphan`, `Background` or `Foreground`; `None` means the default of the type.
    pub propagation: Option<String>,
    pub dry_run: bool,
}

impl State {
    /// Deletes an object. Returns its last version, and whether it is gone.
    ///
    /// # Errors
    /// Fails as the API server does, with its status.
    pub fn delete(
        &mut self,
        kind: Kind,
        key: &Key,
        how: &DeleteOptions,
    ) -> Result<(Arc<Object>, bool), StatusError> {
        let Some(old) = self.store.get(kind, key).cloned() else {
            return Err(StatusError::not_found(kind, &key.name));
        };
        let version = old.meta("resourceVersion");
        for (what, wanted, found) in [
            ("UID", how.uid.as_deref(), old.uid()),
            ("ResourceVersion", how.version.as_deref(), version),
        ] {
            if let Some(wanted) = wanted.filter(|wanted| *wanted != found) {
                return Err(StatusError::not_in_record(kind, &key.name, what, wanted, found));
            }
        }
        if how.dry_run {
            return Ok((old, false));
        }
        let mut new = old.value.clone();
        strategy::keep_for_dependents(kind, &mut new, how.propagation.as_deref());
        // Of the simulated types, only pods are deleted gracefully.
        let grace = if kind == Kind::Pod {
            strategy::grace(&old, how.grace)
        } else {
            0
        };
        if grace == 0 && !has_finalizers(&new) {
            let change = self.commit(kind, key, None);
            return Ok((change.new, true));
        }
        // A repeated deletion may only shorten the grace period; otherwise it writes nothing (`BeforeDelete`).
        let known = new["metadata"]["deletionGracePeriodSeconds"].as_i64();
        if is_being_deleted(&new) && known.is_some_and(|known| known <= grace) && new == old.value {
            return Ok((old, false));
        }
        let now = self.now();
        let until = now
            .checked_add(jiff::SignedDuration::from_secs(grace))
            .unwrap_or(now);
        // The timestamp is the end of the grace period, not the time of the request.
        new["metadata"]["deletionTimestamp"] = seconds(until).into();
        new["metadata"]["deletionGracePeriodSeconds"] = grace.into();
        if kind.resource_type().counts_generations {
            // Controllers treat an object that is being deleted differently, so this counts as a change of its spec.
            new["metadata"]["generation"] = (generation(&old.value) + 1).into();
        }
        Ok((self.commit(kind, key, Some(new)).new, false))
    }
}
