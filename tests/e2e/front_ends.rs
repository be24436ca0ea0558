//! Objects of other operators, as their documents have them, on real nodes.

use kube::ResourceExt as _;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use serde_json::Value;

use crate::harness::{is_cordoned, is_free};
use crate::maintenance::{self, MEDIK};
use crate::node_ops;
use crate::testenv::real::{self, BUSYBOX, PATIENCE};
use crate::testenv::wait;

#[tokio::test]
#[ignore = "real nodes, which need root and Debian: just e2e"]
async fn the_example_of_kairos_operator_runs_once_on_each_host_and_reboots_it_and_a_maintenance_holds_a_node()
{
    let ctx = real::context().await;
    node_ops::apply_overlay(&ctx).await;
    maintenance::apply_overlay(&ctx).await;
    let nodes = real::nodes(&ctx, ["one", "two"]).await;
    for node in &nodes {
        node.write("/etc/kairos-release", "KAIROS_VERSION=v1\n");
    }
    let controller = real::controller(&ctx).env("REFIT_ENABLE", "maintenance,nodeops");
    let _controller = controller.start();

    let ops = node_ops::api(&ctx, "NodeOp");
    let mut example: Value = serde_saphyr::from_str(node_ops::EXAMPLE).unwrap();
    example["spec"]["image"] = BUSYBOX.into();
    let example: DynamicObject = serde_json::from_value(example).unwrap();
    let example = ops.create(&PostParams::default(), &example).await.unwrap();
    let completed = async || {
        let status = ops.get(&example.name_any()).await.unwrap().data["status"].clone();
        assert_ne!(status["phase"], "Failed", "{status:#}");
        (status["phase"] == "Completed")
            .then_some(status.clone())
            .ok_or_else(|| status.to_string())
    };
    let ended = wait::eventually("the example is completed", 3 * PATIENCE, completed).await;
    for node in &nodes {
        let entry = &ended["nodeStatuses"][node.name()];
        assert_eq!(
            entry["message"], "Job and reboot completed successfully",
            "{ended:#}"
        );
        assert_eq!(node.boots(), 2, "{}", node.name());
        assert!(is_free(&ctx.node(node.name()).await));
    }

    let maintenances = maintenance::api(&ctx, MEDIK);
    let two = nodes[1].name();
    let object = maintenance::object(MEDIK, "new-disk", two);
    maintenances
        .create(&PostParams::default(), &object)
        .await
        .unwrap();
    let drained = async || {
        let status = maintenances.get("new-disk").await.unwrap().data["status"].clone();
        (status["phase"] == "Succeeded")
            .then_some(())
            .ok_or_else(|| status.to_string())
    };
    wait::eventually("the node is drained", PATIENCE, drained).await;
    assert!(is_cordoned(&ctx.node(two).await));
    maintenances
        .delete("new-disk", &DeleteParams::default())
        .await
        .unwrap();
    wait::holds("the node is as before", async || is_free(&ctx.node(two).await)).await;
    assert_eq!(nodes[1].boots(), 2);
}
