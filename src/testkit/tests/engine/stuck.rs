//! Clusters in which a roll-out is stuck, each for another reason: `refit status` and `refit explain` name the object that
//! holds it and the remedy.

mod broken;
mod kubectl;
mod readers;
mod versions;

use super::scenario::{NAMESPACE, Scenario, Setup};
use crate::fault::Rule;
use refit_api::TimeWindowSpec;
use refit_api::plan::SecretSpec;
use refit_api::{DrainSpec, Plan, SettleSpec, VersionPolicySpec, names};
use refit_facts::PodStage;
use refit_fixtures::{plan, plan_with};
use refit_job::name::{RunId, job_name};
use refit_rehearse::Kind;
use refit_rehearse::json::json;
use refit_view::table::{self, Look};
use refit_view::{PlanOverview, explain_node, explain_plan};

/// A Plan with everything that is known of it, and times as the API server has them.
const ABSOLUTE: Look = Look {
    detailed: true,
    wide: false,
    times: true,
    bars: false,
    columns: None,
};
const BY: &str = "by alice at 2026-01-01T09:00:00Z";

/// What both commands print of Plan `p`.
fn shown(scenario: &mut Scenario) -> (String, String) {
    let snapshot = scenario.snapshot();
    assert_eq!(snapshot.gaps, Vec::<String>::new());
    let views: Vec<_> = snapshot
        .plans
        .iter()
        .map(|plan| PlanOverview::new(&snapshot, plan))
        .collect();
    let of_p = views.iter().find(|view| &*view.plan.name == "p").unwrap();
    (
        table::status(&views, Some(&snapshot), &snapshot.gaps, &ABSOLUTE),
        explain_plan(of_p).to_text(),
    )
}

fn explained(scenario: &mut Scenario, node: &str) -> String {
    let snapshot = scenario.snapshot();
    let plan = snapshot.plans.iter().find(|plan| &*plan.name == "p").unwrap();
    explain_node(&PlanOverview::new(&snapshot, plan), node).to_text()
}

/// Checks that status has all of the first texts, and the explanation all of both.
#[track_caller]
fn names(scenario: &mut Scenario, status: &[&str], explanation: &[&str]) {
    let (seen, explained) = shown(scenario);
    for text in status {
        assert!(seen.contains(text), "{text:?} is not in status:\n{seen}");
    }
    for text in status.iter().chain(explanation) {
        assert!(
            explained.contains(text),
            "{text:?} is not explained:\n{explained}"
        );
    }
    assert!(explained.contains("Remedy: "), "{explained}");
}

#[track_caller]
fn names_node(scenario: &mut Scenario, node: &str, texts: &[&str]) {
    let explained = explained(scenario, node);
    for text in texts {
        assert!(
            explained.contains(text),
            "{text:?} is not explained:\n{explained}"
        );
    }
}

fn draining(name: &str) -> Plan {
    plan_with(name, |spec| spec.drain = Some(DrainSpec::default()))
}

#[test]
fn a_budget_that_never_allows_an_eviction() {
    let mut scenario = Scenario::of_nodes(&["a", "b"]);
    scenario.guard("a");
    scenario.apply(plan_with("p", |spec| {
        spec.drain = Some(DrainSpec::default());
        spec.concurrency = Some(2);
    }));
    scenario.comes_to("a", PodStage::Drain);
    scenario.pass_secs(30);
    scenario.succeed("b");
    names(
        &mut scenario,
        &["DrainWaiting", "guarded"],
        &[
            "PodDisruptionBudget shop/guarded",
            "kubectl edit pdb -n shop guarded",
            "the budget never allows",
        ],
    );
    names_node(
        &mut scenario,
        "a",
        &[
            "Node a does not progress under Plan system-upgrade/p: DrainWaiting",
            "History:",
            "Job apply-p-on-a",
        ],
    );
}

#[test]
fn a_node_that_a_person_has_cordoned_uses_up_what_may_be_unavailable() {
    let limit = k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(1);
    let mut scenario = Scenario::with(&["a"], plan_with("p", |spec| spec.max_unavailable = Some(limit)));
    scenario.roll_out();
    scenario.kubectl_cordons("a");
    scenario.add_nodes(&["b"]);
    scenario.settle();
    names(&mut scenario, &["MaxUnavailable", "kubectl uncordon a"], &[]);
    names_node(
        &mut scenario,
        "b",
        &[
            "MaxUnavailable",
            "Node a",
            "is cordoned, and not by refit",
            "kubectl uncordon a",
        ],
    );
}

