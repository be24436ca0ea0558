//! What a node must show before it is done, and what its evicted workloads must show before the next one starts.

use std::time::Duration;

use jiff::SignedDuration;

use super::scenario::Scenario;
use refit_api::names::ANNOTATION_RECORDED;
use refit_api::{DrainSpec, Plan, SettleSpec};
use refit_facts::PodStage;
use refit_fixtures::plan_with;
use refit_rehearse::Kind;
use refit_rehearse::json::json;

fn settling(change: impl FnOnce(&mut SettleSpec)) -> Plan {
    plan_with("p", |spec| change(spec.settle.get_or_insert_default()))
}

fn min_ready(settle: &mut SettleSpec) {
    settle.min_ready = Some("30s".to_owned());
}

#[test]
fn a_node_is_done_when_it_has_been_ready_for_long_enough_and_a_break_begins_the_time_anew() {
    for disturbs in [None, Some("break"), Some("restart")] {
        let mut scenario = Scenario::with(&["a"], settling(min_ready));
        scenario.succeed("a");
        assert!(scenario.is_cordoned("a"), "released when it is proven");
        scenario.pass_secs(20);
        assert_eq!(scenario.phase("p", "a"), ["Settling", "MinReady"]);
        match disturbs {
            Some("break") => {
                // It ends between two observations.
                scenario.ready("a", false);
                scenario.ready("a", true);
            }
            Some(_) => scenario.restart(),
            None => {}
        }
        scenario.pass_secs(15);
        assert_eq!(scenario.is_done("a", "p"), disturbs.is_none(), "{disturbs:?}");
        scenario.pass_secs(20);
        scenario.assert_over();
        assert_eq!(scenario.events_of("JobComplete").len(), 1);
    }
}

#[test]
fn a_node_that_does_not_settle_in_time_has_failed() {
    let mut scenario = Scenario::with(
        &["a"],
        settling(|settle| {
            min_ready(settle);
            settle.timeout = Some("2m".to_owned());
        }),
    );
    scenario.succeed("a");
    for _ in 0..6 {
        scenario.pass_secs(18);
        assert_eq!(scenario.phase("p", "a")[0], "Settling");
        scenario.ready("a", false);
        scenario.pass_secs(1);
        scenario.ready("a", true);
    }
    scenario.pass_secs(8);
    assert_eq!(
        scenario.phase("p", "a")[0],
        "Settling",
        "it is Ready, and may stay so"
    );
    scenario.ready("a", false);
    scenario.settle();
    assert_eq!(scenario.phase("p", "a"), ["Failed", "SettleTimedOut"]);
    assert!(scenario.is_cordoned("a") && scenario.events_of("SettleFailed").len() == 1);
    scenario.ready("a", true);
    scenario.pass_secs(3600);
    assert_eq!(scenario.phase("p", "a")[0], "Failed");
}

#[test]
fn a_kubelet_of_another_version_is_waited_for_and_one_that_stays_behind_is_a_failure() {
    for follows in [true, false] {
        let mut scenario = Scenario::with(
            &["a"],
            plan_with("p", |spec| {
                spec.version = Some("v1.37.4+k3s1".to_owned());
                spec.settle.get_or_insert_default().kubelet_version = Some(true);
            }),
        );
        scenario.succeed("a");
        let entry = scenario.entry("p", "a");
        assert_eq!(entry.reason.as_deref(), Some("KubeletVersion"));
        let text = r#"the kubelet is of version "v1.36.0", and the Plan's is "v1.37.4-k3s1""#;
        assert_eq!(entry.message.as_deref(), Some(text));
        if follows {
            let patch = json!({ "status": { "nodeInfo": { "kubeletVersion": "v1.37.4+k3s1" } } });
            scenario
                .cluster
                .patch_status(Kind::Node, "", "a", &patch)
                .unwrap();
            scenario.settle();
            scenario.assert_over();
        } else {
            scenario.pass_secs(10 * 60);
            let entry = scenario.entry("p", "a");
            assert_eq!(entry.reason.as_deref(), Some("SettleTimedOut"));
            assert!(entry.message.unwrap().contains("v1.37.4-k3s1"));
        }
    }
}

