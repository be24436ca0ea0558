//! `Plan.status`: system-upgrade-controller's fields with their meaning, and refit's own beside them.

use std::collections::BTreeMap;

use jiff::Timestamp;
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
    /// All nodes that are worked on or have failed, then those that wait, up to 100 in all, or as many as are next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<Vec<NodeProgress>>,
    /// What the channel said last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<ChannelStatus>,
    /// What the tags of the Plan's images stood for when its version was resolved, with `versionPolicy.pinDigest`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<PinnedStatus>,
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
    /// UID of the node. One that waits has it when it is next: it begins as soon as there is a slot, and is told afterwards.
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

/// What the channel said last, and what the Plan makes of it.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChannelStatus {
    /// URL that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Names of the secrets with which it was asked, separated by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<String>,
    /// When it was asked last (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_polled: Option<String>,
    /// When it is asked next, unless something happens before (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_poll: Option<String>,
    /// The value of the annotation `refit.rs/poll-now` that it was asked for last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polled_for: Option<String>,
    /// Why the last answer could not be used. Absent when it could.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The version that would be next, and is not taken, or not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<String>,
    /// When the candidate was published, where the channel says so, or seen first (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// When the candidate is taken, where nothing but its age holds it (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<String>,
    /// One word that says what holds the candidate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A sentence that says what holds the candidate, and what lets it through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What the channel gave when it last gave an older version than the Plan has. No node is started meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawn: Option<String>,
    /// Further versions that may be taken one day, and when each was seen first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Vec<FirstSeen>>,
}

impl ChannelStatus {
    /// When versions were seen first, by the version with `+` as `-`.
    pub fn first_seen(&self) -> BTreeMap<String, Timestamp> {
        let candidate = self.candidate.as_deref().zip(self.since.as_deref());
        let others = self.seen.iter().flatten();
        others
            .map(|seen| (seen.version.as_str(), seen.since.as_str()))
            .chain(candidate)
            .filter_map(|(version, since)| Some((version.replace('+', "-"), since.parse().ok()?)))
            .collect()
    }
}

/// When a version was seen first.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FirstSeen {
    /// The version, with `+` as `-`.
    #[serde(default)]
    pub version: String,
    /// When it was seen first (RFC 3339).
    #[serde(default)]
    pub since: String,
}

/// What the tags of a Plan's images stood for.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PinnedStatus {
    /// The `latestHash` that they were asked for.
    #[serde(default)]
    pub hash: String,
    /// Each image that has a tag, and its digest.
    #[serde(default)]
    pub images: Vec<PinnedImage>,
}

/// An image by digest.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PinnedImage {
    /// The image with its tag.
    #[serde(default)]
    pub image: String,
    /// The digest that the tag stood for: that of the index, where there is one.
    #[serde(default)]
    pub digest: String,
}
