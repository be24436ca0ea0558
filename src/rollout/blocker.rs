//! Typed reasons why a node, or a whole Plan, does not start. [`Reason`] has the general meaning; the variants add the
//! details of the message.

mod about;
mod message;

use jiff::{SignedDuration, Timestamp};

use refit_api::names::ControlPlaneRole;
use refit_api::{Hook, NodeConditionType, ObjectRef, Reason};
use refit_base::go::GoDuration;
use refit_facts::{DrainFinding, JobName, NodeName, PlanName, Taint, Text};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocker {
    /// All slots of `concurrency` or `maxConcurrent` are in use.
    NoSlot {
        limit: i64,
    },
    /// The stored status has no room for another slot.
    StatusFull {
        /// The nodes with a slot.
        slots: usize,
    },
    /// As many nodes are unavailable as `maxUnavailable` allows, and not all of them because of this Plan.
    MaxUnavailable {
        limit: i64,
        /// Unavailable nodes that this Plan does not work on.
        nodes: Vec<NodeName>,
    },
    /// The order takes nodes of another group first, and one of them is left.
    EarlierNodes {
        node: NodeName,
        /// The group of that node, in words.
        group: String,
        /// Why it does not progress, if it needs a person.
        why: Option<String>,
    },
    /// Without the node, no majority of the control plane would be available.
    ControlPlaneQuorum {
        role: ControlPlaneRole,
        /// Number of nodes with the role.
        of: usize,
        /// Number of nodes that are a majority.
        needed: usize,
        /// Other nodes with the role that are not available.
        down: Vec<NodeName>,
        /// Those of them that are Ready, and whose member of etcd is not.
        voteless: Vec<NodeName>,
    },
    /// With `failure.policy: Stop`, the budget is used up.
    FailureBudget {
        failed: i64,
        budget: i64,
    },
    /// An earlier wave is not over.
    WaveInProgress {
        wave: String,
        /// A node that holds it, if one needs a person, and why.
        held_by: Option<(NodeName, &'static str)>,
    },
    /// The nodes of a wave must stay Ready first.
    WaveSoaking {
        wave: String,
        until: Option<Timestamp>,
    },
    /// A wave is over and waits for approval.
    WaveNotApproved {
        wave: String,
        /// The item of the annotation that approves it.
        approval: String,
    },
    /// The last answer to a check was not good.
    CheckFailing {
        check: String,
        answer: String,
        since: Option<Timestamp>,
    },
    /// More answers to a check are needed.
    CheckPending {
        check: String,
        /// Number of good answers so far.
        passed: u32,
        passes: u32,
    },
    /// The `ConfigMap` `refit` lets no node start.
    Frozen {
        reason: String,
        /// Whether that is because it cannot be read.
        invalid: bool,
    },
    /// A limit of the `ConfigMap` `refit` is used up.
    ClusterLimit {
        key: &'static str,
        limit: usize,
        /// Some of the nodes that count.
        nodes: Vec<NodeName>,
        /// Their number.
        count: usize,
    },
    /// `concurrency` and `maxConcurrent` are 0 or absent.
    ConcurrencyZero,
    /// The node is not Ready, and the Plan does not tolerate that.
    NodeNotReady,
    /// The node has just been registered.
    NodeJoining(Joining),
    NodeBusy {
        /// The Plan, or another object, and the one that it is of.
        by: Vec<ObjectRef>,
    },
    /// Another client has set a condition of the node to True that says so.
    NodeInMaintenance {
        node: NodeName,
        type_: NodeConditionType,
        /// The condition's reason, as it was read.
        reason: Text,
    },
    WindowClosed {
        field: &'static str,
        /// The next opening, if there is one.
        opens: Option<Timestamp>,
    },
    Blackout {
        /// Whether it is for all Plans.
        of_all: bool,
        /// Why; may be empty.
        reason: String,
        until: Timestamp,
        /// When nodes may start again, if ever.
        opens: Option<Timestamp>,
    },
    NotBefore {
        at: Timestamp,
    },
    /// A node that started now might not finish when the window closes, or a blackout begins.
    WindowTooShort {
        end: Timestamp,
        /// The time limit of a node, if there is one.
        limit: Option<SignedDuration>,
        /// The part of it in which `drain.waitFor` may wait.
        waits: GoDuration,
        /// The longest time that a node has taken.
        longest_run: Option<SignedDuration>,
        /// The length of the longest window, if it is too short.
        longest_window: Option<SignedDuration>,
        /// When nodes may start again, if ever.
        opens: Option<Timestamp>,
    },
    /// `spec.suspend` is true.
    Suspended {
        /// Who set it and when, if the annotation `refit.rs/suspended` says so.
        by: Option<String>,
    },
    /// The Plan has the annotation `refit.rs/abort`.
    Aborted {
        by: Option<String>,
    },
    /// The Node has the annotation `refit.rs/skip` for this Plan.
    Skipped {
        version: String,
        by: Option<String>,
    },
    /// The Plan is invalid, has no version yet, or must be read again.
    NotReady,
    /// The served CRD lacks fields of refit.
    SchemaOutdated {
        missing: String,
    },
    /// The Plan has lost fields to an old CRD.
    SpecPruned,
    MissingPermission {
        /// Verb and resource.
        what: String,
        /// The roles of `deploy/` that grant it.
        roles: Vec<ObjectRef>,
    },
    /// An image reference is invalid, or the version cannot be its tag.
    ImageInvalid {
        why: String,
    },
    /// The image that cordons, drains and reboots is not known.
    OwnImageUnknown,
    SettingMissing {
        name: &'static str,
    },
    /// Jobs that are not refit's have both names that the Job could have.
    NameTaken {
        /// Kind of the object that has the name.
        kind: &'static str,
        name: String,
    },
    /// A Job of an earlier Plan or Node with the same name is being deleted.
    JobLeaving {
        job: String,
    },
    /// A pod of a deleted Job still runs on the node.
    PodLeaving {
        pod: String,
    },
    /// The channel offers an older version than the Plan has.
    ChannelWithdrawn {
        offered: String,
        current: String,
    },
    /// The version of the Plan is outside of `versionPolicy.range`.
    VersionOutOfRange {
        version: String,
        range: String,
    },
    /// A Plan in `dependsOn` is not complete, or at another version.
    DependencyNotComplete {
        plan: PlanName,
        /// The predicate of a sentence about it.
        why: String,
    },
    /// Plans in `dependsOn` do not exist.
    DependencyUnknown {
        plans: Vec<PlanName>,
    },
    /// A Plan in `dependsOn` selects no node.
    DependencySelectsNothing {
        plan: PlanName,
    },
    /// Plans wait for each other.
    DependencyCycle {
        /// Its members, in the order in which they wait.
        plans: Vec<PlanName>,
    },
    /// The registry has not answered about an image yet.
    DigestUnknown {
        image: String,
        /// Empty while the request is in flight.
        why: String,
        /// Whether Jobs run the digest.
        pins: bool,
    },
    /// The registry says that an image does not exist.
    ImageMissing {
        image: String,
        /// The status line of its answer.
        answer: String,
        /// Whether Jobs run the digest.
        pins: bool,
    },
    /// The kubelet's version is newer than the Plan's.
    NodeIsNewer {
        kubelet: Text,
        version: Text,
    },
    /// The control plane must have the version before other nodes.
    ControlPlaneOlder {
        /// The node that has not; without one, the API server.
        node: Option<NodeName>,
        has: Text,
        version: Text,
    },
    /// The kubelet's version is too far from the Plan's version, or cannot be compared with it.
    MinorSkip {
        kubelet: Text,
        version: Text,
        /// The difference in minor versions, if the two can be compared.
        skip: Option<u64>,
        /// `versionPolicy.maxMinorSkip`.
        limit: u64,
    },
    /// The scheduler would keep the Job's pod off the node.
    TaintNotTolerated {
        /// The taints that the Plan does not tolerate.
        taints: Vec<Taint>,
    },
    /// The node has rebooted and needs a reboot again, for the same reason.
    RebootIneffective {
        /// What says so.
        why: String,
    },
    /// The Node cannot be read.
    NodeUnreadable {
        why: String,
    },
    /// The kubelet has the version, and the node is being marked as done.
    AtVersion {
        version: Text,
    },
    /// A pod runs on the node for which it waits.
    PodBlocks {
        /// Its namespace and name.
        pod: Text,
    },
    /// A drain of the node would not end.
    DrainWouldBlock(DrainFinding),
    /// Its drain has released it, because pods had not ended in time.
    DrainSkipped {
        why: String,
        /// When its turn comes again.
        until: Timestamp,
    },
    /// It is not known yet whether such a pod runs on the node.
    PodsPending {
        /// The field that asks.
        field: &'static str,
        /// Why the pods cannot be listed.
        why: Option<String>,
    },
    /// Another one holds the Lease of the node.
    NodeLeased {
        node: NodeName,
        holder: Text,
        until: Timestamp,
    },
    /// The Lease of the node has not been read or taken yet.
    LeasePending {
        node: NodeName,
        /// Why it cannot be.
        why: Option<String>,
    },
    /// The API server refused the Job.
    JobRefused {
        why: String,
    },
    /// The Job of `spec.before` or `spec.after` runs, or is to be created.
    HookRunning {
        hook: Hook,
        job: JobName,
        /// Since when it is there.
        since: Option<Timestamp>,
        /// What its pod waits for, or why it cannot be created.
        waits: Option<String>,
    },
    /// It failed.
    HookFailed {
        hook: Hook,
        job: JobName,
        why: String,
        /// When it is tried again; `None` if that takes a person.
        due: Option<Timestamp>,
    },
}

/// What shows that a node is still joining.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Joining {
    /// A start-up taint.
    Taint(Taint),
    /// It is too young, until this time.
    Until(Timestamp),
}

