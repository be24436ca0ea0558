//! Adapts the objects of a cluster to the simulation.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::{Snapshot, controller, describe_counts, meta_of, operators};
use crate::json::{Value, json};
use crate::pod_lifecycle::STEERING_PREFIX;
use crate::pods::is_ready;
use crate::resources::Kind;
use refit_api::limits;
use refit_api::names::{LABEL_CONTROLLER, LABEL_HOOK};
use refit_api::sentinel::is_boot_id;
use refit_facts::objects::maintenance::MaintenanceGroup;

/// A node selector without a match: unscheduled pods stay unscheduled.
const NOWHERE: &str = "refit.rs/no-node";
/// Keeps an unready pod unready: its containers end at once, and restart after a year.
const NEVER_READY: [(&str, &str); 3] = [("run-delay", "0"), ("exit-code", "1"), ("backoff", "8760h")];

#[derive(Default)]
pub(super) struct SnapshotBuilder {
    pub(super) nodes: Vec<Value>,
    pods: Vec<Value>,
    owners: Vec<Value>,
    others: Vec<Value>,
    plans: Vec<Value>,
    node_ops: Vec<Value>,
    pub(super) found: BTreeMap<String, usize>,
    left_out: BTreeMap<String, usize>,
    taken: Option<Timestamp>,
}

impl SnapshotBuilder {
    pub(super) fn add(&mut self, mut object: Value) {
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text("apiVersion"), text("kind"));
        *self.found.entry(kind.clone()).or_default() += 1;
        self.taken = self.taken.max(newest(&object));
        // The simulated API server tracks no fields and assigns its own versions, and nothing reads the copy.
        if let Some(meta) = object["metadata"].as_object_mut() {
            meta.remove("managedFields");
            meta.remove("resourceVersion");
            if let Some(annotations) = meta.get_mut("annotations").and_then(Value::as_object_mut) {
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
            (
                Some(
                    Kind::Budget | Kind::Secret | Kind::Namespace | Kind::Maintenance | Kind::OldMaintenance,
                ),
                _,
            ) => self.others.push(object),
            (Some(Kind::NodeOp | Kind::NodeOpUpgrade), _) => self.node_ops.push(object),
            (Some(Kind::ConfigMap), _) if object["metadata"]["name"] == limits::NAME => {
                self.others.push(object);
            }
            (Some(Kind::Lease), _) if is_of_node(&object) => self.others.push(object),
            _ => {
                let budget = Kind::Budget.resource_type();
                let what = if kind == budget.kind {
                    // Old clusters and manifests have policy/v1beta1.
                    format!("{kind} of {version} (write {})", budget.api_version())
                } else {
                    kind
                };
                *self.left_out.entry(what).or_default() += 1;
            }
        }
    }

    pub(super) fn build(mut self) -> Snapshot {
        let mut changed = Vec::new();
        if !self.left_out.is_empty() {
            changed.push(format!(
                "left out, because refit does not simulate it: {}",
                describe_counts(&self.left_out)
            ));
        }
        let nodes: Vec<String> = self
            .nodes
            .iter()
            .map(|node| node.meta("name").to_owned())
            .collect();
        let lost: Vec<String> = self
            .nodes
            .iter()
            .filter(|node| !is_ready(node))
            .map(|node| node.meta("name").to_owned())
            .collect();
        for (index, node) in self.nodes.iter_mut().enumerate() {
            // Nothing else is believed to be a boot, also if a file was written by hand.
            let boot = node["status"]["nodeInfo"]["bootID"].as_str();
            if !boot.is_some_and(is_boot_id) {
                let boot_id = format!("00000000-0000-4000-8000-{:012x}", index + 1);
                node["status"]["nodeInfo"]["bootID"] = boot_id.into();
            }
            // The list of images is half of a Node's size, and unused.
            if let Some(status) = node["status"].as_object_mut() {
                status.remove("images");
                // Volumes are not simulated: nothing would detach these.
                status.remove("volumesAttached");
                status.remove("volumesInUse");
            }
        }
        let controller = self
            .owners
            .iter()
            .filter(|job| job["metadata"]["labels"][LABEL_HOOK].is_null())
            .find_map(|job| job["metadata"]["labels"][LABEL_CONTROLLER].as_str());
        let controller = controller.map(str::to_owned);
        operators::drop_budgets(&mut self.others, &self.pods, &mut changed);
        let pods = self.pods(&lost, &mut changed);
        let mut objects = Vec::new();
        objects.append(&mut self.others);
        objects.append(&mut self.nodes);
        objects.append(&mut self.owners);
        objects.extend(pods);
        drop_missing_owners(&mut objects, &self.plans);
        Snapshot {
            objects,
            plans: self.plans,
            node_ops: self.node_ops,
            nodes,
            lost,
            controller,
            taken: self.taken,
            notes: changed,
        }
    }

