//! `Plan.status`: the fields of system-upgrade-controller with the same meaning, and refit's own. The doc comments are
//! what `kubectl explain` prints.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::open_enum::OpenEnum;
use super::phase::{ConditionType, NodePhase};
use super::reason::Reason;

/// The observed state of the Plan.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanStatus {
    /// `Complete`, `Validated` and `LatestResolved`, in this order, then refit's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<PlanCondition>,
    /// Version that the Plan upgrades to, with `-` instead of `+`. Absent until it is resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_version: Option<String>,
    /// Digest of the version, the service account, the Secrets and the fields that the annotation
    /// `upgrade.cattle.io/digest` names. A node is done when its label `plan.upgrade.cattle.io/<plan>` has this value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_hash: Option<String>,
    /// Hostnames of the nodes that hold a slot of `concurrency` or `maxConcurrent`, including failed ones, ordered by
    /// node name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applying: Option<Vec<String>>,
    /// Generation of the spec that this status describes. If it is less than `metadata.generation`, the controller has
    /// not processed the spec yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Number of nodes in each state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodeCounts>,
    /// Number of nodes done and of nodes selected, such as `12/40`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// All nodes that are in progress or have failed, then waiting nodes, up to 100 in all. Beyond 512 KiB, messages are
    /// omitted first, then failed nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<Vec<NodeProgress>>,
    /// Number of nodes that hold a slot and are not in `active`, because the list is full. `applying` and `nodes` include
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_omitted: Option<i64>,
    /// Result of the last poll of the channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<ChannelStatus>,
    /// Digests of the Plan's images, with `versionPolicy.pinDigest`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<PinnedStatus>,
    /// When the window opens next (RFC 3339). Absent while it is open, and if it never opens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_window: Option<String>,
}

/// A condition as system-upgrade-controller writes it, with `lastUpdateTime`, and with the usual `lastTransitionTime`.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanCondition {
    /// Type of the condition.
    #[serde(default, rename = "type")]
    #[schemars(!default)]
    pub type_: OpenEnum<ConditionType>,
    /// `True`, `False` or `Unknown`.
    #[serde(default)]
    #[schemars(!default)]
    pub status: String,
    /// When status, reason or message last changed (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<String>,
    /// When status last changed (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
    /// Reason for the status, as one word in CamelCase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<OpenEnum<Reason>>,
    /// Reason for the status, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Number of nodes in each state.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeCounts {
    /// Nodes that `nodeSelector` selects, except disabled ones.
    #[serde(default)]
    pub selected: i64,
    /// Nodes whose label `plan.upgrade.cattle.io/<plan>` has the value of `latestHash`.
    #[serde(default)]
    pub done: i64,
    /// Nodes that hold a slot and have not failed.
    #[serde(default)]
    pub applying: i64,
    /// Nodes that have not started.
    #[serde(default)]
    pub waiting: i64,
    /// Nodes on which the Plan failed. They hold a slot.
    #[serde(default)]
    pub failed: i64,
    /// Nodes whose label `plan.upgrade.cattle.io/<plan>` is `disabled`.
    #[serde(default)]
    pub disabled: i64,
}

/// The state of one node under this Plan.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeProgress {
    /// Name of the node.
    #[serde(default)]
    pub name: String,
    /// UID of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// `Waiting`, `Pending`, `Starting`, `Preparing`, `Cordoning`, `Draining`, `Upgrading`, `Finishing`, `Rebooting`,
    /// `Settling` or `Failed`.
    #[serde(default)]
    pub phase: OpenEnum<NodePhase>,
    /// When the node entered the phase (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Name of the Job. Absent while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Number of the attempt on this node for this hash, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<i64>,
    /// Boot ID of the node when it started. Present only if the Plan may reboot it.
    #[serde(rename = "bootID", default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// Why the node does not progress, as one word in CamelCase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<OpenEnum<Reason>>,
    /// Why the node does not progress, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The result of the last poll of the channel, and what the Plan did with it.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChannelStatus {
    /// URL that was polled, without passwords and tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Names of the Secrets that were used for the poll, separated by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<String>,
    /// When a poll began that has not ended (RFC 3339). A controller that finds it after the one before it has ended
    /// waits for two minutes, in case the response ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
    /// When the channel was last polled (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_polled: Option<String>,
    /// When the channel is polled next (RFC 3339). A change of the Plan can cause an earlier poll.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_poll: Option<String>,
    /// Value of the annotation `refit.rs/poll-now` that caused the last requested poll.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polled_for: Option<String>,
    /// Why the last response was not used. Absent if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The next version, while the Plan does not take it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<String>,
    /// When the candidate was published, if the channel says so, otherwise when it was first seen (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// When the Plan takes the candidate (RFC 3339). Present only if nothing but its age holds it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<String>,
    /// What holds the candidate back, as one word in CamelCase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<OpenEnum<Reason>>,
    /// What holds the candidate back, and what would let it through, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The version that the channel offered when it last offered an older version than the Plan's. No node starts while
    /// it is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawn: Option<String>,
    /// Other versions whose age counts, and when each was first seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Vec<FirstSeen>>,
}

impl ChannelStatus {
    /// When each version was first seen. Keys have `-` instead of `+`.
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

/// When a version was first seen.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FirstSeen {
    /// The version, with `-` instead of `+`.
    #[serde(default)]
    pub version: String,
    /// When it was first seen (RFC 3339).
    #[serde(default)]
    pub since: String,
}

/// The digests of a Plan's images.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PinnedStatus {
    /// The `latestHash` for which the digests were resolved.
    #[serde(default)]
    pub hash: String,
    /// Each image that has a tag, and its digest.
    #[serde(default)]
    pub images: Vec<PinnedImage>,
}

/// An image and its digest.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PinnedImage {
    /// The image with its tag.
    #[serde(default)]
    pub image: String,
    /// The digest to which the tag resolved: that of the image index, if there is one.
    #[serde(default)]
    pub digest: String,
}
