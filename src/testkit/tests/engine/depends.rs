//! `spec.dependsOn`: one Plan after another.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::scenario::Scenario;
use refit_api::{DependencySpec, Plan, PlanSpec, VersionPolicySpec};
use refit_facts::PodStage;
use refit_fixtures::plan_with;
use refit_rehearse::Kind;
use refit_rehearse::json::{Value, json};

fn on(names: &[&str]) -> Vec<DependencySpec> {
    let dependency = |name: &&str| DependencySpec {
        name: (*name).to_owned(),
    };
    names.iter().map(dependency).collect()
}

/// A Plan for the nodes with the label `role` of this value.
fn plan_for(name: &str, role: &str, change: impl FnOnce(&mut PlanSpec)) -> Plan {
    plan_with(name, |spec| {
        spec.node_selector = Some(LabelSelector {
            match_labels: Some([("role".to_owned(), role.to_owned())].into()),
            ..LabelSelector::default()
        });
        change(spec);
    })
}

/// Two servers and an agent, and a Plan for each role; that for agents waits.
fn servers_first() -> Scenario {
    let mut scenario = Scenario::empty();
    for (name, role) in [("s1", "server"), ("s2", "server"), ("a1", "agent")] {
        scenario.add_nodes(&[name]);
        scenario.label(name, "role", Some(role));
    }
    scenario.apply(plan_for("agents", "agent", |spec| {
        spec.depends_on = Some(on(&["servers"]));
    }));
    scenario.apply_and_settle(plan_for("servers", "server", |_| {}));
    scenario
}

/// All Plans are complete. They select different nodes, so no node is done for all of them.
#[track_caller]
fn assert_complete(scenario: &Scenario) {
    let name = |plan: &Value| plan["metadata"]["name"].as_str().unwrap().to_owned();
    let plans = scenario
        .cluster
        .with(|state| state.all(Kind::Plan).map(name).collect::<Vec<_>>());
    for plan in plans {
        assert_eq!(scenario.complete(&plan)[0], "True", "{plan}");
    }
}

#[test]
fn a_plan_waits_without_a_slot_until_the_other_one_is_complete() {
    let mut scenario = servers_first();
    let text = "spec.dependsOn: Plan servers is not Complete";
    assert_eq!(
        scenario.complete("agents"),
        ["False", "DependencyNotComplete", text]
    );
    assert_eq!(scenario.phase("agents", "a1")[1], "DependencyNotComplete");
    for _ in 0..2 {
        assert!(scenario.slots("agents").is_empty());
        let server = scenario.slots("servers").remove(0);
        scenario.restart();
        scenario.settle();
        scenario.succeed(&server);
    }
    assert_eq!(scenario.slots("agents"), ["a1"]);
    scenario.roll_out();
    assert_complete(&scenario);
}

#[test]
fn a_plan_that_fails_or_gets_another_version_holds_the_one_that_waits_for_it() {
    let mut scenario = servers_first();
    let server = scenario.slots("servers").remove(0);
    scenario.fail(&server);
    assert_eq!(scenario.phase("agents", "a1")[1], "DependencyNotComplete");
    scenario.retry(&server, "servers");
    scenario.settle();
    scenario.succeed(&server);
    let server = scenario.slots("servers").remove(0);
    // A version that comes with the end of the first one.
    scenario.edit("servers", |spec| spec.version = Some("v2".to_owned()));
    scenario.succeed(&server);
    assert_eq!(scenario.phase("agents", "a1")[1], "DependencyNotComplete");
    scenario.roll_out();
    assert_complete(&scenario);
}

#[test]
fn nodes_under_way_finish_when_the_other_plan_starts_again() {
    let mut scenario = servers_first();
    for _ in 0..2 {
        let server = scenario.slots("servers").remove(0);
        scenario.succeed(&server);
    }
    scenario.comes_to("a1", PodStage::Upgrade);
    scenario.edit_and_settle("servers", |spec| spec.version = Some("v2".to_owned()));
    assert_eq!(scenario.slots("agents"), ["a1"]);
    scenario.succeed("a1");
    assert!(scenario.is_done("a1", "agents"));
    scenario.roll_out();
    assert_complete(&scenario);
}