#[test]
fn a_closed_window() {
    let window = TimeWindowSpec {
        days: Some(vec!["sat".to_owned()]),
        start_time: Some("22:00".to_owned()),
        end_time: Some("23:00".to_owned()),
        time_zone: None,
    };
    let mut scenario = Scenario::with(&["a"], plan_with("p", |spec| spec.window = Some(window)));
    names(
        &mut scenario,
        &["WindowClosed", "opens at 2026-01-03T22:00:00Z"],
        &["spec.window: opens in 2d"],
    );
    names_node(&mut scenario, "a", &["does not start", "WindowClosed", "Remedy"]);
}

#[test]
fn a_wave_that_waits_for_its_nodes_its_soak_and_its_approval() {
    let waves = serde_json::json!([
        { "name": "canary", "nodes": 1, "soak": "30m", "approval": true },
        { "name": "rest" },
    ]);
    let mut scenario = Scenario::with(
        &["a", "b", "c"],
        plan_with("p", |spec| {
            spec.concurrency = Some(2);
            spec.waves = Some(serde_json::from_value(waves).unwrap());
        }),
    );
    let first = scenario.slots("p").remove(0);
    let mut others = ["a", "b", "c"].into_iter().filter(|name| *name != first);
    let other = others.next().unwrap();
    scenario.fail(&first);
    let text = explained(&mut scenario, other);
    assert!(text.contains("wave canary: Progressing"), "{text}");
    assert!(text.contains(&format!("Node {first}: Failed")), "{text}");
    assert!(
        text.contains(&format!("refit retry -n system-upgrade p {first}")),
        "{text}"
    );
    scenario.retry(&first, "p");
    scenario.settle();
    scenario.succeed(&first);
    scenario.pass_secs(60);
    names(
        &mut scenario,
        &["WaveSoaking", "no node starts while wave canary soaks, until"],
        &["wave canary: Soaking", "its soak ends in 2"],
    );
    assert!(
        shown(&mut scenario)
            .0
            .contains("wave: canary (1 of 2), Soaking, 2"),
        "{}",
        shown(&mut scenario).0
    );
    scenario.ready(&first, false);
    scenario.settle();
    names_node(
        &mut scenario,
        other,
        &["wave canary: Progressing", "is not Ready", "Remedy: "],
    );
    scenario.ready(&first, true);
    scenario.pass_secs(31 * 60);
    names(
        &mut scenario,
        &["WaveNotApproved", "refit approve -n system-upgrade p"],
        &["wave canary: AwaitingApproval"],
    );
    names_node(&mut scenario, other, &["refit approve -n system-upgrade p"]);
}

#[test]
fn a_suspended_and_an_aborted_plan_name_who_did_it_and_the_command_that_ends_it() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    let mut suspended = plan_with("p", |spec| spec.suspend = Some(true));
    suspended.metadata.annotations = Some([(names::ANNOTATION_SUSPENDED.to_owned(), BY.to_owned())].into());
    scenario.apply_and_settle(suspended);
    names(
        &mut scenario,
        &["Suspended", BY, "refit resume -n system-upgrade p"],
        &[],
    );
    names_node(
        &mut scenario,
        "a",
        &["Node a does not start", "Suspended", "refit resume"],
    );
    scenario.annotate(Kind::Plan, "p", names::ANNOTATION_ABORT, Some(BY));
    scenario.settle();
    names(
        &mut scenario,
        &["Aborted", BY, "refit resume -n system-upgrade p"],
        &[],
    );
}

/// The kubelet cannot pull an image.
fn without_image() -> Scenario {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.steer("a", "start-delay", Some("1h"));
    scenario.apply_and_settle(plan("p"));
    let pod = scenario.pods().next().unwrap().facts.name.to_string();
    let waiting = json!({ "status": { "initContainerStatuses": [{
        "name": "cordon", "image": "x", "imageID": "", "ready": false, "restartCount": 0,
        "state": { "waiting": { "reason": "ImagePullBackOff", "message": "Back-off pulling image \"example.com/upgrade:v1\"" } },
    }] } });
    scenario
        .cluster
        .patch_status(Kind::Pod, NAMESPACE, &pod, &waiting)
        .unwrap();
    scenario
}

#[test]
fn an_image_that_does_not_exist() {
    let mut scenario = without_image();
    scenario.settle();
    names(
        &mut scenario,
        &["PodWaiting", "example.com/upgrade:v1", "Node a"],
        &["Pod system-upgrade/", "Job system-upgrade/"],
    );
}

