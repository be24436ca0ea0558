//! Notifications and silences: the real binary on a real control plane, with receivers on loopback. No Alertmanager
//! runs here; a stub has its API of silences.

mod receiver;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use kube::api::{Api, ListParams, Patch, PatchParams};
use refit_api::Notified;
use serde_json::{Value, json};

use crate::harness::{Harness, held};
use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::create;
use crate::testenv::wait;
use receiver::{Answer, Received, Receiver};

const TOKEN: &str = "t0ken-of-a-receiver";

async fn secret(ctx: &TestContext, name: &str, data: Value) {
    let secret = json!({ "metadata": { "name": name }, "stringData": data });
    create::<Secret>(&ctx.secrets(), secret).await;
}

/// The `ConfigMap` `refit`.
async fn configure(ctx: &TestContext, data: Value) {
    let map =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "refit" }, "data": data });
    let api = Api::<ConfigMap>::namespaced(ctx.client.clone(), ctx.namespace());
    let patch = Patch::Apply(&map);
    api.patch("refit", &PatchParams::apply("test").force(), &patch)
        .await
        .unwrap();
}

async fn retry(harness: &Harness, node: &str) {
    harness
        .ctx
        .annotate_node(&harness.node(node), "refit.rs/retry", Some("p"))
        .await;
}

/// How many notifications about the Plan are stored as sent.
async fn stored(ctx: &TestContext) -> usize {
    let plan = ctx.plans().get("p").await.unwrap();
    let annotations = plan.metadata.annotations.unwrap_or_default();
    let text = annotations.get("refit.rs/notified").cloned().unwrap_or_default();
    Notified::parse(&text).iter().count()
}

/// What was accepted, by kind: the ids.
fn kinds(
    received: &[Received],
    kind_and_id: impl Fn(&Received) -> (String, String),
) -> BTreeMap<String, Vec<String>> {
    let mut kinds = BTreeMap::<String, Vec<String>>::new();
    for one in received {
        let (kind, id) = kind_and_id(one);
        kinds.entry(kind).or_default().push(id);
    }
    kinds
}

fn structured(one: &Received) -> (String, String) {
    assert_eq!(
        one.header("content-type"),
        "application/cloudevents+json; charset=utf-8"
    );
    let event = one.json();
    assert_eq!(
        (&event["specversion"], &event["data"]["plan"]),
        (&json!("1.0"), &json!("p"))
    );
    let text = |name: &str| event[name].as_str().unwrap().to_owned();
    (text("type"), text("id"))
}

fn binary(one: &Received) -> (String, String) {
    assert_eq!(one.header("authorization"), format!("Bearer {TOKEN}"));
    assert_eq!(one.header("ce-specversion"), "1.0");
    assert_eq!(one.json()["plan"], "p");
    (one.header("ce-type").to_owned(), one.header("ce-id").to_owned())
}

/// `kind id`, as the template of the test has it.
fn template(one: &Received) -> (String, String) {
    let (kind, id) = one.body.split_once(' ').unwrap();
    (kind.to_owned(), id.to_owned())
}

