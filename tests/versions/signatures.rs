//! docs/signatures.md: an image that a policy engine refuses. The engine is a small server that refuses as Kyverno does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use http::Response;
use http_body_util::BodyExt as _;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use tokio::process::Command;

use super::registry::registry_state;
use crate::channels::registry::{Registry, index_digest};
use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::create;
use crate::testenv::pki::Authority;
use crate::testenv::plan::{plan, status};
use crate::testenv::serve::{Server, full};
use crate::testenv::wait::SOON;

/// Refuses pods of this test with images of the registry that have no digest, or whose digest is not signed.
async fn engine(ctx: &TestContext, registry: String, signed: Arc<AtomicBool>) -> Server {
    let authority = Authority::new("kyverno").unwrap();
    let identity = authority.server("webhook", &["127.0.0.1"]).unwrap();
    let server = Server::start(Some(&identity), move |request| {
        let (registry, signed) = (registry.clone(), Arc::clone(&signed));
        async move {
            let review: Value = serde_json::from_slice(&request.into_body().collect().await?.to_bytes())?;
            let request = &review["request"];
            let pod = &request["object"];
            let lists = ["initContainers", "containers"].map(|list| pod["spec"][list].as_array().cloned());
            let containers = lists.into_iter().flatten().flatten();
            let images = containers.filter_map(|it| it["image"].as_str().map(str::to_owned));
            let is_signed = |image: &String| {
                image.ends_with(&format!("@{}", index_digest())) && signed.load(Ordering::Relaxed)
            };
            let refused = images
                .filter(|image| image.starts_with(&registry))
                .find(|image| !is_signed(image));
            let name = pod["metadata"]["generateName"].as_str().unwrap_or_default();
            let says = refused.as_ref().map(|image| {
                format!(
                    "resource Pod/{}/{name} was blocked due to the following policies\n\nsigned-upgrades:\n  signed: 'failed to \
                     verify image {image}: .attestors[0].entries[0].keys: no matching signatures found'",
                    request["namespace"].as_str().unwrap_or_default()
                )
            });
            let answer = json!({
                "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "response": { "uid": request["uid"], "allowed": says.is_none(), "status": { "code": 400, "message": says } },
            });
            Ok(Response::new(full(answer.to_string())))
        }
    });
    let server = server.await.unwrap();
    let webhook = json!({
        "metadata": { "name": ctx.namespace() },
        "webhooks": [{
            "name": "mutate.kyverno.svc-fail", "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
            "clientConfig": {
                "url": format!("https://127.0.0.1:{}/", server.port()),
                "caBundle": base64::engine::general_purpose::STANDARD.encode(authority.pem()),
            },
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": ctx.namespace() } },
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"] }],
        }],
    });
    create::<ValidatingWebhookConfiguration>(&Api::all(ctx.client.clone()), webhook).await;
    server
}

async fn refit(ctx: &TestContext, args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_refit"));
    command
        .args(args)
        .args(["-n", ctx.namespace()])
        .env("KUBECONFIG", ctx.test_env.kubeconfig());
    let output = command.output().await.unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn a_pod_whose_image_is_not_signed_is_refused_before_its_node_is_touched_and_runs_once_it_is_signed() {
    let ctx = TestContext::new().await;
    let nodes = ctx.manual_kubelet(["a"]).await;
    let node = nodes.name("a");
    let registry = Registry::start(registry_state()).await;
    let signed = Arc::new(AtomicBool::new(false));
    let _engine = engine(&ctx, registry.host(), Arc::clone(&signed)).await;
    let _controller = ctx.controller().start();
    let image = format!("{}/team/k3s", registry.host());
    let spec = format!(
        "{{concurrency: 1, nodeSelector: {{}}, version: v1.33.4+k3s1, cordon: true, serviceAccountName: system-upgrade, \
         upgrade: {{image: {image:?}}}, versionPolicy: {{pinDigest: true}}}}"
    );
    ctx.plan(&plan("signed", &spec)).await;
    let words = format!(
        "failed to verify image {image}:v1.33.4-k3s1@{}: .attestors[0].entries[0].keys: no matching signatures found",
        index_digest()
    );
    let is_refused = |plan: &refit_api::Plan| {
        let mut active = status(plan).active.unwrap_or_default().into_iter();
        active.any(|it| {
            it.reason.as_deref() == Some("PodRefused")
                && it
                    .message
                    .is_some_and(|message| message.contains("signed-upgrades"))
        })
    };
    let plan = ctx
        .plan_until("signed", "says that its pod is refused", SOON, is_refused)
        .await;
    let entry = status(&plan).active.unwrap().remove(0);
    let message = entry.message.unwrap();
    assert!(message.contains(&words), "{message}");
    let known = ctx.node(&node).await;
    assert_eq!(known.spec.unwrap().unschedulable, None, "it is untouched");
    for args in [&["status", "signed"][..], &["explain", "signed", &node]] {
        let text = refit(&ctx, args).await;
        assert!(
            text.contains("PodRefused") && text.contains("no matching signatures found"),
            "{text}"
        );
        println!("{text}");
    }
    signed.store(true, Ordering::Relaxed);
    nodes.succeed("signed", &node).await;
    ctx.plan_complete("signed", SOON).await;
    let webhooks = Api::<ValidatingWebhookConfiguration>::all(ctx.client.clone());
    let _ = webhooks.delete(ctx.namespace(), &DeleteParams::default()).await;
}
