//! Simulated kubelets on a real control plane.

mod nodes;
mod pods;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde_json::{Value, json};

use crate::testenv::context::TestContext;
use crate::testenv::kubelet::{FakeKubelet, NodeSet};
use crate::testenv::wait::{self, SOON};

/// A test context with some nodes, and their names.
async fn with_nodes(
    names: &[&str],
    change: impl FnOnce(NodeSet) -> NodeSet,
) -> (TestContext, FakeKubelet, Vec<String>) {
    let ctx = TestContext::new().await;
    let names: Vec<String> = names.iter().map(|name| ctx.node_name(name)).collect();
    let kubelets = start(&ctx, change(NodeSet::named(&names))).await;
    (ctx, kubelets, names)
}

async fn start(ctx: &TestContext, nodes: NodeSet) -> FakeKubelet {
    FakeKubelet::start(
        &ctx.test_env.kubelet_config().await,
        nodes.labels(ctx.node_labels()),
    )
    .await
}

/// Creates a pod on a node, without a scheduler.
async fn bind(ctx: &TestContext, node: &str, name: &str, steering: &[(&str, &str)], spec: Value) -> Pod {
    let annotations: serde_json::Map<String, Value> = steering
        .iter()
        .map(|(key, value)| (format!("fake-kubelet/{key}"), json!(value)))
        .collect();
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "c", "image": "example.com/c:1"}],
        },
    });
    if let (Some(into), Value::Object(more)) = (pod["spec"].as_object_mut(), spec) {
        into.extend(more);
    }
    let made = ctx
        .try_apply(pod)
        .await
        .unwrap_or_else(|error| panic!("{error:#}"));
    made.try_parse().unwrap()
}

/// Waits until a pod is in a phase.
async fn in_phase(ctx: &TestContext, name: &str, phase: &str) -> PodStatus {
    let what = format!("is {phase}");
    let there = |pod: &Pod| {
        pod.status
            .as_ref()
            .is_some_and(|status| status.phase.as_deref() == Some(phase))
    };
    wait::object(ctx.pods(), name, &what, SOON, there)
        .await
        .status
        .unwrap()
}

/// Exit code and reason of a container.
fn exit(status: &PodStatus, container: &str) -> (i32, String) {
    let statuses = status
        .init_container_statuses
        .iter()
        .flatten()
        .chain(status.container_statuses.iter().flatten());
    let status = statuses
        .into_iter()
        .find(|status| status.name == container)
        .unwrap();
    let exit = status
        .state
        .clone()
        .unwrap()
        .terminated
        .unwrap_or_else(|| panic!("{container} has not ended"));
    (exit.exit_code, exit.reason.unwrap())
}
