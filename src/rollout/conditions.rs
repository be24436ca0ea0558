//! The conditions of a Plan: system-upgrade-controller's three, in its order and words (S53, S54).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::blocker::Blocker;
use super::decision::Report;
use super::differs;
use super::failure::with_decision;
use super::node::fail::failure_text;
use super::node::state::NodeState;
use super::plan::PlanState;
use super::resolve::Resolution;
use super::state::ClusterState;
use super::step::Key;
use refit_api::text::{MAX_CONDITION_MESSAGE, seconds, shorten};
use refit_api::{ConditionType, ObjectRef, OpenEnum, PlanCondition, Reason};
use refit_base::version::policy::Choice;
use refit_facts::NodeName;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConditionUpdate {
    pub(super) type_: ConditionType,
    pub(super) reason: Reason,
    pub(super) message: String,
    /// The objects that the message is about.
    pub(super) about: Vec<ObjectRef>,
}

impl ConditionUpdate {
    pub(super) fn new(type_: ConditionType, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            type_,
            reason,
            message: message.into(),
            about: Vec::new(),
        }
    }

    fn about(mut self, about: impl IntoIterator<Item = ObjectRef>) -> Self {
        self.about = about.into_iter().take(ObjectRef::MAX).collect();
        self
    }

    /// The condition. If it is unchanged, it keeps the times of the stored one.
    pub(super) fn into_condition(self, stored: &[PlanCondition], now: Timestamp) -> PlanCondition {
        let status = if self.reason.is_true() { "True" } else { "False" };
        // Before it is compared with the stored one, which was shortened, too.
        let message = shorten(&self.message, MAX_CONDITION_MESSAGE).into_owned();
        let known = PlanCondition::find(stored, self.type_);
        let same_status = known.filter(|c| c.status == status);
        let same = same_status.filter(|c| {
            c.reason.as_ref().is_some_and(|reason| *reason == self.reason)
                && c.message.as_deref().unwrap_or_default() == message
        });
        let stamp = || Some(seconds(now));
        PlanCondition {
            type_: self.type_.into(),
            status: status.to_owned(),
            last_update_time: same.and_then(|c| c.last_update_time.clone()).or_else(stamp),
            last_transition_time: same_status
                .and_then(|c| c.last_transition_time.clone())
                .or_else(stamp),
            reason: Some(self.reason.into()),
            message: Some(message).filter(|m| !m.is_empty()),
        }
    }
}

/// The conditions, and the objects that the message of `Complete` is about.
pub(super) fn conditions(
    cluster: &ClusterState,
    plan: &PlanState,
    nodes: &BTreeMap<NodeName, NodeState>,
    report: &Report,
    now: Timestamp,
) -> (Vec<PlanCondition>, Vec<ObjectRef>) {
    let stored = plan.facts.status();
    let known = |type_| PlanCondition::find(&stored.conditions, type_).cloned();
    let write = |update: ConditionUpdate| update.into_condition(&stored.conditions, now);
    let unreadable = unreadable(cluster, plan);
    let invalid = match (&plan.invalid, &plan.resolution) {
        (Some(why), _) | (None, Resolution::MissingSecrets(why)) => Some(why.as_str()),
        _ => unreadable.as_deref(),
    };
    // Until validation has finished, the stored result for the same spec stays.
    let pending = invalid.is_none() && plan.resolution == Resolution::Pending;
    let same_spec = stored
        .observed_generation
        .is_none_or(|seen| seen == plan.facts.generation());
    let kept = known(ConditionType::Complete).filter(|_| pending && same_spec);
    let (complete, about) = kept.map_or_else(
        || {
            let mut update = complete(cluster, plan, nodes, report);
            let about = std::mem::take(&mut update.about);
            (write(update), about)
        },
        |kept| (kept, stored.about.clone()),
    );
    let validated = match invalid {
        None => ConditionUpdate::new(ConditionType::Validated, Reason::PlanIsValid, ""),
        Some(why) => ConditionUpdate::new(ConditionType::Validated, Reason::Error, why),
    };
    let resolved = match &plan.resolution {
        Resolution::Resolved(resolved) => {
            let reason = resolved.source.reason();
            Some(write(ConditionUpdate::new(
                ConditionType::LatestResolved,
                reason,
                "",
            )))
        }
        Resolution::Failed(why) => Some(write(ConditionUpdate::new(
            ConditionType::LatestResolved,
            Reason::Error,
            why,
        ))),
        Resolution::Held(why) => Some(write(ConditionUpdate::new(
            ConditionType::LatestResolved,
            Reason::Held,
            why,
        ))),
        Resolution::Pending | Resolution::Reading | Resolution::MissingSecrets(_) => {
            known(ConditionType::LatestResolved)
        }
    };
    let up_to_date = plan
        .channel
        .as_ref()
        .filter(|_| plan.spec().version_policy.is_some());
    let up_to_date = up_to_date.and_then(|_| match plan.choice.as_ref().filter(|_| plan.policy.is_some()) {
        Some(choice) => Some(write(up_to_date_update(choice))),
        None => known(ConditionType::UpToDate),
    });
    let relies = plan.spec().has_sentinel() || plan.spec().preflight.is_some();
    let degraded = match cluster.memory.keeps_replacement_policy {
        Some(false) if relies => Some(write(ConditionUpdate::new(
            ConditionType::Degraded,
            Reason::FeatureUnavailable,
            NO_REPLACEMENT_POLICY,
        ))),
        // This process has not seen a Job of refit yet, so it cannot judge the stored condition.
        None if relies => known(ConditionType::Degraded),
        _ => None,
    };
    let all = [complete, write(validated)]
        .into_iter()
        .chain(resolved)
        .chain(up_to_date)
        .chain(degraded);
    (all.collect(), about)
}