/// What follows from a blocker, besides that the node waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Property {
    /// Nodes that have started continue, because stopping would leave them half upgraded.
    KeepsNewNodes,
    /// Nodes that need no Job are marked as done nevertheless, because that disturbs nothing.
    PermitsAdoption,
    /// Nodes may start in spite of it, if a person wants that.
    MayBeLifted,
    /// Failed nodes are tried again nevertheless, because that can resolve it.
    PermitsRetries,
    /// Only other nodes have to finish. A node that could not start anyway reports its own blocker instead.
    Capacity,
}

use Property::{Capacity, KeepsNewNodes, MayBeLifted, PermitsAdoption, PermitsRetries};

impl Blocker {
    /// The reason for conditions, events and metrics.
    pub fn reason(&self) -> Reason {
        self.row().0
    }

    fn is(&self, property: Property) -> bool {
        self.row().1.contains(&property)
    }

    /// Whether it only keeps new nodes from starting.
    pub(super) fn is_for_new_nodes(&self) -> bool {
        self.is(KeepsNewNodes) || self.is_about_existence()
    }

    /// Whether it ends once an image is known to exist, whatever its digest.
    pub(super) fn is_about_existence(&self) -> bool {
        matches!(
            self,
            Self::DigestUnknown { pins: false, .. } | Self::ImageMissing { pins: false, .. }
        )
    }

