//! The spec of a Job, a pod or another workload in the place of a Plan's, which is reported once.

use serde_json::{Map, Value, json};

use super::{SPEC, below};
use crate::gitops::Rule;
use crate::gitops::check::Subject;
use crate::gitops::check::instead::yaml;
use crate::gitops::yaml::{Kind, Node, Object};

/// Fields of the specs of pods, Jobs and other workloads that a Plan does not have.
const FIELDS: [&str; 52] = [
    "activeDeadlineSeconds",
    "affinity",
    "automountServiceAccountToken",
    "backoffLimit",
    "backoffLimitPerIndex",
    "completionMode",
    "completions",
    "concurrencyPolicy",
    "containers",
    "dnsConfig",
    "dnsPolicy",
    "enableServiceLinks",
    "ephemeralContainers",
    "failedJobsHistoryLimit",
    "hostAliases",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "hostUsers",
    "hostname",
    "initContainers",
    "jobTemplate",
    "manualSelector",
    "maxFailedIndexes",
    "minReadySeconds",
    "nodeName",
    "os",
    "overhead",
    "parallelism",
    "podFailurePolicy",
    "podReplacementPolicy",
    "preemptionPolicy",
    "priority",
    "progressDeadlineSeconds",
    "replicas",
    "restartPolicy",
    "revisionHistoryLimit",
    "runtimeClassName",
    "schedule",
    "schedulerName",
    "securityContext",
    "selector",
    "serviceAccount",
    "shareProcessNamespace",
    "startingDeadlineSeconds",
    "strategy",
    "successPolicy",
    "successfulJobsHistoryLimit",
    "template",
    "terminationGracePeriodSeconds",
    "topologySpreadConstraints",
    "ttlSecondsAfterFinished",
];
/// Fields of a pod that a Plan has too.
const SHARED: [&str; 4] = [
    "imagePullSecrets",
    "priorityClassName",
    "serviceAccountName",
    "tolerations",
];

impl Subject<'_> {
    /// Reports the spec of a workload as one finding, and returns the fields that belong to it.
    pub(super) fn fields_of_a_workload<'n>(
        &mut self,
        field: &str,
        object: &'n Object,
        key: usize,
    ) -> Vec<&'n str> {
        let node = self.object.node.get("spec").filter(|_| field == "spec");
        let Some((kind, pod)) = node.and_then(pod_of) else {
            return Vec::new();
        };
        let belongs = |name: &&str| FIELDS.contains(name) || matches!(*name, "volumes" | "updateStrategy");
        let names = object.entries.iter().map(|entry| entry.key.name.as_str());
        let names: Vec<_> = names.filter(belongs).collect();
        let shown = names.iter().take(3).copied().collect::<Vec<_>>().join(", ");
        let message = format!(
            "spec has the fields of a {kind} ({shown}{}); of these a Plan has only the container, and refit makes its Job",
            if names.len() > 3 { ", …" } else { "" }
        );
        let (hint, added) = match self.plan_of(object, pod, &names) {
            Some(spec) => (
                format!("write `spec: {}`", yaml(&spec)),
                &["upgrade", "concurrency", "nodeSelector", "version"][..],
            ),
            None => (
                "move image, command, args and env of the container that upgrades into spec.upgrade (env becomes envs), \
                 and remove the other fields"
                    .to_owned(),
                &["upgrade"][..],
            ),
        };
        self.report_at(Rule::UnknownField, key, Some(field), message, Some(hint));
        // What the hint adds is not missing.
        let added = added.iter().map(|name| below(field, name));
        let added: Vec<_> = added.filter(|field| !self.has(field)).collect();
        self.renamed.extend(added);
        names
    }

    /// The spec of the Plan that does what the workload would do, if that is clear.
    fn plan_of(&self, object: &Object, pod: &Node, of_workload: &[&str]) -> Option<Value> {
        let [container] = pod.get("containers")?.items() else {
            return None;
        };
        let image = container
            .get("image")
            .and_then(Node::text)
            .filter(|image| !image.is_empty())?;
        if pod.get("initContainers").is_some() {
            return None;
        }
        let mut upgrade = Map::new();
        upgrade.insert("image".to_owned(), image.into());
        for (from, to) in [
            ("command", "command"),
            ("args", "args"),
            ("env", "envs"),
            ("envFrom", "envFrom"),
        ] {
            let Some(value) = container
                .get(from)
                .filter(|value| matches!(value.kind, Kind::List(_)))
            else {
                continue;
            };
            upgrade.insert(to.to_owned(), value.to_json());
        }
        let example: Value = serde_saphyr::from_str(SPEC).ok()?;
        let mut spec = Map::new();
        for name in ["concurrency", "version", "nodeSelector"] {
            let is_given = match name {
                "concurrency" => self.has("spec.concurrency") || self.has("spec.maxConcurrent"),
                "version" => self.has("spec.version") || self.has("spec.channel"),
                // That of a pod is another one.
                _ => self.has("spec.nodeSelector"),
            };
            if !is_given {
                spec.insert(name.to_owned(), example.get(name)?.clone());
            }
        }
        for entry in &object.entries {
            if !of_workload.contains(&entry.key.name.as_str()) && entry.key.name != "upgrade" {
                spec.insert(entry.key.name.clone(), entry.value.to_json());
            }
        }
        for name in SHARED {
            if let Some(value) = pod.get(name).filter(|value| !value.is_null()) {
                spec.entry(name).or_insert_with(|| value.to_json());
            }
        }
        spec.insert("upgrade".to_owned(), json!(upgrade));
        Some(Value::Object(spec))
    }
}

/// The spec of the pods that a workload creates.
fn template(spec: &Node) -> Option<&Node> {
    spec.get("template")?.get("spec")
}

/// What has this spec, and the spec of its pod.
fn pod_of(spec: &Node) -> Option<(&'static str, &Node)> {
    let has_containers = |pod: &&Node| {
        pod.get("containers")
            .is_some_and(|it| matches!(it.kind, Kind::List(_)))
    };
    if has_containers(&spec) {
        return Some(("pod", spec));
    }
    if let Some(pod) = spec.get("jobTemplate").and_then(|job| template(job.get("spec")?)) {
        return Some(("CronJob", pod)).filter(|(_, pod)| has_containers(pod));
    }
    let pod = template(spec).filter(has_containers)?;
    let is_job = spec.get("selector").is_none() && spec.get("replicas").is_none();
    Some((if is_job { "Job" } else { "workload" }, pod))
}
