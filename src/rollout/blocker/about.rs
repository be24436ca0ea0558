//! The objects that a blocker is about. A new blocker does not compile before it says so.

use super::Blocker;
use refit_api::{ObjectRef, limits};
use refit_facts::{DrainFinding, NodeName};

/// The `ConfigMap` with the limits for all Plans.
fn limits_map() -> ObjectRef {
    ObjectRef::new("ConfigMap", limits::NAME)
}

impl Blocker {
    /// Where to look next, at most [`ObjectRef::MAX`] objects.
    pub(crate) fn about(&self) -> Vec<ObjectRef> {
        let mut about = self.all_about();
        about.truncate(ObjectRef::MAX);
        about
    }

    fn all_about(&self) -> Vec<ObjectRef> {
        let nodes = |nodes: &[NodeName]| nodes.iter().map(|node| ObjectRef::node(&**node)).collect();
        match self {
            Self::MaxUnavailable { nodes: named, .. } => nodes(named),
            Self::ControlPlaneQuorum { down, .. } => nodes(down),
            Self::EarlierNodes { node, .. } | Self::NodeInMaintenance { node, .. } => {
                vec![ObjectRef::node(&**node)]
            }
            Self::WaveInProgress { held_by, .. } => {
                let node = held_by.iter().map(|(node, _)| node);
                node.map(|node| ObjectRef::node(&**node)).collect()
            }
            Self::ControlPlaneOlder { node, .. } => {
                node.iter().map(|node| ObjectRef::node(&**node)).collect()
            }
            Self::ClusterLimit { nodes, .. } => {
                let nodes = nodes.iter().map(|node| ObjectRef::node(&**node));
                [limits_map()].into_iter().chain(nodes).collect()
            }
            Self::Frozen { .. } | Self::Blackout { of_all: true, .. } => vec![limits_map()],
            Self::NodeBusy { by } => by.clone(),
            Self::DependencyNotComplete { plan, .. } | Self::DependencySelectsNothing { plan } => {
                vec![ObjectRef::plan(&**plan)]
            }
            Self::DependencyUnknown { plans } | Self::DependencyCycle { plans } => {
                plans.iter().map(|plan| ObjectRef::plan(&**plan)).collect()
            }
            Self::MissingPermission { roles, .. } => roles.clone(),
            Self::NameTaken { kind, name } => vec![ObjectRef::new(kind, name)],
            Self::HookRunning { job, .. } | Self::HookFailed { job, .. } => {
                vec![ObjectRef::new("Job", &**job)]
            }
            Self::JobLeaving { job } => vec![ObjectRef::new("Job", job)],
            Self::PodLeaving { pod } => vec![ObjectRef::pod(pod)],
            Self::PodBlocks { pod } | Self::DrainWouldBlock(DrainFinding { pod, .. }) => {
                vec![ObjectRef::pod(pod)]
            }
            Self::NodeLeased { node, .. } | Self::LeasePending { node, .. } => {
                vec![ObjectRef::at("Lease", &super::message::node_lease(node))]
            }
            Self::NoSlot { .. }
            | Self::StatusFull { .. }
            | Self::FailureBudget { .. }
            | Self::WaveSoaking { .. }
            | Self::WaveNotApproved { .. }
            | Self::CheckFailing { .. }
            | Self::CheckPending { .. }
            | Self::ConcurrencyZero
            | Self::NodeNotReady
            | Self::NodeJoining(_)
            | Self::WindowClosed { .. }
            | Self::Blackout { of_all: false, .. }
            | Self::NotBefore { .. }
            | Self::WindowTooShort { .. }
            | Self::Suspended { .. }
            | Self::Aborted { .. }
            | Self::Skipped { .. }
            | Self::NotReady
            | Self::SchemaOutdated { .. }
            | Self::SpecPruned
            | Self::ImageInvalid { .. }
            | Self::OwnImageUnknown
            | Self::SettingMissing { .. }
            | Self::ChannelWithdrawn { .. }
            | Self::VersionOutOfRange { .. }
            | Self::DigestUnknown { .. }
            | Self::ImageMissing { .. }
            | Self::NodeIsNewer { .. }
            | Self::MinorSkip { .. }
            | Self::TaintNotTolerated { .. }
            | Self::RebootIneffective { .. }
            | Self::NodeUnreadable { .. }
            | Self::AtVersion { .. }
            | Self::DrainSkipped { .. }
            | Self::PodsPending { .. }
            | Self::JobRefused { .. } => Vec::new(),
        }
    }
}
