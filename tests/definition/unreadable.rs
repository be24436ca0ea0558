//! Plans that were stored under a looser definition, with what our types cannot read.

use kube::api::{Patch, PatchParams};
use refit_api::{Plan, crd};
use serde_json::{Value, json};

use super::{schema, serve};
use crate::testenv::context::TestContext;
use crate::testenv::plan::{plan, says, status};
use crate::testenv::wait::{self, SOON};

/// A Plan as the API server gives it, whatever is in it.
async fn raw(ctx: &TestContext, name: &str) -> Value {
    let plan = ctx.kubectl(&["get", "plan", name, "-o", "json"]).await;
    serde_json::from_str(&plan).unwrap()
}

/// Waits until a Plan that our types may not be able to read says so of itself.
async fn says_that_it_cannot_be_read(ctx: &TestContext, name: &str) {
    let validated = wait::eventually(&format!("{name} has a status"), SOON, async || {
        let plan = raw(ctx, name).await;
        let conditions = plan["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let validated = conditions.into_iter().find(|it| it["type"] == "Validated");
        validated.ok_or_else(|| plan.to_string())
    })
    .await;
    assert_eq!(validated["status"], "False", "{name}");
    let message = validated["message"].as_str().unwrap();
    assert!(message.starts_with("spec cannot be read: "), "{name}: {message}");
}

#[tokio::test]
async fn plans_that_cannot_be_read_hold_up_no_other() {
    let ctx = TestContext::alone().await;
    // Nothing is pruned and nothing is refused.
    let mut loose = crd::plans();
    *schema(&mut loose) = serde_json::from_value(json!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
    }))
    .unwrap();
    serve(&ctx, &loose).await;
    let unreadable = [
        ("a-number", "{version: v1, concurrency: one, upgrade: {image: i}}"),
        ("a-list", "{version: v1, upgrade: {image: i, args: echo}}"),
        (
            "a-map",
            "{version: v1, nodeSelector: everything, upgrade: {image: i}}",
        ),
        ("a-spec", "nothing"),
    ];
    for (name, spec) in unreadable {
        ctx.apply(&plan(name, spec)).await;
    }
    ctx.apply("{apiVersion: upgrade.cattle.io/v1, kind: Plan, metadata: {name: no-spec}}")
        .await;
    ctx.plan(&plan("good", "{version: v1, upgrade: {image: i}}"))
        .await;
    ctx.plan(&plan("odd-status", "{version: v1, upgrade: {image: i}}"))
        .await;
    let odd = json!({ "status": { "applying": "everything", "conditions": { "a": "b" }, "latestHash": 7 } });
    let patch = Patch::Merge(odd);
    let api = kube::Api::<kube::api::DynamicObject>::namespaced_with(
        ctx.client.clone(),
        ctx.namespace(),
        &kube::api::ApiResource::erase::<Plan>(&()),
    );
    api.patch_status("odd-status", &PatchParams::default(), &patch)
        .await
        .unwrap();

    let controller = ctx.controller().arg("--manage-crd=false").start();
    controller.leading().await;
    ctx.plan_complete("good", SOON).await;
    ctx.plan_complete("odd-status", SOON).await;
    for (name, _) in unreadable {
        says_that_it_cannot_be_read(&ctx, name).await;
        let lines = ctx.event_lines(name).await;
        let failed = "Warning ValidateFailed: Failed to validate plan: spec cannot be read: ";
        assert!(lines.iter().any(|lines| lines.starts_with(failed)), "{lines:#?}");
    }
    let no_spec = ctx
        .plan_condition("no-spec", "LatestResolved", "False", SOON)
        .await;
    assert!(says(&no_spec, "LatestResolved").contains("missing channel and version"));
    // What cannot be read now can be put right.
    api.patch(
        "a-number",
        &PatchParams::default(),
        &Patch::Merge(json!({ "spec": { "concurrency": 1 } })),
    )
    .await
    .unwrap();
    ctx.plan_complete("a-number", SOON).await;
    assert!(controller.terminate().await.success());

    // Nor are they in the way of a controller that has put its own definition there.
    let controller = ctx.controller().start();
    controller.leading().await;
    ctx.edit_plan("good", json!({ "spec": { "version": "v2" } }))
        .await;
    let v2 = |plan: &Plan| status(plan).latest_version.as_deref() == Some("v2");
    ctx.plan_until("good", "is at v2", SOON, v2).await;
    ctx.plan(&plan("better", "{version: v1, upgrade: {image: i}}"))
        .await;
    ctx.plan_complete("better", SOON).await;
    for (name, _) in &unreadable[1..] {
        says_that_it_cannot_be_read(&ctx, name).await;
    }
    assert!(controller.is_running());
}
