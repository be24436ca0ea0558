//! What stops a node whose status only says how far it is: a Job tries again until its deadline, or its `prepare` waits, and in
//! the status nothing happens meanwhile.

use super::plan::PlanOverview;
use super::read::{JobObject, PodObject, Snapshot};
use super::remedy::{Remedy, edit};
use super::{prepare, time};
use refit_api::{NodePhase, NodeProgress, ObjectRef, Obstacle, Reason};
use refit_cluster::drain::pods::fields_wanted;
use refit_facts::{JobOutcome, PlanFacts, PodStage};

/// The reason, a message and the objects that it is about, if something stops a node that has a slot.
pub(super) fn stall(
    snapshot: &Snapshot,
    plan: &PlanFacts,
    node: &NodeProgress,
) -> Option<(Reason, String, Vec<ObjectRef>)> {
    let jobs = snapshot.jobs_on(plan, &node.name);
    let job = jobs
        .last()
        .filter(|job| node.job.is_none() || node.job.as_deref() == Some(&*job.facts.name));
    let prepares = || {
        let pod = job.and_then(|job| snapshot.pod_of(job));
        // Without its pod, the node may as well be in `preflight`.
        pod.map_or(plan.object.spec.preflight.is_none(), |pod| pod.prepares)
    };
    if node.phase == NodePhase::Preparing
        && prepares()
        && let Some(awaited) = prepare::awaited(snapshot, plan)
    {
        let message = format!("`prepare` waits for {}", awaited.what);
        return Some((Reason::Prepare, message, awaited.about.into_iter().collect()));
    }
    let job = job?;
    if job.facts.outcome != JobOutcome::Running {
        return None;
    }
    if let Some(terminating) = snapshot.terminating.iter().find(|pod| pod.node == node.name) {
        let late = time::short(snapshot.now.duration_since(terminating.ends));
        let finalizers = match terminating.finalizers.as_slice() {
            [] => "its kubelet has not ended it".to_owned(),
            all => format!("its finalizers are {}", all.join(", ")),
        };
        let message = format!(
            "the drain waits for pod {}, which should have ended {late} ago; {finalizers}",
            terminating.pod
        );
        return Some((Reason::PodTerminating, message, Vec::new()));
    }
    let pod = snapshot.pod_of(job)?;
    // Once a command runs again, only its end says more.
    if !matches!(
        pod.facts.stage,
        PodStage::Ended | PodStage::Unbound | PodStage::Starting
    ) {
        return None;
    }
    let failed = failed_pods(snapshot, job);
    let last = failed.last()?.facts.failed.as_ref()?;
    let count = match failed.len() {
        1 => "a pod of the Job has failed".to_owned(),
        count => format!("{count} pods of the Job have failed"),
    };
    let message = format!("{count}; the last one: {last}");
    Some((Reason::PodFailed, message, Vec::new()))
}

/// The pods of a Job that have failed, the oldest first.
pub(super) fn failed_pods<'a>(snapshot: &'a Snapshot, job: &JobObject) -> Vec<&'a PodObject> {
    let pods = snapshot.pods.iter().filter(|pod| {
        pod.namespace == job.namespace
            && pod.facts.job_uid == job.facts.uid
            && pod.facts.stage == PodStage::Ended
            && pod.facts.failed.is_some()
    });
    let mut pods: Vec<_> = pods.collect();
    pods.sort_by_key(|pod| pod.created);
    pods
}

/// What would end a stall, and the commands for it; `None` for another reason.
pub(super) fn remedy(view: &PlanOverview<'_>, reason: Reason, node: Option<&str>) -> Option<Remedy> {
    let (namespace, plan) = (view.plan.namespace(), &view.plan.name);
    let known = node.and_then(|node| view.node(node));
    let message = known.and_then(|node| node.message.as_deref()).unwrap_or_default();
    let edit = edit(namespace, plan);
    let of_node = node.map_or_else(String::new, |node| format!(",upgrade.cattle.io/node={node}"));
    let selector = format!("-n {namespace} -l upgrade.cattle.io/plan={plan}{of_node}");
    Some(match reason {
        Reason::Prepare => return prepare::awaited(view.snapshot, view.plan)?.remedy,
        Reason::PodFailed => (
            drain_remedy(message).unwrap_or_else(|| reason.plain_remedy()),
            vec![
                format!("kubectl logs {selector} --all-containers --tail=50"),
                edit,
            ],
        ),
        Reason::PodTerminating => {
            let pod = view
                .snapshot
                .terminating
                .iter()
                .find(|pod| Some(&*pod.node) == node);
            let describe = pod
                .and_then(|pod| pod.pod.split_once('/'))
                .map(|(namespace, name)| format!("kubectl describe pod -n {namespace} {name}"));
            (
                reason.plain_remedy(),
                describe.into_iter().chain([edit]).collect(),
            )
        }
        _ => return None,
    })
}

/// The field of the Plan for the flag that a drain asks for.
fn drain_remedy(message: &str) -> Option<String> {
    let wanted: Vec<_> = fields_wanted(message)
        .map(|field| format!("spec.drain.{field}: true"))
        .collect();
    (!wanted.is_empty()).then(|| {
        format!(
            "set {}, or remove these pods yourself; the Job tries again until its deadline",
            wanted.join(" and ")
        )
    })
}

/// A Plan that is being deleted: no controller works on it any more.
pub(super) fn deletion(plan: &PlanFacts) -> Option<(Obstacle, Remedy)> {
    if !plan.is_deleting() {
        return None;
    }
    let waits = match plan.object.metadata.finalizers.as_deref().unwrap_or_default() {
        [] => "the garbage collector has not removed it yet".to_owned(),
        all => format!("it waits for its finalizers {}", all.join(", ")),
    };
    let (namespace, name) = (plan.namespace(), &plan.name);
    let obstacle = Obstacle {
        reason: Reason::Deleting.into(),
        message: format!("the Plan is being deleted, so no node starts; {waits}"),
        ..Obstacle::default()
    };
    let commands = vec![
        format!("kubectl get plan -n {namespace} {name} -o yaml"),
        edit(namespace, name),
    ];
    Some((obstacle, (Reason::Deleting.plain_remedy(), commands)))
}

#[cfg(test)]
mod tests;
