//! The status of a Plan over time, and that no wrong status appears in between: system-upgrade-controller's e2e suite
//! polls once a second, and takes the first status of a condition for the final one.

use jiff::{SignedDuration, Timestamp};
use refit_api::Plan;
use serde_json::{Value, json};

use crate::scenario::Backend;
use crate::testenv::context::{TestContext, done, find_condition};
use crate::testenv::history::History;
use crate::testenv::plan::{plan, says, status};
use crate::testenv::wait::{self, SOON};

scenarios! {
    in_process {
        a_plan_with_a_version_has_its_last_status_at_once,
        validated_flips_within_a_second_of_an_edit_in_both_directions,
        concurrency_limits_how_many_nodes_apply,
        conditions_come_in_order_and_their_times_say_what_changed,
        a_plan_that_selects_no_node_is_complete_and_says_why,
    }
    real {
        rancher_and_prepare_containers_find_what_they_read,
        kubectl_shows_the_columns,
    }
}

/// The shortest time that the suite waits.
const AT_ONCE: SignedDuration = SignedDuration::from_secs(1);
/// S53's words.
const BOTH_FLAGS: &str = "spec.drain cannot specify both deleteEmptydirData and deleteLocalData";

/// Fails the test if the status of a Plan came later than a second after the test's last write to it, in virtual time.
async fn assert_at_once(on: Backend, ctx: &TestContext, name: &str) {
    if on == Backend::Real {
        return;
    }
    let requests = ctx.requests().await.0;
    let asked = requests.iter().rposition(|it| {
        it.resource == "plans"
            && it.name == name
            && it.user_agent.starts_with("refit-test/")
            && it.verb != "get"
    });
    let asked = asked.unwrap_or_else(|| panic!("the test wrote no Plan {name}"));
    let answer = requests[asked..]
        .iter()
        .find(|it| it.resource == "plans/status" && it.name == name && it.code == 200);
    let answer = answer.unwrap_or_else(|| panic!("no status of Plan {name} was written after it"));
    let took = answer.at.duration_since(requests[asked].at);
    assert!(took < AT_ONCE, "{took:#}: {requests:#?}");
}

async fn raw_status(ctx: &TestContext, name: &str) -> Value {
    let path = format!(
        "/apis/upgrade.cattle.io/v1/namespaces/{}/plans/{name}",
        ctx.namespace()
    );
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    ctx.client.request::<Value>(request).await.unwrap()["status"].clone()
}

async fn a_plan_with_a_version_has_its_last_status_at_once(on: Backend) {
    let ctx = on.context().await;
    let _controller = ctx.start_and_warm_up().await;
    let history = History::of(&ctx, "at-once").await;
    ctx.plan(&plan(
        "at-once",
        "{concurrency: 1, version: test, upgrade: {image: i}}",
    ))
    .await;
    let states = history
        .until("there is a status", SOON, |plan| plan.status.is_some())
        .await;
    assert_at_once(on, &ctx, "at-once").await;

    // A later Plan that is complete shows that the controller has had time for another status.
    ctx.plan(&plan("later", "{version: test, upgrade: {image: i}}"))
        .await;
    ctx.plan_complete("later", SOON).await;
    let last = states.last().unwrap();
    for state in history.states().into_iter().filter(|plan| plan.status.is_some()) {
        assert_eq!(state.status, last.status, "its first status is its last");
    }
    if on == Backend::InProcess {
        assert_eq!(
            history.states().len(),
            2,
            "it was made, and its status was written once"
        );
    }
    assert_eq!(says(last, "Validated"), "True/PlanIsValid/");
    assert_eq!(says(last, "LatestResolved"), "True/Version/");
    assert_eq!(
        says(last, "Complete"),
        "True/Complete/spec.nodeSelector is absent, which selects no node"
    );
    let status = status(last);
    assert_eq!(status.latest_version.as_deref(), Some("test"));
    assert_eq!(status.latest_hash.map(|hash| hash.len()), Some(56));
    assert_eq!((status.applying, status.observed_generation), (None, Some(1)));
}

