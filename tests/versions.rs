//! The version of a Plan on a running controller: channels that fail or withdraw versions, guards, approvals, digests.

mod registry;
mod signatures;

use std::collections::BTreeSet;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use refit_api::Plan;
use serde_json::json;

use crate::channels::registry::{Registry, RegistryAuth, State, index_digest};
use crate::testenv::context::TestContext;
use crate::testenv::context::cluster::create;
use crate::testenv::plan::{plan, says, status};
use crate::testenv::wait::SOON;
use registry::registry_state;

fn version(plan: &Plan) -> String {
    status(plan).latest_version.unwrap_or_default()
}

/// Waits until the Plan has started its first nodes. Returns the Plan and the first of them.
async fn begun(ctx: &TestContext, name: &str) -> (Plan, String) {
    let is_applying = |plan: &Plan| status(plan).applying.is_some();
    let plan = ctx.plan_until(name, "has begun", SOON, is_applying).await;
    let first = status(&plan).applying.unwrap().remove(0);
    (plan, first)
}

fn image_of(job: &Job) -> String {
    let pod = job
        .spec
        .as_ref()
        .and_then(|spec| spec.template.spec.as_ref())
        .unwrap();
    pod.containers[0].image.clone().unwrap()
}

#[tokio::test]
async fn of_many_releases_the_newest_in_range_is_taken_and_runs_by_its_digest() {
    let ctx = TestContext::new().await;
    let nodes = ctx.manual_kubelet(["a", "b"]).await;
    let registry = Registry::start(State {
        auth: RegistryAuth::Token,
        ..registry_state()
    })
    .await;
    let _controller = ctx.start_and_warm_up().await;
    let secret = json!({
        "metadata": { "name": "puller" },
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": { ".dockerconfigjson": registry.docker_config() },
    });
    create::<Secret>(&ctx.secrets(), secret).await;
    let image = format!("{}/team/k3s", registry.host());
    let spec = format!(
        "{{concurrency: 1, nodeSelector: {{}}, channel: {:?}, imagePullSecrets: [{{name: puller}}], upgrade: {{image: {image:?}}}, \
         versionPolicy: {{range: 1.33.x, pinDigest: true}}}}",
        registry.channel()
    );
    ctx.plan(&plan("pinned", &spec)).await;
    let (begun, first) = begun(&ctx, "pinned").await;
    assert_eq!(version(&begun), "v1.33.4-k3s1");
    let pinned = status(&begun).pinned.unwrap();
    assert_eq!(Some(&pinned.hash), status(&begun).latest_hash.as_ref());
    assert_eq!(pinned.images[0].image, format!("{image}:v1.33.4-k3s1"));
    assert_eq!(pinned.images[0].digest, index_digest());
    // The order of the nodes depends on their names.
    let other = ["a", "b"].map(|node| nodes.name(node));
    let other = other.into_iter().find(|name| *name != first).unwrap();
    nodes.succeed("pinned", &first).await;
    // From now on the registry refuses requests.
    registry.set(|state| state.auth = RegistryAuth::Header("x-nobody", "knows"));
    nodes.succeed("pinned", &other).await;
    let done = ctx.plan_complete("pinned", SOON).await;
    assert_eq!(says(&done, "UpToDate"), "True/Latest/");
    let jobs = ctx.jobs_of("pinned").await;
    let images: BTreeSet<_> = jobs.iter().map(image_of).collect();
    let by_digest = format!("{image}:v1.33.4-k3s1@{}", index_digest());
    assert_eq!((jobs.len(), images), (2, [by_digest].into()));
}
