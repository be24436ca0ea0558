//! A normal reboot, and each way in which it can fail.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use serde_json::json;

use super::{PLAN, always};
use crate::harness::{Harness, both, is_cordoned, record};
use crate::scenario::Backend;
use crate::testenv::context::TestContext;
use crate::testenv::manifest::Manifests;
use crate::testenv::wait::SOON;

scenarios! {
    both {
        the_reboot_pod_is_owned_by_its_plan_and_deleted_with_it,
    }
    in_process {
        nodes_are_upgraded_and_rebooted_one_after_the_other,
        a_reboot_takes_nine_requests_per_node_at_most,
    }
    real {
        under_system_upgrade_controllers_roles_a_plan_that_reboots_waits_and_the_others_continue,
    }
}

async fn nodes_are_upgraded_and_rebooted_one_after_the_other(on: Backend) {
    let harness = on.held(["one", "two"]).await;
    let _controller = harness.ctx.controller().start();
    let patient = json!({ "spec": { "reboot": { "timeout": "10m" } } });
    harness.plan(PLAN, both(always(), patient)).await;
    let (first, other) = harness.first_of_two(PLAN).await;
    // It stays off until its state has been inspected.
    let stays_off = [("upgrade.run-delay", "0"), ("comes-back", "never")];
    harness.behave(first, &stays_off).await;
    harness.phase(PLAN, first, "Rebooting").await;
    assert_eq!(
        harness.made_for().await,
        [first],
        "the other has not been touched"
    );
    let there = harness.get(first).await;
    assert!(is_cordoned(&there));
    let known = record(&there, PLAN).unwrap();
    assert_eq!(known["phase"], "Upgraded");
    assert!(known["reboot"]["bootId"].is_string(), "{known}");

    let name = harness.node(first);
    let is_off = |node: &Node| {
        let conditions = node
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        conditions
            .into_iter()
            .any(|it| it.type_ == "Ready" && it.status != "True")
    };
    harness.ctx.node_until(&name, "is off", SOON, is_off).await;
    harness.kubelet.power_on(&name).await;
    harness.release(other).await;
    for node in [first, other] {
        harness.is_done_after(node, 1, 1).await;
    }
    assert_eq!(harness.ctx.requests().await.most_jobs_at_once(PLAN), 1);
    harness.expect_complete_events(["one", "two"]).await;
    assert_eq!(harness.event_lines("JobCompleteReboot").await.len(), 2);
}

/// On a real control plane a kubelet may write a node just before the controller does, which reads it then, and statuses are
/// collected as the machine allows.
async fn a_reboot_takes_nine_requests_per_node_at_most(on: Backend) {
    const NODES: usize = 10;
    let names: [String; NODES] = std::array::from_fn(|n| format!("n{n}"));
    let harness = on.harness(names.each_ref().map(String::as_str)).await;
    let controller = harness.ctx.controller().start();
    harness.ctx.wait_until_working(&controller).await;
    harness
        .plan(PLAN, both(always(), json!({ "spec": { "concurrency": NODES } })))
        .await;
    for name in &names {
        harness.is_done_after(name, 1, 1).await;
    }
    harness.all_recorded(PLAN).await;
    let requests = harness.ctx.controller_requests().await;
    let aside = |resource: &str| {
        matches!(
            resource,
            "events" | "leases" | "selfsubjectaccessreviews" | "customresourcedefinitions"
        )
    };
    let of_nodes: Vec<_> = requests
        .0
        .iter()
        .filter(|request| !aside(&request.resource) && !matches!(request.verb.as_str(), "list" | "watch"))
        .collect();
    let mut refused = BTreeSet::new();
    for request in &of_nodes {
        let object = (request.resource.split('/').next(), &request.name);
        match &*request.verb {
            "get" if request.resource == "namespaces" => {}
            "get" => assert!(
                refused.contains(&object),
                "it was read without need: {request:#?}"
            ),
            _ if request.code >= 300 => drop(refused.insert(object)),
            _ => {}
        }
    }
    if on == Backend::InProcess {
        assert!(refused.is_empty(), "{refused:?}");
        assert!(of_nodes.len() <= 9 * NODES, "{:?}", requests.tally());
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
