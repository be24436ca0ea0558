use super::*;
use crate::read::{NodeObject, Snapshot};
use crate::{explain_node, explain_plan};
use refit_api::plan::DependencySpec;
use refit_api::reason::{Kind, ReportedIn};
use refit_api::{
    ChannelStatus, CheckPhase, CheckStatus, ConditionType, NodeCounts, NodePhase, NodeProgress, Obstacle,
    PlanCondition, PlanStatus, Reason, WavePhase, WaveStatus,
};
use refit_fixtures::{node, plan_with, read};

/// Nothing is to be found in it.
const MESSAGE: &str = "it waits";

/// The objects that a blocker, a kubelet or a policy names.
fn about(reason: Reason) -> Vec<ObjectRef> {
    let object = match reason {
        Reason::DependencyNotComplete | Reason::DependencyCycle | Reason::DependencySelectsNothing => {
            ObjectRef::plan("server")
        }
        Reason::DependencyUnknown => ObjectRef::plan("absent"),
        Reason::NodeBusy => ObjectRef::plan("other"),
        Reason::Blackout => ObjectRef::new("ConfigMap", limits::NAME),
        _ => ObjectRef::node("broken"),
    };
    vec![object]
}

fn object(name: &str, ready: bool) -> (String, NodeObject) {
    let mut facts = node(name, &format!("{name}-uid"));
    facts.ready = ready;
    let object = NodeObject {
        ready: (!ready).then(|| ("KubeletNotReady".to_owned(), "disk".to_owned(), String::new())),
        facts,
    };
    (name.to_owned(), object)
}

/// Plan `p` with the node `held`, which has this phase, and the Plan's conditions, for one reason.
fn snapshot(reason: Reason, phase: NodePhase, of_node: bool, condition: ConditionType) -> Snapshot {
    let entry = |name: &str, phase: NodePhase, reason: Option<Reason>| NodeProgress {
        name: name.to_owned(),
        phase: phase.into(),
        reason: reason.map(Into::into),
        message: reason.map(|_| MESSAGE.to_owned()),
        about: reason.map(about).unwrap_or_default(),
        ..NodeProgress::default()
    };
    let mut active = vec![entry("busy", NodePhase::Upgrading, None)];
    if matches!(reason.cause(), Cause::FailedNodes) {
        active.push(entry(
            "failed",
            NodePhase::Failed,
            Some(Reason::BackoffLimitExceeded),
        ));
    }
    // A Plan that waits for a single node names it.
    let of_one = matches!(reason.cause(), Cause::Busy | Cause::Kubelet);
    if of_node || of_one {
        active.push(entry("held", phase, Some(reason)));
    }
    let mut plan = plan_with("p", |spec| {
        let named = ["server", "absent"].map(|name| DependencySpec {
            name: name.to_owned(),
        });
        spec.depends_on = Some(named.into());
    });
    let is_word = condition == ConditionType::Complete && of_node;
    plan.status = Some(PlanStatus {
        observed_generation: Some(1),
        latest_version: Some("v2".to_owned()),
        latest_hash: Some("hash".to_owned()),
        nodes: Some(NodeCounts {
            selected: 3,
            waiting: 2,
            applying: 1,
            ..NodeCounts::default()
        }),
        active: Some(active),
        next_window: matches!(reason.cause(), Cause::Window).then(|| "2026-01-03T00:00:00Z".to_owned()),
        wave: Some(WaveStatus {
            name: "canary".to_owned(),
            hash: "hash".to_owned(),
            phase: WavePhase::Progressing.into(),
            ..WaveStatus::default()
        }),
        checks: Some(vec![CheckStatus {
            name: "latency".to_owned(),
            phase: CheckPhase::Failing.into(),
            message: Some("is too slow".to_owned()),
            ..CheckStatus::default()
        }]),
        channel: Some(ChannelStatus {
            url: Some("https://channel.test/stable".to_owned()),
            candidate: Some("v3".to_owned()),
            last_error: Some("no answer".to_owned()),
            ..ChannelStatus::default()
        }),
        obstacle: Some(Obstacle {
            reason: reason.into(),
            message: MESSAGE.to_owned(),
            node: (of_node || of_one).then(|| "held".to_owned()),
            about: about(reason),
            since: None,
        }),
        conditions: vec![PlanCondition {
            type_: condition.into(),
            status: "False".to_owned(),
            reason: Some(if is_word { Reason::SyncJob } else { reason }.into()),
            message: Some(MESSAGE.to_owned()),
            ..PlanCondition::default()
        }],
        ..PlanStatus::default()
    });
    let mut server = plan_with("server", |_| {});
    server.status = Some(PlanStatus {
        observed_generation: Some(1),
        active: Some(vec![entry("held", NodePhase::Upgrading, None)]),
        nodes: Some(NodeCounts::default()),
        ..PlanStatus::default()
    });
    Snapshot {
        now: "2026-01-01T09:00:00Z".parse().unwrap(),
        plans: vec![read(plan), read(server)],
        nodes: Some(
            [
                object("held", true),
                object("busy", true),
                object("broken", false),
                object("failed", true),
            ]
            .into(),
        ),
        ..Snapshot::default()
    }
}

