//! The whole bed at work: the shipped controller carries out a Plan on fake nodes, once undisturbed and once in rough weather.

use std::time::Duration;

use crate::support::channel::ChannelServer;
use crate::support::faults::{Moment, Rule};
use crate::support::wait::{self, SOON};
use crate::support::world::World;
use crate::support::world::cluster::done;

/// Two at a time, by the channel.
fn plan(channel: &str) -> String {
    format!(
        "
        apiVersion: upgrade.cattle.io/v1
        kind: Plan
        metadata: {{ name: whole }}
        spec:
          concurrency: 2
          nodeSelector: {{}}
          channel: {channel}
          cordon: true
          serviceAccountName: system-upgrade
          upgrade: {{ image: example.com/upgrade }}
        "
    )
}

#[tokio::test]
async fn a_plan_is_carried_out() {
    let world = World::new().await;
    let kubelets = world.run_nodes(5).await;
    let channel = ChannelServer::start().await;
    channel.redirects("/stable", "https://example.com/releases/v1.2.3");
    let controller = world.controller().start();
    controller.leading().await;

    world.plan(&plan(&channel.url("/stable"))).await;
    let plan = world.plan_complete("whole", 2 * SOON).await;
    let status = plan.status.unwrap();
    assert_eq!(status.latest_version.as_deref(), Some("v1.2.3"));
    for node in world.my_nodes().await {
        assert_eq!(
            done(&node, "whole"),
            status.latest_hash,
            "{:?}",
            node.metadata.name
        );
        assert_eq!(kubelets.runs(&node.metadata.name.unwrap(), "upgrade").await, 1);
    }
    world
        .kubectl(&["wait", "--for=condition=Complete", "--timeout=10s", "plan/whole"])
        .await;

    let requests = world.requests().await;
    assert_eq!(requests.most_jobs_at_once("whole"), 2);
    assert_eq!(requests.most_applying("whole"), 2);
    let jobs = requests.jobs_by_node_and_hash();
    assert_eq!(jobs.len(), 5);
    assert!(jobs.values().all(|uids| uids.len() == 1), "{jobs:?}");
    let of_controller = requests.by(&world.user());
    assert!(of_controller.0.len() > 10, "{:?}", of_controller.tally());
    assert!(
        of_controller.forbidden().is_empty(),
        "{:?}",
        of_controller.forbidden()
    );
    assert_eq!(controller.terminate().await.code(), Some(0));
}

#[tokio::test]
async fn a_plan_is_carried_out_in_rough_weather() {
    let world = World::new().await;
    let kubelets = world.run_nodes(5).await;
    let channel = ChannelServer::start().await;
    channel.redirects("/stable", "https://example.com/releases/v1.2.3");
    let faults = world.faults(7).await;
    faults
        .add(Rule::write().nth(6).kill(Moment::After))
        .add(Rule::write().chance(0.1).lose_answer())
        .add(Rule::write().chance(0.1).answer(409))
        .add(Rule::on("watch", "nodes").late_events(Duration::from_secs(1)));
    let controller = world.controller().through(&faults).start();
    world.plan(&plan(&channel.url("/stable"))).await;

    let status = controller.ended(2 * SOON).await;
    assert!(!status.success(), "{status}");
    let again = controller.start_again();
    let plan = world.plan_complete("whole", 4 * SOON).await;
    assert!(again.is_running());
    wait::eventually("open watches are cut and come back", SOON, async || {
        let watches = || {
            faults
                .history()
                .iter()
                .filter(|passed| passed.asked.verb == "watch")
                .count()
        };
        let before = watches();
        faults.cut_watches("nodes");
        tokio::time::sleep(Duration::from_millis(200)).await;
        if watches() > before {
            Ok(())
        } else {
            Err(format!("{before} watches"))
        }
    })
    .await;

    assert!(faults.faults() > 2, "{:?}", faults.history());
    let hash = plan.status.unwrap().latest_hash;
    for node in world.my_nodes().await {
        assert_eq!(done(&node, "whole"), hash);
        assert_eq!(kubelets.runs(&node.metadata.name.unwrap(), "upgrade").await, 1);
    }
    let requests = world.requests().await;
    let jobs = requests.jobs_by_node_and_hash();
    assert_eq!(jobs.len(), 5);
    assert!(jobs.values().all(|uids| uids.len() == 1), "{jobs:?}");
    assert!(requests.most_jobs_at_once("whole") <= 2);
}
