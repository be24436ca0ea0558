//! Steps as bodies of requests. Prepared while the facts are at hand, sent later.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::permissions::Wishes;
use crate::api::{PlanStatus, names};
use crate::channel::Named;
use crate::job::{self, Errand, JobInput, NodeInput, RebootInput};
use crate::rollout::facts::Text;
use crate::rollout::{Event, NodeChange, NodeFacts, Step, World};

/// A step that is ready to be sent.
#[derive(Debug)]
pub enum Prepared {
    /// Patch the status of a Plan.
    Status {
        plan: Text,
        uid: Text,
        body: Value,
        events: Vec<Event>,
    },
    /// Patch a Plan.
    Plan { plan: Text, uid: Text, body: Value },
    /// Write events only.
    Tell { plan: Text, events: Vec<Event> },
    /// Make a Job.
    CreateJob { job: Text, body: Vec<u8> },
    /// Look for a Job.
    LookForJob { job: Text },
    /// Delete a Job.
    DeleteJob {
        job: Text,
        uid: Text,
        only_unbound: bool,
    },
    /// Make a pod: as one that its node cannot do without, and where that is not allowed as any other.
    CreatePod { pod: Text, bodies: [Vec<u8>; 2] },
    /// Delete a pod.
    DeletePod { pod: Text, uid: Text },
    /// Patch a Job.
    Job {
        job: Text,
        uid: Text,
        body: Value,
        events: Vec<Event>,
    },
    /// Patch a Node.
    Node {
        node: Text,
        uid: Text,
        body: Value,
        events: Vec<Event>,
    },
    /// Ask a channel.
    Poll {
        channel: Named,
        latest_version: Option<String>,
        asked_by: BTreeMap<Text, String>,
    },
    /// Ask a registry for a digest.
    ReadDigest {
        plan: Text,
        hash: Text,
        image: String,
        access: Named,
    },
    /// Read a Secret.
    ReadSecret { name: Text },
    /// Ask for permissions.
    AskPermissions(Wishes),
    /// Read a controller whose pods were evicted.
    ReadWorkload { workload: Text },
}

/// The request for a step; nothing where what it is about is not there any more, and why where it cannot be made.
pub fn prepare(world: &World, step: Step) -> Result<Option<Prepared>, String> {
    Ok(match step {
        Step::WriteStatus { plan, status, events } => world.plan(&plan).map(|facts| {
            let version = world.plan_version(&plan).unwrap_or_default();
            let body = json!({
                "metadata": { "uid": &*facts.uid, "resourceVersion": version.to_string() },
                "status": status_patch(&status),
            });
            Prepared::Status {
                plan,
                uid: facts.uid.clone(),
                body,
                events,
            }
        }),
        Step::NoteFields { plan, note } => world.plan(&plan).map(|facts| {
            let version = world.plan_version(&plan).unwrap_or_default();
            let body = json!({
                "metadata": {
                    "uid": &*facts.uid,
                    "resourceVersion": version.to_string(),
                    "annotations": { names::ANNOTATION_FIELDS: note },
                },
                // Not stored with a patch of the Plan itself: by this an API server that prunes our fields knows that it
                // has to refuse.
                "status": { "observedGeneration": facts.generation() },
            });
            Prepared::Plan {
                plan,
                uid: facts.uid.clone(),
                body,
            }
        }),
        Step::Tell { plan, events } => Some(Prepared::Tell { plan, events }),
        Step::CreateJob {
            plan,
            node,
            job,
            attempt,
        } => create_job(world, &plan, &node, job, attempt)?,
        Step::LookForJob { job, .. } => Some(Prepared::LookForJob { job }),
        Step::DeleteJob {
            job,
            uid,
            only_unbound,
            why,
        } => {
            tracing::info!(job = &*job, why, "deleting a Job");
            Some(Prepared::DeleteJob {
                job,
                uid,
                only_unbound,
            })
        }
        step @ (Step::ReleaseJob { .. }
        | Step::EndRetries { .. }
        | Step::NoteBoots { .. }
        | Step::MarkRecorded { .. }) => job_patch(world, step),
        Step::CreatePod {
            plan,
            node,
            pod,
            hash,
            boot_id,
            seconds,
        } => create_pod(world, &plan, &node, pod, &hash, boot_id.as_deref(), seconds)?,
        Step::DeletePod { pod, uid, why } => {
            tracing::info!(pod = &*pod, why, "deleting a pod");
            Some(Prepared::DeletePod { pod, uid })
        }
        Step::PatchNode {
            node,
            uid,
            change,
            events,
        } => {
            let version = world.node_version(&node).unwrap_or_default();
            let body = node_patch(&uid, version, &change);
            Some(Prepared::Node {
                node,
                uid,
                body,
                events,
            })
        }
        step @ (Step::Poll { .. }
        | Step::ReadDigest { .. }
        | Step::ReadSecret { .. }
        | Step::ReadWorkload { .. }
        | Step::AskPermissions) => question(world, step),
        Step::ReadPlans => None, // the watch does
    })
}

