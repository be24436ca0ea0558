//! `spec.before` and `spec.after`: a Job each, once for each roll-out. No node starts before `before` has succeeded, and the
//! Plan is not `Complete` before `after` has.
//!
//! The order of writes is: the Job; its result in status; then its TTL with `refit.rs/recorded`. Only a stored success opens the
//! Plan. The Job has one name for each hash, edit and attempt, so it may be requested again. A roll-out that has begun
//! without `before` continues without it.

use jiff::Timestamp;

use super::blocker::Blocker;
use super::decision::Decision;
use super::later::{later, requeue};
use super::permissions;
use super::plan::DerivedPlan;
use super::pruning;
use super::refusal;
use super::resolve::Resolved;
use super::state::ClusterState;
use super::step::{Key, Step};
use refit_api::text::{MAX_CONDITION_MESSAGE, seconds, shorten};
use refit_api::{Hook, HookPhase, HookStatus, ObjectRef, PlanStatus, Reason, annotation, names};
use refit_facts::{JobFacts, JobName, JobOutcome, NodeFacts};
use refit_job::name::hook_job_name;

/// What is next for a hook that has not succeeded.
enum Turn<'a> {
    /// This Job is to run, or does.
    Run(Attempt),
    /// It failed.
    Failed {
        stored: &'a HookStatus,
        /// When it is tried again; `None` if that takes a person.
        due: Option<Timestamp>,
    },
}

struct Attempt {
    job: JobName,
    number: i64,
    retries: i64,
}

/// `None` if the Plan has no such hook, or it has succeeded.
fn turn(plan: &DerivedPlan, hook: Hook, now: Timestamp) -> Option<Turn<'_>> {
    let (inputs, resolved) = (plan.hooks.get(&hook)?, plan.resolution.resolved()?);
    let stored = stored(plan, hook, resolved);
    if stored.is_some_and(|stored| stored.phase == HookPhase::Succeeded) {
        return None;
    }
    let attempt = |number: i64, retries: i64| Attempt {
        job: hook_job_name(
            hook,
            [&plan.facts.name, &plan.facts.uid],
            &resolved.hash,
            inputs,
            number,
        )
        .into(),
        number,
        retries,
    };
    // An edit gives the Job another name, and begins anew.
    let Some(stored) = stored.filter(|stored| stored.job == *attempt(stored.attempt, 0).job) else {
        return Some(Turn::Run(attempt(1, 0)));
    };
    let next = stored.attempt.saturating_add(1);
    Some(if stored.phase != HookPhase::Failed {
        Turn::Run(attempt(stored.attempt, stored.retries))
    } else if is_retried(plan, stored) {
        Turn::Run(attempt(next, 0))
    } else {
        match retry_due(plan, stored) {
            Some(due) if due <= now => Turn::Run(attempt(next, stored.retries + 1)),
            due => Turn::Failed { stored, due },
        }
    })
}

fn stored<'a>(plan: &'a DerivedPlan, hook: Hook, resolved: &Resolved) -> Option<&'a HookStatus> {
    let stored = hook.status(plan.facts.status())?;
    (stored.hash == *resolved.hash).then_some(stored)
}

/// Whether a person has asked for the next attempt.
fn is_retried(plan: &DerivedPlan, stored: &HookStatus) -> bool {
    let asked = plan.facts.annotation(names::ANNOTATION_RETRY);
    asked.and_then(annotation::first_word) == Some(&stored.job)
}

fn retry_due(plan: &DerivedPlan, stored: &HookStatus) -> Option<Timestamp> {
    let failure = plan.spec().failure.as_ref()?;
    let since: Timestamp = stored.since.as_deref()?.parse().ok()?;
    (stored.retries < failure.retries()).then(|| later(since, failure.delay(stored.retries)))
}

