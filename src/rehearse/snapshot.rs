//! A cluster from `kubectl get nodes,pods,pdb,replicasets,jobs,plans -A -o yaml`, adapted to the simulation: objects
//! that are not simulated are omitted, pods of controllers that are not simulated get a `ReplicaSet`, and unready pods
//! stay unready.
//!
//! UIDs are kept, and with them the order in which the controller upgrades the nodes. Nothing here reads a file.

mod builder;
mod mistake;
mod operators;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use builder::SnapshotBuilder;
use jiff::Timestamp;
pub use mistake::mistake;

use super::cluster::{Cluster, place};
use super::resources::Kind;
use super::state::State;
use super::status_error::StatusError;
use super::store::Key;
use crate::json::{Value, json, within_memory};

/// Maximum size of the text of a snapshot, in bytes.
pub const MAX_TEXT: u64 = 1 << 30;
/// Memory that the objects of a snapshot may take, in bytes.
const MAX_MEMORY: usize = 2 << 30;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    #[error(
        "{0}: the snapshot is larger than its memory budget: 1 GiB of text and 2 GiB of objects; leave out objects that do not matter, such as pods of other nodes"
    )]
    TooLarge(String),
    #[error("{name}:{line}: this is neither YAML nor JSON: {why}")]
    Syntax { name: String, line: u64, why: String },
    #[error("{name}: {object}: {why}")]
    Mistake {
        name: String,
        /// Its kind and name.
        object: String,
        why: String,
    },
    #[error(
        "{name}: there is no Node in it, only {found}; a snapshot is what `kubectl get \
         nodes,pods,pdb,replicasets,jobs,plans -A -o yaml` prints"
    )]
    NoNodes {
        name: String,
        /// What it has instead.
        found: String,
    },
}

#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Simulated objects, owners before their dependents.
    pub objects: Vec<Value>,
    pub plans: Vec<Value>,
    /// `NodeOp` and `NodeOpUpgrade` objects, which the simulation has no controller for.
    pub node_ops: Vec<Value>,
    pub nodes: Vec<String>,
    /// Nodes whose kubelet does not report.
    pub lost: Vec<String>,
    /// Name of the controller whose Jobs are in it.
    pub controller: Option<String>,
    /// The newest time in it.
    pub taken: Option<Timestamp>,
    /// What was changed or omitted.
    pub notes: Vec<String>,
}

/// The objects in a text: documents and Lists of YAML or JSON.
///
/// # Errors
/// Fails if the text is neither.
pub fn parse(name: &str, text: &str) -> Result<Vec<Value>, SnapshotError> {
    let (objects, is_complete) = within_memory(MAX_MEMORY, || parse_objects(name, text));
    if is_complete {
        objects
    } else {
        Err(SnapshotError::TooLarge(name.to_owned()))
    }
}

fn parse_objects(name: &str, text: &str) -> Result<Vec<Value>, SnapshotError> {
    let syntax = |line: u64, why: String| SnapshotError::Syntax {
        name: name.to_owned(),
        line,
        why,
    };
    // A cluster exceeds the default limits of the YAML parser.
    let yaml = || {
        let mut options = serde_saphyr::Options::default();
        options.budget = Some(yaml_budget());
        serde_saphyr::from_multiple_with_options::<Value>(text, options)
    };
    let documents: Vec<Value> = if text.trim_start().starts_with('{') {
        let stream = serde_json::Deserializer::from_str(text).into_iter();
        let read: Result<_, serde_json::Error> = stream.collect();
        // YAML may begin like JSON, and is parsed much slower.
        read.or_else(|error| {
            let line = u64::try_from(error.line()).unwrap_or_default();
            yaml().map_err(|_| syntax(line, error.to_string()))
        })?
    } else {
        yaml().map_err(|error| {
            let line = error.location().map_or(0, |location| location.line());
            let why = error.to_string();
            syntax(line, why.lines().next().unwrap_or_default().to_owned())
        })?
    };
    let mut objects = Vec::new();
    for document in documents {
        flatten(document, &mut objects);
    }
    Ok(objects)
}

/// The limits of the YAML parser, without those of its size. Anchors keep theirs: kubectl prints none.
fn yaml_budget() -> serde_saphyr::Budget {
    let mut budget = serde_saphyr::Budget::default();
    budget.max_events = usize::MAX;
    budget.max_documents = usize::MAX;
    budget.max_nodes = usize::MAX;
    budget.max_total_scalar_bytes = usize::MAX;
    budget
}

