//! Done nodes whose kubelet does not have the version: the upgrade changed nothing, or the machine has gone back.

use super::scenario::Scenario;
use refit_api::{OnDrift, PlanSpec, SkipWhenSpec};
use refit_fixtures::plan_with;
use refit_rehearse::Kind;
use refit_rehearse::json::json;

const OLD: &str = "v1.36.0+k3s1";
const NEW: &str = "v1.36.1+k3s1";

/// A Plan that installs `NEW` on nodes `a` and `b`.
fn begin(change: impl FnOnce(&mut PlanSpec)) -> Scenario {
    let mut scenario = Scenario::empty();
    for name in ["a", "b"] {
        scenario.add_node(
            name,
            &json!({ "status": { "nodeInfo": { "kubeletVersion": OLD, "osImage": "Talos (v1.11.1)" } } }),
        );
    }
    scenario.apply_and_settle(plan_with("p", |spec| {
        spec.version = Some(NEW.to_owned());
        spec.concurrency = Some(2);
        spec.upgrade.get_or_insert_default().image = "rancher/k3s-upgrade".to_owned();
        change(spec);
    }));
    scenario
}

fn report(scenario: &mut Scenario, node: &str, info: &serde_json::Value) {
    let status = json!({ "status": { "nodeInfo": (info.clone()) } });
    scenario
        .cluster
        .patch_status(Kind::Node, "", node, status)
        .unwrap();
    scenario.settle();
}

fn kubelet(scenario: &mut Scenario, node: &str, version: &str) {
    report(scenario, node, &serde_json::json!({ "kubeletVersion": version }));
}

/// Node, version and reason of each entry.
fn entries(scenario: &Scenario) -> Vec<[String; 3]> {
    let status = scenario.status("p");
    let entries = status.version_differs.as_ref().unwrap().iter();
    entries
        .map(|it| {
            [
                it.name.clone(),
                it.kubelet_version.clone(),
                it.reason.clone().unwrap().to_string(),
            ]
        })
        .collect()
}

fn entry(node: &str, version: &str, reason: &str) -> [String; 3] {
    [node, version, reason].map(str::to_owned)
}

#[test]
fn a_done_node_whose_kubelet_stays_as_it_was_is_named_after_a_minute() {
    let mut scenario = begin(|spec| spec.on_drift = Some(OnDrift::Rerun));
    scenario.succeed("a");
    scenario.succeed("b");
    kubelet(&mut scenario, "b", NEW);
    assert_eq!(entries(&scenario), [entry("a", OLD, "VersionDiffers")]);
    assert_eq!(
        scenario.complete("p"),
        ["True", "Complete", ""],
        "its kubelet may be starting"
    );
    scenario.pass_secs(61);
    let text = "kubelets with another version than v1.36.1-k3s1: a (VersionDiffers v1.36.0+k3s1)";
    assert_eq!(scenario.complete("p"), ["True", "Complete", text]);
    // It would change nothing the next time either.
    scenario.restart();
    scenario.pass_secs(600);
    assert_eq!(scenario.status("p").progress.as_deref(), Some("2/2"));
    assert_eq!(scenario.invariants.upgrades, 2);
    kubelet(&mut scenario, "a", NEW);
    scenario.pass_secs(61);
    assert_eq!(entries(&scenario), Vec::<[String; 3]>::new());
    assert_eq!(scenario.complete("p"), ["True", "Complete", ""]);
}

#[test]
fn a_node_that_goes_back_has_drifted_also_while_no_controller_runs() {
    for (on_drift, stops) in [(None, false), (None, true), (Some(OnDrift::Report), false)] {
        let mut scenario = begin(|spec| spec.on_drift = on_drift);
        for node in ["a", "b"] {
            scenario.succeed(node);
            kubelet(&mut scenario, node, NEW);
        }
        scenario.pass_secs(61);
        if stops {
            scenario.stop();
        }
        kubelet(&mut scenario, "a", "v1.35.9+k3s1");
        // Newer than the Plan: somebody has upgraded it.
        kubelet(&mut scenario, "b", "v1.36.2+k3s1");
        if stops {
            scenario.start();
        }
        scenario.pass_secs(61);
        assert_eq!(
            entries(&scenario),
            [
                entry("a", "v1.35.9+k3s1", "Drifted"),
                entry("b", "v1.36.2+k3s1", "VersionDiffers")
            ]
        );
        assert_eq!(scenario.status("p").progress.as_deref(), Some("2/2"));
        assert!(scenario.complete("p")[2].contains("a (Drifted v1.35.9+k3s1)"));
    }
}

