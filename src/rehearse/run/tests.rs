use super::*;

#[test]
fn a_kubernetes_version_is_recognized() {
    for version in ["v1.34.1", "v1.33.4-k3s1", "v1.33.4-rke2r1"] {
        assert!(is_kubelet_version(version), "{version}");
    }
    for version in ["24.04", "1.37", "v2.0.0", "latest", "v1.37", "v1.9.0"] {
        assert!(!is_kubelet_version(version), "{version}");
    }
}

#[test]
fn the_longest_wait_follows_from_the_times_in_the_plan() {
    let of = |spec: Value| longest_wait(&PlanSpec::deserialize(&spec).unwrap()).as_secs();
    assert_eq!(of(json!({})), 0);
    assert_eq!(of(json!({ "jobActiveDeadlineSecs": 3_600 })), 3_600);
    assert_eq!(of(json!({ "drain": { "timeout": "10m" } })), 600);
    assert_eq!(of(json!({ "postCompleteDelay": "24h" })), 86_400);
    assert_eq!(
        of(json!({ "reboot": { "timeout": "20m" }, "settle": { "minReady": "1h" } })),
        3_600
    );
}

#[test]
fn a_budget_that_needs_all_of_its_pods_never_allows() {
    let seen = |expected, desired| BudgetState {
        name: "n/b".to_owned(),
        expected,
        healthy: expected,
        desired,
    };
    assert!(seen(3, 3).never_allows() && seen(1, 2).never_allows());
    assert!(!seen(3, 2).never_allows() && !seen(0, 0).never_allows());
}
