//! Typed reasons why a node, or a whole Plan, does not start. [`Reason`] has the general meaning; the variants add the
//! details of the message.

use std::fmt;

use jiff::Timestamp;

use super::facts::{NodeName, Text};
use crate::api::Reason;

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
    /// `concurrency` and `maxConcurrent` are 0 or absent.
    ConcurrencyZero,
    /// The node is not Ready, and the Plan does not tolerate that.
    NodeNotReady,
    NodeBusy {
        plan: String,
    },
    WindowClosed {
        /// The next opening, if there is one.
        opens: Option<Timestamp>,
    },
    Suspended,
    /// The Plan is invalid, has no version yet, or must be read again.
    NotReady,
    /// The served CRD lacks fields of refit.
    SchemaOutdated {
        /// The missing fields.
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
    SettingMissing {
        /// The environment variable.
        name: &'static str,
    },
    /// Jobs that are not refit's have both names that the Job could have.
    NameTaken {
        job: String,
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
    /// The Node cannot be read.
    NodeUnreadable {
        why: String,
    },
    /// The API server refused the Job.
    JobRefused {
        /// Its message.
        why: String,
    },
}

impl Blocker {
    /// Whether the blocker only keeps new nodes from starting. Nodes that have started continue, because stopping would
    /// leave them half upgraded.
    pub(super) fn is_for_new_nodes(&self) -> bool {
        matches!(
            self,
            Self::Suspended
                | Self::WindowClosed { .. }
                | Self::ConcurrencyZero
                | Self::ChannelWithdrawn { .. }
                | Self::VersionOutOfRange { .. }
        )
    }

    /// Whether the node waits only for other nodes to finish. A node that could not start anyway reports its own
    /// blocker instead.
    pub(super) fn is_for_want_of_room(&self) -> bool {
        matches!(
            self,
            Self::NoSlot { .. } | Self::StatusFull { .. } | Self::MaxUnavailable { .. }
        )
    }

    /// The reason for conditions, events and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::NoSlot { .. } => Reason::NoSlot,
            Self::StatusFull { .. } => Reason::StatusFull,
            Self::MaxUnavailable { .. } => Reason::MaxUnavailable,
            Self::ConcurrencyZero => Reason::ConcurrencyZero,
            Self::NodeNotReady => Reason::NodeNotReady,
            Self::NodeBusy { .. } => Reason::NodeBusy,
            Self::WindowClosed { .. } => Reason::WindowClosed,
            Self::Suspended => Reason::Suspended,
            Self::NotReady => Reason::NotReady,
            Self::SchemaOutdated { .. } => Reason::SchemaOutdated,
            Self::SpecPruned => Reason::SpecPruned,
            Self::MissingPermission { .. } => Reason::MissingPermission,
            Self::ImageInvalid { .. } => Reason::ImageInvalid,
            Self::SettingMissing { .. } => Reason::SettingMissing,
            Self::NameTaken { .. } => Reason::NameTaken,
            Self::JobLeaving { .. } => Reason::JobLeaving,
            Self::PodLeaving { .. } => Reason::PodLeaving,
            Self::ChannelWithdrawn { .. } => Reason::ChannelWithdrawn,
            Self::VersionOutOfRange { .. } => Reason::VersionOutOfRange,
            Self::DigestUnknown { why, .. } if why.is_empty() => Reason::DigestPending,
            Self::DigestUnknown { .. } => Reason::DigestUnknown,
            Self::MinorSkip { .. } => Reason::MinorSkip,
            Self::NodeUnreadable { .. } => Reason::ObjectUnreadable,
            Self::JobRefused { .. } => Reason::JobRefused,
        }
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSlot { limit: 1 } => write!(f, "1 node at a time, and it is taken"),
            Self::NoSlot { limit } => write!(f, "{limit} nodes at a time, and all are taken"),
            Self::StatusFull { slots } => {
                write!(
                    f,
                    "the status of the Plan has no room for more than the {slots} nodes in progress"
                )
            }
            Self::MaxUnavailable { limit, nodes } => {
                write!(f, "spec.maxUnavailable is {limit}: no further node starts while ")?;
                let (named, more) = nodes.split_at(nodes.len().min(NODES_IN_MESSAGE));
                f.write_str(&named.join(", "))?;
                match (nodes.len(), more.len()) {
                    (1, _) => f.write_str(" is unavailable"),
                    (_, 0) => f.write_str(" are unavailable"),
                    (_, more) => write!(f, " and {more} more are unavailable"),
                }
            }
            Self::ConcurrencyZero => write!(f, "spec.concurrency is 0 or absent, so that no node is started"),
            Self::NodeNotReady => write!(f, "the node is not Ready"),
            Self::NodeBusy { plan } => write!(f, "Plan {plan} is at work on the node"),
            Self::WindowClosed { opens: Some(at) } => write!(f, "spec.window is closed and opens at {at}"),
            Self::WindowClosed { opens: None } => write!(f, "spec.window is closed and never opens"),
            Self::Suspended => write!(f, "spec.suspend is true"),
            Self::NotReady => write!(f, "the Plan is not valid and resolved"),
            Self::SchemaOutdated { missing } => {
                write!(f, "the CustomResourceDefinition that is served lacks {missing}")
            }
            Self::SpecPruned => write!(
                f,
                "fields of spec were lost while another CustomResourceDefinition was served; apply the Plan again"
            ),
            Self::MissingPermission { what } => write!(f, "the controller may not {what}"),
            Self::ImageInvalid { why } => write!(f, "{why}"),
            Self::SettingMissing { name } => {
                write!(f, "{name} is required when targeting Windows nodes")
            }
            Self::NameTaken { job } => write!(f, "another Job has the name {job}"),
            Self::JobLeaving { job } => write!(f, "Job {job} of before is still going away"),
            Self::PodLeaving { pod } => write!(f, "pod {pod} of before is still at work on the node"),
            Self::ChannelWithdrawn { offered, current } => {
                write!(f, "spec.channel gives {offered}, which is older than {current}")
            }
            Self::VersionOutOfRange { version, range } => {
                write!(
                    f,
                    "the Plan is at {version}, which is not in spec.versionPolicy.range, {range}"
                )
            }
            Self::DigestUnknown { image, why } if why.is_empty() => {
                write!(f, "the registry is being asked for the digest of {image}")
            }
            Self::DigestUnknown { image, why } => write!(f, "the digest of {image} cannot be had: {why}"),
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
                "{version} cannot be compared with the node's kubelet, {kubelet}, as spec.versionPolicy.maxMinorSkip, {limit}, asks"
            ),
            Self::NodeUnreadable { why } => write!(f, "the Node cannot be read: {why}"),
            Self::JobRefused { why } => write!(f, "the Job cannot be made: {why}"),
        }
    }
}
