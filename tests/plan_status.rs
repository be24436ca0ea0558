//! What status says of a Plan, when it says so, and that it never says anything else in between: system-upgrade-controller's
//! e2e suite (suc.md 1.13) takes the first status that a condition has for the last one, and looks once a second.

use std::time::Duration;

use jiff::Timestamp;
use refit::api::Plan;
use serde_json::{Value, json};

use crate::support::audit::Requests;
use crate::support::channel::ChannelServer;
use crate::support::history::History;
use crate::support::plan::{plan, says, status};
use crate::support::wait::{self, SOON};
use crate::support::world::{World, done, find_condition};

/// How long the suite waits, at the least.
const AT_ONCE: Duration = Duration::from_secs(1);
/// S53's words.
const BOTH_FLAGS: &str = "spec.drain cannot specify both deleteEmptydirData and deleteLocalData";
/// S54's words.
const UNRESOLVABLE: &str = "cannot resolve plan: missing channel and version";

/// How long after the last write to a Plan by the test it was that the controller wrote its status, by the API server's
/// own clock: the test may be slow to look.
fn answered_within(requests: &Requests, name: &str) -> Duration {
    let requests = &requests.0;
    let asked = requests.iter().rposition(|it| {
        let about = it.name == name || it.verb == "create";
        it.resource == "plans"
            && it.user_agent.starts_with("refit-test/")
            && it.verb != "get"
            && about
            && it.code < 300
    });
    let asked = &requests[asked.unwrap_or_else(|| panic!("the test wrote no Plan {name}"))];
    let answer = requests
        .iter()
        .find(|it| it.resource == "plans/status" && it.name == name && it.at >= asked.at && it.code == 200);
    let answer = answer.unwrap_or_else(|| panic!("no status of Plan {name} was written after {asked:#?}"));
    Duration::try_from(answer.at.duration_since(asked.at)).unwrap()
}

/// Fails the test if the status of a Plan came later than a second after the test's last write to it.
async fn assert_at_once(world: &World, history: &History, name: &str) {
    let requests = world.requests().await;
    let took = answered_within(&requests, name).min(history.answered_within());
    assert!(
        took < AT_ONCE,
        "the status of Plan {name} came after {took:?}:\n{:#?}",
        requests.timeline()
    );
}

async fn raw_status(world: &World, name: &str) -> Value {
    let plan = world.kubectl(&["get", "plan", name, "-o", "json"]).await;
    serde_json::from_str::<Value>(&plan).unwrap()["status"].clone()
}

#[tokio::test]
async fn a_plan_with_a_version_has_its_last_status_at_once() {
    let world = World::new().await;
    let _controller = world.at_work().await;
    let history = History::of(&world, "at-once").await;
    world
        .plan(&plan(
            "at-once",
            "{concurrency: 1, version: test, upgrade: {image: i}}",
        ))
        .await;
    history
        .until("there is a status", SOON, |plan| plan.status.is_some())
        .await;
    assert_at_once(&world, &history, "at-once").await;

    // Another Plan that is through says that the controller has had time to change its mind.
    world
        .plan(&plan("later", "{version: test, upgrade: {image: i}}"))
        .await;
    world.plan_complete("later", SOON).await;
    assert_eq!(
        history.states().len(),
        2,
        "it was made, and its status was written once"
    );
    let last = history.states().pop().unwrap();
    assert_eq!(says(&last, "Validated"), "True/PlanIsValid/");
    assert_eq!(says(&last, "LatestResolved"), "True/Version/");
    assert_eq!(
        says(&last, "Complete"),
        "True/Complete/spec.nodeSelector is absent, which selects no node"
    );
    let status = status(&last);
    assert_eq!(status.latest_version.as_deref(), Some("test"));
    assert_eq!(status.latest_hash.map(|hash| hash.len()), Some(56));
    assert_eq!((status.applying, status.observed_generation), (None, Some(1)));
}

