//! Losses during a reboot: power, pods, Jobs, the API server, and the controller between any two writes.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::EvictParams;
use serde_json::Value;

use super::{PLAN, noted, notes, on, patiently, reboots, runs};
use crate::e2e::harness::{E2eHarness, RUNS, harness, plan, waits};
use crate::harness::{is_cordoned, ledger, record};
use crate::supervised::SupervisedController;
use crate::testenv::faults::{Moment, Rule};
use crate::testenv::real::{self, PATIENCE};
use crate::testenv::wait;

/// A Plan whose upgrade succeeds on the second node while no controller runs. None runs afterwards.
async fn complete_without_controller(harness: &E2eHarness, spec: &Value) {
    let node = &harness.two;
    harness.make(PLAN, &waits(), &on(node, spec.clone())).await;
    harness.phase(PLAN, node, "Upgrading").await;
    harness.deployed.stop().await;
    E2eHarness::go(node);
    harness.job_is(PLAN, "Complete").await;
}

fn ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

#[tokio::test]
#[ignore = "real nodes, which need root and Debian: just e2e"]
async fn a_controller_that_is_killed_between_every_two_steps_reboots_each_node_once() {
    let ctx = real::context().await;
    let nodes = real::nodes(&ctx, ["one", "two"]).await;
    let faults = ctx.faults(1).await;
    // The controller is killed after each write, except for most writes of status and deletes: only the process that
    // assigned a slot knows that it has created no Job since, so a node makes no progress if all its controllers die at
    // that write.
    for (verb, resource) in [
        ("create", "jobs"),
        ("patch", "jobs"),
        ("patch", "nodes"),
        ("create", "pods"),
    ] {
        faults.add(Rule::on(verb, resource).kill(Moment::After));
    }
    faults.add(Rule::on("patch", "plans/status").times(6).kill(Moment::After));
    faults.add(Rule::on("delete", "pods").times(3).kill(Moment::After));
    let supervised = SupervisedController::start(real::controller(&ctx).through(&faults));
    ctx.plan(&plan(PLAN, &notes(), &reboots())).await;
    ctx.plan_complete(PLAN, 3 * PATIENCE).await;
    for node in &nodes {
        let there = ctx.node(node.name()).await;
        assert!(!is_cordoned(&there) && ledger(&there).is_none() && record(&there, PLAN).is_none());
        assert_eq!(node.boots(), 2, "{}", node.name());
        assert_eq!(node.lines(RUNS), [noted("v2", node, 1)], "{}", node.name());
    }
    let killed = supervised.ends().len();
    println!("{killed} controllers were killed");
    // Five of each node (Job, record, annotation of the Job, pod, label), and statuses and deletes.
    assert!(killed > 10 + 6, "{killed}");
}

#[tokio::test]
#[ignore = "real nodes, which need root and Debian: just e2e"]
async fn a_reboot_pod_that_the_kubelet_refuses_or_a_user_evicts_is_created_again_and_the_node_boots_once() {
    let harness = harness().await;
    let node = &harness.two;
    harness.make(PLAN, &waits(), &on(node, patiently())).await;
    harness.phase(PLAN, node, "Upgrading").await;
    real::pods_need(&harness.ctx, &[("accepts", "pods")]).await;
    E2eHarness::go(node);
    let refused = |pod: &Pod| {
        let status = pod.status.as_ref();
        status.is_some_and(|it| {
            it.phase.as_deref() == Some("Failed") && it.reason.as_deref() == Some("NodeAffinity")
        })
    };
    let refused = harness.reboot_pod("is refused", refused).await;
    harness.ctx.label_node(node.name(), "accepts", Some("pods")).await;
    let second = harness.reboot_pod("runs", runs).await;
    assert_ne!(second.uid(), refused.uid());

    let pods = harness.ctx.pods();
    pods.evict(&second.name_any(), &EvictParams::default())
        .await
        .unwrap();
    let another = |pod: &Pod| runs(pod) && pod.uid() != second.uid();
    harness.reboot_pod("is another that runs", another).await;
    E2eHarness::let_reboot(node);
    harness.is_done(PLAN, &[node]).await;
    assert_eq!(node.boots(), 2);
    assert_eq!(node.lines(RUNS), ["v2"]);
}

