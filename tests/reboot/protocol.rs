//! The reboot as it should be, and each way in which it can fail.

use std::time::Duration;

use kube::ResourceExt as _;
use serde_json::json;

use super::{PLAN, always, hasty};
use crate::scene::{Scene, both, is_cordoned, ledger, record};
use crate::support::manifest::Manifests;
use crate::support::wait::{self, SOON};
use crate::support::world::World;

#[tokio::test]
async fn nodes_are_upgraded_and_rebooted_one_after_the_other() {
    let scene = Scene::held(["one", "two"]).await;
    let _controller = scene.world.controller().start();
    scene.plan(PLAN, always()).await;
    let (first, other) = scene.first_of_two(PLAN).await;
    // Long enough to look round.
    let slow = [("upgrade.run-delay", "0"), ("boot-delay", "2s")];
    scene.kubelet.behaviour(&scene.node(first), &slow).await;
    scene.phase(PLAN, first, "Rebooting").await;
    assert_eq!(scene.made_for().await, [first], "the other has not been touched");
    let there = scene.world.node(&scene.node(first)).await;
    assert!(is_cordoned(&there));
    let known = record(&there, PLAN).unwrap();
    assert_eq!(known["phase"], "Upgraded");
    assert!(known["reboot"]["bootId"].is_string(), "{known}");

    scene.release(other).await;
    for node in [first, other] {
        scene.is_done_after(node, 1, 1).await;
    }
    assert_eq!(scene.world.requests().await.most_jobs_at_once(PLAN), 1);
    scene.told_complete(["one", "two"]).await;
    assert_eq!(scene.told("JobCompleteReboot").await.len(), 2);
}

#[tokio::test]
async fn a_reboot_takes_nine_requests_per_node_at_most() {
    const NODES: usize = 10;
    let names: [String; NODES] = std::array::from_fn(|n| format!("n{n}"));
    let scene = Scene::new(names.each_ref().map(String::as_str)).await;
    let controller = scene.world.controller().start();
    controller.logs("watching", SOON).await;
    scene
        .plan(PLAN, both(always(), json!({ "spec": { "concurrency": NODES } })))
        .await;
    for name in &names {
        scene.is_done_after(name, 1, 1).await;
    }
    scene.all_recorded(PLAN).await;
    let requests = scene.world.controller_requests().await;
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
    println!(
        "{} requests for {NODES} nodes: {:?}",
        of_nodes.len(),
        requests.tally()
    );
    let reads = of_nodes
        .iter()
        .filter(|request| request.verb == "get" && request.resource != "namespaces");
    assert_eq!(reads.count(), 0);
    assert!(of_nodes.len() <= 9 * NODES, "{:?}", requests.tally());
}

#[tokio::test]
async fn a_file_on_the_host_says_whether_a_reboot_is_required() {
    let scene = Scene::new(["with", "without"]).await;
    let required = [("with", "true"), ("without", "false")];
    for (node, required) in required {
        let says = [("reboot-required", required)];
        scene.kubelet.behaviour(&scene.node(node), &says).await;
    }
    let _controller = scene.world.controller().start();
    let when = json!({ "spec": { "reboot": { "when": "IfRequired" } } });
    scene.plan(PLAN, both(always(), when)).await;
    scene.is_done_after("with", 1, 1).await;
    scene.is_done_after("without", 1, 0).await;
}

#[tokio::test]
async fn a_node_whose_command_does_nothing_never_rebooted() {
    let scene = Scene::with(["one"], |set| set.steer("comes-back", "as-if-nothing")).await;
    let _controller = scene.world.controller().start();
    scene.plan(PLAN, hasty(3)).await;
    scene.has_failed("one", "NeverRebooted").await;
    scene.no_reboot_pods().await;
    assert_eq!(
        (scene.runs("one", "upgrade").await, scene.reboots("one").await),
        (1, 0)
    );
    let told = scene.told("RebootFailed").await;
    assert!(told.len() == 1 && told[0].contains("NeverRebooted"), "{told:?}");

    // Once the host does what it is asked to, somebody has it tried again.
    scene
        .kubelet
        .behaviour(&scene.node("one"), &[("comes-back", "ready")])
        .await;
    scene.edit(PLAN, json!({ "reboot": { "timeout": "60s" } })).await;
    scene
        .world
        .annotate_node(&scene.node("one"), "refit.rs/retry", Some(PLAN))
        .await;
    scene.is_done_after("one", 2, 1).await;
}

