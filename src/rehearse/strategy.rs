//! Defaulting, validation and deletion of objects, by type.

use super::resources::Kind;
use super::status_error::StatusError;
use super::store::Object;
use crate::json::{Map, Value, json};
use refit_api::selector::{SUBDOMAIN_PROBLEM, is_subdomain};

/// Finalizer that keeps an object until its dependents are orphaned.
pub(super) const ORPHAN: &str = "orphan";
/// Finalizer that keeps an object until its dependents are deleted.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer that keeps a pod until its Job has counted it.
pub(super) const TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// Maximum length of a name.
const MAX_NAME: usize = 253;
/// Default grace period of pods.
const GRACE_SECONDS: i64 = 30;

/// Applies the API server's defaults to a new object.
pub(super) fn default(kind: Kind, value: &mut Value) {
    match kind {
        Kind::Job => job(value),
        Kind::Pod => pod(value),
        // A create cannot set the status of a type with a status subresource (`PrepareForCreate`).
        Kind::Plan | Kind::Definition | Kind::Budget => {
            if let Some(object) = value.as_object_mut() {
                object.remove("status");
            }
        }
        Kind::ReplicaSet | Kind::StatefulSet => {
            absent(&mut value["spec"], "replicas", 1.into());
            value["status"] = json!({ "replicas": 0 });
        }
        Kind::Node => absent(value, "spec", json!({})),
        _ => {}
    }
}

fn absent(value: &mut Value, field: &str, default: Value) {
    if value.get(field).is_some() {
        return; // a complete object stays shared with its origin
    }
    if let Some(object) = value.as_object_mut() {
        object.or_insert(field, default);
    } else if value.is_null() {
        let mut object = Map::new();
        object.insert(field, default);
        *value = object.into();
    }
}

fn job(value: &mut Value) {
    let (uid, name) = (
        value["metadata"]["uid"].clone(),
        value["metadata"]["name"].clone(),
    );
    // Kubernetes still sets the legacy labels without a prefix (`generateSelector`).
    let labels = [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ];
    let spec = &mut value["spec"];
    for (field, default) in [
        ("parallelism", json!(1)),
        ("completions", json!(1)),
        ("backoffLimit", json!(6)),
        ("completionMode", json!("NonIndexed")),
        ("suspend", json!(false)),
        ("podReplacementPolicy", json!("TerminatingOrFailed")),
        (
            "selector",
            json!({ "matchLabels": { "batch.kubernetes.io/controller-uid": uid } }),
        ),
    ] {
        absent(spec, field, default);
    }
    for (label, of) in labels {
        spec["template"]["metadata"]["labels"][label] = of.clone();
    }
    pod_spec(&mut spec["template"]["spec"]);
    value["status"] = json!({});
}

fn pod(value: &mut Value) {
    pod_spec(&mut value["spec"]);
    let spec = &mut value["spec"];
    let mut tolerations = spec["tolerations"].as_array().cloned().unwrap_or_default();
    // The admission plugin `DefaultTolerationSeconds` adds these. Without them, taint eviction would delete all pods of
    // a node as soon as it is not Ready, for example during a reboot.
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let known = tolerations.iter().any(|one| {
            (one["key"] == key || one["key"].as_str().unwrap_or_default().is_empty())
                && (one["effect"] == "NoExecute" || one["effect"].as_str().unwrap_or_default().is_empty())
        });
        if !known {
            tolerations.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
            }));
        }
    }
    spec["tolerations"] = tolerations.into();
    absent(spec, "enableServiceLinks", true.into());
    absent(spec, "serviceAccountName", "default".into());
    value["status"] = json!({ "phase": "Pending", "qosClass": "BestEffort" });
}

fn pod_spec(spec: &mut Value) {
    for (field, default) in [
        ("restartPolicy", json!("Always")),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("terminationGracePeriodSeconds", json!(GRACE_SECONDS)),
        ("securityContext", json!({})),
    ] {
        absent(spec, field, default);
    }
    for field in ["initContainers", "containers"] {
        let defaults = [
            ("resources", json!({})),
            ("terminationMessagePath", "/dev/termination-log".into()),
            ("terminationMessagePolicy", "File".into()),
        ];
        let complete = |container: &Value| defaults.iter().all(|(field, _)| container.get(field).is_some());
        if spec[field].as_array().is_none_or(|all| all.iter().all(complete)) {
            continue;
        }
        let containers = spec.get_mut(field).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            for (field, default) in &defaults {
                absent(container, field, default.clone());
            }
        }
    }
}

