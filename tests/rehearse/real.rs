//! A real control plane responds as the files in `tests/rehearse/scenarios` say.

use futures::stream::{self, StreamExt as _};
use kube::Client;

use super::scenario::{Target, play, scenarios};
use crate::testenv::context::TestContext;
use crate::testenv::kubeconfig;

/// Number of concurrent scenarios on a real control plane.
const AT_ONCE: usize = 8;

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
