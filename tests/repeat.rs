//! `spec.repeat`: done nodes run the Plan again at the same version.

use kube::ResourceExt as _;
use refit_api::{Plan, names};
use serde_json::json;

use crate::scenario::Backend;
use crate::testenv::plan::status;
use crate::testenv::wait::SOON;

scenarios! {
    both {
        done_nodes_run_a_plan_that_repeats_again_at_the_same_version,
    }
}

async fn done_nodes_run_a_plan_that_repeats_again_at_the_same_version(backend: Backend) {
    let harness = backend.harness(["one", "two"]).await;
    let mut controller = harness.ctx.start_and_warm_up().await;
    harness.plan_with("p", json!({ "concurrency": 2 })).await;
    let first = harness.complete("p").await;

    // The next minute, which no test can choose: this one waits for it.
    harness
        .edit("p", json!({ "repeat": { "cron": "* * * * *" } }))
        .await;
    let repeats = |plan: &Plan| status(plan).repeat.is_some_and(|repeat| repeat.since.is_some());
    harness.ctx.plan_until("p", "repeats", SOON, repeats).await;
    controller.kill();
    controller = controller.start_again();
    // Without it the repetition continues, and no other one begins.
    harness.edit("p", json!({ "repeat": null })).await;
    let is_over = |plan: &Plan| {
        let (repeat, history) = (status(plan).repeat.unwrap(), status(plan).history.unwrap());
        // On a slow machine there may be more than one.
        history[0].repeat == repeat.since && history[0].complete == Some(true)
    };
    let plan = harness.ctx.plan_until("p", "has repeated", SOON, is_over).await;
    let hash = harness.complete("p").await;
    assert_ne!(hash, first);
    let label = names::plan_label("p");
    for node in ["one", "two"] {
        assert!(harness.runs(node, "upgrade").await >= 2, "{node}");
        assert_eq!(harness.get(node).await.metadata.labels.unwrap()[&label], hash);
    }
    let jobs = harness.ctx.jobs_of("p").await;
    let of_repetition = jobs.iter().filter(|job| job.labels()[&label] == hash);
    assert_eq!(of_repetition.count(), 2, "Jobs of their own");
    let history = status(&plan).history.unwrap();
    let (last, begin) = (&history[0], history.last().unwrap());
    assert_eq!(last.version, begin.version);
    assert!(last.repeat.is_some() && begin.repeat.is_none());
    assert_eq!((last.nodes, begin.nodes), (2, 2));
    assert_eq!((&last.hash, &begin.hash), (&hash, &first));
    drop(controller);
}