/// Whether it is known what the Plan says of its hooks.
fn is_known(plan: &DerivedPlan) -> bool {
    plan.facts.malformed.is_none()
        && plan.invalid.is_none()
        && !plan.unproven
        && !pruning::are_pruned(plan)
        && plan.resolution.resolved().is_some()
}

/// The Job, if it is the Plan's and its result counts.
fn job_of<'a>(cluster: &'a ClusterState, plan: &DerivedPlan, name: &str) -> Option<&'a JobFacts> {
    let job = cluster.world.jobs.get(name)?;
    (job.plan_uid == plan.facts.uid && job.hook.is_some() && !job.recorded).then_some(job)
}

/// Whether a node has started in the current roll-out.
fn has_begun(status: &PlanStatus, hash: &str) -> bool {
    let last = status.history.as_ref().and_then(|history| history.first());
    last.is_some_and(|last| last.hash == hash)
}

/// Whether `before` has still to run, so that the roll-out has not begun.
pub(super) fn is_before_open(plan: &DerivedPlan) -> bool {
    plan.hooks.contains_key(&Hook::Before)
        && plan.resolution.resolved().is_some_and(|resolved| {
            let stored = stored(plan, Hook::Before, resolved);
            stored.is_none_or(|stored| stored.phase != HookPhase::Succeeded)
                && !has_begun(plan.facts.status(), &resolved.hash)
        })
}

/// Why no node may start, as far as `before` is concerned.
pub(super) fn gate(
    cluster: &ClusterState,
    plan: &DerivedPlan,
    now: Timestamp,
    requeue_at: &mut Option<Timestamp>,
) -> Option<Blocker> {
    if !is_before_open(plan) {
        return None;
    }
    blocker(cluster, plan, Hook::Before, now, requeue_at)
}

/// Why the Plan is not complete although all nodes are done.
pub(super) fn after(
    cluster: &ClusterState,
    plan: &DerivedPlan,
    now: Timestamp,
    requeue_at: &mut Option<Timestamp>,
) -> Option<Blocker> {
    plan.hooks.get(&Hook::After)?;
    let (resolved, status) = (plan.resolution.resolved()?, plan.facts.status());
    let last = status.history.as_ref()?.first()?;
    // A roll-out that was over before the Plan had `after` stays over.
    let is_open = last.to.is_none() || stored(plan, Hook::After, resolved).is_some();
    if last.hash != *resolved.hash || !is_open {
        return None;
    }
    blocker(cluster, plan, Hook::After, now, requeue_at)
}

fn blocker(
    cluster: &ClusterState,
    plan: &DerivedPlan,
    hook: Hook,
    now: Timestamp,
    requeue_at: &mut Option<Timestamp>,
) -> Option<Blocker> {
    match turn(plan, hook, now)? {
        Turn::Run(attempt) => {
            let job = cluster.world.jobs.get(&attempt.job);
            let waits = match job {
                Some(job) => waits(cluster, job, hook.status(plan.facts.status()), now),
                None if cluster.memory.name_conflicts.contains_key(attempt.job.text()) => {
                    let until = cluster.memory.name_conflict_until(attempt.job.text(), now);
                    requeue(requeue_at, until);
                    Some("another Job has that name; delete it".to_owned())
                }
                None => {
                    let failure = cluster.memory.failures.get(&Key::Job(attempt.job.clone()));
                    failure.map(|failure| format!("it cannot be created: {}", failure.message))
                }
            };
            Some(Blocker::HookRunning {
                hook,
                since: job.filter(|job| !job.recorded).map(|job| job.created),
                job: attempt.job,
                waits,
            })
        }
        Turn::Failed { stored, due } => {
            requeue(requeue_at, due);
            Some(has_failed(hook, stored, due))
        }
    }
}

