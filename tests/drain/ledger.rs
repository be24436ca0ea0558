//! A Plan's drain and the ledger of its node: the previous state of the node survives kills and retries, a user's
//! changes count, and a cancelled drain does not pass.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use refit_api::{Ledger, NodeDrain};
use rustix::process::Signal;
use serde_json::json;
use tokio::process::Command;

use super::{CommandOutput, DrainHarness, Tool, WaitingDrain, finish, output_of};
use crate::harness::ledger;
use crate::testenv::faults::Rule;
use crate::testenv::process::signal;
use crate::testenv::wait::{self, SOON};

type Env = BTreeMap<String, String>;

fn command(harness: &DrainHarness, verb: &str, env: &Env) -> Command {
    let node = harness.node("one");
    let mut command = harness.command(Tool::Refit, &[verb, &node]);
    command.envs(env);
    command
}

async fn run(harness: &DrainHarness, verb: &str, env: &Env) -> CommandOutput {
    finish(command(harness, verb, env)).await
}

async fn of_node(harness: &DrainHarness) -> (bool, Option<Ledger>) {
    let node = harness.get("one").await;
    (crate::harness::is_cordoned(&node), ledger(&node))
}

fn holders(ledger: &Ledger) -> Vec<(&str, bool)> {
    ledger
        .holders
        .iter()
        .map(|holder| (holder.plan.as_str(), holder.completed))
        .collect()
}

#[tokio::test]
async fn cordon_and_ledger_are_one_patch_and_completion_is_another() {
    let harness = DrainHarness::new(&["one"]).await;
    harness.pods("one", ["a"], json!({})).await;
    let own = harness
        .pod("one", "own", json!({ "app": "own", "mirror": true }))
        .await;
    let env = harness.plan_env("k3s", "one", Some(&own)).await;
    let out = run(&harness, "drain", &env).await;
    assert_eq!(out.code, Some(0), "{out:?}");
    let (cordoned, ledger) = of_node(&harness).await;
    let ledger = ledger.unwrap();
    assert!(cordoned && !ledger.before);
    assert_eq!(holders(&ledger), [("k3s", true)]);
    let requests = harness.drainer_requests().await.0;
    let patches: Vec<_> = requests
        .iter()
        .filter(|it| it.resource == "nodes" && it.verb == "patch")
        .filter(|it| it.sent["spec"].is_object())
        .collect();
    assert_eq!(patches.len(), 2, "{patches:#?}");
    for (patch, passed) in patches.iter().zip([false, true]) {
        assert!(
            patch.sent["metadata"]["resourceVersion"].is_string(),
            "{patch:#?}"
        );
        assert_eq!(patch.sent["spec"], json!({ "unschedulable": true }));
        let text = patch.sent["metadata"]["annotations"]["refit.rs/cordon"]
            .as_str()
            .unwrap();
        assert_eq!(Ledger::parse(text).unwrap().holders[0].completed, passed);
    }
    // `cordon` has a single write.
    let env = harness.plan_env("other", "one", None).await;
    assert_eq!(run(&harness, "cordon", &env).await.code, Some(0));
    let (_, ledger) = of_node(&harness).await;
    let ledger = ledger.unwrap();
    assert_eq!(
        (ledger.before, holders(&ledger)),
        (false, vec![("k3s", true), ("other", true)])
    );
}

#[tokio::test]
async fn a_drain_that_is_killed_at_any_of_ten_points_keeps_what_was_before() {
    let harness = DrainHarness::new(&["one"]).await;
    let node = harness.node("one");
    for before in [false, true] {
        for point in 0..5 {
            let edit = json!({
                "metadata": { "annotations": { "refit.rs/cordon": null } },
                "spec": { "unschedulable": before.then_some(true) },
            });
            harness.ctx.edit_node(&node, edit).await;
            harness.pods("one", ["a", "b"], json!({})).await;
            let env = harness.plan_env("k3s", "one", None).await;

            // The writes are: cordon, two evictions, `passed`. Killed before the first, and after each.
            let faults = harness.ctx.faults(point).await;
            faults.add(match point {
                0 => Rule::write().nth(1).hang(),
                nth => Rule::write().nth(nth).late(Duration::from_secs(600)),
            });
            let mut drain = command(&harness, "drain", &env);
            drain.env("KUBECONFIG", faults.kubeconfig_for(&harness.drainer));
            let child = drain.spawn().unwrap();
            wait::holds("the write has come", async || {
                faults
                    .history()
                    .into_iter()
                    .any(|it| it.effect.is_some() && (point == 0 || it.code.is_some()))
            })
            .await;
            signal(child.id().unwrap(), Signal::KILL).unwrap();
            let out = output_of(child, Instant::now()).await;
            assert_eq!(out.code, None, "killed: {out:?}");
            let (_, noted) = of_node(&harness).await;
            assert_eq!(noted.is_some(), point > 0, "point {point}");

            // The Job creates another pod.
            let out = run(&harness, "drain", &env).await;
            assert_eq!(out.code, Some(0), "point {point}: {out:?}");
            let (cordoned, noted) = of_node(&harness).await;
            let noted = noted.unwrap();
            assert!(cordoned);
            assert_eq!(
                (noted.before, holders(&noted)),
                (before, vec![("k3s", true)]),
                "point {point}"
            );
            assert!(harness.on_node("one").await.is_empty(), "point {point}");
        }
    }
}