#[tokio::test]
async fn a_plan_with_nodes_says_what_happens_and_nothing_else() {
    let world = World::new().await;
    let nodes = world.puppets(["one"]).await;
    let node = nodes.name("one");
    let _controller = world.at_work().await;
    let history = History::of(&world, "roll-out").await;
    world
        .plan(&plan(
            "roll-out",
            "{concurrency: 1, version: v1, nodeSelector: {}, upgrade: {image: i}}",
        ))
        .await;
    history
        .until("there is a status", SOON, |plan| plan.status.is_some())
        .await;
    assert_at_once(&world, &history, "roll-out").await;
    nodes.succeed("roll-out", &node).await;
    world.plan_complete("roll-out", SOON).await;
    history
        .until("it is complete", SOON, |plan| {
            says(plan, "Complete").starts_with("True")
        })
        .await;

    assert_eq!(history.said("Complete"), ["False/SyncJob/", "True/Complete/"]);
    assert_eq!(history.said("Validated"), ["True/PlanIsValid/"]);
    assert_eq!(history.said("LatestResolved"), ["True/Version/"]);
    let mut applying: Vec<_> = history
        .states()
        .iter()
        .skip(1)
        .map(|plan| status(plan).applying)
        .collect();
    applying.dedup();
    assert_eq!(applying, [Some(vec![node.clone()]), None]);
    let hash = status(&history.states().pop().unwrap()).latest_hash;
    assert_eq!(done(&world.node(&node).await, "roll-out"), hash);
}

#[tokio::test]
async fn a_plus_in_a_version_becomes_a_minus() {
    let world = World::new().await;
    let _controller = world.at_work().await;
    world
        .plan(&plan("plus", "{version: v1.2.3+test+x, upgrade: {image: i}}"))
        .await;
    world
        .plan(&plan("minus", "{version: v1.2.3-test-x, upgrade: {image: i}}"))
        .await;
    let plus = status(&world.plan_condition("plus", "LatestResolved", "True", SOON).await);
    let minus = status(
        &world
            .plan_condition("minus", "LatestResolved", "True", SOON)
            .await,
    );
    assert_eq!(plus.latest_version.as_deref(), Some("v1.2.3-test-x"));
    assert_eq!(plus.latest_hash, minus.latest_hash, "and is hashed so");
}

#[tokio::test]
async fn a_version_wins_over_a_channel_which_is_not_asked() {
    let world = World::new().await;
    let channel = ChannelServer::start().await;
    channel.redirects("/stable", "/v9");
    let _controller = world.at_work().await;
    let spec = format!(
        "{{version: v1, channel: {:?}, upgrade: {{image: i}}}}",
        channel.url("/stable")
    );
    world.plan(&plan("both", &spec)).await;
    let both = world.plan_complete("both", SOON).await;
    assert_eq!(says(&both, "LatestResolved"), "True/Version/");
    assert_eq!(status(&both).latest_version.as_deref(), Some("v1"));
    assert_eq!(status(&both).channel, None);
    assert_eq!(channel.asked("/stable").len(), 0);

    // Without its version it is at the channel's.
    world
        .edit_plan("both", json!({ "spec": { "version": null } }))
        .await;
    let both = world
        .plan_until("both", "is at v9", SOON, |plan| {
            status(plan).latest_version.as_deref() == Some("v9")
        })
        .await;
    assert_eq!(says(&both, "LatestResolved"), "True/Channel/");
}

