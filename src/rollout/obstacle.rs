//! What keeps a Plan from continuing: of all reasons, the one to look at first. The condition `Complete` says it in
//! system-upgrade-controller's words, and status, page, `refit explain` and rehearsals show it.

use jiff::{SignedDuration, Timestamp};

use super::blocker::Blocker;
use super::failure::with_decision;
use super::node::state::{NodeState, PlanNodes};
use super::picture::PlanPicture;
use super::plan::DerivedPlan;
use super::resolve::{Resolution, UNRESOLVABLE};
use super::state::ClusterState;
use super::step::Key;
use refit_api::text::{MAX_CONDITION_MESSAGE, seconds, shorten};
use refit_api::{ObjectRef, Obstacle, OpenEnum, PlanCondition, Reason, Severity, names, redacted};
use refit_base::version::policy::Choice;
use refit_facts::{NodeName, SecretFacts, Text};

pub(super) fn obstacle(
    cluster: &ClusterState,
    plan: &DerivedPlan,
    picture: &PlanPicture,
    now: Timestamp,
) -> Option<Obstacle> {
    let mut obstacle = of_plan(cluster, plan)
        .or_else(|| of_failed(&picture.slots))
        .or_else(|| of_abort(plan))
        .or_else(|| of_slots(&picture.slots))
        .or_else(|| of_waiting(plan, picture))?;
    let known = plan.facts.status().obstacle.as_ref();
    let known = known.filter(|known| known.reason == obstacle.reason && known.node == obstacle.node);
    let since = known.and_then(|known| known.since.clone());
    obstacle.since = since.or_else(|| Some(seconds(now)));
    obstacle.message = shorten(&obstacle.message, MAX_CONDITION_MESSAGE).into_owned();
    obstacle.about.truncate(ObjectRef::MAX);
    Some(obstacle)
}

/// Why the Plan as a whole cannot be rolled out.
fn of_plan(cluster: &ClusterState, plan: &DerivedPlan) -> Option<Obstacle> {
    let error = |message: &str| Some(said(Reason::Error, message.to_owned()));
    if let Some(why) = &plan.invalid {
        return error(why);
    }
    match &plan.resolution {
        Resolution::MissingSecrets(why) => missing_secrets(cluster, plan).or_else(|| error(why)),
        Resolution::Failed(why) => error(&with_channel(plan, why)),
        Resolution::Held(why) => Some(said(Reason::Held, why.clone())),
        Resolution::Reading => unreadable(cluster, plan).map(|why| said(Reason::Error, why)),
        Resolution::Pending | Resolution::Resolved(_) => None,
    }
}

/// The Secrets that a Plan needs, and that do not exist.
fn missing_secrets(cluster: &ClusterState, plan: &DerivedPlan) -> Option<Obstacle> {
    let secrets = cluster.world.secrets.table();
    let is_missing = |name: &&Text| secrets.get(name) == Some(&SecretFacts::Missing);
    let missing: Vec<&str> = plan
        .secrets
        .names()
        .iter()
        .filter(is_missing)
        .map(|name| &**name)
        .collect();
    let (first, namespace) = (missing.first()?, &cluster.defaults.namespace);
    let text = match missing.len() {
        1 => format!("Secret {first}, which the Plan needs, does not exist in namespace {namespace}"),
        _ => format!(
            "Secrets that the Plan needs do not exist in namespace {namespace}: {}",
            missing.join(", ")
        ),
    };
    Some(Obstacle {
        about: missing
            .iter()
            .map(|name| ObjectRef::new("Secret", *name))
            .collect(),
        ..said(Reason::Error, text)
    })
}

/// The error of a channel, with the channel.
fn with_channel(plan: &DerivedPlan, why: &str) -> String {
    match &plan.channel {
        Some(channel) if why != UNRESOLVABLE => format!("{why} (channel {})", redacted(&channel.url)),
        _ => why.to_owned(),
    }
}

/// Why a Secret that the Plan needs cannot be read.
pub(super) fn unreadable(cluster: &ClusterState, plan: &DerivedPlan) -> Option<String> {
    if plan.resolution != Resolution::Reading {
        return None;
    }
    plan.secrets.unread().iter().find_map(|name| {
        let failure = cluster.memory.failures.get(&Key::Secret(name.clone()))?;
        Some(format!("secrets {name:?} cannot be read: {}", failure.message))
    })
}

/// The node that failed last.
fn of_failed(nodes: &PlanNodes) -> Option<Obstacle> {
    let failed = nodes.iter().filter(|(_, state)| state.failed);
    let (name, state) = failed.max_by_key(|(_, state)| state.since)?;
    let mut obstacle = of_slot(name, state);
    obstacle.message = with_decision(&obstacle.message, state.decision.as_deref());
    let job = state.job.iter().map(|job| ObjectRef::new("Job", &**job));
    obstacle.about = job.chain(obstacle.about).collect();
    Some(obstacle)
}

/// Who has aborted the roll-out, when and why.
fn of_abort(plan: &DerivedPlan) -> Option<Obstacle> {
    let by = plan.author(names::ANNOTATION_ABORT);
    plan.is_aborted().then(|| blocked(&Blocker::Aborted { by }, None))
}

