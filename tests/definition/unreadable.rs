//! Plans that were stored under a looser definition, with what our types cannot read.

use kube::api::{Patch, PatchParams};
use refit::api::{Plan, crd};
use serde_json::{Value, json};

use super::{schema, serve};
use crate::support::plan::{plan, says, status};
use crate::support::wait::{self, SOON};
use crate::support::world::World;

/// A Plan as the API server gives it, whatever is in it.
async fn raw(world: &World, name: &str) -> Value {
    let plan = world.kubectl(&["get", "plan", name, "-o", "json"]).await;
    serde_json::from_str(&plan).unwrap()
}

/// Waits until a Plan that our types may not be able to read says so of itself.
async fn says_that_it_cannot_be_read(world: &World, name: &str) {
    let validated = wait::eventually(&format!("{name} has a status"), SOON, async || {
        let plan = raw(world, name).await;
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
async fn plans_that_cannot_be_read_hold_up_nobody_else() {
    let world = World::alone().await;
    // Nothing is pruned and nothing is refused.
    let mut loose = crd::plans();
    *schema(&mut loose) = serde_json::from_value(json!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
    }))
    .unwrap();
    serve(&world, &loose).await;
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
        world.apply(&plan(name, spec)).await;
    }
    world
        .apply("{apiVersion: upgrade.cattle.io/v1, kind: Plan, metadata: {name: no-spec}}")
        .await;
    world
        .plan(&plan("good", "{version: v1, upgrade: {image: i}}"))
        .await;
    world
        .plan(&plan("odd-status", "{version: v1, upgrade: {image: i}}"))
        .await;
    let odd = json!({ "status": { "applying": "everything", "conditions": { "a": "b" }, "latestHash": 7 } });
    let patch = Patch::Merge(odd);
    let api = kube::Api::<kube::api::DynamicObject>::namespaced_with(
        world.client.clone(),
        world.namespace(),
        &kube::api::ApiResource::erase::<Plan>(&()),
    );
    api.patch_status("odd-status", &PatchParams::default(), &patch)
        .await
        .unwrap();

    let controller = world.controller().arg("--manage-crd=false").start();
    controller.leading().await;
    world.plan_complete("good", SOON).await;
    world.plan_complete("odd-status", SOON).await;
    for (name, _) in unreadable {
        says_that_it_cannot_be_read(&world, name).await;
        let told = world.told(name).await;
        let failed = "Warning ValidateFailed: Failed to validate plan: spec cannot be read: ";
        assert!(told.iter().any(|told| told.starts_with(failed)), "{told:#?}");
    }
    let no_spec = world
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
    world.plan_complete("a-number", SOON).await;
    assert!(controller.terminate().await.success());

    // Nor are they in the way of a controller that has put its own definition there.
    let controller = world.controller().start();
    controller.leading().await;
    world
        .edit_plan("good", json!({ "spec": { "version": "v2" } }))
        .await;
    let v2 = |plan: &Plan| status(plan).latest_version.as_deref() == Some("v2");
    world.plan_until("good", "is at v2", SOON, v2).await;
    world
        .plan(&plan("better", "{version: v1, upgrade: {image: i}}"))
        .await;
    world.plan_complete("better", SOON).await;
    for (name, _) in &unreadable[1..] {
        says_that_it_cannot_be_read(&world, name).await;
    }
    assert!(controller.is_running());
}
