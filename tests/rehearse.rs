//! Compares the simulated cluster with a real one: both get the same requests, and must respond as the files in
//! `tests/rehearse/scenarios` say.

mod scenario;

use futures::stream::{self, StreamExt as _};
use kube::Client;
use refit::api::crd;
use refit::rehearse::{Cluster, Options, in_virtual_time};

use crate::testenv::context::TestContext;
use crate::testenv::kubeconfig;
use scenario::{Target, play, scenarios};

/// With fewer, a file was not found.
const AT_LEAST: usize = 30;
/// Number of concurrent scenarios on a real control plane.
const AT_ONCE: usize = 8;

#[test]
fn the_simulated_cluster_answers_as_the_scenarios_say() {
    let all = scenarios();
    assert!(all.len() >= AT_LEAST, "{} scenarios", all.len());
    let mut failed = Vec::new();
    for scenario in all {
        let played = in_virtual_time(async {
            let cluster = Cluster::new(Options::new(1, "2026-01-05T09:00:00Z".parse().unwrap()));
            cluster.put(serde_json::to_value(crd::plans()).unwrap()).unwrap();
            let namespace = serde_json::json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "scene" },
            });
            cluster.put(namespace).unwrap();
            let client = cluster.client("scenario");
            let target = Target::InProcess(cluster.clone(), client);
            let played = cluster
                .run_while(play(&scenario, &target, "scene", "scene"))
                .await;
            let unsupported_requests = cluster.with(|state| state.unsupported_requests().to_vec());
            let has_unsupported = !unsupported_requests.is_empty();
            played.and(if has_unsupported == scenario.is_unsupported {
                Ok(())
            } else {
                Err(format!("unsupported requests: {unsupported_requests:?}"))
            })
        });
        if let Err(why) = played.unwrap() {
            failed.push(format!("{}\n    {why}", scenario.title));
        }
    }
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
}

#[tokio::test]
async fn a_real_control_plane_answers_as_the_scenarios_say() {
    let all = scenarios()
        .into_iter()
        .filter(|scenario| !scenario.is_unsupported);
    let played = stream::iter(all).map(async |scenario| {
        let ctx = TestContext::new().await;
        // A client that retries by itself would hide `Retry-After` responses.
        let mut config = kubeconfig::load(&ctx.test_env.kubeconfig(), "refit-test/scenario")
            .await
            .unwrap();
        config.default_retry = false;
        let target = Target::Real(Client::try_from(config).unwrap());
        let played = play(&scenario, &target, ctx.namespace(), &ctx.id).await;
        played.err().map(|why| format!("{}\n    {why}", scenario.title))
    });
    // Most of the time is waiting.
    let failed: Vec<String> = played
        .buffer_unordered(AT_ONCE)
        .filter_map(std::future::ready)
        .collect()
        .await;
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
}
