use super::*;
use refit_api::{ChannelStatus, NodeCounts, NodeProgress, PlanCondition, RollOut, WaveSpec, WaveStatus};
use refit_fixtures::{morning, plan_with, read};

fn at(minutes: i64) -> Timestamp {
    morning() + SignedDuration::from_mins(minutes)
}

fn stamp(minutes: i64) -> String {
    at(minutes).to_string()
}

/// A Plan with a canary wave whose roll-out began at minute 0.
fn facts(change: impl FnOnce(&mut PlanStatus)) -> PlanFacts {
    let waves = [Some("canary"), None].map(|name| WaveSpec {
        name: name.map(str::to_owned),
        nodes: name.map(|_| k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(1)),
        approval: Some(true),
        ..WaveSpec::default()
    });
    let mut facts = read(plan_with("p", |spec| spec.waves = Some(waves.into())));
    let mut status = PlanStatus {
        latest_version: Some("v2".to_owned()),
        latest_hash: Some("h2".to_owned()),
        nodes: Some(NodeCounts {
            selected: 3,
            ..NodeCounts::default()
        }),
        history: Some(vec![RollOut {
            version: "v2".to_owned(),
            hash: "h2".to_owned(),
            from: stamp(0),
            ..RollOut::default()
        }]),
        ..PlanStatus::default()
    };
    change(&mut status);
    facts.object.status = Some(status);
    facts
}

fn node(name: &str, phase: NodePhase) -> NodeProgress {
    NodeProgress {
        name: name.to_owned(),
        uid: Some(format!("{name}-uid")),
        phase: phase.into(),
        since: Some(stamp(1)),
        attempt: Some(1),
        ..NodeProgress::default()
    }
}

fn wave(index: i64, name: &str, phase: WavePhase) -> WaveStatus {
    WaveStatus {
        index,
        name: name.to_owned(),
        hash: "h2".to_owned(),
        phase: phase.into(),
        since: Some(stamp(2)),
        message: Some("approve with refit approve".to_owned()),
        ..WaveStatus::default()
    }
}

fn notices_at(facts: &PlanFacts, minute: i64) -> Vec<(NoticeKind, String)> {
    let notices = notices(facts, at(minute));
    notices
        .into_iter()
        .map(|notice| (notice.kind, notice.text()))
        .collect()
}

#[test]
fn no_notification_is_about_a_plan_that_has_not_started() {
    let facts = facts(|status| *status = PlanStatus::default());
    assert_eq!(notices_at(&facts, 0), []);
    assert_eq!(running(&facts, at(0)), None);
}

#[test]
fn a_roll_out_is_notified_from_its_start_to_its_end() {
    let start = facts(|status| status.active = Some(vec![node("a", NodePhase::Pending)]));
    let started = (
        NoticeKind::RolloutStarted,
        "Plan p: the roll-out of v2 has started: the Plan selects 3 nodes, and 0 have the version".to_owned(),
    );
    assert_eq!(notices_at(&start, 1), [started]);
    let id = notices(&start, at(1))[0].id.clone();
    assert_eq!(id.len(), ID);

    let awaits = facts(|status| status.wave = Some(wave(0, "canary", WavePhase::AwaitingApproval)));
    let kinds: Vec<_> = notices(&awaits, at(3));
    assert_eq!(
        kinds[0].id, id,
        "the same notification, whatever else has changed"
    );
    let kinds: Vec<_> = kinds.iter().map(|it| (it.kind, it.wave.as_deref())).collect();
    assert_eq!(
        kinds,
        [
            (NoticeKind::RolloutStarted, None),
            (NoticeKind::WaveFinished, Some("canary")),
            (NoticeKind::ApprovalWanted, Some("canary")),
        ]
    );

    let failed = facts(|status| {
        status.wave = Some(wave(1, "wave-2", WavePhase::Progressing));
        let mut failed = node("b", NodePhase::Failed);
        failed.reason = Some(Reason::DeadlineExceeded.into());
        failed.message = Some("it took too long".to_owned());
        status.active = Some(vec![node("a", NodePhase::Waiting), failed]);
    });
    let kinds = notices_at(&failed, 3);
    assert_eq!(kinds.len(), 3, "{kinds:#?}");
    assert!(kinds.contains(&(
        NoticeKind::NodeFailed,
        "Plan p: v2 failed on node b: it took too long".to_owned()
    )));

    let complete = facts(|status| {
        status.wave = Some(wave(1, "wave-2", WavePhase::Progressing));
        let roll_out = &mut status.history.as_mut().unwrap()[0];
        (roll_out.to, roll_out.complete) = (Some(stamp(9)), Some(true));
        (roll_out.nodes, roll_out.failures) = (3, 1);
    });
    let notices = notices_at(&complete, 10);
    let last = "Plan p: the roll-out of v2 is complete: it has upgraded 3 nodes, and 1 attempt failed";
    assert_eq!(
        notices.last().unwrap(),
        &(NoticeKind::RolloutComplete, last.to_owned())
    );
    let waves = notices
        .iter()
        .filter(|(kind, _)| *kind == NoticeKind::WaveFinished)
        .count();
    assert_eq!(waves, 2);
    assert_eq!(running(&complete, at(0)), None);
}

