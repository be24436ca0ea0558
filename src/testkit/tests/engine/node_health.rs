//! `settle.conditions`, `settle.taintsGone`, `settle.daemonSets`, and `settle.workloads` against what was ready before the
//! drain.

use super::scenario::Scenario;
use super::settle::pod_of_shop;
use refit_api::{ObjectRef, Plan, SettleSpec};
use refit_fixtures::plan_with;
use refit_rehearse::Kind;
use refit_rehearse::json::{Value, json};
use refit_view::{PlanOverview, explain_node};

fn settling(settle: &str) -> Plan {
    let settle: SettleSpec = serde_json::from_str(settle).unwrap();
    plan_with("p", |spec| spec.settle = Some(Box::new(settle)))
}

fn says(scenario: &Scenario) -> [String; 3] {
    let entry = scenario.entry("p", "a");
    let about = |object: &ObjectRef| {
        let place = object.namespace.iter().map(|namespace| format!("{namespace}/"));
        format!("{} {}{}", object.kind, place.collect::<String>(), object.name)
    };
    [
        entry.reason.as_deref().unwrap_or_default().to_owned(),
        entry.message.unwrap_or_default(),
        entry.about.iter().map(about).collect::<Vec<_>>().join(", "),
    ]
}

fn explained(scenario: &mut Scenario) -> String {
    let snapshot = scenario.snapshot();
    explain_node(&PlanOverview::new(&snapshot, &snapshot.plans[0]), "a").to_text()
}

/// Sets a condition of the node besides Ready.
fn set_condition(scenario: &Scenario, status: &str, reason: &str) {
    let mut node = scenario.cluster.get(Kind::Node, "", "a").unwrap();
    let conditions = node["status"]["conditions"].as_array_mut().unwrap();
    conditions.retain(|one| one["type"] != "KernelDeadlock");
    conditions.push(json!({ "type": "KernelDeadlock", "status": status, "reason": reason }));
    let patch = json!({ "status": { "conditions": node["status"]["conditions"].clone() } });
    scenario
        .cluster
        .patch_status(Kind::Node, "", "a", &patch)
        .unwrap();
}

