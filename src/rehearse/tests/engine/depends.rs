//! `spec.dependsOn`: one Plan after another.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::scenario::Scenario;
use crate::api::{DependencySpec, Plan, PlanSpec};
use crate::rehearse::Kind;
use crate::rehearse::json::Value;
use crate::rollout::PodStage;
use crate::rollout::tests::build::plan_with;

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
    let mut story = Scenario::empty();
    for (name, role) in [("s1", "server"), ("s2", "server"), ("a1", "agent")] {
        story.add_nodes(&[name]);
        story.label(name, "role", Some(role));
    }
    story.apply(plan_for("agents", "agent", |spec| {
        spec.depends_on = Some(on(&["servers"]));
    }));
    story.apply(plan_for("servers", "server", |_| {}));
    story.settle();
    story
}

/// All Plans are complete. They select different nodes, so no node is done for all of them.
#[track_caller]
fn assert_complete(story: &Scenario) {
    let name = |plan: &Value| plan["metadata"]["name"].as_str().unwrap().to_owned();
    let plans = story
        .cluster
        .with(|state| state.all(Kind::Plan).map(name).collect::<Vec<_>>());
    for plan in plans {
        assert_eq!(story.complete(&plan).0, "True", "{plan}");
    }
}

fn says(reason: &str, message: &str) -> (String, String, String) {
    ("False".to_owned(), reason.to_owned(), message.to_owned())
}

#[test]
fn a_plan_waits_without_a_slot_until_the_other_one_is_complete() {
    let mut story = servers_first();
    let text = "spec.dependsOn: Plan servers is not Complete";
    assert_eq!(story.complete("agents"), says("DependencyNotComplete", text));
    assert_eq!(story.phase("agents", "a1").1, "DependencyNotComplete");
    for _ in 0..2 {
        assert!(story.slots("agents").is_empty());
        let server = story.slots("servers").remove(0);
        story.restart();
        story.settle();
        story.succeed(&server);
    }
    assert_eq!(story.slots("agents"), ["a1"]);
    story.roll_out();
    assert_complete(&story);
}

#[test]
fn a_plan_that_fails_or_gets_another_version_holds_the_one_that_waits_for_it() {
    let mut story = servers_first();
    let server = story.slots("servers").remove(0);
    story.fail(&server);
    assert_eq!(story.phase("agents", "a1").1, "DependencyNotComplete");
    story.retry(&server, "servers");
    story.settle();
    story.succeed(&server);
    let server = story.slots("servers").remove(0);
    // A version that comes with the end of the first one.
    story.edit("servers", |spec| spec.version = Some("v2".to_owned()));
    story.succeed(&server);
    assert_eq!(story.phase("agents", "a1").1, "DependencyNotComplete");
    story.roll_out();
    assert_complete(&story);
}

#[test]
fn nodes_under_way_finish_when_the_other_plan_starts_again() {
    let mut story = servers_first();
    for _ in 0..2 {
        let server = story.slots("servers").remove(0);
        story.succeed(&server);
    }
    story.comes_to("a1", PodStage::Upgrade);
    story.edit("servers", |spec| spec.version = Some("v2".to_owned()));
    story.settle();
    assert_eq!(story.slots("agents"), ["a1"]);
    story.succeed("a1");
    assert!(story.is_done("a1", "agents"));
    story.roll_out();
    assert_complete(&story);
}

#[test]
fn a_node_that_joins_the_other_plan_holds_the_one_that_waits_for_it() {
    let mut story = servers_first();
    story.edit("agents", |spec| spec.suspend = Some(true));
    for _ in 0..2 {
        let server = story.slots("servers").remove(0);
        story.succeed(&server);
    }
    story.add_nodes(&["s3"]);
    story.label("s3", "role", Some("server"));
    story.edit("agents", |spec| spec.suspend = None);
    story.settle();
    assert!(story.slots("agents").is_empty());
    assert_eq!(story.slots("servers"), ["s3"]);
    story.roll_out();
    assert_complete(&story);
}

