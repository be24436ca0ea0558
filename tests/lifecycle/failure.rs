//! Jobs that fail, as the Job controller fails and retries them (S59, S61).

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, Patch, PatchParams};
use refit_api::{Plan, PlanCondition};
use serde_json::json;

use crate::harness::{Harness, both, record, steer};
use crate::scenario::Backend;
use crate::testenv::context::cluster::{done, find_condition};
use crate::testenv::wait::SOON;

scenarios! {
    both {
        a_job_that_takes_longer_than_its_deadline_says_so,
        a_job_tries_again_by_itself_as_often_as_its_backoff_limit_says,
    }
    real {
        a_pod_that_pod_security_forbids_is_the_reason_while_the_job_lasts_and_when_it_has_failed,
    }
}

/// Waits until the Plan says `JobFailed`.
async fn job_failed(harness: &Harness, plan: &str) -> PlanCondition {
    let failed = |plan: &Plan| {
        find_condition(plan, "Complete").is_some_and(|it| it.reason.as_deref() == Some("JobFailed"))
    };
    let plan = harness.ctx.plan_until(plan, "says JobFailed", SOON, failed).await;
    find_condition(&plan, "Complete").unwrap().clone()
}

async fn a_job_that_takes_longer_than_its_deadline_says_so(on: Backend) {
    let harness = on.harness(["one"]).await;
    let _controller = harness.ctx.controller().start();
    let sleeps = both(
        steer(&[("run-delay", "never")]),
        json!({ "spec": { "jobActiveDeadlineSecs": 3 } }),
    );
    harness.plan("sleeps", sleeps).await;
    let condition = job_failed(&harness, "sleeps").await;
    assert_ne!(condition.status, "True");
    let message = condition.message.unwrap();
    assert!(
        message.contains(": DeadlineExceeded: ")
            && message.ends_with("Job was active longer than specified deadline"),
        "{message}"
    );
    let failed = harness.phase("sleeps", "one", "Failed").await;
    assert_eq!(failed.reason.as_deref(), Some("DeadlineExceeded"));
    let node = harness.get("one").await;
    assert_eq!(done(&node, "sleeps"), None);
    assert_eq!(record(&node, "sleeps").unwrap()["phase"], "Failed");
}

async fn a_job_tries_again_by_itself_as_often_as_its_backoff_limit_says(on: Backend) {
    let harness = on
        .harness_with(["one"], |set| set.steer("upgrade.exit-code-first", "1"))
        .await;
    let _controller = harness
        .ctx
        .controller()
        .env("SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT", "1")
        .start();
    harness.plan("second-try", json!({})).await;
    let plan_hash = harness.complete("second-try").await;
    harness.made_once_each([("one", &plan_hash)]).await;
    assert_eq!(harness.runs("one", "upgrade").await, 2);
    assert_eq!(harness.event_lines("JobFailed").await.len(), 0);
}

/// The simulated API server refuses no pods.
async fn a_pod_that_pod_security_forbids_is_the_reason_while_the_job_lasts_and_when_it_has_failed() {
    let harness = Backend::Real.harness(["one"]).await;
    let namespaces: Api<Namespace> = Api::all(harness.ctx.client.clone());
    let restricted =
        json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
    namespaces
        .patch(
            harness.ctx.namespace(),
            &PatchParams::default(),
            &Patch::Merge(restricted),
        )
        .await
        .unwrap();
    let _controller = harness.ctx.controller().start();
    harness
        .plan_with("refused", json!({ "jobActiveDeadlineSecs": 60 }))
        .await;
    let waits = harness.held_up("refused", "one", "PodRefused").await;
    assert_eq!(waits.phase, "Pending");
    let words = "violates PodSecurity \"restricted:latest\"";
    let says = waits.message.unwrap();
    assert!(says.contains(words), "{says}");
    let message = job_failed(&harness, "refused").await.message.unwrap();
    assert!(
        message.contains(": PodRefused: ") && message.contains(words),
        "{message}"
    );
    let failed = harness.phase("refused", "one", "Failed").await;
    assert_eq!(failed.reason.as_deref(), Some("PodRefused"));
    assert!(failed.message.unwrap().contains(words));
}
