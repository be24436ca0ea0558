//! The swap: what system-upgrade-controller leaves on a cluster is taken up as if refit had done it, and nothing runs
//! twice.

use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use refit_api::Plan;
use refit_job::digest::plan_hash;
use refit_job::name::job_name;
use serde_json::{Value, json};

use crate::harness::{Harness, has_condition, hash, label};
use crate::scenario::Backend;
use crate::testenv::context::cluster::{create, find_condition};
use crate::testenv::wait::{self, SOON};

scenarios! {
    in_process {
        nodes_that_system_upgrade_controller_has_done_stay_done,
        a_failed_job_is_recorded_and_not_run_again_at_start_or_restart,
    }
}

/// Plans, and the Jobs that system-upgrade-controller itself made of them.
const SUC_JOBS: &str = include_str!("../../src/job/render/suc_jobs.yaml");

/// When system-upgrade-controller wrote its conditions.
const THEN: &str = "2026-01-02T03:04:05Z";

/// The k3OS Plan as system-upgrade-controller left it: its spec, and its status with these nodes under way.
pub(crate) async fn plan_of_suc(harness: &Harness, under_way: &[&str]) -> Plan {
    let selector = json!({ "matchExpressions": [{ "key": "kubernetes.io/os", "operator": "Exists" }] });
    let spec = json!({ "nodeSelector": selector, "drain": { "force": true } });
    let plan = harness.plan_with("k3os-latest", spec).await;
    let hash = plan_hash(&plan, "v1", std::iter::empty::<&str>());
    let condition = |type_: &str, status: &str, reason: &str| json!({ "type": type_, "status": status, "reason": reason, "lastUpdateTime": THEN });
    let (status, reason) = if under_way.is_empty() {
        ("True", "Complete")
    } else {
        ("False", "SyncJob")
    };
    let mut left = json!({
        "conditions": [
            condition("Complete", status, reason),
            condition("Validated", "True", "PlanIsValid"),
            condition("LatestResolved", "True", "Version"),
        ],
        "latestVersion": "v1",
        "latestHash": hash,
    });
    if !under_way.is_empty() {
        left["applying"] = under_way.iter().map(|node| harness.node(node)).collect();
    }
    let patch = Patch::Merge(json!({ "status": left }));
    harness
        .ctx
        .plans()
        .patch_status("k3os-latest", &PatchParams::default(), &patch)
        .await
        .unwrap()
}

/// The Job that system-upgrade-controller made for that Plan on a node.
pub(crate) async fn job_of_suc(harness: &Harness, plan: &Plan, node: &str, parallelism: i32) -> Job {
    let made: Vec<Value> = serde_saphyr::from_str(SUC_JOBS).unwrap();
    let made = made
        .iter()
        .find(|made| made["plan"]["metadata"]["name"] == "k3os-latest")
        .unwrap();
    let (plan_hash, node) = (hash(plan), harness.node(node));
    let recorded = &made["plan"]["status"];
    let text = made["job"].to_string();
    let text = text
        .replace(recorded["latestHash"].as_str().unwrap(), &plan_hash)
        .replace(recorded["latestVersion"].as_str().unwrap(), "v1")
        .replace(made["node"]["name"].as_str().unwrap(), &node)
        // What is left of it is the hostname.
        .replace("\"k3os-1\"", &format!("{node:?}"))
        .replace("k3os-upgrade", "system-upgrade");
    let mut job: Value = serde_json::from_str(&text).unwrap();
    job["metadata"]["name"] = json!(job_name("k3os-latest", &node, &plan_hash));
    job["metadata"]["namespace"] = json!(harness.ctx.namespace());
    // What its library adds (S32).
    let library = "objectset.rio.cattle.io";
    job["metadata"]["labels"][format!("{library}/hash")] = json!("9f2ac612f7e407418de10c3f7b09695f3acb1dfa");
    for (key, value) in [
        ("id", "system-upgrade-controller"),
        ("owner-gvk", "upgrade.cattle.io/v1, Kind=Plan"),
        ("owner-name", "k3os-latest"),
        ("owner-namespace", harness.ctx.namespace()),
        ("applied", "H4sIAAAAAAAA"),
    ] {
        job["metadata"]["annotations"][format!("{library}/{key}")] = json!(value);
    }
    job["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "name": "k3os-latest", "uid": plan.uid().unwrap(),
        "controller": true, "blockOwnerDeletion": false,
    }]);
    job["spec"]["parallelism"] = json!(parallelism);
    job["spec"]["backoffLimit"] = json!(0);
    job["spec"]
        .as_object_mut()
        .unwrap()
        .retain(|_, value| !value.is_null());
    create(&harness.ctx.jobs(), job).await
}

