//! `status.latestHash` of real Plans, and what changes it. Its bytes must never change, because another hash runs
//! finished nodes again.

use k8s_openapi::api::core::v1::Secret;
use kube::api::DeleteParams;
use refit_api::Plan;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha224};

use crate::scenario::Backend;
use crate::testenv::context::{TestContext, create};
use crate::testenv::plan::{plan, status};
use crate::testenv::wait::SOON;

scenarios! {
    real {
        plans_on_a_cluster_have_the_hashes_of_the_vectors,
    }
}

/// A vector of `src/job/digest/vectors.yaml`: the hash of a Plan by system-upgrade-controller itself.
#[derive(serde::Deserialize)]
struct Vector {
    why: String,
    version: String,
    #[serde(default)]
    fields: String,
    plan: Plan,
    #[serde(default)]
    secrets: Vec<Secret>,
    text: Option<String>,
    hash: String,
}

/// What the CRD, also system-upgrade-controller's, adds to a key item that does not set `optional`.
const DEFAULT: [&str; 2] = [
    "fileKeyRef:map[key:k path:p",
    "fileKeyRef:map[key:k optional:false path:p",
];

impl Vector {
    /// The Plan under another name, with its version in `spec`. `None` if the hash contains what that changes.
    fn on_a_cluster(&self, name: &str) -> Option<Value> {
        let changed = ["spec", "metadata.name", "metadata.namespace", "spec.nodeSelector"];
        if self.fields.split(',').any(|field| changed.contains(&field)) {
            return None;
        }
        let mut plan = serde_json::to_value(&self.plan).unwrap();
        plan["apiVersion"] = json!("upgrade.cattle.io/v1");
        plan["kind"] = json!("Plan");
        plan["metadata"]["name"] = json!(name);
        plan["metadata"].as_object_mut()?.remove("namespace");
        plan["spec"]["version"] = json!(self.version);
        if !self.fields.is_empty() {
            plan["metadata"]["annotations"]["upgrade.cattle.io/digest"] = json!(self.fields);
        }
        Some(plan)
    }
}

async fn hash_of(ctx: &TestContext, name: &str) -> String {
    let plan = ctx.plan_condition(name, "LatestResolved", "True", SOON).await;
    status(&plan).latest_hash.unwrap()
}

/// The defaults of the CRD, which are part of some hashes, are not simulated.
async fn plans_on_a_cluster_have_the_hashes_of_the_vectors() {
    let ctx = Backend::Real.context().await;
    let _controller = ctx.start_and_warm_up().await;
    let vectors: Vec<Vector> =
        serde_saphyr::from_str(include_str!("../src/job/digest/vectors.yaml")).unwrap();
    let mut tried = 0;
    for (index, vector) in vectors.iter().enumerate() {
        let name = format!("vector-{index}");
        let Some(plan) = vector.on_a_cluster(&name) else {
            continue;
        };
        for secret in &vector.secrets {
            let name = secret.metadata.name.as_ref().unwrap();
            // Vectors share names.
            let _ = ctx.secrets().delete(name, &DeleteParams::default()).await;
            let secret = json!({
                "metadata": { "name": name, "labels": secret.metadata.labels },
                "type": secret.type_, "data": secret.data, "immutable": secret.immutable,
            });
            create::<Secret>(&ctx.secrets(), secret).await;
        }
        ctx.try_apply(plan)
            .await
            .unwrap_or_else(|error| panic!("{}: {error:#}", vector.why));
        let expected = match &vector.text {
            Some(text) if text.contains(DEFAULT[0]) => hex::encode(Sha224::digest(
                vector.version.clone() + &text.replace(DEFAULT[0], DEFAULT[1]),
            )),
            _ => vector.hash.clone(),
        };
        assert_eq!(hash_of(&ctx, &name).await, expected, "{}", vector.why);
        tried += 1;
    }
    assert_eq!(
        tried,
        vectors.len() - 3,
        "the whole spec, an own name, a selector"
    );
    // S43 of tests/contract.md.
    ctx.plan(&plan(
        "s43",
        "{version: v1.20.11+k3s1, serviceAccountName: system-upgrade, upgrade: {image: x}}",
    ))
    .await;
    assert_eq!(
        hash_of(&ctx, "s43").await,
        "21c75c607087495cc7f2c945c508a36de1f8661ce8c6b4d5989a883c"
    );
}