#[tokio::test]
async fn a_plan_without_version_and_channel_is_told_so_at_once() {
    let world = World::new().await;
    let _controller = world.at_work().await;
    let history = History::of(&world, "nothing").await;
    world
        .plan(&plan(
            "nothing",
            "{concurrency: 1, nodeSelector: {}, upgrade: {image: i}}",
        ))
        .await;
    history
        .until("there is a status", SOON, |plan| plan.status.is_some())
        .await;
    assert_at_once(&world, &history, "nothing").await;
    let raw = raw_status(&world, "nothing").await;
    assert!(
        raw.get("latestVersion").is_none() && raw.get("latestHash").is_none(),
        "{raw}"
    );
    let expected = [
        "Normal Validated: Plan is valid".to_owned(),
        format!("Warning ResolveFailed: {UNRESOLVABLE}"),
    ];
    world.told_exactly("nothing", SOON, &expected).await;
    assert_eq!(
        history.said("LatestResolved"),
        [format!("False/Error/{UNRESOLVABLE}")]
    );
    assert_eq!(
        history.said("Complete"),
        ["False/NotReady/plan is not valid and resolved"]
    );
    assert_eq!(history.said("Validated"), ["True/PlanIsValid/"]);

    // An empty version and an empty channel are none.
    world
        .edit_plan("nothing", json!({ "spec": { "version": "", "channel": "" } }))
        .await;
    let plan = world
        .plan_condition("nothing", "LatestResolved", "False", SOON)
        .await;
    assert_eq!(
        says(&plan, "LatestResolved"),
        format!("False/Error/{UNRESOLVABLE}")
    );
    world
        .edit_plan("nothing", json!({ "spec": { "version": "v1" } }))
        .await;
    let resolved = |plan: &Plan| says(plan, "LatestResolved").starts_with("True");
    history.until("it is resolved", SOON, resolved).await;
    assert_at_once(&world, &history, "nothing").await;
}

#[tokio::test]
async fn a_plan_with_a_channel_is_resolved_as_soon_as_the_channel_answers() {
    let world = World::new().await;
    let channel = ChannelServer::start().await;
    channel.redirects("/stable", "/local/v1.2.3+test");
    let _controller = world.at_work().await;
    let history = History::of(&world, "channel").await;
    let spec = format!(
        "{{concurrency: 1, channel: {:?}, upgrade: {{image: i}}}}",
        channel.url("/stable")
    );
    world.plan(&plan("channel", &spec)).await;
    let states = history
        .until("it is resolved", SOON, |plan| {
            says(plan, "LatestResolved").starts_with("True")
        })
        .await;
    assert_eq!(
        status(states.last().unwrap()).latest_version.as_deref(),
        Some("v1.2.3-test")
    );
    assert_at_once(&world, &history, "channel").await;
    let asked = channel.asked("/stable")[0].at;
    let resolved = history
        .since(|plan| says(plan, "LatestResolved").starts_with("True"))
        .unwrap();
    let took = resolved.duration_since(asked);
    assert!(
        took < AT_ONCE,
        "it was resolved {took:?} after the channel had been asked"
    );

    world
        .plan(&plan("later", "{version: test, upgrade: {image: i}}"))
        .await;
    world.plan_complete("later", SOON).await;
    assert_eq!(history.said("LatestResolved"), ["True/Channel/"]);
    assert_eq!(history.said("Validated"), ["True/PlanIsValid/"]);
    let mut complete = history.said("Complete");
    // Where the channel answers before the first status is written, there is nothing to wait for.
    complete.retain(|said| said != "False/NotReady/plan is not valid and resolved");
    assert_eq!(
        complete,
        ["True/Complete/spec.nodeSelector is absent, which selects no node"]
    );
    assert_eq!(channel.asked("/stable").len(), 1);
}

#[tokio::test]
async fn validated_flips_within_a_second_of_an_edit_in_both_directions() {
    let world = World::new().await;
    let _controller = world.at_work().await;
    let drain = "{concurrency: 1, version: v1, upgrade: {image: i}, drain: {deleteEmptydirData: true, deleteLocalData: true}}";
    let history = History::of(&world, "flips").await;
    world.plan(&plan("flips", drain)).await;
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
        let generation = world
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
        assert_at_once(&world, &history, "flips").await;
    }
    let expected = [
        format!("Warning ValidateFailed: Failed to validate plan: {BOTH_FLAGS}"),
        format!("Warning ValidateFailed: Failed to validate plan: {negative}"),
        "Normal Validated: Plan is valid".to_owned(),
    ];
    let told = world.told("flips").await;
    for line in &expected {
        assert!(told.contains(line), "{line} is not in {told:#?}");
    }
}

