//! The status of a Plan as other programs read it: Rancher, the `prepare` containers of K3s and RKE2, and kubectl.

use serde_json::{Value, json};

use crate::testenv::context::{TestContext, done};
use crate::testenv::plan::{plan, status};
use crate::testenv::wait::SOON;

scenarios! {
    real {
        rancher_and_prepare_containers_find_what_they_read,
        kubectl_shows_the_columns,
    }
}

async fn raw_status(ctx: &TestContext, name: &str) -> Value {
    let path = format!(
        "/apis/upgrade.cattle.io/v1/namespaces/{}/plans/{name}",
        ctx.namespace()
    );
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    ctx.client.request::<Value>(request).await.unwrap()["status"].clone()
}

async fn rancher_and_prepare_containers_find_what_they_read() {
    let ctx = TestContext::new().await;
    let nodes = ctx.manual_kubelet(["one"]).await;
    let node = nodes.name("one");
    let _controller = ctx.start_and_warm_up().await;
    ctx.plan(&plan(
        "read",
        "{concurrency: 1, nodeSelector: {}, version: v1.2.3+k3s1, upgrade: {image: i}}",
    ))
    .await;
    ctx.plan_until("read", "has started", SOON, |plan| {
        status(plan).applying.is_some()
    })
    .await;
    let during = raw_status(&ctx, "read").await;
    assert_eq!(during["applying"], json!([node]));
    assert_eq!(during["latestVersion"], "v1.2.3-k3s1");
    let complete = |status: &Value| {
        let conditions = status["conditions"].as_array().unwrap();
        conditions
            .iter()
            .find(|it| it["type"] == "Complete")
            .unwrap()
            .clone()
    };
    assert_eq!(complete(&during)["status"], "False");
    assert_eq!(complete(&during)["reason"], "SyncJob");
    assert!(complete(&during).get("message").is_none());

    // `kubectl wait` starts before the Plan is complete, and returns when it is (S71).
    let wait = ["wait", "--for=condition=Complete", "plan/read", "--timeout=180s"];
    let ((), said) = tokio::join!(nodes.succeed("read", &node), ctx.kubectl(&wait));
    assert_eq!(said.trim(), "plan.upgrade.cattle.io/read condition met");
    let after = raw_status(&ctx, "read").await;
    assert_eq!(complete(&after)["status"], "True");
    assert!(after.get("applying").is_none(), "{after}");
    assert_eq!(
        done(&ctx.node(&node).await, "read").as_deref(),
        after["latestHash"].as_str()
    );
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
