//! How long a drain takes, beside kubectl.

use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use refit::rehearse::podlife::{Defaults, Delay};
use serde_json::json;

use super::{Bench, Tool};
use crate::support::kubelet::NodeSet;
use crate::support::wait;

const PODS: usize = 500;

#[tokio::test]
#[ignore = "measures"]
async fn five_hundred_pods_are_drained_in_no_more_time_than_kubectl_takes() {
    let mut took = Vec::new();
    for (tool, name) in [(Tool::Kubectl, "k"), (Tool::Refit, "r")] {
        let bench = Bench::new(&[]).await;
        let pods = Defaults {
            start: Delay::millis(20),
            stop: Delay::millis(100),
            ..Defaults::default()
        };
        let set = NodeSet::named([bench.node(name)])
            .pods(pods)
            .each(|_, node| node.pods = 600);
        let _kubelet = bench.world.run(set).await;
        let bench = &bench;
        stream::iter(0..PODS)
            .for_each_concurrent(16, async |number| {
                bench.pod(name, &format!("pod-{number}"), json!({})).await;
            })
            .await;
        wait::eventually("all pods run", Duration::from_secs(180), async || {
            let pods = bench
                .world
                .pods()
                .list(&kube::api::ListParams::default())
                .await
                .unwrap();
            match pods.items.iter().filter(|pod| super::is_ready(pod)).count() {
                PODS => Ok(()),
                ready => Err(format!("{ready} run")),
            }
        })
        .await;
        let out = bench.run(tool, &["drain", &bench.node(name)]).await;
        assert_eq!(out.code, Some(0), "{tool:?}: {}", out.stderr);
        assert!(bench.on_node(name).await.is_empty());
        eprintln!("{tool:?} drained {PODS} pods in {:?}", out.took);
        took.push(out.took);
    }
    assert!(took[1] <= took[0], "kubectl {:?}, refit {:?}", took[0], took[1]);
}
