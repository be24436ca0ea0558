//! A cluster as `kubectl get nodes,pods,pdb,replicasets,jobs,plans -A -o yaml` prints it, made fit to go on in this process:
//! what is not played is left out, what somebody looks after who is not here is looked after by a `ReplicaSet`, and pods that
//! were not ready stay so.
//!
//! UIDs stay, and with them the order in which the controller takes the nodes. Nothing here reads a file.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::cluster::Cluster;
use super::fault::Fault;
use super::podlife::STEERING_PREFIX;
use super::resources::Kind;
use super::state::State;
use super::store::Key;
use crate::api::names::LABEL_CONTROLLER;

/// A node selector that no node has: pods that had no node get none.
const NOWHERE: &str = "refit.rs/no-node";
/// What makes a pod that was not ready stay so: its containers end as soon as they start, and are started again next year.
const NEVER_READY: [(&str, &str); 3] = [("run-delay", "0"), ("exit-code", "1"), ("backoff", "8760h")];

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

#[derive(Default)]
struct Sorting {
    nodes: Vec<Value>,
    pods: Vec<Value>,
    owners: Vec<Value>,
    others: Vec<Value>,
    plans: Vec<Value>,
    found: BTreeMap<String, usize>,
    left_out: BTreeMap<String, usize>,
    taken: Option<Timestamp>,
}