/// What the pod of a Job waits for, or why it has none. When the Job exceeds its deadline, its pods are deleted before it has
/// failed, and status keeps what they waited for.
fn waits(
    cluster: &ClusterState,
    job: &JobFacts,
    stored: Option<&HookStatus>,
    now: Timestamp,
) -> Option<String> {
    let mut pods = cluster.world.pods.of(job).filter(|pod| !pod.deleting).peekable();
    if pods.peek().is_some() && !matches!(job.outcome, JobOutcome::Failing { .. }) {
        return pods.find_map(|pod| pod.waiting.clone());
    }
    let stored = stored.filter(|stored| stored.job == *job.name && stored.phase == HookPhase::Running);
    let refusal = refusal::of(cluster, job, now).and_then(|refusal| refusal.text);
    refusal.or_else(|| stored?.message.clone())
}

/// What runs on a node, where no Plan may take it down. A node that is not Ready may never report the end, and a
/// pod that waits to be started loses nothing.
pub(super) fn running_on(cluster: &ClusterState, node: &NodeFacts) -> Option<Vec<ObjectRef>> {
    let pod = cluster
        .world
        .pods
        .hooks_on(&node.name)
        .find(|pod| pod.waiting.is_none())
        .filter(|_| node.ready)?;
    let job = cluster.world.jobs.hooks().find(|job| job.uid == pod.job_uid);
    let (kind, name) = job.map_or(("Pod", &pod.name), |job| ("Job", job.name.text()));
    Some(vec![ObjectRef::new(kind, &**name), ObjectRef::plan(&*pod.plan)])
}

/// The step that creates the Job of a hook, unless one is there or something must be written first.
pub(super) fn start(cluster: &ClusterState, plan: &DerivedPlan, hook: Hook, now: Timestamp) -> Option<Step> {
    let Some(Turn::Run(Attempt { job, number, .. })) = turn(plan, hook, now) else {
        return None;
    };
    let hash = &plan.resolution.resolved()?.hash;
    let is_ready = plan.facts.status().latest_hash.as_deref() == Some(&**hash)
        && plan.digests.is_stored()
        && permissions::are_granted(cluster, plan);
    // Never two of a Plan at once, nor one beside that of a deleted Plan of its name.
    let others = cluster.world.jobs.hooks_of(&plan.facts.name);
    let mut others = others.filter(|other| other.name != job);
    let is_alone = !others.any(JobFacts::is_live);
    if !is_ready || !is_alone {
        return None;
    }
    match cluster.world.jobs.get(&job) {
        None if cluster.memory.name_conflict_until(job.text(), now).is_some() => None,
        None => Some(Step::CreateHookJob {
            plan: plan.facts.name.clone(),
            hook,
            job,
            attempt: number,
        }),
        // Its result was stored, and has been lost since, or is that of an earlier roll-out at the same hash.
        Some(known) if known.recorded && !known.deleting => Some(Step::delete(
            known,
            "its result is recorded, and its name is needed",
        )),
        Some(_) => None,
    }
}

/// Records the Jobs of hooks that have ended, ends those that the Plan does not need any more, and asks why one has no pod.
pub(super) fn tend(cluster: &ClusterState, plan: &DerivedPlan, now: Timestamp, decision: &mut Decision) {
    let jobs = cluster.world.jobs.hooks_of(&plan.facts.name);
    let open = jobs.filter(|job| job.plan_uid == plan.facts.uid && !job.recorded);
    let status = plan.facts.status();
    for job in open {
        let is_stored = Hook::ALL.into_iter().any(|hook| {
            let stored = hook.status(status).filter(|stored| stored.job == *job.name);
            stored.is_some_and(|stored| stored.phase != HookPhase::Running)
        });
        let is_wanted = |hook: Hook| match turn(plan, hook, now) {
            Some(Turn::Run(attempt)) => attempt.job == job.name,
            _ => false,
        };
        let is_void = || is_known(plan) && !Hook::ALL.into_iter().any(is_wanted);
        if job.outcome.ended().is_some() {
            if is_stored || is_void() {
                decision
                    .steps
                    .push(Step::record(job, Vec::new(), now).in_background());
            }
        } else if !job.deleting && (plan.is_aborted() || is_void()) {
            decision
                .steps
                .push(Step::delete(job, "the Plan no longer requires it"));
        } else if let Some(refusal) = refusal::of(cluster, job, now) {
            decision.steps.extend(refusal.ask);
            decision.requeue(refusal.again);
        }
    }
}

