//! The control plane comes up, holds what is asked of it, and can be taken away and given back.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;

use crate::support::bed::Bed;
use crate::support::binaries;
use crate::support::controlplane::Options;
use crate::support::world::World;
use crate::support::{names, wait};

#[tokio::test]
async fn a_control_plane_comes_up_in_seconds() {
    Bed::shared().await; // whatever has to be built is built now
    let started = Instant::now();
    let bed = Bed::own(Options::default()).await;
    let took = started.elapsed();
    eprintln!("a control plane was up in {took:.1?}");

    let names: Vec<_> = bed
        .control_plane()
        .pids()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(
        names,
        [
            "etcd",
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler"
        ]
    );
    let version = bed.client("version").await.apiserver_version().await.unwrap();
    assert_eq!(version.git_version, binaries::kubernetes_version());
    assert!(took < Duration::from_secs(60), "{took:?}");
}

#[tokio::test]
async fn etcd_can_be_killed_and_has_its_data_again() {
    let bed = Bed::own(Options::default()).await;
    let plane = bed.control_plane();
    let pid = || {
        let pids = plane.pids();
        pids.into_iter()
            .find(|(name, _)| name == "etcd")
            .map(|(_, pid)| pid)
    };
    let maps = Api::<ConfigMap>::default_namespaced(bed.client("etcd").await);
    let map: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": "kept" } })).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();

    let before = pid();
    plane.restart_etcd().unwrap();
    assert_ne!(pid(), before);
    wait::eventually("the API server finds it", wait::SOON, async || {
        maps.get("kept")
            .await
            .map(drop)
            .map_err(|error| error.to_string())
    })
    .await;
}

#[tokio::test]
async fn the_api_server_can_be_frozen_stopped_and_started_again() {
    let bed = Bed::own(Options::default()).await;
    let plane = bed.control_plane();
    let client = bed.client("restart").await;
    let maps = Api::<ConfigMap>::default_namespaced(client);
    let map: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": "kept" } })).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();

    plane.pause_apiserver();
    let frozen = tokio::time::timeout(Duration::from_millis(500), maps.get("kept")).await;
    assert!(frozen.is_err(), "a frozen API server has answered: {frozen:?}");
    plane.resume_apiserver();
    maps.get("kept").await.unwrap();

    plane.stop_apiserver();
    let refused = maps.get("kept").await.unwrap_err();
    assert!(
        !matches!(refused, kube::Error::Api(_)),
        "a stopped API server has answered: {refused}"
    );
    plane.start_apiserver().await.unwrap();
    maps.get("kept").await.unwrap();
}

#[tokio::test]
async fn a_thousand_nodes_can_be_registered() {
    let world = World::new().await;
    let nodes = Api::<Node>::all(world.bed.unrecorded_client().await);
    let started = Instant::now();
    let made: Vec<_> = stream::iter(0..1000)
        .map(|number| {
            let node: Node = serde_json::from_value(json!({
                "metadata": { "name": world.node_name(&format!("{number:04}")), "labels": world.node_labels() },
            }))
            .unwrap();
            let nodes = nodes.clone();
            async move { nodes.create(&PostParams::default(), &node).await }
        })
        .buffer_unordered(32)
        .collect()
        .await;
    let took = started.elapsed();
    eprintln!("1,000 nodes were registered in {took:.1?}");
    assert!(made.iter().all(Result::is_ok));
    assert_eq!(world.my_nodes().await.len(), 1000);
    assert!(took < Duration::from_secs(120), "{took:?}");
}

#[tokio::test]
async fn a_flag_of_ones_own_reaches_the_api_server() {
    let options = Options {
        apiserver: vec!["--runtime-config=policy/v1=false".to_owned()],
        ..Options::default()
    };
    let bed = Bed::own(options).await;
    let groups = async |bed: &Bed| {
        let groups = bed.client("flags").await.list_api_groups().await.unwrap().groups;
        groups.into_iter().map(|group| group.name).collect::<Vec<_>>()
    };
    assert!(!groups(&bed).await.contains(&"policy".to_owned()));
    assert!(groups(Bed::shared().await).await.contains(&"policy".to_owned()));
}

#[tokio::test]
async fn kubectl_is_there() {
    let world = World::new().await;
    world
        .apply(&format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {}}}}}",
            names::random()
        ))
        .await;
    let said = world.kubectl(&["get", "configmaps", "-o", "name"]).await;
    let listed = Api::<ConfigMap>::namespaced(world.client.clone(), world.namespace());
    assert_eq!(
        said.lines().count(),
        listed.list(&ListParams::default()).await.unwrap().items.len()
    );
}

#[tokio::test]
async fn a_plan_can_be_made_before_a_controller_runs() {
    let world = World::new().await;
    let plan = world.plan(include_str!("plan.yaml")).await;
    assert_eq!(plan.metadata.namespace.as_deref(), Some(world.namespace()));
    let same = world.plan_until("a-plan", "exists", wait::SOON, |_| true).await;
    assert_eq!(same.metadata.uid, plan.metadata.uid);
}