impl Sorting {
    fn sort(&mut self, mut object: Value) {
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text("apiVersion"), text("kind"));
        *self.found.entry(kind.clone()).or_default() += 1;
        self.taken = self.taken.max(newest(&object));
        if let Some(meta) = object["metadata"].as_object_mut() {
            meta.remove("managedFields");
            meta.remove("resourceVersion");
            if let Some(Value::Object(annotations)) = meta.get_mut("annotations") {
                annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
            }
        }
        match (Kind::of_object(&version, &kind), kind.as_str()) {
            (Some(Kind::Node), _) => self.nodes.push(object),
            (Some(Kind::Pod), _) => self.pods.push(object),
            (Some(Kind::Plan), _) => self.plans.push(object),
            (Some(Kind::Job | Kind::ReplicaSet | Kind::StatefulSet | Kind::DaemonSet), _) => {
                self.owners.push(object);
            }
            (Some(Kind::Budget | Kind::Secret | Kind::Namespace), _) => self.others.push(object),
            _ => *self.left_out.entry(kind).or_default() += 1,
        }
    }

    fn snapshot(mut self) -> Snapshot {
        let mut changed = Vec::new();
        if !self.left_out.is_empty() {
            changed.push(format!("left out, as it is not played: {}", told(&self.left_out)));
        }
        let nodes: Vec<String> = self
            .nodes
            .iter()
            .map(|node| meta(node, "name").to_owned())
            .collect();
        let lost: Vec<String> = self
            .nodes
            .iter()
            .filter(|node| !is_ready(node))
            .map(|node| meta(node, "name").to_owned())
            .collect();
        for node in &mut self.nodes {
            // Images fill half a Node, and nobody asks for them.
            if let Some(status) = node["status"].as_object_mut() {
                status.remove("images");
            }
        }
        let pods = self.pods(&lost, &mut changed);
        let mut objects = Vec::new();
        objects.append(&mut self.others);
        objects.append(&mut self.nodes);
        objects.append(&mut self.owners);
        objects.extend(pods);
        disown_strangers(&mut objects, &self.plans);
        Snapshot {
            objects,
            plans: self.plans,
            nodes,
            lost,
            taken: self.taken,
            notes: changed,
        }
    }

    /// The pods that go on, and owners for those that have none here.
    fn pods(&mut self, lost: &[String], notes: &mut Vec<String>) -> Vec<Value> {
        // Sets that want no pods are the past of a Deployment.
        self.owners
            .retain(|owner| owner["kind"] != "ReplicaSet" || owner["spec"]["replicas"].as_u64() != Some(0));
        let known: BTreeSet<String> = self
            .owners
            .iter()
            .map(|one| meta(one, "uid").to_owned())
            .collect();
        let mut missing: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        let mut pods: Vec<Value> = Vec::new();
        let (mut unready, mut nowhere, mut again) = (0, 0, 0);
        for mut pod in std::mem::take(&mut self.pods) {
            let ours = pod["metadata"]["labels"][LABEL_CONTROLLER].is_string();
            let is_over = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
            let is_leaving = pod["metadata"]["deletionTimestamp"].is_string();
            if !ours && (is_over || is_leaving) {
                continue;
            }
            let node = pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
            let kept = is_over || lost.contains(&node);
            if !kept {
                let was_ready = is_ready(&pod);
                if let Some(pod) = pod.as_object_mut() {
                    pod.insert("status".to_owned(), json!({ "phase": "Pending" }));
                }
                if ours {
                    again += 1;
                } else if node.is_empty() {
                    nowhere += 1;
                    pod["spec"]["nodeSelector"] = json!({ NOWHERE: "true" });
                } else if !was_ready {
                    unready += 1;
                    steer(&mut pod["metadata"], &NEVER_READY);
                } else if pod["spec"]["restartPolicy"] != "Always" && !pod["spec"]["restartPolicy"].is_null()
                {
                    // Of the work of others nobody knows how long it takes.
                    steer(&mut pod["metadata"], &[("run-delay", "never")]);
                }
            }
            let owner = controller(&pod).map(|owner| meta_of(owner, "uid").to_owned());
            if let Some(uid) = owner.filter(|uid| !known.contains(uid)) {
                missing.entry(uid).or_default().push(pods.len());
            }
            pods.push(pod);
        }
        self.make_owners(&mut pods, &missing);
        self.keep_unready(&pods);
        for (count, what) in [
            (unready, "not ready, which does not change"),
            (nowhere, "without a node, which does not change"),
            (
                again,
                "at work for a Plan: their Jobs are under way, and their containers begin anew",
            ),
        ] {
            if count > 0 {
                let pods = if count == 1 { "pod is" } else { "pods are" };
                notes.push(format!("{count} {pods} {what}"));
            }
        }
        pods
    }

    /// Whoever looks after a pod and is not in the snapshot, or not played, is played by a `ReplicaSet` of as many pods.
    fn make_owners(&mut self, pods: &mut [Value], missing: &BTreeMap<String, Vec<usize>>) {
        for (uid, of) in missing {
            let Some(first) = of.first().and_then(|index| pods.get(*index)) else {
                continue;
            };
            let Some(owner) = controller(first).cloned() else {
                continue;
            };
            match meta_of(&owner, "kind") {
                // A pod of the kubelet's own, whose owner is its Node.
                "Node" => {}
                "DaemonSet" => self.owners.push(json!({
                    "apiVersion": "apps/v1", "kind": "DaemonSet",
                    "metadata": {
                        "name": owner["name"], "namespace": first["metadata"]["namespace"], "uid": uid,
                    },
                    "spec": {},
                })),
                kind => {
                    let set = set_of(kind, &owner, pods, of);
                    self.owners.push(set);
                    if kind != "StatefulSet" {
                        rename_owner(pods, of, uid);
                    }
                }
            }
        }
    }

    /// A set of which no pod was ready makes none that is.
    fn keep_unready(&mut self, pods: &[Value]) {
        let key = format!("{STEERING_PREFIX}{}", NEVER_READY[0].0);
        let mut ready: BTreeMap<&str, bool> = BTreeMap::new();
        for pod in pods {
            if let Some(owner) = controller(pod) {
                let is_ready = pod["metadata"]["annotations"][&key] != NEVER_READY[0].1;
                *ready.entry(meta_of(owner, "uid")).or_default() |= is_ready;
            }
        }
        for owner in self
            .owners
            .iter_mut()
            .filter(|owner| owner["kind"] == "ReplicaSet" || owner["kind"] == "StatefulSet")
        {
            if ready.get(meta(owner, "uid")) == Some(&false) {
                steer(&mut owner["spec"]["template"]["metadata"], &NEVER_READY);
            }
        }
    }
}

