//! What is lost on the way: power, pods, Jobs, the API server, and the controller between any two writes.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, EvictParams};
use serde_json::{Value, json};

use super::{PLAN, noted, notes, on, patiently, reboots, runs};
use crate::e2e::stage::{RUNS, Stage, plan, stage, stage_in, waits};
use crate::scene::{is_cordoned, ledger, record};
use crate::support::faults::{Moment, Rule};
use crate::support::real::{self, PATIENCE};
use crate::support::wait;
use crate::tended::Tended;

/// A Plan whose upgrade succeeds on the second node while no controller runs, and none is started.
async fn complete_without_controller(stage: &Stage, spec: &Value) {
    let node = &stage.two;
    stage.make(PLAN, &waits(), &on(node, spec.clone())).await;
    stage.phase(PLAN, node, "Upgrading").await;
    stage.deployed.stop().await;
    Stage::go(node);
    stage.job_is(PLAN, "Complete").await;
}

/// Deletes a pod, as a person does, and waits until it is gone.
async fn delete(stage: &Stage, pod: &Pod) {
    let (pods, name) = (stage.world.pods(), pod.name_any());
    pods.delete(&name, &DeleteParams::default()).await.unwrap();
    wait::gone(pods, &name, PATIENCE).await;
}

fn ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn a_controller_that_is_killed_between_every_two_steps_reboots_each_node_once() {
    let world = real::world().await;
    let nodes = real::nodes(&world, ["one", "two"]).await;
    let faults = world.faults(1).await;
    // Each write but those of status and of deletes is the last one of its controller. Of those two, some: whether a Job was made
    // since the slot was given is known to nobody but who gave it, so that a node gets nowhere whose controllers all die of that.
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
    let tended = Tended::start(real::controller(&world).through(&faults));
    world.plan(&plan(PLAN, &notes(), &reboots())).await;
    world.plan_complete(PLAN, 3 * PATIENCE).await;
    for node in &nodes {
        let there = world.node(node.name()).await;
        assert!(!is_cordoned(&there) && ledger(&there).is_none() && record(&there, PLAN).is_none());
        assert_eq!(node.boots(), 2, "{}", node.name());
        assert_eq!(node.lines(RUNS), [noted("v2", node, 1)], "{}", node.name());
    }
    let killed = tended.ends().len();
    println!("{killed} controllers were killed");
    // Of each node: Job, record, mark, pod, label; and statuses and deletes.
    assert!(killed > 10 + 6, "{killed}");
}

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn a_reboot_pod_deleted_while_no_controller_runs_is_made_again_and_the_node_boots_once() {
    let stage = stage().await;
    let node = &stage.two;
    stage.make(PLAN, &notes(), &on(node, patiently())).await;
    let pod = stage.reboot_pod("runs", runs).await;
    stage.deployed.stop().await;
    delete(&stage, &pod).await;
    // The command that waited has gone with it.
    Stage::nobody_reboots(node).await;
    Stage::let_reboot(node);
    stage.deployed.start().await;
    stage.is_done(PLAN, &[node]).await;
    assert_eq!(node.boots(), 2);
    assert_eq!(node.lines(RUNS), [noted("v2", node, 1)]);
}

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn a_reboot_pod_that_the_kubelet_refuses_or_somebody_evicts_is_made_again_and_the_node_boots_once() {
    let stage = stage().await;
    let node = &stage.two;
    stage.make(PLAN, &waits(), &on(node, patiently())).await;
    stage.phase(PLAN, node, "Upgrading").await;
    real::pods_need(&stage.world, &[("accepts", "pods")]).await;
    Stage::go(node);
    let refused = |pod: &Pod| {
        let status = pod.status.as_ref();
        status.is_some_and(|it| {
            it.phase.as_deref() == Some("Failed") && it.reason.as_deref() == Some("NodeAffinity")
        })
    };
    let refused = stage.reboot_pod("is refused", refused).await;
    stage.world.label_node(node.name(), "accepts", Some("pods")).await;
    let second = stage.reboot_pod("runs", runs).await;
    assert_ne!(second.uid(), refused.uid());

    let pods = stage.world.pods();
    pods.evict(&second.name_any(), &EvictParams::default())
        .await
        .unwrap();
    let another = |pod: &Pod| runs(pod) && pod.uid() != second.uid();
    stage.reboot_pod("is another that runs", another).await;
    Stage::let_reboot(node);
    stage.is_done(PLAN, &[node]).await;
    assert_eq!(node.boots(), 2);
    assert_eq!(node.lines(RUNS), ["v2"]);
}

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn a_node_that_reboots_while_the_api_server_is_away_is_done_when_that_is_back() {
    let stage = stage_in(real::world_alone().await).await;
    let node = &stage.two;
    stage.make(PLAN, &notes(), &on(node, patiently())).await;
    stage.reboot_pod("runs", runs).await;
    let plane = stage.world.bed.control_plane();
    plane.stop_apiserver();
    Stage::let_reboot(node);
    node.wait_boots(2).await;
    // Up, and nobody to tell.
    wait::eventually("the node has started its services", PATIENCE, async || {
        let socket = node.host_path("/run/containerd/containerd.sock");
        match socket {
            Some(socket) if socket.exists() => Ok(()),
            _ => Err("it has not".to_owned()),
        }
    })
    .await;
    plane.start_apiserver().await.unwrap();
    // An API server that has just begun knows no roles for a moment, and refuses everybody.
    stage.is_complete(PLAN, &[node]).await;
    assert_eq!(node.boots(), 2);
    assert_eq!(node.lines(RUNS), [noted("v2", node, 1)]);
}

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn a_node_that_loses_power_during_its_upgrade_has_failed_and_is_not_upgraded_again() {
    let stage = stage().await;
    let node = &stage.two;
    stage.make(PLAN, &waits(), &on(node, reboots())).await;
    stage.phase(PLAN, node, "Upgrading").await;
    wait::eventually("the payload runs", PATIENCE, async || {
        let lines = node.lines(RUNS);
        if lines.is_empty() {
            Err("it does not".to_owned())
        } else {
            Ok(())
        }
    })
    .await;
    node.power_cycle().await;
    let message = stage.has_failed(PLAN, node, "UpgradeInterrupted").await;
    assert!(message.contains("went down during its upgrade"), "{message}");
    stage.job_is(PLAN, "Failed").await;
    node.wait_ready().await;
    // What could run again would have by now: the Job has ended, and nothing of it is left to begin.
    let live = |pod: &Pod| pod.labels().contains_key("batch.kubernetes.io/job-name") && !ended(pod);
    wait::eventually("no pod of the Job is left to run", PATIENCE, async || {
        let pods = stage
            .world
            .pods()
            .list(&kube::api::ListParams::default())
            .await
            .unwrap();
        let left: Vec<_> = pods.iter().filter(|pod| live(pod)).map(Pod::name_any).collect();
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    })
    .await;
    assert_eq!(node.lines(RUNS), ["v2"]);
    assert_eq!(node.boots(), 2);
    assert_eq!(stage.reboot_pods().await.len(), 0);
}

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn a_node_that_loses_power_between_cordon_and_upgrade_is_upgraded_in_its_second_boot_and_then_rebooted()
{
    let stage = stage().await;
    let node = &stage.two;
    stage.guarded_pod().await;
    stage.make(PLAN, &notes(), &on(node, reboots())).await;
    stage.drain_waits(PLAN, node).await;
    node.power_cycle().await;
    node.wait_ready().await;
    assert!(stage.is_cordoned(node).await);
    stage.relent().await;
    stage.is_done(PLAN, &[node]).await;
    assert_eq!(node.lines(RUNS), [noted("v2", node, 2)]);
    assert_eq!(node.boots(), 3);
}

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn a_node_that_loses_power_between_its_sentinel_and_its_reboot_pod_is_not_rebooted_again() {
    let stage = stage().await;
    let node = &stage.two;
    complete_without_controller(&stage, &reboots()).await;
    node.power_cycle().await;
    node.wait_ready().await;
    stage.deployed.start().await;
    stage.is_done(PLAN, &[node]).await;
    assert_eq!(node.boots(), 2, "nobody rebooted what had rebooted");
    assert_eq!(node.lines(RUNS), ["v2"]);
}

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn a_job_deleted_by_hand_during_the_reboot_or_while_settling_is_not_run_again() {
    let stage = stage().await;
    let node = &stage.two;
    stage.make(PLAN, &notes(), &on(node, patiently())).await;
    stage.reboot_pod("runs", runs).await;
    stage.delete_jobs(PLAN).await;
    Stage::let_reboot(node);
    stage.is_done(PLAN, &[node]).await;
    assert_eq!(node.boots(), 2);
    assert_eq!(node.lines(RUNS), [noted("v2", node, 1)]);

    let settles = json!({ "version": "v3", "settle": { "minReady": "20s" } });
    stage.edit(PLAN, settles).await;
    let settling = |node: &refit::api::NodeProgress| node.reason.as_deref() == Some("MinReady");
    stage.told(PLAN, node, "settles", settling).await;
    stage.delete_jobs(PLAN).await;
    stage.is_done(PLAN, &[node]).await;
    assert_eq!(node.boots(), 3);
    assert_eq!(node.lines(RUNS), [noted("v2", node, 1), noted("v3", node, 2)]);
    assert_eq!(stage.world.controller_requests().await.jobs_created().len(), 2);
}

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn a_job_deleted_with_its_pod_right_after_it_was_complete_is_done_by_the_sentinel_or_evidence_is_lost()
{
    let stage = stage().await;
    let node = &stage.two;
    complete_without_controller(&stage, &reboots()).await;
    stage.delete_jobs(PLAN).await;
    stage.deployed.start().await;
    stage.is_done(PLAN, &[node]).await;
    assert_eq!(node.boots(), 2);
    assert_eq!(node.lines(RUNS), ["v2"]);

    // And with it the boot: nobody can know.
    node.remove("/var/lib/go");
    stage.edit(PLAN, json!({ "version": "v3" })).await;
    stage.phase(PLAN, node, "Upgrading").await;
    stage.deployed.stop().await;
    Stage::go(node);
    stage.job_is(PLAN, "Complete").await;
    stage.delete_jobs(PLAN).await;
    node.power_cycle().await;
    node.wait_ready().await;
    stage.deployed.start().await;
    let message = stage.has_failed(PLAN, node, "EvidenceLost").await;
    assert!(message.contains("refit.rs/retry"), "{message}");
    stage.no_reboot_pods().await;
    assert_eq!(node.boots(), 3);
    assert_eq!(node.lines(RUNS), ["v2", "v3"]);
    assert_eq!(stage.world.controller_requests().await.jobs_created().len(), 2);
}
