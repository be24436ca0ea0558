//! A drain that waits: it reports the reason, distinguishes a budget from an overloaded server, continues when it can,
//! and ends cleanly when it must.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, Patch, PatchParams};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{DrainHarness, Tool, WaitingDrain, output_of};
use crate::testenv::faults::Rule;
use crate::testenv::process::signal;
use crate::testenv::wait::{self, SOON};

/// JSON lines of a drain.
fn events(stdout: &str) -> Vec<Value> {
    stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn named<'e>(events: &'e [Value], event: &str) -> Vec<&'e Value> {
    events.iter().filter(|it| it["event"] == event).collect()
}

#[tokio::test]
async fn a_budget_that_never_allows_is_named_with_its_pod_and_since_when() {
    let harness = DrainHarness::new(&["one"]).await;
    harness
        .pods("one", ["web-1", "web-2"], json!({ "app": "web" }))
        .await;
    harness.pods("one", ["other"], json!({})).await;
    harness
        .budget("guard", "web", json!({ "minAvailable": 2 }), 2)
        .await;
    let out = harness.drain("one", &["--timeout=30s", "-o", "json"]).await;
    assert_eq!(out.code, Some(1), "{out:?}");
    let events = events(&out.stdout);
    let refused = named(&events, "refused");
    assert_eq!(refused.len(), 2, "each is reported once: {events:#?}");
    for event in refused {
        assert_eq!(event["pdb"], "guard", "{event}");
        let message = "The disruption budget guard needs 2 healthy pods and has 2 currently";
        assert_eq!(event["message"], message, "{event}");
        assert_eq!(event["namespace"], harness.ctx.namespace());
    }
    assert_eq!(named(&events, "gone").len(), 1);
    let [ended] = named(&events, "notDrained")[..] else {
        panic!("{events:#?}")
    };
    assert_eq!(
        (&ended["evicted"], &ended["total"]),
        (&json!(1), &json!(3)),
        "{ended}"
    );
    assert_eq!(ended["message"], "global timeout reached: 30s");
    let last = out.last_line();
    let start = format!(
        "error: unable to drain node {:?}: global timeout reached: 30s; 1 of 3 pods are gone; ",
        harness.node("one")
    );
    assert!(last.starts_with(&start), "{last}");
    for pod in ["web-1", "web-2"] {
        let wait = format!(
            "{}/{pod} waits for PodDisruptionBudget guard since 20",
            harness.ctx.namespace()
        );
        assert!(last.contains(&wait), "{last}");
    }
}

/// How soon is measured in virtual time (`src/testkit/tests/engine/deadlines.rs`).
#[tokio::test]
async fn a_drain_ends_once_its_budget_allows_the_eviction() {
    let harness = DrainHarness::guarded().await;
    let drain = WaitingDrain::start(&harness, &BTreeMap::new()).await;
    let tries = async || harness.evictions(429).await;
    wait::until("it has tried three times", tries, |it| *it >= 3).await;
    let opens = Patch::Merge(json!({ "spec": { "minAvailable": 0 } }));
    let budgets = harness.budgets();
    budgets
        .patch("guard", &PatchParams::default(), &opens)
        .await
        .unwrap();
    let allows = |it: &PodDisruptionBudget| {
        it.status
            .as_ref()
            .is_some_and(|status| status.disruptions_allowed == Some(1))
    };
    wait::object(budgets, "guard", "allows one", SOON, allows).await;
    let out = drain.ended().await;
    assert_eq!(out.code, Some(0), "{out:?}");
    assert!(harness.on_node("one").await.is_empty());
}

#[tokio::test]
async fn two_budgets_fail_at_once_and_are_named() {
    let harness = DrainHarness::new(&["one"]).await;
    harness.pods("one", ["web-1"], json!({ "app": "web" })).await;
    for name in ["guard-a", "guard-b"] {
        harness.budget(name, "web", json!({ "minAvailable": 0 }), 1).await;
    }
    let out = harness.drain("one", &["--timeout=300s"]).await;
    assert_eq!(out.code, Some(1), "{out:?}");
    assert!(out.took < Duration::from_secs(60), "{:?}", out.took);
    let last = out.last_line();
    assert!(
        last.contains("/web-1: This pod has more than one PodDisruptionBudget"),
        "{last}"
    );
    assert!(last.contains("They are guard-a, guard-b."), "{last}");
}

#[tokio::test]
async fn a_later_pod_of_the_same_name_is_not_evicted() {
    let harness = DrainHarness::guarded().await;
    let drain = WaitingDrain::start(&harness, &BTreeMap::new()).await;
    assert!(drain.line.contains("web-1"), "{}", drain.line);
    // While it waits, the pod is created again, as by a StatefulSet, without a budget.
    let pods = harness.ctx.pods();
    let first = pods.get("web-1").await.unwrap().metadata.uid;
    let at_once = DeleteParams::default().grace_period(0);
    pods.delete("web-1", &at_once).await.unwrap();
    wait::gone(pods.clone(), "web-1", SOON).await;
    let second = harness.pod("one", "web-1", json!({})).await.metadata.uid;
    assert_ne!(first, second);
    let out = drain.ended().await;
    assert_eq!(out.code, Some(0), "{out:?}");
    let there = pods.get("web-1").await.unwrap().metadata;
    assert_eq!((there.uid, there.deletion_timestamp), (second, None));
}

