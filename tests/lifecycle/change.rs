//! Plans and nodes that change while the roll-out runs: what runs is let finish, what does not run is replaced.

use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use refit_api::Plan;
use serde_json::json;

use crate::harness::{Harness, both, hash, is_free, label, steer};
use crate::scenario::Backend;
use crate::testenv::wait::{self, SOON};

scenarios! {
    both {
        a_job_whose_pod_has_no_node_yet_is_replaced_at_once,
        a_plan_that_is_deleted_in_mid_run_takes_its_jobs_and_pods_along,
    }
}

/// Waits until the Plan is at that version, and returns its hash.
async fn at_version(harness: &Harness, plan: &str, version: &str) -> String {
    let at = |plan: &Plan| plan.status.as_ref().unwrap().latest_version.as_deref() == Some(version);
    let what = format!("is at {version}");
    hash(&harness.ctx.plan_until(plan, &what, SOON, at).await)
}

async fn a_job_whose_pod_has_no_node_yet_is_replaced_at_once(on: Backend) {
    let harness = on.harness(["one"]).await;
    // By the anti-affinity of Jobs, a pod with the label of their Plan keeps theirs off its node.
    let neighbour = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "neighbour", "labels": { "upgrade.cattle.io/plan": "stuck" } },
        "spec": {
            "nodeName": harness.node("one"), "serviceAccountName": "system-upgrade",
            "containers": [{ "name": "waits", "image": "example.com/waits" }],
        },
    });
    let neighbour = both(steer(&[("run-delay", "never")]), neighbour);
    harness.ctx.apply(&neighbour.to_string()).await;
    let _controller = harness.ctx.controller().start();
    harness.plan_with("stuck", json!({ "version": "v1" })).await;
    let waits = harness.held_up("stuck", "one", "PodWaiting").await;
    let why = waits.message.unwrap();
    assert!(why.contains("anti-affinity"), "the scheduler's words: {why}");
    let first = harness.job("stuck", "one").await;

    // Another version, under another name; then the same version with another pod, under the same name.
    harness.edit("stuck", json!({ "version": "v2" })).await;
    let v2 = at_version(&harness, "stuck", "v2").await;
    wait::gone(harness.ctx.jobs(), &first.name_any(), SOON).await;
    let second = harness.job_until("stuck", "one", "is there", |_| true).await;
    harness.held_up("stuck", "one", "PodWaiting").await;
    let tolerations = json!([{ "key": "maintenance", "operator": "Exists" }]);
    harness.edit("stuck", json!({ "tolerations": tolerations })).await;
    let is_another = |job: &k8s_openapi::api::batch::v1::Job| job.uid() != second.uid();
    let third = harness.job_until("stuck", "one", "is another", is_another).await;
    assert_eq!(third.name_any(), second.name_any());
    let at_once = DeleteParams::default().grace_period(0);
    harness.ctx.pods().delete("neighbour", &at_once).await.unwrap();
    assert_eq!(harness.complete("stuck").await, v2);
    assert_eq!(harness.made().await.len(), 3);
    assert_eq!(harness.runs("one", "upgrade").await, 1);
    harness.expect_complete_events(["one"]).await;
}

async fn a_plan_that_is_deleted_in_mid_run_takes_its_jobs_and_pods_along(on: Backend) {
    let harness = on.held(["one", "two"]).await;
    let _controller = harness.ctx.controller().start();
    let spec = json!({ "concurrency": 2, "cordon": true });
    harness.plan_with("gone", spec).await;
    harness.upgrading("gone", "one").await;
    harness.upgrading("gone", "two").await;
    harness.delete_plan("gone").await;
    wait::eventually("Jobs and pods are gone", SOON, async || {
        let jobs = harness.ctx.jobs_of("gone").await.len();
        let pods = harness.ctx.pods().list(&ListParams::default()).await;
        let pods = pods.map_err(|error| error.to_string())?.items.len();
        let left = format!("{jobs} Jobs, {pods} pods");
        (jobs + pods == 0).then_some(()).ok_or(left)
    })
    .await;
    for node in ["one", "two"] {
        let node = harness.node(node);
        let node = harness.ctx.node_until(&node, "is released", SOON, is_free).await;
        assert!(!node.labels().contains_key(&label("gone")));
    }
}
