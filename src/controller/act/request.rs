//! Steps as bodies of requests. Prepared while the facts are at hand, sent later.

mod create;

use serde_json::{Value, json};

use super::permissions::Checked;
use super::write::{Target, Verb, Write};
use crate::story;
use refit_api::names;
use refit_facts::{ConditionChange, JobName, PlanName, Text};
use refit_rollout::{ClusterState, Event, Kind, MaintenanceTurn, Query, RemediationStep, Step};

/// A step that is ready to be sent.
#[derive(Debug)]
pub enum Request {
    Write(Write),
    /// Write events about a Plan only.
    Events {
        plan: PlanName,
        events: Vec<Event>,
    },
    /// Read something.
    Query(Query),
    Maintain(Box<MaintenanceTurn>),
    Remediation(RemediationStep),
    Permissions(Checked),
}

impl Request {
    fn write(kind: Kind, name: &Text, uid: &str, verb: Verb, events: Vec<Event>) -> Self {
        let target = Target {
            kind,
            name: name.clone(),
            uid: uid.into(),
        };
        Self::Write(Write { target, verb, events })
    }

    fn create(kind: Kind, name: &Text, bodies: Vec<Vec<u8>>) -> Self {
        Self::write(kind, name, "", Verb::Create(bodies), Vec::new())
    }
}

/// The request for a step; `None` if its object no longer exists, and an error if the request cannot be built.
///
/// # Errors
/// Fails if the request cannot be built, for example because the Plan cannot be rendered.
pub fn prepare(cluster: &ClusterState, step: Step) -> Result<Option<Request>, String> {
    Ok(match step {
        Step::WriteStatus {
            plan, status, events, ..
        } => cluster.plan(&plan).map(|facts| {
            let version = cluster.plan_version(&plan).unwrap_or_default();
            let drains = facts.object.spec.drain.is_some();
            story::tell(&plan, drains, facts.status(), &status);
            // With a resourceVersion, the API server refuses a patch of an object that has changed since (409). The UID
            // has it refuse another object of the same name. `add` replaces a member that exists (RFC 6902, section
            // 4.1), and with it what another writer left.
            let body = json!([
                { "op": "add", "path": "/metadata/uid", "value": &*facts.uid },
                { "op": "add", "path": "/metadata/resourceVersion", "value": version.to_string() },
                { "op": "add", "path": "/status", "value": status },
            ]);
            let verb = Verb::PatchStatus(body);
            Request::write(Kind::Plan, plan.text(), &facts.uid, verb, events)
        }),
        Step::NoteFields { plan, note } => {
            annotate_plan(cluster, &plan, names::ANNOTATION_FIELDS, note.as_deref())
        }
        Step::NoteNotified { plan, notified } => {
            annotate_plan(cluster, &plan, names::ANNOTATION_NOTIFIED, Some(&notified))
        }
        Step::WriteEvents { plan, events } => Some(Request::Events { plan, events }),
        step @ (Step::CreateJob { .. }
        | Step::CreateVerifyJob { .. }
        | Step::CreateHookJob { .. }
        | Step::CreatePrepullJob { .. }) => create::job(cluster, step)?,
        Step::DeleteJob {
            job,
            uid,
            only_unbound,
            why,
        } => {
            tracing::info!(job = &*job, why, "deleting a Job");
            let verb = Verb::Delete { only_unbound };
            Some(Request::write(Kind::Job, job.text(), &uid, verb, Vec::new()))
        }
        step @ (Step::ReleaseJob { .. }
        | Step::EndRetries { .. }
        | Step::NoteBoots { .. }
        | Step::MarkRecorded { .. }) => job_patch(cluster, step),
        step @ Step::CreatePod { .. } => create::pod(cluster, step)?,
        Step::DeletePod { pod, uid, why } => {
            tracing::info!(pod = &*pod, why, "deleting a pod");
            let verb = Verb::Delete { only_unbound: false };
            Some(Request::write(Kind::Pod, &pod, &uid, verb, Vec::new()))
        }
        Step::PatchNode {
            node,
            uid,
            change,
            events,
        } => {
            let version = cluster.node_version(&node).unwrap_or_default();
            let verb = Verb::Patch(change.body(&uid, version));
            Some(Request::write(Kind::Node, node.text(), &uid, verb, events))
        }
        Step::PatchConditions {
            node,
            uid,
            changes,
            at,
        } => {
            let version = cluster.node_version(&node).unwrap_or_default();
            let body = ConditionChange::patch(&uid, &version.to_string(), &changes, at);
            let verb = Verb::PatchConditions(body);
            Some(Request::write(Kind::Node, node.text(), &uid, verb, Vec::new()))
        }
        Step::Query(query) => Some(Request::Query(query)),
        Step::Maintain(turn) => Some(Request::Maintain(turn)),
        Step::Remediation(step) => Some(Request::Remediation(step)),
        Step::AskPermissions => Some(Request::Permissions(Checked {
            needs: refit_rollout::plan_needs(cluster),
            front_ends: cluster.has_front_ends(),
        })),
        Step::ReadPlans => None, // the watch does
    })
}

