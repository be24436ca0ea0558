//! Keeps remediation operators off a node: its Lease, and the annotation of its Machine of Cluster API. What follows from
//! the answers is in `rollout/remediation.rs`.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{GetParams, Patch, PatchParams};
use kube::core::Request;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Actor, Outcome, step_error};
use crate::node_lease::{LeaseError, LeaseHolder, NodeLease};
use refit_api::names;
use refit_api::selector::is_subdomain;
use refit_api::text::{MAX_NAME, shorten};
use refit_cluster::kube::read::{get_metadata, send};
use refit_cluster::kube::{Answer, brief};
use refit_facts::{NodeName, NodeUid};
use refit_rollout::{LeaseCheck, LeaseState, StepEffect};

/// The versions of the Machine, the newest first: Cluster API serves both since 1.11.
const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];

/// The fields of a Machine that are read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Machine {
    metadata: ObjectMeta,
    #[serde(default)]
    status: MachineStatus,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MachineStatus {
    node_ref: NodeRef,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeRef {
    name: String,
}

impl Actor {
    fn lease_check(&self, node: NodeName, node_uid: NodeUid, state: LeaseState) -> Outcome {
        let seen = self.clock.now();
        let check = LeaseCheck {
            seen,
            node_uid,
            state,
        };
        StepEffect::Lease(node, check).into()
    }

    pub(super) async fn read_node_lease(&self, node: NodeName, uid: NodeUid, holder: &str) -> Outcome {
        let lease = NodeLease::of_plans(self.client.clone(), &node, holder);
        match lease.other_holder(&self.clock).await {
            Ok(other) => self.lease_check(node, uid, other.as_ref().map_or(LeaseState::Free, held)),
            Err(error) => step_error(&error).into(),
        }
    }

    pub(super) async fn pause_remediation(&self, node: NodeName, uid: NodeUid, holder: &str) -> Outcome {
        let lease = NodeLease::of_plans(self.client.clone(), &node, holder);
        match lease.hold(&uid, &node, &self.clock).await {
            Ok(()) => {}
            Err(LeaseError::Held(other)) => {
                tracing::warn!(
                    node = &*node,
                    holder = other.name,
                    "another one holds the Lease of a node"
                );
                return self.lease_check(node, uid, held(&other));
            }
            Err(LeaseError::Api(error)) => return step_error(&error).into(),
        }
        if let Err(error) = self.annotate_machine(&node, &uid, holder, true).await {
            return step_error(&error).into();
        }
        self.lease_check(node, uid, LeaseState::Ours)
    }

    pub(super) async fn resume_remediation(&self, node: NodeName, uid: NodeUid, holder: &str) -> Outcome {
        if let Err(error) = self.annotate_machine(&node, &uid, holder, false).await {
            return step_error(&error).into();
        }
        let lease = NodeLease::of_plans(self.client.clone(), &node, holder);
        match lease.release().await {
            Ok(()) => {}
            // The permission was withdrawn. The Lease ends by itself, and the label of the node must not wait for it.
            Err(error) if Answer::of(&error) == Answer::Forbidden => {
                let error = brief(&error);
                tracing::warn!(
                    node = &*node,
                    error,
                    "the Lease of a node is left to end by itself"
                );
            }
            Err(error) => return step_error(&error).into(),
        }
        self.lease_check(node, uid, LeaseState::Released)
    }

    /// Adds the annotation that keeps health checks off the Machine of a node, or removes it if its value is that of this
    /// controller. Without a Machine, or without the permission, nothing happens.
    async fn annotate_machine(
        &self,
        node: &NodeName,
        uid: &NodeUid,
        holder: &str,
        wanted: bool,
    ) -> Result<(), kube::Error> {
        let metadata = match get_metadata::<Node>(&self.client, None, node).await {
            Err(error) if Answer::of(&error) == Answer::Forbidden => {
                let error = brief(&error);
                tracing::debug!(
                    node = &**node,
                    error,
                    "it is not known whether the node has a Machine"
                );
                return Ok(());
            }
            answer => answer?,
        };
        let metadata = metadata.filter(|metadata| metadata.uid.as_deref() == Some(&**uid));
        let annotations = metadata
            .and_then(|metadata| metadata.annotations)
            .unwrap_or_default();
        let [Some(name), Some(namespace)] = names::ANNOTATIONS_MACHINE.map(|key| annotations.get(key)) else {
            return Ok(());
        };
        // They are parts of a path, and a kubelet may have written them.
        if !is_subdomain(name) || !is_subdomain(namespace) {
            return Ok(());
        }
        for version in VERSIONS {
            let path = format!("/apis/cluster.x-k8s.io/{version}/namespaces/{namespace}/machines");
            match self
                .annotate(Request::new(path), name, node, holder, wanted)
                .await
            {
                Err(error) if Answer::of(&error) == Answer::NotFound => {}
                Err(error) if Answer::of(&error) == Answer::Forbidden => {
                    let error = brief(&error);
                    tracing::warn!(
                        node = &**node,
                        machine = name,
                        error,
                        "a Machine is left as it is"
                    );
                    return Ok(());
                }
                answer => return answer,
            }
        }
        Ok(())
    }

    async fn annotate(
        &self,
        machines: Request,
        name: &str,
        node: &NodeName,
        holder: &str,
        wanted: bool,
    ) -> Result<(), kube::Error> {
        let request = machines.get(name, &GetParams::default());
        let Machine { metadata, status } = send(&self.client, request).await?;
        // A kubelet may name the Machine of another node.
        if status.node_ref.name != **node {
            tracing::warn!(
                node = &**node,
                machine = name,
                "the Machine is that of another node"
            );
            return Ok(());
        }
        let annotations = metadata.annotations.as_ref();
        let value = annotations.and_then(|all| all.get(names::ANNOTATION_SKIP_REMEDIATION));
        let new = match (wanted, value) {
            (true, None) => json!(holder),
            (false, Some(value)) if value == holder => Value::Null,
            _ => return Ok(()),
        };
        let patch = Patch::Merge(json!({ "metadata": {
            "uid": metadata.uid,
            "resourceVersion": metadata.resource_version,
            "annotations": { names::ANNOTATION_SKIP_REMEDIATION: new },
        } }));
        let request = machines.patch(name, &PatchParams::default(), &patch);
        send::<Machine>(&self.client, request).await.map(drop)
    }
}

fn held(other: &LeaseHolder) -> LeaseState {
    LeaseState::Held {
        holder: shorten(&other.name, MAX_NAME).as_ref().into(),
        until: other.until,
    }
}
