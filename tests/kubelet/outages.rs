//! What happens to pods when their node, their kubelet or the API server is away for a while.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::json;

use super::{bind, exit, in_phase, start, with_nodes};
use crate::support::kubelet::NodeSet;
use crate::support::wait::{self, SOON};
use crate::support::world::World;

#[tokio::test]
async fn without_power_a_pod_stands_still() {
    let (world, kubelets, names) = with_nodes(&["n"], |nodes| nodes.steer("run-delay", "300ms")).await;
    bind(&world, &names[0], "p", &[], json!({})).await;
    in_phase(&world, "p", "Running").await;
    kubelets.power_off(&names[0]).await;
    let version = world.pods().get("p").await.unwrap().resource_version();
    wait::always("nothing is told of the pod", Duration::from_secs(1), async || {
        let pod = world.pods().get("p").await.unwrap();
        if pod.resource_version() == version {
            Ok(())
        } else {
            Err(format!("{:?}", pod.status))
        }
    })
    .await;

    kubelets.power_on(&names[0]).await;
    let status = in_phase(&world, "p", "Failed").await;
    assert_eq!(exit(&status, "c"), (255, "Unknown".to_owned()));
}

#[tokio::test]
async fn behind_a_broken_network_a_pod_goes_on() {
    let (world, kubelets, names) = with_nodes(&["n"], |nodes| nodes.steer("run-delay", "500ms")).await;
    bind(&world, &names[0], "p", &[], json!({})).await;
    in_phase(&world, "p", "Running").await;
    kubelets.disconnect(&names[0]).await;
    kubelets.declare_lost(&names[0]).await;
    kubelets.reconnect(&names[0]).await;
    let status = in_phase(&world, "p", "Succeeded").await;
    assert_eq!(exit(&status, "c"), (0, "Completed".to_owned()));
    assert_eq!(kubelets.runs(&names[0], "c").await, 1);
}

#[tokio::test]
async fn a_reboot_restarts_what_is_restarted_on_failure() {
    let (world, kubelets, names) = with_nodes(&["n"], |nodes| nodes.steer("c.run-delay", "1s")).await;
    let spec = json!({
        "restartPolicy": "OnFailure",
        "initContainers": [{"name": "i", "image": "example.com/i:1"}],
    });
    bind(&world, &names[0], "p", &[], spec).await;
    in_phase(&world, "p", "Running").await;
    kubelets.reboot(&names[0]).await;
    let status = in_phase(&world, "p", "Succeeded").await;
    let container = &status.container_statuses.unwrap()[0];
    let last = container
        .last_state
        .as_ref()
        .unwrap()
        .terminated
        .as_ref()
        .unwrap();
    assert_eq!(
        (container.restart_count, last.exit_code, last.reason.as_deref()),
        (1, 255, Some("Unknown"))
    );
    for container in ["i", "c"] {
        assert_eq!(kubelets.runs(&names[0], container).await, 2, "{container}");
    }
}

#[tokio::test]
async fn a_container_can_reboot_its_node() {
    let (world, kubelets, names) = with_nodes(&["n"], |nodes| nodes.steer("run-delay", "200ms")).await;
    let before = kubelets.boot_id(&names[0]).await;
    bind(
        &world,
        &names[0],
        "p",
        &[("reboot", "once")],
        json!({"restartPolicy": "OnFailure"}),
    )
    .await;
    in_phase(&world, "p", "Succeeded").await;
    assert_eq!(
        (
            kubelets.boots(&names[0]).await,
            kubelets.runs(&names[0], "c").await
        ),
        (2, 2)
    );
    let node = world.node(&names[0]).await;
    let boot_id = node.status.unwrap().node_info.unwrap().boot_id;
    assert_ne!(boot_id, before);
    assert_eq!(boot_id, kubelets.boot_id(&names[0]).await);
}

#[tokio::test]
async fn a_shutdown_ends_pods_in_an_orderly_way() {
    let (world, kubelets, names) = with_nodes(&["n"], |nodes| nodes.steer("run-delay", "never")).await;
    bind(&world, &names[0], "p", &[], json!({})).await;
    in_phase(&world, "p", "Running").await;
    kubelets.shut_down(&names[0]).await;
    assert_eq!(
        in_phase(&world, "p", "Failed").await.reason.as_deref(),
        Some("Terminated")
    );
    bind(&world, &names[0], "q", &[], json!({})).await;
    assert_eq!(
        in_phase(&world, "q", "Failed").await.reason.as_deref(),
        Some("NodeShutdown")
    );
}

#[tokio::test]
async fn a_kubelet_that_is_started_again_goes_on_where_the_statuses_are() {
    let world = World::new().await;
    let name = world.node_name("n");
    let set = || NodeSet::named([&name]).steer("run-delay", "1s");
    let first = start(&world, set()).await;
    let boot_id = first.boot_id(&name).await;
    for pod in ["running", "deleted"] {
        bind(&world, &name, pod, &[], json!({})).await;
        in_phase(&world, pod, "Running").await;
    }
    drop(first);
    world
        .pods()
        .delete("deleted", &DeleteParams::default())
        .await
        .unwrap();

    let second = start(&world, set()).await;
    assert_eq!(second.boot_id(&name).await, boot_id, "the machine was not off");
    let status = in_phase(&world, "running", "Succeeded").await;
    assert_eq!(exit(&status, "c"), (0, "Completed".to_owned()));
    wait::gone(world.pods(), "deleted", SOON).await;
    assert_eq!(second.runs(&name, "c").await, 0, "nothing was started again");
}

#[tokio::test]
async fn kubelets_wait_for_an_api_server_that_is_away() {
    let world = World::alone().await;
    let (a, b) = (world.node_name("a"), world.node_name("b"));
    let kubelets = start(&world, NodeSet::named([&a, &b]).steer("run-delay", "1s")).await;
    bind(&world, &a, "p", &[], json!({})).await;
    in_phase(&world, "p", "Running").await;
    let plane = world.bed.control_plane();
    plane.stop_apiserver();
    tokio::time::sleep(Duration::from_secs(2)).await;
    plane.start_apiserver().await.unwrap();
    let status = in_phase(&world, "p", "Succeeded").await;
    assert_eq!(exit(&status, "c"), (0, "Completed".to_owned()));
    // The watch goes on, too.
    bind(&world, &b, "q", &[], json!({})).await;
    in_phase(&world, "q", "Succeeded").await;
    assert_eq!(
        (kubelets.runs(&a, "c").await, kubelets.runs(&b, "c").await),
        (1, 1)
    );
}

#[tokio::test]
async fn a_pod_of_a_machine_that_is_gone_is_not_run_by_its_successor() {
    let (world, kubelets, names) = with_nodes(&["n"], |nodes| nodes.steer("run-delay", "never")).await;
    bind(&world, &names[0], "p", &[], json!({})).await;
    in_phase(&world, "p", "Running").await;
    kubelets.delete_node(&names[0]).await;
    kubelets.recreate_node(&names[0]).await;
    // It is the node's pod by name; what ran in it ran elsewhere. Or the collector of orphaned pods was faster.
    wait::eventually("the pod has ended or is gone", SOON, async || {
        match world
            .pods()
            .get_opt("p")
            .await
            .unwrap()
            .and_then(|pod: Pod| pod.status)
        {
            None => Ok(()),
            Some(status) if status.phase.as_deref() == Some("Failed") => Ok(()),
            Some(status) => Err(format!("{:?}", status.phase)),
        }
    })
    .await;
    assert_eq!(kubelets.runs(&names[0], "c").await, 1);
}
