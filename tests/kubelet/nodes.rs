//! Nodes: how they register, and what is told of them.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;

use super::{bind, in_phase, start, with_nodes};
use crate::support::kubelet::NodeSet;
use crate::support::wait::{self, SOON};
use crate::support::world::World;

fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), "kube-node-lease")
}

fn ready(node: &Node) -> (&str, &str) {
    let conditions = node.status.as_ref().unwrap().conditions.as_ref().unwrap();
    let ready = conditions
        .iter()
        .find(|condition| condition.type_ == "Ready")
        .unwrap();
    (&ready.status, ready.reason.as_deref().unwrap_or_default())
}

fn taints(node: &Node) -> Vec<&str> {
    node.spec
        .as_ref()
        .unwrap()
        .taints
        .iter()
        .flatten()
        .map(|taint| taint.key.as_str())
        .collect()
}

fn boot_id(node: &Node) -> &str {
    &node.status.as_ref().unwrap().node_info.as_ref().unwrap().boot_id
}

#[tokio::test]
async fn nodes_are_registered_as_they_are_wanted() {
    let world = World::new().await;
    let long = format!("{}{}", world.node_name("long"), ".a123456789".repeat(25));
    let long = &long[..253];
    let (dotted, other) = (world.node_name("a.x"), world.node_name("other"));
    let nodes = NodeSet::named([dotted.as_str(), long, &other])
        .zones(2)
        .taint("dedicated", "test", "NoSchedule")
        .steer("run-delay", "5s")
        .each(|index, node| {
            node.hostname = if index == 2 {
                Some("something-else".to_owned())
            } else {
                node.hostname.take()
            };
            node.os = if index == 2 {
                "windows".to_owned()
            } else {
                node.os.clone()
            };
            node.kubelet_version = format!("v1.34.{index}");
        });
    let _kubelets = start(&world, nodes).await;

    let node = world.node(&dotted).await;
    assert_eq!(node.labels()["kubernetes.io/hostname"], dotted);
    assert_eq!(node.labels()["topology.kubernetes.io/zone"], "zone-0");
    assert_eq!(node.labels()["test"], world.id);
    assert_eq!(node.annotations()["fake-kubelet/run-delay"], "5s");
    assert_eq!((ready(&node).0, taints(&node)), ("True", vec!["dedicated"]));
    assert_eq!(
        node.status
            .as_ref()
            .unwrap()
            .node_info
            .as_ref()
            .unwrap()
            .kubelet_version,
        "v1.34.0"
    );

    let node = world.node(long).await;
    assert_eq!(
        node.labels().get("kubernetes.io/hostname"),
        None,
        "no label can hold that name"
    );
    assert_eq!(node.labels()["topology.kubernetes.io/zone"], "zone-1");

    let node = world.node(&other).await;
    assert_eq!(node.labels()["kubernetes.io/hostname"], "something-else");
    assert_eq!(node.labels()["kubernetes.io/os"], "windows");
}

#[tokio::test]
async fn leases_are_renewed_while_there_is_power() {
    let (world, kubelets, names) = with_nodes(&["n"], |mut nodes| {
        nodes.lease_interval = Duration::from_millis(200);
        nodes
    })
    .await;
    let leases = leases(&world.client);
    let renewed = |lease: &Lease| lease.spec.as_ref().unwrap().renew_time.clone().unwrap().0;
    let first = wait::object(leases.clone(), &names[0], "is there", SOON, |_| true).await;
    assert_eq!(
        first.owner_references()[0].uid,
        world.node(&names[0]).await.uid().unwrap()
    );
    let since = renewed(&first);
    wait::object(leases.clone(), &names[0], "is renewed", SOON, |lease| {
        renewed(lease) > since
    })
    .await;

    kubelets.power_off(&names[0]).await;
    // One renewal may have been under way.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let last = renewed(&leases.get(&names[0]).await.unwrap());
    wait::always(
        "nobody renews the Lease of a node without power",
        Duration::from_secs(1),
        async || {
            let now = renewed(&leases.get(&names[0]).await.unwrap());
            if now == last {
                Ok(())
            } else {
                Err(format!("{last} became {now}"))
            }
        },
    )
    .await;

    kubelets.power_on(&names[0]).await;
    wait::object(leases, &names[0], "is renewed again", SOON, |lease| {
        renewed(lease) > last
    })
    .await;
}

#[tokio::test]
async fn a_lost_node_is_what_the_node_controller_makes_of_it() {
    let (world, kubelets, names) = with_nodes(&["n"], |nodes| nodes).await;
    kubelets.power_off(&names[0]).await;
    kubelets.declare_lost(&names[0]).await;
    let node = world.node(&names[0]).await;
    assert_eq!(ready(&node), ("Unknown", "NodeStatusUnknown"));
    let tainted = |node: &Node| taints(node).contains(&"node.kubernetes.io/unreachable");
    world
        .node_until(&names[0], "is tainted as unreachable", SOON, tainted)
        .await;

    kubelets.power_on(&names[0]).await;
    let node = world
        .node_until(&names[0], "has lost its taints", SOON, |node| {
            taints(node).is_empty()
        })
        .await;
    assert_eq!(ready(&node).0, "True");
}