    /// Whether nodes that need no Job are marked as done nevertheless.
    pub(super) fn permits_adoption(&self) -> bool {
        self.is(PermitsAdoption)
    }

    /// Whether a hook could run now, and has no Job.
    pub(super) fn is_hook_due(&self) -> bool {
        matches!(self, Self::HookRunning { since: None, .. })
    }

    /// Whether nodes may start in spite of it, if a person wants that (`refit_api::exemption::StartLimit`).
    pub(super) fn may_be_lifted(&self) -> bool {
        self.is(MayBeLifted)
    }

    /// When nodes may start again, if a window or a blackout keeps them from it.
    pub(super) fn next_window(&self) -> Option<Timestamp> {
        match self {
            // With `longest_window` no window will ever be long enough.
            Self::WindowClosed { opens, .. }
            | Self::Blackout { opens, .. }
            | Self::WindowTooShort {
                longest_window: None,
                opens,
                ..
            } => *opens,
            _ => None,
        }
    }

    /// Whether failed nodes are tried again nevertheless.
    pub(super) fn permits_retries(&self) -> bool {
        self.is(PermitsRetries)
    }

    /// Whether the node waits only for other nodes to finish.
    pub(super) fn is_capacity(&self) -> bool {
        self.is(Capacity)
    }

    /// Its reason, and what follows from it: a new blocker must say both.
    fn row(&self) -> (Reason, &'static [Property]) {
        match self {
            Self::NoSlot { .. } => (Reason::NoSlot, &[Capacity]),
            Self::StatusFull { .. } => (Reason::StatusFull, &[Capacity]),
            Self::MaxUnavailable { .. } => (Reason::MaxUnavailable, &[Capacity]),
            Self::EarlierNodes { .. } => (Reason::EarlierNodes, &[Capacity]),
            Self::ControlPlaneQuorum { .. } => (Reason::ControlPlaneQuorum, &[]),
            Self::FailureBudget { .. } => (
                Reason::FailureBudget,
                &[KeepsNewNodes, PermitsAdoption, PermitsRetries],
            ),
            Self::WaveInProgress { .. } => (Reason::WaveInProgress, &[Capacity]),
            Self::WaveSoaking { .. } => (Reason::WaveSoaking, &[MayBeLifted]),
            Self::WaveNotApproved { .. } => (Reason::WaveNotApproved, &[]),
            Self::CheckFailing { .. } => (Reason::CheckFailing, &[KeepsNewNodes, MayBeLifted]),
            Self::CheckPending { .. } => (Reason::CheckPending, &[KeepsNewNodes, MayBeLifted]),
            Self::Frozen { .. } => (Reason::Frozen, &[KeepsNewNodes]),
            Self::ClusterLimit { .. } => (Reason::ClusterLimit, &[Capacity]),
            Self::ConcurrencyZero => (Reason::ConcurrencyZero, &[KeepsNewNodes]),
            Self::NodeNotReady => (Reason::NodeNotReady, &[]),
            Self::NodeJoining(_) => (Reason::NodeJoining, &[]),
            Self::NodeBusy { .. } | Self::NodeInMaintenance { .. } | Self::NodeLeased { .. } => {
                (Reason::NodeBusy, &[])
            }
            Self::WindowClosed { .. } => (
                Reason::WindowClosed,
                &[KeepsNewNodes, PermitsAdoption, MayBeLifted],
            ),
            Self::Blackout { .. } => (Reason::Blackout, &[KeepsNewNodes, PermitsAdoption, MayBeLifted]),
            Self::NotBefore { .. } => (Reason::NotBefore, &[KeepsNewNodes, PermitsAdoption, MayBeLifted]),
            Self::WindowTooShort { .. } => (
                Reason::WindowTooShort,
                &[KeepsNewNodes, PermitsAdoption, MayBeLifted],
            ),
            Self::Suspended { .. } => (Reason::Suspended, &[KeepsNewNodes]),
            Self::Aborted { .. } => (Reason::Aborted, &[]),
            Self::Skipped { .. } => (Reason::Skipped, &[]),
            Self::NotReady => (Reason::NotReady, &[]),
            Self::SchemaOutdated { .. } => (Reason::SchemaOutdated, &[]),
            Self::SpecPruned => (Reason::SpecPruned, &[]),
            Self::MissingPermission { .. } => (Reason::MissingPermission, &[]),
            Self::ImageInvalid { .. } => (Reason::ImageInvalid, &[]),
            Self::OwnImageUnknown => (Reason::OwnImageUnknown, &[]),
            Self::SettingMissing { .. } => (Reason::SettingMissing, &[]),
            Self::NameTaken { .. } => (Reason::NameTaken, &[]),
            Self::JobLeaving { .. } => (Reason::JobLeaving, &[]),
            Self::PodLeaving { .. } => (Reason::PodLeaving, &[]),
            Self::ChannelWithdrawn { .. } => (Reason::ChannelWithdrawn, &[KeepsNewNodes]),
            Self::VersionOutOfRange { .. } => (Reason::VersionOutOfRange, &[KeepsNewNodes]),
            Self::DependencyNotComplete { .. } => {
                (Reason::DependencyNotComplete, &[KeepsNewNodes, PermitsAdoption])
            }
            Self::DependencyUnknown { .. } => (Reason::DependencyUnknown, &[KeepsNewNodes]),
            Self::DependencySelectsNothing { .. } => (Reason::DependencySelectsNothing, &[KeepsNewNodes]),
            Self::DependencyCycle { .. } => (Reason::DependencyCycle, &[KeepsNewNodes]),
            Self::DigestUnknown { why, .. } if why.is_empty() => (Reason::DigestPending, &[]),
            Self::DigestUnknown { .. } => (Reason::DigestUnknown, &[]),
            Self::ImageMissing { .. } => (Reason::ImageMissing, &[PermitsAdoption]),
            Self::NodeIsNewer { .. } => (Reason::NodeIsNewer, &[]),
            Self::ControlPlaneOlder { .. } => (Reason::ControlPlaneOlder, &[]),
            Self::MinorSkip { .. } => (Reason::MinorSkip, &[]),
            Self::TaintNotTolerated { .. } => (Reason::TaintNotTolerated, &[]),
            Self::AtVersion { .. } => (Reason::AtVersion, &[]),
            Self::PodBlocks { .. } => (Reason::PodBlocks, &[]),
            Self::DrainWouldBlock(_) => (Reason::DrainWouldBlock, &[]),
            Self::DrainSkipped { .. } => (Reason::DrainSkipped, &[]),
            Self::PodsPending { .. } => (Reason::PodsPending, &[]),
            Self::RebootIneffective { .. } => (Reason::RebootIneffective, &[]),
            Self::NodeUnreadable { .. } => (Reason::ObjectUnreadable, &[]),
            Self::LeasePending { .. } => (Reason::LeasePending, &[]),
            Self::JobRefused { .. } => (Reason::JobRefused, &[]),
            Self::HookRunning {
                hook: Hook::Before, ..
            } => (Reason::BeforeRunning, &[PermitsAdoption]),
            Self::HookFailed {
                hook: Hook::Before, ..
            } => (Reason::BeforeFailed, &[PermitsAdoption]),
            Self::HookRunning {
                hook: Hook::After, ..
            } => (Reason::AfterRunning, &[PermitsAdoption]),
            Self::HookFailed {
                hook: Hook::After, ..
            } => (Reason::AfterFailed, &[PermitsAdoption]),
        }
    }
}