#[test]
fn a_node_that_has_drifted_runs_the_plan_again_once_if_the_plan_says_so() {
    let mut scenario = begin(|spec| spec.on_drift = Some(OnDrift::Rerun));
    for node in ["a", "b"] {
        scenario.succeed(node);
        kubelet(&mut scenario, node, NEW);
    }
    scenario.pass_secs(61);
    kubelet(&mut scenario, "a", OLD);
    scenario.pass_secs(30);
    assert_eq!(
        scenario.slots("p"),
        Vec::<String>::new(),
        "a kubelet may be restarted twice"
    );
    scenario.pass_secs(31);
    assert_eq!(scenario.slots("p"), ["a"]);
    assert_eq!(
        scenario.events_of("Drifted"),
        [
            "Node a has drifted: its kubelet has v1.36.0+k3s1, and had v1.36.1-k3s1. The Plan runs there again (onDrift)"
        ]
    );
    assert_eq!(entries(&scenario), Vec::<[String; 3]>::new());
    // This time the upgrade changes nothing.
    scenario.succeed("a");
    scenario.pass_secs(600);
    assert_eq!(entries(&scenario), [entry("a", OLD, "VersionDiffers")]);
    assert_eq!(scenario.invariants.upgrades, 3);
}

#[test]
fn a_suspended_plan_runs_again_on_a_drifted_node_when_it_is_resumed() {
    let mut scenario = begin(|spec| spec.on_drift = Some(OnDrift::Rerun));
    for node in ["a", "b"] {
        scenario.succeed(node);
        kubelet(&mut scenario, node, NEW);
    }
    scenario.pass_secs(61);
    scenario.edit_and_settle("p", |spec| spec.suspend = Some(true));
    kubelet(&mut scenario, "a", OLD);
    scenario.pass_secs(600);
    assert_eq!(entries(&scenario), [entry("a", OLD, "Drifted")]);
    scenario.edit_and_settle("p", |spec| spec.suspend = None);
    assert_eq!(scenario.slots("p"), ["a"]);
    scenario.finish();
}

/// A status that never compared kubelets knows nothing of what they were.
#[test]
fn a_plan_that_begins_to_compare_kubelets_takes_no_node_for_drifted() {
    let mut scenario = begin(|spec| {
        spec.installs = Some(refit_api::Installs::Other);
    });
    scenario.succeed("a");
    scenario.succeed("b");
    assert_eq!(scenario.status("p").version_differs, None);
    scenario.edit_and_settle("p", |spec| {
        (spec.installs, spec.on_drift) = (None, Some(OnDrift::Rerun));
    });
    scenario.pass_secs(600);
    assert_eq!(
        entries(&scenario),
        [
            entry("a", OLD, "VersionDiffers"),
            entry("b", OLD, "VersionDiffers")
        ]
    );
    assert_eq!(scenario.invariants.upgrades, 2);
}

#[test]
fn a_plan_of_the_operating_system_skips_and_settles_nodes_by_their_os_image() {
    let mut scenario = begin(|spec| {
        spec.version = Some("v1.11.2".to_owned());
        spec.upgrade.get_or_insert_default().image = "ghcr.io/siderolabs/talosctl".to_owned();
        spec.settle.get_or_insert_default().os_image = Some(true);
        spec.skip_when = Some(SkipWhenSpec {
            os_image: Some(true),
            ..SkipWhenSpec::default()
        });
    });
    assert_eq!(scenario.slots("p"), ["a", "b"]);
    let info = json!({ "kubeletVersion": OLD, "osImage": "Talos (v1.11.2)" });
    scenario.add_node("c", &json!({ "status": { "nodeInfo": info } }));
    scenario.settle();
    assert_eq!(
        scenario.events_of("AtVersion"),
        ["Node c is done without a Job: its osImage is Talos (v1.11.2) already"]
    );
    scenario.succeed("a");
    let waits = scenario.entry("p", "a");
    assert_eq!(waits.reason.as_deref(), Some("OsImage"));
    assert_eq!(
        waits.message.as_deref(),
        Some("its osImage is \"Talos (v1.11.1)\", and the Plan's version is \"v1.11.2\"")
    );
    report(
        &mut scenario,
        "a",
        &serde_json::json!({ "osImage": "Talos (v1.11.2)" }),
    );
    assert_eq!(scenario.slots("p"), ["b"]);
}