/// What is asked, and changes nothing.
fn question(world: &World, step: Step) -> Option<Prepared> {
    Some(match step {
        Step::Poll {
            channel,
            latest_version,
            asked_by,
        } => Prepared::Poll {
            channel,
            latest_version,
            asked_by,
        },
        Step::ReadDigest {
            plan,
            hash,
            image,
            access,
        } => Prepared::ReadDigest {
            plan,
            hash,
            image,
            access,
        },
        Step::ReadSecret { name } => Prepared::ReadSecret { name },
        Step::ReadWorkload { workload } => Prepared::ReadWorkload { workload },
        Step::AskPermissions => Prepared::AskPermissions(Wishes {
            reboots: world.has_reboots(),
            workloads: world.has_workloads(),
        }),
        _ => return None,
    })
}

/// What is patched of a Job.
fn job_patch(world: &World, step: Step) -> Option<Prepared> {
    match step {
        Step::ReleaseJob { job, uid } => {
            let body = json!({ "metadata": { "uid": &*uid }, "spec": { "parallelism": 1 } });
            Some(patch_job(job, uid, body, Vec::new()))
        }
        Step::EndRetries { job, uid, limit } => world.job_version(&job).map(|version| {
            tracing::info!(
                job = &*job,
                limit,
                "a Job that its Plan no longer asks for gets no further pod"
            );
            let body = json!({
                "metadata": { "uid": &*uid, "resourceVersion": version.to_string() },
                "spec": { "backoffLimit": limit },
            });
            patch_job(job, uid, body, Vec::new())
        }),
        Step::NoteBoots { job, uid, boots } => world.job_version(&job).map(|version| {
            tracing::info!(job = &*job, boots = boots.len(), "the node of a Job has rebooted");
            let body = json!({
                "metadata": {
                    "uid": &*uid,
                    "resourceVersion": version.to_string(),
                    "annotations": { names::ANNOTATION_BOOT_IDS: boots.join(",") },
                },
            });
            patch_job(job, uid, body, Vec::new())
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
                    // Nobody writes it after this, so who owns which field is forgotten: nearly half of what is stored of the
                    // Job, and a third of what this patch costs the API server.
                    "managedFields": [{}],
                },
                "spec": { "ttlSecondsAfterFinished": ttl_seconds },
            });
            Some(patch_job(job, uid, body, events))
        }
        _ => None,
    }
}

fn patch_job(job: Text, uid: Text, body: Value, events: Vec<Event>) -> Prepared {
    Prepared::Job {
        job,
        uid,
        body,
        events,
    }
}

fn create_job(
    world: &World,
    plan: &Text,
    node: &Text,
    job: Text,
    attempt: i64,
) -> Result<Option<Prepared>, String> {
    let (Some(plan), Some(facts)) = (world.job_input(plan), world.node(node)) else {
        return Ok(None);
    };
    let input = JobInput {
        plan,
        node: node_input(facts),
        name: &job,
        attempt: u32::try_from(attempt).unwrap_or(1),
        // A drain of ours keeps a ledger on the node; kubectl, on Windows, does not.
        unschedulable_before: facts.is_windows().then_some(facts.unschedulable),
    };
    let mut manifest = job::render(&input, world.job_settings()).map_err(|error| error.to_string())?;
    if !facts.boot_id.is_empty() {
        // The first of those that the node is seen in while the Job is there.
        let annotations = manifest.metadata.annotations.get_or_insert_default();
        annotations.insert(names::ANNOTATION_BOOT_IDS.to_owned(), facts.boot_id.to_string());
    }
    let body = serde_json::to_vec(&manifest).map_err(|error| error.to_string())?;
    tracing::info!(
        plan = plan.name,
        node = &*facts.name,
        job = &*job,
        attempt,
        "creating a Job"
    );
    Ok(Some(Prepared::CreateJob { job, body }))
}

