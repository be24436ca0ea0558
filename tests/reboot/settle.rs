//! What a node must show before it is done, and payloads that reboot it themselves.

use serde_json::json;

use super::PLAN;
use crate::scenario::Backend;

scenarios! {
    in_process {
        a_payload_that_reboots_its_node_once_is_done_after_its_second_run,
        a_payload_that_always_reboots_its_node_is_stopped_after_two_boots,
    }
}

async fn a_payload_that_reboots_its_node_once_is_done_after_its_second_run(on: Backend) {
    let harness = on
        .harness_with(["one"], |set| set.steer("upgrade.reboot", "once"))
        .await;
    let _controller = harness.ctx.controller().start();
    harness.plan_with(PLAN, json!({ "cordon": true })).await;
    harness.is_done_after("one", 2, 1).await;
}

async fn a_payload_that_always_reboots_its_node_is_stopped_after_two_boots(on: Backend) {
    let harness = on
        .harness_with(["one"], |set| set.steer("upgrade.reboot", "always"))
        .await;
    let _controller = harness.ctx.controller().start();
    harness.plan_with(PLAN, json!({ "cordon": true })).await;
    let message = harness.has_failed("one", "RebootLoop").await;
    assert!(message.contains("rebooted 2 times"), "{message}");
    harness.all_recorded(PLAN).await;
    // The third run is stopped as soon as possible.
    let boots = harness.reboots("one").await;
    assert!((2..=3).contains(&boots), "{boots} reboots");
    let events = harness.event_lines("JobFailed").await;
    assert!(
        events.len() == 1 && events[0].contains("RebootLoop"),
        "{events:?}"
    );
}
