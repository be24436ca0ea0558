//! What system-upgrade-controller leaves on a cluster: a Plan with its status, and a Job.

use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use refit_api::Plan;
use refit_job::digest::plan_hash;
use refit_job::name::job_name;
use serde_json::{Value, json};

use crate::harness::{Harness, hash};
use crate::testenv::context::cluster::create;

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
