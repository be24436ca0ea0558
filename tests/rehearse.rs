//! The cluster in the process is held to the real one: the same requests are sent to both, and both must answer as the files
//! in `tests/rehearse/scenarios` say.

mod scenario;

use futures::stream::{self, StreamExt as _};
use kube::Client;
use refit::api::crd;
use refit::rehearse::{Cluster, Options, in_virtual_time};

use crate::support::kubeconfig;
use crate::support::world::World;
use scenario::{Place, play, scenarios};

/// Fewer would be a file that was not found.
const AT_LEAST: usize = 30;
/// How many scenarios are played at once on a real control plane.
const AT_ONCE: usize = 8;

#[test]
fn the_cluster_in_the_process_answers_as_the_scenarios_say() {
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
            let place = Place::InProcess(cluster.clone(), client);
            let played = cluster.during(play(&scenario, &place, "scene", "scene")).await;
            let holes = cluster.with(|state| state.holes().to_vec());
            played.and(if holes.is_empty() || scenario.is_a_hole {
                Ok(())
            } else {
                Err(format!("not played: {holes:?}"))
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
    let all = scenarios().into_iter().filter(|scenario| !scenario.is_a_hole);
    let played = stream::iter(all).map(async |scenario| {
        let world = World::new().await;
        // One that asks again by itself would hide that it was told to come later.
        let mut config = kubeconfig::load(&world.bed.kubeconfig(), "refit-test/scenario")
            .await
            .unwrap();
        config.default_retry = false;
        let place = Place::Real(Client::try_from(config).unwrap());
        let played = play(&scenario, &place, world.namespace(), &world.id).await;
        played.err().map(|why| format!("{}\n    {why}", scenario.title))
    });
    // Most of it is waiting.
    let failed: Vec<String> = played
        .buffer_unordered(AT_ONCE)
        .filter_map(std::future::ready)
        .collect()
        .await;
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
}
