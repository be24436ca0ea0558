//! What holds a Job: its pod, and the pods and budgets that a drain waits for.

use crate::explanation::{Explanation, MAX_NAMED};
use crate::plan::PlanOverview;
use crate::read::{JobObject, Snapshot};
use crate::{stall, time};
use refit_api::{DrainWait, NodeProgress};
use refit_facts::{JobOutcome, PodStage};

/// The Job of a node, its pod, and what that waits for.
pub(super) fn chain_of_job(view: &PlanOverview<'_>, node: &NodeProgress, explanation: &mut Explanation) {
    let jobs = view.snapshot.jobs_on(view.plan, &node.name);
    let Some(job) = jobs.last().filter(|job| {
        // The Job that verifies the node is another one than status names.
        let is_named = node.job.as_deref() == Some(&*job.facts.name);
        node.job.is_none() || is_named || job.facts.verifies.is_some()
    }) else {
        return;
    };
    let attempt = job.facts.attempt;
    let object = format!("Job {}/{}", job.namespace, job.facts.name);
    explanation.link(object, format!("attempt {attempt}: {}", outcome(job)));
    let Some(pod) = view.snapshot.pod_of(job) else {
        return;
    };
    if pod.facts.waiting.is_none()
        && job.facts.outcome == JobOutcome::Running
        && let Some(failed) = stall::failed_pods(view.snapshot, job).last()
    {
        let last = failed
            .facts
            .failed
            .as_ref()
            .map_or_else(String::new, ToString::to_string);
        explanation.link(
            format!("Pod {}/{}", failed.namespace, failed.facts.name),
            format!("ended: {last}"),
        );
        return;
    }
    let says = match (&pod.facts.waiting, &pod.facts.failed, pod.facts.stage) {
        (Some(why), _, _) => why.clone(),
        (None, Some(last), PodStage::Ended) => format!("ended: {last}"),
        (None, _, stage) => stage.phase().about().trim_end_matches('.').to_owned(),
    };
    explanation.link(format!("Pod {}/{}", pod.namespace, pod.facts.name), says);
    let waits = view
        .snapshot
        .drain_of(pod)
        .into_iter()
        .flat_map(|drain| &drain.waiting);
    // The longest wait is the first one, and a chain leads to one object.
    for wait in waits.take(1) {
        chain_of_drain(view.snapshot, wait, explanation);
    }
}

pub(super) fn outcome(job: &JobObject) -> String {
    let created = job.facts.created;
    let took = |at: jiff::Timestamp| time::short(at.duration_since(created));
    match &job.facts.outcome {
        JobOutcome::Running if job.facts.parallelism == 0 => format!("created {created:.0}, suspended"),
        JobOutcome::Running => format!("running since {created:.0}"),
        JobOutcome::Failing { reason, message } => format!("about to fail: {reason}: {message}"),
        JobOutcome::Complete { at } => format!("succeeded at {at:.0} after {}", took(*at)),
        JobOutcome::Failed { at, reason, message } => {
            format!("failed at {at:.0} after {}: {reason}: {message}", took(*at))
        }
    }
}

/// A pod that a drain cannot evict, its budget, and the pods for which that waits.
fn chain_of_drain(snapshot: &Snapshot, wait: &DrainWait, explanation: &mut Explanation) {
    let since = time::short(snapshot.now.duration_since(wait.since));
    explanation.link(
        format!("Pod {}", wait.pod),
        format!("cannot be evicted for {since}: {}", wait.why),
    );
    let (Some(budget), Some((namespace, _))) = (&wait.pdb, wait.pod.split_once('/')) else {
        return;
    };
    let name = budget.rsplit('/').next().unwrap_or(budget);
    let object = format!("PodDisruptionBudget {namespace}/{name}");
    let Some(known) = snapshot
        .budgets
        .iter()
        .find(|one| one.namespace == namespace && one.name == name)
    else {
        explanation.link(object, "refuses the eviction; it could not be read");
        return;
    };
    let says = format!(
        "allows {} disruptions: {} of {} pods are healthy, and {} have to be",
        known.allowed, known.healthy, known.expected, known.desired
    );
    explanation.link(object, says);
    let get = format!("kubectl get pdb,pods -n {namespace}");
    match known.unready.as_slice() {
        [] if known.desired >= known.expected => explanation.set_remedy(
            "the budget never allows an eviction: relax it, add replicas, or set drain.disableEviction",
            &[format!("kubectl edit pdb -n {namespace} {name}"), get],
        ),
        [] => explanation.set_remedy(
            "wait until a pod of the budget may be evicted, or relax the budget",
            &[get],
        ),
        unready => {
            for (pod, why) in unready.iter().take(MAX_NAMED) {
                explanation.link(format!("Pod {namespace}/{pod}"), format!("is not Ready: {why}"));
            }
            explanation.set_remedy(
                "make these pods Ready, or relax the budget",
                &[
                    format!("kubectl describe pods -n {namespace} {}", unready[0].0),
                    get,
                ],
            );
        }
    }
}
