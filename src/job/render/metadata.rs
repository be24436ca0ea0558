//! Labels, annotations and owner of the Job and its pod (S30–S32).
//!
//! They inherit the Plan's labels and annotations, except for those of Kubernetes, Rancher and refit.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::limits::ttl_seconds;
use crate::error::JobError;
use crate::job_input::{JobInput, NodeInput, PlanInput};
use crate::name::label_value;
use crate::settings::JobSettings;
use refit_api::names;

/// Labels of what runs on a node, with one of its own.
pub(crate) fn labels(
    plan: &PlanInput<'_>,
    node: &NodeInput<'_>,
    settings: &JobSettings,
    own: (&str, &str),
    hash: &str,
) -> BTreeMap<String, String> {
    let own = [
        (names::LABEL_CONTROLLER, settings.controller_name.clone()),
        (names::LABEL_EXCLUSIVE, plan.is_exclusive().to_string()),
        (names::LABEL_NODE, label_value(node.name).into_owned()),
        (own.0, own.1.to_owned()),
    ];
    labels_of_plan(plan, own, hash)
}

/// The inherited labels (S30), those of the Plan itself, and these.
pub(super) fn labels_of_plan<const N: usize>(
    plan: &PlanInput<'_>,
    own: [(&str, String); N],
    hash: &str,
) -> BTreeMap<String, String> {
    let mut labels: BTreeMap<_, _> = inherited(plan.labels, &["cattle.io/", "refit.rs/"]).collect();
    labels.extend(own.map(|(key, value)| (key.to_owned(), value)));
    labels.insert(names::LABEL_PLAN.to_owned(), plan.name.to_owned());
    labels.insert(names::plan_label(plan.name), hash.to_owned());
    labels
}

/// Annotations of what runs on a node: the Plan's (S31), and those that identify the Plan and the node after the Job is deleted.
pub(crate) fn annotations(plan: &PlanInput<'_>, node: &NodeInput<'_>) -> BTreeMap<String, String> {
    let own = [
        (names::ANNOTATION_PLAN_UID, plan.uid),
        (names::ANNOTATION_NODE_NAME, node.name),
        (names::ANNOTATION_NODE_UID, node.uid),
    ];
    let mut annotations = inherited_annotations(plan);
    annotations.extend(own.map(|(key, value)| (key.to_owned(), value.to_owned())));
    annotations
}

/// Annotations of the pod that upgrades.
pub(super) fn pod_annotations(plan: &PlanInput<'_>, node: &NodeInput<'_>) -> BTreeMap<String, String> {
    let mut annotations = annotations(plan, node);
    if plan.spec.has_sentinel() {
        let when = plan.spec.reboot_when();
        annotations.insert(names::ANNOTATION_REBOOT.to_owned(), when.as_str().to_owned());
    }
    annotations
}

/// Annotations of the Job: those of its pod, and what a controller needs to adopt the Job.
pub(super) fn job_annotations(
    input: &JobInput<'_>,
    settings: &JobSettings,
    mut annotations: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, JobError> {
    let own = [
        (
            names::ANNOTATION_TTL,
            ttl_seconds(input.plan.spec, settings)?.to_string(),
        ),
        (names::ANNOTATION_ATTEMPT, input.attempt.to_string()),
        (names::ANNOTATION_INPUTS, input.plan.inputs.to_owned()),
    ];
    annotations.extend(own.map(|(key, value)| (key.to_owned(), value)));
    if let Some(before) = input.unschedulable_before {
        annotations.insert(
            names::ANNOTATION_UNSCHEDULABLE_BEFORE.to_owned(),
            before.to_string(),
        );
    }
    Ok(annotations)
}

/// The Plan's annotations that are inherited (S31).
pub(super) fn inherited_annotations(plan: &PlanInput<'_>) -> BTreeMap<String, String> {
    // `kubectl apply` keeps a copy of the whole Plan in its annotation `last-applied-configuration`.
    let foreign = ["cattle.io/", "kubectl.kubernetes.io/", "refit.rs/"];
    inherited(plan.annotations, &foreign).collect()
}

/// The entries whose key contains none of `foreign`. A part may follow a subdomain, as in `upgrade.cattle.io/`.
fn inherited<'a>(
    of_plan: Option<&'a BTreeMap<String, String>>,
    foreign: &'a [&str],
) -> impl Iterator<Item = (String, String)> + 'a {
    of_plan
        .into_iter()
        .flatten()
        .filter(|(key, _)| !foreign.iter().any(|part| key.contains(part)))
        .map(|(key, value)| (key.clone(), value.clone()))
}

/// The Plan as the Job's owner (S32). The Job is deleted with the Plan, but the deletion of the Plan does not wait for
/// it.
pub(crate) fn owner(plan: &PlanInput<'_>) -> OwnerReference {
    OwnerReference {
        api_version: format!("{}/v1", names::GROUP),
        kind: "Plan".to_owned(),
        name: plan.name.to_owned(),
        uid: plan.uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(false),
    }
}
