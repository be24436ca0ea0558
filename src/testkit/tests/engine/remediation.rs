//! `pauseRemediation`: remediation operators leave nodes alone on which a Plan works.

use jiff::{SignedDuration, Timestamp};

use super::maintenance;
use super::scenario::{Scenario, Setup};
use super::sweep::{EFFECTS, sweep};
use crate::fault::{Effect, Moment, Rule};
use refit_api::{NodeMark, Plan, RemediationPause, names};
use refit_fixtures::{plan, plan_with, repetitions};
use refit_rehearse::Kind;
use refit_rehearse::json::{Value, json};
use refit_view::{PlanOverview, explain_node, explain_plan};

const LEASES: &str = "medik8s-leases";
const OURS: &str = "refit/system-upgrade/system-upgrade-controller";

fn pausing() -> Plan {
    plan_with("p", |spec| {
        spec.concurrency = Some(1);
        spec.cordon = None;
        spec.pause_remediation = Some(true);
    })
}

fn prepare(scenario: &mut Scenario, nodes: &[&str]) {
    let leases = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": LEASES } });
    scenario.cluster.put(leases).unwrap();
    for name in nodes {
        let [machine, namespace] = names::ANNOTATIONS_MACHINE;
        let annotations = json!({ machine: format!("m-{name}"), namespace: "capi" });
        scenario.add_node(name, &json!({ "metadata": { "annotations": annotations } }));
        let machine = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": { "name": format!("m-{name}"), "namespace": "capi" },
            "status": { "nodeRef": { "name": name } },
        });
        scenario.cluster.put(machine).unwrap();
    }
}

fn scenario(nodes: &[&str]) -> Scenario {
    let mut scenario = Scenario::of_nodes(&[]);
    prepare(&mut scenario, nodes);
    scenario
}

/// Self node remediation holds the Lease of a node for so many seconds from now.
fn lease(scenario: &Scenario, node: &str, seconds: i64) {
    lease_of(scenario, node, "self-node-remediation", seconds);
}

fn lease_of(scenario: &Scenario, node: &str, holder: &str, seconds: i64) {
    lease_from(scenario, node, holder, scenario.now(), seconds);
}

fn lease_from(scenario: &Scenario, node: &str, holder: &str, now: Timestamp, seconds: i64) {
    let _ = scenario
        .cluster
        .delete(Kind::Lease, LEASES, &format!("node-{node}"));
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": format!("node-{node}"), "namespace": LEASES },
        "spec": {
            "holderIdentity": holder, "leaseDurationSeconds": seconds,
            "renewTime": format!("{now:.6}"), "acquireTime": format!("{now:.6}"),
        },
    });
    scenario.cluster.put(lease).unwrap();
}

fn holder(scenario: &Scenario, node: &str) -> Option<String> {
    let lease = scenario
        .cluster
        .get(Kind::Lease, LEASES, &format!("node-{node}"))?;
    lease["spec"]["holderIdentity"].as_str().map(str::to_owned)
}

/// The label of a node, the holder of its Lease and the annotation of its Machine.
fn paused(scenario: &Scenario, node: &str) -> [Option<String>; 3] {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let machine = scenario
        .cluster
        .get(Kind::Machine, "capi", &format!("m-{node}"))
        .unwrap();
    let object = scenario.cluster.get(Kind::Node, "", node).unwrap();
    let label = &object["metadata"]["labels"][NodeMark::ExcludeFromRemediation.key()];
    [
        text(label),
        holder(scenario, node),
        text(&machine["metadata"]["annotations"][names::ANNOTATION_SKIP_REMEDIATION]),
    ]
}

fn all() -> [Option<String>; 3] {
    ["true", OURS, OURS].map(|text| Some(text.to_owned()))
}

const NONE: [Option<String>; 3] = [const { None }; 3];

#[test]
fn a_node_is_left_alone_by_remediation_operators_from_before_its_job_until_it_is_done() {
    let mut scenario = scenario(&["a", "b"]);
    scenario.apply_and_settle(pausing());
    let first = scenario.slots("p")[0].clone();
    let other = if first == "a" { "b" } else { "a" };
    assert_eq!(
        (paused(&scenario, &first), paused(&scenario, other)),
        (all(), NONE)
    );
    scenario.restart();
    scenario.pass_secs(5);
    assert_eq!(paused(&scenario, &first), all());
    scenario.finish();
    for node in ["a", "b"] {
        assert_eq!(paused(&scenario, node), NONE, "{node}");
    }
}

