//! Which objects a reason is about: the end of a chain. A reason that is not listed has the default of its kind.

use super::explain::plan::{chain_of_dependency, chain_of_named_node};
use super::explanation::Explanation;
use super::plan::PlanOverview;
use super::unavailable::unavailability;
use refit_api::reason::Kind;
use refit_api::{ObjectRef, Reason, limits};

/// Where to look for the cause of a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The nodes that hold the slots.
    Slots,
    /// Another Plan on the node.
    Busy,
    /// The unavailable nodes among the selected ones.
    Unavailable,
    /// The wave, and the node that it waits for.
    Wave,
    /// The nodes that the reason names.
    NamedNodes,
    /// The nodes on which the Plan failed.
    FailedNodes,
    /// The `ConfigMap` `refit`, and the nodes that the reason names.
    Limits,
    /// The Plans that the reason names.
    Plans,
    /// The kubelet of the node.
    Kubelet,
    /// The Job of the node, its pod, and what that waits for.
    Job,
    /// The channel, if it fails.
    Channel,
    /// The version that is held back.
    Candidate,
    /// The checks that do not pass.
    Checks,
    /// The windows and blackouts.
    Window,
    /// The Plan itself, or the node itself: there is nothing behind it.
    Itself,
}

impl Cause {
    pub(super) fn of(reason: Reason) -> Self {
        use Reason as R;
        match reason {
            R::NoSlot | R::StatusFull => Self::Slots,
            R::NodeBusy => Self::Busy,
            R::MaxUnavailable => Self::Unavailable,
            R::WaveInProgress | R::WaveSoaking | R::WaveNotApproved => Self::Wave,
            R::CheckFailing | R::CheckPending => Self::Checks,
            R::EarlierNodes | R::ControlPlaneQuorum | R::ControlPlaneOlder => Self::NamedNodes,
            R::FailureBudget | R::JobFailed => Self::FailedNodes,
            R::Frozen | R::ClusterLimit => Self::Limits,
            R::DependencyNotComplete
            | R::DependencyUnknown
            | R::DependencySelectsNothing
            | R::DependencyCycle
            | R::Prepare => Self::Plans,
            R::NodeNotReady
            | R::NodeLost
            | R::NotReadyAfterReboot
            | R::RebootTimedOut
            | R::KubeletVersion
            | R::OsImage => Self::Kubelet,
            R::WindowClosed | R::Blackout | R::WindowTooShort | R::Waiting => Self::Window,
            R::Error | R::NoVersion | R::ChannelWithdrawn => Self::Channel,
            R::Held => Self::Candidate,
            R::JobLeaving
            | R::PodLeaving
            | R::PodWaiting
            | R::DrainWaiting
            | R::PodsRunning
            | R::DrainSkipped
            | R::Cancelled
            | R::RebootPod
            | R::PodRefused
            | R::MinReady
            | R::NodeCondition
            | R::TaintStays
            | R::DaemonSetPods
            | R::Workloads
            | R::PostCompleteDelay
            | R::PodFailed
            | R::PodTerminating => Self::Job,
            _ => match reason.kind() {
                Kind::Failure => Self::Job,
                Kind::Hold => Self::Candidate,
                _ => Self::Itself,
            },
        }
    }
}

/// The links to the objects that a reason is about, for causes that name them.
pub(super) fn chain_of_objects(
    view: &PlanOverview<'_>,
    cause: Cause,
    node: Option<&str>,
    about: &[ObjectRef],
    explanation: &mut Explanation,
    depth: usize,
) {
    let namespace = &view.plan.namespace;
    let nodes = ObjectRef::named(about, "Node").filter(|name| Some(*name) != node);
    match cause {
        Cause::NamedNodes => {
            for name in nodes {
                chain_of_named_node(view, name, explanation, depth);
            }
        }
        Cause::FailedNodes => {
            let failed = view.nodes.iter().filter(|node| node.is_failed());
            let failed: Vec<String> = failed
                .map(|node| node.name.clone())
                .take(ObjectRef::MAX)
                .collect();
            for name in failed.iter().filter(|name| Some(name.as_str()) != node) {
                chain_of_named_node(view, name, explanation, depth);
            }
        }
        Cause::Limits => {
            let object = format!("ConfigMap {namespace}/{}", limits::NAME);
            explanation.link(object, "limits all Plans of this controller");
            for name in nodes {
                let why = view.snapshot.node(name).and_then(unavailability);
                let says = why.map_or_else(|| "is being upgraded".to_owned(), |(says, _)| says);
                explanation.link(format!("Node {name}"), says);
            }
        }
        Cause::Plans => {
            for name in ObjectRef::named(about, "Plan") {
                chain_of_dependency(view, name, explanation, depth);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