/// A node that has a slot and needs a person.
fn of_slots(nodes: &PlanNodes) -> Option<Obstacle> {
    let known = |state: &NodeState| state.reason.as_ref().and_then(OpenEnum::known);
    let has = |is_it: fn(Reason) -> bool| nodes.iter().find(|(_, state)| known(state).is_some_and(is_it));
    let needs_person =
        has(Reason::is_refusal).or_else(|| has(|reason| reason.severity() == Severity::Warning));
    needs_person.map(|(name, state)| of_slot(name, state))
}

/// How long the pod of a node, or a drain, may wait before that is reported: most pull an image or wait for a budget for some
/// seconds.
const WAIT_REPORTED_AFTER: SignedDuration = SignedDuration::from_secs(30);

/// When an obstacle is worth an event and a condition, if it lasts until then.
pub(super) fn reported_at(obstacle: &Obstacle) -> Option<Timestamp> {
    let reason = obstacle.reason.known()?;
    if reason.is_refusal() || reason == Reason::Aborted {
        return Some(Timestamp::MIN);
    }
    let is_wait = matches!(reason, Reason::PodWaiting | Reason::DrainWaiting);
    let since: Timestamp = obstacle.since.as_deref().filter(|_| is_wait)?.parse().ok()?;
    since.checked_add(WAIT_REPORTED_AFTER).ok()
}

/// Maximum length of [`summary`] in bytes, without the `…` of one that is cut.
const MAX_SUMMARY: usize = 79;

/// The obstacle in a few words, for `kubectl get plans`: the node first.
pub(super) fn summary(obstacle: Option<&Obstacle>, conditions: &[PlanCondition]) -> Option<String> {
    let text = match obstacle {
        Some(Obstacle {
            node: Some(node),
            message,
            ..
        }) => format!("{node}: {message}"),
        Some(obstacle) => obstacle.message.clone(),
        None => conditions
            .iter()
            .find_map(|condition| condition.message.clone())?,
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    Some(shorten(&words.join(" "), MAX_SUMMARY).into_owned()).filter(|text| !text.is_empty())
}

fn of_slot(name: &NodeName, state: &NodeState) -> Obstacle {
    Obstacle {
        reason: state.reason.clone().unwrap_or_default(),
        message: state.message.clone().unwrap_or_default(),
        node: Some(name.to_string()),
        about: state.about.clone(),
        ..Obstacle::default()
    }
}

/// Why the nodes without a slot wait, if there are any.
fn of_waiting(plan: &DerivedPlan, picture: &PlanPicture) -> Option<Obstacle> {
    let nodes = &picture.slots;
    if let Some(why) = plan.selector_error.as_ref().filter(|_| nodes.is_empty()) {
        let text = format!("Failed to select Nodes: {why}");
        return Some(said(Reason::SelectNodesFailed, text));
    }
    if let Some(blocker) = &picture.after {
        return Some(blocked(blocker, None));
    }
    if picture.waiting == 0 {
        return of_complete(plan).filter(|_| nodes.is_empty());
    }
    // While nodes are in progress, it is expected that others wait for them.
    let is_expected = |blocker: &Blocker| {
        !nodes.is_empty() && matches!(blocker, Blocker::NoSlot { .. } | Blocker::WaveInProgress { .. })
    };
    let of_all = picture.blocker.as_ref();
    let of_all = of_all.filter(|blocker| !matches!(blocker, Blocker::NodeNotReady) && !is_expected(blocker));
    if let Some(blocker) = of_all {
        return Some(blocked(blocker, None));
    }
    let mut own = picture.nodes.iter().filter(|(_, blocker)| !is_expected(blocker));
    let not_ready = || {
        let mut names = plan.targets.not_ready().filter(|name| !nodes.contains_key(*name));
        names.next().map(|name| (name, &Blocker::NodeNotReady))
    };
    own.next()
        .or_else(not_ready)
        .map(|(name, blocker)| blocked(blocker, Some(name)))
}

/// What keeps a Plan from more that has no node left.
fn of_complete(plan: &DerivedPlan) -> Option<Obstacle> {
    if let Some(why) = selects_nothing(plan).filter(|_| plan.targets.skipped.is_empty()) {
        return Some(said(Reason::NoNodes, why.to_owned()));
    }
    let has_policy = plan.spec().version_policy.is_some() && plan.parsed.version_policy.is_some();
    let choice = plan.choice().filter(|_| has_policy);
    choice.and_then(behind).map(|(reason, why)| said(reason, why))
}

/// Why a Plan has no node, if it has none.
pub(super) fn selects_nothing(plan: &DerivedPlan) -> Option<&'static str> {
    if plan.spec().node_selector.is_none() {
        return Some("spec.nodeSelector is absent, which selects no node");
    }
    let selected = plan.targets.selected() + plan.targets.disabled;
    (selected == 0).then_some("spec.nodeSelector matches no node")
}

/// What holds back the version that the channel offers.
pub(super) fn behind(choice: &Choice) -> Option<(Reason, String)> {
    match (&choice.held, &choice.fault) {
        (Some(held), _) => Some(((&held.refusal).into(), held.message.clone())),
        (None, Some(fault)) => Some((Reason::NoVersion, fault.clone())),
        (None, None) => None,
    }
}

fn blocked(blocker: &Blocker, node: Option<&NodeName>) -> Obstacle {
    Obstacle {
        node: node.map(NodeName::to_string),
        about: blocker.about(),
        ..said(blocker.reason(), blocker.to_string())
    }
}

fn said(reason: Reason, message: String) -> Obstacle {
    Obstacle {
        reason: reason.into(),
        message,
        ..Obstacle::default()
    }
}
