//! The guard of etcd on `OpenShift`, and that of `KubeVirt`: a control-plane node goes into maintenance only while the
//! budget of its guard pods allows it. Elsewhere the quorum of the control plane is enough, which the decision keeps.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Client;
use kube::api::{Api, ListParams};

use refit_api::selector::Selector;
use refit_cluster::kube::pages::on_node;

const NAMESPACE: &str = "openshift-etcd";

/// Why the node may not go into maintenance now.
///
/// # Errors
/// Fails if the budget or the guard pods cannot be read.
pub(super) async fn blocker(client: &Client, node: &str) -> Result<Option<String>, kube::Error> {
    let budgets = Api::<PodDisruptionBudget>::namespaced(client.clone(), NAMESPACE);
    let budgets = budgets.list(&ListParams::default()).await?.items;
    // None: this is no `OpenShift`.
    let Some(budget) = budgets.first() else {
        return Ok(None);
    };
    let allowed = budget
        .status
        .as_ref()
        .and_then(|status| status.disruptions_allowed)
        .unwrap_or_default();
    if allowed >= 1 {
        return Ok(None);
    }
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let Some(selector) = Selector::new(selector).ok() else {
        return Ok(None);
    };
    let on_node = on_node(node).labels(&selector.to_string());
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE)
        .list(&on_node)
        .await?;
    // A guard that is not Ready is disrupted already, so that to drain its node costs nothing.
    let is_ready = |pod: &Pod| {
        let conditions = pod
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        conditions
            .into_iter()
            .any(|it| it.type_ == "Ready" && it.status != "False")
    };
    Ok(pods.items.iter().any(is_ready).then(|| {
        format!(
            "can not put master/control-plane node into maintenance at this moment, disrupting node {node} will violate etcd quorum"
        )
    }))
}
