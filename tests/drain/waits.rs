//! What a drain does where it cannot go on: it says for whom it waits, tells a budget from an overloaded server, goes on when it
//! can, and ends cleanly when it must.

use std::time::{Duration, Instant};

use kube::api::{DeleteParams, Patch, PatchParams};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::{A_WHILE, Bench, Tool, finish, said};
use crate::support::faults::Rule;
use crate::support::process::signal;
use crate::support::wait;

/// Lines of JSON that a drain wrote.
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
    let bench = Bench::new(&["one"]).await;
    bench
        .pods("one", ["web-1", "web-2"], json!({ "app": "web" }))
        .await;
    bench.pods("one", ["other"], json!({})).await;
    bench
        .budget("guard", "web", json!({ "minAvailable": 2 }), 2)
        .await;
    let out = bench.drain("one", &["--timeout=7s", "-o", "json"]).await;
    assert_eq!(out.code, Some(1), "{out:?}");
    let events = events(&out.stdout);
    let refused = named(&events, "refused");
    assert_eq!(refused.len(), 2, "each is told once: {events:#?}");
    for event in refused {
        assert_eq!(event["pdb"], "guard", "{event}");
        let message = "The disruption budget guard needs 2 healthy pods and has 2 currently";
        assert_eq!(event["message"], message, "{event}");
        assert_eq!(event["namespace"], bench.world.namespace());
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
    assert_eq!(ended["message"], "global timeout reached: 7s");
    let last = out.last_line();
    let start = format!(
        "error: unable to drain node {:?}: global timeout reached: 7s; 1 of 3 pods are gone; ",
        bench.node("one")
    );
    assert!(last.starts_with(&start), "{last}");
    for pod in ["web-1", "web-2"] {
        let wait = format!(
            "{}/{pod} waits for PodDisruptionBudget guard since 20",
            bench.world.namespace()
        );
        assert!(last.contains(&wait), "{last}");
    }
}

#[tokio::test]
async fn a_drain_is_through_within_six_seconds_of_its_budget() {
    let bench = Bench::new(&["one"]).await;
    bench.pods("one", ["web-1"], json!({ "app": "web" })).await;
    bench
        .budget("guard", "web", json!({ "minAvailable": 1 }), 1)
        .await;
    let node = bench.node("one");
    let mut child = bench.command(Tool::Refit, &["drain", &node]).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().unwrap();
    assert!(
        line.contains("(will retry after 5s): The disruption budget guard needs"),
        "{line}"
    );
    // Long enough that it has been asked more than once.
    let asked = async || {
        let requests = bench.drainer_requests().await.0;
        requests
            .iter()
            .filter(|it| it.resource == "pods/eviction" && it.code == 429)
            .count()
    };
    wait::eventually("it has asked three times", A_WHILE, async || {
        match asked().await {
            3.. => Ok(()),
            times => Err(format!("{times} times")),
        }
    })
    .await;
    let opens = json!({ "spec": { "minAvailable": 0 } });
    bench
        .budgets()
        .patch("guard", &PatchParams::default(), &Patch::Merge(opens))
        .await
        .unwrap();
    let allows = |it: &k8s_openapi::api::policy::v1::PodDisruptionBudget| {
        it.status
            .as_ref()
            .is_some_and(|status| status.disruptions_allowed == Some(1))
    };
    wait::object(bench.budgets(), "guard", "allows one", A_WHILE, allows).await;
    let opened = Instant::now();
    let out = said(child, opened).await;
    assert_eq!(out.code, Some(0), "{out:?}");
    assert!(out.took <= Duration::from_secs(6), "{:?}", out.took);
    assert!(bench.on_node("one").await.is_empty());
}

