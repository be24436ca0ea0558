//! `status.latestHash` of real Plans, and what changes it. Its bytes are frozen: another hash runs finished nodes again.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use refit::api::Plan;
use serde_json::{Value, json};

use crate::support::history::History;
use crate::support::plan::{plan, says, status};
use crate::support::wait::SOON;
use crate::support::world::{World, create};

/// How soon the hash follows a secret.
const AT_ONCE: Duration = Duration::from_secs(1);

/// A vector of `src/job/digest/vectors.yaml`, as system-upgrade-controller itself gives it.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vector {
    why: String,
    version: String,
    fields: Option<String>,
    plan: Value,
    #[serde(default)]
    secrets: Vec<Value>,
    hash: String,
}

#[tokio::test]
async fn every_plan_on_the_cluster_has_the_hash_of_its_vector() {
    let world = World::new().await;
    let vectors: Vec<Vector> = serde_saphyr::from_str(include_str!("../src/job/digest/vectors.yaml")).unwrap();
    assert_eq!(vectors.len(), 20);
    let mut expected = Vec::new();
    for (index, vector) in vectors.into_iter().enumerate() {
        let mut made = vector.plan;
        // Plans that stand for a channel's answer have none, and a Plan must not touch nodes of other tests.
        made["spec"]["version"] = json!(vector.version);
        if !made["spec"]["nodeSelector"].is_null() && vector.fields.as_deref().is_none_or(|it| !it.contains("nodeSelector")) {
            made["spec"]["nodeSelector"] = Value::Null;
        }
        let name = format!("vector-{index}");
        made["apiVersion"] = json!("upgrade.cattle.io/v1");
        made["kind"] = json!("Plan");
        made["metadata"]["name"] = json!(name);
        if let Some(fields) = vector.fields {
            made["metadata"]["annotations"]["upgrade.cattle.io/digest"] = json!(fields);
        }
        println!("{index} {} {made} {:?} {}", vector.why, vector.secrets, vector.hash);
        expected.push((name, vector.hash));
    }
}
