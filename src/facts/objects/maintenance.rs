//! `NodeMaintenance`, the object of node-maintenance-operator: that of medik8s, and the older one of `KubeVirt`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::read::Unreadable;
use crate::watched::Watched;
use refit_api::open_enum::{OpenEnum, closed_enum};

/// The API group of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MaintenanceGroup {
    Medik8s,
    Kubevirt,
}

impl MaintenanceGroup {
    pub const ALL: [Self; 2] = [Self::Medik8s, Self::Kubevirt];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Medik8s => "nodemaintenance.medik8s.io",
            Self::Kubevirt => "nodemaintenance.kubevirt.io",
        }
    }

    /// Path of all objects.
    pub fn path(self) -> String {
        format!("/apis/{}/{VERSION}/{PLURAL}", self.name())
    }

    /// Namespace of the Leases of nodes.
    pub const fn lease_namespace(self) -> &'static str {
        match self {
            Self::Medik8s => "medik8s-leases",
            Self::Kubevirt => "node-maintenance",
        }
    }

    /// Name of the Lease of a node.
    pub fn lease_name(self, node: &str) -> String {
        match self {
            Self::Medik8s => format!("node-{}", node.to_lowercase()),
            Self::Kubevirt => node.to_lowercase(),
        }
    }
}

pub const VERSION: &str = "v1beta1";
pub const KIND: &str = "NodeMaintenance";
pub const PLURAL: &str = "nodemaintenances";

closed_enum! {
    /// A phase of node-maintenance-operator.
    MaintenancePhase {
        Running "The node is not drained yet."
        Succeeded "The node is drained."
        Failed "The node is not in maintenance."
    }
}

/// Errors of the Lease in a row after which a maintenance gives up.
pub const MAX_LEASE_ERRORS: i64 = 4;

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MaintenanceSpec {
    pub node_name: String,
    pub reason: Option<String>,
}

/// A pod that is yet to be evicted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodRef {
    pub namespace: String,
    pub name: String,
}

/// Status in node-maintenance-operator's words. A zero is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MaintenanceStatus {
    pub phase: Option<OpenEnum<MaintenancePhase>>,
    pub drain_progress: i64,
    pub last_update: Option<String>,
    pub last_error: Option<String>,
    pub pending_pods: Vec<String>,
    pub pending_pods_refs: Vec<PodRef>,
    // The CRD of node-maintenance-operator has this name in lower case.
    #[serde(rename = "totalpods")]
    pub total_pods: i64,
    pub eviction_pods: i64,
    pub error_on_lease_count: i64,
}

impl MaintenanceStatus {
    pub fn is_in(&self, phase: MaintenancePhase) -> bool {
        self.phase.as_ref().is_some_and(|it| *it == phase)
    }

    /// Whether the maintenance has failed for good, because its Lease was lost.
    pub fn has_given_up(&self) -> bool {
        self.is_in(MaintenancePhase::Failed) && self.error_on_lease_count >= MAX_LEASE_ERRORS
    }
}

macro_rules! maintenance {
    ($type:ident, $group:expr) => {
        #[derive(Clone, Debug, Default, Deserialize)]
        pub struct $type {
            metadata: ObjectMeta,
            #[serde(default)]
            spec: MaintenanceSpec,
            #[serde(default)]
            status: MaintenanceStatus,
        }
        resource!(
            $type,
            $group.name(),
            VERSION,
            KIND,
            PLURAL,
            k8s_openapi::ClusterResourceScope
        );

        impl Watched for $type {
            /// What matters is which node it is for.
            fn salvage(raw: &RawValue, _: &Unreadable) -> Option<Self> {
                #[derive(Deserialize)]
                struct Parts {
                    metadata: ObjectMeta,
                    #[serde(default)]
                    spec: MaintenanceSpec,
                }
                let Parts { metadata, spec } = serde_json::from_str(raw.get()).ok()?;
                let status = MaintenanceStatus::default();
                Some(Self {
                    metadata,
                    spec,
                    status,
                })
            }
        }

        impl From<$type> for Maintenance {
            fn from(object: $type) -> Self {
                let $type {
                    metadata,
                    spec,
                    status,
                } = object;
                Self {
                    group: $group,
                    metadata,
                    spec,
                    status,
                }
            }
        }
    };
}

maintenance!(MedikMaintenance, MaintenanceGroup::Medik8s);
maintenance!(KubevirtMaintenance, MaintenanceGroup::Kubevirt);

/// One of either group.
#[derive(Clone, Debug, PartialEq)]
pub struct Maintenance {
    pub group: MaintenanceGroup,
    pub metadata: ObjectMeta,
    pub spec: MaintenanceSpec,
    pub status: MaintenanceStatus,
}

impl Maintenance {
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    pub fn is_being_deleted(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Its kind and name, for messages.
    pub fn title(&self) -> String {
        match self.group {
            MaintenanceGroup::Medik8s => format!("{KIND} {}", self.name()),
            MaintenanceGroup::Kubevirt => format!("{KIND} {} of KubeVirt", self.name()),
        }
    }
}
