//! What the words of Kubernetes about a pod mean, where no field says it.

/// Whether taints keep a pod off all nodes. The scheduler does not name them (kubernetes/kubernetes,
/// `pkg/scheduler/framework/plugins/tainttoleration`).
pub fn names_taints(message: &str) -> bool {
    message.contains("untolerated taint")
}

/// Whether the kubelet cannot get an image: its reasons are in the message.
pub fn names_image(message: &str) -> bool {
    ["ImagePull", "InvalidImageName"]
        .iter()
        .any(|it| message.contains(it))
}

/// The `ServiceAccount` without which the API server creates no pod, in the words of the admission plugin `ServiceAccount`.
pub fn missing_account(message: &str) -> Option<&str> {
    let (_, account) = message.split_once("serviceaccount \"")?;
    account.split_once('"').map(|(account, _)| account)
}
