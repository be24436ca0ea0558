//! The status of a `NodeOp` or a `NodeOpUpgrade`, in kairos-operator's words. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use refit_api::phase::{ConditionType, NodePhase};
use refit_api::{NodeProgress, Plan, PlanSpec, PlanStatus, Reason};
use refit_facts::objects::node_op::{AnyOp, OpKind, OpNodeStatus, OpPhase, OpStatus};

/// The status that follows from the one before, the Plan, the nodes that have the label of its hash, and those that `preflight`
/// has skipped, with why.
pub(super) fn next(
    op: &AnyOp,
    plan: &Plan,
    done: &[String],
    skipped: &BTreeMap<String, String>,
    now: Timestamp,
) -> OpStatus {
    let mut nodes = op.status.node_statuses.clone();
    let mut set = |name: &str, entry: OpNodeStatus| {
        let known = nodes.entry(name.to_owned()).or_default();
        let same = OpNodeStatus {
            last_updated: known.last_updated.clone(),
            ..entry
        };
        if *known != same {
            *known = OpNodeStatus {
                last_updated: Some(format!("{now:.0}")),
                ..same
            };
        }
    };
    let known_job = |name: &str| {
        let known = op.status.node_statuses.get(name);
        known.map(|known| known.job_name.clone()).unwrap_or_default()
    };
    for name in done {
        set(name, of_done(known_job(name), plan));
    }
    for (name, why) in skipped {
        let skipped = OpNodeStatus {
            phase: OpPhase::Completed.into(),
            message: format!("Skipped by preflight: {why}"),
            reboot_status: not_requested(),
            ..OpNodeStatus::default()
        };
        set(name, skipped);
    }
    let active = || plan.stored_status().active.iter().flatten();
    for node in active() {
        if let Some(entry) = at_work(node, &plan.spec) {
            set(&node.name, entry);
        }
    }
    if is_complete(plan) {
        // The Plan is over without them: they have left the cluster or the selection, and nothing would end these entries.
        let active: BTreeSet<_> = active().map(|node| &node.name).collect();
        nodes.retain(|name, entry| {
            let has_ended = entry.phase == OpPhase::Completed && entry.reboot_status != "pending";
            has_ended || active.contains(name)
        });
    }
    let phase = phase(&nodes, plan);
    let (phase, message) = match op.kind {
        OpKind::Op => (phase, String::new()),
        OpKind::Upgrade if nodes.is_empty() => (OpPhase::Initializing, "NodeOp created".to_owned()),
        OpKind::Upgrade => {
            let how = match phase {
                OpPhase::Completed => "completed successfully",
                OpPhase::Failed => "failed",
                _ => "is running",
            };
            (phase, format!("Upgrade operation {how}"))
        }
    };
    let mut status = OpStatus {
        phase: phase.into(),
        node_statuses: nodes,
        message,
        last_updated: op.status.last_updated.clone(),
    };
    if status != op.status {
        status.last_updated = Some(format!("{now:.0}"));
    }
    status
}

fn not_requested() -> String {
    "not-requested".to_owned()
}

fn of_done(job_name: String, plan: &Plan) -> OpNodeStatus {
    let (message, reboot) = if plan.spec.may_reboot() {
        ("Job and reboot completed successfully", "completed")
    } else {
        ("Job completed successfully", "not-requested")
    };
    OpNodeStatus {
        phase: OpPhase::Completed.into(),
        job_name,
        message: message.to_owned(),
        reboot_status: reboot.to_owned(),
        last_updated: None,
    }
}

/// The entry of a node that has a slot; `None` while it waits.
fn at_work(node: &NodeProgress, spec: &PlanSpec) -> Option<OpNodeStatus> {
    use NodePhase as P;
    let reboot = if spec.may_reboot() {
        "pending"
    } else {
        "not-requested"
    };
    let (phase, message, reboot) = match node.phase.known()? {
        P::Waiting => return None,
        P::Pending | P::Starting => (OpPhase::Pending, "Job created".to_owned(), reboot),
        P::Preparing if spec.preflight.is_some() => {
            (OpPhase::Preflight, "Preflight in progress".to_owned(), reboot)
        }
        P::Preparing | P::Cordoning | P::Draining | P::Upgrading | P::Finishing => {
            (OpPhase::Running, "Job is running".to_owned(), reboot)
        }
        P::Rebooting | P::Settling | P::Verifying => (
            OpPhase::Completed,
            "Job completed successfully".to_owned(),
            reboot,
        ),
        P::Failed => {
            let why = node.message.as_deref().unwrap_or_default();
            let why = if why.is_empty() {
                String::new()
            } else {
                format!(": {why}")
            };
            let reboot = if spec.may_reboot() { "cancelled" } else { reboot };
            (OpPhase::Failed, format!("Job failed{why}"), reboot)
        }
    };
    Some(OpNodeStatus {
        phase: phase.into(),
        job_name: node.job.clone().unwrap_or_default(),
        message,
        reboot_status: reboot.to_owned(),
        last_updated: None,
    })
}

/// The phase of the object. Without a node it stays `Running`, because one may join.
fn phase(nodes: &BTreeMap<String, OpNodeStatus>, plan: &Plan) -> OpPhase {
    if nodes.values().any(|node| node.phase == OpPhase::Failed) {
        return OpPhase::Failed;
    }
    if is_complete(plan) && !nodes.is_empty() {
        OpPhase::Completed
    } else {
        OpPhase::Running
    }
}

/// Whether all nodes of the Plan are done.
fn is_complete(plan: &Plan) -> bool {
    let status = plan.stored_status();
    status.is_true(ConditionType::Complete) && status.observed_generation == plan.metadata.generation
}

/// Why the Plan is invalid, and does nothing.
pub(super) fn invalid(status: &PlanStatus) -> Option<String> {
    let validated = status.condition(ConditionType::Validated)?;
    let why = validated.message.clone().unwrap_or_default();
    (validated.status == "False").then_some(why)
}

/// Whether fields of the Plan were lost under another `CustomResourceDefinition`. It waits until it is applied again.
pub(super) fn lacks_fields(status: &PlanStatus) -> bool {
    status
        .condition(ConditionType::Complete)
        .and_then(|complete| complete.reason.as_ref())
        .is_some_and(|reason| *reason == Reason::SpecPruned)
}
