//! What the controllers, the scheduler and the API server ask of a pod.

use super::store::Object;

pub(crate) fn is_bound(pod: &Object) -> bool {
    !pod.text("/spec/nodeName").is_empty()
}

/// Whether a pod has terminated.
pub(crate) fn has_ended(pod: &Object) -> bool {
    matches!(pod.text("/status/phase"), "Succeeded" | "Failed")
}

pub(crate) fn is_ready(pod: &Object) -> bool {
    let conditions = pod.value["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}