#[tokio::test]
async fn two_budgets_fail_at_once_and_are_named() {
    let bench = Bench::new(&["one"]).await;
    bench.pods("one", ["web-1"], json!({ "app": "web" })).await;
    for name in ["guard-a", "guard-b"] {
        bench.budget(name, "web", json!({ "minAvailable": 0 }), 1).await;
    }
    let out = bench.drain("one", &["--timeout=300s"]).await;
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
async fn an_overloaded_server_is_told_from_a_budget() {
    let bench = Bench::new(&["one"]).await;
    bench.pods("one", ["a", "b"], json!({})).await;
    let faults = bench.world.faults(1).await;
    faults.add(Rule::on("create", "pods/eviction").times(3).answer(429));
    let kubeconfig = faults.kubeconfig_for(&bench.drainer);
    let node = bench.node("one");
    let mut command = bench.command(Tool::Refit, &["drain", &node, "-o", "json"]);
    command.env("KUBECONFIG", kubeconfig);
    let out = finish(command).await;
    assert_eq!(out.code, Some(0), "{out:?}");
    assert_eq!(faults.faults(), 3);
    let events = events(&out.stdout);
    assert!(named(&events, "refused").is_empty(), "{events:#?}");
    assert_eq!(named(&events, "gone").len(), 2);
}

#[tokio::test]
async fn a_pod_of_the_same_name_that_came_later_is_left_alone() {
    let bench = Bench::new(&["one"]).await;
    bench.pods("one", ["db-0"], json!({ "app": "db" })).await;
    bench.budget("guard", "db", json!({ "minAvailable": 1 }), 1).await;
    let node = bench.node("one");
    let mut child = bench.command(Tool::Refit, &["drain", &node]).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.next_line().await.unwrap().unwrap().contains("db-0"));
    // While it waits, the pod is made anew, as a StatefulSet does, and nothing guards it any more.
    let first = bench.world.pods().get("db-0").await.unwrap().metadata.uid;
    bench
        .world
        .pods()
        .delete("db-0", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    wait::gone(bench.world.pods(), "db-0", A_WHILE).await;
    let second = bench.pod("one", "db-0", json!({})).await.metadata.uid;
    assert_ne!(first, second);
    let out = said(child, Instant::now()).await;
    assert_eq!(out.code, Some(0), "{out:?}");
    let there = bench.world.pods().get("db-0").await.unwrap().metadata;
    assert_eq!((there.uid, there.deletion_timestamp), (second, None));
}

#[tokio::test]
async fn on_sigterm_it_says_what_was_evicted_and_what_was_not() {
    let bench = Bench::new(&["one"]).await;
    bench.pods("one", ["web-1"], json!({ "app": "web" })).await;
    bench.pods("one", ["other"], json!({})).await;
    bench
        .budget("guard", "web", json!({ "minAvailable": 1 }), 1)
        .await;
    let node = bench.node("one");
    let child = bench.command(Tool::Refit, &["drain", &node]).spawn().unwrap();
    wait::gone(bench.world.pods(), "other", A_WHILE).await;
    let pid = child.id().unwrap();
    // It has to have seen what this test has seen.
    let asked = async || {
        let requests = bench.drainer_requests().await.0;
        let of = |code: u16| {
            requests
                .iter()
                .filter(|it| it.resource == "pods/eviction" && it.code == code)
                .count()
        };
        (of(429), of(201))
    };
    wait::eventually("it has asked again", A_WHILE, async || match asked().await {
        (2.., 1) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    signal(pid, Signal::TERM).unwrap();
    let started = Instant::now();
    let out = said(child, started).await;
    assert_eq!(out.code, Some(143), "{out:?}");
    assert!(out.took < Duration::from_secs(5), "{:?}", out.took);
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
async fn an_outage_of_the_api_server_is_outlived() {
    let bench = Bench::new(&["one"]).await;
    bench.pods("one", ["a", "b"], json!({})).await;
    let faults = bench.world.faults(2).await;
    faults.add(Rule::on("create", "pods/eviction").nth(1).lose_answer());
    faults.add(Rule::on("create", "pods/eviction").nth(2).refuse());
    faults.add(Rule::on("list", "pods").after(2).times(2).answer(503));
    let kubeconfig = faults.kubeconfig_for(&bench.drainer);
    let node = bench.node("one");
    let mut command = bench.command(Tool::Refit, &["drain", &node]);
    command.env("KUBECONFIG", kubeconfig);
    let out = finish(command).await;
    assert_eq!(out.code, Some(0), "{out:?}");
    assert!(bench.on_node("one").await.is_empty());
}
