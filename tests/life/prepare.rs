//! The contract of k3s-upgrade and rke2-upgrade (S68): `prepare` of one Plan waits for another, with what its service
//! account may see.

use std::path::PathBuf;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use refit::rehearse::podlife::Exit;
use serde_json::{Value, json};

use crate::scene::{Scene, both, held};
use crate::support::kubeconfig;
use crate::support::kubelet::{Act, ContainerAct};
use crate::support::world::World;

/// `prepare <plan>` as those images have it: waits until no node is applying that Plan, then until all servers run the
/// version of its own.
struct Prepare {
    /// Of the Plans' service account.
    kubeconfig: PathBuf,
}

impl ContainerAct for Prepare {
    fn acts(&self, container: &str) -> bool {
        container == "prepare"
    }

    fn run(&self, act: Act) -> BoxFuture<'static, Exit> {
        let kubeconfig = self.kubeconfig.clone();
        Box::pin(async move {
            let client = kubeconfig::client(&kubeconfig, "prepare").await.unwrap();
            match prepare(client, &act).await {
                Ok(()) => Exit::default(),
                Err(error) => Exit {
                    code: 1,
                    message: Some(error.to_string()),
                },
            }
        })
    }
}

async fn prepare(client: Client, act: &Act) -> kube::Result<()> {
    let kind = GroupVersionKind::gvk("upgrade.cattle.io", "v1", "Plan");
    let plans =
        Api::<DynamicObject>::namespaced_with(client.clone(), &act.namespace, &ApiResource::from_gvk(&kind));
    let nodes = Api::<Node>::all(client);
    // Only those of this test: its id is the namespace.
    let test = &act.namespace;
    let servers =
        ListParams::default().labels(&format!("test={test},node-role.kubernetes.io/control-plane=true"));
    let version = &act.start.env["SYSTEM_UPGRADE_PLAN_LATEST_VERSION"];
    loop {
        // jq '.status.applying | length': null counts as 0.
        let applying = plans.get("server").await?.data["status"]["applying"]
            .as_array()
            .map_or(0, Vec::len);
        let all = nodes.list(&servers).await?;
        let behind = all.iter().filter(|node| {
            let info = node
                .status
                .as_ref()
                .and_then(|status| status.node_info.as_ref())
                .unwrap();
            info.kubelet_version.replace('+', "-") != *version
        });
        if applying == 0 && behind.count() == 0 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn prepare_waits_for_the_other_plan_by_its_status() {
    let world = World::new().await;
    let token = world.token("system-upgrade").await;
    let kubeconfig = world.write_kubeconfig("prepare", &token);
    let scene = Scene::on(world, ["server", "agent"], |set| {
        let set = held(set).each(|index, node| {
            if index == 0 {
                node.labels.insert(
                    "node-role.kubernetes.io/control-plane".to_owned(),
                    "true".to_owned(),
                );
            }
            "v1.30.0+k3s1".clone_into(&mut node.kubelet_version);
        });
        set.act(Prepare { kubeconfig })
    })
    .await;
    let _controller = scene.world.controller().start();
    let role = |operator: &str| {
        let is = json!({ "key": "node-role.kubernetes.io/control-plane", "operator": operator });
        json!({ "spec": { "version": "v1.31.0+k3s1", "nodeSelector": { "matchExpressions": [is] } } })
    };
    scene.plan("server", role("Exists")).await;
    scene.upgrading("server", "server").await;
    let waits =
        json!({ "spec": { "prepare": { "image": "rancher/k3s-upgrade", "args": ["prepare", "server"] } } });
    scene.plan("agent", both(role("DoesNotExist"), waits)).await;
    scene.phase("agent", "agent", "Preparing").await;
    assert_eq!(scene.runs("agent", "upgrade").await, 0);

    // Done with, but the kubelet has not said yet that it is the new one.
    scene.release("server").await;
    scene.release("agent").await;
    scene.complete("server").await;
    let plan = scene
        .world
        .kubectl(&["get", "plan", "server", "-o", "json"])
        .await;
    let plan: Value = serde_json::from_str(&plan).unwrap();
    assert_eq!(plan["status"]["applying"].as_array().map_or(0, Vec::len), 0);
    scene.phase("agent", "agent", "Preparing").await;
    assert_eq!(scene.runs("agent", "upgrade").await, 0);

    scene
        .kubelet
        .set_kubelet_version(&scene.node("server"), "v1.31.0+k3s1")
        .await;
    scene.complete("agent").await;
    assert_eq!(scene.runs("agent", "upgrade").await, 1);
    assert_eq!(scene.made_for().await, ["server", "agent"]);
}
