//! What the controllers, the scheduler and the API server ask of a pod, and the conditions of all objects.

use super::store::Object;
use crate::json::Value;

pub(crate) fn is_bound(pod: &Object) -> bool {
    !pod.text("/spec/nodeName").is_empty()
}

/// Whether a pod has terminated.
pub(crate) fn has_ended(pod: &Object) -> bool {
    matches!(pod.text("/status/phase"), "Succeeded" | "Failed")
}

/// The statuses of all containers.
pub(crate) fn container_statuses(pod: &Object) -> impl Iterator<Item = &Value> {
    let lists = ["initContainerStatuses", "containerStatuses"];
    lists
        .into_iter()
        .filter_map(|list| pod.value["status"][list].as_array())
        .flatten()
}

/// Whether a pod or a node is ready.
pub(crate) fn is_ready(object: &Value) -> bool {
    condition(object, "Ready").is_some_and(|ready| ready["status"] == "True")
}

pub(crate) fn condition<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|one| one["type"] == *name)
}

pub(crate) fn set_condition(object: &mut Value, condition: Value) {
    let known = object["status"]["conditions"].as_array();
    let mut conditions = known.cloned().unwrap_or_default();
    conditions.retain(|one| one["type"] != condition["type"]);
    conditions.push(condition);
    object["status"]["conditions"] = conditions.into();
}