#[tokio::test]
async fn a_node_that_a_user_uncordons_during_a_drain_stays_uncordoned() {
    let harness = DrainHarness::guarded().await;
    let env = harness.plan_env("k3s", "one", None).await;
    let drain = WaitingDrain::start(&harness, &env).await;
    // Like `kubectl uncordon`: the ledger stays until a controller sees it.
    harness.ctx.uncordon(&harness.node("one")).await;
    harness.open("guard").await;
    let out = drain.ended().await;
    assert_eq!(out.code, Some(0), "{out:?}");
    let (cordoned, _) = of_node(&harness).await;
    assert!(!cordoned, "the user has decided");
    // A user who cordons the node again starts anew: its previous state is schedulable.
    let edit = json!({ "metadata": { "annotations": {
        "refit.rs/cordon": Ledger { before: true, ..Ledger::default() }.to_text(),
    } } });
    harness.ctx.edit_node(&harness.node("one"), edit).await;
    assert_eq!(run(&harness, "cordon", &env).await.code, Some(0));
    assert!(!of_node(&harness).await.1.unwrap().before);
    // refit's own uncordon clears the ledger at once.
    let node = harness.node("one");
    assert_eq!(harness.run(Tool::Refit, &["uncordon", &node]).await.code, Some(0));
    assert_eq!(of_node(&harness).await, (false, None));
}

#[tokio::test]
async fn a_cancelled_holder_does_not_pass_its_drain() {
    let harness = DrainHarness::guarded().await;
    let env = harness.plan_env("k3s", "one", None).await;
    let drain = WaitingDrain::start(&harness, &env).await;
    let (_, noted) = of_node(&harness).await;
    let mut noted = noted.unwrap();
    for holder in &mut noted.holders {
        holder.cancelled = true;
    }
    let edit = json!({ "metadata": { "annotations": { "refit.rs/cordon": noted.to_text() } } });
    harness.ctx.edit_node(&harness.node("one"), edit).await;
    harness.open("guard").await;
    let out = drain.ended().await;
    assert_eq!(out.code, Some(1), "{out:?}");
    assert!(!out.stdout.contains(" drained"), "{out:?}");
    assert_eq!(
        of_node(&harness).await,
        (true, Some(noted.clone())),
        "the controller releases it"
    );
    for verb in ["drain", "cordon"] {
        let out = run(&harness, verb, &env).await;
        assert_eq!(out.code, Some(1), "{out:?}");
        assert!(out.last_line().contains("cancelled by the controller"), "{out:?}");
    }
    assert_eq!(of_node(&harness).await.1, Some(noted));
}

#[tokio::test]
async fn another_machine_of_the_same_name_is_left_alone() {
    let harness = DrainHarness::new(&["one"]).await;
    harness.pods("one", ["a"], json!({})).await;
    let mut env = harness.plan_env("k3s", "one", None).await;
    env.insert("REFIT_NODE_UID".to_owned(), "of-the-old-machine".to_owned());
    for verb in ["drain", "cordon"] {
        let out = run(&harness, verb, &env).await;
        assert_eq!(out.code, Some(1), "{out:?}");
        assert!(out.last_line().contains("has been replaced"), "{out:?}");
    }
    assert_eq!(of_node(&harness).await, (false, None));
    assert_eq!(harness.on_node("one").await.len(), 1);
}

#[tokio::test]
async fn a_drain_writes_its_progress_and_blockers_on_its_node_until_it_is_over() {
    let harness = DrainHarness::guarded().await;
    harness.pods("one", ["a"], json!({})).await;
    let own = harness.pod("one", "own", json!({ "mirror": true })).await;
    let env = harness.plan_env("k3s", "one", Some(&own)).await;
    let drain = WaitingDrain::start(&harness, &env).await;
    let note = |node: &Node| NodeDrain::parse(node.annotations().get("refit.rs/drain")?);
    let names_it = |node: &Node| note(node).is_some_and(|drain| !drain.note.waiting.is_empty());
    let what = "names what it waits for";
    let nodes = kube::Api::all(harness.ctx.client.clone());
    let node = wait::object(nodes.clone(), &harness.node("one"), what, SOON, names_it).await;
    let drain_note = note(&node).unwrap();
    assert_eq!(
        (drain_note.plan.as_str(), Some(drain_note.pod)),
        ("k3s", own.uid())
    );
    let waits = drain_note.note.waiting;
    assert_eq!(waits[0].pdb.as_deref(), Some("guard"));
    assert!(waits[0].pod.ends_with("/web-1"), "{waits:?}");
    harness.open("guard").await;
    let out = drain.ended().await;
    assert_eq!(out.code, Some(0), "{out:?}");
    assert!(
        !harness
            .get("one")
            .await
            .annotations()
            .contains_key("refit.rs/drain")
    );
}
