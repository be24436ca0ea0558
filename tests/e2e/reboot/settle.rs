//! `settle.workloads`: evicted pods that fit only on the node that is upgraded.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;

use super::{PLAN, noted, notes, reboots, with};
use crate::e2e::harness::{RUNS, harness, is_serving};

#[tokio::test]
#[ignore = "real nodes, which need root and Debian: just e2e"]
async fn workloads_with_a_pod_for_each_node_are_whole_again_before_the_next_node_begins() {
    let harness = harness().await;
    let before = harness.a_pod_on_each_node().await;
    // The budget allows evictions now, so that only `settle` keeps the other pod.
    harness.allow_evictions().await;
    let waits_for_pods = with(
        reboots(),
        &json!({ "settle": { "workloads": true, "timeout": "4m" } }),
    );
    harness.make(PLAN, &notes(), &waits_for_pods).await;
    harness.is_done(PLAN, &[&harness.one, &harness.two]).await;
    for node in [&harness.one, &harness.two] {
        assert_eq!(node.boots(), 2);
        assert_eq!(node.lines(RUNS), [noted("v2", node, 1)]);
    }
    // No wait: a Plan is Complete only when the workloads are whole.
    let after = harness.web().await;
    assert_eq!(after.iter().filter(|pod| is_serving(pod)).count(), 2);
    let new = |pod: &Pod| before.iter().all(|old| old.uid() != pod.uid());
    assert!(after.iter().all(new), "both were evicted");
    // The second node was begun when the pod of the first was ready.
    let first_ready = after.iter().filter_map(ready_since).min().unwrap();
    let jobs = harness.ctx.jobs_of(PLAN).await;
    let last_begun = jobs
        .iter()
        .filter_map(ResourceExt::creation_timestamp)
        .max()
        .unwrap();
    assert!(last_begun.0 >= first_ready, "{last_begun:?} {first_ready:?}");
}

fn ready_since(pod: &Pod) -> Option<jiff::Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions
        .iter()
        .find(|it| it.type_ == "Ready" && it.status == "True")?;
    Some(ready.last_transition_time.as_ref()?.0)
}