/// Waits until a Job has that condition.
async fn ended(harness: &Harness, job: &Job, condition: &str) -> Job {
    let what = format!("is {condition}");
    wait::object(harness.ctx.jobs(), &job.name_any(), &what, SOON, |job| {
        has_condition(job, condition)
    })
    .await
}

/// Waits until the controller has seen the Plan and written its status.
async fn taken_up(harness: &Harness) -> Plan {
    harness
        .ctx
        .plan_until("k3os-latest", "is taken up", SOON, |plan| {
            plan.status
                .as_ref()
                .is_some_and(|status| status.observed_generation.is_some())
        })
        .await
}

async fn nodes_that_system_upgrade_controller_has_done_stay_done(on: Backend) {
    let harness = on.harness(["one", "two"]).await;
    let plan = plan_of_suc(&harness, &[]).await;
    for node in ["one", "two"] {
        harness
            .ctx
            .label_node(&harness.node(node), &label("k3os-latest"), Some(&hash(&plan)))
            .await;
    }
    let _controller = harness.ctx.controller().start();
    let now = taken_up(&harness).await;

    // Its values are taken over: the hash, and since when each condition has said what it says.
    assert_eq!(hash(&now), hash(&plan));
    for condition in ["Complete", "Validated", "LatestResolved"] {
        let (then, now) = (
            find_condition(&plan, condition).unwrap(),
            find_condition(&now, condition).unwrap(),
        );
        assert_eq!(
            (&now.status, &now.reason, &now.message),
            (&then.status, &then.reason, &then.message)
        );
        assert_eq!(now.last_update_time.as_deref(), Some(THEN), "{condition}");
    }
    assert_eq!(now.status.as_ref().unwrap().progress.as_deref(), Some("2/2"));
    // A node that comes later is done, and only that one.
    let _late = harness.more(["late"], |set| set).await;
    harness.done("k3os-latest", "late", &hash(&plan)).await;
    harness.made_once_each([("late", &hash(&plan))]).await;
}

async fn a_failed_job_is_recorded_and_not_run_again_at_start_or_restart(on: Backend) {
    let harness = on
        .harness_with(["one"], |set| set.steer("upgrade.exit-code", "3"))
        .await;
    let plan = plan_of_suc(&harness, &["one"]).await;
    let job = job_of_suc(&harness, &plan, "one", 1).await;
    ended(&harness, &job, "Failed").await;

    let mut controller = harness.ctx.controller().start();
    for _ in 0..2 {
        let failed = harness.phase("k3os-latest", "one", "Failed").await;
        assert_eq!(failed.job.as_deref(), Some(&*job.name_any()));
        assert_eq!(failed.reason.as_deref(), Some("BackoffLimitExceeded"));
        let plan = harness
            .ctx
            .plan_condition("k3os-latest", "Complete", "False", SOON)
            .await;
        assert_eq!(
            find_condition(&plan, "Complete").unwrap().reason.as_deref(),
            Some("JobFailed")
        );
        harness.recorded(&job.name_any()).await;
        controller.kill();
        controller = controller.start_again();
        controller.leading().await;
        // It has decided at least once when it has answered to this.
        let edited = harness.edit(
            "k3os-latest",
            json!({ "postCompleteLabels": { "round": controller.pid().to_string() } }),
        );
        let generation = edited.await.metadata.generation;
        let seen = |plan: &Plan| {
            plan.status
                .as_ref()
                .is_some_and(|status| status.observed_generation >= generation)
        };
        harness.ctx.plan_until("k3os-latest", "is seen", SOON, seen).await;
    }
    harness.made_once_each([]).await;
    assert_eq!(harness.runs("one", "upgrade").await, 1);
    assert_eq!(harness.event_lines("JobFailed").await.len(), 1);

    // An edit of what runs is a reason to try again (S61).
    harness.behave("one", &[("upgrade.exit-code", "0")]).await;
    harness
        .edit("k3os-latest", json!({ "upgrade": { "args": ["again"] } }))
        .await;
    let plan_hash = harness.complete("k3os-latest").await;
    harness.made_once_each([("one", &plan_hash)]).await;
    assert_eq!(harness.runs("one", "upgrade").await, 2);
}
