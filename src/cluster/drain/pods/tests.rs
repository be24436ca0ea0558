use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-01-01T09:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn pod(change: &Value) -> Pod {
    let mut pod = json!({
        "metadata": {
            "name": "web-1", "namespace": "shop", "uid": "u1",
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "r1", "controller": true,
            }],
        },
        "status": { "phase": "Running" },
    });
    for (key, value) in change.as_object().unwrap() {
        pod.pointer_mut("/metadata")
            .unwrap()
            .as_object_mut()
            .unwrap()
            .remove(key);
        match key.as_str() {
            "phase" => pod["status"]["phase"] = value.clone(),
            "volumes" => pod["spec"]["volumes"] = value.clone(),
            key => pod["metadata"][key] = value.clone(),
        }
    }
    serde_json::from_value(pod).unwrap()
}

fn owner(api_version: &str, kind: &str) -> Value {
    json!([{ "apiVersion": api_version, "kind": kind, "name": "d", "uid": "o", "controller": true }])
}

fn rules(letters: &str) -> Rules {
    Rules {
        ignore_daemon_sets: letters.contains('i'),
        delete_empty_dir_data: letters.contains('e'),
        force: letters.contains('f'),
        skip_wait_for_delete: 0,
    }
}

fn plain(pod: &Pod, letters: &str) -> Verdict {
    triage(pod, None, rules(letters), now())
}

fn refused(message: &str) -> Verdict {
    Verdict::Refused(message.to_owned())
}

#[test]
fn a_pod_with_a_controller_is_evicted() {
    assert_eq!(plain(&pod(&json!({})), ""), Verdict::Goes);
}

#[test]
fn a_pod_without_a_controller_is_evicted_by_force_only() {
    let alone = pod(&json!({ "ownerReferences": [] }));
    assert_eq!(plain(&alone, "ie"), refused(UNMANAGED_FATAL));
    assert_eq!(
        plain(&alone, "f"),
        Verdict::GoesWithWarning(UNMANAGED_WARNING.to_owned())
    );
    // Only a controlling owner counts.
    let owned = pod(
        &json!({ "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "c" }] }),
    );
    assert_eq!(plain(&owned, ""), refused(UNMANAGED_FATAL));
    // Static pods belong to their Node, and stay.
    let mirror = pod(&json!({ "ownerReferences": owner("v1", "Node"), "annotations": { MIRROR: "x" } }));
    assert_eq!(plain(&mirror, ""), Verdict::Stays);
}

#[test]
fn local_data_is_deleted_with_the_flag_only() {
    let volumes = json!([{ "name": "a", "configMap": {} }, { "name": "b", "emptyDir": {} }]);
    let keeps = pod(&json!({ "volumes": volumes }));
    assert_eq!(plain(&keeps, "if"), refused(LOCAL_STORAGE_FATAL));
    assert_eq!(plain(&keeps, "e"), Verdict::Goes);
    let alone = pod(&json!({ "volumes": volumes, "ownerReferences": [] }));
    assert_eq!(plain(&alone, "f"), refused(LOCAL_STORAGE_FATAL));
    assert_eq!(plain(&alone, "e"), refused(UNMANAGED_FATAL));
    assert_eq!(
        plain(&alone, "ef"),
        Verdict::GoesWithWarning(UNMANAGED_WARNING.to_owned())
    );
}

#[test]
fn a_finished_pod_is_evicted_without_flags() {
    for phase in ["Succeeded", "Failed"] {
        let done =
            json!({ "phase": phase, "ownerReferences": [], "volumes": [{ "name": "a", "emptyDir": {} }] });
        assert_eq!(plain(&pod(&done), ""), Verdict::Goes);
        let of_daemon_set = pod(&json!({ "phase": phase, "ownerReferences": owner("apps/v1", "DaemonSet") }));
        assert_eq!(of_daemon_set.daemon_set(), None, "no DaemonSet is read");
        assert_eq!(plain(&of_daemon_set, ""), Verdict::Goes);
        let mirror = pod(&json!({ "phase": phase, "annotations": { MIRROR: "x" } }));
        assert_eq!(plain(&mirror, ""), Verdict::Stays);
    }
}

#[test]
fn a_pod_of_a_daemon_set_stays_and_stops_the_drain_unless_ignored() {
    let pod = pod(&json!({ "ownerReferences": owner("apps/v1", "DaemonSet") }));
    assert_eq!(pod.daemon_set(), Some("d"));
    let with = |daemon_set, letters| triage(&pod, Some(&daemon_set), rules(letters), now());
    assert_eq!(with(DaemonSet::Exists, "ef"), refused(DAEMON_SET_FATAL));
    assert_eq!(
        with(DaemonSet::Exists, "ief"),
        Verdict::StaysWithWarning(DAEMON_SET_WARNING.to_owned())
    );
    let gone = || DaemonSet::Gone("daemonsets.apps \"d\" not found".to_owned());
    assert_eq!(with(gone(), "ie"), refused("daemonsets.apps \"d\" not found"));
    assert_eq!(with(gone(), "f"), Verdict::Goes);
    let unknown = || DaemonSet::Unknown("forbidden".to_owned());
    assert_eq!(with(unknown(), "ief"), refused("forbidden"));
}

#[test]
fn a_daemon_set_of_another_group_is_a_controller_like_any_other() {
    let pod = pod(&json!({ "ownerReferences": owner("apps.kruise.io/v1alpha1", "DaemonSet") }));
    assert_eq!(pod.daemon_set(), None);
    assert_eq!(plain(&pod, ""), Verdict::Goes);
}

#[test]
fn a_pod_that_has_been_terminating_for_long_is_left_with_the_flag() {
    let leaving = pod(&json!({ "deletionTimestamp": "2026-01-01T08:59:30Z", "ownerReferences": [] }));
    let after = |seconds| Rules {
        skip_wait_for_delete: seconds,
        force: true,
        ..Rules::default()
    };
    assert_eq!(triage(&leaving, None, after(29), now()), Verdict::Stays);
    for seconds in [30, 31, 0] {
        let verdict = triage(&leaving, None, after(seconds), now());
        assert!(
            matches!(verdict, Verdict::GoesWithWarning(_)),
            "{seconds}: {verdict:?}"
        );
    }
    let later = pod(&json!({ "deletionTimestamp": "2026-01-01T09:10:00Z" }));
    assert_eq!(triage(&later, None, after(1), now()), Verdict::Goes);
}

#[test]
fn warnings_and_errors_name_all_their_pods() {
    let id = |name: &str| PodId {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        uid: name.to_owned(),
    };
    let mut found = Found::default();
    found.add(id("a"), Verdict::GoesWithWarning("w1".to_owned()));
    found.add(id("b"), Verdict::StaysWithWarning("w2".to_owned()));
    found.add(id("c"), Verdict::GoesWithWarning("w1".to_owned()));
    found.add(id("d"), Verdict::Goes);
    found.add(id("e"), Verdict::Stays);
    assert_eq!(found.warning().as_deref(), Some("w1: shop/a, shop/c; w2: shop/b"));
    assert_eq!(found.pods, [id("a"), id("c"), id("d")]);
    assert_eq!(found.errors(), Vec::<String>::new());
    found.add(id("f"), refused(UNMANAGED_FATAL));
    found.add(id("g"), refused(UNMANAGED_FATAL));
    assert_eq!(
        found.errors(),
        ["cannot delete Pods that declare no controller (use --force to override): shop/f, shop/g"]
    );
    assert_eq!(Found::default().warning(), None);
}
