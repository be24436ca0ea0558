//! Lifecycle conditions of Nodes (KEP-5683) on a real API server, under the roles and the policy of the component.

use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::harness::{Harness, is_free};
use crate::node_account::{client_with, shipped};
use crate::steering::UserCli;
use crate::testenv::manifest;
use crate::testenv::wait::{self, SOON};

/// Types and reasons of the lifecycle conditions of a node.
fn says(node: &Node) -> Vec<String> {
    let types = [
        "MaintenancePlanned",
        "DrainInProgress",
        "Drained",
        "MaintenanceInProgress",
    ];
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let lifecycle = conditions.filter(|one| types.contains(&one.type_.as_str()));
    let mut says: Vec<_> = lifecycle
        .map(|one| format!("{} {}", one.type_, one.reason.as_deref().unwrap_or_default()))
        .collect();
    says.sort();
    says
}

/// Roles and the policy of the component, for the namespace of this test.
async fn apply_overlay(harness: &Harness) {
    let ctx = &harness.ctx;
    let mut objects = Vec::new();
    for file in ["rbac.yaml", "admission.yaml"] {
        for mut object in shipped(ctx, &format!("overlays/node-conditions/{file}")) {
            if let Some(subject) = object.pointer_mut("/subjects/0/name") {
                *subject = ctx.service_account().into();
            }
            let text = object.to_string();
            let theirs = format!("{}:system-upgrade-controller'", ctx.namespace());
            let own = format!("{}:{}'", ctx.namespace(), ctx.service_account());
            let object: Value = serde_json::from_str(&text.replace(&theirs, &own)).unwrap();
            manifest::apply(&ctx.client, &object).await.unwrap();
            objects.push(object);
        }
    }
    ctx.in_force(&objects).await;
}

async fn patch_status(client: &Client, node: &str, status: Value) -> Result<(), String> {
    let nodes = Api::<Node>::all(client.clone());
    let patch = Patch::Strategic(json!({ "status": status }));
    let answer = nodes.patch_status(node, &PatchParams::default(), &patch).await;
    answer.map(drop).map_err(|error| error.to_string())
}

fn condition(type_: &str, reason: &str) -> Value {
    json!({ "conditions": [{ "type": type_, "status": "True", "reason": reason, "message": "test" }] })
}

async fn until(harness: &Harness, node: &str, expected: &[&str]) -> Node {
    let name = harness.node(node);
    let what = format!("says {expected:?}");
    let says = |node: &Node| says(node) == expected;
    harness.ctx.node_until(&name, &what, SOON, says).await
}

#[tokio::test]
async fn a_node_says_what_a_plan_does_with_it_and_waits_for_other_clients() {
    let harness = Harness::held(["one", "two"]).await;
    apply_overlay(&harness).await;
    let admin = &harness.ctx.client;
    let two = harness.node("two");
    patch_status(admin, &two, condition("DrainInProgress", "AdminRequested"))
        .await
        .unwrap();
    let controller = harness
        .ctx
        .controller()
        .env("REFIT_NODE_CONDITIONS", "true")
        .start();
    harness
        .plan_with("p", json!({ "drain": {}, "concurrency": 2 }))
        .await;
    harness.upgrading("p", "one").await;
    let node = until(
        &harness,
        "one",
        &["Drained RefitPlan", "MaintenanceInProgress RefitPlan"],
    )
    .await;
    let conditions = node.status.unwrap().conditions.unwrap();
    let held = conditions
        .iter()
        .find(|one| one.type_ == "MaintenanceInProgress")
        .unwrap();
    assert_eq!(
        held.message.as_deref(),
        Some(&*format!(
            "refit in {}: Plan p has the node, version v1",
            harness.ctx.namespace()
        ))
    );
    assert!(held.last_transition_time.is_some() && held.last_heartbeat_time.is_some());
    assert!(
        conditions.iter().any(|one| one.type_ == "Ready"),
        "{conditions:?}"
    );
    let busy = harness.held_up("p", "two", "NodeBusy").await;
    assert_eq!(
        busy.message.as_deref(),
        Some(
            "another client works on the node: its condition DrainInProgress is True, with reason \"AdminRequested\""
        )
    );
    let cli = UserCli::admin(&harness);
    let explained = cli.refit(&format!("explain p {two}")).await;
    let command = format!("kubectl patch node {two} --subresource=status -p");
    explained.ends(1).says(&command);
    // A successor of a controller that died has nothing but the conditions.
    controller.kill();
    let _controller = controller.start_again();
    harness.release("one").await;
    let one = until(&harness, "one", &[]).await;
    assert!(is_free(&one));
    let gone = json!({ "conditions": [{ "type": "DrainInProgress", "$patch": "delete" }] });
    patch_status(admin, &two, gone).await.unwrap();
    harness.upgrading("p", "two").await;
    harness.release("two").await;
    harness.complete("p").await;
    until(&harness, "two", &[]).await;
}

#[tokio::test]
async fn the_controller_s_account_writes_nothing_of_a_node_s_status_but_its_own_conditions() {
    let harness = Harness::new(["one"]).await;
    apply_overlay(&harness).await;
    let ctx = &harness.ctx;
    let node = harness.node("one");
    let token = ctx.token(ctx.service_account()).await;
    let account = client_with(ctx, "conditions", &token).await;
    let taken = || condition("Drained", "AdminRequested");
    patch_status(&ctx.client, &node, taken()).await.unwrap();
    // Policies take effect some time after they are created. Each try is another change: one that changes nothing is allowed.
    let tries = AtomicUsize::new(1);
    let is_refused = async || {
        let value = tries.fetch_add(1, Ordering::Relaxed).to_string();
        let forged = json!({ "capacity": { "example.com/forged": value } });
        patch_status(&account, &node, forged).await.is_err()
    };
    wait::holds("the policy is in force", is_refused).await;
    for (status, allowed) in [
        (condition("MaintenanceInProgress", "RefitPlan"), true),
        (condition("MaintenanceInProgress", "AdminRequested"), false),
        (condition("Ready", "RefitPlan"), false),
        (condition("Drained", "RefitPlan"), false),
        (
            json!({ "conditions": [{ "type": "Drained", "$patch": "delete" }] }),
            false,
        ),
        (
            json!({ "conditions": [{ "type": "MaintenanceInProgress", "$patch": "delete" }] }),
            true,
        ),
        (
            json!({ "addresses": [{ "type": "Hostname", "address": "other" }] }),
            false,
        ),
        (json!({ "phase": "Terminated" }), false),
        (json!({ "runtimeHandlers": [{ "name": "other" }] }), false),
    ] {
        let answer = patch_status(&account, &node, status.clone()).await;
        assert_eq!(answer.is_ok(), allowed, "{status}: {answer:?}");
    }
    let left = harness.get("one").await;
    assert_eq!(says(&left), ["Drained AdminRequested"], "{}", left.name_any());
}

#[tokio::test]
async fn the_command_sets_what_it_does_and_removes_it_with_the_cordon() {
    let harness = Harness::new(["one"]).await;
    let node = harness.node("one");
    let cli = UserCli::admin(&harness);
    let drained = cli
        .refit_anywhere(&format!("drain --conditions --ignore-daemonsets {node}"))
        .await;
    drained.ends(0);
    until(&harness, "one", &["Drained RefitDrainCommand"]).await;
    cli.refit_anywhere(&format!("uncordon {node}")).await.ends(0);
    let free = until(&harness, "one", &[]).await;
    assert!(is_free(&free));
}
