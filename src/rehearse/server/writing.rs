//! Create, replace, patch and delete, as they come over the wire.

use bytes::Bytes;

use super::route::Object as Asked;
use super::{Reply, parse};
use crate::rehearse::deletion::Deletion;
use crate::rehearse::fault::Fault;
use crate::rehearse::json::{Value, json};
use crate::rehearse::resources::{Kind, Verb};
use crate::rehearse::schema;
use crate::rehearse::state::State;
use crate::rehearse::store::object::text;
use crate::rehearse::write::{Part, merge};

impl State {
    pub(super) fn answer_create(&mut self, asked: &Asked, body: &Bytes) -> Result<Reply, Fault> {
        let value = parse(body)?;
        let namespace = asked.namespace.as_deref().unwrap_or_default();
        let made = self.create(asked.kind, namespace, value, asked.is_dry_run())?;
        Ok(Reply::Whole(201, made.json(asked.metadata_only).clone()))
    }

    pub(super) fn answer_replace(&mut self, asked: &Asked, body: &Bytes) -> Result<Reply, Fault> {
        let new = parse(body)?;
        let (kind, key) = (asked.kind, asked.key());
        if text(&new, "/metadata/resourceVersion").is_empty() {
            let why = "Invalid value: 0: must be specified for an update".to_owned();
            let cause = ("metadata.resourceVersion".to_owned(), "FieldValueInvalid", why);
            return Err(Fault::invalid(kind, &asked.name, &[cause]));
        }
        let written = self.update(kind, &key, Part::Whole, asked.is_dry_run(), |old| {
            let mut new = new;
            if text(&new, "/metadata/namespace").is_empty() && !key.namespace.is_empty() {
                new["metadata"]["namespace"] = (*key.namespace).into();
            }
            let (meant, found) = (text(&new, "/metadata/uid"), text(old, "/metadata/uid"));
            if meant.is_empty() {
                new["metadata"]["uid"] = found.into();
            } else if meant != found {
                return Err(Fault::other_uid(kind, &asked.name, meant, found));
            }
            Ok(new)
        })?;
        Ok(Reply::Whole(200, written.json(asked.metadata_only).clone()))
    }

    pub(super) fn answer_patch(&mut self, asked: &Asked, body: &Bytes) -> Result<Reply, Fault> {
        let patch = parse(body)?;
        let part = if asked.verb == Verb::PatchStatus {
            Part::Status
        } else {
            Part::Whole
        };
        let schema = match asked.kind {
            Kind::Plan => self.plan_schema(),
            _ => None,
        };
        let written = self.update(asked.kind, &asked.key(), part, asked.is_dry_run(), |old| {
            let mut new = old.clone();
            merge(&mut new, &patch);
            if let Some(schema) = &schema {
                let unknown = schema::prune(schema, &mut new);
                if asked.is_strict() && !unknown.is_empty() {
                    return Err(strict(&patch, &unknown));
                }
            }
            Ok(new)
        })?;
        Ok(Reply::Whole(200, written.json(asked.metadata_only).clone()))
    }

    pub(super) fn answer_delete(&mut self, asked: &Asked, body: &Bytes) -> Result<Reply, Fault> {
        let options = if body.is_empty() { json!({}) } else { parse(body)? };
        let deletion = deletion(&options, asked.is_dry_run());
        let (object, gone) = self.delete(asked.kind, &asked.key(), &deletion)?;
        if asked.kind == Kind::Pod || !gone {
            return Ok(Reply::Whole(200, object.json(asked.metadata_only).clone()));
        }
        let facts = asked.kind.facts();
        let mut details = json!({ "name": asked.name, "kind": facts.plural, "uid": object.uid() });
        if !facts.group.is_empty() {
            details["group"] = facts.group.into();
        }
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
        });
        Ok(Reply::json(200, &status))
    }
}

/// `DeleteOptions`.
pub(super) fn deletion(options: &Value, dry_run: bool) -> Deletion {
    let word = |pointer| {
        let text = options.pointer(pointer).and_then(Value::as_str);
        text.map(str::to_owned)
    };
    Deletion {
        uid: word("/preconditions/uid"),
        version: word("/preconditions/resourceVersion"),
        grace: options["gracePeriodSeconds"].as_i64(),
        propagation: word("/propagationPolicy"),
        dry_run: dry_run || options["dryRun"].as_array().is_some_and(|list| !list.is_empty()),
    }
}

fn strict(patch: &Value, unknown: &[String]) -> Fault {
    let fields: Vec<String> = unknown
        .iter()
        .map(|field| format!("unknown field {field:?}"))
        .collect();
    Fault::strict(patch, &fields.join(", "))
}