#[test]
fn notices_older_than_an_hour_are_dropped_unless_they_still_hold() {
    let facts = facts(|status| {
        let roll_out = &mut status.history.as_mut().unwrap()[0];
        (roll_out.to, roll_out.complete) = (Some(stamp(5)), Some(true));
        status.active = Some(vec![node("b", NodePhase::Failed)]);
        status.wave = Some(wave(0, "canary", WavePhase::AwaitingApproval));
    });
    let kinds = |minute| -> Vec<NoticeKind> {
        notices_at(&facts, minute)
            .into_iter()
            .map(|(kind, _)| kind)
            .collect()
    };
    assert!(kinds(60).contains(&NoticeKind::RolloutStarted));
    assert_eq!(
        kinds(24 * 60),
        [NoticeKind::NodeFailed, NoticeKind::ApprovalWanted]
    );
}

#[test]
fn a_version_that_waits_for_approval_is_notified_once_whatever_else_changes() {
    let proposed = |message: &str| {
        facts(|status| {
            status.history = None;
            status.channel = Some(ChannelStatus {
                candidate: Some("v3".to_owned()),
                reason: Some(Reason::NotApproved.into()),
                message: Some(message.to_owned()),
                ..ChannelStatus::default()
            });
        })
    };
    let (one, two) = (notices(&proposed("a"), at(1)), notices(&proposed("b"), at(900)));
    assert_eq!(
        (one.len(), one[0].kind, one[0].version.as_str()),
        (1, NoticeKind::ApprovalWanted, "v3")
    );
    assert_eq!(one[0].id, two[0].id);
    let young = facts(|status| {
        status.history = None;
        status.channel = Some(ChannelStatus {
            candidate: Some("v3".to_owned()),
            reason: Some(Reason::TooYoung.into()),
            ..ChannelStatus::default()
        });
    });
    assert_eq!(notices_at(&young, 1), []);
}

#[test]
fn another_attempt_another_machine_and_another_roll_out_are_notified_again() {
    let failed = |change: &dyn Fn(&mut PlanStatus)| {
        let facts = facts(|status| {
            status.active = Some(vec![node("a", NodePhase::Failed)]);
            change(status);
        });
        let failed = notices(&facts, at(1))
            .into_iter()
            .find(|it| it.kind == NoticeKind::NodeFailed);
        failed.unwrap().id
    };
    let first = failed(&|_| {});
    let others = [
        failed(&|status| status.active.as_mut().unwrap()[0].attempt = Some(2)),
        failed(&|status| status.active.as_mut().unwrap()[0].uid = Some("new".to_owned())),
        failed(&|status| status.history.as_mut().unwrap()[0].from = stamp(7)),
    ];
    assert!(others.iter().all(|other| *other != first), "{others:?}");
    assert_eq!(
        failed(&|status| status.active.as_mut().unwrap()[0].since = Some(stamp(8))),
        first
    );
}

fn condition(reason: Reason) -> Vec<PlanCondition> {
    vec![PlanCondition {
        type_: ConditionType::Complete.into(),
        status: "False".to_owned(),
        reason: Some(reason.into()),
        message: Some("because".to_owned()),
        ..PlanCondition::default()
    }]
}

#[test]
fn a_roll_out_stalls_when_a_step_is_due_and_none_is_made() {
    let hour = SignedDuration::from_hours(1);
    let of = |phase: NodePhase, reason: Reason, done: i64, now: i64| {
        let facts = facts(|status| {
            status.active = Some(vec![node("a", phase)]);
            status.conditions = condition(reason);
            status.nodes = Some(NodeCounts {
                done,
                ..NodeCounts::default()
            });
        });
        running(&facts, at(now))
    };
    let draining = |now| of(NodePhase::Draining, Reason::SyncJob, 1, now).unwrap();
    let seen = draining(59).after(Some(&draining(0)));
    assert_eq!(seen.stalled(hour, at(59)), None);
    let notice = seen.stalled(hour, at(60)).unwrap();
    assert_eq!(
        notice.text(),
        "Plan p: the roll-out of v2 makes no progress: because"
    );
    assert_eq!(notice.time, at(0));
    // Another process says the same, later.
    let later = draining(30).stalled(hour, at(95)).unwrap();
    assert_eq!(later.id, notice.id);

    // A phase, and a node that is done, are progress.
    let upgrading = |done, now| of(NodePhase::Upgrading, Reason::SyncJob, done, now).unwrap();
    let seen = upgrading(1, 61).after(Some(&seen));
    assert_eq!(seen.stalled(hour, at(119)), None);
    let seen = upgrading(2, 119).after(Some(&seen));
    assert_eq!(seen.stalled(hour, at(170)), None);
    assert_ne!(seen.stalled(hour, at(180)).unwrap().id, notice.id);

    // Waits that are meant: nothing is due. A node that failed is.
    let soaking = |now| of(NodePhase::Waiting, Reason::WaveSoaking, 1, now).unwrap();
    let waits = soaking(600).after(Some(&soaking(0)));
    assert_eq!(waits.stalled(hour, at(700)), None);
    let failed = of(NodePhase::Failed, Reason::JobFailed, 1, 0).unwrap();
    assert!(failed.stalled(hour, at(60)).is_some());
    for reason in [Reason::Suspended, Reason::Aborted] {
        assert_eq!(of(NodePhase::Waiting, reason, 1, 0), None);
    }
    // The clock was set back.
    let set_back = draining(0).after(Some(&draining(500)));
    assert_eq!(set_back.stalled(hour, at(59)), None);
    assert!(set_back.stalled(hour, at(60)).is_some());
}
