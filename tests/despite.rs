//! `refit start --despite` as a program on a real control plane.

use kube::api::Api;
use refit_api::Plan;
use serde_json::{Value, json};

use crate::harness::Harness;
use crate::steering::UserCli;

#[tokio::test]
async fn a_node_starts_in_spite_of_limits_and_history_says_who_and_why() {
    let harness = Harness::held(["one", "two"]).await;
    let _controller = harness.ctx.start_and_warm_up().await;
    let blackout = json!({ "start": "2020-01-01T00:00:00Z", "end": "2098-01-01T00:00:00Z" });
    let limits = json!({ "notBefore": "2099-01-01T00:00:00Z", "blackouts": [blackout] });
    harness.plan_with("p", limits).await;
    for node in ["one", "two"] {
        harness.held_up("p", node, "NotBefore").await;
    }
    let [one, two] = ["one", "two"].map(|node| harness.node(node));
    let admin = UserCli::admin(&harness);
    let viewer = UserCli::viewer(&harness).await;

    let refused = admin
        .refit("start p --despite quorum --reason disk")
        .await
        .ends(2);
    refused.says("is none of window, soak, checks, blackout");
    admin
        .refit("start p --despite window")
        .await
        .ends(2)
        .says("--reason");
    let refused = viewer
        .refit("start p --despite window --reason disk")
        .await
        .ends(1);
    refused.says("forbidden");
    let dry = format!("start p {two} --despite window,blackout --reason disk --dry-run=server");
    admin.refit(&dry).await.ends(0).says("(server dry run)");
    // One limit less is not enough.
    let one_limit = format!("start p {two} --despite window --reason disk");
    admin.refit(&one_limit).await.ends(0).says("in spite of window");
    harness.held_up("p", "two", "Blackout").await;
    let both = format!("start p {two} --despite window,blackout --reason disk");
    admin
        .refit(&both)
        .await
        .ends(0)
        .says(&format!("starts on {two} in spite of window, blackout"));
    harness.upgrading("p", "two").await;
    harness.held_up("p", "one", "NotBefore").await;
    admin.refit(&both).await.ends(1).says("it has started");
    viewer
        .refit("status p")
        .await
        .ends(0)
        .says(&format!("starts in spite of: window, blackout for {two}, by "));
    viewer
        .refit(&format!("explain p {one}"))
        .await
        .ends(1)
        .says("NotBefore");
    viewer
        .refit(&format!("explain p {two}"))
        .await
        .ends(0)
        .says("refit.rs/despite: window, blackout for ");
    // An event comes before the status that it is about.
    let events = harness.event_lines("StartedDespite").await;
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(events.iter().all(|line| line.contains(": disk")), "{events:?}");

    harness.release("two").await;
    harness.release("one").await;
    let rest = "start p --despite window,blackout --reason disk --wait --timeout 2m";
    admin
        .refit(rest)
        .await
        .ends(0)
        .says("in spite of window, blackout");
    let plans = Api::<Plan>::namespaced(harness.ctx.client.clone(), harness.ctx.namespace());
    let status = plans.get("p").await.unwrap().status.unwrap();
    let despite = status.despite.unwrap();
    assert!(despite.iter().all(|it| it.ended.is_some()), "{despite:?}");
    let report = viewer.refit("report p -o json").await.ends(0);
    let report: Value = serde_json::from_str(&report.out).unwrap();
    assert!(
        report
            .to_string()
            .contains(&format!("window, blackout for {two}, by ")),
        "{report:#}"
    );
    admin.refit(rest).await.ends(1).says("is complete");
}