#[tokio::test]
async fn conditions_come_in_order_and_their_times_say_what_changed() {
    let world = World::new().await;
    let _controller = world.at_work().await;
    let two = "{version: v1, upgrade: {image: i}, secrets: [{name: a, path: a}, {name: b, path: b}]}";
    world.plan(&plan("times", two)).await;
    let first = world.plan_condition("times", "Validated", "False", SOON).await;
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
    wait::eventually("the clock shows another second", SOON, async || {
        let now = now();
        if now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string() == updated {
            Err(updated.clone())
        } else {
            Ok(())
        }
    })
    .await;

    // Another message, then another status.
    world
        .edit_plan(
            "times",
            json!({ "spec": { "secrets": [{ "name": "b", "path": "b" }] } }),
        )
        .await;
    let second = world
        .plan_until("times", "has another message", SOON, |plan| {
            !says(plan, "Validated").contains("\"a\"")
        })
        .await;
    let (updated_again, transitioned_again) = times(&second);
    assert!(updated_again > updated, "{updated_again} after {updated}");
    assert_eq!(transitioned_again, transitioned, "it is False still");
    world
        .edit_plan("times", json!({ "spec": { "secrets": null } }))
        .await;
    let third = world.plan_complete("times", SOON).await;
    let (updated_last, transitioned_last) = times(&third);
    assert!(transitioned_last > transitioned);
    assert_eq!(updated_last, transitioned_last);

    let raw = raw_status(&world, "times").await;
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

    // A status that says the same again is not written again.
    world
        .plan(&plan("later", "{version: test, upgrade: {image: i}}"))
        .await;
    world.plan_complete("later", SOON).await;
    assert_eq!(world.plans().get("times").await.unwrap().status, third.status);
}

#[expect(
    clippy::disallowed_methods,
    reason = "compared with times that a process on this machine writes"
)]
fn now() -> Timestamp {
    Timestamp::now()
}

#[tokio::test]
async fn a_plan_that_selects_nobody_is_complete_and_says_why() {
    let world = World::new().await;
    let nodes = world.puppets(["one"]).await;
    let node = nodes.name("one");
    let _controller = world.at_work().await;
    let label = "plan.upgrade.cattle.io/disabled-everywhere";
    world.label_node(&node, label, Some("disabled")).await;
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
        // The slots do not matter where there is nobody to give them to (F7).
        for (suffix, slots) in [
            ("", "concurrency: 1,"),
            ("-zero", "concurrency: 0,"),
            ("-no-slots", ""),
        ] {
            let name = format!("{name}{suffix}");
            world
                .label_node(
                    &node,
                    &format!("plan.upgrade.cattle.io/{name}"),
                    (why.is_empty()).then_some("disabled"),
                )
                .await;
            world
                .plan(&plan(
                    &name,
                    &format!("{{{selector} {slots} version: v1, upgrade: {{image: i}}}}"),
                ))
                .await;
            let plan = world.plan_complete(&name, SOON).await;
            assert_eq!(says(&plan, "Complete"), format!("True/Complete/{why}"), "{name}");
            let raw = raw_status(&world, &name).await;
            assert!(
                raw.get("applying").is_none(),
                "prepare containers count null as none (S68): {raw}"
            );
        }
    }
    assert_eq!(world.jobs_of("absent").await, []);
}

#[tokio::test]
async fn only_nodes_with_the_hostname_label_are_selected() {
    let world = World::new().await;
    let nodes = world.puppets(["with", "without"]).await;
    let (with, without) = (nodes.name("with"), nodes.name("without"));
    world.label_node(&without, "kubernetes.io/hostname", None).await;
    let _controller = world.at_work().await;
    world
        .plan(&plan(
            "hostnames",
            "{concurrency: 5, nodeSelector: {}, version: v1, upgrade: {image: i}}",
        ))
        .await;
    let started = world
        .plan_until("hostnames", "has started", SOON, |plan| {
            status(plan).applying.is_some()
        })
        .await;
    assert_eq!(status(&started).applying, Some(vec![with.clone()]));
    assert_eq!(status(&started).nodes.unwrap().selected, 1);
    nodes.succeed("hostnames", &with).await;
    world.plan_complete("hostnames", SOON).await;

    // The label comes later, and so does the node.
    world
        .label_node(&without, "kubernetes.io/hostname", Some("short"))
        .await;
    let started = world
        .plan_until("hostnames", "has started again", SOON, |plan| {
            status(plan).applying.is_some()
        })
        .await;
    assert_eq!(
        status(&started).applying,
        Some(vec!["short".to_owned()]),
        "nodes are called by their hostname label"
    );
    nodes.succeed("hostnames", &without).await;
    let complete = world.plan_complete("hostnames", SOON).await;
    assert_eq!(status(&complete).progress.as_deref(), Some("2/2"));
}

