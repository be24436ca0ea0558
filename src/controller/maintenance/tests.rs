use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::status;
use super::*;
use refit_cluster::drain::pods::PodId;
use refit_facts::objects::maintenance::{MaintenancePhase, MaintenanceStatus};

fn object(group: MaintenanceGroup, name: &str, node: &str, second: i64) -> (Id, Maintenance) {
    let mut object: Maintenance = match group {
        MaintenanceGroup::Medik8s => MedikMaintenance::default().into(),
        MaintenanceGroup::Kubevirt => KubevirtMaintenance::default().into(),
    };
    object.metadata.name = Some(name.to_owned());
    object.metadata.uid = Some(format!("uid-of-{name}"));
    object.metadata.creation_timestamp = Some(Time(Timestamp::from_second(second).unwrap()));
    node.clone_into(&mut object.spec.node_name);
    ((group, name.to_owned()), object)
}

fn owner(objects: &[(Id, Maintenance)], node: &str) -> Option<String> {
    let objects = objects.iter().cloned().collect();
    owners(&objects).get(node).map(|(_, name)| name.clone())
}

#[test]
fn the_oldest_object_has_the_node_until_it_goes_or_gives_up() {
    let medik = MaintenanceGroup::Medik8s;
    let mut objects = [
        object(medik, "a", "one", 20),
        object(MaintenanceGroup::Kubevirt, "b", "one", 10),
        object(medik, "c", "two", 30),
    ];
    assert_eq!(owner(&objects, "one").as_deref(), Some("b"));
    assert_eq!(owner(&objects, "two").as_deref(), Some("c"));
    assert_eq!(owner(&objects, "three"), None);
    objects[1].1.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    assert_eq!(owner(&objects, "one").as_deref(), Some("a"));
    objects[0].1.status = MaintenanceStatus {
        phase: Some(MaintenancePhase::Failed.into()),
        error_on_lease_count: status::MAX_LEASE_ERRORS,
        ..MaintenanceStatus::default()
    };
    assert_eq!(owner(&objects, "one"), None);
}

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