#[test]
fn a_node_that_joins_the_other_plan_holds_the_one_that_waits_for_it() {
    let mut scenario = servers_first();
    scenario.edit("agents", |spec| spec.suspend = Some(true));
    for _ in 0..2 {
        let server = scenario.slots("servers").remove(0);
        scenario.succeed(&server);
    }
    scenario.add_nodes(&["s3"]);
    scenario.label("s3", "role", Some("server"));
    scenario.edit_and_settle("agents", |spec| spec.suspend = None);
    assert!(scenario.slots("agents").is_empty());
    assert_eq!(scenario.slots("servers"), ["s3"]);
    scenario.roll_out();
    assert_complete(&scenario);
}

#[test]
fn a_plan_that_does_not_exist_is_named_until_it_is_created() {
    let mut scenario = Scenario::with(
        &["a", "b"],
        plan_with("p", |spec| spec.depends_on = Some(on(&["later", "other"]))),
    );
    let text = "spec.dependsOn: Plans later, other do not exist in this namespace";
    assert_eq!(scenario.complete("p"), ["False", "DependencyUnknown", text]);
    scenario.apply_and_settle(plan_for("later", "nobody", |_| {}));
    let text = "spec.dependsOn: Plan other does not exist in this namespace";
    assert_eq!(scenario.complete("p"), ["False", "DependencyUnknown", text]);
    scenario.apply(plan_for("other", "nobody", |_| {}));
    scenario.settle();
    let nothing = "spec.dependsOn: Plan later selects no node, so it is not complete: correct its nodeSelector, or remove the entry";
    assert_eq!(
        scenario.complete("p"),
        ["False", "DependencySelectsNothing", nothing]
    );
    scenario.label("a", "role", Some("nobody"));
    scenario.settle();
    while scenario.slots("p").is_empty() {
        scenario.succeed("a");
    }
    scenario.delete(Kind::Plan, "other");
    let node = scenario.slots("p").remove(0);
    scenario.succeed(&node);
    assert_eq!(scenario.complete("p"), ["False", "DependencyUnknown", text]);
    scenario.edit("p", |spec| spec.depends_on = None);
    scenario.roll_out();
    assert_complete(&scenario);
}

#[test]
fn the_members_of_a_cycle_are_named_and_a_plan_that_waits_for_one_waits_for_it_alone() {
    let mut scenario = Scenario::of_nodes(&["n"]);
    for (name, other) in [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")] {
        scenario.apply(plan_with(name, |spec| spec.depends_on = Some(on(&[other]))));
    }
    scenario.settle();
    let text = "spec.dependsOn is a cycle: a waits for b waits for c waits for a";
    assert_eq!(scenario.complete("a"), ["False", "DependencyCycle", text]);
    let text = "spec.dependsOn is a cycle: b waits for c waits for a waits for b";
    assert_eq!(scenario.complete("b"), ["False", "DependencyCycle", text]);
    let text = "spec.dependsOn: Plan a is not Complete";
    assert_eq!(scenario.complete("d"), ["False", "DependencyNotComplete", text]);
    assert!(scenario.invariants.jobs.is_empty());
    scenario.edit("c", |spec| spec.depends_on = None);
    scenario.roll_out();
    assert_complete(&scenario);
}

#[test]
fn plans_of_one_channel_have_the_same_version() {
    let url = "https://example.com/stable";
    let mut scenario = Scenario::empty();
    scenario.offer(url, "v1.33.1");
    for (name, role) in [("s1", "server"), ("a1", "agent")] {
        scenario.add_nodes(&[name]);
        scenario.label(name, "role", Some(role));
    }
    let follows = |spec: &mut PlanSpec| (spec.version, spec.channel) = (None, Some(url.to_owned()));
    scenario.apply_and_settle(plan_for("servers", "server", |spec| {
        follows(spec);
        spec.version_policy = Some(VersionPolicySpec {
            range: Some("~1.33.0".to_owned()),
            ..VersionPolicySpec::default()
        });
    }));
    scenario.succeed("s1");
    scenario.offer(url, "v1.34.0");
    scenario.annotate(
        Kind::Plan,
        "servers",
        refit_api::names::ANNOTATION_POLL_NOW,
        Some("1"),
    );
    scenario.settle();
    scenario.apply_and_settle(plan_for("agents", "agent", |spec| {
        follows(spec);
        spec.depends_on = Some(on(&["servers"]));
    }));
    let text = "spec.dependsOn: Plan servers is at v1.33.1, and this Plan at v1.34.0, from the same channel";
    assert_eq!(
        scenario.complete("agents"),
        ["False", "DependencyNotComplete", text]
    );
    scenario.edit_and_settle("servers", |spec| spec.version_policy = None);
    assert_eq!(scenario.slots("servers"), ["s1"]);
    scenario.succeed("s1");
    assert_eq!(scenario.slots("agents"), ["a1"]);
    scenario.roll_out();
    assert_complete(&scenario);
}