#[tokio::test]
async fn concurrency_limits_how_many_nodes_apply() {
    let world = World::new().await;
    let nodes = world.puppets(["a", "b", "c"]).await;
    let names = ["a", "b", "c"].map(|name| nodes.name(name));
    let _controller = world.at_work().await;
    world
        .plan(&plan(
            "slots",
            "{concurrency: 0, nodeSelector: {}, version: v1, upgrade: {image: i}}",
        ))
        .await;
    let zero = world.plan_condition("slots", "Complete", "False", SOON).await;
    let why = "spec.concurrency is 0 or absent, so that no node is started";
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

    world
        .edit_plan("slots", json!({ "spec": { "concurrency": 2 } }))
        .await;
    let applying = async |count: usize| {
        let what = format!("applies {count} nodes");
        let plan = world
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
        Some("2 nodes at a time, and all are taken")
    );

    // Fewer slots than nodes under way: nothing is taken from them, and nothing new begins.
    world
        .edit_plan("slots", json!({ "spec": { "concurrency": 1 } }))
        .await;
    nodes.succeed("slots", &sorted[0]).await;
    let one = applying(1).await;
    assert_eq!(one.applying, Some(vec![sorted[1].clone()]));
    world
        .edit_plan("slots", json!({ "spec": { "concurrency": 100 } }))
        .await;
    applying(2).await;
    nodes.succeed("slots", &sorted[1]).await;
    nodes.succeed("slots", &third).await;
    let complete = world.plan_complete("slots", SOON).await;
    assert_eq!(status(&complete).progress.as_deref(), Some("3/3"));
    assert_eq!(world.controller_requests().await.most_applying("slots"), 2);
    assert_eq!(world.requests().await.most_jobs_at_once("slots"), 2);
}

#[tokio::test]
async fn rancher_and_prepare_containers_find_what_they_read() {
    let world = World::new().await;
    let nodes = world.puppets(["one"]).await;
    let node = nodes.name("one");
    let _controller = world.at_work().await;
    world
        .plan(&plan(
            "read",
            "{concurrency: 1, nodeSelector: {}, version: v1.2.3+k3s1, upgrade: {image: i}}",
        ))
        .await;
    world
        .plan_until("read", "has started", SOON, |plan| {
            status(plan).applying.is_some()
        })
        .await;
    let during = raw_status(&world, "read").await;
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

    // `kubectl wait` is at it before the Plan is complete, and returns when it is (S71).
    let wait = ["wait", "--for=condition=Complete", "plan/read", "--timeout=60s"];
    let ((), said) = tokio::join!(nodes.succeed("read", &node), world.kubectl(&wait));
    assert_eq!(said.trim(), "plan.upgrade.cattle.io/read condition met");
    let after = raw_status(&world, "read").await;
    assert_eq!(complete(&after)["status"], "True");
    assert!(after.get("applying").is_none(), "{after}");
    assert_eq!(
        done(&world.node(&node).await, "read").as_deref(),
        after["latestHash"].as_str()
    );
}

#[tokio::test]
async fn kubectl_shows_the_columns() {
    let world = World::new().await;
    let _controller = world.at_work().await;
    let columns = "{version: v1, concurrency: 1, upgrade: {image: example.com/i}, postCompleteDelay: -1s}";
    world.plan(&plan("columns", columns)).await;
    world.plan_condition("columns", "Validated", "False", SOON).await;
    let table = world.kubectl(&["get", "plans", "-o", "wide"]).await;
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
