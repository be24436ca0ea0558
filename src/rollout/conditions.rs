//! The conditions of a Plan: system-upgrade-controller's three, in its order and words (S53, S54).

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::blocker::Blocker;
use super::decide::Report;
use super::facts::Text;
use super::node::{Standing, failure_text};
use super::plan::PlanView;
use super::resolve::{Resolution, Resolved, Source};
use super::step::Key;
use super::world::World;
use crate::api::status::PlanCondition;
use crate::version::policy::Choice;

/// Condition types, in the order in which status shows them: the Message column prints the first message.
pub(super) const COMPLETE: &str = "Complete";
pub(super) const VALIDATED: &str = "Validated";
pub(super) const LATEST_RESOLVED: &str = "LatestResolved";
/// Our own, of Plans that have a policy and follow a channel.
pub(super) const UP_TO_DATE: &str = "UpToDate";

/// What a condition is to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Says {
    pub(super) type_: &'static str,
    pub(super) status: bool,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Says {
    pub(super) fn new(type_: &'static str, status: bool, reason: &str, message: impl Into<String>) -> Self {
        Self {
            type_,
            status,
            reason: reason.to_owned(),
            message: message.into(),
        }
    }

    /// The condition, with the times of the stored one where it says the same.
    pub(super) fn write(self, stored: &[PlanCondition], now: Timestamp) -> PlanCondition {
        let status = if self.status { "True" } else { "False" };
        let known = find(stored, self.type_);
        let same_status = known.filter(|c| c.status == status);
        let same = same_status.filter(|c| {
            c.reason.as_deref().unwrap_or_default() == self.reason
                && c.message.as_deref().unwrap_or_default() == self.message
        });
        let stamp = || Some(seconds(now));
        PlanCondition {
            type_: self.type_.to_owned(),
            status: status.to_owned(),
            last_update_time: same.and_then(|c| c.last_update_time.clone()).or_else(stamp),
            last_transition_time: same_status
                .and_then(|c| c.last_transition_time.clone())
                .or_else(stamp),
            reason: Some(self.reason),
            message: Some(self.message).filter(|m| !m.is_empty()),
        }
    }
}

/// The conditions of a Plan.
pub(super) fn conditions(
    world: &World,
    plan: &PlanView,
    nodes: &BTreeMap<Text, Standing>,
    report: &Report,
    now: Timestamp,
) -> Vec<PlanCondition> {
    let stored = plan.facts.status();
    let known = |type_| find(&stored.conditions, type_).cloned();
    let write = |says: Says| says.write(&stored.conditions, now);
    let unreadable = unreadable(world, plan);
    let invalid = match (&plan.invalid, &plan.resolution) {
        (Some(why), _) | (None, Resolution::MissingSecrets(why)) => Some(why.as_str()),
        _ => unreadable.as_deref(),
    };
    // What is not known yet changes nothing: what was said of this very spec stands until it is.
    let pending = invalid.is_none() && plan.resolution == Resolution::Pending;
    let same_spec = stored
        .observed_generation
        .is_none_or(|seen| seen == plan.facts.generation());
    let complete = known(COMPLETE)
        .filter(|_| pending && same_spec)
        .unwrap_or_else(|| write(complete(world, plan, nodes, report)));
    let validated = match invalid {
        None => Says::new(VALIDATED, true, "PlanIsValid", ""),
        Some(why) => Says::new(VALIDATED, false, "Error", why),
    };
    let resolved = match &plan.resolution {
        Resolution::Resolved(Resolved {
            source: Source::Version,
            ..
        }) => Some(write(Says::new(LATEST_RESOLVED, true, "Version", ""))),
        Resolution::Resolved(Resolved {
            source: Source::Channel,
            ..
        }) => Some(write(Says::new(LATEST_RESOLVED, true, "Channel", ""))),
        Resolution::Failed(why) => Some(write(Says::new(LATEST_RESOLVED, false, "Error", why))),
        Resolution::Held(why) => Some(write(Says::new(LATEST_RESOLVED, false, "Held", why))),
        Resolution::Pending | Resolution::Reading(_) | Resolution::MissingSecrets(_) => {
            known(LATEST_RESOLVED)
        }
    };
    let up_to_date = plan
        .channel
        .as_ref()
        .filter(|_| plan.spec().version_policy.is_some());
    let up_to_date = up_to_date.and_then(|_| match plan.choice.as_ref().filter(|_| plan.policy.is_some()) {
        Some(choice) => Some(write(up_to_date_says(choice))),
        None => known(UP_TO_DATE),
    });
    [complete, write(validated)]
        .into_iter()
        .chain(resolved)
        .chain(up_to_date)
        .collect()
}

