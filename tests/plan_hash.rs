//! `status.latestHash` of real Plans, and what changes it. Its bytes must never change, because another hash runs
//! finished nodes again.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams};
use refit_api::Plan;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha224};

use crate::scenario::Backend;
use crate::testenv::context::{TestContext, create, done};
use crate::testenv::history::History;
use crate::testenv::plan::{plan, says, status};
use crate::testenv::wait::{self, SOON};

scenarios! {
    in_process {
        a_changed_secret_changes_the_hash_within_a_second_and_runs_the_plan_again,
    }
    real {
        plans_on_a_cluster_have_the_hashes_of_the_vectors,
    }
}

/// Maximum delay until the hash follows a Secret, measured in virtual time.
const AT_ONCE: SignedDuration = SignedDuration::from_secs(1);

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
    // S43 of docs/contract.md.
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

async fn a_changed_secret_changes_the_hash_within_a_second_and_runs_the_plan_again(on: Backend) {
    let ctx = on.context().await;
    let nodes = ctx.manual_kubelet(["one"]).await;
    let node = nodes.name("one");
    let _controller = ctx.start_and_warm_up().await;
    for name in ["config", "ignored", "other"] {
        let secret = json!({ "metadata": { "name": name }, "data": { "a": "MQ==" } });
        create::<Secret>(&ctx.secrets(), secret).await;
    }
    let other = "{version: v1, upgrade: {image: x}, secrets: [{name: other, path: /o}]}";
    ctx.plan(&plan("other", other)).await;
    let other = status(&ctx.plan_complete("other", SOON).await).latest_hash;
    let history = History::of(&ctx, "secretive").await;
    ctx.plan(&plan(
        "secretive",
        "{version: v1, concurrency: 1, nodeSelector: {}, upgrade: {image: x},
              secrets: [{name: config, path: /c}, {name: ignored, path: /i, ignoreUpdates: true}]}",
    ))
    .await;
    nodes.succeed("secretive", &node).await;
    let complete = |plan: &Plan| says(plan, "Complete").starts_with("True");
    let states = history.until("it is complete", SOON, complete).await;
    let first = status(states.last().unwrap()).latest_hash.unwrap();
    assert_eq!(
        history.said("Complete"),
        ["False/SyncJob/", "True/Complete/"],
        "reading the secret is no state of its own"
    );
    assert_eq!(done(&ctx.node(&node).await, "secretive"), Some(first.clone()));

    // Neither the ignored element nor labels change anything, and nothing is written.
    let quiet = history.states().len();
    let patch = async |name: &str, patch: Value| {
        ctx.secrets()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
        ctx.now()
    };
    patch("ignored", json!({ "data": { "a": "Mg==" } })).await;
    patch("config", json!({ "metadata": { "labels": { "looked": "at" } } })).await;
    // The Secrets of all Plans come in one watch: whoever has seen this change has seen those before it.
    patch("other", json!({ "data": { "a": "Mg==" } })).await;
    let is_seen = |plan: &Plan| status(plan).latest_hash != other;
    ctx.plan_until("other", "has another hash", SOON, is_seen).await;

    let changed = patch("config", json!({ "data": { "a": "Mg==" } })).await;
    let another = |plan: &Plan| status(plan).latest_hash.is_some_and(|hash| hash != first);
    let states = history.until("it has another hash", SOON, another).await;
    let (last, before) = states[quiet..].split_last().unwrap();
    let is_as_before = |plan: &Plan| complete(plan) && !another(plan);
    assert!(before.iter().all(is_as_before), "{before:#?}");
    assert!(says(last, "Complete").starts_with("False/SyncJob"), "{last:#?}");
    if on == Backend::InProcess {
        assert_eq!(before, [], "nothing was written");
        let took = ctx.now().duration_since(changed);
        assert!(took < AT_ONCE, "{took:#}");
    }
    nodes.succeed("secretive", &node).await;
    let again = |plan: &Plan| another(plan) && complete(plan);
    let second = status(history.until("it ran again", SOON, again).await.last().unwrap())
        .latest_hash
        .unwrap();
    let mut hashes: Vec<_> = history
        .states()
        .iter()
        .filter_map(|plan| status(plan).latest_hash)
        .collect();
    hashes.dedup();
    assert_eq!(hashes, [first.clone(), second.clone()]);
    assert_eq!(done(&ctx.node(&node).await, "secretive"), Some(second));
    assert_eq!(
        history.said("Complete"),
        [
            "False/SyncJob/",
            "True/Complete/",
            "False/SyncJob/",
            "True/Complete/"
        ],
    );
    assert_eq!(history.said("LatestResolved"), ["True/Version/"]);
    assert_eq!(history.said("Validated"), ["True/PlanIsValid/"]);

    // The previous content restores the previous hash.
    patch("config", json!({ "data": { "a": "MQ==" } })).await;
    ctx.plan_until("secretive", "has its first hash again", SOON, |plan| {
        says(plan, "Complete").starts_with("False") && !another(plan)
    })
    .await;
    wait::until(
        "its third Job is made",
        async || ctx.requests().await.jobs_created().len(),
        |it| *it == 3,
    )
    .await;
}
