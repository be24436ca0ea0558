//! What is promised within some seconds. In virtual time that is exact; on a real control plane a busy machine decides.

use std::time::Duration;

use jiff::SignedDuration;

use super::super::definition;
use super::cancel::draining;
use super::scenario::{NAMESPACE, Scenario, Setup};
use crate::fault::Rule;
use refit_api::{PlanSpec, crd};
use refit_facts::PodStage;
use refit_fixtures::plan_with;
use refit_rehearse::Kind;
use refit_rehearse::json::json;

const fn secs(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds)
}

/// A kubelet kills thirty seconds after SIGTERM by default, and other supervisors after ten.
#[test]
fn a_controller_that_is_terminated_ends_in_time_and_completes_the_writes_in_flight() {
    let names: Vec<String> = (0..24).map(|number| format!("n{number:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut scenario = Scenario::new(&Setup {
        leader_elect: true,
        held: false,
        ..Setup::default()
    });
    scenario.add_nodes(&names);
    scenario.fault_always(Rule::on("patch", "nodes").delay(Duration::from_millis(700)));
    scenario.apply(plan_with("p", |spec| spec.concurrency = Some(24)));
    // The requests arrive 700 ms after they were sent.
    let sent = |scenario: &Scenario| scenario.fault_injector.writes();
    let arrived = |scenario: &Scenario| scenario.requests("PATCH /nodes/");
    while arrived(&scenario) == 0 {
        scenario.pass(Duration::from_millis(100));
    }
    let (before, writes) = (arrived(&scenario), sent(&scenario));
    let took = scenario.terminate();
    assert!(took < secs(9), "{took:#}");
    assert!(arrived(&scenario) > before, "{before} of {writes} writes");
    let lease = scenario
        .cluster
        .get(Kind::Lease, NAMESPACE, "system-upgrade-controller");
    assert_eq!(
        lease.unwrap()["spec"]["holderIdentity"],
        "",
        "the Lease is released"
    );
    scenario.mend();
    scenario.start();
    // It does not come to rest while a Lease is renewed.
    scenario.pass_secs(300);
    scenario.assert_over();
}

#[test]
fn status_names_what_a_drain_waits_for_within_ten_seconds() {
    // It has drained for the time in which a cluster reacts.
    let mut scenario = draining();
    scenario.pass_secs(7);
    let entry = scenario.entry("p", "a");
    assert_eq!(entry.reason.as_deref(), Some("DrainWaiting"), "{entry:?}");
    let message = entry.message.unwrap();
    assert!(
        message.contains("waits for PodDisruptionBudget guarded since "),
        "{message}"
    );
}

#[test]
fn a_drain_ends_within_six_seconds_of_its_budget() {
    for millis in (0..5_000).step_by(700) {
        let mut scenario = draining();
        scenario.pass(Duration::from_millis(10_000 + millis));
        let opens = json!({ "spec": { "maxUnavailable": 1 } });
        scenario
            .cluster
            .patch(Kind::Budget, "shop", "guarded", opens)
            .unwrap();
        let opened = scenario.now();
        scenario.comes_to("a", PodStage::Upgrade);
        let took = scenario.now().duration_since(opened);
        assert!(took < secs(6), "{took:#} after {millis} ms");
    }
}

#[test]
fn a_drain_that_is_cancelled_ends_within_ten_seconds() {
    let edits: [fn(&mut PlanSpec); 3] = [
        |spec| spec.version = Some("v2".to_owned()),
        |spec| spec.upgrade.get_or_insert_default().args = Some(vec!["--new".to_owned()]),
        |spec| spec.node_selector = None,
    ];
    for edit in edits {
        let mut scenario = draining();
        let job = scenario.job_for("a");
        scenario.pass_secs(10);
        let edited = scenario.now();
        scenario.edit("p", edit);
        scenario.until("the Job has ended", |state| {
            let now = state.get(Kind::Job, NAMESPACE, &job.name);
            now.is_none_or(|now| {
                now["metadata"]["uid"] != *job.uid || now["status"]["conditions"][0]["type"].is_string()
            })
        });
        let took = scenario.now().duration_since(edited);
        assert!(took < secs(10), "{took:#}");
    }
}

#[test]
fn a_drain_whose_pod_is_deleted_ends_at_once() {
    let mut scenario = draining();
    scenario.pass_secs(10);
    let pod = scenario.pods().next().unwrap().facts.name.to_string();
    let deleted = scenario.now();
    scenario.cluster.delete(Kind::Pod, NAMESPACE, &pod).unwrap();
    let is_gone = |state: &refit_rehearse::State| state.get(Kind::Pod, NAMESPACE, &pod).is_none();
    scenario.until("the pod is gone", is_gone);
    let took = scenario.now().duration_since(deleted);
    assert!(took < secs(5), "{took:#}");
}

/// As after `kubectl delete crd`, and as while a GitOps tool replaces it. The watch of Plans by itself would try again within half
/// a minute.
#[test]
fn plans_are_read_again_within_eight_seconds_of_the_return_of_their_definition() {
    for seconds in [600, 605, 610, 615, 620, 625] {
        let mut scenario = Scenario::with(&["a"], plan_with("p", |spec| spec.suspend = Some(true)));
        scenario.pass_secs(10);
        for verb in ["list", "watch"] {
            scenario.fault_always(Rule::on(verb, "plans").answer(404));
        }
        scenario.cluster.delete(Kind::Definition, "", crd::NAME).unwrap();
        scenario.fault_injector.cut_watches("plans");
        scenario.pass_secs(seconds);
        scenario.mend();
        scenario.cluster.put(definition::without_descriptions()).unwrap();
        scenario.edit("p", |spec| spec.suspend = None);
        scenario.pass_secs(8);
        assert_eq!(scenario.slots("p"), ["a"], "after {seconds} s");
    }
}
