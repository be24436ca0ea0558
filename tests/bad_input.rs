//! User mistakes: each has a clear status, starts nothing, blocks no other Plan, and loses nothing when it is
//! corrected.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use serde_json::json;

use crate::testenv::context::{TestContext, create};
use crate::testenv::faults::Rule;
use crate::testenv::plan::{plan, says};
use crate::testenv::wait::SOON;

const NOT_READY: &str = "False/NotReady/plan is not valid and resolved";

fn invalid(why: &str) -> String {
    format!("False/Error/{why}")
}

#[tokio::test]
async fn a_secret_without_permission_to_read_it_is_reported() {
    let ctx = TestContext::new().await;
    let faults = ctx.faults(5).await;
    let controller = ctx.controller().through(&faults).start();
    ctx.wait_until_working(&controller).await;
    create::<Secret>(&ctx.secrets(), json!({ "metadata": { "name": "locked" } })).await;
    faults.add(Rule::on("get", "secrets").answer(403));
    ctx.plan(&plan(
        "curious",
        "{version: v1, upgrade: {image: i}, secrets: [{name: locked, path: a}]}",
    ))
    .await;
    let plan = ctx.plan_condition("curious", "Validated", "False", SOON).await;
    assert_eq!(
        says(&plan, "Validated"),
        invalid(r#"secrets "locked" cannot be read: forbidden by a rule of the test"#)
    );
    assert_eq!(says(&plan, "Complete"), NOT_READY);
    faults.clear_rules();
    ctx.plan_complete("curious", Duration::from_secs(60)).await;
}

/// Whoever may write a Secret can set such a time in `managedFields`.
#[tokio::test]
async fn a_secret_with_a_time_that_cannot_be_read_is_mounted_all_the_same() {
    let ctx = TestContext::new().await;
    let _controller = ctx.start_and_warm_up().await;
    create::<Secret>(
        &ctx.secrets(),
        json!({ "metadata": { "name": "late" }, "type": "Opaque" }),
    )
    .await;
    ctx.write_late_time(&ctx.secrets(), "late").await;
    ctx.secrets().get("late").await.unwrap_err();
    ctx.plan(&plan(
        "mounting",
        "{version: v1, upgrade: {image: i}, secrets: [{name: late, path: a}]}",
    ))
    .await;
    ctx.plan_complete("mounting", SOON).await;
}

#[tokio::test]
async fn plans_of_other_namespaces_are_ignored() {
    let ctx = TestContext::new().await;
    let elsewhere = ctx.beside().await;
    let nodes = ctx.manual_kubelet(["one"]).await;
    let spec = "{version: v1, concurrency: 1, nodeSelector: {}, upgrade: {image: i}}";
    elsewhere.plan(&plan("theirs", spec)).await;
    let _controller = ctx.start_and_warm_up().await;
    ctx.plan(&plan("ours", spec)).await;
    nodes.succeed("ours", &nodes.name("one")).await;
    ctx.plan_complete("ours", SOON).await;
    assert_eq!(elsewhere.plans().get("theirs").await.unwrap().status, None);
    let asked = ctx.controller_requests().await;
    let strange: Vec<_> = asked
        .0
        .iter()
        .filter(|it| it.namespace == elsewhere.namespace())
        .collect();
    assert!(strange.is_empty(), "{strange:#?}");
    assert!(asked.forbidden().is_empty(), "{:#?}", asked.forbidden());
}