#[tokio::test]
#[ignore = "real nodes, which need root and Debian: just e2e"]
async fn a_node_that_reboots_during_an_outage_of_the_api_server_is_done_afterwards() {
    let harness = harness().await;
    let node = &harness.two;
    harness.make(PLAN, &notes(), &on(node, patiently())).await;
    harness.reboot_pod("runs", runs).await;
    let plane = harness.ctx.test_env.control_plane();
    plane.stop_apiserver();
    E2eHarness::let_reboot(node);
    node.wait_boots(2).await;
    // The node is up, without an API server.
    wait::eventually("the node has started its services", PATIENCE, async || {
        let socket = node.host_path("/run/containerd/containerd.sock");
        match socket {
            Some(socket) if socket.exists() => Ok(()),
            _ => Err("it has not".to_owned()),
        }
    })
    .await;
    plane.start_apiserver().await.unwrap();
    // An API server that has just started has no roles for a moment, and refuses all requests.
    harness.is_complete(PLAN, &[node]).await;
    assert_eq!(node.boots(), 2);
    assert_eq!(node.lines(RUNS), [noted("v2", node, 1)]);
}

#[tokio::test]
#[ignore = "real nodes, which need root and Debian: just e2e"]
async fn a_node_that_loses_power_during_its_upgrade_has_failed_and_is_not_upgraded_again() {
    let harness = harness().await;
    let node = &harness.two;
    harness.make(PLAN, &waits(), &on(node, reboots())).await;
    harness.phase(PLAN, node, "Upgrading").await;
    wait::until(
        "the payload runs",
        async || node.lines(RUNS),
        |lines| !lines.is_empty(),
    )
    .await;
    node.power_cycle().await;
    let message = harness.has_failed(PLAN, node, "UpgradeInterrupted").await;
    assert!(message.contains("went down during its upgrade"), "{message}");
    harness.job_is(PLAN, "Failed").await;
    node.wait_ready().await;
    // The Job has ended, and once no pod of it is left the payload cannot run again.
    let live = |pod: &Pod| pod.labels().contains_key("batch.kubernetes.io/job-name") && !ended(pod);
    wait::until(
        "no pod of the Job is left to run",
        async || {
            let pods = harness.ctx.pods_with("").await;
            pods.iter()
                .filter(|pod| live(pod))
                .map(Pod::name_any)
                .collect::<Vec<_>>()
        },
        Vec::is_empty,
    )
    .await;
    assert_eq!(node.lines(RUNS), ["v2"]);
    assert_eq!(node.boots(), 2);
    assert_eq!(harness.reboot_pods().await.len(), 0);
}

#[tokio::test]
#[ignore = "real nodes, which need root and Debian: just e2e"]
async fn a_node_that_loses_power_between_cordon_and_upgrade_is_upgraded_in_its_second_boot_and_then_rebooted()
{
    let harness = harness().await;
    let node = &harness.two;
    harness.guarded_pod().await;
    harness.make(PLAN, &notes(), &on(node, reboots())).await;
    harness.drain_waits(PLAN, node).await;
    node.power_cycle().await;
    node.wait_ready().await;
    assert!(harness.is_cordoned(node).await);
    harness.allow_evictions().await;
    harness.is_done(PLAN, &[node]).await;
    assert_eq!(node.lines(RUNS), [noted("v2", node, 2)]);
    assert_eq!(node.boots(), 3);
}

#[tokio::test]
#[ignore = "real nodes, which need root and Debian: just e2e"]
async fn a_node_whose_job_is_deleted_with_its_pod_after_success_is_done_by_its_sentinel() {
    let harness = harness().await;
    let node = &harness.two;
    complete_without_controller(&harness, &reboots()).await;
    harness.delete_jobs(PLAN).await;
    harness.deployed.start().await;
    harness.is_done(PLAN, &[node]).await;
    assert_eq!(node.boots(), 2);
    assert_eq!(node.lines(RUNS), ["v2"]);
}