#[test]
fn a_node_is_done_when_its_conditions_have_the_status_that_the_plan_demands() {
    let plan = settling(r#"{"conditions": [{"type": "KernelDeadlock", "status": "False"}]}"#);
    let mut scenario = Scenario::with(&["a"], plan);
    scenario.succeed("a");
    let message = "the node has no condition KernelDeadlock, which must be False";
    assert_eq!(says(&scenario), ["NodeCondition", message, "Node a"]);
    set_condition(&scenario, "True", "DockerHung");
    scenario.settle();
    let message = "condition KernelDeadlock is True, and must be False (DockerHung)";
    assert_eq!(says(&scenario), ["NodeCondition", message, "Node a"]);
    assert!(scenario.is_cordoned("a"), "released when it is proven");
    let text = explained(&mut scenario);
    assert!(
        text.contains(message) && text.contains("kubectl describe node a"),
        "{text}"
    );
    scenario.restart();
    scenario.pass_secs(60);
    assert_eq!(says(&scenario)[0], "NodeCondition");
    set_condition(&scenario, "False", "KernelHasNoDeadlock");
    scenario.settle();
    scenario.assert_over();
}

#[test]
fn a_node_is_done_when_a_taint_of_a_start_is_gone() {
    let mut scenario = Scenario::with(
        &["a"],
        settling(r#"{"taintsGone": ["node.cilium.io/agent-not-ready", "example.com/x:NoExecute"]}"#),
    );
    let taint = |scenario: &Scenario, taints: Value| {
        let patch = json!({ "spec": { "taints": taints } });
        scenario.cluster.patch(Kind::Node, "", "a", patch).unwrap();
    };
    let other = json!({ "key": "example.com/x", "effect": "NoSchedule" });
    let agent = json!({ "key": "node.cilium.io/agent-not-ready", "effect": "NoSchedule", "value": "true" });
    taint(&scenario, json!([other.clone(), agent]));
    scenario.succeed("a");
    let message = "the node still has the taint node.cilium.io/agent-not-ready=true:NoSchedule";
    assert_eq!(says(&scenario), ["TaintStays", message, "Node a"]);
    taint(&scenario, json!([other]));
    scenario.settle();
    scenario.assert_over();
}

#[test]
fn a_condition_or_a_taint_that_never_comes_right_is_a_failure_that_names_it() {
    for (settle, text) in [
        (
            r#"{"conditions": [{"type": "Well", "status": "True"}], "timeout": "2m"}"#,
            "the node has no condition Well, which must be True",
        ),
        (
            r#"{"daemonSets": {}, "timeout": "2m"}"#,
            "pod agents/agent-a of DaemonSet agent is not Ready",
        ),
    ] {
        let mut scenario = Scenario::with(&["a"], settling(settle));
        put_agent(&mut scenario, "agent-a", Some("agent"));
        scenario.succeed("a");
        scenario.pass_secs(110);
        assert_eq!(scenario.phase("p", "a")[0], "Settling");
        scenario.pass_secs(20);
        assert_eq!(scenario.phase("p", "a"), ["Failed", "SettleTimedOut"]);
        let message = says(&scenario)[1].clone();
        assert!(message.contains(text), "{message}");
    }
}

/// A pod on node `a` that is not Ready, of a DaemonSet or of nobody.
fn put_agent(scenario: &mut Scenario, name: &str, daemon_set: Option<&str>) {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "agents" },
        "spec": { "nodeName": "a", "containers": [{ "name": "c", "image": "i" }] },
    });
    if let Some(name) = daemon_set {
        let set = json!({ "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": name, "namespace": "agents" } });
        scenario.cluster.put(set).unwrap();
        let set = scenario.cluster.get(Kind::DaemonSet, "agents", name).unwrap();
        let uid = set["metadata"]["uid"].clone();
        pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": uid, "controller": true }]);
    }
    scenario.cluster.put(pod).unwrap();
    // Its kubelet makes it Ready.
    scenario.pass_secs(5);
    set_ready(scenario, name, false);
}

fn set_ready(scenario: &Scenario, name: &str, ready: bool) {
    let status = if ready { "True" } else { "False" };
    let patch =
        json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": status }] } });
    scenario
        .cluster
        .patch_status(Kind::Pod, "agents", name, &patch)
        .unwrap();
}

fn lists(scenario: &Scenario) -> usize {
    scenario.requests("GET /pods?fieldSelector=spec.nodeName")
        + scenario.requests("GET /namespaces/agents/pods")
}

#[test]
fn a_node_is_done_when_the_pods_of_its_daemon_sets_have_been_ready_twice_under_any_leader() {
    for restarts in [false, true] {
        let mut scenario = Scenario::of_nodes(&["a"]);
        put_agent(&mut scenario, "agent-a", Some("agent"));
        put_agent(&mut scenario, "agent-b", Some("other"));
        put_agent(&mut scenario, "of-nobody", None);
        scenario.apply_and_settle(settling(
            r#"{"daemonSets": {"namespace": "agents"}, "minReady": "10s"}"#,
        ));
        scenario.succeed("a");
        assert_eq!(says(&scenario)[0], "MinReady", "they are looked at last");
        assert_eq!(lists(&scenario), 0);
        scenario.pass_secs(12);
        let message = "pod agents/agent-a of DaemonSet agent is not Ready, and 1 more";
        assert_eq!(says(&scenario), ["DaemonSetPods", message, "Pod agents/agent-a"]);
        let text = explained(&mut scenario);
        let command = "kubectl describe pod -n agents agent-a";
        assert!(text.contains(message) && text.contains(command), "{text}");
        let before = lists(&scenario);
        scenario.pass_secs(30);
        assert!(
            (5..=8).contains(&(lists(&scenario) - before)),
            "every five seconds"
        );
        set_ready(&scenario, "agent-a", true);
        set_ready(&scenario, "agent-b", true);
        scenario.pass_secs(5);
        assert!(!scenario.is_done("a", "p"), "once is not enough");
        set_ready(&scenario, "agent-b", false);
        scenario.pass_secs(10);
        let message = "pod agents/agent-b of DaemonSet other is not Ready";
        assert_eq!(says(&scenario)[1], message);
        set_ready(&scenario, "agent-b", true);
        if restarts {
            scenario.restart();
        }
        scenario.pass_secs(30);
        scenario.assert_over();
    }
}