#[tokio::test]
async fn each_kind_is_sent_once_in_each_format_and_a_successor_sends_none_again() {
    let harness = Harness::new(["one", "two"]).await;
    let (ctx, receiver) = (&harness.ctx, Receiver::start().await);
    for path in ["structured", "slack", "template", "stalled"] {
        secret(ctx, path, json!({ "url": receiver.url(&format!("/{path}")) })).await;
    }
    secret(
        ctx,
        "binary",
        json!({ "url": receiver.url("/binary"), "token": TOKEN }),
    )
    .await;
    let notifications = "
- {name: structured, secret: structured, format: cloudevents, plans: [p]}
- {name: binary, secret: binary, format: cloudevents, mode: binary, plans: [p]}
- {name: slack, secret: slack, format: slack, cluster: prod, plans: [p]}
- {name: template, secret: template, format: template, contentType: text/plain, body: '{{ type }} {{ id }}', plans: [p]}
";
    configure(ctx, json!({ "notifications": notifications })).await;
    let setup = || ctx.controller().env("SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT", "0");
    let first = setup().start();
    ctx.wait_until_working(&first).await;
    let waves = json!([{ "name": "canary", "nodes": 1, "approval": true }]);
    let plan = harness.plan("p", json!({ "spec": { "waves": waves } })).await;
    assert!(plan.status.is_none());
    let awaits = |plan: &refit_api::Plan| {
        let wave = plan.status.as_ref().and_then(|status| status.wave.clone());
        wave.is_some_and(|wave| wave.phase.as_str() == "AwaitingApproval")
    };
    let plan = ctx.plan_until("p", "awaits approval", wait::SOON, awaits).await;
    // Three notifications for four receivers, all of them stored.
    wait::until(
        "they are stored as sent",
        async || stored(ctx).await,
        |stored| *stored >= 12,
    )
    .await;
    first.kill();
    drop(first);

    // Only now: on a slow machine a stall would be one of the twelve.
    let stalled = "- {name: stalled, secret: stalled, format: cloudevents, events: [RolloutStalled], stalledAfter: 1s, plans: [p]}";
    configure(
        ctx,
        json!({ "notifications": format!("{notifications}{stalled}\n") }),
    )
    .await;
    let second = setup().start();
    second.leading().await;
    for node in ["one", "two"] {
        harness.behave(node, &[("upgrade.exit-code", "1")]).await;
    }
    let approval = format!("canary@{}", crate::harness::hash(&plan));
    ctx.edit_plan(
        "p",
        json!({ "metadata": { "annotations": { "refit.rs/approve": approval } } }),
    )
    .await;
    let failed = |plan: &refit_api::Plan| {
        let active = plan
            .status
            .as_ref()
            .and_then(|status| status.active.clone())
            .unwrap_or_default();
        active.iter().any(|node| node.phase.as_str() == "Failed")
    };
    let plan = ctx
        .plan_until("p", "has failed on a node", wait::SOON, failed)
        .await;
    let active = plan.status.unwrap().active.unwrap();
    let node = active
        .iter()
        .find(|node| node.phase.as_str() == "Failed")
        .unwrap()
        .name
        .clone();
    wait::until(
        "there are notices of the failure and the stall",
        async || {
            (
                receiver.accepted("/structured").len(),
                receiver.accepted("/stalled").len(),
            )
        },
        |(notices, stalled)| *notices >= 4 && *stalled >= 1,
    )
    .await;
    for name in ["one", "two"] {
        harness.behave(name, &[]).await;
    }
    retry(&harness, if node == harness.node("one") { "one" } else { "two" }).await;
    harness.complete("p").await;

    let expected = BTreeMap::from([
        ("rs.refit.approval.wanted", 1),
        ("rs.refit.node.failed", 1),
        ("rs.refit.rollout.complete", 1),
        ("rs.refit.rollout.started", 1),
        ("rs.refit.wave.finished", 2),
    ]);
    let expected: BTreeMap<String, usize> = expected
        .into_iter()
        .map(|(kind, count)| (kind.to_owned(), count))
        .collect();
    let mut all = Vec::new();
    let formats: [(&str, fn(&Received) -> (String, String)); 3] = [
        ("/structured", structured),
        ("/binary", binary),
        ("/template", template),
    ];
    for (path, read) in formats {
        let notices = wait::until(
            &format!("{path} has got everything"),
            async || kinds(&receiver.accepted(path), read),
            |notices| notices.values().map(Vec::len).sum::<usize>() >= 6,
        )
        .await;
        let counts: BTreeMap<String, usize> = notices
            .iter()
            .map(|(kind, ids)| (kind.clone(), ids.len()))
            .collect();
        assert_eq!(counts, expected, "{path}");
        all.push(
            notices
                .into_values()
                .map(BTreeSet::from_iter)
                .collect::<Vec<BTreeSet<String>>>(),
        );
    }
    assert!(
        all.iter().all(|ids| *ids == all[0]),
        "the ids are the same everywhere: {all:#?}"
    );
    assert_eq!(
        all[0].iter().map(BTreeSet::len).sum::<usize>(),
        6,
        "no id is used twice"
    );
    let slack = wait::until(
        "Slack has got everything",
        async || receiver.accepted("/slack"),
        |notices| notices.len() >= 6,
    )
    .await;
    let texts: Vec<String> = slack
        .iter()
        .map(|one| one.json()["text"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(texts.len(), 6, "{texts:#?}");
    let says = |text: &str| assert!(texts.iter().any(|it| it.contains(text)), "{text}: {texts:#?}");
    says("[prod] Plan p: the roll-out of v1 has started: the Plan selects 2 nodes");
    says("[prod] Plan p: wave canary of v1 is finished: 1 wave is left");
    says("[prod] Plan p: approval wanted: ");
    says(&format!(":warning: [prod] Plan p: v1 failed on node {node}: "));
    says("[prod] Plan p: the roll-out of v1 is complete: it has upgraded 2 nodes, and 1 attempt failed");
    for stalled in receiver.accepted("/stalled") {
        assert_eq!(structured(&stalled).0, "rs.refit.rollout.stalled");
    }
    // All requests were within the roles that refit ships.
    let requests = ctx.controller_requests().await;
    assert!(requests.forbidden().is_empty(), "{:#?}", requests.forbidden());
}

/// Texts of the events with this reason, whatever they are about.
async fn event_texts(ctx: &TestContext, reason: &str) -> Vec<String> {
    let events = Api::<Event>::namespaced(ctx.client.clone(), ctx.namespace());
    let events = events.list(&ListParams::default()).await.unwrap();
    let of_reason = events
        .items
        .into_iter()
        .filter(|event| event.reason.as_deref() == Some(reason));
    of_reason.filter_map(|event| event.message).collect()
}

async fn says(ctx: &TestContext, reason: &str, text: &str) {
    wait::until(
        &format!("an event {reason} says {text:?}"),
        async || event_texts(ctx, reason).await,
        |texts| texts.iter().any(|it| it.contains(text)),
    )
    .await;
}

#[tokio::test]
async fn a_receiver_that_fails_gets_each_notification_once_when_it_is_back_and_no_roll_out_waits() {
    let harness = Harness::new(["one"]).await;
    let (ctx, receiver) = (&harness.ctx, Receiver::start().await);
    let elsewhere = Receiver::start().await;
    receiver.answers("/down", [500, 503, 502, 500].map(Answer::Code));
    receiver.answers("/busy", [Answer::Busy(3), Answer::Busy(1)]);
    receiver.answers("/hangs", std::iter::repeat_n(Answer::Hang, 100));
    receiver.answers("/refuses", [Answer::Code(400)]);
    receiver.answers(
        "/moved",
        std::iter::repeat_n(Answer::Redirect(elsewhere.url("/moved")), 100),
    );
    let mut notifications = String::new();
    for name in ["down", "busy", "hangs", "refuses", "moved"] {
        secret(
            ctx,
            name,
            json!({ "url": receiver.url(&format!("/{name}")), "token": TOKEN }),
        )
        .await;
        let _ = writeln!(
            notifications,
            "- {{name: {name}, secret: {name}, format: cloudevents, events: [RolloutStarted, RolloutComplete], plans: [p]}}"
        );
    }
    configure(ctx, json!({ "notifications": notifications })).await;
    let controller = ctx.start_and_warm_up().await;
    harness.plan("p", json!({})).await;
    harness.complete("p").await;
    assert!(
        receiver.accepted("/hangs").is_empty(),
        "the roll-out did not wait for it"
    );
    receiver.recovers("/hangs");

    for path in ["/down", "/busy", "/hangs"] {
        let notices = wait::until(
            &format!("{path} has got both"),
            async || {
                receiver
                    .accepted(path)
                    .iter()
                    .map(|one| one.json()["type"].clone())
                    .collect::<Vec<_>>()
            },
            |notices| notices.len() >= 2,
        )
        .await;
        assert_eq!(
            notices,
            ["rs.refit.rollout.started", "rs.refit.rollout.complete"],
            "{path}"
        );
    }
    assert!(receiver.got("/down").len() >= 6);
    says(
        ctx,
        "NotificationFailed",
        "receiver down gets no notifications: the receiver answers 502",
    )
    .await;
    says(
        ctx,
        "NotificationFailed",
        "receiver moved gets no notifications: the server redirects (307)",
    )
    .await;
    says(
        ctx,
        "NotificationDropped",
        "receiver refuses does not get RolloutStarted",
    )
    .await;
    let refused: Vec<_> = receiver
        .got("/refuses")
        .iter()
        .map(|one| one.json()["type"].clone())
        .collect();
    assert_eq!(refused, ["rs.refit.rollout.started", "rs.refit.rollout.complete"]);
    assert!(elsewhere.got("/moved").is_empty(), "nothing follows a redirect");
    assert!(!controller.log().contains(TOKEN) && !controller.log().contains(&receiver.url("/down")));
}

#[tokio::test]
async fn a_hostile_configuration_stops_nothing_and_is_named() {
    let harness = Harness::new(["one"]).await;
    let (ctx, receiver) = (&harness.ctx, Receiver::start().await);
    let endless = format!("http://127.0.0.1/{}", "x".repeat(900_000));
    secret(ctx, "good", json!({ "url": receiver.url("/good") })).await;
    secret(ctx, "endless", json!({ "url": endless })).await;
    secret(ctx, "plain", json!({ "url": "http://example.com/hook-s3cret" })).await;
    secret(ctx, "metadata", json!({ "url": "http://169.254.169.254/s3cret" })).await;
    secret(ctx, "no-url", json!({ "URL": receiver.url("/good") })).await;
    let template = "y".repeat(200_000);
    let entry = |name: &str, more: &str| {
        format!(
            "- {{name: {name}, secret: {name}, format: slack, events: [RolloutComplete], plans: [p]{more}}}\n"
        )
    };
    let mut notifications: String = ["good", "endless", "plain", "no-url", "absent"]
        .map(|name| entry(name, ""))
        .concat();
    notifications.push_str(&entry("metadata", ", allowPlainHTTP: true"));
    notifications.push_str(
        "- {name: loop, secret: good, format: template, body: '{{ range .Nodes }}{{ . }}{{ end }}'}\n",
    );
    notifications.push_str("- 42\n");
    configure(
        ctx,
        json!({ "notifications": notifications, "silences": "a: [b" }),
    )
    .await;
    let controller = ctx.start_and_warm_up().await;
    harness.plan("p", json!({})).await;
    harness.complete("p").await;
    let notices = async || receiver.accepted("/good").len();
    wait::until("the entry that is right is used", notices, |notices| {
        *notices == 1
    })
    .await;
    for text in [
        "key \"notifications\": entry 6: body is not a template: it has {{ range .Nodes }}",
        "key \"notifications\": entry 7: ",
        "key \"silences\": it is not a YAML list",
    ] {
        says(ctx, "NotificationsInvalid", text).await;
    }
    for text in [
        "receiver endless gets no notifications: secrets \"endless\": url cannot be used: it is too long for a URL",
        "receiver plain gets no notifications: the URL is plain http",
        "receiver metadata gets no notifications: 169.254.169.254 is link-local",
        "receiver no-url gets no notifications: secrets \"no-url\" has no key \"url\"",
        "receiver absent gets no notifications: secrets \"absent\" not found",
    ] {
        says(ctx, "NotificationFailed", text).await;
    }

    // Worse than that, while the controller runs; the next roll-out has notices again once it is corrected.
    configure(ctx, json!({ "notifications": format!("- {{name: good, secret: good, format: template, body: '{template}'}}") })).await;
    says(ctx, "NotificationsInvalid", "it has 200").await;
    harness.edit("p", json!({ "version": "v2" })).await;
    harness.complete("p").await;
    configure(ctx, json!({ "notifications": entry("good", "") })).await;
    let notices = async || receiver.accepted("/good").len();
    wait::until(
        "there is a notice of what happened meanwhile",
        notices,
        |notices| *notices == 2,
    )
    .await;
    let plans = serde_json::to_string(&ctx.plans().get("p").await.unwrap()).unwrap();
    let events = Api::<Event>::namespaced(ctx.client.clone(), ctx.namespace());
    let events = serde_json::to_string(&events.list(&ListParams::default()).await.unwrap().items).unwrap();
    for text in [plans, events, controller.log()] {
        assert!(!text.contains("s3cret"), "{text}");
    }
}

#[tokio::test]
async fn alerts_of_a_node_are_silenced_while_it_is_upgraded_and_a_successor_ends_what_is_left() {
    let harness = Harness::with(["one", "two"], held).await;
    let (ctx, receiver) = (&harness.ctx, Receiver::start().await);
    // The first answer to a creation is lost: it is found again, and not repeated.
    receiver.add_silence(
        json!({ "id": "of-anna", "createdBy": "anna", "comment": "mine", "status": { "state": "active" } }),
    );
    secret(
        ctx,
        "alertmanager",
        json!({ "url": receiver.url("/am"), "token": TOKEN }),
    )
    .await;
    secret(ctx, "down", json!({ "url": receiver.url("/down") })).await;
    receiver.answers(
        "/down/api/v2/silences",
        std::iter::repeat_n(Answer::Code(500), 1_000),
    );
    let silences = "- {secret: alertmanager, matchers: ['node=\"{{ node }}\"', 'severity!=critical'], duration: 30m}\n- {secret: down}\n";
    configure(ctx, json!({ "silences": silences })).await;
    let controller = ctx.start_and_warm_up().await;
    harness.plan("p", json!({ "spec": { "cordon": true } })).await;
    let (first, second) = harness.first_of_two("p").await;
    let ours = |silence: &&Value| silence["createdBy"] != "anna";
    let states = async || {
        let silences = receiver.silences();
        let state = |silence: &Value| {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            (
                text(&silence["matchers"][0]["value"]),
                text(&silence["status"]["state"]),
            )
        };
        silences.iter().filter(ours).map(state).collect::<Vec<_>>()
    };
    let of = |node: &str, state: &str| (harness.node(node), state.to_owned());
    wait::until("the node is silenced", states, |it| *it == [of(first, "active")]).await;
    let silence = receiver.silences().iter().find(ours).cloned().unwrap();
    assert_eq!(
        silence["matchers"],
        json!([
            { "name": "node", "value": harness.node(first), "isRegex": false, "isEqual": true },
            { "name": "severity", "value": "critical", "isRegex": false, "isEqual": false },
        ])
    );
    let time = |name: &str| {
        silence[name]
            .as_str()
            .unwrap()
            .parse::<jiff::Timestamp>()
            .unwrap()
    };
    assert_eq!(
        time("endsAt").duration_since(time("startsAt")),
        jiff::SignedDuration::from_mins(30)
    );

    // It dies while the node is down, and comes back when the node is done and the next one is being upgraded.
    controller.kill();
    drop(controller);
    harness.release(first).await;
    let again = ctx.controller().start();
    again.leading().await;
    harness.upgrading("p", second).await;
    let expected = [of(first, "expired"), of(second, "active")];
    wait::until(
        "the successor ends it, and silences the next node",
        states,
        |it| *it == expected,
    )
    .await;
    harness.release(second).await;
    harness.complete("p").await;
    let expected = [of(first, "expired"), of(second, "expired")];
    wait::until("no silence is left", states, |it| *it == expected).await;
    let others = receiver.silences();
    assert_eq!(
        others[0]["status"]["state"], "active",
        "that of a person is left alone"
    );
    says(
        ctx,
        "SilenceFailed",
        "alerts are not silenced through secrets \"down\": Alertmanager answers 500",
    )
    .await;
    assert!(
        receiver
            .got("/am/api/v2/silences")
            .iter()
            .all(|one| one.header("authorization") == format!("Bearer {TOKEN}"))
    );
}

#[tokio::test]
async fn a_silence_whose_answer_was_lost_is_found_and_not_repeated() {
    let harness = Harness::with(["one"], held).await;
    let (ctx, receiver) = (&harness.ctx, Receiver::start().await);
    secret(ctx, "alertmanager", json!({ "url": receiver.url("/am/") })).await;
    configure(ctx, json!({ "silences": "[{secret: alertmanager}]" })).await;
    let _controller = ctx.start_and_warm_up().await;
    // It has listed by now, or will find the answers lost for the list, too: either way it lists again.
    receiver.answers("/am/api/v2/silences", [Answer::Lost]);
    harness.plan("p", json!({})).await;
    harness.upgrading("p", "one").await;
    let count = async || receiver.silences().len();
    wait::until("the node is silenced", count, |count| *count == 1).await;
    // The list after the lost answer.
    let asked = async || {
        receiver
            .got("/am/api/v2/silences")
            .iter()
            .filter(|one| one.body.is_empty())
            .count()
    };
    wait::until("it is looked for", asked, |asked| *asked >= 2).await;
    harness.release("one").await;
    harness.complete("p").await;
    let ended = async || {
        receiver
            .silences()
            .iter()
            .all(|silence| silence["status"]["state"] == "expired")
    };
    wait::until("it has ended", ended, |ended| *ended).await;
    assert_eq!(receiver.silences().len(), 1);
}
