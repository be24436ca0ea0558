//! The Lease of a node, by which node-maintenance-operator, node health checks and remediation operators of medik8s
//! leave a node to one of them at a time.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::{Value, json};

use refit_cluster::clock::Clock;
use refit_cluster::kube::{Answer, brief};
use refit_facts::objects::maintenance::MaintenanceGroup;

/// The holder of node-maintenance-operator, so that each of the two takes over the Leases of the other.
const HOLDER: &str = "node-maintenance";
const SECONDS: i32 = 3600;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LeaseError {
    /// Another one holds it.
    Held(String),
    Api(String),
}

impl From<kube::Error> for LeaseError {
    fn from(error: kube::Error) -> Self {
        Self::Api(brief(&error))
    }
}

/// The Lease with which the operators of medik8s and `KubeVirt` lock a node for maintenance.
pub(super) struct NodeLease {
    client: Client,
    group: MaintenanceGroup,
    namespace: String,
    name: String,
}

impl NodeLease {
    pub(super) fn new(client: Client, group: MaintenanceGroup, node: &str) -> Self {
        let name = match group {
            MaintenanceGroup::Medik8s => format!("node-{}", node.to_lowercase()),
            MaintenanceGroup::Kubevirt => node.to_lowercase(),
        };
        Self {
            client,
            group,
            namespace: group.lease_namespace().to_owned(),
            name,
        }
    }

    fn api(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Takes or renews the Lease. One that is held by another holder is taken once it has expired.
    pub(super) async fn hold(&self, node_uid: &str, node: &str, clock: &Clock) -> Result<(), LeaseError> {
        let read = self.api().get_opt(&self.name).await?;
        // After the read: a Lease that another takes meanwhile would seem to be renewed in the future, which does not hold.
        let now = clock.now();
        let Some(mut lease) = read else {
            return self.create(node_uid, node, now).await;
        };
        let spec = lease.spec.get_or_insert_default();
        let is_ours = spec.holder_identity.as_deref() == Some(HOLDER);
        let holder = spec.holder_identity.clone().filter(|holder| !holder.is_empty());
        if let Some(holder) = holder.filter(|_| !is_ours && is_valid(spec, now)) {
            return Err(LeaseError::Held(holder));
        }
        if is_ours && !is_due(spec, now) {
            return Ok(());
        }
        if !is_ours {
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or_default().saturating_add(1));
            spec.acquire_time = Some(MicroTime(now));
        }
        spec.acquire_time.get_or_insert(MicroTime(now));
        spec.holder_identity = Some(HOLDER.to_owned());
        spec.lease_duration_seconds = Some(SECONDS);
        spec.renew_time = Some(MicroTime(now));
        let spec = json!(spec);
        Ok(self.patch(&lease.metadata, &spec).await?)
    }

    /// At the version that was read, so that of two that take it at once one fails.
    async fn patch(&self, read: &ObjectMeta, spec: &Value) -> Result<(), kube::Error> {
        let metadata = json!({ "uid": read.uid, "resourceVersion": read.resource_version });
        let patch = Patch::Merge(json!({ "metadata": metadata, "spec": spec }));
        let api = self.api();
        api.patch(&self.name, &PatchParams::default(), &patch)
            .await
            .map(drop)
    }

    async fn create(&self, node_uid: &str, node: &str, now: Timestamp) -> Result<(), LeaseError> {
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                owner_references: Some(vec![OwnerReference {
                    api_version: "v1".to_owned(),
                    kind: "Node".to_owned(),
                    name: node.to_owned(),
                    uid: node_uid.to_owned(),
                    ..OwnerReference::default()
                }]),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(HOLDER.to_owned()),
                lease_duration_seconds: Some(SECONDS),
                acquire_time: Some(MicroTime(now)),
                renew_time: Some(MicroTime(now)),
                lease_transitions: Some(0),
                ..LeaseSpec::default()
            }),
        };
        self.api().create(&PostParams::default(), &lease).await?;
        Ok(())
    }

    /// Gives the Lease back, if it is ours.
    pub(super) async fn release(&self) -> Result<(), kube::Error> {
        let Some(lease) = self.api().get_opt(&self.name).await? else {
            return Ok(());
        };
        let holder = lease
            .spec
            .as_ref()
            .and_then(|spec| spec.holder_identity.as_deref());
        if holder.is_some_and(|holder| holder != HOLDER) {
            return Ok(());
        }
        match self.group {
            MaintenanceGroup::Medik8s => {
                let params = DeleteParams {
                    preconditions: Some(Preconditions {
                        uid: lease.metadata.uid.clone(),
                        resource_version: lease.metadata.resource_version.clone(),
                    }),
                    ..DeleteParams::default()
                };
                match self.api().delete(&self.name, &params).await {
                    Err(error) if Answer::of(&error) == Answer::NotFound => Ok(()),
                    answer => answer.map(drop),
                }
            }
            // The older operator blanks it, and keeps the object.
            MaintenanceGroup::Kubevirt => {
                let spec = json!({
                    "holderIdentity": "", "leaseDurationSeconds": null, "acquireTime": null, "renewTime": null,
                    "leaseTransitions": null,
                });
                self.patch(&lease.metadata, &spec).await
            }
        }
    }
}

fn end(spec: &LeaseSpec) -> Option<Timestamp> {
    let seconds = i64::from(spec.lease_duration_seconds.unwrap_or_default());
    let renewed = spec.renew_time.as_ref()?.0;
    renewed.checked_add(SignedDuration::from_secs(seconds)).ok()
}

/// Whether it holds now. One that was renewed in the future does not.
fn is_valid(spec: &LeaseSpec, now: Timestamp) -> bool {
    spec.renew_time.as_ref().is_some_and(|at| at.0 <= now) && end(spec).is_some_and(|end| now <= end)
}

/// Whether less than half of its time is left.
fn is_due(spec: &LeaseSpec, now: Timestamp) -> bool {
    let half = SignedDuration::from_secs(i64::from(SECONDS) / 2);
    !is_valid(spec, now) || end(spec).is_none_or(|end| end.duration_since(now) < half)
}