#[test]
fn a_plan_that_does_not_exist_is_named_until_it_is_created() {
    let mut story = Scenario::with(
        &["a", "b"],
        plan_with("p", |spec| spec.depends_on = Some(on(&["later", "other"]))),
    );
    let text = "spec.dependsOn: Plans later, other do not exist in this namespace";
    assert_eq!(story.complete("p"), says("DependencyUnknown", text));
    story.apply(plan_for("later", "nobody", |_| {}));
    story.settle();
    let text = "spec.dependsOn: Plan other does not exist in this namespace";
    assert_eq!(story.complete("p"), says("DependencyUnknown", text));
    story.apply(plan_for("other", "nobody", |_| {}));
    story.settle();
    assert_eq!(story.slots("p").len(), 1, "a Plan without nodes is complete");
    story.delete(Kind::Plan, "other");
    let node = story.slots("p").remove(0);
    story.succeed(&node);
    assert_eq!(story.complete("p"), says("DependencyUnknown", text));
    story.edit("p", |spec| spec.depends_on = None);
    story.roll_out();
    assert_complete(&story);
}

#[test]
fn the_members_of_a_cycle_are_named_and_a_plan_that_waits_for_one_waits_for_it_alone() {
    let mut story = Scenario::empty();
    story.add_nodes(&["n"]);
    for (name, other) in [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")] {
        story.apply(plan_with(name, |spec| spec.depends_on = Some(on(&[other]))));
    }
    story.settle();
    let text = "spec.dependsOn is a cycle: a waits for b waits for c waits for a";
    assert_eq!(story.complete("a"), says("DependencyCycle", text));
    let text = "spec.dependsOn is a cycle: b waits for c waits for a waits for b";
    assert_eq!(story.complete("b"), says("DependencyCycle", text));
    let text = "spec.dependsOn: Plan a is not Complete";
    assert_eq!(story.complete("d"), says("DependencyNotComplete", text));
    assert!(story.invariants.jobs.is_empty());
    story.edit("c", |spec| spec.depends_on = None);
    story.roll_out();
    assert_complete(&story);
}

#[test]
fn plans_of_one_channel_have_the_same_version() {
    let url = "https://example.com/stable";
    let mut story = Scenario::empty();
    story.offer(url, "v1.33.1");
    for (name, role) in [("s1", "server"), ("a1", "agent")] {
        story.add_nodes(&[name]);
        story.label(name, "role", Some(role));
    }
    let follows = |spec: &mut PlanSpec| (spec.version, spec.channel) = (None, Some(url.to_owned()));
    story.apply(plan_for("servers", "server", |spec| {
        follows(spec);
        spec.version_policy = Some(crate::api::VersionPolicySpec {
            range: Some("~1.33.0".to_owned()),
            ..crate::api::VersionPolicySpec::default()
        });
    }));
    story.settle();
    story.succeed("s1");
    story.offer(url, "v1.34.0");
    story.annotate(
        Kind::Plan,
        "servers",
        crate::api::names::ANNOTATION_POLL_NOW,
        Some("1"),
    );
    story.settle();
    story.apply(plan_for("agents", "agent", |spec| {
        follows(spec);
        spec.depends_on = Some(on(&["servers"]));
    }));
    story.settle();
    let text = "spec.dependsOn: Plan servers is at v1.33.1, and this Plan at v1.34.0, from the same channel";
    assert_eq!(story.complete("agents"), says("DependencyNotComplete", text));
    story.edit("servers", |spec| spec.version_policy = None);
    story.settle();
    assert_eq!(story.slots("servers"), ["s1"]);
    story.succeed("s1");
    assert_eq!(story.slots("agents"), ["a1"]);
    story.roll_out();
    assert_complete(&story);
}

#[test]
fn agents_of_a_distribution_wait_for_servers_that_are_not_older() {
    let k3s = |version: &'static str| {
        move |spec: &mut PlanSpec| {
            spec.version = Some(version.to_owned());
            spec.upgrade.get_or_insert_default().image = "rancher/k3s-upgrade".to_owned();
        }
    };
    let mut story = Scenario::empty();
    for (name, role) in [("s1", "server"), ("a1", "agent")] {
        story.add_nodes(&[name]);
        story.label(name, "role", Some(role));
    }
    story.apply(plan_for("servers", "server", k3s("v1.33.4+k3s1")));
    story.settle();
    story.succeed("s1");
    story.apply(plan_for("agents", "agent", |spec| {
        k3s("v1.34.1+k3s1")(spec);
        spec.depends_on = Some(on(&["servers"]));
    }));
    story.settle();
    let text = "spec.dependsOn: Plan servers is at v1.33.4-k3s1, which is older than v1.34.1-k3s1, the version of this Plan";
    assert_eq!(story.complete("agents"), says("DependencyNotComplete", text));
    story.edit("servers", k3s("v1.34.1+k3s1"));
    story.settle();
    assert_eq!(story.slots("servers"), ["s1"]);
    story.roll_out();
    assert_complete(&story);
}