    /// The pods to keep, with owners for those whose owner is missing.
    fn pods(&mut self, lost: &[String], notes: &mut Vec<String>) -> Vec<Value> {
        // ReplicaSets that want no pods are old revisions of a Deployment.
        self.owners
            .retain(|owner| owner["kind"] != "ReplicaSet" || owner["spec"]["replicas"].as_u64() != Some(0));
        let known: BTreeSet<String> = self.owners.iter().map(|one| one.meta("uid").to_owned()).collect();
        let mut missing: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        let mut pods: Vec<Value> = Vec::new();
        let (mut unready, mut nowhere, mut again) = (0, 0, 0);
        for mut pod in std::mem::take(&mut self.pods) {
            let ours = pod["metadata"]["labels"][LABEL_CONTROLLER].is_string();
            let is_over = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
            let is_being_deleted = pod["metadata"]["deletionTimestamp"].is_string();
            // Pods of refit stay, because they show how an upgrade ended.
            if !ours && (is_over || is_being_deleted) {
                continue;
            }
            let node = pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
            // A terminal phase is final, and a machine that is off reports nothing.
            let kept = is_over || lost.contains(&node);
            if !kept {
                let was_ready = is_ready(&pod);
                // The simulated kubelet reads the boot from container IDs. It would take a real ID for one of an
                // earlier boot, and report that the node has rebooted.
                if let Some(pod) = pod.as_object_mut() {
                    pod.insert("status", json!({ "phase": "Pending" }));
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
                    // The run time of other workloads is unknown.
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
            (unready, "not ready and stay so"),
            (nowhere, "without a node and stay so"),
            (again, "of Jobs that run for a Plan; their containers start again"),
        ] {
            if count > 0 {
                let pods = if count == 1 { "pod is" } else { "pods are" };
                notes.push(format!("{count} {pods} {what}"));
            }
        }
        pods
    }

    /// Replaces missing owners, and those that are not simulated, by a `ReplicaSet` with as many pods.
    fn make_owners(&mut self, pods: &mut [Value], missing: &BTreeMap<String, Vec<usize>>) {
        for (uid, of) in missing {
            let Some(first) = of.first().and_then(|index| pods.get(*index)) else {
                continue;
            };
            let Some(owner) = controller(first).cloned() else {
                continue;
            };
            match meta_of(&owner, "kind") {
                // A mirror pod, whose owner is its Node.
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

    /// Keeps new pods of a set unready if none of its pods was ready.
    fn keep_unready(&mut self, pods: &[Value]) {
        let key = format!("{STEERING_PREFIX}{}", NEVER_READY[0].0);
        let mut ready: BTreeMap<&str, bool> = BTreeMap::new();
        for pod in pods {
            if let Some(owner) = controller(pod) {
                let is_ready = pod["metadata"]["annotations"][key.as_str()] != NEVER_READY[0].1;
                *ready.entry(meta_of(owner, "uid")).or_default() |= is_ready;
            }
        }
        for owner in self
            .owners
            .iter_mut()
            .filter(|owner| owner["kind"] == "ReplicaSet" || owner["kind"] == "StatefulSet")
        {
            if ready.get(owner.meta("uid")) == Some(&false) {
                steer(&mut owner["spec"]["template"]["metadata"], &NEVER_READY);
            }
        }
    }
}

/// A set that matches the existing pods.
fn set_of(kind: &str, owner: &Value, pods: &[Value], of: &[usize]) -> Value {
    let first = of.first().and_then(|index| pods.get(*index));
    let first = first.cloned().unwrap_or_default();
    let mut template = first["spec"].clone();
    if let Some(spec) = template.as_object_mut() {
        // The scheduler chooses the nodes of replacements.
        spec.remove("nodeName");
    }
    // The API server admits no other policy in the template of a set.
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
        // The start order is unknown, and does not matter for running pods.
        set["spec"]["podManagementPolicy"] = "Parallel".into();
    }
    set
}

/// Makes a `ReplicaSet` the owner.
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

/// The size of a `StatefulSet`, from the ordinals of its pods.
fn ordinals(pods: &[Value], of: &[usize]) -> usize {
    let names = of
        .iter()
        .filter_map(|index| pods.get(*index))
        .map(|pod| pod.meta("name"));
    let numbers = names.filter_map(|name| name.rsplit('-').next()?.parse::<usize>().ok());
    numbers.max().map_or(of.len(), |last| last + 1)
}

fn steer(metadata: &mut Value, steering: &[(&str, &str)]) {
    for (key, value) in steering {
        metadata["annotations"][format!("{STEERING_PREFIX}{key}").as_str()] = (*value).into();
    }
}

/// Whether it is the Lease by which a program keeps others off a node.
fn is_of_node(lease: &Value) -> bool {
    let mut groups = MaintenanceGroup::ALL.into_iter();
    groups.any(|group| group.lease_namespace() == lease.meta("namespace"))
}

/// Removes references to missing owners, for which the garbage collector would delete the objects.
fn drop_missing_owners(objects: &mut [Value], plans: &[Value]) {
    let here: BTreeSet<String> = objects
        .iter()
        .chain(plans)
        .map(|one| one.meta("uid").to_owned())
        .collect();
    for object in objects {
        if let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() {
            owners.retain(|owner| owner["uid"].as_str().is_some_and(|uid| here.contains(uid)));
        }
    }
}

/// The newest time in an object.
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