/// A workload of three unready pods on a node of its own.
fn put_workload(scenario: &mut Scenario) {
    scenario.add_node(
        "spare",
        &json!({ "metadata": { "labels": { "kubernetes.io/hostname": null } } }),
    );
    scenario.steer("spare", "start-delay", Some("never"));
    let labels = json!({ "app": "db" });
    let set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": { "name": "db", "namespace": "shop" },
        "spec": { "replicas": 3, "selector": { "matchLabels": labels }, "template": {
            "metadata": { "labels": labels },
            "spec": { "nodeName": "spare", "containers": [{ "name": "db", "image": "example.com/db" }] } } },
    });
    scenario.cluster.put(set).unwrap();
}

/// One of the pods of the workload.
pub(super) fn pod_of_shop(scenario: &Scenario) -> String {
    scenario.cluster.with(|state| {
        let mut pods = state.all(Kind::Pod);
        let pod = pods.find(|pod| pod.meta("namespace") == "shop");
        pod.unwrap().meta("name").to_owned()
    })
}

/// Makes all its pods ready, or one of them unready.
fn be_whole(scenario: &mut Scenario, whole: bool) {
    scenario.steer("spare", "start-delay", if whole { None } else { Some("never") });
    if !whole {
        let pod = pod_of_shop(scenario);
        scenario.cluster.delete(Kind::Pod, "shop", &pod).unwrap();
    }
}

fn reads(scenario: &Scenario) -> usize {
    scenario.requests("GET /replicasets/db")
}

/// Waits for the next read of the workload.
fn pass_a_read(scenario: &mut Scenario) {
    let before = reads(scenario);
    for _ in 0..100 {
        if reads(scenario) > before {
            return;
        }
        scenario.pass(Duration::from_millis(200));
    }
    scenario.panic("it is not read again");
}

/// One of two nodes has been drained of pods of that workload, and its upgrade has succeeded.
fn drained() -> (Scenario, String) {
    let plan = plan_with("p", |spec| {
        spec.drain = Some(DrainSpec::default());
        spec.settle = Some(Box::new(SettleSpec {
            workloads: Some(true),
            timeout: Some("2m".to_owned()),
            ..SettleSpec::default()
        }));
    });
    let mut scenario = Scenario::with(&["a", "b"], plan);
    let first = scenario.slots("p")[0].clone();
    scenario.comes_to(&first, PodStage::Upgrade);
    scenario.change_ledger(&first, |ledger| {
        ledger.holders[0].evicted = vec!["ReplicaSet/shop/db".to_owned()];
    });
    put_workload(&mut scenario);
    scenario.succeed(&first);
    (scenario, first)
}

#[test]
fn a_node_is_released_first_and_keeps_its_slot_until_its_workloads_are_whole_under_any_leader() {
    let (mut scenario, first) = drained();
    assert!(
        scenario.is_done(&first, "p") && !scenario.is_cordoned(&first),
        "an evicted pod may fit only here"
    );
    assert_eq!(scenario.phase("p", &first), ["Settling", "Workloads"]);
    assert_eq!(
        scenario.entry("p", &first).message.as_deref(),
        Some("ReplicaSet shop/db has 0 of 3 pods ready")
    );
    assert_eq!(scenario.complete("p")[0], "False");
    let before = reads(&scenario);
    scenario.restart();
    scenario.pass_secs(30);
    assert!((5..=12).contains(&(reads(&scenario) - before)), "now and then");
    assert_eq!(scenario.slots("p"), [first.as_str()]);
    be_whole(&mut scenario, true);
    scenario.pass_secs(12);
    assert_ne!(scenario.slots("p"), [first.as_str()], "the other one");
    scenario.finish();
    assert_eq!(scenario.events_of("JobComplete").len(), 2);
}

