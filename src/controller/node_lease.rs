//! The Lease of a node, by which node-maintenance-operator, node health checks and remediation operators of medik8s
//! leave a node to one of them at a time.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::{Value, json};

use refit_cluster::clock::Clock;
use refit_cluster::kube::{Answer, read};
use refit_facts::objects::maintenance::MaintenanceGroup;

/// The holder of node-maintenance-operator, so that each of the two takes over the Leases of the other.
const NODE_MAINTENANCE: &str = "node-maintenance";
const SECONDS: i32 = 3600;
/// How far clocks may differ.
const SKEW: SignedDuration = SignedDuration::from_mins(1);

/// Why a Lease is not ours.
#[derive(Debug)]
pub(crate) enum LeaseError {
    /// Another one holds it.
    Held(LeaseHolder),
    Api(kube::Error),
}

/// Who holds a Lease, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseHolder {
    pub(crate) name: String,
    pub(crate) until: Timestamp,
}

impl From<kube::Error> for LeaseError {
    fn from(error: kube::Error) -> Self {
        Self::Api(error)
    }
}

/// The Lease with which the operators of medik8s and `KubeVirt` lock a node.
pub(crate) struct NodeLease {
    client: Client,
    group: MaintenanceGroup,
    name: String,
    holder: String,
}

impl NodeLease {
    /// That of a `NodeMaintenance`.
    pub(crate) fn of_maintenance(client: Client, group: MaintenanceGroup, node: &str) -> Self {
        Self::new(client, group, node, NODE_MAINTENANCE)
    }

    /// That of Plans, which medik8s reads.
    pub(crate) fn of_plans(client: Client, node: &str, holder: &str) -> Self {
        Self::new(client, MaintenanceGroup::Medik8s, node, holder)
    }

    fn new(client: Client, group: MaintenanceGroup, node: &str, holder: &str) -> Self {
        Self {
            client,
            group,
            name: group.lease_name(node),
            holder: holder.to_owned(),
        }
    }

    fn api(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), self.group.lease_namespace())
    }

    async fn read(&self) -> Result<Option<Lease>, kube::Error> {
        read::get(&self.client, Some(self.group.lease_namespace()), &self.name).await
    }

    /// Who else holds it now.
    pub(crate) async fn other_holder(&self, clock: &Clock) -> Result<Option<LeaseHolder>, kube::Error> {
        let read = self.read().await?;
        Ok(read.and_then(|lease| self.other(lease.spec.as_ref()?, clock.now())))
    }

    fn other(&self, spec: &LeaseSpec, now: Timestamp) -> Option<LeaseHolder> {
        let name = spec.holder_identity.clone()?;
        let holds = !name.is_empty() && name != self.holder && is_valid(spec, now);
        let until = end(spec)?;
        holds.then_some(LeaseHolder { name, until })
    }

    /// Takes or renews the Lease. One that is held by another holder is taken once it has expired.
    pub(crate) async fn hold(&self, node_uid: &str, node: &str, clock: &Clock) -> Result<(), LeaseError> {
        let read = self.read().await?;
        // After the read: one that another takes meanwhile is of an earlier time then.
        let now = clock.now();
        let Some(mut lease) = read else {
            return self.create(node_uid, node, now).await;
        };
        let spec = lease.spec.get_or_insert_default();
        if let Some(other) = self.other(spec, now) {
            return Err(LeaseError::Held(other));
        }
        let is_ours = spec.holder_identity.as_deref() == Some(&self.holder);
        if is_ours && !is_due(spec, now) {
            return Ok(());
        }
        if !is_ours {
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or_default().saturating_add(1));
            spec.acquire_time = Some(MicroTime(now));
        }
        spec.acquire_time.get_or_insert(MicroTime(now));
        spec.holder_identity = Some(self.holder.clone());
        spec.lease_duration_seconds = Some(SECONDS);
        spec.renew_time = Some(MicroTime(now));
        let spec = json!(spec);
        // Otherwise it would be deleted with an earlier Node of this name.
        let owners = json!([owner(node_uid, node)]);
        Ok(self.patch(&lease.metadata, Some(owners), &spec).await?)
    }

    /// At the version that was read, so that of two that take it at once one fails.
    async fn patch(&self, read: &ObjectMeta, owners: Option<Value>, spec: &Value) -> Result<(), kube::Error> {
        let mut metadata = json!({ "uid": read.uid, "resourceVersion": read.resource_version });
        if let Some(owners) = owners {
            metadata["ownerReferences"] = owners;
        }
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
                namespace: Some(self.group.lease_namespace().to_owned()),
                owner_references: Some(vec![owner(node_uid, node)]),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.holder.clone()),
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
    pub(crate) async fn release(&self) -> Result<(), kube::Error> {
        let Some(lease) = self.read().await? else {
            return Ok(());
        };
        let holder = lease
            .spec
            .as_ref()
            .and_then(|spec| spec.holder_identity.as_deref());
        if holder.is_some_and(|holder| holder != self.holder) {
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
                self.patch(&lease.metadata, None, &spec).await
            }
        }
    }
}

fn owner(node_uid: &str, node: &str) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.to_owned(),
        uid: node_uid.to_owned(),
        ..OwnerReference::default()
    }
}

fn end(spec: &LeaseSpec) -> Option<Timestamp> {
    let seconds = i64::from(spec.lease_duration_seconds.unwrap_or_default());
    let renewed = spec.renew_time.as_ref()?.0;
    renewed.checked_add(SignedDuration::from_secs(seconds)).ok()
}

/// Whether it holds now, also if the clock of its holder is ahead of ours. A time that no clock explains does not hold.
fn is_valid(spec: &LeaseSpec, now: Timestamp) -> bool {
    let renewed = spec.renew_time.as_ref();
    renewed.is_some_and(|at| at.0.duration_since(now) <= SKEW) && end(spec).is_some_and(|end| now <= end)
}

/// Whether less than half of its time is left.
fn is_due(spec: &LeaseSpec, now: Timestamp) -> bool {
    let half = SignedDuration::from_secs(i64::from(SECONDS) / 2);
    !is_valid(spec, now) || end(spec).is_none_or(|end| end.duration_since(now) < half)
}
