//! What a reader sees who misses something: a controller, rights, a status of refit, or a reason to be stuck.

use super::super::super::faults::FaultInjector;
use super::super::scenario::{NAMESPACE, Scenario, Setup};
use super::{ABSOLUTE, names, names_node, shown};
use crate::fault::Rule;
use refit_facts::PodStage;
use refit_fixtures::plan;
use refit_rehearse::Kind;
use refit_view::{PlanOverview, explain_node, explain_plan, table};

#[test]
fn no_controller_that_processes_the_plan() {
    let mut scenario = Scenario::without_controller(&Setup::default());
    scenario.add_nodes(&["a"]);
    scenario.apply_and_settle(plan("p"));
    names(
        &mut scenario,
        &[
            "Unprocessed",
            "no controller has processed the Plan",
            "kubectl logs",
        ],
        &[],
    );
    scenario.start();
    scenario.roll_out();
    scenario.stop();
    scenario.edit_and_settle("p", |spec| spec.version = Some("v2".to_owned()));
    names(
        &mut scenario,
        &["Unprocessed", "has not processed generation"],
        &["kubectl get deployments,pods,leases"],
    );
}

#[test]
fn a_plan_in_a_namespace_without_a_controller() {
    let mut scenario = Scenario::with(&["a"], plan("p"));
    scenario.roll_out();
    let mut stray = plan("stray");
    stray.metadata.namespace = Some("default".to_owned());
    scenario.apply_and_settle(stray);
    let snapshot = scenario.snapshot();
    let stray = snapshot
        .plans
        .iter()
        .find(|plan| plan.namespace() == "default")
        .unwrap();
    let explained = explain_plan(&PlanOverview::new(&snapshot, stray)).to_text();
    for text in [
        "the one of namespace system-upgrade handles only the Plans of that namespace",
        "create the Plan in namespace system-upgrade",
        "kubectl get deployments,pods,leases -n default",
    ] {
        assert!(
            explained.contains(text),
            "{text:?} is not explained:\n{explained}"
        );
    }
}

#[test]
fn objects_that_may_not_be_read_are_named_and_the_others_shown() {
    let mut scenario = Scenario::with(&["a", "b"], plan("p"));
    let failed = scenario.slots("p")[0].clone();
    scenario.fail(&failed);
    let faults = FaultInjector::new(0, 0);
    for resource in ["nodes", "jobs", "pods", "events"] {
        faults.add(Rule::on("list", resource).answer(403));
    }
    let snapshot = scenario.snapshot_over(&faults);
    assert_eq!(snapshot.gaps.len(), 4, "{:?}", snapshot.gaps);
    let view = PlanOverview::new(&snapshot, &snapshot.plans[0]);
    let text = table::status(std::slice::from_ref(&view), None, &snapshot.gaps, &ABSOLUTE);
    assert!(text.contains("0/2 done; 1 Failed, 1 Waiting"), "{text}");
    assert!(text.contains("not shown: Nodes cannot be read"), "{text}");
    let text = explain_node(&view, &failed).to_text();
    assert!(
        text.contains("BackoffLimitExceeded") && text.contains("refit retry"),
        "{text}"
    );
}

#[test]
fn a_plan_whose_status_another_controller_wrote_is_counted_by_labels_and_jobs() {
    let mut scenario = Scenario::with(&["a", "b", "c"], plan("p"));
    let first = scenario.slots("p")[0].clone();
    scenario.succeed(&first);
    scenario.pass_secs(5);
    let second = scenario.slots("p")[0].clone();
    scenario.comes_to(&second, PodStage::Upgrade);
    scenario.stop();
    let ours = [
        "observedGeneration",
        "nodes",
        "progress",
        "active",
        "history",
        "expectedEnd",
        "nextWindow",
        "channel",
    ];
    let gone = ours.map(|field| (field.to_owned(), serde_json::Value::Null));
    let gone = serde_json::json!({ "status": serde_json::Map::from_iter(gone) });
    let gone = refit_rehearse::json::Value::from(gone);
    scenario
        .cluster
        .patch_status(Kind::Plan, NAMESPACE, "p", &gone)
        .unwrap();
    let (status, _) = shown(&mut scenario);
    assert!(status.contains("1/3 done; 1 Upgrading, 1 Waiting"), "{status}");
    assert!(status.contains("status is of another controller"), "{status}");
    assert!(status.contains(&format!("  {second}  Upgrading")), "{status}");
}

#[test]
fn a_roll_out_that_goes_on_is_not_explained_away() {
    let mut scenario = Scenario::with(&["a", "b"], plan("p"));
    let first = scenario.slots("p")[0].clone();
    scenario.comes_to(&first, PodStage::Upgrade);
    scenario.settle();
    let (status, explanation) = shown(&mut scenario);
    assert!(status.starts_with("system-upgrade/p  v1  Running\n"), "{status}");
    assert!(
        explanation.starts_with("Plan system-upgrade/p continues: 0 of 2"),
        "{explanation}"
    );
    assert!(!explanation.contains("Remedy"), "{explanation}");
    names_node(&mut scenario, &first, &["continues: Upgrading"]);
    scenario.roll_out();
    let (status, explanation) = shown(&mut scenario);
    assert!(
        status.contains("Complete") && status.contains("[####################] 2/2 done"),
        "{status}"
    );
    assert!(
        explanation.starts_with("Plan system-upgrade/p is complete: 2 of 2"),
        "{explanation}"
    );
    names_node(&mut scenario, "a", &["Node a is done", "JobComplete"]);
}
