//! `Plan.status`: system-upgrade-controller's fields with their meaning, and refit's own beside them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What has become of the Plan.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanStatus {
    /// `Complete`, `Validated` and `LatestResolved`, in this order, then refit's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<PlanCondition>,
    /// Version that the Plan upgrades to, with `+` as `-`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_version: Option<String>,
    /// Digest of the version and of what else runs the Plan again when it changes. A node whose label
    /// `plan.upgrade.cattle.io/<plan>` has it is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_hash: Option<String>,
    /// Hostnames of the nodes that hold a slot of `concurrency`, failed ones included, in the order of the node names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applying: Option<Vec<String>>,
    /// Generation of the spec that this status is about. Less than `metadata.generation` means that the spec has not been
    /// looked at yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many nodes are where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodeCounts>,
    /// Nodes done and nodes selected, such as `12/40`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// All nodes that are worked on or have failed, then those that wait, up to 100 in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<Vec<NodeProgress>>,
    /// What the channel said last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<ChannelStatus>,
    /// When the window opens next (RFC 3339). Absent while it is open, or when it never opens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_window: Option<String>,
}

/// A condition as system-upgrade-controller writes it, with `lastTransitionTime` beside its `lastUpdateTime`.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanCondition {
    /// Type of the condition.
    #[serde(default, rename = "type")]
    #[schemars(!default)]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    #[serde(default)]
    #[schemars(!default)]
    pub status: String,
    /// When status, reason or message changed last (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<String>,
    /// When status changed last (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
    /// One word that says why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A sentence that says why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// How many nodes are where.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeCounts {
    /// Nodes that the Plan is for.
    #[serde(default)]
    pub selected: i64,
    /// Nodes whose label says that this hash is done.
    #[serde(default)]
    pub done: i64,
    /// Nodes that hold a slot and have not failed.
    #[serde(default)]
    pub applying: i64,
    /// Nodes that have not been started.
    #[serde(default)]
    pub waiting: i64,
    /// Nodes on which the Plan failed.
    #[serde(default)]
    pub failed: i64,
    /// Nodes that a label keeps the Plan off.
    #[serde(default)]
    pub disabled: i64,
}

/// One node under this Plan.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeProgress {
    /// Name of the node.
    #[serde(default)]
    pub name: String,
    /// UID of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Where the node is: `Waiting`, `Pending`, `Starting`, `Preparing`, `Cordoning`, `Draining`, `Upgrading`,
    /// `Finishing`, `Rebooting`, `Settling` or `Failed`.
    #[serde(default)]
    pub phase: String,
    /// Since when (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Name of the Job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Which attempt on this node for this hash, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<i64>,
    /// Boot that the node was in when it was started, where the Plan may reboot it.
    #[serde(rename = "bootID", default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// One word that says why the node is not further.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A sentence that says why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What the channel said last.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChannelStatus {
    /// URL that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// When it was asked last (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_polled: Option<String>,
    /// Why the last answer could not be used. Absent when it could.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}
