//! Typed reasons why a node, or a whole Plan, does not start. [`Reason`] has the general meaning; the variants add the
//! details of the message.

use std::fmt;

use jiff::{SignedDuration, Timestamp};

use super::facts::{NodeName, PlanName, Text};
use crate::api::Reason;
use crate::api::annotation::BY_PREFLIGHT;
use crate::api::names::{self, ControlPlaneRole};

/// Maximum number of nodes named in a message.
const NODES_IN_MESSAGE: usize = 3;

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
        /// Why it does not go on, if it needs a person.
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
    },
    /// With `failure.policy: Stop`, the budget is used up.
    FailureBudget {
        failed: i64,
        budget: i64,
    },
    /// An earlier wave is not over.
    WaveInProgress {
        wave: String,
        /// A node that holds it, if one needs a person.
        why: Option<String>,
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
    NodeBusy {
        /// The Plan, or the kind and name of another object.
        by: String,
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
    /// A node that started now might not finish when the window closes, or a blackout begins.
    WindowTooShort {
        end: Timestamp,
        /// The time limit of a node, if there is one.
        limit: Option<SignedDuration>,
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
    /// Plans wait for each other.
    DependencyCycle {
        /// Its members, in the order in which they wait.
        plans: Vec<PlanName>,
    },
    /// The digest of an image tag has not been resolved yet.
    DigestUnknown {
        image: String,
        /// Empty while the request is in flight.
        why: String,
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
    /// It is not known yet whether such a pod runs on the node.
    PodsPending {
        /// Why the pods cannot be listed.
        why: Option<String>,
    },
    /// The API server refused the Job.
    JobRefused {
        why: String,
    },
}

impl Blocker {
    /// Whether the blocker only keeps new nodes from starting. Nodes that have started continue, because stopping would
    /// leave them half upgraded.
    pub(super) fn is_for_new_nodes(&self) -> bool {
        matches!(
            self,
            Self::Suspended { .. }
                | Self::WindowClosed { .. }
                | Self::Blackout { .. }
                | Self::WindowTooShort { .. }
                | Self::ConcurrencyZero
                | Self::ChannelWithdrawn { .. }
                | Self::VersionOutOfRange { .. }
                | Self::DependencyNotComplete { .. }
                | Self::DependencyUnknown { .. }
                | Self::DependencyCycle { .. }
                | Self::FailureBudget { .. }
                | Self::Frozen { .. }
                | Self::CheckFailing { .. }
                | Self::CheckPending { .. }
        )
    }

    /// Whether nodes that need no Job are marked as done nevertheless, because that disturbs nothing.
    pub(super) fn permits_marks(&self) -> bool {
        matches!(
            self,
            Self::WindowClosed { .. }
                | Self::Blackout { .. }
                | Self::WindowTooShort { .. }
                | Self::DependencyNotComplete { .. }
                | Self::FailureBudget { .. }
        )
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

    /// Whether failed nodes are tried again nevertheless, because that can resolve it.
    pub(super) fn permits_retries(&self) -> bool {
        matches!(self, Self::FailureBudget { .. })
    }

    /// Whether the node waits only for other nodes to finish. A node that could not start anyway reports its own
    /// blocker instead.
    pub(super) fn is_for_want_of_room(&self) -> bool {
        matches!(
            self,
            Self::NoSlot { .. }
                | Self::StatusFull { .. }
                | Self::MaxUnavailable { .. }
                | Self::EarlierNodes { .. }
                | Self::WaveInProgress { .. }
                | Self::ClusterLimit { .. }
        )
    }

    /// The reason for conditions, events and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::NoSlot { .. } => Reason::NoSlot,
            Self::StatusFull { .. } => Reason::StatusFull,
            Self::MaxUnavailable { .. } => Reason::MaxUnavailable,
            Self::EarlierNodes { .. } => Reason::EarlierNodes,
            Self::ControlPlaneQuorum { .. } => Reason::ControlPlaneQuorum,
            Self::FailureBudget { .. } => Reason::FailureBudget,
            Self::WaveInProgress { .. } => Reason::WaveInProgress,
            Self::WaveSoaking { .. } => Reason::WaveSoaking,
            Self::WaveNotApproved { .. } => Reason::WaveNotApproved,
            Self::CheckFailing { .. } => Reason::CheckFailing,
            Self::CheckPending { .. } => Reason::CheckPending,
            Self::Frozen { .. } => Reason::Frozen,
            Self::ClusterLimit { .. } => Reason::ClusterLimit,
            Self::ConcurrencyZero => Reason::ConcurrencyZero,
            Self::NodeNotReady => Reason::NodeNotReady,
            Self::NodeBusy { .. } => Reason::NodeBusy,
            Self::WindowClosed { .. } => Reason::WindowClosed,
            Self::Blackout { .. } => Reason::Blackout,
            Self::WindowTooShort { .. } => Reason::WindowTooShort,
            Self::Suspended { .. } => Reason::Suspended,
            Self::Aborted { .. } => Reason::Aborted,
            Self::Skipped { .. } => Reason::Skipped,
            Self::NotReady => Reason::NotReady,
            Self::SchemaOutdated { .. } => Reason::SchemaOutdated,
            Self::SpecPruned => Reason::SpecPruned,
            Self::MissingPermission { .. } => Reason::MissingPermission,
            Self::ImageInvalid { .. } => Reason::ImageInvalid,
            Self::OwnImageUnknown => Reason::OwnImageUnknown,
            Self::SettingMissing { .. } => Reason::SettingMissing,
            Self::NameTaken { .. } => Reason::NameTaken,
            Self::JobLeaving { .. } => Reason::JobLeaving,
            Self::PodLeaving { .. } => Reason::PodLeaving,
            Self::ChannelWithdrawn { .. } => Reason::ChannelWithdrawn,
            Self::VersionOutOfRange { .. } => Reason::VersionOutOfRange,
            Self::DependencyNotComplete { .. } => Reason::DependencyNotComplete,
            Self::DependencyUnknown { .. } => Reason::DependencyUnknown,
            Self::DependencyCycle { .. } => Reason::DependencyCycle,
            Self::DigestUnknown { why, .. } if why.is_empty() => Reason::DigestPending,
            Self::DigestUnknown { .. } => Reason::DigestUnknown,
            Self::MinorSkip { .. } => Reason::MinorSkip,
            Self::AtVersion { .. } => Reason::AtVersion,
            Self::PodBlocks { .. } => Reason::PodBlocks,
            Self::PodsPending { .. } => Reason::PodsPending,
            Self::RebootIneffective { .. } => Reason::RebootIneffective,
            Self::NodeUnreadable { .. } => Reason::ObjectUnreadable,
            Self::JobRefused { .. } => Reason::JobRefused,
        }
    }
}

/// Writes `a, b, c and 2 more are unavailable`.
fn write_unavailable(f: &mut fmt::Formatter<'_>, nodes: &[NodeName]) -> fmt::Result {
    let (named, more) = nodes.split_at(nodes.len().min(NODES_IN_MESSAGE));
    f.write_str(&named.join(", "))?;
    match (nodes.len(), more.len()) {
        (1, _) => f.write_str(" is unavailable"),
        (_, 0) => f.write_str(" are unavailable"),
        (_, more) => write!(f, " and {more} more are unavailable"),
    }
}

impl fmt::Display for Blocker {
    #[expect(clippy::too_many_lines, reason = "one arm for each blocker")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSlot { limit: 1 } => write!(f, "the Plan's only slot is in use"),
            Self::NoSlot { limit } => write!(f, "all {limit} slots of the Plan are in use"),
            Self::StatusFull { slots } => {
                write!(
                    f,
                    "the Plan's status has no room for another node; {slots} are in progress"
                )
            }
            Self::MaxUnavailable { limit, nodes } => {
                write!(f, "spec.maxUnavailable is {limit}: no further node starts while ")?;
                write_unavailable(f, nodes)
            }
            Self::ControlPlaneQuorum {
                role,
                of,
                needed,
                down,
            } => {
                let (role, rest) = (role.as_str(), of.saturating_sub(down.len() + 1));
                write!(
                    f,
                    "without the node, {rest} of {of} {role} nodes would be available, and {needed} are needed: "
                )?;
                write_unavailable(f, down)
            }
            Self::EarlierNodes { node, group, why } => {
                write!(
                    f,
                    "spec.order: {node} is left ({group}), and other nodes wait until it is done"
                )?;
                why.as_ref().map_or(Ok(()), |why| write!(f, "; {why}"))
            }
            Self::FailureBudget { failed, budget } => write!(
                f,
                "{failed} of the selected nodes have failed, and spec.failure.budget is {budget}: no further node starts until they are \
                 retried or repaired, or the budget is raised"
            ),
            Self::WaveInProgress { wave, why } => {
                write!(f, "spec.waves: wave {wave} comes first, and is not over")?;
                why.as_ref().map_or(Ok(()), |why| write!(f, "; {why}"))
            }
            Self::WaveSoaking { wave, until } => {
                write!(f, "spec.waves: no node starts while wave {wave} soaks")?;
                until.map_or(Ok(()), |until| write!(f, ", until {until}"))
            }
            Self::WaveNotApproved { wave, approval } => write!(
                f,
                "spec.waves: wave {wave} is over and waits for approval; set the annotation {}: {approval} on the Plan to go on",
                names::ANNOTATION_APPROVE
            ),
            Self::CheckFailing { check, answer, since } => {
                write!(f, "spec.checks: no node starts, because check {check} fails")?;
                if let Some(since) = since {
                    write!(f, ", since {}", super::conditions::seconds(*since))?;
                }
                write!(f, ": {answer}")
            }
            Self::CheckPending { check, passed: 0, .. } => {
                write!(f, "spec.checks: check {check} is being asked")
            }
            Self::CheckPending {
                check,
                passed,
                passes,
            } => write!(
                f,
                "spec.checks: check {check} has passed {passed} times, and {passes} times in a row are needed"
            ),
            Self::Frozen {
                reason,
                invalid: false,
            } => write!(f, "no node starts, by ConfigMap refit: {reason}"),
            Self::Frozen {
                reason,
                invalid: true,
            } => {
                write!(
                    f,
                    "ConfigMap refit cannot be read, so no node starts until it is corrected: {reason}"
                )
            }
            Self::ClusterLimit {
                key,
                limit,
                nodes,
                count,
            } => {
                write!(
                    f,
                    "{key} of ConfigMap refit is {limit}, and {count} nodes count: "
                )?;
                let (named, _) = nodes.split_at(nodes.len().min(NODES_IN_MESSAGE));
                f.write_str(&named.join(", "))?;
                match count.saturating_sub(named.len()) {
                    0 => Ok(()),
                    more => write!(f, " and {more} more"),
                }
            }
            Self::ConcurrencyZero => write!(
                f,
                "spec.concurrency is 0 or absent, so no node starts; set it, or spec.maxConcurrent"
            ),
            Self::NodeNotReady => write!(f, "the node is not Ready"),
            Self::NodeBusy { by } => write!(f, "{by} works on the node"),
            Self::WindowClosed {
                field,
                opens: Some(at),
            } => write!(f, "{field} is closed and opens at {at}"),
            Self::WindowClosed { field, opens: None } => write!(f, "{field} is closed and never opens"),
            Self::Blackout {
                of_all,
                reason,
                until,
                ..
            } => {
                let place = if *of_all {
                    "ConfigMap refit"
                } else {
                    "spec.blackouts"
                };
                write!(f, "a blackout of {place} lasts until {until}")?;
                if reason.is_empty() {
                    Ok(())
                } else {
                    write!(f, ": {reason}")
                }
            }
            Self::WindowTooShort {
                end,
                limit,
                longest_run,
                longest_window,
                opens,
            } => {
                let figure = |time: &Option<SignedDuration>, none: &str| match time {
                    Some(time) => format!("{time:#}"),
                    None => none.to_owned(),
                };
                write!(
                    f,
                    "a node that starts now might not finish by {end}, when no node may be in progress: its time limit is {}, and the \
                     longest time in this roll-out was {}",
                    figure(limit, "none"),
                    figure(longest_run, "none yet")
                )?;
                match (longest_window, opens) {
                    (Some(window), _) => write!(
                        f,
                        "; no window is ever long enough, the longest has {window:#}: lengthen one, or shorten \
                         spec.jobActiveDeadlineSecs"
                    ),
                    (None, Some(at)) => write!(f, "; nodes may start again at {at}"),
                    (None, None) => Ok(()),
                }
            }
            Self::Suspended { by: None } => write!(f, "spec.suspend is true"),
            Self::Suspended { by: Some(by) } => write!(f, "spec.suspend is true, set {by}"),
            Self::Aborted { by: None } => write!(f, "the annotation refit.rs/abort ends the roll-out"),
            Self::Aborted { by: Some(by) } => {
                write!(f, "the annotation refit.rs/abort, set {by}, ends the roll-out")
            }
            Self::Skipped {
                version,
                by: Some(by),
            } if by.starts_with(BY_PREFLIGHT) => write!(
                f,
                "preflight skips the node at {version}, as its annotation refit.rs/skip says: {}",
                by.trim_start_matches(BY_PREFLIGHT)
            ),
            Self::Skipped { version, by } => {
                write!(f, "the annotation refit.rs/skip of the node")?;
                if let Some(by) = by {
                    write!(f, ", set {by},")?;
                }
                write!(f, " excludes it at {version}")
            }
            Self::NotReady => write!(f, "the Plan is invalid, or has no version yet"),
            Self::SchemaOutdated { missing } => {
                write!(f, "the served CustomResourceDefinition lacks {missing}")
            }
            Self::SpecPruned => write!(
                f,
                "fields of spec were lost while another CustomResourceDefinition was served; apply the Plan again"
            ),
            Self::MissingPermission { what } => write!(f, "the controller may not {what}"),
            Self::ImageInvalid { why } => write!(f, "{why}"),
            Self::OwnImageUnknown => write!(
                f,
                "the controller has not found the image that it runs from, with which it cordons, drains and reboots nodes: set \
                 REFIT_IMAGE on the controller to it, or POD_NAME by fieldRef to metadata.name"
            ),
            Self::SettingMissing { name } => {
                write!(f, "{name} is required when targeting Windows nodes")
            }
            Self::NameTaken { kind, name } => write!(f, "another {kind} has the name {name}; delete it"),
            Self::JobLeaving { job } => write!(f, "a previous Job, {job}, is still being deleted"),
            Self::PodLeaving { pod } => write!(f, "pod {pod} of a deleted Job still runs on the node"),
            Self::ChannelWithdrawn { offered, current } => {
                write!(f, "spec.channel gives {offered}, which is older than {current}")
            }
            Self::VersionOutOfRange { version, range } => {
                write!(
                    f,
                    "the Plan is at {version}, which is not in spec.versionPolicy.range, {range}"
                )
            }
            Self::DependencyNotComplete { plan, why } => {
                write!(f, "spec.dependsOn: Plan {plan} {why}")
            }
            Self::DependencyUnknown { plans } => {
                let (word, verb) = if plans.len() == 1 {
                    ("Plan", "does")
                } else {
                    ("Plans", "do")
                };
                write!(
                    f,
                    "spec.dependsOn: {word} {} {verb} not exist in this namespace",
                    plans.join(", ")
                )
            }
            Self::DependencyCycle { plans } => {
                f.write_str("spec.dependsOn is a cycle: ")?;
                for plan in plans {
                    write!(f, "{plan} waits for ")?;
                }
                f.write_str(plans.first().map_or("itself", |first| first))
            }
            Self::DigestUnknown { image, why } if why.is_empty() => {
                write!(f, "the registry has not returned the digest of {image} yet")
            }
            Self::DigestUnknown { image, why } => {
                write!(f, "the registry returned no digest of {image}: {why}")
            }
            Self::MinorSkip {
                kubelet,
                version,
                skip: Some(skip),
                limit,
            } => write!(
                f,
                "{version} is {skip} minor versions from the node's kubelet, {kubelet}, and spec.versionPolicy.maxMinorSkip is \
                 {limit}; a version in between, or a higher limit, lets it through"
            ),
            Self::MinorSkip {
                kubelet,
                version,
                skip: None,
                limit,
            } => write!(
                f,
                "{version} cannot be compared with the node's kubelet, {kubelet}, which spec.versionPolicy.maxMinorSkip ({limit}) requires"
            ),
            Self::PodBlocks { pod } => write!(
                f,
                "spec.drain.blockedBy: pod {pod} runs on the node, which starts when it has ended"
            ),
            Self::PodsPending { why: None } => {
                write!(f, "spec.drain.blockedBy: the pods of the node are being listed")
            }
            Self::PodsPending { why: Some(why) } => {
                write!(
                    f,
                    "spec.drain.blockedBy: the pods of the node cannot be listed: {why}"
                )
            }
            Self::AtVersion { version } => write!(
                f,
                "spec.skipWhen: the kubelet has version {version} already, so the node is marked as done"
            ),
            Self::RebootIneffective { why } => write!(
                f,
                "the node has rebooted and still needs a reboot for the same reason, so another one would not help ({why}): find out \
                 what says so, or remove the annotation {} to reboot it once more",
                names::ANNOTATION_REBOOT_NEEDED
            ),
            Self::NodeUnreadable { why } => write!(f, "the Node cannot be read: {why}"),
            Self::JobRefused { why } => write!(f, "the Job cannot be created: {why}"),
        }
    }
}