#[tokio::test]
async fn a_drain_that_gets_sigterm_says_which_pods_were_evicted() {
    let harness = DrainHarness::guarded().await;
    harness.pods("one", ["other"], json!({})).await;
    let node = harness.node("one");
    let child = harness.command(Tool::Refit, &["drain", &node]).spawn().unwrap();
    wait::gone(harness.ctx.pods(), "other", SOON).await;
    let pid = child.id().unwrap();
    // The drain must have seen what this test has seen.
    let tries = async || (harness.evictions(429).await, harness.evictions(201).await);
    wait::until("it has tried again", tries, |it| matches!(it, (2.., 1))).await;
    signal(pid, Signal::TERM).unwrap();
    let out = output_of(child, Instant::now()).await;
    assert_eq!(out.code, Some(143), "{out:?}");
    let last = out.last_line();
    assert!(
        last.contains("ended by SIGTERM; 1 of 2 pods are gone; "),
        "{last}"
    );
    assert!(
        last.contains("/web-1 waits for PodDisruptionBudget guard since "),
        "{last}"
    );
}

#[tokio::test]
async fn a_drain_survives_an_outage_of_the_api_server() {
    let harness = DrainHarness::new(&["one"]).await;
    harness.pods("one", ["a", "b"], json!({})).await;
    let faults = harness.ctx.faults(2).await;
    faults.add(Rule::on("create", "pods/eviction").nth(1).lose_answer());
    faults.add(Rule::on("create", "pods/eviction").nth(2).refuse());
    faults.add(Rule::on("list", "pods").after(2).times(2).answer(503));
    let kubeconfig = faults.kubeconfig_for(&harness.drainer);
    let args = ["drain", &harness.node("one")];
    let out = harness.run_as(Tool::Refit, &kubeconfig, &args).await;
    assert_eq!(out.code, Some(0), "{out:?}");
    assert!(harness.on_node("one").await.is_empty());
}

#[tokio::test]
async fn groups_go_one_after_the_other_between_two_delays_and_what_stays_at_the_timeout_stops_nothing() {
    let harness = DrainHarness::new(&["one"]).await;
    harness.pods("one", ["osd-1"], json!({ "app": "osd" })).await;
    harness
        .pods("one", ["web-1", "web-2"], json!({ "app": "web" }))
        .await;
    let delays = ["--load-balancer-delay=1s", "--settle-delay=1s"];
    let out = harness
        .drain(
            "one",
            &[&delays[..], &["--evict-last=app=osd", "-o", "json"]].concat(),
        )
        .await;
    assert_eq!(out.code, Some(0), "{out:?}");
    let seen: Vec<_> = events(&out.stdout)
        .iter()
        .map(|event| match event["event"].as_str().unwrap() {
            "waits" => event["why"].as_str().unwrap().to_owned(),
            what => format!(
                "{what} {}",
                event["name"]
                    .as_str()
                    .unwrap_or_default()
                    .split('-')
                    .next()
                    .unwrap()
            ),
        })
        .collect();
    let web = ["evicting web", "evicting web", "gone web", "gone web"];
    let expected = [
        &["node ", "for load balancers"],
        &web[..],
        &["evicting osd", "gone osd", "before the upgrade", "node "],
    ];
    assert_eq!(seen, expected.concat());

    harness.guard().await;
    let out = harness
        .drain("one", &["--timeout=1s", "--after-timeout=continue"])
        .await;
    assert_eq!(out.code, Some(0), "{out:?}");
    let stays = format!(
        "pod {}/web-1 stays: it could not be evicted within 1s",
        harness.ctx.namespace()
    );
    assert!(out.stderr.contains(&stays), "{out:?}");
    assert_eq!(harness.on_node("one").await, [("web-1".to_owned(), false)].into());
}

#[tokio::test]
async fn a_cordoned_node_is_drained_once_pods_have_ended_and_left_as_it_was_if_they_have_not() {
    let harness = DrainHarness::new(&["one"]).await;
    harness
        .pods("one", ["runner-1"], json!({ "app": "runner" }))
        .await;
    harness.pods("one", ["web-1"], json!({ "app": "web" })).await;
    let out = harness
        .drain("one", &["--wait-for=app=runner;timeout=3s;after=skip"])
        .await;
    assert_eq!(out.code, Some(77), "{out:?}");
    assert!(
        out.last_line().contains("runner-1 had not ended within 3s"),
        "{out:?}"
    );
    assert!(out.stdout.contains("uncordoned"), "{out:?}");
    let node = harness.get("one").await;
    assert!(!node.spec.unwrap().unschedulable.unwrap_or_default());
    assert!(harness.on_node("one").await.contains_key("web-1"));

    let out = harness
        .drain("one", &["--wait-for=app=runner;timeout=3s;after=fail"])
        .await;
    assert_eq!(out.code, Some(75), "{out:?}");
    assert!(harness.on_node("one").await.contains_key("web-1"));

    // It ends while the drain waits for it.
    let lists = async || harness.drainer_requests().await.count("list", "pods");
    let before = lists().await;
    let drain = harness.drain("one", &["--wait-for=app=runner;timeout=10m", "-o", "json"]);
    let ends = async {
        // One finds the pods of the node, and the wait lists again and again.
        wait::until("the drain waits", lists, |now| *now >= before + 3).await;
        let now = DeleteParams::default().grace_period(0);
        harness.ctx.pods().delete("runner-1", &now).await.unwrap();
    };
    let (out, ()) = tokio::join!(drain, ends);
    assert_eq!(out.code, Some(0), "{out:?}");
    let events = events(&out.stdout);
    let evicted: Vec<_> = named(&events, "evicting")
        .iter()
        .map(|event| event["name"].clone())
        .collect();
    assert_eq!(evicted, ["web-1"], "{events:#?}");
}
