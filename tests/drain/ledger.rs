//! A drain for a Plan and the ledger of its node: killed at any point and run again it keeps what the node was before; what a
//! person says meanwhile counts; who was cancelled does not get through.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use refit::rollout::{Holder, Ledger};
use rustix::process::Signal;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::{A_WHILE, Bench, Said, Tool, finish, said};
use crate::scene::ledger;
use crate::support::faults::Rule;
use crate::support::process::signal;
use crate::support::wait;

type Env = BTreeMap<String, String>;

fn command(bench: &Bench, verb: &str, env: &Env) -> Command {
    let node = bench.node("one");
    let mut command = bench.command(Tool::Refit, &[verb, &node]);
    command.envs(env);
    command
}

async fn run(bench: &Bench, verb: &str, env: &Env) -> Said {
    finish(command(bench, verb, env)).await
}

async fn of_node(bench: &Bench) -> (bool, Option<Ledger>) {
    let node = bench.world.node(&bench.node("one")).await;
    (crate::scene::is_cordoned(&node), ledger(&node))
}

fn holders(ledger: &Ledger) -> Vec<(&str, bool)> {
    ledger
        .holders
        .iter()
        .map(|holder| (holder.plan.as_str(), holder.passed))
        .collect()
}

/// One drain that waits for a budget, and what ends the wait.
struct Waiting {
    child: tokio::process::Child,
    // Kept open, so that the child can go on writing.
    _lines: tokio::io::Lines<BufReader<tokio::process::ChildStderr>>,
}

async fn waiting(bench: &Bench, env: &Env) -> Waiting {
    let mut child = command(bench, "drain", env).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().unwrap();
    assert!(line.contains("will retry after 5s"), "{line}");
    Waiting { child, _lines: lines }
}

async fn guarded(bench: &Bench) {
    bench.pods("one", ["web-1"], json!({ "app": "web" })).await;
    bench
        .budget("guard", "web", json!({ "minAvailable": 1 }), 1)
        .await;
}

#[tokio::test]
async fn cordon_and_ledger_are_one_patch_and_the_last_act_is_another() {
    let bench = Bench::new(&["one"]).await;
    bench.pods("one", ["a"], json!({})).await;
    let own = bench
        .pod("one", "own", json!({ "app": "own", "mirror": true }))
        .await;
    let env = bench.plan_env("k3s", "one", Some(&own)).await;
    let out = run(&bench, "drain", &env).await;
    assert_eq!(out.code, Some(0), "{out:?}");
    let (cordoned, ledger) = of_node(&bench).await;
    let ledger = ledger.unwrap();
    assert!(cordoned && !ledger.before);
    assert_eq!(holders(&ledger), [("k3s", true)]);
    let requests = bench.drainer_requests().await.0;
    let patches: Vec<_> = requests
        .iter()
        .filter(|it| it.resource == "nodes" && it.verb == "patch")
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
        assert_eq!(Ledger::parse(text).unwrap().holders[0].passed, passed);
    }
    // A cordon has but one act.
    let env = bench.plan_env("other", "one", None).await;
    assert_eq!(run(&bench, "cordon", &env).await.code, Some(0));
    let (_, ledger) = of_node(&bench).await;
    let ledger = ledger.unwrap();
    assert_eq!(
        (ledger.before, holders(&ledger)),
        (false, vec![("k3s", true), ("other", true)])
    );
}

#[tokio::test]
async fn a_drain_that_is_killed_at_any_of_ten_points_keeps_what_was_before() {
    let bench = Bench::new(&["one"]).await;
    let node = bench.node("one");
    for before in [false, true] {
        for point in 0..5 {
            let edit = json!({
                "metadata": { "annotations": { "refit.rs/cordon": null } },
                "spec": { "unschedulable": before.then_some(true) },
            });
            bench.world.edit_node(&node, edit).await;
            bench.pods("one", ["a", "b"], json!({})).await;
            let env = bench.plan_env("k3s", "one", None).await;

            // The writes are: cordon, two evictions, the last act. Killed before the first, and after each.
            let faults = bench.world.faults(point).await;
            faults.add(match point {
                0 => Rule::write().nth(1).hang(),
                nth => Rule::write().nth(nth).late(Duration::from_secs(600)),
            });
            let mut drain = command(&bench, "drain", &env);
            drain.env("KUBECONFIG", faults.kubeconfig_for(&bench.drainer));
            let child = drain.spawn().unwrap();
            wait::eventually("the write has come", A_WHILE, async || {
                let acted = faults
                    .history()
                    .into_iter()
                    .any(|it| it.effect.is_some() && (point == 0 || it.code.is_some()));
                if acted {
                    Ok(())
                } else {
                    Err(format!("{} writes", faults.writes()))
                }
            })
            .await;
            signal(child.id().unwrap(), Signal::KILL).unwrap();
            let out = said(child, Instant::now()).await;
            assert_eq!(out.code, None, "killed: {out:?}");
            let (_, noted) = of_node(&bench).await;
            assert_eq!(noted.is_some(), point > 0, "point {point}");

            // The Job makes its pod anew.
            let out = run(&bench, "drain", &env).await;
            assert_eq!(out.code, Some(0), "point {point}: {out:?}");
            let (cordoned, noted) = of_node(&bench).await;
            let noted = noted.unwrap();
            assert!(cordoned);
            assert_eq!(
                (noted.before, holders(&noted)),
                (before, vec![("k3s", true)]),
                "point {point}"
            );
            assert!(bench.on_node("one").await.is_empty(), "point {point}");
        }
    }
}