/// Whether a write increments the generation.
pub(super) fn is_another(old: &Value, new: &Value) -> bool {
    !asked_for(old).eq(asked_for(new))
}

/// All fields but metadata and status.
fn asked_for(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let fields = value.as_object().into_iter().flatten();
    fields.filter(|(field, _)| !matches!(*field, "metadata" | "status"))
}

/// Fails if the object or the change is invalid.
pub(super) fn check(kind: Kind, name: &str, old: Option<&Value>, new: &Value) -> Result<(), StatusError> {
    let Some(old) = old else {
        return check_new(kind, name, new);
    };
    let fields: &[&str] = match kind {
        Kind::Job => &["template", "completions", "selector", "completionMode"],
        Kind::Pod => &[
            "containers",
            "initContainers",
            "nodeName",
            "restartPolicy",
            "volumes",
        ],
        _ => &[],
    };
    for field in fields {
        let (old, new) = (&old["spec"][*field], &new["spec"][*field]);
        // Binding a pod once is a separate subresource in the API, and an update here.
        if old != new && !(*field == "nodeName" && old.is_null()) {
            return Err(StatusError::immutable(kind, name, &format!("spec.{field}"), new));
        }
    }
    Ok(())
}

fn check_new(kind: Kind, name: &str, new: &Value) -> Result<(), StatusError> {
    let mut causes = Vec::new();
    if name.len() > MAX_NAME || !is_subdomain(name) {
        let why = format!("Invalid value: {name:?}: {SUBDOMAIN_PROBLEM}");
        causes.push(("metadata.name".to_owned(), "FieldValueInvalid", why));
    }
    let containers = match kind {
        Kind::Job => Some(("spec.template.spec.containers", "/spec/template/spec/containers")),
        Kind::Pod => Some(("spec.containers", "/spec/containers")),
        _ => None,
    };
    if let Some((field, pointer)) = containers
        && new
            .pointer(pointer)
            .and_then(Value::as_array)
            .is_none_or(Vec::is_empty)
    {
        causes.push((
            field.to_owned(),
            "FieldValueRequired",
            "Required value".to_owned(),
        ));
    }
    if kind == Kind::Job
        && !matches!(
            new["spec"]["template"]["spec"]["restartPolicy"].as_str(),
            Some("Never" | "OnFailure")
        )
    {
        let found = &new["spec"]["template"]["spec"]["restartPolicy"];
        let why = format!("Required value: valid values: \"OnFailure\", \"Never\" (found {found})");
        causes.push((
            "spec.template.spec.restartPolicy".to_owned(),
            "FieldValueRequired",
            why,
        ));
    }
    if causes.is_empty() {
        Ok(())
    } else {
        Err(StatusError::invalid(kind, name, &causes))
    }
}

/// Grace period of a pod: 0 if no kubelet has started it, or it has terminated.
pub(super) fn grace(pod: &Object, asked: Option<i64>) -> i64 {
    let own = pod.value["spec"]["terminationGracePeriodSeconds"].as_i64();
    let bound = super::pods::is_bound(pod) && !super::pods::has_ended(pod);
    match asked.or(own).unwrap_or(GRACE_SECONDS) {
        _ if !bound => 0,
        // `BeforeDelete` reads a negative period as one second.
        ..0 => 1,
        seconds => {
            // A repeated deletion can only shorten the grace period.
            let left = pod.value["metadata"]["deletionGracePeriodSeconds"].as_i64();
            left.map_or(seconds, |left| left.min(seconds))
        }
    }
}

/// Adds the finalizer that decides about dependents. The default for Jobs of batch/v1 is to orphan them, for
/// compatibility (`DefaultGarbageCollectionPolicy` of `jobStrategy`).
pub(super) fn keep_for_dependents(kind: Kind, value: &mut Value, propagation: Option<&str>) {
    let default = if kind == Kind::Job { "Orphan" } else { "Background" };
    let keeps = match propagation.unwrap_or(default) {
        "Orphan" => Some(ORPHAN),
        "Foreground" => Some(FOREGROUND),
        _ => None,
    };
    let meta = &mut value["metadata"];
    let mut finalizers = meta["finalizers"].as_array().cloned().unwrap_or_default();
    finalizers.retain(|one| one != ORPHAN && one != FOREGROUND);
    finalizers.extend(keeps.map(Value::from));
    if finalizers.is_empty() {
        if let Some(meta) = meta.as_object_mut() {
            meta.remove("finalizers");
        }
    } else {
        meta["finalizers"] = finalizers.into();
    }
}
