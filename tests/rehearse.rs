//! Compares the simulated cluster with a real one: both get the same requests, and must respond as the files in
//! `tests/rehearse/scenarios` say.

mod scenario;

use refit_api::crd;
use refit_rehearse::{Cluster, Options, in_virtual_time};

use scenario::{Target, play, scenarios};

/// With fewer, a file was not found.
const AT_LEAST: usize = 30;

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
