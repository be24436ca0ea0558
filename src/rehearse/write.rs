//! What an API server does with a write before it stores it: metadata that is its own, preconditions, what may change and what
//! a change counts as.

use std::sync::Arc;

use super::fault::Fault;
use super::resources::Kind;
use super::rules;
use super::state::{State, seconds};
use super::store::object::{has_finalizers, is_leaving, text};
use super::store::{Key, Object};
use crate::rehearse::json::{Map, Value};

/// How many names are tried that `generateName` may become (`maxNameGenerationCreateAttempts`, KEP-4420).
const GENERATED_TRIES: usize = 8;
/// Longest name that `generateName` leaves room for (`maxGeneratedNameLength`).
const MAX_GENERATED: usize = 58;

/// What of an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// All but its status.
    Whole,
    /// Its status.
    Status,
}

/// A merge patch (RFC 7386).
pub(super) fn merge(target: &mut Value, patch: &Value) {
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
    for (key, value) in fields {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.or_insert(key, Value::Null), value);
        }
    }
}

impl State {
    /// Makes an object.
    pub(super) fn create(
        &mut self,
        kind: Kind,
        namespace: &str,
        mut value: Value,
        dry_run: bool,
    ) -> Result<Arc<Object>, Fault> {
        self.name(kind, namespace, &mut value)?;
        let key = Key::new(namespace, text(&value, "/metadata/name"));
        if kind.facts().namespaced && self.get(Kind::Namespace, "", namespace).is_none() {
            return Err(Fault::not_found(Kind::Namespace, namespace));
        }
        if self.store.get(kind, &key).is_some() {
            return Err(Fault::already_exists(kind, &key.name));
        }
        let (uid, now) = (self.ids.uuid(), seconds(self.now()));
        let meta = &mut value["metadata"];
        meta["uid"] = uid.into();
        meta["creationTimestamp"] = now.into();
        if let Some(meta) = meta.as_object_mut() {
            for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
                meta.remove(field);
            }
        }
        if kind.facts().counts_generations {
            value["metadata"]["generation"] = 1.into();
        }
        rules::default(kind, &mut value);
        self.check(kind, &key.name, None, &value)?;
        tidy(&mut value);
        if dry_run {
            return Ok(Arc::new(Object::new(value, 0)));
        }
        Ok(self.commit(kind, &key, Some(value)).new)
    }

    /// Checks what an object says of itself, and gives it a name where it has none.
    fn name(&mut self, kind: Kind, namespace: &str, value: &mut Value) -> Result<(), Fault> {
        let facts = kind.facts();
        if !value["metadata"].is_object() {
            value["metadata"] = Map::new().into();
        }
        for (field, right) in [
            ("apiVersion", facts.api_version()),
            ("kind", facts.kind.to_owned()),
        ] {
            let said = value[field].as_str().unwrap_or_default();
            if !said.is_empty() && said != right {
                return Err(Fault::bad_request(format!(
                    "the {field} in the data ({said}) does not match the expected {field} ({right})"
                )));
            }
            value[field] = right.into();
        }
        let said = text(value, "/metadata/namespace");
        if !said.is_empty() && said != namespace {
            return Err(Fault::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        if !text(value, "/metadata/resourceVersion").is_empty() {
            return Err(Fault::bad_request(
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
                return Err(Fault::invalid(kind, "", &[cause]));
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

    /// Writes a part of an object. `make` gives what it is to be from what it is.
    pub(super) fn update(
        &mut self,
        kind: Kind,
        key: &Key,
        part: Part,
        dry_run: bool,
        make: impl FnOnce(&Value) -> Result<Value, Fault>,
    ) -> Result<Arc<Object>, Fault> {
        let Some(old) = self.store.get(kind, key).cloned() else {
            return Err(Fault::not_found(kind, &key.name));
        };
        let mut new = make(&old.value)?;
        let said = text(&new, "/metadata/resourceVersion");
        if said != old.meta("resourceVersion") {
            return Err(Fault::modified(kind, &key.name));
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
                return Err(Fault::bad_request(why));
            }
        }
        if text(&new, "/metadata/uid") != old.uid() {
            let value = &new["metadata"]["uid"];
            return Err(Fault::immutable(kind, &key.name, "metadata.uid", value));
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
            Part::Whole if kind.facts().has_status => restore(&mut new, "status", &old.value),
            Part::Whole => {}
            // Of a custom resource nothing else is taken; Kubernetes' own types take labels and annotations too.
            Part::Status if kind == Kind::Plan => restore_all_but_status(&mut new, &old.value),
            Part::Status => {
                restore(&mut new, "spec", &old.value);
                restore(&mut new["metadata"], "ownerReferences", own);
            }
        }
        tidy(&mut new);
        self.check(kind, &key.name, Some(&old.value), &new)?;
        if new == old.value {
            return Ok(old);
        }
        if kind.facts().counts_generations && rules::is_another(&old.value, &new) {
            new["metadata"]["generation"] = (generation(&old.value) + 1).into();
        }
        if dry_run {
            return Ok(Arc::new(Object::new(new, old.version)));
        }
        // What was only kept by a finalizer goes with it.
        let over = is_leaving(&new)
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

    /// Whether the object may be like that.
    fn check(&self, kind: Kind, name: &str, old: Option<&Value>, new: &Value) -> Result<(), Fault> {
        rules::check(kind, name, old, new)?;
        if kind == Kind::Plan
            && let Some(schema) = self.plan_schema()
        {
            super::schema::validate(&schema, name, old, new)?;
        }
        Ok(())
    }
}

/// How often what an object asks for has changed.
pub(super) fn generation(value: &Value) -> i64 {
    value["metadata"]["generation"].as_i64().unwrap_or_default()
}

/// A field that is not the writer's is as it was.
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

/// Maps and lists of metadata that hold nothing are not stored, and who has written which field is not kept here.
fn tidy(value: &mut Value) {
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
