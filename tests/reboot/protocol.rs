//! The reboot Pod, and the permission for it.

use kube::ResourceExt as _;
use serde_json::json;

use super::{PLAN, always};
use crate::harness::Harness;
use crate::scenario::Backend;
use crate::testenv::context::TestContext;
use crate::testenv::manifest::Manifests;

scenarios! {
    both {
        the_reboot_pod_is_owned_by_its_plan_and_deleted_with_it,
    }
    real {
        under_system_upgrade_controllers_roles_a_plan_that_reboots_waits_and_the_others_continue,
    }
}

async fn under_system_upgrade_controllers_roles_a_plan_that_reboots_waits_and_the_others_continue() {
    let harness = Harness::on(TestContext::with(Manifests::Suc).await, ["one"], |set| set).await;
    let _controller = harness.ctx.controller().start();
    harness.plan(PLAN, always()).await;
    let waits = harness.held_up(PLAN, "one", "MissingPermission").await;
    let text = waits.message.unwrap();
    assert!(text.contains("may not create pods in namespace"), "{text}");
    harness.plan_with("plain", json!({ "cordon": true })).await;
    harness.complete("plain").await;
    assert_eq!((harness.made().await.len(), harness.reboots("one").await), (1, 0));
}

async fn the_reboot_pod_is_owned_by_its_plan_and_deleted_with_it(on: Backend) {
    let harness = on
        .harness_with(["one"], |set| set.steer("comes-back", "as-if-nothing"))
        .await;
    let _controller = harness.ctx.controller().start();
    let plan = harness.plan(PLAN, always()).await;
    let name = harness.reboot_pod().await;
    let pod = harness.ctx.pods().get(&name).await.unwrap();
    let owners: Vec<_> = pod
        .owner_references()
        .iter()
        .map(|owner| owner.uid.clone())
        .collect();
    assert_eq!(owners, [plan.uid().unwrap()]);
    assert_eq!(pod.spec.unwrap().node_name, Some(harness.node("one")));
}
