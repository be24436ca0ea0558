//! Pods that were evicted and may fit on their node alone: `settle.workloads`.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::json;

use super::{PLAN, noted, notes, on, reboots, with};
use crate::e2e::stage::{RUNS, is_serving, stage};
use crate::scene::is_cordoned;
use crate::support::real::{BUSYBOX, PATIENCE};
use crate::support::wait;
use crate::support::world::{create, done};

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn workloads_with_a_pod_for_each_node_are_whole_again_before_the_next_node_begins() {
    let stage = stage().await;
    let before = stage.a_pod_on_each_node().await;
    // No budget spares them: that the other pod stays is due to `settle` alone.
    stage.relent().await;
    let waits_for_pods = with(
        reboots(),
        &json!({ "settle": { "workloads": true, "timeout": "4m" } }),
    );
    stage.make(PLAN, &notes(), &waits_for_pods).await;
    stage.is_done(PLAN, &[&stage.one, &stage.two]).await;
    for node in [&stage.one, &stage.two] {
        assert_eq!(node.boots(), 2);
        assert_eq!(node.lines(RUNS), [noted("v2", node, 1)]);
    }
    // Complete means whole: nobody waits here.
    let after = stage.web().await;
    assert_eq!(after.iter().filter(|pod| is_serving(pod)).count(), 2);
    let new = |pod: &Pod| before.iter().all(|old| old.uid() != pod.uid());
    assert!(after.iter().all(new), "both were evicted");
    // The second node was begun when the pod of the first was ready.
    let first_ready = after.iter().filter_map(ready_since).min().unwrap();
    let jobs = stage.world.jobs_of(PLAN).await;
    let last_begun = jobs
        .iter()
        .filter_map(ResourceExt::creation_timestamp)
        .max()
        .unwrap();
    assert!(last_begun.0 >= first_ready, "{last_begun:?} {first_ready:?}");
}

fn ready_since(pod: &Pod) -> Option<jiff::Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions
        .iter()
        .find(|it| it.type_ == "Ready" && it.status == "True")?;
    Some(ready.last_transition_time.as_ref()?.0)
}

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn a_workload_that_stays_broken_fails_its_node_and_is_named() {
    let stage = stage().await;
    let node = &stage.two;
    let labels = json!({ "app": "fragile" });
    let fragile = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "fragile" },
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "nodeSelector": { "kubernetes.io/hostname": node.name() },
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{
                        "name": "fragile", "image": BUSYBOX,
                        "command": ["sh", "-c", "[ ! -e /host/var/lib/broken ] && exec sleep infinity"],
                        "volumeMounts": [{ "name": "host", "mountPath": "/host" }],
                    }],
                    "volumes": [{ "name": "host", "hostPath": { "path": "/" } }],
                },
            },
        },
    });
    create(&stage.namespaced::<Deployment>(), fragile).await;
    let ready = |it: &Deployment| it.status.as_ref().and_then(|status| status.ready_replicas) == Some(1);
    wait::object(stage.namespaced(), "fragile", "is ready", PATIENCE, ready).await;
    let sets = stage.namespaced::<ReplicaSet>();
    let sets = sets
        .list(&ListParams::default().labels("app=fragile"))
        .await
        .unwrap();
    let set = sets.items.first().map(ResourceExt::name_any).unwrap();

    // An upgrade that works for the node, and not for who lives there.
    let breaks = format!("{}\ntouch /host/var/lib/broken", notes());
    let waits_for_pods = with(
        reboots(),
        &json!({ "settle": { "workloads": true, "timeout": "15s" } }),
    );
    stage.make(PLAN, &breaks, &on(node, waits_for_pods)).await;
    let failed = stage
        .told(PLAN, node, "has failed", |node| node.phase == "Failed")
        .await;
    assert_eq!(failed.reason.as_deref(), Some("SettleTimedOut"), "{failed:?}");
    let message = failed.message.unwrap();
    assert!(
        message.contains(&format!("{set} has 0 of 1 pods ready")),
        "{message}"
    );
    let given_back =
        |node: &k8s_openapi::api::core::v1::Node| !is_cordoned(node) && done(node, PLAN).is_none();
    stage
        .world
        .node_until(node.name(), "is given back without a label", PATIENCE, given_back)
        .await;
    assert_eq!(node.boots(), 2);
    assert_eq!(node.lines(RUNS), [noted("v2", node, 1)]);
}
