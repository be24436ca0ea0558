//! Jobs.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::parts::{Intern, SlimCondition, SlimContainer, SlimPodSpec, ignored_time, owner, slim_meta};
use crate::watched::Watched;
use crate::{BootId, JobFacts, JobOutcome};
use refit_api::names;
use refit_api::text::{MAX_MESSAGE, MAX_NAME, shorten};
use refit_job::name::hook_controller;

/// Default of `spec.backoffLimit`.
const DEFAULT_BACKOFF_LIMIT: i32 = 6;

#[derive(Clone, Debug, Default, Deserialize)]
pub struct SlimJob {
    #[serde(deserialize_with = "slim_meta")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: SlimJobSpec,
    #[serde(default)]
    status: SlimJobStatus,
}
resource!(
    SlimJob,
    "batch",
    "v1",
    "Job",
    "jobs",
    k8s_openapi::NamespaceResourceScope
);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SlimJobSpec {
    parallelism: Option<i32>,
    backoff_limit: Option<i32>,
    pod_replacement_policy: Option<IgnoredAny>,
    template: SlimTemplate,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SlimTemplate {
    spec: SlimPodSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SlimJobStatus {
    conditions: Vec<SlimCondition>,
    failed: i32,
    uncounted_terminated_pods: SlimUncounted,
}

/// Pods that have ended, but are not counted in the Job's status yet.
/// The Job controller counts them once their finalizers are removed (KEP-2307).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SlimUncounted {
    failed: Vec<IgnoredAny>,
}

impl SlimJobStatus {
    fn failures(&self) -> i32 {
        let uncounted = i32::try_from(self.uncounted_terminated_pods.failed.len()).unwrap_or(i32::MAX);
        self.failed.saturating_add(uncounted)
    }
}

impl Watched for SlimJob {
    fn ignored_time(&self) -> Option<String> {
        ignored_time(&self.status.conditions)
    }
}

impl SlimJob {
    pub fn is_of(&self, controller: &str) -> bool {
        let labels = self.labels();
        let of = labels.get(names::LABEL_CONTROLLER);
        of.is_some_and(|of| match labels.get(names::LABEL_HOOK) {
            None => of == controller,
            Some(_) => *of == hook_controller(controller),
        })
    }

    /// The facts of the Job. `ttl` is the TTL of Jobs that do not name one.
    pub fn facts(&self, intern: &Intern, ttl: i64) -> JobFacts {
        let meta = &self.metadata;
        let label = |key: &str| self.labels().get(key).map_or("", String::as_str);
        let annotation = |key: &str| self.annotations().get(key).map(String::as_str);
        let plan = label(names::LABEL_PLAN);
        let condition = |type_: &str| {
            self.status
                .conditions
                .iter()
                .find(|c| c.type_ == type_ && c.status == "True")
        };
        let created = meta
            .creation_timestamp
            .as_ref()
            .map_or(Timestamp::UNIX_EPOCH, |t| t.0);
        let at = |c: &SlimCondition| c.last_transition_time.time.unwrap_or(created);
        let text =
            |field: &Option<String>| shorten(field.as_deref().unwrap_or_default(), MAX_MESSAGE).into_owned();
        let outcome = if let Some(c) = condition("Complete") {
            JobOutcome::Complete { at: at(c) }
        } else if let Some(c) = condition("Failed") {
            JobOutcome::Failed {
                at: at(c),
                reason: text(&c.reason),
                message: text(&c.message),
            }
        } else if let Some(c) = condition("FailureTarget") {
            // The Job controller adds `Failed` only when all pods have ended (since 1.31), also on a lost node.
            JobOutcome::Failing {
                reason: text(&c.reason),
                message: text(&c.message),
            }
        } else {
            JobOutcome::Running
        };
        let cordons = |c: &SlimContainer| matches!(c.name.as_str(), "cordon" | "drain");
        JobFacts {
            name: meta.name.as_deref().unwrap_or_default().into(),
            uid: meta.uid.as_deref().unwrap_or_default().into(),
            plan: intern.text(plan),
            plan_uid: intern.text(
                annotation(names::ANNOTATION_PLAN_UID)
                    // A Job of system-upgrade-controller has no such annotation, only an owner.
                    .or_else(|| owner(meta).map(|owner| owner.uid.as_str()))
                    .unwrap_or_default(),
            ),
            // A label holds 63 characters: a longer name of a node is shortened in it, and whole in the annotation.
            node: intern
                .text(annotation(names::ANNOTATION_NODE_NAME).unwrap_or_else(|| label(names::LABEL_NODE))),
            node_uid: annotation(names::ANNOTATION_NODE_UID).map(|uid| intern.text(uid)),
            hash: intern.text(label(&names::plan_label(plan))),
            version: intern.text(label(names::LABEL_VERSION)),
            inputs: annotation(names::ANNOTATION_INPUTS).map(|inputs| intern.text(inputs)),
            attempt: annotation(names::ANNOTATION_ATTEMPT)
                .and_then(|a| a.parse().ok())
                .unwrap_or(1),
            parallelism: self.spec.parallelism.unwrap_or(1),
            backoff_limit: self.spec.backoff_limit.unwrap_or(DEFAULT_BACKOFF_LIMIT),
            failures: self.status.failures(),
            ttl: annotation(names::ANNOTATION_TTL)
                .and_then(|t| t.parse().ok())
                .unwrap_or(ttl),
            recorded: annotation(names::ANNOTATION_RECORDED).is_some(),
            deleting: meta.deletion_timestamp.is_some(),
            outcome,
            created,
            unschedulable_before: annotation(names::ANNOTATION_UNSCHEDULABLE_BEFORE).map(|b| b == "true"),
            // Jobs of system-upgrade-controller are recognized by their containers, whose names are the same.
            disruptive: label(names::LABEL_EXCLUSIVE) == "true"
                || annotation(names::ANNOTATION_REBOOT).is_some()
                || self.spec.template.spec.init_containers.iter().any(cordons),
            avoids_hosts: !self.spec.template.spec.affinity.pod_anti_affinity.is_empty(),
            has_replacement_policy: self.spec.pod_replacement_policy.is_some(),
            sentinel: annotation(names::ANNOTATION_REBOOT).is_some(),
            verify: annotation(names::ANNOTATION_VERIFY).is_some(),
            verifies: annotation(names::ANNOTATION_VERIFIES)
                .map(|upgrade| shorten(upgrade, MAX_NAME).as_ref().into()),
            boots: annotation(names::ANNOTATION_BOOT_IDS)
                .into_iter()
                .flat_map(|boots| boots.split(','))
                .filter(|boot| !boot.is_empty())
                .take(JobFacts::MAX_BOOTS)
                .map(|boot| BootId::from(&*shorten(boot, MAX_NAME)))
                .collect(),
            hook: self.labels().get(names::LABEL_HOOK).map(|hook| intern.text(hook)),
        }
    }
}
