//! `NodeOp` and `NodeOpUpgrade`, the objects of kairos-operator.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::watched::Watched;
use refit_api::Plan;
use refit_api::open_enum::{OpenEnum, closed_enum};

pub const GROUP: &str = "operator.kairos.io";
pub const VERSION: &str = "v1alpha1";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OpKind {
    Op,
    Upgrade,
}

impl OpKind {
    pub const ALL: [Self; 2] = [Self::Op, Self::Upgrade];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Op => "NodeOp",
            Self::Upgrade => "NodeOpUpgrade",
        }
    }

    pub const fn plural(self) -> &'static str {
        match self {
            Self::Op => "nodeops",
            Self::Upgrade => "nodeopupgrades",
        }
    }

    /// Path of the objects of all namespaces.
    pub fn path(self) -> String {
        format!("/apis/{GROUP}/{VERSION}/{}", self.plural())
    }
}

closed_enum! {
    /// A phase of kairos-operator, of an object or of one of its nodes.
    OpPhase {
        Initializing "A `NodeOpUpgrade` whose first node has not started."
        Pending "The node has a Job, whose pod has not started."
        Preflight "`preflight` runs on the node."
        Running "The Job runs on the node. An object: not all nodes are done."
        Completed "The node, or the object, is done."
        Failed "The Job failed on the node. An object: it did on at least one."
    }
}

/// Status of a node in kairos-operator's words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OpNodeStatus {
    pub phase: OpenEnum<OpPhase>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub job_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reboot_status: String,
    /// RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<String>,
}

/// Status in kairos-operator's words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OpStatus {
    #[serde(skip_serializing_if = "OpenEnum::is_empty")]
    pub phase: OpenEnum<OpPhase>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_statuses: BTreeMap<String, OpNodeStatus>,
    /// Of a `NodeOpUpgrade`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<String>,
}

macro_rules! node_op {
    ($type:ident, $kind:expr) => {
        #[derive(Clone, Debug, Default, Deserialize)]
        pub struct $type {
            metadata: ObjectMeta,
            #[serde(default)]
            spec: Value,
            #[serde(default)]
            status: OpStatus,
        }
        resource!(
            $type,
            GROUP,
            VERSION,
            $kind.name(),
            $kind.plural(),
            k8s_openapi::NamespaceResourceScope
        );

        impl Watched for $type {}

        impl From<$type> for AnyOp {
            fn from(object: $type) -> Self {
                let $type {
                    metadata,
                    spec,
                    status,
                } = object;
                Self {
                    kind: $kind,
                    metadata,
                    spec,
                    status,
                }
            }
        }
    };
}

node_op!(NodeOp, OpKind::Op);
node_op!(NodeOpUpgrade, OpKind::Upgrade);

/// One of either kind.
#[derive(Clone, Debug, PartialEq)]
pub struct AnyOp {
    pub kind: OpKind,
    pub metadata: ObjectMeta,
    /// As it is written.
    pub spec: Value,
    pub status: OpStatus,
}

impl AnyOp {
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    pub fn is_being_deleted(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Its kind, namespace and name, for messages.
    pub fn title(&self) -> String {
        format!("{} {}/{}", self.kind.name(), self.namespace(), self.name())
    }
}

// For metadata that the facts of a Plan do not have.
impl Watched for Plan {}
