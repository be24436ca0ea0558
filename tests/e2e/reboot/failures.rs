//! The ways in which a reboot fails, and their reasons.

use std::time::Duration;

use super::{noted, notes, on, reboots, with};
use crate::e2e::harness::{RUNS, harness};
use crate::testenv::real::{self, PATIENCE, RealNode, Service};
use crate::testenv::wait;
use serde_json::json;

#[tokio::test]
#[ignore = "real nodes, which need root and Debian: just e2e"]
async fn a_command_that_is_not_on_the_host_fails_before_the_node_is_touched() {
    let harness = harness().await;
    let command =
        json!({ "reboot": { "command": ["/opt/reboot-tool", "--now"] }, "jobActiveDeadlineSecs": 10 });
    let absent = on(&harness.two, with(reboots(), &command));
    harness.make("os", &notes(), &absent).await;
    let failed = harness.wait_for_progress("os", &harness.two, "has failed", |node| node.phase == "Failed");
    let message = tokio::select! {
        failed = failed => failed.message.unwrap(),
        never = harness.untouched(&harness.two) => never,
    };
    assert!(
        message.contains("/opt/reboot-tool is not on the host"),
        "{message}"
    );
    assert_eq!(harness.two.lines(RUNS), [""; 0]);
    assert_eq!(harness.two.boots(), 1);
}

#[tokio::test]
#[ignore = "real nodes, which need root and Debian: just e2e"]
async fn a_node_that_stays_off_times_out_and_one_that_boots_without_network_is_not_ready() {
    let harness = harness().await;
    let [three] = real::nodes(&harness.ctx, ["three"]).await;
    let (away, unwell) = (&harness.two, &three);
    away.stay_off();
    // Long enough to disable its network.
    unwell.boot_takes(Duration::from_secs(5));

    // Longer than Kubernetes takes to mark a node NotReady.
    let reboots = || with(reboots(), &json!({ "reboot": { "timeout": "45s" } }));
    harness.make("away", &notes(), &on(away, reboots())).await;
    harness.make("unwell", &notes(), &on(unwell, reboots())).await;
    is_down(unwell).await;
    unwell.keep_from(Service::Network);
    let (timed_out, not_ready) = tokio::join!(
        harness.has_failed("away", away, "RebootTimedOut"),
        harness.has_failed("unwell", unwell, "NotReadyAfterReboot"),
    );
    assert!(timed_out.contains("has not reported another boot"), "{timed_out}");
    assert!(not_ready.contains("in its new boot and not Ready"), "{not_ready}");
    assert!(!away.is_on());
    assert_eq!((away.boots(), unwell.boots()), (1, 2));

    // The node is back in the end, and refit does not reboot it again.
    away.power_on();
    away.wait_boots(2).await;
    away.wait_ready().await;
    harness.no_reboot_pods().await;
    harness.has_failed("away", away, "RebootTimedOut").await;
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
