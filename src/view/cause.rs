//! Which objects a reason is about: the end of a chain. A reason that is not listed has the default of its kind.

use super::explain::{Explanation, chain_of_dependency, chain_of_named_node, unavailability};
use super::plan::PlanOverview;
use refit_api::reason::Kind;
use refit_api::{Reason, limits};

/// Objects of one kind that a chain names.
const MAX_NAMED: usize = 5;

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
    /// The nodes that the message names.
    NamedNodes,
    /// The nodes on which the Plan failed.
    FailedNodes,
    /// The `ConfigMap` `refit`, and the nodes that the message names.
    Limits,
    /// The Plans that the message names.
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
            | R::DependencyCycle => Self::Plans,
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
            | R::Cancelled
            | R::RebootPod
            | R::PodRefused
            | R::MinReady
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

/// The words of a message that may be names of objects.
fn words(message: &str) -> impl Iterator<Item = &str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    message
        .split(move |c| !is_name(c))
        .map(|word| word.trim_matches('.'))
        .filter(|word| !word.is_empty())
}

/// The nodes of the cluster that a message names, in its order.
pub(super) fn nodes_in<'a>(view: &PlanOverview<'_>, message: &'a str) -> Vec<&'a str> {
    let is_node = |word: &&str| view.snapshot.node(word).is_some() || view.node(word).is_some();
    distinct(words(message).filter(is_node))
}

/// The other Plans of the namespace that a message names, whether they exist or not.
pub(super) fn plans_in<'a>(view: &PlanOverview<'_>, message: &'a str) -> Vec<&'a str> {
    let wanted = view.plan.facts.object.spec.depends_on.iter().flatten();
    let wanted: Vec<&str> = wanted.map(|dependency| dependency.name.as_str()).collect();
    let exists = |word: &str| {
        let mut plans = view.snapshot.plans.iter();
        plans.any(|plan| plan.namespace == view.plan.namespace && *plan.facts.name == *word)
    };
    let is_other = |word: &&str| *word != &*view.plan.facts.name && (wanted.contains(word) || exists(word));
    distinct(words(message).filter(is_other))
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found = Vec::new();
    for name in names {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found.truncate(MAX_NAMED);
    found
}

/// The links below what a message says, for causes that the message names. Returns whether there are any.
pub(super) fn chain_of_message(
    view: &PlanOverview<'_>,
    cause: Cause,
    node: Option<&str>,
    message: &str,
    explanation: &mut Explanation,
    depth: usize,
) {
    let namespace = &view.plan.namespace;
    match cause {
        Cause::NamedNodes => {
            let named = nodes_in(view, message);
            for name in named.into_iter().filter(|name| Some(*name) != node) {
                chain_of_named_node(view, name, explanation, depth);
            }
        }
        Cause::FailedNodes => {
            let failed: Vec<String> = view
                .nodes
                .iter()
                .filter(|node| node.is_failed())
                .map(|node| node.name.clone())
                .take(MAX_NAMED)
                .collect();
            for name in failed.iter().filter(|name| Some(name.as_str()) != node) {
                chain_of_named_node(view, name, explanation, depth);
            }
        }
        Cause::Limits => {
            let object = format!("ConfigMap {namespace}/{}", limits::NAME);
            explanation.link(object, "limits all Plans of this controller");
            for name in nodes_in(view, message)
                .into_iter()
                .filter(|name| Some(*name) != node)
            {
                let says = view
                    .snapshot
                    .node(name)
                    .and_then(unavailability)
                    .map(|(says, _)| says);
                let says = says.unwrap_or_else(|| "is being upgraded".to_owned());
                explanation.link(format!("Node {name}"), says);
            }
        }
        Cause::Plans => {
            for name in plans_in(view, message) {
                chain_of_dependency(view, name, explanation, depth);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
