//! The conditions of a Plan: system-upgrade-controller's three, in its order and words (S53, S54).

use jiff::Timestamp;

use super::blocker::Blocker;
use super::differs;
use super::failure::with_decision;
use super::node::fail::failure_text;
use super::obstacle::{behind, obstacle, reported_at, selects_nothing, unreadable};
use super::picture::PlanPicture;
use super::plan::DerivedPlan;
use super::resolve::Resolution;
use super::state::ClusterState;
use refit_api::text::{MAX_CONDITION_MESSAGE, seconds, shorten};
use refit_api::{ConditionType, Obstacle, PlanCondition, PlanStatus, Reason};
use refit_base::names::shortened;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConditionUpdate {
    pub(super) type_: ConditionType,
    pub(super) reason: Reason,
    pub(super) message: String,
}

impl ConditionUpdate {
    pub(super) fn new(type_: ConditionType, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            type_,
            reason,
            message: message.into(),
        }
    }

    /// The condition. If it is unchanged, it keeps the times of the stored one.
    pub(super) fn into_condition(self, stored: &PlanStatus, now: Timestamp) -> PlanCondition {
        // It is absent otherwise.
        let is_true = self.reason.is_true() || self.type_ == ConditionType::Degraded;
        let status = if is_true { "True" } else { "False" };
        // Before it is compared with the stored one, which was shortened, too.
        let message = shorten(&self.message, MAX_CONDITION_MESSAGE).into_owned();
        let known = stored.condition(self.type_);
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

/// The conditions, and what keeps the Plan from continuing.
pub(super) fn conditions(
    cluster: &ClusterState,
    plan: &DerivedPlan,
    picture: &PlanPicture,
    now: Timestamp,
) -> (Vec<PlanCondition>, Option<Obstacle>) {
    let stored = plan.facts.status();
    let known = |type_| stored.condition(type_).cloned();
    let write = |update: ConditionUpdate| update.into_condition(stored, now);
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
    let (complete, obstacle) = kept.map_or_else(
        || {
            let obstacle = obstacle(cluster, plan, picture, now);
            let complete = complete(cluster, plan, picture, obstacle.as_ref(), now);
            (write(complete), obstacle)
        },
        |kept| (kept, stored.obstacle.clone()),
    );
    let validated = match invalid {
        None => ConditionUpdate::new(ConditionType::Validated, Reason::PlanIsValid, ""),
        Some(why) => ConditionUpdate::new(ConditionType::Validated, Reason::Error, why),
    };
    let of_resolution = |reason, why: &str| {
        Some(write(ConditionUpdate::new(
            ConditionType::LatestResolved,
            reason,
            why,
        )))
    };
    let resolved = match &plan.resolution {
        Resolution::Resolved(resolved) => of_resolution(resolved.source, ""),
        Resolution::Failed(why) => of_resolution(Reason::Error, why),
        Resolution::Held(why) => of_resolution(Reason::Held, why),
        Resolution::Pending | Resolution::Reading | Resolution::MissingSecrets(_) => {
            known(ConditionType::LatestResolved)
        }
    };
    let up_to_date = plan
        .channel
        .as_ref()
        .filter(|_| plan.spec().version_policy.is_some());
    let up_to_date =
        up_to_date.and_then(
            |_| match plan.choice().filter(|_| plan.parsed.version_policy.is_some()) {
                Some(choice) => {
                    let (reason, why) = behind(choice).unwrap_or((Reason::Latest, String::new()));
                    Some(write(ConditionUpdate::new(ConditionType::UpToDate, reason, why)))
                }
                None => known(ConditionType::UpToDate),
            },
        );
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
    (all.collect(), obstacle)
}

const NO_REPLACEMENT_POLICY: &str = "the API server drops spec.podReplacementPolicy of Jobs (KEP-3939): while a pod is being \
    deleted on a node that does not answer, its Job already has the next one";

fn complete(
    cluster: &ClusterState,
    plan: &DerivedPlan,
    picture: &PlanPicture,
    obstacle: Option<&Obstacle>,
    now: Timestamp,
) -> ConditionUpdate {
    let update = |reason, text: String| ConditionUpdate::new(ConditionType::Complete, reason, text);
    if plan.invalid.is_some() || plan.resolution.resolved().is_none() {
        return update(Reason::NotReady, "plan is not valid and resolved".to_owned());
    }
    let of_node = obstacle.and_then(|it| Some((it, it.node.as_deref()?)));
    let of_slot = of_node.and_then(|(it, node)| Some((it, node, picture.slots.get(node)?)));
    if let Some((it, node, state)) = of_slot.filter(|(_, _, state)| state.failed) {
        let job = state.job.as_deref().unwrap_or_default();
        let stopped = match &picture.blocker {
            Some(blocker @ Blocker::FailureBudget { .. }) => Some(blocker.to_string()),
            _ => state.decision.clone(),
        };
        let message = with_decision(state.message.as_deref().unwrap_or_default(), stopped.as_deref());
        let text = failure_text(&cluster.defaults.namespace, job, node, &it.reason, &message);
        return update(Reason::JobFailed, text);
    }
    if !picture.slots.is_empty() {
        let reported = obstacle.filter(|it| reported_at(it).is_some_and(|at| at <= now));
        let known = reported.map(|it| (it.reason.known(), &it.message, it.node.as_deref()));
        let text = match known {
            Some((Some(Reason::SettingMissing), why, Some(node))) => {
                format!("{NO_JOB_FOR_NODE} {node}: {why}")
            }
            Some((_, why, Some(node))) if picture.slots.contains_key(node) => format!("Node {node}: {why}"),
            Some((Some(Reason::Aborted), why, _)) => why.clone(),
            _ => String::new(),
        };
        return update(Reason::SyncJob, text);
    }
    if let Some(blocker) = &picture.after {
        return update(blocker.reason(), blocker.to_string());
    }
    if picture.waiting == 0 && plan.selector_error.is_none() {
        return update(Reason::Complete, left_out(plan, picture));
    }
    let Some(it) = obstacle else {
        return update(Reason::Resolved, String::new());
    };
    if let Some(Blocker::WindowClosed { opens, .. }) = &picture.blocker {
        let never = if opens.is_none() {
            ", and will never be"
        } else {
            ""
        };
        let text = format!("current time is not within configured window{never}");
        return update(Reason::Waiting, text);
    }
    let text = match &it.node {
        Some(node) => format!("Node {node}: {}", it.message),
        None => it.message.clone(),
    };
    update(it.reason.known().unwrap_or(Reason::Error), text)
}

/// Maximum number of nodes named in the message.
const MAX_NAMED: usize = 10;

/// What is to be said of a complete Plan: that it selects no node, or which nodes do not have its version, because users keep
/// it off them, or as their kubelets say.
fn left_out(plan: &DerivedPlan, picture: &PlanPicture) -> String {
    let skipped = &plan.targets.skipped;
    let is_left_out = !skipped.is_empty() || !picture.differs.is_empty();
    let has_selector = plan.spec().node_selector.is_some();
    if let Some(why) = selects_nothing(plan).filter(|_| !has_selector || !is_left_out) {
        return why.to_owned();
    }
    let skipped =
        (!skipped.is_empty()).then(|| format!("skipped (refit.rs/skip): {}", shortened(skipped, MAX_NAMED)));
    let version = plan.resolved.as_ref().map_or("", |resolved| &*resolved.version);
    let texts = skipped
        .into_iter()
        .chain(differs::text(version, &picture.differs));
    texts.collect::<Vec<_>>().join("; ")
}

/// Start of the message for a node when a setting of the controller is missing (S63).
const NO_JOB_FOR_NODE: &str = "Failed to create job for node";