/// Nodes two minor versions behind a feed, with a Plan for servers and one for agents.
fn two_minors_behind(servers: &str, agents: impl Fn(&mut PlanSpec)) -> Scenario {
    let url = "https://example.com/feed";
    let mut scenario = Scenario::empty();
    let releases = ["v1.34.9+k3s1", "v1.35.3+k3s1", "v1.36.3+k3s1"];
    scenario.offer_list(url, &releases.map(|version| (version, None)));
    for (name, role) in [("s1", "server"), ("a1", "agent")] {
        scenario.add_node(name, &kubelet("v1.34.1+k3s1"));
        scenario.label(name, "role", Some(role));
    }
    scenario.label("s1", "node-role.kubernetes.io/control-plane", Some("true"));
    let plan = |name: &str, role: &str, range: &str| {
        plan_for(name, role, |spec| {
            (spec.version, spec.channel) = (None, Some(url.to_owned()));
            spec.version_policy = Some(VersionPolicySpec {
                range: Some(range.to_owned()),
                max_minor_skip: Some(1),
                ..VersionPolicySpec::default()
            });
        })
    };
    scenario.apply(plan("servers", "server", servers));
    let mut follower = plan("agents", "agent", ">=1.34.0");
    agents(&mut follower.spec);
    scenario.apply_and_settle(follower);
    scenario
}

fn kubelet(version: &str) -> Value {
    json!({ "status": { "nodeInfo": { "kubeletVersion": version } } })
}

/// Its Job ends well, and its kubelet has the version.
fn upgrade(scenario: &mut Scenario, node: &str, version: &str) {
    scenario.succeed(node);
    report(scenario, node, version);
}

fn report(scenario: &mut Scenario, node: &str, version: &str) {
    let changed = scenario
        .cluster
        .patch_status(Kind::Node, "", node, kubelet(version));
    changed.unwrap();
    scenario.settle();
}

#[test]
fn agents_take_each_minor_version_of_their_servers_before_those_take_the_next() {
    let by_dependency = |spec: &mut PlanSpec| spec.depends_on = Some(on(&["servers"]));
    let by_prepare = |spec: &mut PlanSpec| {
        let container = serde_json::json!({ "image": "rancher/k3s-upgrade", "args": ["prepare", "servers"] });
        spec.prepare = Some(serde_json::from_value(container).unwrap());
    };
    let waits: [&dyn Fn(&mut PlanSpec); 2] = [&by_dependency, &by_prepare];
    for (case, waits) in waits.into_iter().enumerate() {
        let mut scenario = two_minors_behind(">=1.34.0", waits);
        for next in ["v1.35.3+k3s1", "v1.36.3+k3s1"] {
            for (plan, node) in [("servers", "s1"), ("agents", "a1")] {
                assert_eq!(scenario.slots(plan), [node], "{case} {next}");
                for plan in ["servers", "agents"] {
                    let version = scenario.status(plan).latest_version.clone();
                    assert_eq!(version, Some(next.replace('+', "-")), "{case} {plan}");
                }
                upgrade(&mut scenario, node, next);
            }
        }
        scenario.roll_out();
        assert_complete(&scenario);
        assert_eq!(scenario.invariants.upgrades, 4, "{case}");
    }
}

