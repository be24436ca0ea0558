//! Each way in which a reboot fails, by its name.

use std::time::Duration;

use super::{hastily, noted, notes, on, reboots, with};
use crate::e2e::stage::{RUNS, stage};
use crate::support::real::{self, PATIENCE, RealNode, Service};
use crate::support::wait;
use serde_json::json;

const NOTHING: [&str; 0] = [];

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn a_command_that_does_nothing_and_one_that_the_upgrade_has_removed_never_rebooted() {
    let stage = stage().await;
    let restart = "/usr/local/sbin/restart-node";
    let script = format!("printf '#!/bin/sh\\nsystemctl reboot\\n' >{restart}; chmod 755 {restart}");
    stage.two.run(&["sh", "-c", &script]).await;

    // Side by side, on a node each.
    let idle = on(&stage.one, hastily(20, &["true"]));
    stage.make("idle", &notes(), &idle).await;
    let removes = format!("{}\nrm -f /host{restart}", notes());
    let missing = on(&stage.two, hastily(20, &["restart-node"]));
    stage.make("missing", &removes, &missing).await;
    let (idle, missing) = tokio::join!(
        stage.has_failed("idle", &stage.one, "NeverRebooted"),
        stage.has_failed("missing", &stage.two, "NeverRebooted"),
    );
    assert!(
        idle.contains("Ready in the boot in which it was upgraded"),
        "{idle}"
    );
    assert!(missing.contains("restart-node is not on the host"), "{missing}");
    stage.no_reboot_pods().await;
    for node in [&stage.one, &stage.two] {
        assert_eq!(node.lines(RUNS), [noted("v2", node, 1)]);
        assert_eq!(node.boots(), 1);
    }

    // With a command that is there, it is tried again.
    let there = json!({ "reboot": { "command": ["systemctl", "reboot"], "timeout": "5m" } });
    stage.edit("missing", there).await;
    stage.world.plan_complete("missing", 2 * PATIENCE).await;
    assert_eq!(
        stage.two.lines(RUNS),
        [noted("v2", &stage.two, 1), noted("v2", &stage.two, 1)]
    );
    assert_eq!((stage.one.boots(), stage.two.boots()), (1, 2));
}

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn a_command_that_was_never_on_the_host_is_told_before_anything_is_disturbed() {
    let stage = stage().await;
    let absent = with(
        hastily(60, &["/opt/reboot-tool", "--now"]),
        &json!({ "jobActiveDeadlineSecs": 10 }),
    );
    let absent = on(&stage.two, absent);
    stage.make("os", &notes(), &absent).await;
    let failed = stage.told("os", &stage.two, "has failed", |node| node.phase == "Failed");
    let message = tokio::select! {
        failed = failed => failed.message.unwrap(),
        never = stage.untouched(&stage.two) => never,
    };
    assert!(
        message.contains("/opt/reboot-tool is not on the host"),
        "{message}"
    );
    assert_eq!(stage.two.lines(RUNS), NOTHING);
    assert_eq!(stage.two.boots(), 1);
}

#[tokio::test]
#[ignore = "real nodes: just e2e"]
async fn a_node_that_stays_away_has_timed_out_and_one_that_comes_back_without_network_is_not_ready() {
    let stage = stage().await;
    let [three] = real::nodes(&stage.world, ["three"]).await;
    let (away, unwell) = (&stage.two, &three);
    away.stay_off();
    // Long enough to take its network away.
    unwell.boot_takes(Duration::from_secs(5));

    // Longer than it takes until Kubernetes says that a node is away.
    let reboots = || with(reboots(), &json!({ "reboot": { "timeout": "45s" } }));
    stage.make("away", &notes(), &on(away, reboots())).await;
    stage.make("unwell", &notes(), &on(unwell, reboots())).await;
    is_down(unwell).await;
    unwell.keep_from(Service::Network);
    let (timed_out, not_ready) = tokio::join!(
        stage.has_failed("away", away, "RebootTimedOut"),
        stage.has_failed("unwell", unwell, "NotReadyAfterReboot"),
    );
    assert!(
        timed_out.contains("has not been heard of in another boot"),
        "{timed_out}"
    );
    assert!(not_ready.contains("in its new boot and not Ready"), "{not_ready}");
    assert!(!away.is_on());
    assert_eq!((away.boots(), unwell.boots()), (1, 2));

    // Back after all, and nobody reboots it again.
    away.power_on();
    away.wait_boots(2).await;
    away.wait_ready().await;
    stage.no_reboot_pods().await;
    stage.has_failed("away", away, "RebootTimedOut").await;
    assert_eq!((away.boots(), unwell.boots()), (2, 2));
    for node in [away, unwell] {
        assert_eq!(node.lines(RUNS), [noted("v2", node, 1)]);
    }
}

/// Waits until the node is off, or between two boots.
async fn is_down(node: &RealNode) {
    wait::eventually("the node is down", 2 * PATIENCE, async || {
        if node.is_on() {
            Err("it is up".to_owned())
        } else {
            Ok(())
        }
    })
    .await;
}