#[tokio::test]
async fn a_person_who_uncordons_in_between_is_not_contradicted() {
    let bench = Bench::new(&["one"]).await;
    guarded(&bench).await;
    let env = bench.plan_env("k3s", "one", None).await;
    let drain = waiting(&bench, &env).await;
    // As `kubectl uncordon` does: the ledger stays until a controller sees it.
    bench.world.uncordon(&bench.node("one")).await;
    bench.open("guard").await;
    let out = said(drain.child, Instant::now()).await;
    assert_eq!(out.code, Some(0), "{out:?}");
    let (cordoned, _) = of_node(&bench).await;
    assert!(!cordoned, "a person's word");
    // Whoever cordons again begins anew: schedulable is what the node was.
    let edit = json!({ "metadata": { "annotations": {
        "refit.rs/cordon": Ledger { before: true, holders: Vec::new() }.to_text(),
    } } });
    bench.world.edit_node(&bench.node("one"), edit).await;
    assert_eq!(run(&bench, "cordon", &env).await.code, Some(0));
    assert!(!of_node(&bench).await.1.unwrap().before);
    // refit's own uncordon ends the ledger at once.
    let node = bench.node("one");
    assert_eq!(bench.run(Tool::Refit, &["uncordon", &node]).await.code, Some(0));
    assert_eq!(of_node(&bench).await, (false, None));
}

#[tokio::test]
async fn who_is_cancelled_meanwhile_does_not_get_through() {
    let bench = Bench::new(&["one"]).await;
    guarded(&bench).await;
    let env = bench.plan_env("k3s", "one", None).await;
    let drain = waiting(&bench, &env).await;
    let (_, noted) = of_node(&bench).await;
    let mut noted = noted.unwrap();
    noted.holders = noted
        .holders
        .into_iter()
        .map(|holder| Holder {
            cancelled: true,
            ..holder
        })
        .collect();
    let edit = json!({ "metadata": { "annotations": { "refit.rs/cordon": noted.to_text() } } });
    bench.world.edit_node(&bench.node("one"), edit).await;
    bench.open("guard").await;
    let out = said(drain.child, Instant::now()).await;
    assert_eq!(out.code, Some(1), "{out:?}");
    assert!(!out.stdout.contains(" drained"), "{out:?}");
    assert_eq!(
        of_node(&bench).await,
        (true, Some(noted.clone())),
        "the controller gives it back"
    );
    for verb in ["drain", "cordon"] {
        let out = run(&bench, verb, &env).await;
        assert_eq!(out.code, Some(1), "{out:?}");
        assert!(out.last_line().contains("cancelled by the controller"), "{out:?}");
    }
    assert_eq!(of_node(&bench).await.1, Some(noted));
}

#[tokio::test]
async fn another_machine_of_the_same_name_is_left_alone() {
    let bench = Bench::new(&["one"]).await;
    bench.pods("one", ["a"], json!({})).await;
    let mut env = bench.plan_env("k3s", "one", None).await;
    env.insert("REFIT_NODE_UID".to_owned(), "of-the-old-machine".to_owned());
    for verb in ["drain", "cordon"] {
        let out = run(&bench, verb, &env).await;
        assert_eq!(out.code, Some(1), "{out:?}");
        assert!(out.last_line().contains("is another machine now"), "{out:?}");
    }
    assert_eq!(of_node(&bench).await, (false, None));
    assert_eq!(bench.on_node("one").await.len(), 1);
}

#[tokio::test]
async fn how_far_it_is_and_what_it_waits_for_is_on_its_own_pod() {
    let bench = Bench::new(&["one"]).await;
    guarded(&bench).await;
    bench.pods("one", ["a"], json!({})).await;
    let own = bench.pod("one", "own", json!({ "mirror": true })).await;
    let env = bench.plan_env("k3s", "one", Some(&own)).await;
    let _drain = waiting(&bench, &env).await;
    let refused = Instant::now();
    let note = |pod: &k8s_openapi::api::core::v1::Pod| {
        let text = pod.metadata.annotations.as_ref()?.get("refit.rs/drain")?;
        refit::api::DrainNote::parse(text)
    };
    let names_it =
        |pod: &k8s_openapi::api::core::v1::Pod| note(pod).is_some_and(|note| !note.waiting.is_empty());
    let pod = wait::object(
        bench.world.pods(),
        "own",
        "names what it waits for",
        A_WHILE,
        names_it,
    )
    .await;
    assert!(
        refused.elapsed() < Duration::from_secs(9),
        "{:?}",
        refused.elapsed()
    );
    let waits = note(&pod).unwrap().waiting;
    assert_eq!(waits[0].pdb.as_deref(), Some("guard"));
    assert!(waits[0].pod.ends_with("/web-1"), "{waits:?}");
}
