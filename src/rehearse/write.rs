//! Processing of a write before it is stored: server-side metadata, preconditions, validation and the generation.

use std::sync::Arc;

use super::resources::Kind;
use super::state::{State, seconds};
use super::status_error::StatusError;
use super::store::object::{has_finalizers, is_being_deleted, text};
use super::store::{Key, Object};
use super::strategy;
use crate::json::{Map, Value};

/// Number of attempts to generate a name (`maxNameGenerationCreateAttempts`, KEP-4420).
const GENERATED_TRIES: usize = 8;
/// Maximum length of the prefix for `generateName` (`maxGeneratedNameLength`).
const MAX_GENERATED: usize = 58;

/// The part of an object that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteTarget {
    /// Everything but its status.
    Whole,
    Status,
}

/// A merge patch (RFC 7386).
pub fn merge(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Map::new().into();
    }
    let Some(target) = target.as_object_mut() else {
        return;
    };
    // Each change of a map's size copies it: once for all fields.
    if fields.iter().any(|(_, value)| value.is_null()) {
        target.retain(|key| !fields.get(key).is_some_and(Value::is_null));
    }
    target.insert_missing(fields.iter().filter(|(_, value)| !value.is_null()));
    for (key, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        merge(target.or_insert(key, Value::Null), value);
    }
}

