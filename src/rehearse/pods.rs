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

/// Whether an operator controls it: a controller of a kind that Kubernetes does not have. What such a one does once a node is
/// cordoned is not simulated; it is assumed to let its pods go, as those of virtual machines, storage and databases do.
pub(crate) fn is_of_operator(pod: &Object) -> bool {
    let owners = pod.value["metadata"]["ownerReferences"].as_array();
    let mut owners = owners.into_iter().flatten();
    let in_charge = owners.find(|owner| owner["controller"] == true);
    let group = in_charge.and_then(|owner| owner["apiVersion"].as_str()?.split_once('/'));
    group.is_some_and(|(group, _)| group.contains('.'))
}
