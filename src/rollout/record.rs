//! The two notes that refit leaves on a Node: the record of a Plan (how far it got, where that must outlive Job, Pod and
//! Plan) and the ledger (who cordoned, and what was before). Both are JSON in an annotation.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// How far a Plan got on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// The Job succeeded; something is left to wait for before the node is done.
    Upgraded,
    /// The Job failed for good.
    Failed,
    /// A further attempt has been decided; its Job is made next.
    Retry,
}

/// Annotation `plan.refit.rs/<plan>` of a Node. With the UID of another Plan or node it is void.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Namespace of the Plan.
    pub namespace: String,
    /// UID of the Plan.
    pub plan_uid: String,
    /// UID of the node.
    pub node_uid: String,
    /// Hash that was carried out.
    pub hash: String,
    /// Version that was carried out.
    pub version: String,
    /// How far it got.
    pub phase: Phase,
    /// Which attempt, from 1.
    pub attempt: i64,
    /// UID of the Job.
    pub job_uid: String,
    /// Name of the Job.
    pub job: String,
    /// Digest of the user's part of the template that ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<String>,
    /// When the Job ended.
    pub at: Timestamp,
    /// The node was cordoned for the Job by something that keeps no ledger, and is to be uncordoned when it is done.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncordon: bool,
    /// One word that says why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A sentence that says why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl Record {
    /// The record in an annotation; nothing where it cannot be read, as if it were not there.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The annotation.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Who wants a node cordoned. A controller judges only its own holders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// Namespace of the Plan.
    pub namespace: String,
    /// Name of the controller.
    pub controller: String,
    /// Name of the Plan.
    pub plan: String,
    /// UID of the Plan.
    pub plan_uid: String,
    /// The node side is to stop: its last act fails, and it exits non-zero.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancelled: bool,
}

/// Annotation `refit.rs/cordon` of a Node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// What `unschedulable` was when the first holder came.
    pub before: bool,
    /// Who wants the node cordoned.
    pub holders: Vec<Holder>,
}

impl Ledger {
    /// The ledger in an annotation; nothing where it cannot be read.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The annotation.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}
