//! The contract of k3s-upgrade and rke2-upgrade (S68): `prepare` of one Plan waits for another, with what its service
//! account may see.

use std::path::PathBuf;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use refit_rehearse::pod_lifecycle::Exit;
use serde_json::{Value, json};

use crate::harness::{Harness, both, held};
use crate::testenv::context::TestContext;
use crate::testenv::kubeconfig;
use crate::testenv::kubelet::{ContainerTask, TaskRunner};

/// `prepare <plan>` as those images have it: waits until no node is applying that Plan, then until all servers run the
/// version of its own.
struct Prepare {
    /// Of the Plans' service account.
    kubeconfig: PathBuf,
}

impl TaskRunner for Prepare {
    fn has_task(&self, container: &str) -> bool {
        container == "prepare"
    }

    fn run(&self, act: ContainerTask) -> BoxFuture<'static, Exit> {
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

async fn prepare(client: Client, act: &ContainerTask) -> kube::Result<()> {
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
    let ctx = TestContext::new().await;
    let token = ctx.token("system-upgrade").await;
    let kubeconfig = ctx.write_kubeconfig("prepare", &token);
    let harness = Harness::on(ctx, ["server", "agent"], |set| {
        let set = held(set).each(|index, node| {
            if index == 0 {
                node.labels.insert(
                    "node-role.kubernetes.io/control-plane".to_owned(),
                    "true".to_owned(),
                );
            }
            "v1.30.0+k3s1".clone_into(&mut node.kubelet_version);
        });
        set.task_runner(Prepare { kubeconfig })
    })
    .await;
    let _controller = harness.ctx.controller().start();
    let role = |operator: &str| {
        let is = json!({ "key": "node-role.kubernetes.io/control-plane", "operator": operator });
        json!({ "spec": { "version": "v1.31.0+k3s1", "nodeSelector": { "matchExpressions": [is] } } })
    };
    harness.plan("server", role("Exists")).await;
    harness.upgrading("server", "server").await;
    let waits =
        json!({ "spec": { "prepare": { "image": "rancher/k3s-upgrade", "args": ["prepare", "server"] } } });
    harness.plan("agent", both(role("DoesNotExist"), waits)).await;
    harness.phase("agent", "agent", "Preparing").await;
    assert_eq!(harness.runs("agent", "upgrade").await, 0);

    // Done with, but the kubelet has not said yet that it is the new one.
    harness.release("server").await;
    harness.release("agent").await;
    harness.complete("server").await;
    let plan = harness
        .ctx
        .kubectl(&["get", "plan", "server", "-o", "json"])
        .await;
    let plan: Value = serde_json::from_str(&plan).unwrap();
    assert_eq!(plan["status"]["applying"].as_array().map_or(0, Vec::len), 0);
    harness.phase("agent", "agent", "Preparing").await;
    assert_eq!(harness.runs("agent", "upgrade").await, 0);

    harness
        .kubelet
        .set_kubelet_version(&harness.node("server"), "v1.31.0+k3s1")
        .await;
    harness.complete("agent").await;
    assert_eq!(harness.runs("agent", "upgrade").await, 1);
    assert_eq!(harness.made_for().await, ["server", "agent"]);
}
