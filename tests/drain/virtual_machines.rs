//! A virtual machine of `KubeVirt`: its webhook refuses the eviction with 429, the machine migrates, and its pod ends then.
//! The webhook is a small server with the answer of pod-eviction-admitter.go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use http::Response;
use http_body_util::BodyExt as _;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::{DrainHarness, Tool};
use crate::testenv::context::cluster::create;
use crate::testenv::pki::Authority;
use crate::testenv::serve::{Server, full};
use crate::testenv::wait::{self, SOON};

const MACHINE: &str = "virt-launcher-web-0";

/// Refuses the eviction of the machine's pod until it has moved.
async fn webhook(harness: &DrainHarness, moved: Arc<AtomicBool>) -> Server {
    let authority = Authority::new("kubevirt").unwrap();
    let identity = authority.server("webhook", &["127.0.0.1"]).unwrap();
    let namespace = harness.ctx.namespace().to_owned();
    let says = format!("Eviction triggered evacuation of VMI \"{namespace}/web-0\"");
    let server = Server::start(Some(&identity), move |request| {
        let (moved, says) = (Arc::clone(&moved), says.clone());
        async move {
            let review: Value = serde_json::from_slice(&request.into_body().collect().await?.to_bytes())?;
            let request = &review["request"];
            let allowed = request["name"] != MACHINE || moved.load(Ordering::Relaxed);
            let status = json!({ "code": 429, "message": says });
            let answer = json!({
                "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "response": { "uid": request["uid"], "allowed": allowed, "status": status },
            });
            Ok(Response::new(full(answer.to_string())))
        }
    });
    let server = server.await.unwrap();
    let bundle = base64::engine::general_purpose::STANDARD.encode(authority.pem());
    let webhook = json!({
        "metadata": { "name": namespace },
        "webhooks": [{
            "name": "virt-launcher-eviction-interceptor.kubevirt.io", "sideEffects": "NoneOnDryRun",
            "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
            "clientConfig": { "url": format!("https://127.0.0.1:{}/", server.port()), "caBundle": bundle },
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"] }],
        }],
    });
    create::<ValidatingWebhookConfiguration>(&Api::all(harness.ctx.client.clone()), webhook).await;
    server
}

/// The migrations of machines, as far as a drain reads them.
async fn migrations(harness: &DrainHarness) -> Api<DynamicObject> {
    let plural = "virtualmachineinstancemigrations";
    let definition = json!({
        "metadata": { "name": format!("{plural}.kubevirt.io") },
        "spec": {
            "group": "kubevirt.io", "scope": "Namespaced",
            "names": { "kind": "VirtualMachineInstanceMigration", "plural": plural },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    });
    let client = harness.ctx.client.clone();
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    create(&definitions, definition).await;
    let served = |definition: &CustomResourceDefinition| {
        let conditions = definition
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        conditions
            .into_iter()
            .any(|it| it.type_ == "Established" && it.status == "True")
    };
    wait::object(
        definitions,
        &format!("{plural}.kubevirt.io"),
        "is served",
        SOON,
        served,
    )
    .await;
    let kind = GroupVersionKind::gvk("kubevirt.io", "v1", "VirtualMachineInstanceMigration");
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    Api::namespaced_with(client, harness.ctx.namespace(), &resource)
}

#[tokio::test]
async fn a_virtual_machine_migrates_while_all_other_pods_are_evicted() {
    let harness = DrainHarness::new(&["one"]).await;
    harness
        .pods("one", [MACHINE, "other-1", "other-2"], json!({}))
        .await;
    let migrations = migrations(&harness).await;
    let moved = Arc::new(AtomicBool::new(false));
    let _webhook = webhook(&harness, Arc::clone(&moved)).await;

    // With the rights of an administrator: the role of drains does not allow to list migrations.
    let mut command = harness.command(Tool::Refit, &["drain", &harness.node("one"), "-o", "json"]);
    command.env("KUBECONFIG", harness.ctx.test_env.kubeconfig());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = async |event: &str| loop {
        let line = lines.next_line().await.unwrap().expect("the drain goes on");
        let value: Value = serde_json::from_str(&line).unwrap();
        if value["event"] == event {
            return value;
        }
    };
    let refused = next("refused").await;
    let namespace = harness.ctx.namespace();
    let says = format!(
        "the webhook virt-launcher-eviction-interceptor.kubevirt.io says: Eviction triggered evacuation of VMI \"{namespace}/web-0\""
    );
    assert_eq!(
        (&refused["name"], &refused["message"]),
        (&json!(MACHINE), &json!(says)),
        "{refused}"
    );
    // Neither waits for the machine.
    let mut gone = [
        next("gone").await["name"].clone(),
        next("gone").await["name"].clone(),
    ];
    gone.sort_by_key(ToString::to_string);
    assert_eq!(gone, ["other-1", "other-2"]);

    let migration = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": { "name": "evacuation-1" }, "spec": { "vmiName": "web-0" }, "status": { "phase": "Running" },
    });
    create(&migrations, migration).await;
    let refused = next("refused").await;
    assert_eq!(refused["message"], "VM web-0 migrates: Running", "{refused}");

    // It runs on another node now, and its old pod has ended.
    moved.store(true, Ordering::Relaxed);
    harness
        .ctx
        .pods()
        .delete(MACHINE, &DeleteParams::default())
        .await
        .unwrap();
    assert_eq!(next("gone").await["name"], MACHINE);
    assert!(child.wait().await.unwrap().success());
}