#[test]
fn a_wait_for_workloads_that_begins_in_the_future_by_another_clock_reads_them_no_more_often() {
    let (mut scenario, first) = drained();
    scenario.set_clock(SignedDuration::from_hours(-1));
    for _ in 0..2 {
        let before = reads(&scenario);
        scenario.pass_secs(30);
        let reads = reads(&scenario) - before;
        assert!((5..=12).contains(&reads), "{reads}");
        assert_eq!(scenario.slots("p"), [first.as_str()]);
        scenario.restart();
    }
    be_whole(&mut scenario, true);
    scenario.pass_secs(15);
    assert_ne!(scenario.slots("p"), [first.as_str()], "the other one");
}

#[test]
fn after_a_crash_a_removed_label_has_a_node_upgraded_again_whose_workloads_were_waited_for() {
    let (mut scenario, first) = drained();
    be_whole(&mut scenario, true);
    scenario.pass_secs(12);
    let job = scenario.job_for(&first);
    assert!(job.recorded);
    scenario.stop();
    // As if the controller had died before it wrote that.
    scenario.annotate(Kind::Job, &job.name, ANNOTATION_RECORDED, None);
    scenario.set_done_label(&first, "p", None);
    scenario.restart();
    scenario.finish();
    assert_ne!(scenario.job_for(&first).uid, job.uid, "labelled without a run");
}

#[test]
fn a_workload_that_is_whole_for_a_moment_is_not_whole() {
    let (mut scenario, first) = drained();
    for _ in 0..4 {
        // Its container fails at the start, and is restarted.
        pass_a_read(&mut scenario);
        be_whole(&mut scenario, true);
        pass_a_read(&mut scenario);
        be_whole(&mut scenario, false);
        scenario.pass_secs(8);
        assert_eq!(scenario.slots("p"), [first.as_str()]);
    }
    be_whole(&mut scenario, true);
    scenario.pass_secs(12);
    assert_ne!(scenario.slots("p"), [first.as_str()]);
}

#[test]
fn a_workload_that_stays_broken_is_a_failure_that_names_it_and_one_that_is_gone_is_not() {
    let (mut scenario, first) = drained();
    scenario.pass_secs(125);
    let entry = scenario.entry("p", &first);
    assert_eq!(
        (entry.phase.as_str(), entry.reason.as_deref()),
        ("Failed", Some("SettleTimedOut"))
    );
    assert!(
        entry
            .message
            .unwrap()
            .contains("ReplicaSet shop/db has 0 of 3 pods ready")
    );
    assert!(!scenario.is_done(&first, "p") && !scenario.is_cordoned(&first));
    assert_eq!(scenario.slots("p"), [first.as_str()]);
    be_whole(&mut scenario, true);
    scenario.retry(&first, "p");
    scenario.finish();

    let (mut scenario, first) = drained();
    scenario.cluster.delete(Kind::ReplicaSet, "shop", "db").unwrap();
    scenario.pass_secs(12);
    assert_ne!(scenario.slots("p"), [first.as_str()], "it wants no pods");
}

#[test]
fn a_workload_that_is_whole_at_the_last_moment_is_read_once_more_before_that_counts() {
    for stays in [true, false] {
        let (mut scenario, first) = drained();
        scenario.pass_secs(105);
        assert_eq!(scenario.phase("p", &first)[0], "Settling");
        // Available at the last read before the timeout.
        scenario.pass_secs(5);
        be_whole(&mut scenario, true);
        pass_a_read(&mut scenario);
        if !stays {
            be_whole(&mut scenario, false);
        }
        scenario.pass_secs(15);
        let settled = scenario.slots("p") != [first.as_str()];
        assert_eq!(settled, stays, "{:?}", scenario.slots("p"));
        if !stays {
            assert_eq!(scenario.phase("p", &first)[1], "SettleTimedOut");
        }
    }
}