const NO_REPLACEMENT_POLICY: &str = "the API server drops spec.podReplacementPolicy of Jobs (KEP-3939): while a pod is being \
    deleted on a node that does not answer, its Job already has the next one";

/// Whether the Plan has the version that its channel offers, and otherwise what holds it back.
fn up_to_date_update(choice: &Choice) -> ConditionUpdate {
    match (&choice.held, &choice.fault) {
        (Some(held), _) => ConditionUpdate::new(
            ConditionType::UpToDate,
            (&held.refusal).into(),
            held.message.clone(),
        ),
        (None, Some(fault)) => {
            ConditionUpdate::new(ConditionType::UpToDate, Reason::NoVersion, fault.clone())
        }
        (None, None) => ConditionUpdate::new(ConditionType::UpToDate, Reason::Latest, ""),
    }
}

/// Why a Secret that the Plan needs cannot be read.
pub(super) fn unreadable(cluster: &ClusterState, plan: &PlanState) -> Option<String> {
    if plan.resolution != Resolution::Reading {
        return None;
    }
    plan.secrets.unread().iter().find_map(|name| {
        let failure = cluster.memory.failures.get(&Key::Secret(name.clone()))?;
        Some(format!("secrets {name:?} cannot be read: {}", failure.message))
    })
}

