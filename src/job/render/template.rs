//! What the Jobs of a Plan have in common.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::limits::active_deadline_seconds;
use super::metadata;
use crate::job_input::{JobInput, PlanInput};
use crate::settings::JobSettings;
use refit_api::names;

/// `podReplacementPolicy`: no other pod before the one that fails has ended.
pub(super) const ONE_AT_A_TIME: &str = "Failed";

/// What differs between Jobs.
pub(super) struct Template<'a> {
    pub(super) name: &'a str,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) pod_labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) pod_annotations: BTreeMap<String, String>,
    pub(super) deadline: Option<i64>,
    pub(super) pod: PodSpec,
}

impl Template<'_> {
    pub(super) fn job(self, plan: &PlanInput<'_>, settings: &JobSettings) -> Job {
        Job {
            metadata: ObjectMeta {
                name: Some(self.name.to_owned()),
                namespace: Some(plan.namespace.to_owned()),
                labels: Some(self.labels),
                annotations: Some(self.annotations),
                owner_references: Some(vec![metadata::owner(plan)]),
                ..ObjectMeta::default()
            },
            spec: Some(JobSpec {
                // Parallelism is 1 from the start. system-upgrade-controller creates with 0 and patches it later (S33),
                // which costs a write per node and leaves a Job that never runs if the controller dies in between.
                completions: Some(1),
                parallelism: Some(1),
                backoff_limit: Some(settings.backoff_limit),
                active_deadline_seconds: self.deadline,
                pod_replacement_policy: Some(settings.pod_replacement_policy.clone()),
                template: PodTemplateSpec {
                    metadata: Some(ObjectMeta {
                        labels: Some(self.pod_labels),
                        annotations: Some(self.pod_annotations),
                        ..ObjectMeta::default()
                    }),
                    spec: Some(self.pod),
                },
                ..JobSpec::default()
            }),
            status: None,
        }
    }
}

/// A Job of the Plan on a node.
pub(super) fn on_node(
    input: &JobInput<'_>,
    settings: &JobSettings,
    annotations: BTreeMap<String, String>,
    pod_annotations: BTreeMap<String, String>,
    pod: PodSpec,
) -> Job {
    let JobInput { plan, node, name, .. } = input;
    let version = (names::LABEL_VERSION, plan.latest_version);
    let labels = metadata::labels(plan, node, settings, version, plan.latest_hash);
    let template = Template {
        name,
        labels: labels.clone(),
        pod_labels: labels,
        annotations,
        pod_annotations,
        deadline: active_deadline_seconds(plan.spec, settings),
        pod,
    };
    template.job(plan, settings)
}