fn create_pod(
    world: &World,
    plan: &Text,
    node: &Text,
    pod: Text,
    hash: &str,
    boot_id: Option<&str>,
    seconds: i64,
) -> Result<Option<Prepared>, String> {
    let (Some(plan), Some(facts)) = (world.job_input(plan), world.node(node)) else {
        return Ok(None);
    };
    let body = |critical| {
        let input = RebootInput {
            plan,
            node: node_input(facts),
            hash,
            errand: boot_id.map_or(Errand::Ask, |boot_id| Errand::Reboot { boot_id }),
            seconds,
            critical,
        };
        let manifest = job::reboot_pod(&input, world.job_settings()).map_err(|error| error.to_string())?;
        serde_json::to_vec(&manifest).map_err(|error| error.to_string())
    };
    let bodies = [body(true)?, body(false)?];
    tracing::info!(
        plan = plan.name,
        node = &*facts.name,
        pod = &*pod,
        boot_id,
        "creating a pod that reboots its node, or asks for its boot"
    );
    Ok(Some(Prepared::CreatePod { pod, bodies }))
}

fn node_input(facts: &NodeFacts) -> NodeInput<'_> {
    NodeInput {
        name: &facts.name,
        uid: &facts.uid,
        os: facts.labels.get(names::LABEL_OS),
    }
}

/// Fields of `status.channel`.
const CHANNEL_FIELDS: [&str; 13] = [
    "url",
    "secrets",
    "lastPolled",
    "nextPoll",
    "polledFor",
    "lastError",
    "candidate",
    "since",
    "due",
    "reason",
    "message",
    "withdrawn",
    "seen",
];

/// The whole status as a merge patch: a field that is absent is null, so that what somebody else left there goes.
fn status_patch(status: &PlanStatus) -> Value {
    const FIELDS: [&str; 11] = [
        "conditions",
        "latestVersion",
        "latestHash",
        "applying",
        "observedGeneration",
        "nodes",
        "progress",
        "active",
        "channel",
        "pinned",
        "nextWindow",
    ];
    let mut patch: Map<String, Value> = FIELDS
        .iter()
        .map(|field| ((*field).to_owned(), Value::Null))
        .collect();
    if let Ok(Value::Object(mut fields)) = serde_json::to_value(status) {
        // Within an object a merge patch keeps what it does not name.
        if let Some(Value::Object(channel)) = fields.get_mut("channel") {
            for field in CHANNEL_FIELDS {
                channel.entry(field).or_insert(Value::Null);
            }
        }
        patch.append(&mut fields);
    }
    Value::Object(patch)
}

fn node_patch(uid: &str, version: u64, change: &NodeChange) -> Value {
    let pairs = |pairs: &BTreeMap<String, Option<String>>| json!(pairs);
    let mut metadata = Map::new();
    metadata.insert("uid".to_owned(), uid.into());
    if change.exact {
        metadata.insert("resourceVersion".to_owned(), version.to_string().into());
    }
    if !change.labels.is_empty() {
        metadata.insert("labels".to_owned(), pairs(&change.labels));
    }
    if !change.annotations.is_empty() {
        metadata.insert("annotations".to_owned(), pairs(&change.annotations));
    }
    let mut body = Map::new();
    body.insert("metadata".to_owned(), Value::Object(metadata));
    if let Some(unschedulable) = change.unschedulable {
        // kubectl removes the field rather than set it to false.
        body.insert(
            "spec".to_owned(),
            json!({ "unschedulable": unschedulable.then_some(true) }),
        );
    }
    Value::Object(body)
}
