//! Jobs that fail: what is said, what stands still, and what makes it go on (S59, S61).

use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::DeleteParams;
use refit::api::{Plan, PlanCondition};
use serde_json::json;

use crate::harness::{Harness, applying, both, hash, is_recorded, record, steer};
use crate::scenario::Backend;
use crate::testenv::context::cluster::{done, find_condition};
use crate::testenv::controller::Controller;
use crate::testenv::wait::{self, SOON};

scenarios! {
    both {
        a_job_that_takes_longer_than_its_deadline_says_so,
        a_job_tries_again_by_itself_as_often_as_its_backoff_limit_says,
    }
    in_process {
        a_failed_job_is_replaced_within_five_seconds_of_an_edit,
        a_failure_holds_its_slot_names_its_reason_and_survives_everything,
    }
}

/// A controller whose Jobs try once.
fn one_try(harness: &Harness) -> Controller {
    harness
        .ctx
        .controller()
        .env("SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT", "0")
        .start()
}

/// Waits until the Plan says `JobFailed`.
async fn job_failed(harness: &Harness, plan: &str) -> PlanCondition {
    let failed = |plan: &Plan| {
        find_condition(plan, "Complete").is_some_and(|it| it.reason.as_deref() == Some("JobFailed"))
    };
    let plan = harness.ctx.plan_until(plan, "says JobFailed", SOON, failed).await;
    find_condition(&plan, "Complete").unwrap().clone()
}

/// Waits until the controller has answered to an edit of the Plan that changes nothing for its Jobs.
async fn looked_at(harness: &Harness, plan: &str) {
    let now = harness.ctx.plans().get(plan).await.unwrap();
    let other = now.spec.post_complete_labels.unwrap_or_default().len() + 1;
    let edited = harness
        .edit(
            plan,
            json!({ "postCompleteLabels": { format!("round-{other}"): "x" } }),
        )
        .await;
    let seen = |plan: &Plan| plan.status.as_ref().unwrap().observed_generation >= edited.metadata.generation;
    harness.ctx.plan_until(plan, "is looked at", SOON, seen).await;
}

async fn a_failed_job_is_replaced_within_five_seconds_of_an_edit(on: Backend) {
    // A suite that looks after five seconds must not find the old one.
    let limit = Duration::from_secs(5);
    wait::measures_below("the next Job", limit, async || replaced_within(on).await).await;
}

/// How long after the edit of a Plan its failed Job is replaced.
async fn replaced_within(on: Backend) -> Duration {
    let harness = on.harness(["one"]).await;
    let _controller = one_try(&harness);
    let bad = both(
        steer(&[("exit-code", "1")]),
        json!({ "spec": { "upgrade": { "args": ["exit 1"] } } }),
    );
    harness.plan("fixed", bad).await;
    let condition = job_failed(&harness, "fixed").await;
    assert_eq!(condition.status, "False");
    let failed = harness
        .job_until("fixed", "one", "is recorded", is_recorded)
        .await;
    assert_eq!(harness.ctx.jobs_of("fixed").await.len(), 1);
    assert!(failed.status.as_ref().unwrap().failed >= Some(1));
    let before = hash(&harness.ctx.plans().get("fixed").await.unwrap());

    let good = both(
        steer(&[("exit-code", "0")]),
        json!({ "spec": { "upgrade": { "args": ["exit 0"] } } }),
    );
    harness.ctx.edit_plan("fixed", good).await;
    let next = harness
        .job_until("fixed", "one", "is another", |job| job.uid() != failed.uid())
        .await;
    // By the API server's clock: the test may be slow to look.
    let requests = harness.ctx.requests().await.0;
    let last = |verb: &str, resource: &str| {
        let asked = requests
            .iter()
            .rfind(|it| it.verb == verb && it.resource == resource && it.code < 300);
        asked.unwrap().at
    };
    let took = last("create", "jobs").duration_since(last("patch", "plans"));
    assert_eq!(
        next.name_any(),
        failed.name_any(),
        "an edit of the arguments is no other hash"
    );

    assert_eq!(harness.complete("fixed").await, before);
    let jobs = harness.ctx.jobs_of("fixed").await;
    assert_eq!(jobs.len(), 1);
    let status = jobs[0].status.as_ref().unwrap();
    assert_eq!((status.succeeded, status.failed.unwrap_or(0)), (Some(1), 0));
    assert_eq!(jobs[0].annotations()["refit.rs/attempt"], "2");
    let node = harness.done("fixed", "one", &before).await;
    assert_eq!(record(&node, "fixed"), None);
    assert_eq!(harness.made().await.len(), 2);
    harness.all_recorded("fixed").await;
    assert_eq!(harness.event_lines("JobFailed").await.len(), 1);
    assert_eq!(harness.event_lines("JobComplete").await.len(), 1);
    took.unsigned_abs()
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
        message.contains("DeadlineExceeded: Job was active longer than specified deadline"),
        "{message}"
    );
    let failed = harness.phase("sleeps", "one", "Failed").await;
    assert_eq!(failed.reason.as_deref(), Some("DeadlineExceeded"));
    let node = harness.get("one").await;
    assert_eq!(done(&node, "sleeps"), None);
    assert_eq!(record(&node, "sleeps").unwrap()["phase"], "Failed");
}

