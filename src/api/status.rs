//! `Plan.status`: the fields of system-upgrade-controller with the same meaning, and refit's own. The doc comments are
//! what `kubectl explain` prints.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::hook::HookStatus;
use super::object_ref::ObjectRef;
use super::open_enum::OpenEnum;
use super::phase::{CheckPhase, ConditionType, NodePhase, WavePhase};
use super::reason::{Reason, Severity};

/// The observed state of the Plan.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanStatus {
    /// `Complete`, `Validated` and `LatestResolved`, in this order, then refit's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<PlanCondition>,
    /// What keeps the Plan from continuing: of all reasons, the one to look at first.
    ///
    /// Absent while nothing does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<Obstacle>,
    /// What `kubectl get plans` shows as MESSAGE, in at most 80 characters.
    ///
    /// The node that is held and why, or what a condition says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Version that the Plan upgrades to, with `-` instead of `+`.
    ///
    /// Absent until it is resolved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_version: Option<String>,
    /// Digest of the version and of all else that runs the Plan again.
    ///
    /// A node is done when its label `plan.upgrade.cattle.io/<plan>` has this value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_hash: Option<String>,
    /// Hostnames of the nodes that hold a slot of `concurrency` or `maxConcurrent`, including failed ones, ordered by
    /// node name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applying: Option<Vec<String>>,
    /// Generation of the spec that this status describes.
    ///
    /// If it is less than `metadata.generation`, the controller has not processed the spec yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Number of nodes in each state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodeCounts>,
    /// Number of nodes done and of nodes selected, such as `12/40`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// All nodes that are in progress or have failed, then waiting nodes, up to 100 in all and 512 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<Vec<NodeProgress>>,
    /// Number of nodes that hold a slot and are not in `active`, because the list is full.
    ///
    /// `applying` and `nodes` include them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_omitted: Option<i64>,
    /// Done nodes whose kubelet does not have the version that the Plan installed, up to 50.
    ///
    /// Absent if the Plan does not install Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version_differs: Option<Vec<VersionDiffers>>,
    /// The last wave of `waves` that has begun, and what it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wave: Option<WaveStatus>,
    /// The last results of `checks`. refit runs them only while a node waits for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checks: Option<Vec<CheckStatus>>,
    /// Result of the last poll of the channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<ChannelStatus>,
    /// Digests of the Plan's images, with `versionPolicy.pinDigest`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned: Option<PinnedStatus>,
    /// The current repetition and the next one, with `repeat`.
    ///
    /// The current one stays if `repeat` is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat: Option<RepeatStatus>,
    /// When nodes may start next (RFC 3339), by the windows and blackouts.
    ///
    /// Absent while they may, and if they never may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_window: Option<String>,
    /// The longest time that a node has taken in this roll-out, as a Go duration.
    ///
    /// Only with `windows` or blackouts, which need it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_run: Option<String>,
    /// Expected end of the roll-out at its current pace.
    ///
    /// Absent while no node starts, and until a node is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_end: Option<ExpectedEnd>,
    /// The last ten roll-outs, beginning with the current one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<Vec<RollOut>>,
    /// Where the Plan comes from, as its annotations and labels say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// How far `before` is in the current roll-out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Box<HookStatus>>,
    /// How far `after` is in the current roll-out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Box<HookStatus>>,
    /// The limits in spite of which nodes start in this roll-out, from the annotation `refit.rs/despite`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub despite: Option<Vec<DespiteStatus>>,
}

/// Limits that do not count in the current roll-out.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DespiteStatus {
    /// The first characters of the roll-out's hash.
    #[serde(default)]
    pub hash: String,
    /// `window`, `soak`, `checks` or `blackout`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<String>,
    /// The nodes for which they do not count. Absent means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// Who, when and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When the roll-out was complete (RFC 3339). Since then they count again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Why the entry of the annotation is ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invalid: Option<String>,
}

/// What keeps a Plan from continuing.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Obstacle {
    /// The reason as one word in CamelCase.
    #[serde(default)]
    pub reason: OpenEnum<Reason>,
    /// The reason as a sentence.
    #[serde(default)]
    pub message: String,
    /// The node that is held, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Since when the Plan is held by this reason at this node (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The objects that the message is about: where to look next. At most five.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub about: Vec<ObjectRef>,
}

impl Obstacle {
    /// The message, with the node that is held.
    pub fn says(&self) -> String {
        match &self.node {
            Some(node) => format!("Node {node}: {}", self.message),
            None => self.message.clone(),
        }
    }