#[test]
fn a_version_that_waits_for_agents_names_their_plan_and_their_node() {
    let mut scenario = two_minors_behind(">=1.34.0", |spec| {
        spec.depends_on = Some(on(&["servers"]));
        spec.suspend = Some(true);
    });
    upgrade(&mut scenario, "s1", "v1.35.3+k3s1");
    let [status, reason, message] = scenario.condition("servers", "UpToDate");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "MinorSkip"));
    let text = "v1.36.3+k3s1 is not taken yet: it is 2 minor versions from v1.34.1+k3s1, the oldest (node a1 of Plan agents), and";
    assert!(message.starts_with(text), "{message}");
    let [.., message] = scenario.condition("agents", "UpToDate");
    assert!(
        message.contains("from v1.34.1+k3s1, the oldest (node a1), and"),
        "{message}"
    );
}

/// A kubelet has the version before the Job of its node ends, and with it the Plans go on to the next one.
#[test]
fn a_node_under_way_waits_for_the_next_version_as_the_others_do() {
    let mut scenario = two_minors_behind(">=1.34.0", |spec| spec.depends_on = Some(on(&["servers"])));
    upgrade(&mut scenario, "s1", "v1.35.3+k3s1");
    assert_eq!(scenario.slots("agents"), ["a1"]);
    report(&mut scenario, "a1", "v1.35.3+k3s1");
    for plan in ["servers", "agents"] {
        let version = scenario.status(plan).latest_version.clone();
        assert_eq!(version.as_deref(), Some("v1.36.3-k3s1"), "{plan}");
    }
    scenario.succeed("a1");
    scenario.settle();
    assert_eq!(scenario.slots("agents"), [""; 0]);
    assert_eq!(scenario.complete("agents")[1], "DependencyNotComplete");
    upgrade(&mut scenario, "s1", "v1.36.3+k3s1");
    assert_eq!(scenario.slots("agents"), ["a1"]);
    upgrade(&mut scenario, "a1", "v1.36.3+k3s1");
    scenario.roll_out();
    assert_complete(&scenario);
    assert_eq!(scenario.invariants.upgrades, 4);
}

#[test]
fn a_node_under_way_does_not_go_back_with_its_plan_nor_to_another_version_of_a_suspended_one() {
    let start = || {
        let mut scenario = Scenario::empty();
        for name in ["a", "b"] {
            scenario.add_node(name, &kubelet("v1.35.1+k3s1"));
        }
        scenario.apply_and_settle(plan_with("p", |spec| {
            spec.version = Some("v1.35.3+k3s1".to_owned());
            spec.upgrade.get_or_insert_default().image = "rancher/k3s-upgrade".to_owned();
        }));
        let first = scenario.slots("p").remove(0);
        report(&mut scenario, &first, "v1.35.3+k3s1");
        (scenario, first)
    };
    let (mut scenario, first) = start();
    scenario.edit_and_settle("p", |spec| spec.version = Some("v1.35.2+k3s1".to_owned()));
    scenario.succeed(&first);
    scenario.settle();
    let second = scenario.slots("p").remove(0);
    assert_ne!(second, first);
    upgrade(&mut scenario, &second, "v1.35.2+k3s1");
    assert_eq!(scenario.slots("p"), [""; 0]);
    assert_eq!(scenario.phase("p", &first)[1], "NodeIsNewer");

    let (mut scenario, first) = start();
    scenario.edit_and_settle("p", |spec| {
        (spec.version, spec.suspend) = (Some("v1.35.4+k3s1".to_owned()), Some(true));
    });
    scenario.succeed(&first);
    scenario.settle();
    assert_eq!(scenario.slots("p"), [""; 0]);
    assert_eq!(scenario.complete("p")[1], "Suspended");
}

