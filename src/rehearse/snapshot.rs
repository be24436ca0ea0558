//! A cluster as `kubectl get nodes,pods,pdb,replicasets,jobs,plans -A -o yaml` prints it, made fit to go on in this process:
//! what is not played is left out, what somebody looks after who is not here is looked after by a `ReplicaSet`, and pods that
//! were not ready stay so.
//!
//! UIDs stay, and with them the order in which the controller takes the nodes. Nothing here reads a file.

mod sorting;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::Timestamp;
use sorting::Sorting;

use super::cluster::Cluster;
use super::fault::Fault;
use super::resources::Kind;
use super::state::State;
use super::store::Key;
use crate::rehearse::json::{Value, json};

/// Why a text is no snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// It cannot be read.
    #[error("{name}:{line}: this is neither YAML nor JSON: {why}")]
    Syntax {
        /// The file.
        name: String,
        /// The line.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// It has no Node.
    #[error(
        "{name}: there is no Node in it, only {found}; a snapshot is what `kubectl get \
         nodes,pods,pdb,replicasets,jobs,plans -A -o yaml` prints"
    )]
    NoNodes {
        /// The file.
        name: String,
        /// What it has instead.
        found: String,
    },
}

/// A cluster at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Objects that are played, owners before what they own.
    pub objects: Vec<Value>,
    /// Plans that are on the cluster.
    pub plans: Vec<Value>,
    /// Names of the nodes.
    pub nodes: Vec<String>,
    /// Nodes of which nothing is heard.
    pub lost: Vec<String>,
    /// Name of the controller whose Jobs are in it.
    pub controller: Option<String>,
    /// The newest time in it.
    pub taken: Option<Timestamp>,
    /// What was changed or left out.
    pub notes: Vec<String>,
}

/// The objects in a text: documents and Lists of YAML or JSON.
///
/// # Errors
/// It is neither.
pub fn parse(name: &str, text: &str) -> Result<Vec<Value>, SnapshotError> {
    let syntax = |line: u64, why: String| SnapshotError::Syntax {
        name: name.to_owned(),
        line,
        why,
    };
    // A cluster is larger than what a reader of settings guards itself against.
    let yaml = || {
        let mut options = serde_saphyr::Options::default();
        options.budget = None;
        serde_saphyr::from_multiple_with_options::<Value>(text, options)
    };
    let documents: Vec<Value> = if text.trim_start().starts_with('{') {
        let stream = serde_json::Deserializer::from_str(text).into_iter();
        let read: Result<_, serde_json::Error> = stream.collect();
        // YAML may begin like that too, and is read much slower.
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

fn flatten(mut value: Value, objects: &mut Vec<Value>) {
    let is_list = value["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    let items = value
        .get_mut("items")
        .and_then(Value::as_array_mut)
        .filter(|_| is_list);
    if let Some(items) = items {
        for item in std::mem::take(items) {
            flatten(item, objects);
        }
    } else if value.is_object() {
        objects.push(value);
    }
}

/// Makes a cluster of objects.
///
/// # Errors
/// There is no node among them.
pub fn take(name: &str, objects: Vec<Value>) -> Result<Snapshot, SnapshotError> {
    let mut sorting = Sorting::default();
    for object in objects {
        sorting.sort(object);
    }
    if sorting.nodes.is_empty() {
        let found = match sorting.found.len() {
            0 => "nothing".to_owned(),
            _ => told(&sorting.found),
        };
        return Err(SnapshotError::NoNodes {
            name: name.to_owned(),
            found,
        });
    }
    Ok(sorting.snapshot())
}

fn told(counts: &BTreeMap<String, usize>) -> String {
    let counts = counts.iter().map(|(kind, count)| format!("{count} {kind}"));
    counts.collect::<Vec<_>>().join(", ")
}

fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    meta_of(&object["metadata"], field)
}

fn meta_of<'a>(metadata: &'a Value, field: &str) -> &'a str {
    metadata[field].as_str().unwrap_or_default()
}

impl State {
    /// Puts an object there as it was: its UID, its times and its status stay.
    pub(super) fn restore(&mut self, mut object: Value) -> Result<(), Fault> {
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text("apiVersion"), text("kind"));
        let kind = Kind::of_object(&version, &kind)
            .ok_or_else(|| Fault::not_played(&format!("objects of kind {kind:?} of {version:?}")))?;
        if meta(&object, "uid").is_empty() {
            object["metadata"]["uid"] = self.ids.uuid().into();
        }
        if kind.facts().counts_generations && object["metadata"]["generation"].is_null() {
            object["metadata"]["generation"] = 1.into();
        }
        if object["status"].is_null() && kind.facts().has_status {
            object["status"] = json!({});
        }
        let namespace = if kind.facts().namespaced {
            meta(&object, "namespace")
        } else {
            ""
        };
        let key = Key::new(namespace, meta(&object, "name"));
        self.commit(kind, &key, Some(object));
        Ok(())
    }
}

impl Cluster {
    /// Goes on from a snapshot. Plans are not put there with it.
    ///
    /// # Errors
    /// One of the objects is not played.
    pub fn restore(&self, snapshot: &Snapshot) -> Result<(), Fault> {
        for object in &snapshot.objects {
            self.restore_one(object.clone())?;
        }
        for node in &snapshot.lost {
            self.with(|state| state.power(node, false));
        }
        Ok(())
    }

    /// Puts an object there as it was.
    ///
    /// # Errors
    /// It is not played.
    pub fn restore_one(&self, object: Value) -> Result<(), Fault> {
        let namespace = meta(&object, "namespace").to_owned();
        if !namespace.is_empty() && self.get(Kind::Namespace, "", &namespace).is_none() {
            self.put(json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace },
                "status": { "phase": "Active" },
            }))?;
        }
        if object["kind"] == "Namespace" && self.get(Kind::Namespace, "", meta(&object, "name")).is_some() {
            return Ok(());
        }
        self.with(|state| state.restore(object))
    }
}
