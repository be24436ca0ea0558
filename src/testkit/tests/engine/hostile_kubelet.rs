//! What a kubelet can do with its own Node and with mirror pods, which it may create with any name and any labels in any
//! namespace. It can neither mark, uncordon, fail nor reboot another node.

use super::scenario::{NAMESPACE, Scenario, Setup};
use refit_api::{Holder, Ledger, Plan, RebootSpec, RebootWhen, names};
use refit_facts::PodStage;
use refit_fixtures::plan_with;
use refit_job::name::RunId;
use refit_rehearse::Kind;
use refit_rehearse::json::{Value, json};

fn rebooting() -> Plan {
    plan_with("p", |spec| {
        spec.cordon = Some(true);
        spec.concurrency = Some(2);
        spec.reboot = Some(RebootSpec {
            when: Some(RebootWhen::Always),
            timeout: Some("5m".to_owned()),
            ..RebootSpec::default()
        });
    })
}

/// A mirror pod of the kubelet of a node, with the labels and annotations of a pod of refit.
fn create_mirror_pod(scenario: &Scenario, node: &str, name: &str, labels: &Value, annotations: &Value) {
    let owner = scenario.node(node).uid.to_string();
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": NAMESPACE, "labels": labels, "annotations": annotations,
            "ownerReferences": [
                { "apiVersion": "v1", "kind": "Node", "name": node, "uid": owner, "controller": true },
            ],
        },
        "spec": { "nodeName": node, "containers": [{ "name": "reboot", "image": "example.com/static" }] },
    });
    pod["metadata"]["annotations"][names::ANNOTATION_MIRROR] = "x".into();
    scenario.cluster.create(pod).unwrap();
}

/// The upgrades of `a` and `b` run; the kubelet of `a` is hostile.
fn upgrading() -> Scenario {
    let mut scenario = Scenario::of_nodes(&["a", "b"]);
    scenario.apply(rebooting());
    scenario.comes_to("a", PodStage::Upgrade);
    scenario.comes_to("b", PodStage::Upgrade);
    scenario.settle();
    scenario
}

#[test]
fn a_mirror_pod_with_the_name_of_a_reboot_pod_is_named_and_keeps_no_node_from_rebooting() {
    for labels in [true, false] {
        let mut scenario = upgrading();
        let job = scenario.job_for("b");
        let node_uid = scenario.node("b").uid.to_string();
        let name = RunId {
            plan: "p",
            plan_uid: &job.plan_uid,
            node: "b",
            node_uid: &node_uid,
            upgrade: &job.hash,
        }
        .reboot_pod_name();
        let labels = if labels {
            json!({
                names::LABEL_CONTROLLER: "system-upgrade-controller", names::LABEL_PLAN: "p",
                names::LABEL_ROLE: names::ROLE_REBOOT, names::plan_label("p"): &*job.hash,
            })
        } else {
            json!({})
        };
        let annotations = json!({
            names::ANNOTATION_PLAN_UID: &*job.plan_uid, names::ANNOTATION_NODE_UID: &*node_uid,
            names::ANNOTATION_BOOT_ID: &*scenario.node("b").boot_id,
        });
        create_mirror_pod(&scenario, "a", &name, &labels, &annotations);
        scenario.steer("b", "start-delay", Some("60s"));
        scenario.succeed("b");
        scenario.pass_secs(5);
        let entry = scenario.entry("p", "b");
        assert_eq!(
            entry.reason.as_ref().map(ToString::to_string).as_deref(),
            Some("NameTaken"),
            "{entry:?}"
        );
        assert!(
            entry.message.as_deref().is_some_and(|text| text.contains(&name)),
            "{entry:?}"
        );
        scenario.steer("b", "start-delay", None);
        scenario.pass_secs(120);
        assert!(scenario.is_done("b", "p"), "{:?}", scenario.entry("p", "b"));
        assert_eq!(scenario.invariants.nodes["b"].left_boots(), 1);
        // The hostile node is upgraded, too.
        scenario.delete_pod_now(&name);
        scenario.finish();
        assert_eq!(scenario.invariants.nodes["a"].left_boots(), 1);
    }
}