impl State {
    /// Creates an object, with the defaults of the API server.
    ///
    /// # Errors
    /// Fails as the API server does, with its status.
    pub fn create(
        &mut self,
        kind: Kind,
        namespace: &str,
        mut value: Value,
        dry_run: bool,
    ) -> Result<Arc<Object>, StatusError> {
        self.name(kind, namespace, &mut value)?;
        let key = Key::new(namespace, text(&value, "/metadata/name"));
        // The admission plugin `NamespaceLifecycle` refuses it.
        if kind.resource_type().namespaced && self.get(Kind::Namespace, "", namespace).is_none() {
            return Err(StatusError::not_found(Kind::Namespace, namespace));
        }
        if self.store.get(kind, &key).is_some() {
            return Err(StatusError::already_exists(kind, &key.name));
        }
        let (uid, now) = (self.ids.uuid(), seconds(self.now()));
        let meta = &mut value["metadata"];
        meta["uid"] = uid.into();
        meta["creationTimestamp"] = now.into();
        if let Some(meta) = meta.as_object_mut() {
            // No client can create an object that is already being deleted (`WipeObjectMetaSystemFields`).
            for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
                meta.remove(field);
            }
        }
        if kind.resource_type().counts_generations {
            value["metadata"]["generation"] = 1.into();
        }
        strategy::default(kind, &mut value);
        self.check(kind, &key.name, None, &value)?;
        drop_empty_metadata(&mut value);
        if dry_run {
            return Ok(Arc::new(Object::new(value, 0)));
        }
        Ok(self.commit(kind, &key, Some(value)).new)
    }

    /// Validates the metadata, and generates a name if there is none.
    fn name(&mut self, kind: Kind, namespace: &str, value: &mut Value) -> Result<(), StatusError> {
        let facts = kind.resource_type();
        if !value["metadata"].is_object() {
            value["metadata"] = Map::new().into();
        }
        for (field, right) in [
            ("apiVersion", facts.api_version()),
            ("kind", facts.kind.to_owned()),
        ] {
            let said = value[field].as_str().unwrap_or_default();
            if !said.is_empty() && said != right {
                return Err(StatusError::bad_request(format!(
                    "the {field} in the data ({said}) does not match the expected {field} ({right})"
                )));
            }
            value[field] = right.into();
        }
        let said = text(value, "/metadata/namespace");
        if !said.is_empty() && said != namespace {
            return Err(StatusError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        if !text(value, "/metadata/resourceVersion").is_empty() {
            return Err(StatusError::bad_request(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        if facts.namespaced {
            value["metadata"]["namespace"] = namespace.into();
        }
        if text(value, "/metadata/name").is_empty() {
            let mut base = text(value, "/metadata/generateName").to_owned();
            if base.is_empty() {
                let why = "Required value: name or generateName is required".to_owned();
                let cause = ("metadata.name".to_owned(), "FieldValueRequired", why);
                return Err(StatusError::invalid(kind, "", &[cause]));
            }
            base.truncate(MAX_GENERATED);
            let mut name = format!("{base}{}", self.ids.suffix());
            for _ in 1..GENERATED_TRIES {
                if self.store.get(kind, &Key::new(namespace, &name)).is_none() {
                    break;
                }
                name = format!("{base}{}", self.ids.suffix());
            }
            value["metadata"]["name"] = name.into();
        }
        Ok(())
    }

    /// Writes a part of an object, as a controller does. `edit` changes a copy of it.
    ///
    /// # Errors
    /// Fails as the API server does, with its status.
    pub(crate) fn change(
        &mut self,
        kind: Kind,
        key: &Key,
        part: WriteTarget,
        edit: impl FnOnce(&mut Value),
    ) -> Result<Arc<Object>, StatusError> {
        self.update(kind, key, part, false, |old| {
            let mut new = old.clone();
            edit(&mut new);
            Ok(new)
        })
    }

    /// Writes a part of an object. `make` computes the new value from the old one.
    ///
    /// # Errors
    /// Fails as the API server does, with its status.
    pub fn update(
        &mut self,
        kind: Kind,
        key: &Key,
        part: WriteTarget,
        dry_run: bool,
        make: impl FnOnce(&Value) -> Result<Value, StatusError>,
    ) -> Result<Arc<Object>, StatusError> {
        let Some(old) = self.store.get(kind, key).cloned() else {
            return Err(StatusError::not_found(kind, &key.name));
        };
        let mut new = make(&old.value)?;
        let said = text(&new, "/metadata/resourceVersion");
        // A patch that has no version keeps that of the object, so only a client that names one can conflict.
        if said != old.meta("resourceVersion") {
            return Err(StatusError::modified(kind, &key.name));
        }
        for (field, right) in [
            ("/metadata/name", &*key.name),
            ("/metadata/namespace", &*key.namespace),
        ] {
            if text(&new, field) != right {
                let why = format!(
                    "the name of the object ({}) does not match the name on the URL",
                    text(&new, field)
                );
                return Err(StatusError::bad_request(why));
            }
        }
        if text(&new, "/metadata/uid") != old.uid() {
            let value = &new["metadata"]["uid"];
            return Err(StatusError::immutable(kind, &key.name, "metadata.uid", value));
        }
        let own = &old.value["metadata"];
        for field in [
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generation",
        ] {
            restore(&mut new["metadata"], field, own);
        }
        for field in ["apiVersion", "kind"] {
            restore(&mut new, field, &old.value);
        }
        match part {
            WriteTarget::Whole if kind.resource_type().has_status => restore(&mut new, "status", &old.value),
            WriteTarget::Whole => {}
            // A status write of a custom resource changes nothing else; Kubernetes' own types also take labels and
            // annotations.
            WriteTarget::Status if kind.is_custom() => restore_all_but_status(&mut new, &old.value),
            WriteTarget::Status => {
                restore(&mut new, "spec", &old.value);
                // Old kubelets corrupted the owners of pods, so the API server ignores them here (`podStatusStrategy`).
                restore(&mut new["metadata"], "ownerReferences", own);
            }
        }
        drop_empty_metadata(&mut new);
        self.check(kind, &key.name, Some(&old.value), &new)?;
        // A write without a change stores nothing: no new version, and no event for watches (`GuaranteedUpdate` of
        // etcd3/store.go).
        if new == old.value {
            return Ok(old);
        }
        if kind.resource_type().counts_generations && strategy::is_another(&old.value, &new) {
            new["metadata"]["generation"] = (generation(&old.value) + 1).into();
        }
        if dry_run {
            return Ok(Arc::new(Object::new(new, old.version)));
        }
        // An object that only a finalizer kept is deleted with its last finalizer.
        let over = is_being_deleted(&new)
            && !has_finalizers(&new)
            && new["metadata"]["deletionGracePeriodSeconds"]
                .as_i64()
                .unwrap_or_default()
                == 0;
        let change = self.commit(kind, key, Some(new));
        if over {
            self.commit(kind, key, None);
        }
        Ok(change.new)
    }

    fn check(&self, kind: Kind, name: &str, old: Option<&Value>, new: &Value) -> Result<(), StatusError> {
        strategy::check(kind, name, old, new)?;
        if kind == Kind::Plan
            && let Some(schema) = &self.plan_schema
        {
            super::schema::validate(schema, name, old, new)?;
        }
        Ok(())
    }
}

/// The `generation` of an object.
pub fn generation(value: &Value) -> i64 {
    value["metadata"]["generation"].as_i64().unwrap_or_default()
}

/// Restores a field that the client may not write.
fn restore(new: &mut Value, field: &str, old: &Value) {
    let Some(new) = new.as_object_mut() else { return };
    match old.get(field) {
        Some(value) => {
            if new.get(field) != Some(value) {
                new.insert(field, value.clone());
            }
        }
        None => {
            new.remove(field);
        }
    }
}

fn restore_all_but_status(new: &mut Value, old: &Value) {
    let status = new.get_mut("status").map(Value::take);
    *new = old.clone();
    match (status, new.as_object_mut()) {
        (Some(status), _) => new["status"] = status,
        (None, Some(new)) => {
            new.remove("status");
        }
        (None, None) => {}
    }
}

/// Empty maps and lists of metadata are not stored. Field management is not simulated.
fn drop_empty_metadata(value: &mut Value) {
    let Some(meta) = value["metadata"].as_object_mut() else {
        return;
    };
    for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
        let empty = match meta.get(field) {
            Some(Value::Object(map)) => map.is_empty(),
            Some(Value::Array(list)) => list.is_empty(),
            Some(Value::Null) => true,
            _ => false,
        };
        if empty {
            meta.remove(field);
        }
    }
    meta.remove("managedFields");
}
