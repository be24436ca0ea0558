//! Create, replace, patch and delete requests.

use bytes::Bytes;

use super::route::{Object as ApiRequest, PatchType};
use super::{Reply, parse};
use crate::delete::DeleteOptions;
use crate::json::{Value, json};
use crate::resources::{Kind, Verb};
use crate::schema;
use crate::state::State;
use crate::status_error::StatusError;
use crate::store::object::text;
use crate::write::{WriteTarget, merge};

/// Bytes of an object that etcd stores (its `--max-request-bytes`).
const MAX_OBJECT_BYTES: usize = 3 * 512 * 1_024;

impl State {
    pub(super) fn serve_create(&mut self, request: &ApiRequest, body: &Bytes) -> Result<Reply, StatusError> {
        let value = parse(body)?;
        let namespace = request.namespace.as_deref().unwrap_or_default();
        let made = self.create(request.kind, namespace, value, request.is_dry_run())?;
        Ok(Reply::Whole(201, made.json(request.metadata_only).clone()))
    }

    pub(super) fn serve_replace(&mut self, request: &ApiRequest, body: &Bytes) -> Result<Reply, StatusError> {
        let new = parse(body)?;
        let (kind, key) = (request.kind, request.key());
        // refit replaces only Leases and CRDs, which allow no unconditional update (`AllowUnconditionalUpdate`).
        if text(&new, "/metadata/resourceVersion").is_empty() {
            let why = "Invalid value: 0: must be specified for an update".to_owned();
            let cause = ("metadata.resourceVersion".to_owned(), "FieldValueInvalid", why);
            return Err(StatusError::invalid(kind, &request.name, &[cause]));
        }
        let written = self.update(kind, &key, WriteTarget::Whole, request.is_dry_run(), |old| {
            let mut new = new;
            if text(&new, "/metadata/namespace").is_empty() && !key.namespace.is_empty() {
                new["metadata"]["namespace"] = (*key.namespace).into();
            }
            let (meant, found) = (text(&new, "/metadata/uid"), text(old, "/metadata/uid"));
            if meant.is_empty() {
                new["metadata"]["uid"] = found.into();
            } else if meant != found {
                return Err(StatusError::other_uid(kind, &request.name, meant, found));
            }
            Ok(new)
        })?;
        Ok(Reply::Whole(200, written.json(request.metadata_only).clone()))
    }

    pub(super) fn serve_patch(&mut self, request: &ApiRequest, body: &Bytes) -> Result<Reply, StatusError> {
        let patch = parse(body)?;
        let part = if request.verb == Verb::PatchStatus {
            WriteTarget::Status
        } else {
            WriteTarget::Whole
        };
        let schema = match request.kind {
            Kind::Plan => self.plan_schema.clone(),
            _ => None,
        };
        // Server-side apply creates a missing object. The other patches fail with 404.
        if request.patch_type == PatchType::Apply && self.store.get(request.kind, &request.key()).is_none() {
            let mut value = patch;
            if let Some(schema) = &schema {
                schema::prune(schema, &mut value);
            }
            let made = self.create(
                request.kind,
                &request.key().namespace,
                value,
                request.is_dry_run(),
            )?;
            return Ok(Reply::Whole(201, made.json(request.metadata_only).clone()));
        }
        // Only a Plan grows with what refit writes; to measure all objects would take as long as to write them.
        let plan = self.store.get(request.kind, &request.key());
        let plan = plan.filter(|_| request.kind == Kind::Plan);
        let most = plan.map_or(0, |plan| plan.json(false).len() + body.len());
        let written = self.update(request.kind, &request.key(), part, request.is_dry_run(), |old| {
            let mut new = old.clone();
            match request.patch_type {
                // In a rehearsal no two clients apply the same object, and none drops a field from one.
                PatchType::Merge | PatchType::Apply => merge(&mut new, &patch),
                PatchType::Strategic => merge_conditions(request, &mut new, &patch)?,
                PatchType::Json => operate(request, &mut new, &patch)?,
            }
            if let Some(schema) = &schema {
                let unknown = schema::prune(schema, &mut new);
                if request.is_strict() && !unknown.is_empty() {
                    return Err(strict(&patch, &unknown));
                }
            }
            if most > MAX_OBJECT_BYTES && new.to_bytes().len() > MAX_OBJECT_BYTES {
                return Err(StatusError::internal("etcdserver: request is too large"));
            }
            Ok(new)
        })?;
        Ok(Reply::Whole(200, written.json(request.metadata_only).clone()))
    }

