//! `spec.before` and `spec.after`: a Job each, once for each roll-out.

use kube::ResourceExt as _;
use kube::api::ListParams;
use refit_api::names::{ANNOTATION_RETRY, LABEL_HOOK};
use refit_api::{HookPhase, Plan};
use serde_json::{Value, json};

use crate::harness::{Harness, both, steer};
use crate::scenario::Backend;
use crate::testenv::plan::{says, status};
use crate::testenv::wait::SOON;

scenarios! {
    both {
        no_node_starts_before_before_has_succeeded_and_the_plan_is_complete_after_after,
    }
}

/// The hooks, on the nodes of the test: others share the control plane.
fn hooks(harness: &Harness) -> Value {
    let place = json!({ "kubernetes.io/hostname": harness.node("one") });
    let hook = |image: &str| json!({ "image": format!("example.com/{image}"), "nodeSelector": place });
    json!({ "spec": { "before": hook("snapshot"), "after": hook("smoke") } })
}

/// The Jobs of hooks in the namespace of the test: their names begin with that of their field.
async fn jobs(harness: &Harness) -> Vec<String> {
    let ours = ListParams::default().labels(LABEL_HOOK);
    let jobs = harness.ctx.jobs().list(&ours).await.unwrap();
    jobs.iter().map(|job| job.labels()[LABEL_HOOK].clone()).collect()
}

async fn no_node_starts_before_before_has_succeeded_and_the_plan_is_complete_after_after(backend: Backend) {
    let harness = backend.harness(["one", "two"]).await;
    let setup = || {
        harness
            .ctx
            .controller()
            .env("SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT", "0")
    };
    let mut controller = setup().start();
    let fails = steer(&[("before.exit-code", "3"), ("before.message", "no space left")]);
    harness.plan("p", both(hooks(&harness), fails)).await;
    let failed = |plan: &Plan| says(plan, "Complete").starts_with("False/BeforeFailed/");
    let plan = harness
        .ctx
        .plan_until("p", "has failed before it began", SOON, failed)
        .await;
    let said = says(&plan, "Complete");
    assert!(
        said.contains("container before exited with 3: no space left ("),
        "{said}"
    );
    assert!(
        says(&plan, "Degraded").starts_with("True/BeforeFailed/"),
        "{plan:?}"
    );
    let job = status(&plan).before.unwrap().job;

    controller.kill();
    controller = controller.start_again();
    let mended = steer(&[("before.exit-code", "0")]);
    let retry = json!({ "metadata": { "annotations": { ANNOTATION_RETRY: job } } });
    harness.ctx.edit_plan("p", both(mended, retry)).await;
    harness.complete("p").await;
    let plan = harness.ctx.plans().get("p").await.unwrap();
    let [before, after] = [status(&plan).before.unwrap(), status(&plan).after.unwrap()];
    assert_eq!((before.phase, before.attempt), (HookPhase::Succeeded.into(), 2));
    assert_eq!((after.phase, after.attempt), (HookPhase::Succeeded.into(), 1));
    assert_eq!(jobs(&harness).await, ["after", "before", "before"]);
    for node in ["one", "two"] {
        assert_eq!(harness.runs(node, "upgrade").await, 1, "{node}");
    }
    // In the order of the API server's log.
    let made = harness.made().await;
    let names: Vec<&str> = made.iter().map(|job| job.name.as_str()).collect();
    let kinds: Vec<&str> = names.iter().filter_map(|name| name.split('-').next()).collect();
    assert_eq!(
        kinds,
        ["before", "before", "apply", "apply", "after"],
        "{names:?}"
    );
    drop(controller);
}