async fn validated_flips_within_a_second_of_an_edit_in_both_directions(on: Backend) {
    let ctx = on.context().await;
    let _controller = ctx.start_and_warm_up().await;
    let drain = "{concurrency: 1, version: v1, upgrade: {image: i}, drain: {deleteEmptydirData: true, deleteLocalData: true}}";
    let history = History::of(&ctx, "flips").await;
    ctx.plan(&plan("flips", drain)).await;
    let valid = "True/PlanIsValid/".to_owned();
    let invalid = |why: &str| format!("False/Error/{why}");
    let negative = "spec.postCompleteDelay is negative";
    let edits = [
        (json!({ "concurrency": 2 }), invalid(BOTH_FLAGS)),
        (json!({ "drain": { "deleteLocalData": null } }), valid.clone()),
        (json!({ "postCompleteDelay": "-30s" }), invalid(negative)),
        (json!({ "postCompleteDelay": "1s" }), valid.clone()),
        (
            json!({ "drain": { "deleteLocalData": false } }),
            invalid(BOTH_FLAGS),
        ),
        (json!({ "drain": null }), valid.clone()),
    ];
    for (edit, expected) in edits {
        let generation = ctx
            .edit_plan("flips", json!({ "spec": edit }))
            .await
            .metadata
            .generation;
        let observed = |plan: &Plan| status(plan).observed_generation == generation;
        let states = history.until("it has been looked at", SOON, observed).await;
        assert_eq!(
            says(states.last().unwrap(), "Validated"),
            expected,
            "after {edit}"
        );
        assert_at_once(on, &ctx, "flips").await;
    }
    let expected = [
        format!("Warning ValidateFailed: Failed to validate plan: {BOTH_FLAGS}"),
        format!("Warning ValidateFailed: Failed to validate plan: {negative}"),
        "Normal Validated: Plan is valid".to_owned(),
    ];
    let events = ctx.event_lines("flips").await;
    for line in &expected {
        assert!(events.contains(line), "{line} is not in {events:#?}");
    }
}

