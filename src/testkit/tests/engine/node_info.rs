//! `spec.nodeInfo` and `spec.skipWhen`: what a node says of itself decides whether it gets a Job.

use super::scenario::Scenario;
use crate::fault::Rule;
use refit_api::{NodeInfoSpec, Plan, SkipWhenSpec};
use refit_fixtures::plan_with;
use refit_rehearse::Kind;
use refit_rehearse::json::json;

/// Nodes `a` and `b` are at the Plan's version, `c` and `d` are not.
fn begin(plan: Plan) -> Scenario {
    let mut scenario = Scenario::empty();
    for (name, kubelet, os) in [
        ("a", "v1.36.1+k3s1", "Ubuntu 22.04.3 LTS"),
        ("b", "1.36.1-k3s1", "Ubuntu 24.04.1 LTS"),
        ("c", "v1.36.0+k3s1", "Ubuntu 22.04.3 LTS"),
        ("d", "v1.35.4+k3s1", "Ubuntu 24.04.1 LTS"),
    ] {
        let info = json!({ "kubeletVersion": kubelet, "osImage": os });
        scenario.add_node(name, &json!({ "status": { "nodeInfo": info } }));
    }
    scenario.apply_and_settle(plan);
    scenario
}

fn plan(change: impl FnOnce(&mut refit_api::PlanSpec)) -> Plan {
    plan_with("p", |spec| {
        spec.version = Some("v1.36.1+k3s1".to_owned());
        spec.concurrency = Some(10);
        change(spec);
    })
}

fn skipping(spec: &mut refit_api::PlanSpec) {
    spec.skip_when = Some(SkipWhenSpec {
        kubelet_version: Some(true),
        ..SkipWhenSpec::default()
    });
}

fn progress(scenario: &Scenario) -> String {
    scenario.status("p").progress.clone().unwrap()
}

#[test]
fn a_node_whose_kubelet_has_the_version_is_done_without_a_job() {
    let mut scenario = begin(plan(skipping));
    assert_eq!(scenario.slots("p"), ["c", "d"]);
    assert_eq!(progress(&scenario), "2/4");
    let mut events = scenario.events_of("AtVersion");
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
    scenario.add_node("e", &json!({ "status": info }));
    scenario.settle();
    assert_eq!(
        (scenario.slots("p").len(), progress(&scenario)),
        (2, "3/5".to_owned())
    );
    scenario.finish();
}

#[test]
fn without_skip_when_every_node_gets_a_job() {
    let mut scenario = begin(plan(|_| {}));
    assert_eq!(scenario.slots("p"), ["a", "b", "c", "d"]);
    scenario.finish();
}

#[test]
fn a_suspended_plan_marks_no_node_and_one_that_waits_for_its_window_does() {
    let mut scenario = begin(plan(|spec| {
        skipping(spec);
        spec.suspend = Some(true);
    }));
    assert_eq!(progress(&scenario), "0/4");
    let closed =
        json!({ "days": ["sunday"], "startTime": "00:00", "endTime": "00:00:01", "timeZone": "UTC" });
    scenario.patch(
        Kind::Plan,
        "p",
        &json!({ "spec": { "suspend": false, "window": closed } }),
    );
    scenario.settle();
    assert_eq!(
        (scenario.slots("p").len(), progress(&scenario)),
        (0, "2/4".to_owned())
    );
    scenario.patch(Kind::Plan, "p", &json!({ "spec": { "window": null } }));
    scenario.settle();
    scenario.finish();
}

#[test]
fn a_node_at_the_version_that_is_not_ready_is_not_marked() {
    let mut scenario = Scenario::empty();
    let info = json!({ "kubeletVersion": "v1.36.1+k3s1" });
    scenario.add_node("a", &json!({ "status": { "nodeInfo": info } }));
    scenario.ready("a", false);
    scenario.apply_and_settle(plan(skipping));
    assert_eq!(progress(&scenario), "0/1");
    assert_eq!(scenario.phase("p", "a")[1], "NodeNotReady");
    scenario.ready("a", true);
    scenario.settle();
    assert_eq!(
        (scenario.slots("p").len(), progress(&scenario)),
        (0, "1/1".to_owned())
    );
    scenario.assert_over();
}

#[test]
fn a_node_stays_selected_while_its_upgrade_changes_what_it_says_of_itself() {
    let mut scenario = begin(plan(|spec| {
        spec.node_info = Some(NodeInfoSpec {
            kubelet_version: Some("<1.36.1".to_owned()),
            os_image: Some(vec!["Ubuntu 22.04*".to_owned(), "Ubuntu 24.04*".to_owned()]),
            ..NodeInfoSpec::default()
        });
    }));
    assert_eq!(
        (scenario.slots("p"), progress(&scenario)),
        (vec!["c".to_owned(), "d".to_owned()], "0/2".to_owned())
    );
    let info = json!({ "status": { "nodeInfo": { "kubeletVersion": "v1.36.1+k3s1" } } });
    scenario.cluster.patch_status(Kind::Node, "", "c", &info).unwrap();
    scenario.settle();
    scenario.restart();
    assert_eq!(
        (scenario.slots("p"), progress(&scenario)),
        (vec!["c".to_owned(), "d".to_owned()], "0/2".to_owned())
    );
    scenario.succeed("c");
    assert_eq!(
        (scenario.slots("p"), progress(&scenario)),
        (vec!["d".to_owned()], "1/2".to_owned())
    );
    // One that falls behind joins.
    let behind = json!({ "status": { "nodeInfo": { "kubeletVersion": "v1.35.0+k3s1" } } });
    scenario
        .cluster
        .patch_status(Kind::Node, "", "a", &behind)
        .unwrap();
    scenario.settle();
    assert_eq!(
        (scenario.slots("p"), progress(&scenario)),
        (vec!["a".to_owned(), "d".to_owned()], "1/3".to_owned())
    );
    scenario.roll_out();
    assert_eq!(
        (&*scenario.complete("p")[0], &*progress(&scenario)),
        ("True", "3/3")
    );
}

#[test]
fn nodes_that_cannot_be_marked_as_done_keep_no_other_node_from_it() {
    let mut scenario = Scenario::empty();
    for number in 0..50 {
        let name = format!("n{number:02}");
        let info = json!({ "kubeletVersion": "v1.36.1+k3s1" });
        scenario.add_node(&name, &json!({ "status": { "nodeInfo": info } }));
        if number < 40 {
            let refusal = Rule::on("patch", "nodes").named(&name).answer(422);
            scenario.fault_always(refusal);
        }
    }
    scenario.apply(plan(skipping));
    scenario.pass_secs(60);
    assert_eq!(progress(&scenario), "10/50");
    scenario.mend();
    scenario.pass_secs(600);
    assert_eq!(progress(&scenario), "50/50");
    scenario.assert_over();
}