fn job_patch(cluster: &ClusterState, step: Step) -> Option<Request> {
    match step {
        Step::ReleaseJob { job, uid } => {
            // system-upgrade-controller creates its Jobs with parallelism 0.
            let body = json!({ "metadata": { "uid": &*uid }, "spec": { "parallelism": 1 } });
            Some(patch_job(&job, &uid, body))
        }
        Step::EndRetries { job, uid, limit } => cluster.job_version(&job).map(|version| {
            tracing::info!(
                job = &*job,
                limit,
                "the Plan no longer requires this Job, which therefore creates no further pod"
            );
            let body = json!({
                "metadata": { "uid": &*uid, "resourceVersion": version.to_string() },
                "spec": { "backoffLimit": limit },
            });
            patch_job(&job, &uid, body)
        }),
        Step::NoteBoots { job, uid, boots } => cluster.job_version(&job).map(|version| {
            tracing::info!(job = &*job, boots = boots.len(), "the node of a Job has rebooted");
            let body = json!({
                "metadata": {
                    "uid": &*uid,
                    "resourceVersion": version.to_string(),
                    "annotations": { names::ANNOTATION_BOOT_IDS: boots.join(",") },
                },
            });
            patch_job(&job, &uid, body)
        }),
        Step::MarkRecorded {
            job,
            uid,
            ttl_seconds,
            events,
            ..
        } => {
            let body = json!({
                "metadata": {
                    "uid": &*uid,
                    "annotations": { names::ANNOTATION_RECORDED: "true" },
                    // Nothing applies to this Job any more, so its field owners are dropped: nearly half of its stored
                    // size, and a third of the API server's cost of this patch.
                    // An empty list would change nothing (Server-Side Apply, "Clearing managedFields").
                    "managedFields": [{}],
                },
                // With a TTL from the beginning, Kubernetes might delete the Job before its result is recorded.
                "spec": { "ttlSecondsAfterFinished": ttl_seconds },
            });
            let verb = Verb::MarkRecorded(body);
            Some(Request::write(Kind::Job, job.text(), &uid, verb, events))
        }
        _ => None,
    }
}

fn patch_job(job: &JobName, uid: &str, body: Value) -> Request {
    Request::write(Kind::Job, job.text(), uid, Verb::Patch(body), Vec::new())
}

/// Sets an annotation of a Plan at the version that the decision saw.
fn annotate_plan(
    cluster: &ClusterState,
    plan: &PlanName,
    name: &str,
    value: Option<&str>,
) -> Option<Request> {
    let facts = cluster.plan(plan)?;
    let version = cluster.plan_version(plan).unwrap_or_default();
    let body = json!({
        "metadata": {
            "uid": &*facts.uid,
            "resourceVersion": version.to_string(),
            "annotations": { name: value },
        },
        // Not stored with a patch of the Plan itself: by this an API server that prunes our fields knows that it has to
        // refuse.
        "status": { "observedGeneration": facts.generation() },
    });
    Some(Request::write(
        Kind::Plan,
        plan.text(),
        &facts.uid,
        Verb::Patch(body),
        Vec::new(),
    ))
}
