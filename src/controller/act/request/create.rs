//! Jobs and pods to create.

use k8s_openapi::api::batch::v1::Job;
use serde::Serialize;

use super::Request;
use refit_api::{Hook, names};
use refit_facts::{NodeFacts, NodeName, PlanName};
use refit_job::{
    HookInput, JobError, JobInput, NodeInput, PlanInput, RebootInput, RebootPodMode, VerifyInput, hook_job,
    prepull_job, reboot_pod, render, verify_job,
};
use refit_rollout::{ClusterState, Kind, Step};

/// The request for a Job; `None` if its Plan or its node is gone, or the Plan has no such Job.
pub(super) fn job(cluster: &ClusterState, step: Step) -> Result<Option<Request>, String> {
    let settings = cluster.job_settings();
    let text = |error: JobError| error.to_string();
    let (name, manifest) = match step {
        Step::CreateJob {
            plan,
            node,
            job,
            attempt,
        } => {
            let input = job_input(cluster, &plan, &node, &job, attempt);
            let created = input.map(|(input, facts)| {
                tracing::debug!(
                    plan = &*plan,
                    node = &*node,
                    job = &*job,
                    attempt,
                    "creating a Job"
                );
                render(&input, settings).map(|manifest| with_boot(manifest, facts))
            });
            let created = created.transpose().map_err(text)?;
            (job, created)
        }
        Step::CreatePrepullJob { plan, node, job } => {
            let input = job_input(cluster, &plan, &node, &job, 1);
            let created = input.and_then(|(input, _)| prepull_job(&input, settings));
            if created.is_some() {
                tracing::info!(
                    plan = &*plan,
                    node = &*node,
                    job = &*job,
                    "creating a Job that pulls an image"
                );
            }
            (job, created)
        }
        Step::CreateVerifyJob {
            plan,
            node,
            job,
            hash,
            version,
            attempt,
            upgrade_job,
        } => {
            let input = cluster.job_input(&plan).zip(cluster.node(&node));
            let created = input.map(|(plan, facts)| {
                let input = VerifyInput {
                    plan: PlanInput {
                        latest_version: &version,
                        latest_hash: &hash,
                        ..plan
                    },
                    node: node_input(cluster, facts),
                    attempt: u32::try_from(attempt).unwrap_or(1),
                    upgrade_job: &upgrade_job,
                };
                verify_job(&input, settings)
            });
            let created = created.transpose().map_err(text)?.flatten();
            if created.is_some() {
                tracing::info!(
                    plan = &*plan,
                    node = &*node,
                    job = &*job,
                    "creating a Job that verifies its node"
                );
            }
            (job, created)
        }
        Step::CreateHookJob {
            plan,
            hook,
            job,
            attempt,
        } => {
            let created = of_hook(cluster, &plan, hook, &job, attempt)?;
            (job, created)
        }
        _ => return Ok(None),
    };
    let body = manifest.map(|manifest| body(&manifest)).transpose()?;
    Ok(body.map(|body| Request::create(Kind::Job, name.text(), vec![body])))
}

fn of_hook(
    cluster: &ClusterState,
    plan: &PlanName,
    hook: Hook,
    name: &str,
    attempt: i64,
) -> Result<Option<Job>, String> {
    let Some(input) = cluster.job_input(plan) else {
        return Ok(None);
    };
    let input = HookInput {
        plan: input,
        hook,
        name,
        attempt,
    };
    let created = hook_job(&input, cluster.job_settings()).map_err(|error| error.to_string())?;
    if created.is_some() {
        tracing::info!(
            plan = &**plan,
            job = name,
            hook = hook.as_str(),
            attempt,
            "creating a Job that runs once for the roll-out"
        );
    }
    Ok(created)
}

/// The request for a pod that reboots its node, or reads its boot ID; `None` if the Plan or the node is gone.
pub(super) fn pod(cluster: &ClusterState, step: Step) -> Result<Option<Request>, String> {
    let Step::CreatePod {
        plan,
        node,
        pod,
        hash,
        boot_id,
        seconds,
        name_is_taken,
    } = step
    else {
        return Ok(None);
    };
    let (Some(input), Some(facts)) = (cluster.job_input(&plan), cluster.node(&node)) else {
        return Ok(None);
    };
    let boot_id = boot_id.as_deref();
    let bytes = |critical| {
        let input = RebootInput {
            plan: input,
            node: node_input(cluster, facts),
            hash: &hash,
            mode: boot_id.map_or(RebootPodMode::Ask, |boot_id| RebootPodMode::Reboot { boot_id }),
            seconds,
            name_is_taken,
            critical,
        };
        let manifest = reboot_pod(&input, cluster.job_settings()).map_err(|error| error.to_string())?;
        body(&manifest)
    };
    // A quota may reserve the priority class for other namespaces.
    let bodies = vec![bytes(true)?, bytes(false)?];
    tracing::info!(
        plan = &*plan,
        node = &*node,
        pod = &*pod,
        boot_id,
        "creating a pod that reboots its node, or reads its boot ID"
    );
    Ok(Some(Request::create(Kind::Pod, &pod, bodies)))
}

fn body(manifest: &impl Serialize) -> Result<Vec<u8>, String> {
    serde_json::to_vec(manifest).map_err(|error| error.to_string())
}

/// A Job with the first boot of the node under it; `note_boot` adds later ones.
fn with_boot(mut manifest: Job, facts: &NodeFacts) -> Job {
    if !facts.boot_id.is_empty() {
        let annotations = manifest.metadata.annotations.get_or_insert_default();
        annotations.insert(names::ANNOTATION_BOOT_IDS.to_owned(), facts.boot_id.to_string());
    }
    manifest
}

/// What a Job of a Plan on a node is made of; `None` if either is gone.
fn job_input<'c>(
    cluster: &'c ClusterState,
    plan: &PlanName,
    node: &NodeName,
    job: &'c str,
    attempt: i64,
) -> Option<(JobInput<'c>, &'c NodeFacts)> {
    let (plan, facts) = (cluster.job_input(plan)?, cluster.node(node)?);
    let input = JobInput {
        plan,
        node: node_input(cluster, facts),
        name: job,
        attempt: u32::try_from(attempt).unwrap_or(1),
        // A drain of ours keeps a ledger on the node; kubectl, on Windows, does not.
        unschedulable_before: facts.is_windows().then_some(facts.unschedulable),
    };
    Some((input, facts))
}

fn node_input<'c>(cluster: &ClusterState, facts: &'c NodeFacts) -> NodeInput<'c> {
    NodeInput {
        name: &facts.name,
        uid: &facts.uid,
        os: facts.labels.get(names::LABEL_OS),
        shares_hostname: cluster.shares_hostname(facts),
        may_be_new: cluster.may_be_new(facts),
    }
}
