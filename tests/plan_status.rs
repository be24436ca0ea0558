//! The status of a Plan as other programs read it: Rancher, the `prepare` containers of K3s and RKE2, and kubectl.

use crate::testenv::context::TestContext;
use crate::testenv::plan::plan;
use crate::testenv::wait::SOON;

scenarios! {
    real {
        kubectl_shows_the_columns,
    }
}

async fn kubectl_shows_the_columns() {
    let ctx = TestContext::new().await;
    let _controller = ctx.start_and_warm_up().await;
    let columns = "{version: v1, concurrency: 1, upgrade: {image: example.com/i}, postCompleteDelay: -1s}";
    ctx.plan(&plan("columns", columns)).await;
    ctx.plan_condition("columns", "Validated", "False", SOON).await;
    let table = ctx.kubectl(&["get", "plans", "-o", "wide"]).await;
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines[0],
        [
            "NAME", "IMAGE", "CHANNEL", "VERSION", "COMPLETE", "PROGRESS", "MESSAGE", "APPLYING", "AGE"
        ]
    );
    assert!(
        table.contains("spec.postCompleteDelay"),
        "what holds the Plan is printed: {table}"
    );
    assert_eq!(lines[1][..4], ["columns", "example.com/i", "v1", "False"]);
    let table = ctx.kubectl(&["get", "plans"]).await;
    let head: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(
        head,
        ["NAME", "VERSION", "COMPLETE", "PROGRESS", "MESSAGE", "AGE"]
    );
    let longest = table.lines().map(str::len).max().unwrap();
    assert!(longest <= 160, "{table}");
}