    pub(super) fn serve_delete(&mut self, request: &ApiRequest, body: &Bytes) -> Result<Reply, StatusError> {
        let options = if body.is_empty() { json!({}) } else { parse(body)? };
        let deletion = deletion(&options, request.is_dry_run());
        let (object, gone) = self.delete(request.kind, &request.key(), &deletion)?;
        // The API server returns a Status for an object that is gone, except for pods (`ReturnDeletedObject`).
        if request.kind == Kind::Pod || !gone {
            return Ok(Reply::Whole(200, object.json(request.metadata_only).clone()));
        }
        let facts = request.kind.resource_type();
        let mut details = json!({ "name": request.name, "kind": facts.plural, "uid": object.uid() });
        if !facts.group.is_empty() {
            details["group"] = facts.group.into();
        }
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
        });
        Ok(Reply::json(200, &status))
    }
}

/// A JSON patch, of the operations that refit uses.
fn operate(request: &ApiRequest, target: &mut Value, operations: &Value) -> Result<(), StatusError> {
    for operation in operations.as_array().into_iter().flatten() {
        let path = operation["path"].as_str().unwrap_or_default();
        match operation["op"].as_str() {
            Some("test") if target.pointer(path) == Some(&operation["value"]) => {}
            Some("test") => {
                let why = format!("testing path {path} has failed");
                let cause = (path.to_owned(), "FieldValueInvalid", why);
                return Err(StatusError::invalid(request.kind, &request.name, &[cause]));
            }
            Some("add") => {
                let (parents, member) = path.rsplit_once('/').unwrap_or_default();
                let parent = parents
                    .split('/')
                    .skip(1)
                    .try_fold(&mut *target, |value, name| value.get_mut(name));
                let parent = parent.and_then(Value::as_object_mut);
                let parent = parent.ok_or_else(|| StatusError::unsupported(&operation.to_string()))?;
                parent.insert(member, operation["value"].clone());
            }
            _ => return Err(StatusError::unsupported(&operation.to_string())),
        }
    }
    Ok(())
}

/// A strategic merge patch of the conditions of an object, the only list that refit patches so: merged by their type, and removed
/// with `$patch: delete`.
fn merge_conditions(request: &ApiRequest, target: &mut Value, patch: &Value) -> Result<(), StatusError> {
    let Some(changes) = patch["status"]["conditions"].as_array() else {
        return Err(StatusError::unsupported(&patch.to_string()));
    };
    let known = target["status"]["conditions"].as_array();
    let mut conditions = known.cloned().unwrap_or_default();
    for change in changes {
        let place = conditions.iter().position(|one| one["type"] == change["type"]);
        match (change["$patch"].as_str(), place) {
            (Some("delete"), place) => drop(place.map(|place| conditions.remove(place))),
            (Some(_), _) => return Err(StatusError::unsupported(&patch.to_string())),
            (None, Some(place)) => merge(&mut conditions[place], change),
            (None, None) => conditions.push(change.clone()),
        }
    }
    let mut whole = patch.clone();
    whole["status"]["conditions"] = conditions.into();
    debug_assert_eq!(request.kind, Kind::Node);
    merge(target, &whole);
    Ok(())
}

pub(super) fn deletion(options: &Value, dry_run: bool) -> DeleteOptions {
    let word = |pointer| {
        let text = options.pointer(pointer).and_then(Value::as_str);
        text.map(str::to_owned)
    };
    DeleteOptions {
        uid: word("/preconditions/uid"),
        version: word("/preconditions/resourceVersion"),
        grace: options["gracePeriodSeconds"].as_i64(),
        propagation: word("/propagationPolicy"),
        dry_run: dry_run || options["dryRun"].as_array().is_some_and(|list| !list.is_empty()),
    }
}

fn strict(patch: &Value, unknown: &[String]) -> StatusError {
    let fields: Vec<String> = unknown
        .iter()
        .map(|field| format!("unknown field {field:?}"))
        .collect();
    StatusError::strict(patch, &fields.join(", "))
}