#[tokio::test]
async fn a_kubelet_that_was_given_up_for_lost_says_that_it_is_there() {
    let (world, _kubelets, names) = with_nodes(&["n"], |nodes| nodes).await;
    // As the node controller says it, when the API server was away for so long that no Lease was renewed.
    let lost = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}});
    let node = world
        .nodes()
        .patch_status(&names[0], &PatchParams::default(), &Patch::Strategic(lost))
        .await
        .unwrap();
    assert_eq!(ready(&node).0, "Unknown");
    world
        .node_until(&names[0], "is Ready and has lost its taints", SOON, |node| {
            ready(node).0 == "True" && taints(node).is_empty()
        })
        .await;
}

#[tokio::test]
async fn a_reboot_is_told_step_by_step() {
    let (world, kubelets, names) = with_nodes(&["n", "other"], |nodes| nodes).await;
    let before = world.node(&names[0]).await;
    let reboot = kubelets.reboot_taking(&names[0], Duration::from_millis(500), Duration::from_millis(500));
    let seen = async {
        let down = world
            .node_until(&names[0], "is not Ready", SOON, |node| ready(node).0 == "False")
            .await;
        assert_eq!(boot_id(&down), boot_id(&before));
        let booted = |node: &Node| boot_id(node) != boot_id(&before);
        let up = world
            .node_until(&names[0], "has another boot ID", SOON, booted)
            .await;
        assert_eq!(ready(&up).0, "False", "it is not Ready at once");
        world
            .node_until(&names[0], "is Ready", SOON, |node| ready(node).0 == "True")
            .await
    };
    let ((), after) = tokio::join!(reboot, seen);
    assert_eq!(boot_id(&after), kubelets.boot_id(&names[0]).await);
    assert_eq!(
        (kubelets.boots(&names[0]).await, kubelets.boots(&names[1]).await),
        (2, 1)
    );
}

#[tokio::test]
async fn a_node_can_be_unwell_without_a_reboot() {
    let (world, kubelets, names) = with_nodes(&["n"], |nodes| nodes).await;
    let before = world.node(&names[0]).await;
    kubelets.set_not_ready(&names[0]).await;
    assert_eq!(ready(&world.node(&names[0]).await), ("False", "KubeletNotReady"));
    bind(&world, &names[0], "p", &[], json!({})).await;
    in_phase(&world, "p", "Succeeded").await;

    kubelets.set_ready(&names[0]).await;
    kubelets.set_kubelet_version(&names[0], "v1.40.0").await;
    let after = world.node(&names[0]).await;
    assert_eq!((ready(&after).0, boot_id(&after)), ("True", boot_id(&before)));
    assert_eq!(
        after
            .status
            .as_ref()
            .unwrap()
            .node_info
            .as_ref()
            .unwrap()
            .kubelet_version,
        "v1.40.0"
    );
}

#[tokio::test]
async fn a_node_that_is_made_again_is_another_machine() {
    let (world, kubelets, names) = with_nodes(&["n"], |nodes| nodes).await;
    let before = world.node(&names[0]).await;
    kubelets.delete_node(&names[0]).await;
    wait::gone(world.nodes(), &names[0], SOON).await;
    kubelets.recreate_node(&names[0]).await;
    let after = world.node(&names[0]).await;
    assert_ne!(after.uid(), before.uid());
    assert_ne!(boot_id(&after), boot_id(&before));
    bind(&world, &names[0], "p", &[], json!({})).await;
    in_phase(&world, "p", "Succeeded").await;
}

#[tokio::test]
async fn kubelets_that_stop_take_their_nodes_and_pods_along() {
    let (world, kubelets, names) = with_nodes(&["n", "m"], |nodes| nodes).await;
    bind(&world, &names[0], "p", &[("run-delay", "never")], json!({})).await;
    in_phase(&world, "p", "Running").await;
    kubelets.stop().await;
    let mine = ListParams::default().labels(&format!("test={}", world.id));
    assert_eq!(world.nodes().list(&mine).await.unwrap().items, []);
    wait::gone(world.pods(), "p", SOON).await;
}

#[tokio::test]
async fn many_sets_of_nodes_are_played_side_by_side() {
    let world = World::new().await;
    let sets = futures::future::join_all((0..8).map(|set| {
        let nodes = NodeSet::numbered(&world.node_name(&format!("s{set}-")), 5);
        start(&world, nodes)
    }))
    .await;
    for set in 0..8 {
        bind(
            &world,
            &world.node_name(&format!("s{set}-0003")),
            &format!("p{set}"),
            &[],
            json!({}),
        )
        .await;
    }
    for (set, kubelets) in sets.iter().enumerate() {
        in_phase(&world, &format!("p{set}"), "Succeeded").await;
        assert_eq!(
            kubelets
                .runs(&world.node_name(&format!("s{set}-0003")), "c")
                .await,
            1
        );
    }
}
