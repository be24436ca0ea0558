//! Jobs of system-upgrade-controller that exist at the switch.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Node;

use super::{Cluster, Finding, Severity};
use refit_api::Plan;
use refit_api::names::{
    ANNOTATION_RETRY, LABEL_CONTROLLER, LABEL_NODE, LABEL_PLAN, LABEL_PLAN_PREFIX, LABEL_VERSION,
};

pub(super) fn check(cluster: &Cluster) -> Vec<Finding> {
    let jobs = cluster
        .jobs
        .iter()
        .filter(|job| label(job, LABEL_CONTROLLER) == Some(&cluster.controller));
    jobs.filter_map(|job| finding(cluster, job)).collect()
}

fn finding(cluster: &Cluster, job: &Job) -> Option<Finding> {
    let metadata = &job.metadata;
    let title = format!(
        "Job {}/{}",
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default()
    );
    let plan_name = label(job, LABEL_PLAN)?;
    let plan = cluster
        .plans
        .iter()
        .find(|plan| plan.metadata.name.as_deref() == Some(plan_name));
    let Some(plan) = plan else {
        let change = format!("Plan {plan_name} no longer exists: both controllers delete the Job");
        return Some(Finding::new(Severity::Note, "job-without-plan", title, change));
    };
    let node_name = label(job, LABEL_NODE).unwrap_or_default();
    let node = cluster
        .nodes
        .iter()
        .find(|node| node.metadata.name.as_deref() == Some(node_name));
    let Some(node) = node else {
        let change = format!("Node {node_name} does not exist: both controllers delete the Job");
        return Some(Finding::new(Severity::Note, "job-without-node", title, change));
    };
    if is_finished(job, "Failed") {
        let change = format!(
            "it failed on {node_name}. system-upgrade-controller runs it again whenever it restarts; refit records the failure, and the node keeps its slot of {plan_name}"
        );
        let remedy = format!(
            "repair the node; after the switch, edit the Plan or run: kubectl annotate node {node_name} {ANNOTATION_RETRY}={plan_name}"
        );
        return Some(Finding::new(Severity::Change, "job-failed", title, change).remedy(remedy));
    }
    if is_finished(job, "Complete") {
        if is_labelled(node, plan, job) {
            return None;
        }
        let change = format!(
            "it has succeeded, and {node_name} is not labelled yet: refit labels the node once it is Ready, without another run"
        );
        return Some(Finding::new(Severity::Note, "job-succeeded", title, change));
    }
    let spec = job.spec.as_ref();
    // system-upgrade-controller creates Jobs at parallelism 0, and raises it when status names the node.
    let is_paused =
        spec.and_then(|spec| spec.parallelism) == Some(0) || spec.and_then(|spec| spec.suspend) == Some(true);
    if is_paused {
        let change = format!("it is paused on {node_name}: refit releases it when the node's turn comes");
        return Some(Finding::new(Severity::Note, "job-paused", title, change));
    }
    let latest = plan
        .status
        .as_ref()
        .and_then(|status| status.latest_version.as_deref());
    if latest.is_some() && latest != label(job, LABEL_VERSION) {
        let change = format!(
            "it upgrades {node_name} to {}, and the Plan is at {}: system-upgrade-controller deletes it in the middle; refit lets an upgrade that has started finish",
            label(job, LABEL_VERSION).unwrap_or_default(),
            latest.unwrap_or_default()
        );
        return Some(
            Finding::new(Severity::Change, "job-outdated", title, change)
                .remedy("nothing, or delete the Job to stop the upgrade"),
        );
    }
    let change =
        format!("it runs on {node_name}: refit adopts it and lets it finish, and starts no other Job there");
    Some(Finding::new(Severity::Note, "job-running", title, change))
}

fn label<'a>(job: &'a Job, name: &str) -> Option<&'a str> {
    job.metadata.labels.as_ref()?.get(name).map(String::as_str)
}

fn is_finished(job: &Job, condition: &str) -> bool {
    let conditions = job
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|one| one.type_ == condition && one.status == "True")
}

/// Whether the node has the hash of the Job.
fn is_labelled(node: &Node, plan: &Plan, job: &Job) -> bool {
    let name = format!(
        "{LABEL_PLAN_PREFIX}{}",
        plan.metadata.name.as_deref().unwrap_or_default()
    );
    let of_node = node.metadata.labels.as_ref().and_then(|labels| labels.get(&name));
    of_node.is_some() && of_node.map(String::as_str) == label(job, &name)
}