/// The Jobs whose Plan is gone, also if another one has its name now.
pub(super) fn orphans(cluster: &ClusterState) -> impl Iterator<Item = &JobFacts> {
    let is_orphan = |job: &&JobFacts| {
        let plan = cluster.plans.get(&job.plan);
        !job.recorded && !job.deleting && plan.is_none_or(|plan| plan.facts.uid != job.plan_uid)
    };
    cluster.world.jobs.hooks().filter(is_orphan)
}

/// `status.before` or `status.after`.
pub(super) fn status(
    cluster: &ClusterState,
    plan: &DerivedPlan,
    hook: Hook,
    now: Timestamp,
) -> Option<HookStatus> {
    let kept = hook.status(plan.facts.status());
    if !is_known(plan) {
        return kept.cloned();
    }
    let (_, resolved) = (plan.hooks.get(&hook)?, plan.resolution.resolved()?);
    let kept = kept.filter(|kept| kept.hash == *resolved.hash);
    let Some(Turn::Run(attempt)) = turn(plan, hook, now) else {
        return kept.cloned();
    };
    let Some(job) = job_of(cluster, plan, &attempt.job) else {
        // That of before an edit does not count any more.
        let is_earlier = |kept: &&HookStatus| kept.attempt < attempt.number || kept.job == *attempt.job;
        return kept.filter(is_earlier).cloned();
    };
    let (phase, since, message) = match &job.outcome {
        JobOutcome::Complete { at } => (HookPhase::Succeeded, *at, None),
        JobOutcome::Failed { at, reason, message } => {
            let why = why(cluster, job, kept, [reason, message], now);
            (HookPhase::Failed, *at, Some(why))
        }
        JobOutcome::Running | JobOutcome::Failing { .. } => {
            (HookPhase::Running, job.created, waits(cluster, job, kept, now))
        }
    };
    Some(HookStatus {
        hash: resolved.hash.to_string(),
        phase: phase.into(),
        since: Some(seconds(since)),
        job: job.name.to_string(),
        attempt: attempt.number,
        retries: attempt.retries,
        message,
    })
}

fn why(
    cluster: &ClusterState,
    job: &JobFacts,
    stored: Option<&HookStatus>,
    [reason, message]: [&str; 2],
    now: Timestamp,
) -> String {
    let is_late = reason == Reason::DeadlineExceeded.name();
    let waited = is_late.then(|| waits(cluster, job, stored, now)).flatten();
    let failed = || cluster.failed_container(job).map(ToString::to_string);
    let text = waited.or_else(failed).map_or_else(
        || format!("{reason}: {message}"),
        |cause| format!("{cause} ({reason}: {message})"),
    );
    shorten(&text, MAX_CONDITION_MESSAGE / 2).into_owned()
}

/// The hook that failed for good, and why.
pub(super) fn failed(plan: &DerivedPlan, status: &PlanStatus) -> Option<Blocker> {
    if plan.hooks.is_empty() {
        return None;
    }
    Hook::ALL.into_iter().find_map(|hook| {
        let of = hook.status(status).filter(|of| of.phase == HookPhase::Failed)?;
        let is_final = retry_due(plan, of).is_none();
        is_final.then(|| has_failed(hook, of, None))
    })
}

fn has_failed(hook: Hook, stored: &HookStatus, due: Option<Timestamp>) -> Blocker {
    Blocker::HookFailed {
        hook,
        job: stored.job.as_str().into(),
        why: stored.message.clone().unwrap_or_default(),
        due,
    }
}