/// Whether the Plan is at the version that its channel offers, and if not, what keeps it from there.
fn up_to_date_says(choice: &Choice) -> Says {
    match (&choice.held, &choice.fault) {
        (Some(held), _) => Says::new(UP_TO_DATE, false, held.refusal.reason(), held.message.clone()),
        (None, Some(fault)) => Says::new(UP_TO_DATE, false, "NoVersion", fault.clone()),
        (None, None) => Says::new(UP_TO_DATE, true, "Latest", ""),
    }
}

/// Why a secret that the Plan needs cannot be read.
pub(super) fn unreadable(world: &World, plan: &PlanView) -> Option<String> {
    let Resolution::Reading(name) = &plan.resolution else {
        return None;
    };
    let trouble = world.troubles.get(&Key::Secret(name.clone()))?;
    Some(format!("secrets {name:?} cannot be read: {}", trouble.message))
}

fn complete(world: &World, plan: &PlanView, nodes: &BTreeMap<Text, Standing>, report: &Report) -> Says {
    if plan.invalid.is_some() || plan.resolution.resolved().is_none() {
        return Says::new(COMPLETE, false, "NotReady", "plan is not valid and resolved");
    }
    if let Some((node, failed)) = nodes
        .iter()
        .filter(|(_, s)| s.failed)
        .max_by_key(|(_, s)| s.since)
    {
        let text = failure_text(
            &world.defaults.namespace,
            failed.job.as_deref().unwrap_or_default(),
            node,
            failed.reason.as_deref().unwrap_or_default(),
            failed.message.as_deref().unwrap_or_default(),
        );
        return Says::new(COMPLETE, false, "JobFailed", text);
    }
    if !nodes.is_empty() {
        let refused = nodes
            .iter()
            .find(|(_, s)| s.reason.as_deref().is_some_and(is_refusal));
        let text = refused.map_or_else(String::new, |(node, s)| {
            let why = s.message.as_deref().unwrap_or_default();
            match s.reason.as_deref() {
                Some("SettingMissing") => format!("{NO_JOB_FOR_NODE} {node}: {why}"),
                _ => format!("Node {node}: {why}"),
            }
        });
        return Says::new(COMPLETE, false, "SyncJob", text);
    }
    if let Some(why) = &plan.selector_error {
        return Says::new(
            COMPLETE,
            false,
            SELECT_NODES_FAILED,
            format!("Failed to select Nodes: {why}"),
        );
    }
    if report.waiting == 0 {
        let spec = plan.spec();
        let text = match (&spec.node_selector, plan.nodes.selected() + plan.nodes.disabled()) {
            (None, _) => "spec.nodeSelector is absent, which selects no node",
            (Some(_), 0) => "spec.nodeSelector matches no node",
            _ => "",
        };
        return Says::new(COMPLETE, true, "Complete", text);
    }
    let of_node = |(node, blocker): (&Text, &Blocker)| {
        Says::new(
            COMPLETE,
            false,
            blocker.reason(),
            format!("Node {node}: {blocker}"),
        )
    };
    match &report.blocker {
        Some(Blocker::WindowClosed { opens }) => {
            let text = "current time is not within configured window";
            let never = if opens.is_none() {
                ", and will never be"
            } else {
                ""
            };
            Says::new(COMPLETE, false, "Waiting", format!("{text}{never}"))
        }
        Some(Blocker::NodeNotReady) | None => {
            let not_ready = plan
                .nodes
                .not_ready()
                .next()
                .map(|node| (node, &Blocker::NodeNotReady));
            let first = report.nodes.iter().next().or(not_ready);
            first.map_or_else(|| Says::new(COMPLETE, false, "Resolved", ""), of_node)
        }
        Some(blocker) => Says::new(COMPLETE, false, blocker.reason(), blocker.to_string()),
    }
}

/// Reasons for which somebody has to do something before a node that has its slot goes on.
fn is_refusal(reason: &str) -> bool {
    matches!(
        reason,
        "JobRefused"
            | "PodRefused"
            | "NameTaken"
            | "ImageInvalid"
            | "SettingMissing"
            | "MissingPermission"
            | NODE_REFUSED
    )
}

/// Reason of a Plan whose `nodeSelector` cannot be read, of condition and event (S63).
pub(super) const SELECT_NODES_FAILED: &str = "SelectNodesFailed";
/// How the message begins of a node for which a setting of the controller is missing (S63, `ValidationFailed`).
pub(super) const NO_JOB_FOR_NODE: &str = "Failed to create job for node";
/// Reason of a node that cannot be patched.
pub(super) const NODE_REFUSED: &str = "NodeRefused";

/// The condition of a type.
pub(super) fn find<'a>(conditions: &'a [PlanCondition], type_: &str) -> Option<&'a PlanCondition> {
    conditions.iter().find(|c| c.type_ == type_)
}

/// A time as conditions have it: RFC 3339, whole seconds.
pub(super) fn seconds(at: Timestamp) -> String {
    format!("{at:.0}")
}
