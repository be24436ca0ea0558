use super::*;
use crate::read::{NodeObject, Terminating};
use crate::{Explanation, explain_node, explain_plan};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use refit_api::{NodeCounts, NodePhase, NodeProgress, PlanStatus};
use refit_facts::{PodFacts, Termination};
use refit_fixtures::{job, labels, node, plan_with, read};

/// Plan `p`, whose Job on node `a` runs.
fn snapshot(phase: NodePhase) -> Snapshot {
    let mut plan = plan_with("p", |_| {});
    plan.status = Some(PlanStatus {
        observed_generation: Some(1),
        nodes: Some(NodeCounts {
            selected: 1,
            applying: 1,
            ..NodeCounts::default()
        }),
        active: Some(vec![NodeProgress {
            name: "a".to_owned(),
            phase: phase.into(),
            job: Some("job".to_owned()),
            ..NodeProgress::default()
        }]),
        ..PlanStatus::default()
    });
    let plan = read(plan);
    let facts = node("a", "a-uid");
    let running = job("job", &plan, &facts, "hash");
    let now = running.created + jiff::SignedDuration::from_mins(2);
    Snapshot {
        now,
        plans: vec![plan],
        nodes: Some([("a".to_owned(), NodeObject { facts, ready: None })].into()),
        jobs: vec![JobObject {
            namespace: "system-upgrade".to_owned(),
            controller: "system-upgrade-controller".to_owned(),
            facts: running,
            started: None,
        }],
        ..Snapshot::default()
    }
}

/// A pod of the Job, created so many seconds after it; with a message it has failed.
fn pod(snapshot: &Snapshot, name: &str, seconds: i64, stage: PodStage, message: Option<&str>) -> PodObject {
    let job = &snapshot.jobs[0].facts;
    PodObject {
        prepares: stage == PodStage::Prepare,
        namespace: "system-upgrade".to_owned(),
        facts: PodFacts {
            name: name.into(),
            uid: name.into(),
            job_uid: job.uid.clone(),
            foreign: false,
            plan: job.plan.clone(),
            node: Some(job.node.clone()),
            stage,
            waiting: None,
            failed: message.map(|says| Termination {
                container: "drain".to_owned(),
                exit_code: 1,
                says: says.to_owned(),
                is_of_deletion: false,
            }),
            upgraded: false,
            sentinel_result: None,
            reboot: None,
            deleting: false,
            hook: false,
        },
        created: Some(job.created + jiff::SignedDuration::from_secs(seconds)),
    }
}

/// What both commands say of the Plan, and of its node.
fn explained(snapshot: &Snapshot) -> (Explanation, String) {
    let view = PlanOverview::new(snapshot, &snapshot.plans[0]);
    let plan = explain_plan(&view);
    let text = plan.to_text();
    let node = explain_node(&view, "a");
    assert_eq!(plan.held, node.held, "{text}");
    (plan, text)
}

#[track_caller]
fn names(snapshot: &Snapshot, texts: &[&str]) {
    let (explanation, text) = explained(snapshot);
    assert!(explanation.held, "{text}");
    for wanted in texts {
        assert!(text.contains(wanted), "{wanted} is not in:\n{text}");
    }
}

#[test]
fn a_job_that_tries_again_names_what_its_last_pod_said() {
    let mut found = snapshot(NodePhase::Starting);
    let says = "cannot delete Pods that declare no controller (use --force to override): shop/a";
    found.pods = vec![
        pod(&found, "job-2", 20, PodStage::Ended, Some(says)),
        pod(&found, "job-1", 10, PodStage::Ended, Some("timeout")),
        pod(&found, "job-3", 30, PodStage::Starting, None),
    ];
    names(
        &found,
        &[
            "PodFailed",
            "2 pods of the Job have failed; the last one: container drain exited with 1: cannot delete",
            "Pod system-upgrade/job-2: ended",
            "set spec.drain.force: true",
            "kubectl logs -n system-upgrade",
        ],
    );
    found.pods[2].facts.stage = PodStage::Upgrade;
    assert!(!explained(&found).0.held, "it runs again");
}

#[test]
fn a_pod_that_does_not_end_is_named_with_its_finalizers() {
    let mut found = snapshot(NodePhase::Draining);
    found.pods = vec![pod(&found, "job-1", 1, PodStage::Drain, None)];
    found.terminating = vec![Terminating {
        node: "a".to_owned(),
        pod: "shop/web-1".to_owned(),
        ends: found.now - jiff::SignedDuration::from_mins(1),
        finalizers: vec!["example.com/keep".to_owned()],
    }];
    names(
        &found,
        &[
            "PodTerminating",
            "shop/web-1, which should have ended 1m ago",
            "example.com/keep",
            "kubectl describe pod -n shop web-1",
        ],
    );
    found.terminating[0].node = "b".to_owned();
    assert!(!explained(&found).0.held, "on another node");
}

#[test]
fn a_plan_that_is_being_deleted_names_its_finalizers() {
    let mut found = snapshot(NodePhase::Pending);
    let metadata = &mut found.plans[0].object.metadata;
    metadata.deletion_timestamp = Some(Time(found.now));
    metadata.finalizers = Some(vec!["example.com/hold".to_owned()]);
    let (explanation, text) = {
        let view = PlanOverview::new(&found, &found.plans[0]);
        let explanation = explain_plan(&view);
        let text = explanation.to_text();
        (explanation, text)
    };
    assert!(explanation.held, "{text}");
    assert!(
        text.contains("Deleting") && text.contains("example.com/hold"),
        "{text}"
    );
}

