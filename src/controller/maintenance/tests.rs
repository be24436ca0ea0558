use serde_json::{Value, json};

use super::status;
use refit_cluster::drain::pods::PodId;
use refit_facts::objects::maintenance::MaintenanceStatus;

fn pods(names: &[&str]) -> Vec<PodId> {
    let pod = |name: &&str| PodId {
        namespace: "shop".to_owned(),
        name: (*name).to_owned(),
        uid: format!("uid-of-{name}"),
    };
    names.iter().map(pod).collect()
}

#[test]
fn a_status_counts_pods_as_node_maintenance_operator_does_and_leaves_out_what_is_zero() {
    let mut status = MaintenanceStatus::default();
    let of = |status: &MaintenanceStatus| -> Value { status::patch(status)["status"].clone() };
    status::begin(&mut status, &pods(&["a", "b", "c"]), 7);
    assert_eq!(
        of(&status),
        json!({
            "phase": "Running", "evictionPods": 3, "totalpods": 7, "pendingPods": ["a", "b", "c"],
            "pendingPodsRefs": [
                { "namespace": "shop", "name": "a" }, { "namespace": "shop", "name": "b" }, { "namespace": "shop", "name": "c" },
            ],
            "drainProgress": null, "lastError": null, "lastUpdate": null, "errorOnLeaseCount": null,
        })
    );
    status::fall_short(&mut status, &pods(&["c"]), "a budget".to_owned());
    assert_eq!(
        (status.drain_progress, status.last_error.as_deref()),
        (66, Some("a budget"))
    );
    // More than there were at first.
    status::fall_short(&mut status, &pods(&["c", "d", "e", "f"]), "a budget".to_owned());
    assert_eq!(status.drain_progress, 0);
    status::succeed(&mut status);
    let done = of(&status);
    assert_eq!(
        (&done["phase"], &done["drainProgress"]),
        (&json!("Succeeded"), &json!(100))
    );
    assert_eq!(
        (&done["lastError"], &done["pendingPods"]),
        (&Value::Null, &Value::Null)
    );
}