async fn a_failure_holds_its_slot_names_its_reason_and_survives_everything(on: Backend) {
    let harness = on
        .harness_with(["one", "two"], |set| {
            set.steer("upgrade.exit-code", "7")
                .steer("upgrade.message", "no space left on device")
        })
        .await;
    let controller = one_try(&harness);
    harness.plan("fails", json!({})).await;
    let condition = job_failed(&harness, "fails").await;
    let made = harness.made().await;
    let [job] = &made[..] else { panic!("{made:#?}") };
    let namespace = harness.ctx.namespace();
    let expected = format!(
        "Job {namespace}/{} failed on Node {}: BackoffLimitExceeded: Job has reached the specified backoff limit: \
         container upgrade exited with 7: no space left on device",
        job.name, job.node
    );
    assert_eq!(condition.message.as_deref(), Some(&*expected));
    harness.expect_events("JobFailed", [expected.clone()]).await;

    // Neither the loss of the Job, nor another controller, nor an edit of something else tries it again.
    harness.recorded(&job.name).await;
    harness
        .ctx
        .jobs()
        .delete(&job.name, &DeleteParams::background())
        .await
        .unwrap();
    wait::gone(harness.ctx.jobs(), &job.name, SOON).await;
    looked_at(&harness, "fails").await;
    controller.kill();
    let _controller = controller.start_again();
    looked_at(&harness, "fails").await;
    assert_eq!(
        job_failed(&harness, "fails").await.message.as_deref(),
        Some(&*expected)
    );
    let plan = harness.ctx.plans().get("fails").await.unwrap();
    assert_eq!(applying(&plan), [&*job.node], "it keeps its slot");
    let counts = plan.status.as_ref().unwrap().nodes.unwrap();
    assert_eq!(
        (counts.selected, counts.applying, counts.failed, counts.waiting),
        (2, 0, 1, 1)
    );
    assert_eq!(harness.made().await.len(), 1);
    assert_eq!(harness.event_lines("JobFailed").await.len(), 1);

    // A user requests a retry.
    for node in ["one", "two"] {
        harness.behave(node, &[("upgrade.exit-code", "0")]).await;
    }
    harness
        .ctx
        .annotate_node(&job.node, "refit.rs/retry", Some("fails"))
        .await;
    let plan_hash = harness.complete("fails").await;
    let retried = harness.ctx.node(&job.node).await;
    assert!(
        !retried.annotations().contains_key("refit.rs/retry"),
        "the wish is granted once"
    );
    assert_eq!(done(&retried, "fails"), Some(plan_hash));
    assert_eq!(harness.made().await.len(), 3);
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