/// A set that makes the pods that are there, as they are.
fn set_of(kind: &str, owner: &Value, pods: &[Value], of: &[usize]) -> Value {
    let first = of.first().and_then(|index| pods.get(*index));
    let first = first.cloned().unwrap_or_default();
    let mut template = first["spec"].clone();
    if let Some(spec) = template.as_object_mut() {
        spec.remove("nodeName");
    }
    template["restartPolicy"] = "Always".into();
    let labels = &first["metadata"]["labels"];
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": owner["name"], "namespace": first["metadata"]["namespace"], "uid": owner["uid"],
        },
        "spec": {
            "replicas": of.len(), "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": template },
        },
    });
    if kind == "StatefulSet" {
        set["kind"] = kind.into();
        set["spec"]["replicas"] = ordinals(pods, of).into();
        // The order in which pods begin is not known, and that of those that run does not matter.
        set["spec"]["podManagementPolicy"] = "Parallel".into();
    }
    set
}

/// Their owner is a `ReplicaSet` from now on.
fn rename_owner(pods: &mut [Value], of: &[usize], uid: &str) {
    for index in of {
        let pod = pods.get_mut(*index);
        let owners = pod.and_then(|pod| pod["metadata"]["ownerReferences"].as_array_mut());
        for owner in owners.into_iter().flatten().filter(|owner| owner["uid"] == uid) {
            owner["apiVersion"] = "apps/v1".into();
            owner["kind"] = "ReplicaSet".into();
        }
    }
}

/// How many pods a `StatefulSet` has, by the numbers at the end of their names.
fn ordinals(pods: &[Value], of: &[usize]) -> usize {
    let names = of
        .iter()
        .filter_map(|index| pods.get(*index))
        .map(|pod| meta(pod, "name"));
    let numbers = names.filter_map(|name| name.rsplit('-').next()?.parse::<usize>().ok());
    numbers.max().map_or(of.len(), |last| last + 1)
}

fn steer(metadata: &mut Value, steering: &[(&str, &str)]) {
    if !metadata["annotations"].is_object() {
        metadata["annotations"] = Value::Object(Map::new());
    }
    for (key, value) in steering {
        metadata["annotations"][format!("{STEERING_PREFIX}{key}")] = (*value).into();
    }
}

/// References to owners that are not here would have the collector take what they own.
fn disown_strangers(objects: &mut [Value], plans: &[Value]) {
    let here: BTreeSet<String> = objects
        .iter()
        .chain(plans)
        .map(|one| meta(one, "uid").to_owned())
        .collect();
    for object in objects {
        if let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() {
            owners.retain(|owner| owner["uid"].as_str().is_some_and(|uid| here.contains(uid)));
        }
    }
}

fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    meta_of(&object["metadata"], field)
}

fn meta_of<'a>(metadata: &'a Value, field: &str) -> &'a str {
    metadata[field].as_str().unwrap_or_default()
}

fn controller(pod: &Value) -> Option<&Value> {
    let owners = pod["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)
}

fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// The newest time that an object tells of itself.
fn newest(object: &Value) -> Option<Timestamp> {
    let time = |value: &Value| value.as_str()?.parse::<Timestamp>().ok();
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let of_conditions = conditions.flat_map(|one| {
        ["lastHeartbeatTime", "lastTransitionTime", "lastUpdateTime"].map(|field| time(&one[field]))
    });
    of_conditions
        .chain([time(&object["metadata"]["creationTimestamp"])])
        .flatten()
        .max()
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

#[cfg(test)]
mod tests;
