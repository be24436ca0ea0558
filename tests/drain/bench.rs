//! The time of a drain compared with kubectl.

use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use refit_rehearse::pod_lifecycle::{Defaults, Delay};
use serde_json::json;

use super::{DrainHarness, Tool};
use crate::testenv::kubelet::NodeSet;
use crate::testenv::wait;

const PODS: usize = 500;

#[tokio::test]
#[ignore = "measures and wants the machine for itself: just bench"]
async fn five_hundred_pods_are_drained_in_no_more_time_than_kubectl_takes() {
    let mut took = Vec::new();
    for (tool, name) in [(Tool::Kubectl, "k"), (Tool::Refit, "r")] {
        let harness = DrainHarness::new(&[]).await;
        let pods = Defaults {
            start: Delay::millis(20),
            stop: Delay::millis(100),
            ..Defaults::default()
        };
        let set = NodeSet::named([harness.node(name)])
            .pods(pods)
            .each(|_, node| node.pods = 600);
        let _kubelet = harness.ctx.run(set).await;
        let harness = &harness;
        stream::iter(0..PODS)
            .for_each_concurrent(16, async |number| {
                harness.pod(name, &format!("pod-{number}"), json!({})).await;
            })
            .await;
        wait::eventually("all pods run", Duration::from_secs(180), async || {
            let pods = harness
                .ctx
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
        let out = harness.run(tool, &["drain", &harness.node(name)]).await;
        assert_eq!(out.code, Some(0), "{tool:?}: {}", out.stderr);
        assert!(harness.on_node(name).await.is_empty());
        eprintln!("{tool:?} drained {PODS} pods in {:?}", out.took);
        took.push(out.took);
    }
    assert!(took[1] <= took[0], "kubectl {:?}, refit {:?}", took[0], took[1]);
}