/// Agents' Plan `p`, whose node `a` is in `prepare`, which waits for Plan `servers` of these fields; and node `control` of
/// version v1, while the Plans are for v2.
fn preparing(waits_for: &str, servers: Option<(&serde_json::Value, &serde_json::Value)>) -> Snapshot {
    let prepare = serde_json::json!({ "image": "rancher/k3s-upgrade", "args": ["prepare", waits_for] });
    let mut found = snapshot(NodePhase::Preparing);
    found.plans[0].object.spec.prepare = Some(serde_json::from_value(prepare).unwrap());
    found.plans[0].object.status.as_mut().unwrap().latest_version = Some("v2".to_owned());
    let mut facts = node("control", "control-uid");
    facts.kubelet = "v1".into();
    facts.labels = labels([("node-role.kubernetes.io/control-plane", "true")]);
    let control = NodeObject { facts, ready: None };
    found
        .nodes
        .as_mut()
        .unwrap()
        .insert("control".to_owned(), control);
    if let Some((spec, status)) = servers {
        found.plans.push(plan_of("servers", spec, status));
    }
    found.pods = vec![pod(&found, "job-1", 1, PodStage::Prepare, None)];
    found
}

fn plan_of(name: &str, spec: &serde_json::Value, status: &serde_json::Value) -> PlanFacts {
    let mut facts = read(plan_with(name, |_| {}));
    let mut all = serde_json::to_value(&facts.object.spec).unwrap();
    all.as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    facts.object.spec = serde_json::from_value(all).unwrap();
    facts.object.status = Some(serde_json::from_value(status.clone()).unwrap());
    facts
}

#[track_caller]
fn says_of_prepare(found: &Snapshot, parts: &[&str]) {
    let view = PlanOverview::new(found, &found.plans[0]);
    assert_eq!(view.obstacle, None, "the roll-out continues");
    let says = explain_node(&view, "a").to_text();
    for part in parts {
        assert!(says.contains(part), "{part:?} is not in {says}");
    }
}

#[test]
fn a_node_in_prepare_names_what_it_waits_for() {
    use serde_json::json;
    let open = json!({
        "observedGeneration": 1, "nodes": { "selected": 1, "waiting": 1 }, "active": [],
        "obstacle": { "reason": "Suspended", "message": "spec.suspend is true" }, "latestVersion": "v2",
    });
    // That of system-upgrade-controller has no generation.
    let complete = json!({ "conditions": [{ "type": "Complete", "status": "True" }], "latestVersion": "v2" });
    let plain = json!({});
    let edit = "kubectl edit plan -n system-upgrade p";
    says_of_prepare(
        &preparing("servers", None),
        &[
            "Prepare: `prepare` waits for Plan servers, which does not exist; apply it too",
            "Remedy: create the Plan, or correct spec.prepare.args",
            edit,
        ],
    );
    let mut found = preparing("servers", Some((&plain, &open)));
    says_of_prepare(
        &found,
        &[
            "waits for Plan servers, which is not complete",
            "Plan system-upgrade/servers: Suspended: spec.suspend is true",
            "refit explain -n system-upgrade servers",
        ],
    );
    found.pods[0].prepares = false;
    assert!(!explained(&found).1.contains("`prepare`"), "in `preflight`");
    found.pods[0].prepares = true;
    let control = |found: &mut Snapshot, version: &str| {
        let node = found.nodes.as_mut().unwrap().get_mut("control").unwrap();
        node.facts.kubelet = version.into();
    };
    control(&mut found, "v2");
    assert!(!explained(&found).1.contains("`prepare`"), "the versions agree");
    let mut applying = open.clone();
    applying["applying"] = json!(["control"]);
    let mut found = preparing("servers", Some((&plain, &applying)));
    control(&mut found, "v2");
    says_of_prepare(&found, &["waits for Plan servers, which is still applying"]);
    let mut found = preparing("servers", Some((&plain, &complete)));
    says_of_prepare(
        &found,
        &[
            "and control runs v1",
            "Remedy: see why the node",
            "kubectl describe node control",
        ],
    );
    found.nodes.as_mut().unwrap().remove("control");
    says_of_prepare(
        &found,
        &[
            "a control-plane node, but",
            "Remedy: label the nodes",
            "--show-labels",
        ],
    );
    says_of_prepare(
        &preparing("p", None),
        &[
            "Plan p itself",
            "Remedy: name the Plan of the control-plane",
            edit,
        ],
    );
}

#[test]
fn a_cycle_of_plans_passes_through_open_ones_only() {
    use serde_json::json;
    let open = json!({ "observedGeneration": 1, "nodes": {}, "active": [], "applying": ["control"] });
    let complete = json!({ "conditions": [{ "type": "Complete", "status": "True" }] });
    let waits = |plan: &str| json!({ "prepare": { "image": "i", "args": ["prepare", plan] } });
    says_of_prepare(
        &preparing("servers", Some((&waits("p"), &open))),
        &[
            "servers, which waits for Plan p; remove `prepare` from one of the two",
            "Remedy: remove `prepare` from one of the two",
        ],
    );
    says_of_prepare(
        &preparing(
            "servers",
            Some((&json!({ "dependsOn": [{ "name": "p" }] }), &open)),
        ),
        &["Remedy: remove `prepare` or `dependsOn` from one of the two"],
    );
    let mut found = preparing("servers", Some((&waits("more"), &open)));
    found.plans.push(plan_of("more", &waits("p"), &complete));
    says_of_prepare(&found, &["waits for Plan servers, which is still applying"]);
}