fn complete(
    cluster: &ClusterState,
    plan: &PlanState,
    nodes: &BTreeMap<NodeName, NodeState>,
    report: &Report,
) -> ConditionUpdate {
    if plan.invalid.is_some() || plan.resolution.resolved().is_none() {
        return ConditionUpdate::new(
            ConditionType::Complete,
            Reason::NotReady,
            "plan is not valid and resolved",
        );
    }
    if let Some((node, failed)) = nodes
        .iter()
        .filter(|(_, s)| s.failed)
        .max_by_key(|(_, s)| s.since)
    {
        let text = failure_text(
            &cluster.defaults.namespace,
            failed.job.as_deref().unwrap_or_default(),
            node,
            failed.reason.as_deref().unwrap_or_default(),
            failed.message.as_deref().unwrap_or_default(),
        );
        let stopped = match &report.blocker {
            Some(blocker @ Blocker::FailureBudget { .. }) => Some(blocker.to_string()),
            _ => failed.decision.clone(),
        };
        let text = with_decision(&text, stopped.as_deref());
        let job = failed.job.iter().map(|job| ObjectRef::new("Job", &**job));
        let about = [ObjectRef::node(&**node)].into_iter().chain(job);
        return ConditionUpdate::new(ConditionType::Complete, Reason::JobFailed, text).about(about);
    }
    if !nodes.is_empty() {
        let known = |s: &NodeState| s.reason.as_ref().and_then(OpenEnum::known);
        let refusal = |(node, s)| Some((node, s, known(s).filter(|reason| is_refusal(*reason))?));
        let update = |text| ConditionUpdate::new(ConditionType::Complete, Reason::SyncJob, text);
        let Some((node, state, reason)) = nodes.iter().find_map(refusal) else {
            return update(String::new());
        };
        let why = state.message.as_deref().unwrap_or_default();
        let text = match reason {
            Reason::SettingMissing => format!("{NO_JOB_FOR_NODE} {node}: {why}"),
            _ => format!("Node {node}: {why}"),
        };
        let about = [ObjectRef::node(&**node)].into_iter().chain(state.about.clone());
        return update(text).about(about);
    }
    if let Some(why) = &plan.selector_error {
        return ConditionUpdate::new(
            ConditionType::Complete,
            Reason::SelectNodesFailed,
            format!("Failed to select Nodes: {why}"),
        );
    }
    if report.waiting == 0 {
        let spec = plan.spec();
        let skipped = plan.targets.skipped();
        let text = match (
            &spec.node_selector,
            plan.targets.selected() + plan.targets.disabled(),
        ) {
            (None, _) => "spec.nodeSelector is absent, which selects no node".to_owned(),
            _ if !skipped.is_empty() || !report.differs.is_empty() => left_out(plan, report),
            (Some(_), 0) => "spec.nodeSelector matches no node".to_owned(),
            _ => String::new(),
        };
        return ConditionUpdate::new(ConditionType::Complete, Reason::Complete, text);
    }
    let of_node = |(node, blocker): (&NodeName, &Blocker)| {
        ConditionUpdate::new(
            ConditionType::Complete,
            blocker.reason(),
            format!("Node {node}: {blocker}"),
        )
        .about([ObjectRef::node(&**node)].into_iter().chain(blocker.about()))
    };
    match &report.blocker {
        Some(Blocker::WindowClosed { opens, .. }) => {
            let text = "current time is not within configured window";
            let never = if opens.is_none() {
                ", and will never be"
            } else {
                ""
            };
            ConditionUpdate::new(ConditionType::Complete, Reason::Waiting, format!("{text}{never}"))
        }
        Some(Blocker::NodeNotReady) | None => {
            let not_ready = plan
                .targets
                .not_ready()
                .next()
                .map(|node| (node, &Blocker::NodeNotReady));
            let first = report.nodes.iter().next().or(not_ready);
            first.map_or_else(
                || ConditionUpdate::new(ConditionType::Complete, Reason::Resolved, ""),
                of_node,
            )
        }
        Some(blocker) => {
            let text = blocker.to_string();
            ConditionUpdate::new(ConditionType::Complete, blocker.reason(), text).about(blocker.about())
        }
    }
}

/// Maximum number of nodes named in the message.
const MAX_NAMED: usize = 10;

/// Which nodes of a complete Plan do not have its version: users keep it off them, or their kubelets say so.
fn left_out(plan: &PlanState, report: &Report) -> String {
    let skipped = plan.targets.skipped();
    let skipped = (!skipped.is_empty()).then(|| skipped_text(skipped));
    let version = plan.resolved.as_ref().map_or("", |resolved| &*resolved.version);
    let texts = skipped.into_iter().chain(differs::text(version, &report.differs));
    texts.collect::<Vec<_>>().join("; ")
}

fn skipped_text(skipped: &BTreeSet<NodeName>) -> String {
    let named: Vec<&str> = skipped.iter().take(MAX_NAMED).map(|name| &**name).collect();
    let more = match skipped.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("skipped (refit.rs/skip): {}{more}", named.join(", "))
}

/// Whether a node with this reason, which has a slot, needs a person before it can continue.
pub(super) fn is_refusal(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::JobRefused
            | Reason::PodRefused
            | Reason::NameTaken
            | Reason::ImageInvalid
            | Reason::OwnImageUnknown
            | Reason::SettingMissing
            | Reason::MissingPermission
            | Reason::NodeRefused
    )
}

/// Start of the message for a node when a setting of the controller is missing (S63).
const NO_JOB_FOR_NODE: &str = "Failed to create job for node";