fn check(reason: Reason, explanation: &Explanation) {
    let text = explanation.to_text();
    assert!(explanation.held, "{reason}:\n{text}");
    assert!(
        !explanation.chain.is_empty() && !explanation.remedy.is_empty(),
        "{reason}:\n{text}"
    );
    assert!(
        !explanation.commands.is_empty(),
        "no command for {reason}:\n{text}"
    );
    assert!(
        explanation
            .commands
            .iter()
            .all(|command| !command.contains("NODE")),
        "{reason}:\n{text}"
    );
    let names = |part: &str| text.contains(part);
    let expected: &[&str] = match reason.cause() {
        Cause::Slots => &["Node busy: Upgrading"],
        Cause::Busy => &["Plan system-upgrade/server: works on the node"],
        Cause::Unavailable | Cause::NamedNodes => {
            &["Node broken: is not Ready", "kubectl describe node broken"]
        }
        Cause::Wave => &["wave canary"],
        Cause::FailedNodes => &["Node failed: Failed"],
        Cause::Limits => &[
            "ConfigMap system-upgrade/refit",
            "kubectl edit configmap -n system-upgrade refit",
        ],
        Cause::Plans if reason == Reason::DependencyUnknown => {
            &["Plan system-upgrade/absent: does not exist"]
        }
        Cause::Plans => &[
            "Plan system-upgrade/server",
            "refit explain -n system-upgrade server",
        ],
        Cause::Window if reason == Reason::Blackout => &[
            "ConfigMap system-upgrade/refit: nodes may start again in 1d15h",
            "kubectl edit configmap",
        ],
        Cause::Window => &[
            "spec.windows: opens in 1d15h",
            "kubectl edit plan -n system-upgrade p",
        ],
        Cause::Kubelet => &["Node held"],
        Cause::Checks => &["check latency: Failing: is too slow"],
        Cause::Channel | Cause::Candidate | Cause::Job | Cause::Itself => &[],
    };
    for part in expected {
        assert!(
            names(part),
            "{part:?} is not in the explanation of {reason}:\n{text}"
        );
    }
}

#[test]
fn every_reason_that_a_status_can_have_leads_to_an_object_and_a_way_out() {
    let (mut of_nodes, mut of_plans) = (0, 0);
    for reason in Reason::ALL.iter().copied() {
        for (reported_in, phase) in [
            (ReportedIn::Node, NodePhase::Waiting),
            (ReportedIn::FailedNode, NodePhase::Failed),
        ] {
            if reason.appears_in(reported_in) {
                let snapshot = snapshot(reason, phase, true, ConditionType::Complete);
                let view = PlanOverview::new(&snapshot, &snapshot.plans[0]);
                check(reason, &explain_node(&view, "held"));
                of_nodes += 1;
            }
        }
        // A condition that is True, and the progress of a roll-out, hold nothing.
        let holds = !reason.is_true() && !matches!(reason, Reason::SyncJob | Reason::Resolved);
        for condition in ConditionType::ALL.iter().copied() {
            // With `UpToDate`, the Plan is complete.
            if reason.appears_in(condition.into()) && holds && condition != ConditionType::UpToDate {
                let snapshot = snapshot(reason, NodePhase::Waiting, false, condition);
                let view = PlanOverview::new(&snapshot, &snapshot.plans[0]);
                let explanation = explain_plan(&view);
                check(reason, &explanation);
                of_plans += 1;
            }
        }
        if reason.kind() == Kind::Wait || reason.kind() == Kind::Failure {
            let in_status = [
                ReportedIn::Node,
                ReportedIn::FailedNode,
                ReportedIn::DoneNode,
                ReportedIn::Complete,
            ];
            let in_status = in_status
                .iter()
                .any(|reported_in| reason.appears_in(*reported_in));
            assert!(
                in_status || reason == Reason::SchemaOutdated,
                "{reason} is in no status"
            );
        }
    }
    assert!(of_nodes > 50 && of_plans > 30, "{of_nodes} {of_plans}");
}