#[test]
fn what_others_have_set_stays_and_the_machine_of_another_node_is_left_as_it_is() {
    let mut scenario = scenario(&["a", "b"]);
    scenario.label("a", NodeMark::ExcludeFromRemediation.key(), Some("true"));
    let theirs = json!({ "metadata": { "annotations": { names::ANNOTATION_SKIP_REMEDIATION: "theirs" } } });
    scenario
        .cluster
        .patch(Kind::Machine, "capi", "m-a", &theirs)
        .unwrap();
    // The kubelet of `b` names the Machine of `a`.
    scenario.annotate(Kind::Node, "b", names::ANNOTATIONS_MACHINE[0], Some("m-a"));
    scenario.apply_and_settle(pausing());
    scenario.roll_out();
    scenario.pass_secs(60);
    let theirs = ["true", "theirs"].map(|text| Some(text.to_owned()));
    let [label, machine] = theirs;
    assert_eq!(paused(&scenario, "a"), [label, None, machine]);
    assert_eq!(paused(&scenario, "b"), NONE);
}

#[test]
fn a_node_whose_lease_another_holds_waits_until_it_has_ended_and_others_go_on() {
    let mut scenario = scenario(&["a", "b"]);
    lease(&scenario, "a", 600);
    scenario.apply(pausing());
    scenario.roll_out();
    assert!(scenario.is_done("b", "p") && scenario.jobs_for("a").is_empty());
    let waits = scenario.entry("p", "a");
    assert_eq!(waits.reason.as_deref(), Some("NodeBusy"));
    let message = waits.message.unwrap();
    let begins = "spec.pauseRemediation: self-node-remediation holds Lease medik8s-leases/node-a until 20";
    assert!(message.starts_with(begins), "{message}");
    let snapshot = scenario.snapshot();
    let explained = explain_node(&PlanOverview::new(&snapshot, &snapshot.plans[0]), "a").to_text();
    for part in [begins, "kubectl get lease -n medik8s-leases node-a"] {
        assert!(explained.contains(part), "{explained}");
    }
    scenario.pass_secs(600);
    scenario.finish();
}

#[test]
fn a_lease_of_a_holder_whose_clock_is_ahead_is_waited_for_and_one_of_another_time_is_taken() {
    for (ahead, waits) in [(20, true), (3_600, false)] {
        let mut scenario = scenario(&["a"]);
        let renewed = scenario.now() + SignedDuration::from_secs(ahead);
        lease_from(&scenario, "a", "self-node-remediation", renewed, 600);
        scenario.apply(pausing());
        scenario.pass_secs(60);
        assert_eq!(scenario.slots("p").is_empty(), waits, "{ahead} s ahead");
        scenario.pass_secs(600);
        scenario.finish();
    }
}

#[test]
fn an_event_names_each_holder_of_a_lease_once_however_often_it_renews() {
    let mut scenario = scenario(&["a"]);
    lease(&scenario, "a", 600);
    scenario.apply(pausing());
    scenario.pass_secs(60);
    let ends = |scenario: &Scenario| scenario.entry("p", "a").message.unwrap();
    let first = ends(&scenario);
    for _ in 0..5 {
        lease(&scenario, "a", 600);
        scenario.pass_secs(120);
    }
    assert_ne!(ends(&scenario), first, "status has the new end");
    let says =
        |holder: &str| format!("Node a: spec.pauseRemediation: {holder} holds Lease medik8s-leases/node-a");
    let one = says("self-node-remediation");
    assert_eq!(scenario.events_of("NodeBusy"), std::slice::from_ref(&one));
    assert_eq!(scenario.complete("p")[2], one);
    lease_of(&scenario, "a", "other", 120);
    scenario.pass_secs(60);
    assert_eq!(scenario.events_of("NodeBusy"), [one, says("other")]);
    scenario.pass_secs(120);
    scenario.finish();
}

#[test]
fn a_lease_that_another_takes_in_the_last_moment_gives_the_slot_back() {
    let mut scenario = scenario(&["a"]);
    scenario.fault(
        Rule::on("create", "leases")
            .once()
            .effect(Effect::Hang(Moment::Before)),
    );
    scenario.apply(pausing());
    scenario.pass_secs(2);
    lease(&scenario, "a", 120);
    scenario.pass_secs(60);
    assert!(scenario.slots("p").is_empty() && scenario.jobs_for("a").is_empty());
    assert_eq!(scenario.entry("p", "a").reason.as_deref(), Some("NodeBusy"));
    scenario.pass_secs(120);
    scenario.finish();
}

