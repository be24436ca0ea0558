//! `spec.nodeInfo` and `spec.skipWhen`: what a node says of itself decides whether it gets a Job.

use super::scenario::Scenario;
use crate::api::{NodeInfoSpec, Plan, SkipWhenSpec};
use crate::rehearse::Kind;
use crate::rehearse::json::json;
use crate::rollout::tests::build::plan_with;

/// Nodes `a` and `b` are at the Plan's version, `c` and `d` are not.
fn begin(plan: Plan) -> Scenario {
    let mut story = Scenario::empty();
    for (name, kubelet, os) in [
        ("a", "v1.36.1+k3s1", "Ubuntu 22.04.3 LTS"),
        ("b", "1.36.1-k3s1", "Ubuntu 24.04.1 LTS"),
        ("c", "v1.36.0+k3s1", "Ubuntu 22.04.3 LTS"),
        ("d", "v1.35.4+k3s1", "Ubuntu 24.04.1 LTS"),
    ] {
        let info = json!({ "kubeletVersion": kubelet, "osImage": os });
        story.add_node(name, &json!({ "status": { "nodeInfo": info } }));
    }
    story.apply(plan);
    story.settle();
    story
}

fn plan(change: impl FnOnce(&mut crate::api::PlanSpec)) -> Plan {
    plan_with("p", |spec| {
        spec.version = Some("v1.36.1+k3s1".to_owned());
        spec.concurrency = Some(10);
        change(spec);
    })
}

fn skipping(spec: &mut crate::api::PlanSpec) {
    spec.skip_when = Some(SkipWhenSpec {
        kubelet_version: Some(true),
    });
}

fn progress(story: &Scenario) -> String {
    story.status("p").progress.clone().unwrap()
}

#[test]
fn a_node_whose_kubelet_has_the_version_is_done_without_a_job() {
    let mut story = begin(plan(skipping));
    assert_eq!(story.slots("p"), ["c", "d"]);
    assert_eq!(progress(&story), "2/4");
    let mut events = story.events_of("AtVersion");
    events.sort_unstable();
    assert_eq!(
        events,
        [
            "Node a is done without a Job: its kubelet has version v1.36.1+k3s1 already",
            "Node b is done without a Job: its kubelet has version 1.36.1-k3s1 already",
        ]
    );
    // One that is replaced by another machine later, too.
    let info = json!({ "nodeInfo": { "kubeletVersion": "v1.36.1+k3s1" } });
    story.add_node("e", &json!({ "status": info }));
    story.settle();
    assert_eq!((story.slots("p").len(), progress(&story)), (2, "3/5".to_owned()));
    story.roll_out();
    story.assert_over();
}

#[test]
fn without_skip_when_every_node_gets_a_job() {
    let mut story = begin(plan(|_| {}));
    assert_eq!(story.slots("p"), ["a", "b", "c", "d"]);
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_suspended_plan_marks_no_node_and_one_that_waits_for_its_window_does() {
    let mut story = begin(plan(|spec| {
        skipping(spec);
        spec.suspend = Some(true);
    }));
    assert_eq!(progress(&story), "0/4");
    let closed =
        json!({ "days": ["sunday"], "startTime": "00:00", "endTime": "00:00:01", "timeZone": "UTC" });
    story.patch(
        Kind::Plan,
        "p",
        &json!({ "spec": { "suspend": false, "window": closed } }),
    );
    story.settle();
    assert_eq!((story.slots("p").len(), progress(&story)), (0, "2/4".to_owned()));
    story.patch(Kind::Plan, "p", &json!({ "spec": { "window": null } }));
    story.settle();
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_node_at_the_version_that_is_not_ready_is_not_marked() {
    let mut story = Scenario::empty();
    let info = json!({ "kubeletVersion": "v1.36.1+k3s1" });
    story.add_node("a", &json!({ "status": { "nodeInfo": info } }));
    story.ready("a", false);
    story.apply(plan(skipping));
    story.settle();
    assert_eq!(progress(&story), "0/1");
    assert_eq!(story.phase("p", "a").1, "NodeNotReady");
    story.ready("a", true);
    story.settle();
    assert_eq!((story.slots("p").len(), progress(&story)), (0, "1/1".to_owned()));
    story.assert_over();
}

#[test]
fn a_node_stays_selected_while_its_upgrade_changes_what_it_says_of_itself() {
    let mut story = begin(plan(|spec| {
        spec.node_info = Some(NodeInfoSpec {
            kubelet_version: Some("<1.36.1".to_owned()),
            os_image: Some(vec!["Ubuntu 22.04*".to_owned(), "Ubuntu 24.04*".to_owned()]),
            ..NodeInfoSpec::default()
        });
    }));
    assert_eq!(
        (story.slots("p"), progress(&story)),
        (vec!["c".to_owned(), "d".to_owned()], "0/2".to_owned())
    );
    let info = json!({ "status": { "nodeInfo": { "kubeletVersion": "v1.36.1+k3s1" } } });
    story.cluster.patch_status(Kind::Node, "", "c", &info).unwrap();
    story.settle();
    story.restart();
    assert_eq!(
        (story.slots("p"), progress(&story)),
        (vec!["c".to_owned(), "d".to_owned()], "0/2".to_owned())
    );
    story.succeed("c");
    assert_eq!(
        (story.slots("p"), progress(&story)),
        (vec!["d".to_owned()], "1/2".to_owned())
    );
    // One that falls behind joins.
    let behind = json!({ "status": { "nodeInfo": { "kubeletVersion": "v1.35.0+k3s1" } } });
    story.cluster.patch_status(Kind::Node, "", "a", &behind).unwrap();
    story.settle();
    assert_eq!(
        (story.slots("p"), progress(&story)),
        (vec!["a".to_owned(), "d".to_owned()], "1/3".to_owned())
    );
    story.roll_out();
    assert_eq!(
        (story.complete("p").0, progress(&story)),
        ("True".to_owned(), "3/3".to_owned())
    );
}