    /// Whether it is as expected, such as a closed window.
    pub fn is_expected(&self) -> bool {
        let reason = self.reason.known();
        reason.is_some_and(|reason| reason.severity() == Severity::Normal)
    }
}

/// Which repetition the current roll-out is, and when the next one is due.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RepeatStatus {
    /// When the current repetition was due (RFC 3339). It is part of `latestHash`. Absent until the first repetition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// When the next repetition is due (RFC 3339). If the time has passed, the repetition begins when the current roll-out
    /// is over and nodes may start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The schedule to which `next` belongs. After an edit of `repeat`, `next` is a time after the edit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
}

/// When the roll-out is expected to end, from the shortest and the longest time that a node took in it.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExpectedEnd {
    /// If every node takes as long as the fastest one (RFC 3339).
    #[serde(default)]
    pub earliest: String,
    /// If every node takes as long as the slowest one (RFC 3339).
    #[serde(default)]
    pub latest: String,
}

/// A roll-out: from the first node that starts at a hash until no node is left, or another hash replaces it.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollOut {
    /// Version that the nodes were upgraded to.
    #[serde(default)]
    pub version: String,
    /// Hash of the Plan at that version.
    #[serde(default)]
    pub hash: String,
    /// When its first node started (RFC 3339).
    #[serde(default)]
    pub from: String,
    /// When it was complete or replaced (RFC 3339). Absent while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Whether no node was left to upgrade at its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    /// Number of nodes that it has upgraded.
    #[serde(default)]
    pub nodes: i64,
    /// Number of attempts that failed.
    #[serde(default)]
    pub failures: i64,
    /// Seconds that the fastest node took, from its Job to its label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shortest_seconds: Option<i64>,
    /// Seconds that the slowest node took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_seconds: Option<i64>,
    /// Who approved the version and when, from the annotation `refit.rs/approve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approved: Option<String>,
    /// The approvals of its waves: wave, who and when, from the annotation `refit.rs/approve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approved_waves: Option<Vec<String>>,
    /// The limits in spite of which its nodes could start: limits, nodes, who, when and why, from the annotation
    /// `refit.rs/despite`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub despite: Option<Vec<String>>,
    /// Who ran the Plan again at the same version and when, from the annotation `refit.rs/rerun`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rerun: Option<String>,
    /// When it was due, if it is a repetition (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat: Option<String>,
    /// Commit that the Plan came from when the roll-out started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

/// Where a Plan comes from.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    /// The object of the GitOps tool that applies the Plan, such as `Kustomization flux-system/apps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manager: Option<String>,
    /// The commit, from the annotation `refit.rs/commit`, or the reference in `config.kubernetes.io/origin`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The author, from the annotation `refit.rs/author`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
}

/// A condition as system-upgrade-controller writes it, with `lastUpdateTime`, and with the usual `lastTransitionTime`.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanCondition {
    /// `Complete`, `Validated`, `LatestResolved`, `UpToDate` or `Degraded`.
    #[serde(default, rename = "type")]
    #[schemars(!default)]
    pub type_: OpenEnum<ConditionType>,
    /// `True`, `False` or `Unknown`.
    #[serde(default)]
    #[schemars(!default)]
    pub status: String,
    /// When status, reason or message last changed (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<String>,
    /// When status last changed (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
    /// Reason for the status, as one word in CamelCase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<OpenEnum<Reason>>,
    /// Reason for the status, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl PlanStatus {
    /// The nodes that have a slot. `active` also has others, for users.
    pub fn slots(&self) -> impl Iterator<Item = &NodeProgress> {
        self.active.iter().flatten().filter(|entry| entry.has_slot())
    }

    pub fn condition(&self, type_: ConditionType) -> Option<&PlanCondition> {
        self.conditions.iter().find(|condition| condition.type_ == type_)
    }

    /// Whether the condition of this type is True.
    pub fn is_true(&self, type_: ConditionType) -> bool {
        self.condition(type_)
            .is_some_and(|condition| condition.status == "True")
    }
}

/// Number of nodes in each state.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeCounts {
    /// Nodes that `nodeSelector` selects, except disabled and skipped ones.
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
    /// Nodes on which the Plan failed. With `failure.policy: Hold`, the default, they hold a slot.
    #[serde(default)]
    pub failed: i64,
    /// Nodes whose label `plan.upgrade.cattle.io/<plan>` is `disabled`.
    #[serde(default)]
    pub disabled: i64,
    /// Nodes that the annotation `refit.rs/skip` excludes at this version. Absent means none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<i64>,
}

