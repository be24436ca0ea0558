//! Why a node, or a whole Plan, does not start. Each reason is a variant, never a string.

use std::fmt;

use jiff::Timestamp;

use super::facts::Text;

/// A typed reason why a node is not started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocker {
    /// `concurrency` or `maxConcurrent` is used up.
    NoSlot {
        /// Nodes that may be worked on at a time.
        limit: i64,
    },
    /// `concurrency` and `maxConcurrent` are 0 or absent.
    ConcurrencyZero,
    /// The node is not Ready, and the Plan does not tolerate that.
    NodeNotReady,
    /// Another disruptive Plan works on the node.
    NodeBusy {
        /// The other Plan.
        plan: String,
    },
    /// The window is closed.
    WindowClosed {
        /// When it opens, if it ever does.
        opens: Option<Timestamp>,
    },
    /// `suspend` is true.
    Suspended,
    /// The Plan is not valid, or its version is not known, or it has to be read again.
    NotReady,
    /// The CRD that is served lacks fields.
    SchemaOutdated {
        /// Which.
        missing: String,
    },
    /// The Plan has lost fields that it had.
    SpecPruned,
    /// The controller may not do what it has to.
    MissingPermission {
        /// Verb and resource.
        what: String,
    },
    /// An image cannot be read, or the version is no tag.
    ImageInvalid {
        /// Why.
        why: String,
    },
    /// A setting of the controller is needed and empty.
    SettingMissing {
        /// Name of the environment variable.
        name: &'static str,
    },
    /// Jobs that are not ours have both names that the Job could have.
    NameTaken {
        /// The name.
        job: String,
    },
    /// A Job of an earlier Plan, or of an earlier machine, of this name is going away.
    JobLeaving {
        /// The Job.
        job: String,
    },
    /// A pod of a Job that is gone is still at work on the node.
    PodLeaving {
        /// The pod.
        pod: String,
    },
    /// The channel gives an older version than the Plan has.
    ChannelWithdrawn {
        /// What the channel gives.
        offered: String,
        /// What the Plan has.
        current: String,
    },
    /// The version that the Plan has is not in the range that its policy has.
    VersionOutOfRange {
        /// The version.
        version: String,
        /// The range.
        range: String,
    },
    /// Nobody has said yet what the tag of an image stands for.
    DigestUnknown {
        /// The image.
        image: String,
        /// Why not.
        why: String,
    },
    /// The node's kubelet is further from the Plan's version than its policy allows, or cannot be compared with it.
    MinorSkip {
        /// Version of the kubelet.
        kubelet: Text,
        /// Version of the Plan.
        version: Text,
        /// By how many minor versions the two differ, where that can be said.
        skip: Option<u64>,
        /// How many it may be.
        limit: u64,
    },
    /// The API server does not take the Job.
    JobRefused {
        /// What it said.
        why: String,
    },
}

impl Blocker {
    /// It keeps nodes from being begun with, and is no reason to leave one half done.
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

    /// One word for conditions, events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoSlot { .. } => "NoSlot",
            Self::ConcurrencyZero => "ConcurrencyZero",
            Self::NodeNotReady => "NodeNotReady",
            Self::NodeBusy { .. } => "NodeBusy",
            Self::WindowClosed { .. } => "WindowClosed",
            Self::Suspended => "Suspended",
            Self::NotReady => "NotReady",
            Self::SchemaOutdated { .. } => "SchemaOutdated",
            Self::SpecPruned => "SpecPruned",
            Self::MissingPermission { .. } => "MissingPermission",
            Self::ImageInvalid { .. } => "ImageInvalid",
            Self::SettingMissing { .. } => "SettingMissing",
            Self::NameTaken { .. } => "NameTaken",
            Self::JobLeaving { .. } => "JobLeaving",
            Self::PodLeaving { .. } => "PodLeaving",
            Self::ChannelWithdrawn { .. } => "ChannelWithdrawn",
            Self::VersionOutOfRange { .. } => "VersionOutOfRange",
            Self::DigestUnknown { why, .. } if why.is_empty() => "DigestPending",
            Self::DigestUnknown { .. } => "DigestUnknown",
            Self::MinorSkip { .. } => "MinorSkip",
            Self::JobRefused { .. } => "JobRefused",
        }
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSlot { limit: 1 } => write!(f, "1 node at a time, and it is taken"),
            Self::NoSlot { limit } => write!(f, "{limit} nodes at a time, and all are taken"),
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
            Self::JobRefused { why } => write!(f, "the Job cannot be made: {why}"),
        }
    }
}