#[test]
fn a_mirror_pod_with_the_labels_of_a_job_proves_nothing_about_another_node() {
    let mut scenario = upgrading();
    let job = scenario.job_for("b");
    let labels = json!({
        names::LABEL_CONTROLLER: "system-upgrade-controller", names::LABEL_PLAN: "p", names::LABEL_NODE: "b",
        "batch.kubernetes.io/job-name": &*job.name, "job-name": &*job.name,
    });
    create_mirror_pod(
        &scenario,
        "a",
        "apply-p-on-b-with-x",
        &labels,
        &json!({ names::ANNOTATION_NODE_UID: "b" }),
    );
    let status = json!({ "status": {
        "phase": "Failed",
        "containerStatuses": [{ "name": "upgrade", "state": { "terminated": { "exitCode": 9, "message": "lies" } } }],
    } });
    scenario
        .cluster
        .patch_status(Kind::Pod, NAMESPACE, "apply-p-on-b-with-x", &status)
        .unwrap();
    scenario.settle();
    assert_eq!(scenario.phase("p", "b")[0], "Upgrading");
    scenario.fail("b");
    scenario.pass_secs(5);
    let message = scenario.entry("p", "b").message.unwrap_or_default();
    assert!(!message.contains("lies"), "{message}");
    scenario.delete_pod_now("apply-p-on-b-with-x");
}

fn ledger(plan: &str, uid: &str) -> String {
    let holder = Holder {
        namespace: NAMESPACE.to_owned(),
        controller: "system-upgrade-controller".to_owned(),
        plan: plan.to_owned(),
        plan_uid: uid.into(),
        cancelled: false,
        completed: false,
        evicted: Vec::new(),
    };
    Ledger::with_holder(None, false, holder).unwrap().to_text()
}

/// With a Lease, and a Plan that starts no node. The Lease changes all the time, so such a cluster never comes to rest.
fn elected() -> Scenario {
    let mut scenario = Scenario::new(&Setup {
        leader_elect: true,
        ..Setup::default()
    });
    scenario.add_nodes(&["a", "b"]);
    scenario.apply_and_settle(plan_with("other", |spec| spec.suspend = Some(true)));
    scenario
}

#[test]
fn a_holder_of_a_plan_that_never_existed_uncordons_no_node_and_is_named() {
    let mut scenario = elected();
    for restarts in [false, true] {
        scenario.cordon("a", true);
        scenario.annotate(
            Kind::Node,
            "a",
            names::ANNOTATION_CORDON,
            Some(&ledger("ghost", "never-was")),
        );
        if restarts {
            scenario.restart();
        }
        scenario.pass_secs(60);
        assert!(scenario.is_cordoned("a"), "after a restart: {restarts}");
        let left = scenario.cluster.get(Kind::Node, "", "a").unwrap();
        assert!(
            left["metadata"]["annotations"][names::ANNOTATION_CORDON].is_null(),
            "{left:?}"
        );
        let events = scenario.cluster.with(|state| {
            let events = state
                .all(Kind::Event)
                .filter(|event| event["reason"] == "HolderUnknown");
            events.count()
        });
        assert_eq!(events, 1);
        scenario.cordon("a", false);
    }
}