/// The state of one node under this Plan.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeProgress {
    /// Name of the node.
    #[serde(default)]
    pub name: String,
    /// UID of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// `Waiting`, `Pending`, `Starting`, `Preparing`, `Cordoning`, `Draining`, `Upgrading`, `Finishing`, `Rebooting`,
    /// `Settling`, `Verifying` or `Failed`.
    #[serde(default)]
    pub phase: OpenEnum<NodePhase>,
    /// When the node entered the phase (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Name of the Job. Absent while there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Number of the attempt on this node for this hash, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<i64>,
    /// Boot ID of the node when it started. Present only if the Plan may reboot it.
    #[serde(rename = "bootID", skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// Why the node does not progress, as one word in CamelCase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<OpenEnum<Reason>>,
    /// Why the node does not progress, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The objects that the message is about: where to look next. At most five.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub about: Vec<ObjectRef>,
}

impl NodeProgress {
    pub fn has_slot(&self) -> bool {
        self.phase != NodePhase::Waiting
    }

    pub fn is_failed(&self) -> bool {
        self.phase == NodePhase::Failed
    }
}

/// A done node whose kubelet has another version than the Plan.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VersionDiffers {
    /// Name of the node.
    #[serde(default)]
    pub name: String,
    /// UID of the node.
    #[serde(default)]
    pub uid: String,
    /// Version of its kubelet.
    #[serde(default)]
    pub kubelet_version: String,
    /// Since when refit knows of it (RFC 3339). For a minute from then it is not reported: a kubelet takes a while to start.
    #[serde(default)]
    pub since: String,
    /// `VersionDiffers`: the upgrade has not changed it, or something else has since. `Drifted`: it had the Plan's version,
    /// and has an older one now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<OpenEnum<Reason>>,
}

impl VersionDiffers {
    /// How long a kubelet may take to report its new version: the Job of an image such as `k3s-upgrade` ends before K3s has
    /// restarted.
    pub const GRACE: SignedDuration = SignedDuration::from_secs(60);
}

/// The last wave that has begun.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaveStatus {
    /// Its index in `spec.waves`, from 0.
    #[serde(default)]
    pub index: i64,
    /// Its name, or `wave-1` for the first one without a name, and so on.
    #[serde(default)]
    pub name: String,
    /// The `latestHash` of the roll-out. At another hash, the first wave begins again.
    #[serde(default)]
    pub hash: String,
    /// `Progressing`, `Soaking` or `AwaitingApproval`.
    #[serde(default)]
    pub phase: OpenEnum<WavePhase>,
    /// When the wave entered the phase (RFC 3339). A soak counts from here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// When the soak ends, if all upgraded nodes stay Ready (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// What the nodes of later waves wait for. Absent in the last wave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The last answer to a check.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckStatus {
    /// Name of the check.
    #[serde(default)]
    pub name: String,
    /// `Pending`, `Passing` or `Failing`.
    #[serde(default)]
    pub phase: OpenEnum<CheckPhase>,
    /// When the check entered the phase (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// What the server answered, or why there is no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The result of the last poll of the channel, and what the Plan did with it.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChannelStatus {
    /// URL that was polled, without passwords and tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Names of the Secrets that were used for the poll, separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secrets: Option<String>,
    /// When a poll began that has not ended (RFC 3339). If the controller crashed during the poll, its successor waits two
    /// minutes before it polls again, in case the response caused the crash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
    /// When the channel was last polled (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_polled: Option<String>,
    /// When the channel is polled next (RFC 3339). A change of the Plan can cause an earlier poll.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_poll: Option<String>,
    /// Value of the annotation `refit.rs/poll-now` that caused the last requested poll.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub polled_for: Option<String>,
    /// Why the last response was not used. Absent if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The next version, while the Plan does not take it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidate: Option<String>,
    /// When the candidate was published, if the channel says so, otherwise when it was first seen (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// When the Plan takes the candidate (RFC 3339). Present only if nothing but its age holds it back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<String>,
    /// What holds the candidate back, as one word in CamelCase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<OpenEnum<Reason>>,
    /// What holds the candidate back, and what would let it through, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The version that the channel offered when it last offered an older version than the Plan's. No node starts while
    /// it is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withdrawn: Option<String>,
    /// Other versions whose age counts, and when each was first seen.
    #[serde(skip_serializing_if = "Option::is_none")]
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