#[test]
fn without_the_field_no_pods_of_daemon_sets_are_listed() {
    let mut scenario = Scenario::with(&["a"], settling("{}"));
    put_agent(&mut scenario, "agent-a", Some("agent"));
    scenario.finish();
    assert_eq!(lists(&scenario), 0);
}

#[test]
fn a_plan_that_waits_for_daemon_sets_starts_no_node_without_the_permission_to_list_pods() {
    let mut scenario = Scenario::with(&["a"], plan_with("before", |_| {}));
    scenario.roll_out();
    scenario.fault_injector.allow("list", "pods", false);
    scenario.apply_and_settle(settling(r#"{"daemonSets": {}}"#));
    assert!(scenario.slots("p").is_empty());
    let [_, reason, message] = scenario.complete("p");
    let text = "list pods in all namespaces, which spec.settle.daemonSets needs";
    assert!(
        reason == "MissingPermission" && message.contains(text),
        "{message}"
    );
    scenario.fault_injector.allow("list", "pods", true);
    scenario.pass_secs(60);
    scenario.finish();
}

#[test]
fn a_workload_that_was_broken_before_the_drain_needs_to_be_no_better_after_it() {
    let mut scenario = Scenario::of_nodes(&["a", "b"]);
    scenario.add_node(
        "spare",
        &json!({ "metadata": { "labels": { "kubernetes.io/hostname": null } } }),
    );
    // Two of its three pods are never Ready.
    let labels = json!({ "app": "db" });
    let set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": { "name": "db", "namespace": "shop" },
        "spec": { "replicas": 3, "selector": { "matchLabels": labels }, "template": {
            "metadata": { "labels": labels },
            "spec": { "nodeName": "spare", "containers": [{ "name": "db", "image": "example.com/db" }] } } },
    });
    scenario.steer("spare", "start-delay", Some("never"));
    scenario.cluster.put(set).unwrap();
    let plan = plan_with("p", |spec| {
        spec.drain = Some(refit_api::DrainSpec::default());
        let settle = r#"{"workloads": true, "timeout": "2m"}"#;
        spec.settle = Some(serde_json::from_str(settle).unwrap());
    });
    scenario.apply_and_settle(plan);
    let first = scenario.slots("p")[0].clone();
    scenario.comes_to(&first, refit_facts::PodStage::Upgrade);
    scenario.change_ledger(&first, |ledger| {
        ledger.holders[0].evicted = vec!["ReplicaSet/shop/db=1".to_owned()];
    });
    scenario.succeed(&first);
    let entry = scenario.entry("p", &first);
    let message = "ReplicaSet shop/db has 0 of 3 pods ready, and had 1 before the drain";
    assert_eq!(entry.message.as_deref(), Some(message));
    assert_eq!(
        (entry.about[0].kind.as_str(), entry.about[0].name.as_str()),
        ("ReplicaSet", "db")
    );
    // One becomes Ready again.
    let pod = pod_of_shop(&scenario);
    let patch =
        json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
    scenario
        .cluster
        .patch_status(Kind::Pod, "shop", &pod, &patch)
        .unwrap();
    scenario.pass_secs(15);
    assert_ne!(scenario.slots("p"), [first.as_str()], "the other one");
}