#[test]
fn a_record_of_a_plan_that_never_existed_uncordons_no_node() {
    let mut scenario = elected();
    scenario.cordon("a", true);
    let uid = scenario.node("a").uid.to_string();
    let record = json!({
        "namespace": NAMESPACE, "planUid": "never-was", "nodeUid": uid, "hash": "h", "version": "v", "phase": "Upgraded",
        "attempt": 1, "jobUid": "j", "job": "j", "at": "2026-01-01T00:00:00Z", "uncordon": true,
    });
    for number in 0..200 {
        let key = format!("{}ghost-{number}", names::ANNOTATION_RECORD_PREFIX);
        scenario.annotate(Kind::Node, "a", &key, Some(&record.to_string()));
    }
    let before = scenario.requests("patch nodes");
    scenario.pass_secs(60);
    assert!(scenario.is_cordoned("a"));
    assert!(scenario.node("a").records.is_empty());
    assert!(
        scenario.requests("patch nodes") - before < 20,
        "one patch removes them all"
    );
}

/// The Plan is deleted while no controller runs. The Lease says that it has existed.
#[test]
fn a_node_of_a_plan_that_was_deleted_while_no_controller_ran_is_uncordoned() {
    let mut scenario = elected();
    scenario.apply(plan_with("p", |spec| {
        spec.cordon = Some(true);
        spec.concurrency = Some(2);
    }));
    scenario.comes_to("a", PodStage::Upgrade);
    assert!(scenario.is_cordoned("a"));
    scenario.stop();
    scenario.delete(Kind::Plan, "p");
    scenario.pass_secs(120);
    assert!(scenario.is_cordoned("a"));
    scenario.start();
    scenario.pass_secs(120);
    assert!(!scenario.is_cordoned("a"));
}

/// The Job of `b` waits for its node to lose a taint. Meanwhile the kubelet of `a` takes the hostname, for a moment or for
/// good.
#[test]
fn a_hostname_that_is_taken_after_a_job_was_created_neither_keeps_it_away_nor_fails_its_node() {
    for keeps in [true, false] {
        let mut scenario = Scenario::of_nodes(&["a", "b"]);
        scenario.label("a", &names::plan_label("p"), Some("disabled"));
        scenario.settle();
        let plan = plan_with("p", |spec| {
            spec.exclusive = Some(true);
            spec.job_active_deadline_secs = Some(60);
        });
        scenario.apply_and_taint("b", plan);
        let labels = json!({ names::LABEL_PLAN: "p", names::LABEL_EXCLUSIVE: "true" });
        create_mirror_pod(&scenario, "a", "static", &labels, &json!({}));
        let first = scenario.job_for("b").uid;
        scenario.label("a", names::LABEL_HOSTNAME, Some("b"));
        scenario.pass_secs(5);
        if !keeps {
            scenario.label("a", names::LABEL_HOSTNAME, Some("a"));
            scenario.pass_secs(5);
            scenario.label("a", names::LABEL_HOSTNAME, Some("b"));
        }
        scenario.patch(Kind::Node, "b", &json!({ "spec": { "taints": [] } }));
        scenario.comes_to("b", PodStage::Upgrade);
        assert_ne!(scenario.job_for("b").uid, first);
        scenario.roll_out();
        assert!(scenario.is_done("b", "p"), "{:?}", scenario.entry("p", "b"));
        assert!(!scenario.is_done("a", "p"));
        scenario.delete_pod_now("static");
        scenario.assert_over();
    }
}

#[test]
fn a_node_with_the_hostname_of_another_one_does_not_keep_its_job_away() {
    let mut scenario = Scenario::of_nodes(&["a", "b"]);
    scenario.label("a", names::LABEL_HOSTNAME, Some("b"));
    scenario.apply_and_settle(plan_with("p", |spec| {
        spec.suspend = Some(true);
        spec.concurrency = Some(2);
        spec.exclusive = Some(true);
    }));
    let labels = json!({ names::LABEL_PLAN: "p", names::LABEL_EXCLUSIVE: "true" });
    create_mirror_pod(&scenario, "a", "static", &labels, &json!({}));
    scenario.edit("p", |spec| spec.suspend = None);
    scenario.comes_to("b", PodStage::Upgrade);
    scenario.roll_out();
    scenario.delete_pod_now("static");
    scenario.assert_over();
}
