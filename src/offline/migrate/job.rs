//! Jobs of system-upgrade-controller that exist at the switch.

use super::finding::{Finding, Severity};
use super::reading::Reading;
use refit_api::names::ANNOTATION_RETRY;
use refit_facts::{JobFacts, JobOutcome};

pub(super) fn check(reading: &Reading<'_>) -> Vec<Finding> {
    let own = reading
        .jobs
        .iter()
        .filter(|(controller, _)| *controller == reading.controller);
    own.filter_map(|(_, job)| finding(reading, job)).collect()
}

/// Both controllers delete a Job whose Plan or Node is gone, and label the node of one that has succeeded.
fn finding(reading: &Reading<'_>, job: &JobFacts) -> Option<Finding> {
    let plan = reading.plans.iter().find(|plan| plan.name == job.plan)?;
    reading.nodes.iter().find(|node| node.name == job.node)?;
    let (plan_name, node, version) = (&job.plan, &job.node, &job.version);
    let latest = plan.status().latest_version.as_deref();
    let (severity, change, remedy) = match &job.outcome {
        JobOutcome::Complete { .. } => return None,
        JobOutcome::Failed { .. } => (
            Severity::Change,
            format!(
                "it failed on {node}. system-upgrade-controller runs it again whenever it restarts; refit records the failure, and the node keeps its slot of {plan_name}"
            ),
            format!(
                "repair the node; after the switch, edit the Plan or run: kubectl annotate node {node} {ANNOTATION_RETRY}={plan_name}"
            ),
        ),
        // system-upgrade-controller creates Jobs at parallelism 0, and raises it when status names the node.
        _ if job.parallelism == 0 => (
            Severity::Note,
            format!("it is paused on {node}: refit releases it when the node's turn comes"),
            String::new(),
        ),
        _ if latest.is_some_and(|latest| *latest != **version) => (
            Severity::Change,
            format!(
                "it upgrades {node} to {version}, and the Plan is at {}: system-upgrade-controller deletes it in the middle; refit lets an upgrade that has started finish",
                latest.unwrap_or_default()
            ),
            "nothing, or delete the Job to stop the upgrade".to_owned(),
        ),
        _ => (
            Severity::Note,
            format!("it runs on {node}: refit adopts it and lets it finish, and starts no other Job there"),
            String::new(),
        ),
    };
    let object = format!("Job {}/{}", reading.namespace, job.name);
    Some(Finding::new(severity, object, change, remedy))
}