fn flatten(mut value: Value, objects: &mut Vec<Value>) {
    let is_list = value["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    let items = value
        .get_mut("items")
        .and_then(Value::as_array_mut)
        .filter(|_| is_list);
    if let Some(items) = items {
        let items = std::mem::take(items);
        // `kubectl get --raw` prints a `NodeList`, whose items have neither `apiVersion` nor `kind`.
        let of = value["kind"].as_str().and_then(|kind| kind.strip_suffix("List"));
        let of = of.filter(|of| !of.is_empty());
        for mut item in items {
            for (field, text) in [("apiVersion", value["apiVersion"].as_str()), ("kind", of)] {
                if let Some(text) = text.filter(|_| of.is_some() && item.is_object() && item[field].is_null())
                {
                    item[field] = text.into();
                }
            }
            flatten(item, objects);
        }
    } else if value.is_object() {
        objects.push(value);
    }
}

/// Builds a snapshot from objects.
///
/// # Errors
/// Fails if there is no Node among them, or if one of them cannot be read.
pub fn take(name: &str, objects: Vec<Value>) -> Result<Snapshot, SnapshotError> {
    let mut builder = SnapshotBuilder::default();
    for mut object in objects {
        drop_nulls(&mut object);
        let [version, kind] = ["apiVersion", "kind"].map(|field| meta_of(&object, field));
        if let Some(why) = mistake(version, kind, &object) {
            let (namespace, title) = (object.meta("namespace"), object.meta("name"));
            let separator = if namespace.is_empty() { "" } else { "/" };
            return Err(SnapshotError::Mistake {
                name: name.to_owned(),
                object: format!("{kind} {namespace}{separator}{title}")
                    .trim_end()
                    .to_owned(),
                why,
            });
        }
        builder.add(object);
    }
    if builder.nodes.is_empty() {
        let found = match builder.found.len() {
            0 => "nothing".to_owned(),
            _ => describe_counts(&builder.found),
        };
        return Err(SnapshotError::NoNodes {
            name: name.to_owned(),
            found,
        });
    }
    Ok(builder.build())
}

/// Removes fields without a value, as the API server does: in files written by hand they are left empty.
fn drop_nulls(object: &mut Value) {
    for path in [&["spec"][..], &["status", "nodeInfo"], &["status"], &[]] {
        let value = path
            .iter()
            .try_fold(&mut *object, |value, field| value.get_mut(field));
        let Some(fields) = value.and_then(Value::as_object_mut) else {
            continue;
        };
        let nulls = fields.iter().filter(|(_, value)| value.is_null());
        let nulls: Vec<String> = nulls.map(|(key, _)| key.to_string()).collect();
        if !nulls.is_empty() {
            fields.retain(|key| !nulls.iter().any(|null| null == key));
        }
    }
}

fn describe_counts(counts: &BTreeMap<String, usize>) -> String {
    let counts = counts.iter().map(|(kind, count)| format!("{count} {kind}"));
    counts.collect::<Vec<_>>().join(", ")
}

/// The reference to the controlling owner of a pod.
fn controller(pod: &Value) -> Option<&Value> {
    let owners = pod["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)
}

fn meta_of<'a>(metadata: &'a Value, field: &str) -> &'a str {
    metadata[field].as_str().unwrap_or_default()
}

impl State {
    /// Stores an object unchanged, with its UID, times and status.
    pub(super) fn restore(&mut self, mut object: Value) -> Result<(), StatusError> {
        let (kind, namespace) = place(&object)?;
        let key = Key::new(&namespace, object.meta("name"));
        if kind == Kind::Namespace && self.store.get(kind, &key).is_some() {
            return Ok(());
        }
        self.ensure_namespace(&namespace);
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = namespace.into();
        }
        if object.meta("uid").is_empty() {
            object["metadata"]["uid"] = self.ids.uuid().into();
        }
        if kind.resource_type().counts_generations && object["metadata"]["generation"].is_null() {
            object["metadata"]["generation"] = 1.into();
        }
        if object["status"].is_null() && kind.resource_type().has_status {
            object["status"] = json!({});
        }
        self.commit(kind, &key, Some(object));
        Ok(())
    }
}

impl Cluster {
    /// Restores a snapshot without its Plans.
    ///
    /// # Errors
    /// Fails if an object is not simulated.
    pub fn restore(&self, snapshot: &Snapshot) -> Result<(), StatusError> {
        for object in &snapshot.objects {
            self.restore_one(object.clone())?;
        }
        for node in &snapshot.lost {
            self.with(|state| state.set_power(node, false));
        }
        Ok(())
    }

    /// Restores an object unchanged.
    ///
    /// # Errors
    /// Fails if it is not simulated.
    pub fn restore_one(&self, object: Value) -> Result<(), StatusError> {
        self.with(|state| state.restore(object))
    }
}