async fn conditions_come_in_order_and_their_times_say_what_changed(on: Backend) {
    let ctx = on.context().await;
    let _controller = ctx.start_and_warm_up().await;
    let two = "{version: v1, upgrade: {image: i}, secrets: [{name: a, path: a}, {name: b, path: b}]}";
    ctx.plan(&plan("times", two)).await;
    let first = ctx.plan_condition("times", "Validated", "False", SOON).await;
    assert_eq!(
        says(&first, "Validated"),
        r#"False/Error/secrets "a" not found, secrets "b" not found"#
    );
    let times = |plan: &Plan| {
        let it = find_condition(plan, "Validated").unwrap().clone();
        (it.last_update_time.unwrap(), it.last_transition_time.unwrap())
    };
    let (updated, transitioned) = times(&first);
    assert_eq!(updated, transitioned);
    wait::until(
        "the clock shows another second",
        async || ctx.now(),
        |now| now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string() != updated,
    )
    .await;

    // Another message, then another status.
    ctx.edit_plan(
        "times",
        json!({ "spec": { "secrets": [{ "name": "b", "path": "b" }] } }),
    )
    .await;
    let second = ctx
        .plan_until("times", "has another message", SOON, |plan| {
            !says(plan, "Validated").contains("\"a\"")
        })
        .await;
    let (updated_again, transitioned_again) = times(&second);
    assert!(updated_again > updated, "{updated_again} after {updated}");
    assert_eq!(transitioned_again, transitioned, "it is False still");
    ctx.edit_plan("times", json!({ "spec": { "secrets": null } }))
        .await;
    let third = ctx.plan_complete("times", SOON).await;
    let (updated_last, transitioned_last) = times(&third);
    assert!(transitioned_last > transitioned);
    assert_eq!(updated_last, transitioned_last);

    let raw = raw_status(&ctx, "times").await;
    let conditions = raw["conditions"].as_array().unwrap();
    let types: Vec<_> = conditions.iter().map(|it| it["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["Complete", "Validated", "LatestResolved"]);
    for condition in conditions {
        for field in ["lastUpdateTime", "lastTransitionTime"] {
            let time = condition[field].as_str().unwrap();
            assert_eq!(time.len(), "2006-01-02T15:04:05Z".len(), "{time}");
            time.parse::<Timestamp>().unwrap();
        }
    }

    // An unchanged status is not written again.
    ctx.plan(&plan("later", "{version: test, upgrade: {image: i}}"))
        .await;
    ctx.plan_complete("later", SOON).await;
    assert_eq!(ctx.plans().get("times").await.unwrap().status, third.status);
}

async fn a_plan_that_selects_no_node_is_complete_and_says_why(on: Backend) {
    let ctx = on.context().await;
    let nodes = ctx.manual_kubelet(["one"]).await;
    let node = nodes.name("one");
    let _controller = ctx.start_and_warm_up().await;
    let label = "plan.upgrade.cattle.io/disabled-everywhere";
    ctx.label_node(&node, label, Some("disabled")).await;
    let cases = [
        ("absent", "", "spec.nodeSelector is absent, which selects no node"),
        (
            "nowhere",
            "nodeSelector: {matchLabels: {no: such}},",
            "spec.nodeSelector matches no node",
        ),
        ("disabled-everywhere", "nodeSelector: {},", ""),
    ];
    for (name, selector, why) in cases {
        // Slots do not matter if no node is selected (F7).
        for (suffix, slots) in [
            ("", "concurrency: 1,"),
            ("-zero", "concurrency: 0,"),
            ("-no-slots", ""),
        ] {
            let name = format!("{name}{suffix}");
            ctx.label_node(
                &node,
                &format!("plan.upgrade.cattle.io/{name}"),
                (why.is_empty()).then_some("disabled"),
            )
            .await;
            ctx.plan(&plan(
                &name,
                &format!("{{{selector} {slots} version: v1, upgrade: {{image: i}}}}"),
            ))
            .await;
            let plan = ctx.plan_complete(&name, SOON).await;
            assert_eq!(says(&plan, "Complete"), format!("True/Complete/{why}"), "{name}");
            let raw = raw_status(&ctx, &name).await;
            assert!(
                raw.get("applying").is_none(),
                "prepare containers count null as none (S68): {raw}"
            );
        }
    }
    assert_eq!(ctx.jobs_of("absent").await, []);
}

async fn concurrency_limits_how_many_nodes_apply(on: Backend) {
    let ctx = on.context().await;
    let nodes = ctx.manual_kubelet(["a", "b", "c"]).await;
    let names = ["a", "b", "c"].map(|name| nodes.name(name));
    let _controller = ctx.start_and_warm_up().await;
    ctx.plan(&plan(
        "slots",
        "{concurrency: 0, nodeSelector: {}, version: v1, upgrade: {image: i}}",
    ))
    .await;
    let zero = ctx.plan_condition("slots", "Complete", "False", SOON).await;
    let why = "spec.concurrency is 0 or absent, so no node starts; set it, or spec.maxConcurrent";
    assert_eq!(says(&zero, "Complete"), format!("False/ConcurrencyZero/{why}"));
    assert_eq!(status(&zero).applying, None);
    let waiting = status(&zero).active.unwrap();
    assert_eq!(
        waiting
            .iter()
            .map(|node| node.name.as_str())
            .collect::<Vec<_>>()
            .len(),
        3
    );
    assert!(
        waiting
            .iter()
            .all(|node| node.reason.as_deref() == Some("ConcurrencyZero")),
        "{waiting:?}"
    );

    ctx.edit_plan("slots", json!({ "spec": { "concurrency": 2 } }))
        .await;
    let applying = async |count: usize| {
        let what = format!("applies {count} nodes");
        let plan = ctx
            .plan_until("slots", &what, SOON, |plan| {
                status(plan).applying.unwrap_or_default().len() == count
            })
            .await;
        status(&plan)
    };
    let two = applying(2).await;
    let mut sorted = two.applying.clone().unwrap();
    sorted.sort();
    assert_eq!(
        two.applying.as_ref(),
        Some(&sorted),
        "in the order of the node names (S50)"
    );
    let third = names.iter().find(|node| !sorted.contains(node)).unwrap().clone();
    let waits = two
        .active
        .unwrap()
        .into_iter()
        .find(|node| node.name == third)
        .unwrap();
    assert_eq!(waits.reason.as_deref(), Some("NoSlot"));
    assert_eq!(
        waits.message.as_deref(),
        Some("all 2 slots of the Plan are in use")
    );

    // Fewer slots than nodes in progress: these continue, and no other starts.
    ctx.edit_plan("slots", json!({ "spec": { "concurrency": 1 } }))
        .await;
    nodes.succeed("slots", &sorted[0]).await;
    let one = applying(1).await;
    assert_eq!(one.applying, Some(vec![sorted[1].clone()]));
    ctx.edit_plan("slots", json!({ "spec": { "concurrency": 100 } }))
        .await;
    applying(2).await;
    nodes.succeed("slots", &sorted[1]).await;
    nodes.succeed("slots", &third).await;
    let complete = ctx.plan_complete("slots", SOON).await;
    assert_eq!(status(&complete).progress.as_deref(), Some("3/3"));
    assert_eq!(ctx.controller_requests().await.most_applying("slots"), 2);
    assert_eq!(ctx.requests().await.most_jobs_at_once("slots"), 2);
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
            "NAME", "IMAGE", "CHANNEL", "VERSION", "COMPLETE", "MESSAGE", "APPLYING", "PROGRESS"
        ]
    );
    assert!(
        table.contains("plan is not valid and resolved"),
        "the first message is printed: {table}"
    );
    assert_eq!(lines[1][..4], ["columns", "example.com/i", "v1", "False"]);
}
