//! Payloads that reboot their node by themselves. `plans.rs` has the one that does so once.

use super::on;
use crate::e2e::harness::{RUNS, harness, notes_its_boot};
use crate::testenv::wait;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::json;

#[tokio::test]
#[ignore = "real nodes, which need root and Debian: just e2e"]
async fn a_payload_that_reboots_its_node_in_every_run_is_stopped_after_two_boots() {
    let harness = harness().await;
    let node = &harness.two;
    let script = format!(
        "{}\nsleep 5\nnsenter -t 1 -m -- systemctl reboot\nsleep 1000",
        notes_its_boot()
    );
    let plan = on(node, json!({ "drain": {} }));
    harness.make("k3os", &script, &plan).await;
    let message = harness.has_failed("k3os", node, "RebootLoop").await;
    assert!(message.contains("rebooted 2 times"), "{message}");
    harness.job_is("k3os", "Failed").await;
    let is_live = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        !matches!(phase, Some("Succeeded" | "Failed"))
    };
    let live = async || {
        let pods = harness.ctx.pods_with("upgrade.cattle.io/plan=k3os").await;
        pods.iter()
            .filter(|pod| is_live(pod))
            .map(Pod::name_any)
            .collect::<Vec<_>>()
    };
    wait::until("no pod of the Plan is left on the node", live, Vec::is_empty).await;
    node.wait_ready().await;
    assert_eq!(node.boots(), 3, "the one that it began in, and two");
    let runs = node.lines(RUNS);
    assert_eq!(runs[..2], node.boot_ids()[..2]);
    assert!(runs.len() <= 3, "{runs:?}");
}
