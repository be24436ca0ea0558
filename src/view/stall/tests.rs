use super::*;
use crate::read::{NodeObject, Terminating};
use crate::{Explanation, explain_node, explain_plan};
use refit_api::{NodeCounts, NodePhase, NodeProgress, PlanStatus};
use refit_facts::{PodFacts, Termination};
use refit_fixtures::{job, node, plan_with, read};

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
    let labels = [("kubernetes.io/hostname".to_owned(), "a".to_owned())].into();
    Snapshot {
        now,
        plans: vec![PlanObject {
            namespace: "system-upgrade".to_owned(),
            facts: plan,
            deleting: None,
            node_op: None,
        }],
        nodes: Some(
            [(
                "a".to_owned(),
                NodeObject {
                    facts,
                    labels,
                    ready: None,
                },
            )]
            .into(),
        ),
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
    found.plans[0].deleting = Some(vec!["example.com/hold".to_owned()]);
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

#[test]
fn a_node_in_prepare_names_what_it_waits_for() {
    let mut snapshot = snapshot(NodePhase::Preparing);
    let prepare = |plan: &str| {
        Some(Box::new(refit_api::ContainerSpec {
            image: "rancher/k3s-upgrade".to_owned(),
            args: Some(vec!["prepare".to_owned(), plan.to_owned()]),
            ..refit_api::ContainerSpec::default()
        }))
    };
    let explained = |snapshot: &Snapshot| {
        let view = PlanOverview::new(snapshot, snapshot.plans.last().unwrap());
        assert_eq!(view.obstacle, None, "the roll-out continues");
        explain_node(&view, "a").to_text()
    };
    snapshot.plans[0].facts.object.spec.prepare = prepare("servers");
    let says = explained(&snapshot);
    assert!(
        says.contains("Prepare: `prepare` waits for Plan servers, which does not exist; apply it too"),
        "{says}"
    );
    let mut servers = read(plan_with("servers", |spec| spec.suspend = Some(true)));
    let status = serde_json::json!({
        "observedGeneration": 1, "nodes": { "selected": 1, "waiting": 1 }, "active": [],
        "obstacle": { "reason": "Suspended", "message": "spec.suspend is true" },
    });
    servers.object.status = Some(serde_json::from_value(status).unwrap());
    let servers = PlanObject {
        namespace: "system-upgrade".to_owned(),
        facts: servers,
        deleting: None,
        node_op: None,
    };
    snapshot.plans.insert(0, servers);
    let says = explained(&snapshot);
    for part in [
        "waits for Plan servers, which is not complete",
        "Plan system-upgrade/servers: Suspended: spec.suspend is true",
        "refit explain -n system-upgrade servers",
    ] {
        assert!(says.contains(part), "{part:?} is not in {says}");
    }
}
