//! Pods whose end, restart or loss only a real API server shows. `rehearse::pod_lifecycle` has the other tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, EvictParams, Patch, PatchParams};
use refit_rehearse::pod_lifecycle::Exit;
use serde_json::{Value, json};

use super::{bind, exit, in_phase, start, with_nodes};
use crate::testenv::context::TestContext;
use crate::testenv::kubelet::{ContainerTask, NodeSet, TaskRunner};
use crate::testenv::wait::{self, SOON};

/// Runs the container `task` until it is killed.
#[derive(Clone, Default)]
struct Endless {
    started: Arc<AtomicUsize>,
    killed: Arc<AtomicUsize>,
}

/// Counts when it is dropped.
struct Killed(Arc<AtomicUsize>);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl TaskRunner for Endless {
    fn has_task(&self, container: &str) -> bool {
        container == "task"
    }

    fn run(&self, _: ContainerTask) -> BoxFuture<'static, Exit> {
        self.started.fetch_add(1, Ordering::SeqCst);
        let killed = Killed(Arc::clone(&self.killed));
        Box::pin(async move {
            let _killed = killed;
            std::future::pending().await
        })
    }
}

#[tokio::test]
async fn a_task_is_killed_with_its_container() {
    let tasks = Endless::default();
    let (ctx, kubelets, names) = with_nodes(&["n"], |nodes| nodes.task_runner(tasks.clone())).await;
    let is = async |what: &str, count: &AtomicUsize, expected| {
        wait::until(what, async || count.load(Ordering::SeqCst), |it| *it == expected).await;
    };
    let run = async |name: &str, number| {
        let spec = json!({"initContainers": [{"name": "task", "image": "example.com/task:1"}]});
        bind(&ctx, &names[0], name, &[("delete-delay", "0")], spec).await;
        is("the task has started", &tasks.started, number).await;
    };
    run("deleted", 1).await;
    ctx.pods()
        .delete("deleted", &DeleteParams::default())
        .await
        .unwrap();
    wait::gone(ctx.pods(), "deleted", SOON).await;
    is("the task is killed", &tasks.killed, 1).await;

    run("unplugged", 2).await;
    kubelets.power_off(&names[0]).await;
    is("the task is killed", &tasks.killed, 2).await;
    kubelets.power_on(&names[0]).await;
    in_phase(&ctx, "unplugged", "Failed").await;

    run("rebooted", 3).await;
    kubelets.reboot(&names[0]).await;
    let status = in_phase(&ctx, "rebooted", "Failed").await;
    assert_eq!(exit(&status, "task"), (255, "Error".to_owned()));
    is("the task is killed", &tasks.killed, 3).await;
}

/// Sets or removes a finalizer, which keeps the pod, so that its end can be seen.
async fn hold(ctx: &TestContext, finalizers: Value) {
    let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    let params = PatchParams::default();
    ctx.pods().patch("p", &params, &patch).await.unwrap();
}

#[tokio::test]
async fn a_deleted_pod_ends_and_is_gone() {
    let (ctx, _kubelets, names) = with_nodes(&["n"], |nodes| nodes.steer("run-delay", "never")).await;
    bind(&ctx, &names[0], "p", &[("delete-delay", "100ms")], json!({})).await;
    in_phase(&ctx, "p", "Running").await;
    hold(&ctx, json!(["example.com/hold"])).await;
    ctx.pods().delete("p", &DeleteParams::default()).await.unwrap();
    let status = in_phase(&ctx, "p", "Failed").await;
    assert_eq!(exit(&status, "c"), (143, "Error".to_owned()));
    hold(&ctx, Value::Null).await;
    wait::gone(ctx.pods(), "p", SOON).await;
}

