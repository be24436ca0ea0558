//! `--wait-for-detach`, and what a drain marks on its node.

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use refit_api::{Ledger, MarkForm, NodeMark};
use serde_json::{Value, json};

use super::{DrainHarness, Tool, finish, output_of};
use crate::testenv::context::cluster::create;
use crate::testenv::wait;

/// Says which volumes are attached to a node, as the attach-detach controller does.
async fn attach(harness: &DrainHarness, volumes: &[&str]) {
    let attached: Vec<_> = volumes
        .iter()
        .map(|name| json!({ "name": name, "devicePath": "" }))
        .collect();
    let nodes = Api::<Node>::all(harness.ctx.client.clone());
    let patch = Patch::Merge(json!({ "status": { "volumesAttached": attached } }));
    nodes
        .patch_status(&harness.node("one"), &PatchParams::default(), &patch)
        .await
        .unwrap();
}

fn csi(handle: &str) -> String {
    format!("kubernetes.io/csi/disks.example.com^{handle}")
}

#[tokio::test]
async fn a_drain_waits_until_the_volumes_of_the_evicted_pods_are_detached() {
    let harness = DrainHarness::new(&["one"]).await;
    harness.pods("one", ["web-1"], json!({})).await;
    let (first, second) = (csi("disk-1"), csi("disk-2"));
    attach(&harness, &[&first, &second]).await;

    let node = harness.node("one");
    let flags = ["--wait-for-detach", "-o", "json"];
    let out = harness
        .drain("one", &[&flags[..], &["--timeout=30s"]].concat())
        .await;
    assert_eq!(out.code, Some(1), "{out:?}");
    let why = format!("global timeout reached: 30s; still attached: {first}, {second}");
    assert!(out.last_line().contains(&why), "{out:?}");
    assert!(harness.on_node("one").await.is_empty(), "the pod is gone");
    assert!(out.stdout.contains(r#""attached":2"#), "{out:?}");

    let started = std::time::Instant::now();
    let args = [&["drain", node.as_str()], &flags[..]].concat();
    let child = harness.command(Tool::Refit, &args).spawn().unwrap();
    attach(&harness, &[&second]).await;
    attach(&harness, &[]).await;
    let out = output_of(child, started).await;
    assert_eq!(out.code, Some(0), "{out:?}");

    // Without the flag nothing waits.
    attach(&harness, &[&first]).await;
    assert_eq!(harness.drain("one", &[]).await.code, Some(0));
    attach(&harness, &[]).await;
}

#[tokio::test]
async fn a_volume_of_a_pod_that_stays_is_not_waited_for_and_a_missing_permission_is_named_before_the_cordon()
{
    let harness = DrainHarness::new(&["one"]).await;
    let name = format!("{}-disk", harness.ctx.namespace());
    let volumes = Api::<PersistentVolume>::all(harness.ctx.client.clone());
    let volume = json!({
        "metadata": { "name": name },
        "spec": {
            "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": "none",
            "csi": { "driver": "disks.example.com", "volumeHandle": "kept" },
            "claimRef": { "namespace": harness.ctx.namespace(), "name": "data" },
        },
    });
    create(&volumes, volume).await;
    let claims =
        Api::<PersistentVolumeClaim>::namespaced(harness.ctx.client.clone(), harness.ctx.namespace());
    let claim = json!({
        "metadata": { "name": "data" },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "none", "volumeName": name,
            "resources": { "requests": { "storage": "1Gi" } },
        },
    });
    create(&claims, claim).await;
    // A mirror pod stays, and mounts nothing in this test.
    let mounts: Value = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }]);
    harness
        .pods("one", ["stays"], json!({ "app": "kept", "volumes": mounts }))
        .await;
    harness.pods("one", ["goes"], json!({ "app": "web" })).await;
    attach(&harness, &[&csi("kept")]).await;

    let node = harness.node("one");
    let args = [
        "drain",
        &node,
        "--wait-for-detach",
        "--pod-selector=app=web",
        "--timeout=120s",
    ];
    let out = harness.run(Tool::Refit, &args).await;
    assert_eq!(out.code, Some(1), "{out:?}");
    assert!(
        out.last_line().contains("MissingPermission") && out.last_line().contains("persistentvolumeclaims"),
        "{out:?}"
    );
    assert!(!harness.is_cordoned("one").await, "nothing was changed");

    // An administrator may read it.
    let mut command = harness.command(Tool::Refit, &args);
    command.env("KUBECONFIG", harness.ctx.test_env.kubeconfig());
    let out = finish(command).await;
    assert_eq!(out.code, Some(0), "{out:?}");
    let left: Vec<_> = harness.on_node("one").await.into_keys().collect();
    assert_eq!(left, ["stays"]);
    volumes.delete(&name, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn a_drain_marks_its_node_for_load_balancers_and_autoscalers_and_uncordon_removes_that() {
    let harness = DrainHarness::guarded().await;
    let node = harness.node("one");
    let theirs = json!({ "metadata": { "annotations": { NodeMark::DoNotDisrupt.key(): "mine" } } });
    harness.ctx.edit_node(&node, theirs).await;
    let mut env = harness.plan_env("k3s", "one", None).await;
    env.insert("REFIT_NODE_MARKS".to_owned(), NodeMark::join(&NodeMark::OF_DRAIN));
    let drain = super::WaitingDrain::start(&harness, &env).await;
    let marks = async || {
        let node = harness.get("one").await.metadata;
        let of_kind = |mark: &NodeMark| {
            let all = if mark.form() == MarkForm::Label {
                &node.labels
            } else {
                &node.annotations
            };
            all.as_ref().and_then(|all| all.get(mark.key()).cloned())
        };
        NodeMark::OF_DRAIN.map(|mark| of_kind(&mark))
    };
    let [own, mine] = ["true", "mine"].map(|text| Some(text.to_owned()));
    assert_eq!(marks().await, [own.clone(), own, mine.clone()]);
    let ledger = harness.get("one").await.metadata.annotations.unwrap()["refit.rs/cordon"].clone();
    assert_eq!(
        Ledger::parse(&ledger).unwrap().marks,
        [NodeMark::ExcludeFromLoadBalancers, NodeMark::DisableScaleDown]
    );
    harness.open("guard").await;
    assert_eq!(drain.ended().await.code, Some(0));
    let out = harness.run(Tool::Refit, &["uncordon", &node]).await;
    assert_eq!(out.code, Some(0), "{out:?}");
    wait::until("the marks are gone", marks, |marks| {
        *marks == [None, None, mine.clone()]
    })
    .await;
}