#[test]
fn a_selector_that_matches_no_node_or_not_this_one() {
    let selector =
        || serde_json::from_value(serde_json::json!({ "matchLabels": { "role": "worker" } })).unwrap();
    let mut scenario = Scenario::with(&["a"], plan_with("p", |spec| spec.node_selector = selector()));
    names(
        &mut scenario,
        &["NoNodes", "spec.nodeSelector matches no node", "--show-labels"],
        &[],
    );
    names_node(
        &mut scenario,
        "a",
        &[
            "does not concern Node a",
            "requires the label role=worker",
            "kubectl get node a",
        ],
    );
    scenario.add_node("b", &json!({ "metadata": { "labels": { "role": "worker" } } }));
    scenario.settle();
    names_node(
        &mut scenario,
        "a",
        &["does not concern Node a", "requires the label role=worker"],
    );
}

#[test]
fn a_taint_that_the_plan_does_not_tolerate() {
    let mut scenario = Scenario::empty();
    let taint = json!({ "spec": { "taints": [{ "key": "example.com/full", "effect": "NoSchedule" }] } });
    scenario.add_node("a", &taint);
    scenario.apply_and_settle(plan("p"));
    let toleration = "{key: example.com/full, operator: Exists, effect: NoSchedule}";
    names(
        &mut scenario,
        &[
            "TaintNotTolerated",
            "Node a",
            "taint example.com/full:NoSchedule",
            toleration,
        ],
        &["kubectl edit plan", "spec.tolerations"],
    );
    assert!(scenario.slots("p").is_empty());
    scenario.patch(Kind::Node, "a", &json!({ "spec": { "taints": null } }));
    scenario.finish();
}

#[test]
fn a_taint_that_comes_after_the_node_has_started() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.apply_and_taint("a", plan("p"));
    names(
        &mut scenario,
        &["PodWaiting", "Node a", "nodes are available"],
        &["Pod system-upgrade/"],
    );
}

#[test]
fn a_webhook_or_a_quota_that_refuses_the_job() {
    for code in [403, 422] {
        let mut scenario = Scenario::of_nodes(&["a", "b"]);
        scenario.fault_always(Rule::on("create", "jobs").answer(code));
        scenario.apply(plan("p"));
        scenario.pass_secs(10);
        names(
            &mut scenario,
            &["JobRefused", &format!("injected fault {code}"), "Node "],
            &["allow what the API server refused"],
        );
    }
}

#[test]
fn a_node_that_is_not_ready() {
    let mut scenario = Scenario::of_nodes(&["a", "b"]);
    scenario.ready("a", false);
    scenario.apply_and_settle(plan("p"));
    scenario.succeed("b");
    names(
        &mut scenario,
        &["NodeNotReady", "kubectl describe node a"],
        &["Node a"],
    );
    names_node(
        &mut scenario,
        "a",
        &["is not Ready", "Test: test", "kubectl describe node a"],
    );
}

#[test]
fn another_plan_that_works_on_the_node_and_waits_itself() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.guard("a");
    scenario.apply(draining("other"));
    scenario.comes_to("a", PodStage::Drain);
    scenario.pass_secs(10);
    scenario.apply_and_settle(draining("p"));
    names(
        &mut scenario,
        &["NodeBusy", "Plan other works on the node"],
        &[
            "Plan system-upgrade/other",
            "PodDisruptionBudget shop/guarded",
            "kubectl edit pdb -n shop guarded",
        ],
    );
}

#[test]
fn a_permission_that_the_controller_lacks() {
    let mut scenario = Scenario::without_controller(&Setup::default());
    scenario.fault_injector.allow("create", "jobs", false);
    scenario.add_nodes(&["a"]);
    scenario.apply(plan("p"));
    scenario.start();
    scenario.settle();
    names(
        &mut scenario,
        &[
            "MissingPermission",
            "create jobs.batch in namespace system-upgrade",
            "kubectl apply -f deploy/rbac.yaml",
        ],
        &[],
    );
}

#[test]
fn a_failed_node_that_keeps_its_slot() {
    let mut scenario = Scenario::with(&["a", "b"], plan("p"));
    let failed = scenario.slots("p")[0].clone();
    let waits = if failed == "a" { "b" } else { "a" };
    scenario.fail(&failed);
    let retry = format!("refit retry -n system-upgrade p {failed}");
    names(
        &mut scenario,
        &["BackoffLimitExceeded", &format!("Node {failed}"), &retry],
        &["upgrade exited with 1"],
    );
    names_node(
        &mut scenario,
        waits,
        &["NoSlot", &format!("its slots are held by {failed}"), &retry],
    );
    names_node(
        &mut scenario,
        &failed,
        &["failed under Plan", "History:", "attempt 1", "record: Failed"],
    );
}