#[tokio::test]
async fn an_evicted_pod_keeps_its_condition() {
    let (ctx, _kubelets, names) = with_nodes(&["n"], |nodes| nodes.steer("run-delay", "never")).await;
    bind(&ctx, &names[0], "p", &[("delete-delay", "100ms")], json!({})).await;
    in_phase(&ctx, "p", "Running").await;
    hold(&ctx, json!(["example.com/hold"])).await;
    ctx.pods().evict("p", &EvictParams::default()).await.unwrap();
    let conditions = in_phase(&ctx, "p", "Failed").await.conditions.unwrap();
    let disrupted = conditions
        .iter()
        .find(|condition| condition.type_ == "DisruptionTarget")
        .unwrap();
    assert_eq!(disrupted.reason.as_deref(), Some("EvictionByEvictionAPI"));
    hold(&ctx, Value::Null).await;
    wait::gone(ctx.pods(), "p", SOON).await;
}

#[tokio::test]
async fn a_kubelet_that_restarts_continues_from_the_stored_statuses() {
    let ctx = TestContext::new().await;
    let name = ctx.node_name("n");
    let set = || NodeSet::named([&name]).steer("run-delay", "never");
    let first = start(&ctx, set()).await;
    let boot_id = first.boot_id(&name).await;
    for pod in ["running", "deleted"] {
        bind(&ctx, &name, pod, &[], json!({})).await;
        in_phase(&ctx, pod, "Running").await;
    }
    drop(first);
    ctx.pods()
        .delete("deleted", &DeleteParams::default())
        .await
        .unwrap();

    let second = start(&ctx, set()).await;
    assert_eq!(second.boot_id(&name).await, boot_id, "the machine was not off");
    second.behaviour(&name, &[("run-delay", "0")]).await;
    let status = in_phase(&ctx, "running", "Succeeded").await;
    assert_eq!(exit(&status, "c"), (0, "Completed".to_owned()));
    wait::gone(ctx.pods(), "deleted", SOON).await;
    assert_eq!(second.runs(&name, "c").await, 0, "nothing is started again");
}

#[tokio::test]
async fn kubelets_wait_for_an_api_server_that_is_down() {
    let ctx = TestContext::alone().await;
    let (a, b) = (ctx.node_name("a"), ctx.node_name("b"));
    let kubelets = start(&ctx, NodeSet::named([&a, &b]).steer("run-delay", "never")).await;
    bind(&ctx, &a, "p", &[], json!({})).await;
    in_phase(&ctx, "p", "Running").await;
    let plane = ctx.test_env.control_plane();
    plane.stop_apiserver();
    for node in [&a, &b] {
        kubelets.behaviour(node, &[("run-delay", "0")]).await;
    }
    plane.start_apiserver().await.unwrap();
    let status = in_phase(&ctx, "p", "Succeeded").await;
    assert_eq!(exit(&status, "c"), (0, "Completed".to_owned()));
    // The watch continues, too.
    bind(&ctx, &b, "q", &[], json!({})).await;
    in_phase(&ctx, "q", "Succeeded").await;
    assert_eq!(
        (kubelets.runs(&a, "c").await, kubelets.runs(&b, "c").await),
        (1, 1)
    );
}

#[tokio::test]
async fn the_pod_of_a_deleted_node_is_not_run_by_the_next_node_of_that_name() {
    let (ctx, kubelets, names) = with_nodes(&["n"], |nodes| nodes.steer("run-delay", "never")).await;
    bind(&ctx, &names[0], "p", &[], json!({})).await;
    in_phase(&ctx, "p", "Running").await;
    kubelets.delete_node(&names[0]).await;
    kubelets.recreate_node(&names[0]).await;
    // The pod names the node, but its containers ran on the old machine. The garbage collector may be faster.
    wait::eventually("the pod has ended or is gone", SOON, async || {
        match ctx
            .pods()
            .get_opt("p")
            .await
            .unwrap()
            .and_then(|pod: Pod| pod.status)
        {
            None => Ok(()),
            Some(status) if status.phase.as_deref() == Some("Failed") => Ok(()),
            Some(status) => Err(format!("{:?}", status.phase)),
        }
    })
    .await;
    assert_eq!(kubelets.runs(&names[0], "c").await, 1);
}