#[test]
fn a_long_upgrade_renews_its_lease() {
    let mut scenario = scenario(&["a"]);
    scenario.apply_and_settle(pausing());
    for hour in 0..3 {
        scenario.pass_secs(3600);
        let lease = scenario.cluster.get(Kind::Lease, LEASES, "node-a").unwrap();
        let renewed: jiff::Timestamp = lease["spec"]["renewTime"].as_str().unwrap().parse().unwrap();
        let age = scenario.now().duration_since(renewed);
        assert!(age.as_secs() <= 2_400, "hour {hour}: {age:#}");
    }
    scenario.finish();
    assert_eq!(paused(&scenario, "a"), NONE);
}

#[test]
fn a_failed_node_is_left_alone_until_it_is_retried_or_its_plan_is_gone() {
    for deletes in [false, true] {
        let mut scenario = scenario(&["a"]);
        scenario.apply(pausing());
        scenario.fail("a");
        scenario.settle();
        assert_eq!(paused(&scenario, "a"), all());
        if deletes {
            scenario.stop();
            scenario
                .cluster
                .delete(Kind::Plan, super::scenario::NAMESPACE, "p")
                .unwrap();
            scenario.start();
            scenario.pass_secs(60);
        } else {
            scenario.retry("a", "p");
            scenario.finish();
        }
        assert_eq!(paused(&scenario, "a"), NONE, "deleted: {deletes}");
    }
}

#[test]
fn a_maintenance_gets_the_node_of_a_failed_upgrade_which_is_left_alone_again_after_it() {
    let mut scenario = Scenario::new(&Setup {
        enable: Some("maintenance"),
        ..Setup::default()
    });
    prepare(&mut scenario, &["a"]);
    scenario.apply_and_settle(pausing());
    scenario.fail("a");
    assert_eq!(paused(&scenario, "a"), all());
    maintenance::begin(&mut scenario, "disk", "a");
    scenario.pass_secs(30);
    let status = maintenance::status(&scenario, "disk");
    assert_eq!(status["phase"], "Succeeded", "{status}");
    // The maintenance has the label of its own.
    let theirs = ["true", "node-maintenance"].map(|text| Some(text.to_owned()));
    let [label, lease] = theirs;
    assert_eq!(paused(&scenario, "a"), [label, lease, None]);
    maintenance::end(&mut scenario, "disk");
    scenario.pass_secs(60);
    assert_eq!(paused(&scenario, "a"), all());
    // Nothing runs there yet either when the node is tried again.
    maintenance::begin(&mut scenario, "fan", "a");
    scenario.retry("a", "p");
    scenario.pass_secs(60);
    assert_eq!(maintenance::status(&scenario, "fan")["phase"], "Succeeded");
    assert_eq!(scenario.phase("p", "a")[1], "NodeBusy");
    maintenance::end(&mut scenario, "fan");
    scenario.pass_secs(60);
    scenario.finish();
    assert_eq!(paused(&scenario, "a"), NONE);
}

#[test]
fn the_pause_of_a_controller_that_holds_the_lease_is_not_overwritten() {
    let mut scenario = scenario(&["a"]);
    scenario.apply_and_settle(plan_with("p", |spec| spec.cordon = None));
    scenario.fail("a");
    let holder = "refit/other/system-upgrade-controller";
    let theirs = RemediationPause {
        holder: holder.to_owned(),
        label: true,
    };
    let theirs = theirs.to_text();
    lease_of(&scenario, "a", holder, 600);
    scenario.label("a", NodeMark::ExcludeFromRemediation.key(), Some("true"));
    scenario.annotate(Kind::Node, "a", names::ANNOTATION_REMEDIATION, Some(&theirs));
    let pause = |scenario: &Scenario| {
        let node = scenario.cluster.get(Kind::Node, "", "a").unwrap();
        let pause = &node["metadata"]["annotations"][names::ANNOTATION_REMEDIATION];
        pause.as_str().map(str::to_owned)
    };
    // The Plan keeps the failed node, and from now on it pauses remediation.
    scenario.edit("p", |spec| spec.pause_remediation = Some(true));
    for _ in 0..19 {
        scenario.pass_secs(30);
        assert_eq!(pause(&scenario).as_ref(), Some(&theirs));
    }
    scenario.pass_secs(90);
    assert_eq!(paused(&scenario, "a"), all());
    scenario.retry("a", "p");
    scenario.finish();
    assert_eq!((paused(&scenario, "a"), pause(&scenario)), (NONE, None));
}

