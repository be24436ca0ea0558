//! Another definition takes the place of ours: our fields are pruned from what is read, and any write would make that last.

use kube::ResourceExt as _;
use refit_api::{Plan, crd};
use refit_base::names::shortened;

use super::{foreign, put, serve};
use crate::testenv::context::TestContext;
use crate::testenv::plan::{plan, says, status};
use crate::testenv::wait::{self, SOON};

const SUSPENDED: &str = "False/Suspended/spec.suspend is true";
const NOTE: &str = "refit.rs/fields";

/// Whether the controller has noted which of our fields the Plan has.
fn noted(plan: &Plan) -> bool {
    plan.annotations().contains_key(NOTE)
}

/// Waits until events have said of a Plan, so many times, that the definition lacks fields. That an API server is slow
/// to serve a definition that has them is another text.
async fn expect_outdated_event(ctx: &TestContext, name: &str, times: usize) {
    let missing = shortened(&crd::missing_fields(&foreign()), 8);
    let text = format!("Warning SchemaOutdated: the served CustomResourceDefinition lacks {missing}");
    wait::until(
        &format!("{name} is reported {times} times"),
        async || ctx.event_lines(name).await,
        |lines| lines.iter().filter(|lines| **lines == text).count() == times,
    )
    .await;
}

/// Puts another definition in the place of ours, and returns once the controller knows.
async fn replaced(ctx: &TestContext, name: &str, times: usize) {
    serve(ctx, &foreign()).await;
    expect_outdated_event(ctx, name, times).await;
}

#[tokio::test]
async fn suspended_plans_stay_suspended_however_often_the_definition_changes() {
    let ctx = TestContext::alone().await;
    let _nodes = ctx.manual_kubelet(["a"]).await;
    let controller = ctx.start_and_warm_up().await;
    let spec = "{version: v1, concurrency: 1, suspend: true, nodeSelector: {}, upgrade: {image: i}}";
    ctx.plan(&plan("suspended", spec)).await;
    ctx.plan_until("suspended", "is noted", SOON, noted).await;
    let mut more = Vec::new();
    for (turn, name) in (1..).zip(["n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"]) {
        replaced(&ctx, "suspended", turn).await;
        // Something is to be written as soon as it may be.
        more.push(ctx.manual_kubelet([name]).await);
        put(&ctx, &crd::plans()).await;
        let counted = i64::try_from(turn).unwrap() + 1;
        let all = |plan: &Plan| status(plan).nodes.is_some_and(|nodes| nodes.selected == counted);
        let plan = ctx
            .plan_until("suspended", "counts one node more", SOON, all)
            .await;
        assert_eq!(plan.spec.suspend, Some(true), "turn {turn}");
        assert_eq!(says(&plan, "Complete"), SUSPENDED, "turn {turn}");
    }
    assert_eq!(ctx.requests().await.jobs_created(), []);
    assert!(controller.is_running());
}