#[tokio::test]
async fn a_command_that_fails_is_told_with_the_failure() {
    let scene = Scene::with(["one"], |set| set.steer("reboot.exit-code", "127")).await;
    let _controller = scene.world.controller().start();
    scene.plan(PLAN, hasty(4)).await;
    let message = scene.has_failed("one", "NeverRebooted").await;
    assert!(message.contains("container reboot exited with"), "{message}");
    assert_eq!(scene.reboots("one").await, 0);
}

#[tokio::test]
async fn a_node_that_does_not_come_back_has_timed_out() {
    let scene = Scene::with(["one"], |set| set.steer("comes-back", "never")).await;
    let _controller = scene.world.controller().start();
    scene.plan(PLAN, hasty(6)).await;
    scene.has_failed("one", "RebootTimedOut").await;
}

#[tokio::test]
async fn a_node_that_comes_back_unwell_has_failed() {
    let scene = Scene::with(["one"], |set| set.steer("comes-back", "not-ready")).await;
    let _controller = scene.world.controller().start();
    scene.plan(PLAN, hasty(6)).await;
    scene.has_failed("one", "NotReadyAfterReboot").await;
    scene.no_reboot_pods().await;
    assert_eq!(scene.reboots("one").await, 1);
}

#[tokio::test]
async fn a_plan_that_is_deleted_before_its_reboot_gives_the_node_back() {
    let scene = Scene::with(["one"], |set| set.steer("comes-back", "as-if-nothing")).await;
    let _controller = scene.world.controller().start();
    scene.plan(PLAN, always()).await;
    scene.phase(PLAN, "one", "Rebooting").await;
    assert!(is_cordoned(&scene.world.node(&scene.node("one")).await));
    scene.delete_plan(PLAN).await;
    let free = |node: &k8s_openapi::api::core::v1::Node| {
        !is_cordoned(node) && ledger(node).is_none() && record(node, PLAN).is_none()
    };
    scene
        .world
        .node_until(&scene.node("one"), "is given back", crate::scene::A_WHILE, free)
        .await;
    scene.no_reboot_pods().await;
    assert_eq!(scene.reboots("one").await, 0);
}

#[tokio::test]
async fn a_plan_that_is_edited_during_the_reboot_ends_it_first() {
    let scene = Scene::with(["one"], |set| set.steer("boot-delay", "4s")).await;
    let _controller = scene.world.controller().start();
    scene.plan(PLAN, always()).await;
    scene.phase(PLAN, "one", "Rebooting").await;
    scene.edit(PLAN, json!({ "version": "v2" })).await;
    wait::always("there is one Job", Duration::from_secs(2), async || {
        let made = scene.made().await;
        if made.len() == 1 {
            Ok(())
        } else {
            Err(format!("{made:?}"))
        }
    })
    .await;
    scene.is_done_after("one", 2, 2).await;
}

#[tokio::test]
async fn a_node_that_somebody_had_cordoned_stays_cordoned() {
    let scene = Scene::new(["one"]).await;
    scene.world.cordon(&scene.node("one")).await;
    let _controller = scene.world.controller().start();
    scene.plan(PLAN, always()).await;
    let hash = scene.complete(PLAN).await;
    let there = scene.done(PLAN, "one", &hash).await;
    assert!(is_cordoned(&there) && ledger(&there).is_none());
    assert_eq!(scene.reboots("one").await, 1);
}

#[tokio::test]
async fn under_system_upgrade_controllers_roles_a_plan_that_reboots_waits_and_the_others_go_on() {
    let scene = Scene::on(World::with(Manifests::Suc).await, ["one"], |set| set).await;
    let _controller = scene.world.controller().start();
    scene.plan(PLAN, always()).await;
    let waits = scene.held_up(PLAN, "one", "MissingPermission").await;
    let text = waits.message.unwrap();
    assert!(text.contains("may not create pods in namespace"), "{text}");
    scene.plan("plain", json!({ "spec": { "cordon": true } })).await;
    scene.complete("plain").await;
    assert_eq!((scene.made().await.len(), scene.reboots("one").await), (1, 0));
}

#[tokio::test]
async fn the_pod_that_reboots_is_its_plans_and_goes_with_it() {
    let scene = Scene::with(["one"], |set| set.steer("comes-back", "as-if-nothing")).await;
    let _controller = scene.world.controller().start();
    let plan = scene.plan(PLAN, always()).await;
    let name = scene.reboot_pod().await;
    let pod = scene.world.pods().get(&name).await.unwrap();
    let owners: Vec<_> = pod
        .owner_references()
        .iter()
        .map(|owner| owner.uid.clone())
        .collect();
    assert_eq!(owners, [plan.uid().unwrap()]);
    assert_eq!(pod.spec.unwrap().node_name, Some(scene.node("one")));
}