#[test]
fn a_node_whose_lease_cannot_be_read_keeps_no_other_from_starting() {
    for (well, broken, code) in [("a", "b", 500), ("b", "a", 403)] {
        let mut scenario = scenario(&["a", "b"]);
        let lease = format!("node-{broken}");
        scenario.fault_always(Rule::on("get", "leases").named(&lease).answer(code));
        scenario.apply(pausing());
        scenario.pass_secs(30);
        assert_eq!(scenario.slots("p"), [well]);
        scenario.succeed(well);
        scenario.pass_secs(60);
        assert_eq!(scenario.phase("p", broken), ["Waiting", "LeasePending"]);
        let message = scenario.entry("p", broken).message.unwrap();
        assert!(
            message.contains(&format!("medik8s-leases/{lease} cannot be read")),
            "{message}"
        );
        scenario.mend();
        scenario.pass_secs(120);
        scenario.finish();
    }
}

#[test]
fn without_the_permission_the_plan_says_what_it_lacks_and_other_plans_go_on() {
    let mut scenario = scenario(&["a"]);
    scenario.fault_injector.allow("create", "leases", false);
    scenario.apply(plan("other"));
    scenario.apply_and_settle(pausing());
    let [_, reason, message] = scenario.complete("p");
    let text = "create leases.coordination.k8s.io in namespace medik8s-leases";
    assert!(
        reason == "MissingPermission" && message.contains(text),
        "{reason}: {message}"
    );
    assert_eq!(scenario.slots("other"), ["a"]);
    let about = &scenario.status("p").obstacle.as_ref().unwrap().about;
    let names: Vec<_> = about.iter().map(|it| (&*it.kind, &*it.name)).collect();
    assert_eq!(names, [("Role", names::ROLE_REMEDIATION)]);
    let snapshot = scenario.snapshot();
    let of_p = snapshot.plans.iter().find(|plan| &*plan.name == "p").unwrap();
    let explained = explain_plan(&PlanOverview::new(&snapshot, of_p)).to_text();
    assert!(
        explained.contains("kubectl apply -k deploy/overlays/remediation\n"),
        "{explained}"
    );
    scenario.fault_injector.allow("create", "leases", true);
    scenario.pass_secs(60);
    scenario.finish();
}

#[test]
fn a_plan_without_the_field_reads_no_lease_and_no_machine() {
    let mut scenario = scenario(&["a"]);
    scenario.apply_and_settle(plan("p"));
    scenario.finish();
    for what in ["GET /namespaces/medik8s-leases", "GET /namespaces/capi"] {
        assert_eq!(scenario.requests(what), 0, "{what}");
    }
}

/// A roll-out over these nodes begins.
fn begin(nodes: &[&str]) -> Scenario {
    let mut scenario = Scenario::without_controller(&Setup {
        held: false,
        ..Setup::default()
    });
    prepare(&mut scenario, nodes);
    scenario.apply(plan_with("p", |spec| spec.pause_remediation = Some(true)));
    scenario.start();
    scenario
}

#[test]
fn a_paused_roll_out_meets_any_fault_at_any_write() {
    let run = |scenario: &mut Scenario, _: &str| scenario.rest();
    sweep(
        8..60,
        &EFFECTS,
        || begin(&["a", "b"]),
        run,
        |scenario, at| {
            scenario.pass_secs(120);
            scenario.assert_over();
            assert_eq!(scenario.invariants.upgrades, 2, "{at}");
        },
    );
}

#[test]
fn a_plan_that_is_deleted_or_aborted_after_any_write_leaves_nothing() {
    for (number, deletes) in [true, false].into_iter().enumerate() {
        for write in repetitions::writes(60, number as u64) {
            let mut scenario = begin(&["a"]);
            let came = scenario.after_writes(write);
            if deletes {
                scenario.delete(Kind::Plan, "p");
            } else {
                scenario.annotate(Kind::Plan, "p", names::ANNOTATION_ABORT, Some("by user"));
            }
            scenario.pass_secs(5);
            scenario.restart();
            scenario.rest();
            scenario.pass_secs(120);
            assert_eq!(
                paused(&scenario, "a"),
                NONE,
                "deleted: {deletes}, after write {write}"
            );
            if !came {
                break;
            }
        }
    }
}
