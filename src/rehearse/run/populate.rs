//! Sets up the cluster of a rehearsal, and applies the objects to rehearse.

use std::collections::{BTreeMap, BTreeSet};

use super::{InitialCluster, Rehearsal, RehearsalError};
use crate::cluster::{Cluster, place};
use crate::json::{Value, json};
use crate::pod_lifecycle::STEERING_PREFIX;
use crate::resources::Kind;
use crate::status_error::StatusError;
use crate::store::Key;
use crate::write::WriteTarget;
use refit_api::crd;
use refit_controller::settings::FrontEndName;
use refit_facts::objects::maintenance::MaintenanceGroup;

impl Rehearsal {
    /// Creates the cluster without the objects to rehearse.
    pub(super) fn populate(&self, cluster: &Cluster) -> Result<(), RehearsalError> {
        let definition = serde_json::to_value(crd::plans()).unwrap_or_default();
        put(cluster, definition.into())?;
        let failing = self.failing()?;
        match &self.initial_cluster {
            InitialCluster::Generated { nodes, workloads } => {
                for node in nodes.iter().filter(|node| !self.is_absent_at_start(node)) {
                    put(cluster, self.steered(node, &failing))?;
                }
                let mut daemon_sets: BTreeMap<String, Value> = BTreeMap::new();
                for object in workloads.iter().filter(|object| !self.is_absent_at_start(object)) {
                    let mut object = object.clone();
                    own(&mut object, &daemon_sets);
                    let made = put(cluster, object)?;
                    if made["kind"] == "DaemonSet" {
                        let name = made.meta("name");
                        daemon_sets.insert(name.to_owned(), made["metadata"]["uid"].clone());
                    }
                }
            }
            InitialCluster::Snapshot(snapshot) => {
                let mut snapshot = snapshot.clone();
                // Created before their dependents, which the garbage collector would delete otherwise.
                for plan in &snapshot.plans {
                    cluster.restore_one(plan.clone()).map_err(refused(plan))?;
                }
                snapshot.objects.retain(|object| !self.is_absent_at_start(object));
                for object in &mut snapshot.objects {
                    if object["kind"] == "Node" {
                        *object = self.steered(object, &failing);
                    }
                }
                cluster
                    .restore(&snapshot)
                    .map_err(|status_error| RehearsalError::Refused {
                        what: "the snapshot".to_owned(),
                        why: status_error.message,
                    })?;
            }
        }
        // refit creates the Leases of nodes in these namespaces, which the API server requires to exist: for Plans with
        // `pauseRemediation`, and for the front end.
        let has_maintenances = self.settings.enable.contains(&FrontEndName::Maintenance);
        let has_pauses = self
            .all_plans()
            .any(|plan| plan["spec"]["pauseRemediation"] == true);
        let used =
            |group: &MaintenanceGroup| has_maintenances || has_pauses && *group == MaintenanceGroup::Medik8s;
        for group in MaintenanceGroup::ALL.into_iter().filter(used) {
            cluster.with(|state| state.ensure_namespace(group.lease_namespace()));
        }
        for object in &self.objects {
            Self::apply(cluster, object)?;
        }
        self.assume_secrets(cluster)
    }

    /// The node with the annotations that steer its simulated kubelet.
    pub(super) fn steered(&self, node: &Value, failing: &BTreeSet<&str>) -> Value {
        let mut node = node.clone();
        // The rehearsal may begin before, and no node of it has just joined.
        node["metadata"]["creationTimestamp"] = Value::Null;
        let name = node.meta("name").to_owned();
        let mut steering = self.assumptions.steering(&name, failing.contains(name.as_str()));
        for hook in self.hooks() {
            steering.extend(self.assumptions.hook_steering(&name, hook));
        }
        for (key, value) in steering {
            node["metadata"]["annotations"][key.as_str()] = value.into();
        }
        node
    }

    /// Creates empty Secrets in place of those that a Plan names and no file has.
    fn assume_secrets(&self, cluster: &Cluster) -> Result<(), RehearsalError> {
        for plan in self.all_plans() {
            let namespace = plan.meta("namespace");
            for name in secrets(plan) {
                if cluster.get(Kind::Secret, namespace, name).is_none() {
                    put(
                        cluster,
                        json!({
                            "apiVersion": "v1", "kind": "Secret",
                            "metadata": { "name": name, "namespace": namespace }, "type": "Opaque",
                        }),
                    )?;
                }
            }
        }
        Ok(())
    }

    /// Like `kubectl apply`: an existing object gets the new spec, labels and annotations.
    pub(super) fn apply(cluster: &Cluster, object: &Value) -> Result<(), RehearsalError> {
        let Ok((kind, namespace)) = place(object) else {
            return Ok(());
        };
        let key = Key::new(&namespace, object.meta("name"));
        if cluster.get(kind, &namespace, &key.name).is_none() {
            return put(cluster, object.clone()).map(drop);
        }
        let applied = cluster.with(|state| {
            state.change(kind, &key, WriteTarget::Whole, |new| {
                for (field, value) in object.as_object().into_iter().flatten() {
                    if !matches!(field, "metadata" | "status" | "apiVersion" | "kind") {
                        new[field] = value.clone();
                    }
                }
                for map in ["labels", "annotations"] {
                    for (name, value) in object["metadata"][map].as_object().into_iter().flatten() {
                        new["metadata"][map][name] = value.clone();
                    }
                }
            })
        });
        applied.map(drop).map_err(refused(object))
    }
}

/// Names of the Secrets that a Plan requires to start.
pub fn secrets(plan: &Value) -> impl Iterator<Item = &str> {
    let all = plan["spec"]["secrets"].as_array().into_iter().flatten();
    all.filter_map(|secret| secret["name"].as_str())
        .filter(|name| !name.is_empty())
}

pub(super) fn put(cluster: &Cluster, object: Value) -> Result<Value, RehearsalError> {
    let refused = refused(&object);
    cluster.put(object).map_err(refused)
}

fn refused(object: &Value) -> impl FnOnce(StatusError) -> RehearsalError + use<> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let what = format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]));
    move |status_error| RehearsalError::Refused {
        what,
        why: status_error.message,
    }
}

/// Sets the UIDs of owners that were just created.
fn own(object: &mut Value, daemon_sets: &BTreeMap<String, Value>) {
    let owners = object["metadata"].get_mut("ownerReferences");
    for owner in owners.and_then(Value::as_array_mut).into_iter().flatten() {
        let uid = owner["name"].as_str().and_then(|name| daemon_sets.get(name));
        if let Some(uid) = uid {
            owner["uid"] = uid.clone();
        }
    }
}

/// The Plan, whose payload reboots its node once its pod has succeeded, if the Plan says that it does.
pub(super) fn with_reboots(plan: &Value) -> Value {
    let mut plan = plan.clone();
    if plan["spec"]["reboot"]["by"] == "Payload" {
        let key = format!("{STEERING_PREFIX}upgrade.reboot");
        plan["metadata"]["annotations"][key.as_str()] = "afterwards".into();
    }
    plan
}
