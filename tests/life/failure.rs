//! Jobs that fail: what is said, what stands still, and what makes it go on (S59, S61).

use std::time::{Duration, Instant};

use kube::ResourceExt as _;
use kube::api::DeleteParams;
use refit::api::{Plan, PlanCondition};
use serde_json::json;

use crate::scene::{A_WHILE, Scene, applying, both, has_condition, hash, is_recorded, record, steer};
use crate::support::controller::Controller;
use crate::support::wait::{self, SOON};
use crate::support::world::cluster::{done, find_condition};

/// A controller whose Jobs try once.
fn one_try(scene: &Scene) -> Controller {
    scene
        .world
        .controller()
        .env("SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT", "0")
        .start()
}

/// Waits until the Plan says `JobFailed`.
async fn job_failed(scene: &Scene, plan: &str) -> PlanCondition {
    let failed = |plan: &Plan| {
        find_condition(plan, "Complete").is_some_and(|it| it.reason.as_deref() == Some("JobFailed"))
    };
    let plan = scene
        .world
        .plan_until(plan, "says JobFailed", A_WHILE, failed)
        .await;
    find_condition(&plan, "Complete").unwrap().clone()
}

/// Waits until the controller has answered to an edit of the Plan that changes nothing for its Jobs.
async fn looked_at(scene: &Scene, plan: &str) {
    let now = scene.world.plans().get(plan).await.unwrap();
    let other = now.spec.post_complete_labels.unwrap_or_default().len() + 1;
    let edited = scene
        .edit(
            plan,
            json!({ "postCompleteLabels": { format!("round-{other}"): "x" } }),
        )
        .await;
    let seen = |plan: &Plan| plan.status.as_ref().unwrap().observed_generation >= edited.metadata.generation;
    scene.world.plan_until(plan, "is looked at", SOON, seen).await;
}

#[tokio::test]
async fn a_failed_job_is_replaced_within_five_seconds_of_an_edit() {
    let scene = Scene::new(["one"]).await;
    let _controller = one_try(&scene);
    let bad = both(
        steer(&[("exit-code", "1")]),
        json!({ "spec": { "upgrade": { "args": ["exit 1"] } } }),
    );
    scene.plan("fixed", bad).await;
    let condition = job_failed(&scene, "fixed").await;
    assert_eq!(condition.status, "False");
    let failed = scene.job_until("fixed", "one", "is recorded", is_recorded).await;
    assert_eq!(scene.world.jobs_of("fixed").await.len(), 1);
    assert!(failed.status.as_ref().unwrap().failed >= Some(1));
    let before = hash(&scene.world.plans().get("fixed").await.unwrap());

    let good = both(
        steer(&[("exit-code", "0")]),
        json!({ "spec": { "upgrade": { "args": ["exit 0"] } } }),
    );
    scene.world.edit_plan("fixed", good).await;
    let edited = Instant::now();
    let next = scene
        .job_until("fixed", "one", "is another", |job| job.uid() != failed.uid())
        .await;
    let took = edited.elapsed();
    assert!(
        took < Duration::from_secs(5),
        "it took {took:?}, and a suite that looks after 5 s finds the old one"
    );
    assert_eq!(
        next.name_any(),
        failed.name_any(),
        "an edit of the arguments is no other hash"
    );

    assert_eq!(scene.complete("fixed").await, before);
    let jobs = scene.world.jobs_of("fixed").await;
    assert_eq!(jobs.len(), 1);
    let status = jobs[0].status.as_ref().unwrap();
    assert_eq!((status.succeeded, status.failed.unwrap_or(0)), (Some(1), 0));
    assert_eq!(jobs[0].annotations()["refit.rs/attempt"], "2");
    let node = scene.done("fixed", "one", &before).await;
    assert_eq!(record(&node, "fixed"), None);
    assert_eq!(scene.made().await.len(), 2);
    assert_eq!(scene.told("JobFailed").await.len(), 1);
    assert_eq!(scene.told("JobComplete").await.len(), 1);
}

#[tokio::test]
async fn a_job_that_takes_longer_than_its_deadline_says_so() {
    let scene = Scene::new(["one"]).await;
    let _controller = scene.world.controller().start();
    let sleeps = both(
        steer(&[("run-delay", "never")]),
        json!({ "spec": { "jobActiveDeadlineSecs": 3 } }),
    );
    scene.plan("sleeps", sleeps).await;
    let condition = job_failed(&scene, "sleeps").await;
    assert_ne!(condition.status, "True");
    let message = condition.message.unwrap();
    assert!(
        message.contains("DeadlineExceeded: Job was active longer than specified deadline"),
        "{message}"
    );
    let failed = scene.phase("sleeps", "one", "Failed").await;
    assert_eq!(failed.reason.as_deref(), Some("DeadlineExceeded"));
    let node = scene.world.node(&scene.node("one")).await;
    assert_eq!(done(&node, "sleeps"), None);
    assert_eq!(record(&node, "sleeps").unwrap()["phase"], "Failed");
}

