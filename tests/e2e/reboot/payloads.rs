//! Payloads that reboot their node by themselves, as SUC's users have them. The one that does so once is in `plans.rs`.

use super::on;
use crate::e2e::stage::{RUNS, notes_its_boot, stage};
use crate::support::real::PATIENCE;
use crate::support::wait;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::json;

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn a_payload_that_reboots_its_node_in_every_run_is_stopped_after_two_boots() {
    let stage = stage().await;
    let node = &stage.two;
    // As long as an upgrade takes that is in a hurry.
    let script = format!(
        "{}\nsleep 5\nnsenter -t 1 -m -- systemctl reboot\nsleep 1000",
        notes_its_boot()
    );
    let plan = on(node, json!({ "drain": {} }));
    stage.make("k3os", &script, &plan).await;
    let message = stage.has_failed("k3os", node, "RebootLoop").await;
    assert!(message.contains("rebooted 2 times"), "{message}");
    stage.job_is("k3os", "Failed").await;
    let of_job = ListParams::default().labels("upgrade.cattle.io/plan=k3os");
    wait::eventually("nothing of it is left on the node", PATIENCE, async || {
        let pods = stage.world.pods().list(&of_job).await.unwrap().items;
        let live = |pod: &&k8s_openapi::api::core::v1::Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            !matches!(phase, Some("Succeeded" | "Failed"))
        };
        let left: Vec<_> = pods.iter().filter(live).map(ResourceExt::name_any).collect();
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    })
    .await;
    node.wait_ready().await;
    assert_eq!(node.boots(), 3, "the one that it began in, and two");
    let runs = node.lines(RUNS);
    assert_eq!(runs[..2], node.boot_ids()[..2]);
    assert!(runs.len() <= 3, "{runs:?}");
}