#[test]
fn jobs_of_others_that_have_both_names() {
    let known = Scenario::with(&["a"], plan("p"));
    let hash = known.hash("p");
    let mut scenario = Scenario::with(&["a"], plan_with("p", |spec| spec.suspend = Some(true)));
    let plan = scenario.cluster.get(Kind::Plan, NAMESPACE, "p").unwrap();
    let uid = |object: &refit_rehearse::json::Value| object["metadata"]["uid"].as_str().unwrap().to_owned();
    let node = scenario.cluster.get(Kind::Node, "", "a").unwrap();
    let second = RunId {
        plan: "p",
        plan_uid: &uid(&plan),
        node: "a",
        node_uid: &uid(&node),
        upgrade: &hash,
    }
    .second_job_name();
    for name in [job_name("p", "a", &hash), second.clone()] {
        let foreign = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name, "namespace": NAMESPACE },
            "spec": { "suspend": true, "template": { "spec": {
                "restartPolicy": "Never", "containers": [{ "name": "x", "image": "example.com/x" }] } } },
        });
        scenario.cluster.put(foreign).unwrap();
    }
    scenario.edit_and_settle("p", |spec| spec.suspend = None);
    names(
        &mut scenario,
        &["NameTaken", &second],
        &["delete the Job or pod that the message names"],
    );
    assert_eq!(scenario.phase("p", "a")[1], "NameTaken");
    scenario.delete(Kind::Job, &second);
    scenario.roll_out();
    assert_eq!(*scenario.job_for("a").name, *second);
}

#[test]
fn a_plan_that_is_not_valid_or_misses_its_secret_or_starts_nobody() {
    let mut scenario = Scenario::with(
        &["a"],
        plan_with("p", |spec| spec.post_complete_delay = Some("soon".to_owned())),
    );
    names(
        &mut scenario,
        &["postCompleteDelay", "kubectl edit plan -n system-upgrade p"],
        &["edit the Plan"],
    );
    let secret = SecretSpec {
        name: "credentials".to_owned(),
        path: "/c".to_owned(),
        ..SecretSpec::default()
    };
    let mut scenario = Scenario::with(&["a"], plan_with("p", |spec| spec.secrets = Some(vec![secret])));
    names(&mut scenario, &["credentials"], &["create the Secret"]);
    let mut scenario = Scenario::with(&["a"], plan_with("p", |spec| spec.concurrency = None));
    names(
        &mut scenario,
        &["ConcurrencyZero", "kubectl edit plan -n system-upgrade p"],
        &[],
    );
}

#[test]
fn a_node_that_a_person_has_excluded() {
    let mut scenario = Scenario::of_nodes(&["a", "b"]);
    scenario.annotate(
        Kind::Node,
        "a",
        names::ANNOTATION_SKIP,
        Some(&format!("p@v1 {BY}")),
    );
    scenario.set_done_label("b", "p", Some("disabled"));
    scenario.apply_and_settle(plan("p"));
    names_node(
        &mut scenario,
        "a",
        &["Skipped", BY, "refit skip --undo -n system-upgrade p a"],
    );
    names_node(
        &mut scenario,
        "b",
        &[
            "is disabled on Node b",
            "kubectl label node b plan.upgrade.cattle.io/p-",
        ],
    );
}

#[test]
fn a_definition_that_lacks_fields_and_a_plan_that_lost_them() {
    let mut scenario = Scenario::with(
        &["a", "b"],
        plan_with("p", |spec| {
            spec.max_concurrent = Some(k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(1));
        }),
    );
    scenario.serve_definition_of_suc(true);
    scenario.settle();
    names(
        &mut scenario,
        &["SchemaOutdated", "refit crd | kubectl apply -f -"],
        &["CustomResourceDefinition"],
    );
}

#[test]
fn a_kubelet_that_is_too_old_and_a_node_that_does_not_settle() {
    let policy = VersionPolicySpec {
        max_minor_skip: Some(1),
        ..VersionPolicySpec::default()
    };
    let mut scenario = Scenario::with(
        &["a"],
        plan_with("p", |spec| {
            (spec.version, spec.version_policy) = (Some("v1.40.0".to_owned()), Some(policy));
        }),
    );
    names(
        &mut scenario,
        &["MinorSkip", "v1.36.0"],
        &["upgrade to a version in between"],
    );
    let settle = SettleSpec {
        kubelet_version: Some(true),
        ..SettleSpec::default()
    };
    let mut scenario = Scenario::with(
        &["a"],
        plan_with("p", |spec| {
            (spec.version, spec.settle) = (Some("v1.40.0".to_owned()), Some(Box::new(settle)));
        }),
    );
    scenario.succeed("a");
    names_node(
        &mut scenario,
        "a",
        &["KubeletVersion", "v1.36.0", "check the kubelet"],
    );
}