#[tokio::test]
async fn a_failure_holds_its_slot_names_its_reason_and_survives_everything() {
    let scene = Scene::with(["one", "two"], |set| {
        set.steer("upgrade.exit-code", "7")
            .steer("upgrade.message", "no space left on device")
    })
    .await;
    let controller = one_try(&scene);
    scene.plan("fails", json!({})).await;
    let condition = job_failed(&scene, "fails").await;
    let made = scene.made().await;
    let [job] = &made[..] else { panic!("{made:#?}") };
    let namespace = scene.world.namespace();
    let expected = format!(
        "Job {namespace}/{} failed on Node {}: BackoffLimitExceeded: Job has reached the specified backoff limit: \
         container upgrade exited with 7: no space left on device",
        job.name, job.node
    );
    assert_eq!(condition.message.as_deref(), Some(&*expected));
    scene.told_exactly("JobFailed", [expected.clone()]).await;

    // Neither the loss of the Job, nor another controller, nor an edit of something else tries it again.
    wait::object(scene.world.jobs(), &job.name, "is recorded", SOON, is_recorded).await;
    scene
        .world
        .jobs()
        .delete(&job.name, &DeleteParams::background())
        .await
        .unwrap();
    wait::gone(scene.world.jobs(), &job.name, SOON).await;
    looked_at(&scene, "fails").await;
    controller.kill();
    let _controller = controller.start_again();
    looked_at(&scene, "fails").await;
    assert_eq!(
        job_failed(&scene, "fails").await.message.as_deref(),
        Some(&*expected)
    );
    let plan = scene.world.plans().get("fails").await.unwrap();
    assert_eq!(applying(&plan), [&*job.node], "it keeps its slot");
    let counts = plan.status.as_ref().unwrap().nodes.unwrap();
    assert_eq!(
        (counts.selected, counts.applying, counts.failed, counts.waiting),
        (2, 0, 1, 1)
    );
    assert_eq!(scene.made().await.len(), 1);
    assert_eq!(scene.told("JobFailed").await.len(), 1);

    // A person asks for another try.
    for node in ["one", "two"] {
        scene
            .kubelet
            .behaviour(&scene.node(node), &[("upgrade.exit-code", "0")])
            .await;
    }
    scene
        .world
        .annotate_node(&job.node, "refit.rs/retry", Some("fails"))
        .await;
    let plan_hash = scene.complete("fails").await;
    let retried = scene.world.node(&job.node).await;
    assert!(
        !retried.annotations().contains_key("refit.rs/retry"),
        "the wish is granted once"
    );
    assert_eq!(done(&retried, "fails"), Some(plan_hash));
    assert_eq!(scene.made().await.len(), 3);
}

#[tokio::test]
async fn other_nodes_go_on_beside_a_failure_and_it_is_still_told() {
    let scene = Scene::with(["bad", "good", "fine"], |set| {
        set.each(|index, node| {
            if index == 0 {
                node.annotations
                    .insert("fake-kubelet/upgrade.exit-code".to_owned(), "1".to_owned());
            }
        })
    })
    .await;
    let _controller = one_try(&scene);
    scene.plan("half", json!({ "spec": { "concurrency": 2 } })).await;
    let all_but_one = |plan: &Plan| {
        let counts = plan
            .status
            .as_ref()
            .and_then(|status| status.nodes)
            .unwrap_or_default();
        (counts.done, counts.failed) == (2, 1)
    };
    let plan = scene
        .world
        .plan_until("half", "has done what it can", A_WHILE, all_but_one)
        .await;
    let plan_hash = hash(&plan);
    let condition = job_failed(&scene, "half").await;
    assert!(
        condition
            .message
            .unwrap()
            .contains(&format!("failed on Node {}: ", scene.node("bad")))
    );
    scene
        .made_once_each(["bad", "good", "fine"].map(|node| (node, &*plan_hash)))
        .await;
    assert_eq!(
        applying(&scene.world.plans().get("half").await.unwrap()),
        [scene.node("bad")]
    );
    assert_eq!(scene.world.controller_requests().await.most_applying("half"), 2);
}

#[tokio::test]
async fn a_job_tries_again_by_itself_as_often_as_its_backoff_limit_says() {
    let scene = Scene::with(["one"], |set| set.steer("upgrade.exit-code-first", "1")).await;
    let _controller = scene
        .world
        .controller()
        .env("SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT", "1")
        .start();
    scene.plan("second-try", json!({})).await;
    let plan_hash = scene.complete("second-try").await;
    scene.made_once_each([("one", &plan_hash)]).await;
    assert_eq!(scene.runs("one", "upgrade").await, 2);
    assert_eq!(scene.told("JobFailed").await.len(), 0);
}

#[tokio::test]
async fn a_new_version_goes_on_where_the_old_one_failed() {
    let scene = Scene::with(["one"], |set| set.steer("upgrade.exit-code", "1")).await;
    let _controller = one_try(&scene);
    scene.plan("better", json!({ "spec": { "version": "v1" } })).await;
    job_failed(&scene, "better").await;
    let old = scene.job_until("better", "one", "is recorded", is_recorded).await;
    scene
        .kubelet
        .behaviour(&scene.node("one"), &[("upgrade.exit-code", "0")])
        .await;
    scene.edit("better", json!({ "version": "v2" })).await;
    let plan_hash = scene.complete("better").await;
    let node = scene.done("better", "one", &plan_hash).await;
    assert_eq!(record(&node, "better"), None);
    let made = scene.made().await;
    assert_eq!(made.len(), 2);
    assert_eq!(made[1].hash, plan_hash);
    let kept = scene.world.jobs().get(&old.name_any()).await.unwrap();
    assert!(
        has_condition(&kept, "Failed"),
        "what failed stays for its TTL, to be looked at"
    );
    assert!(kept.spec.unwrap().ttl_seconds_after_finished.is_some());
}