#[test]
fn a_failed_node_keeps_its_slot_and_waits_for_a_version_that_its_kubelet_may_have() {
    let mut scenario = Scenario::empty();
    for name in ["a", "b"] {
        scenario.add_node(name, &kubelet("v1.34.1+k3s1"));
    }
    let to = |version: &'static str| move |spec: &mut PlanSpec| spec.version = Some(version.to_owned());
    scenario.apply_and_settle(plan_with("p", |spec| {
        to("v1.35.3+k3s1")(spec);
        spec.upgrade.get_or_insert_default().image = "rancher/k3s-upgrade".to_owned();
        spec.version_policy = Some(VersionPolicySpec {
            max_minor_skip: Some(1),
            ..VersionPolicySpec::default()
        });
    }));
    let failed = scenario.slots("p").remove(0);
    scenario.fail(&failed);
    scenario.edit_and_settle("p", to("v1.36.3+k3s1"));
    scenario.pass_secs(60);
    assert_eq!(scenario.slots("p"), [&*failed]);
    assert_eq!(scenario.phase("p", &failed), ["Pending", "MinorSkip"]);
    assert_eq!(scenario.live_nodes("p"), [""; 0]);
    scenario.edit_and_settle("p", to("v1.35.4+k3s1"));
    assert_eq!(scenario.live_nodes("p"), [&*failed]);
    scenario.roll_out();
    scenario.assert_over();
}

#[test]
fn agents_in_an_older_range_do_not_wait_for_their_servers_to_come_back() {
    let mut scenario = two_minors_behind(">=1.35.0", |spec| {
        spec.depends_on = Some(on(&["servers"]));
        spec.version_policy.get_or_insert_default().range = Some("1.34.x".to_owned());
    });
    for next in ["v1.35.3+k3s1", "v1.36.3+k3s1"] {
        assert_eq!(scenario.slots("servers"), ["s1"], "{next}");
        upgrade(&mut scenario, "s1", next);
        assert_eq!(scenario.slots("agents"), ["a1"], "{next}");
    }
    upgrade(&mut scenario, "a1", "v1.34.9+k3s1");
    scenario.roll_out();
    assert_complete(&scenario);
}

#[test]
fn agents_of_a_distribution_wait_for_servers_that_are_not_older() {
    let k3s = |version: &'static str| {
        move |spec: &mut PlanSpec| {
            spec.version = Some(version.to_owned());
            spec.upgrade.get_or_insert_default().image = "rancher/k3s-upgrade".to_owned();
        }
    };
    let mut scenario = Scenario::empty();
    for (name, role) in [("s1", "server"), ("a1", "agent")] {
        scenario.add_node(name, &kubelet("v1.33.1+k3s1"));
        scenario.label(name, "role", Some(role));
    }
    scenario.label("s1", "node-role.kubernetes.io/control-plane", Some("true"));
    scenario.apply(plan_for("servers", "server", k3s("v1.33.4+k3s1")));
    scenario.settle();
    scenario.succeed("s1");
    scenario.apply_and_settle(plan_for("agents", "agent", |spec| {
        k3s("v1.34.1+k3s1")(spec);
        spec.depends_on = Some(on(&["servers"]));
    }));
    let text = "spec.dependsOn: Plan servers is at v1.33.4-k3s1, which is older than v1.34.1-k3s1, the version of this Plan";
    assert_eq!(
        scenario.complete("agents"),
        ["False", "DependencyNotComplete", text]
    );
    scenario.edit_and_settle("servers", k3s("v1.34.1+k3s1"));
    assert_eq!(scenario.slots("servers"), ["s1"]);
    scenario.succeed("s1");
    // Its Plan says that it is done, and the node itself that it is not.
    let why = "Node a1: control-plane node s1 has v1.33.1+k3s1, which is older than v1.34.1-k3s1: a node of the control plane gets a version before the others";
    assert_eq!(scenario.complete("servers")[0], "True");
    assert_eq!(scenario.complete("agents"), ["False", "ControlPlaneOlder", why]);
    scenario.edit("agents", |spec| spec.depends_on = None);
    scenario.settle();
    assert_eq!(
        scenario.complete("agents"),
        ["False", "ControlPlaneOlder", why],
        "without dependsOn, too"
    );
    scenario
        .cluster
        .patch_status(Kind::Node, "", "s1", kubelet("v1.34.1+k3s1"))
        .unwrap();
    // The API server was asked for its version before.
    scenario.pass_secs(61);
    assert_eq!(scenario.slots("agents"), ["a1"]);
    scenario.roll_out();
    assert_complete(&scenario);
}
