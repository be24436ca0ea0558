//! What a Plan says of itself (S53–S56).

use jiff::SignedDuration;

use super::build::{morning, plan, plan_with};
use super::toy::Toy;
use crate::api::{DrainNote, DrainSpec, DrainWait, Plan, PlanStatus, SecretSpec, TimeWindowSpec};
use crate::rollout::{Kind, Stage, Step};

fn says(status: &str, reason: &str, message: &str) -> (String, String, String) {
    (status.to_owned(), reason.to_owned(), message.to_owned())
}

/// The first status that is written for a Plan.
fn first(plan: Plan) -> Toy {
    let mut toy = Toy::new();
    toy.channels
        .insert("https://example.com/stable".to_owned(), Ok("v7".to_owned()));
    toy.add_nodes(&["a"]);
    toy.apply(plan);
    toy.rounds_until(|toy| toy.plans["p"].it.object.status.is_some());
    toy
}

/// The status that one of these steps writes.
fn written(steps: &[Step]) -> &PlanStatus {
    let mut statuses = steps.iter().filter_map(|step| match step {
        Step::WriteStatus { status, .. } => Some(&**status),
        _ => None,
    });
    statuses.next().unwrap()
}

#[test]
fn the_first_status_is_final() {
    let toy = first(plan("p"));
    assert_eq!(toy.says("p", "Validated"), says("True", "PlanIsValid", ""));
    assert_eq!(toy.says("p", "LatestResolved"), says("True", "Version", ""));
    assert_eq!(toy.complete("p"), says("False", "SyncJob", ""));
    let status = toy.status("p");
    assert_eq!(status.latest_version.as_deref(), Some("v1"));
    assert_eq!(status.applying, Some(vec!["a".to_owned()]));
    assert_eq!(
        (status.observed_generation, status.progress.as_deref()),
        (Some(1), Some("0/1"))
    );
}

#[test]
fn a_channel_is_not_waited_for_to_say_what_is_known() {
    let mut toy = Toy::new();
    toy.channels
        .insert("https://example.com/stable".to_owned(), Ok("v7+k3s1".to_owned()));
    toy.apply(plan_with("p", |spec| {
        spec.version = None;
        spec.channel = Some("https://example.com/stable".to_owned());
    }));
    toy.tell(Kind::Plan);
    let steps = toy.steps();
    let status = written(&steps);
    let types: Vec<_> = status
        .conditions
        .iter()
        .map(|c| (c.type_.as_str(), c.status.as_str()))
        .collect();
    assert_eq!(types, [("Complete", "False"), ("Validated", "True")]);
    assert!(steps.iter().any(|step| matches!(step, Step::Poll { .. })));
}

#[test]
fn conditions_come_in_system_upgrade_controllers_order_with_times() {
    let toy = first(plan("p"));
    let conditions = &toy.status("p").conditions;
    let types: Vec<_> = conditions.iter().map(|c| c.type_.as_str()).collect();
    assert_eq!(types, ["Complete", "Validated", "LatestResolved"]);
    for condition in conditions {
        assert_eq!(
            condition.last_update_time.as_deref(),
            Some("2026-01-01T09:00:00Z")
        );
        assert_eq!(
            condition.last_transition_time.as_deref(),
            Some("2026-01-01T09:00:00Z")
        );
    }
}

#[test]
fn times_tell_when_a_condition_changed_and_when_its_status_did() {
    let mut toy = first(plan("p"));
    toy.later(10);
    toy.edit("p", |spec| spec.suspend = Some(true));
    toy.rolls_out();
    toy.edit("p", |spec| spec.suspend = None);
    toy.later(10);
    let complete = toy.status("p").conditions[0].clone();
    assert_eq!(complete.status, "True");
    assert_eq!(
        complete.last_transition_time.as_deref(),
        Some("2026-01-01T09:00:10Z")
    );
    assert_eq!(complete.last_update_time.as_deref(), Some("2026-01-01T09:00:10Z"));
    let validated = toy.status("p").conditions[1].clone();
    assert_eq!(
        validated.last_update_time.as_deref(),
        Some("2026-01-01T09:00:00Z")
    );
    toy.add_nodes(&["b"]);
    toy.later(10);
    toy.fails("b");
    let complete = toy.status("p").conditions[0].clone();
    assert_eq!(
        complete.last_transition_time.as_deref(),
        Some("2026-01-01T09:00:30Z")
    );
    toy.later(5);
    toy.delete_node("b");
    toy.later(5);
    assert_eq!(
        toy.status("p").conditions[0].last_transition_time.as_deref(),
        Some("2026-01-01T09:00:40Z")
    );
}

#[test]
fn a_plan_without_version_and_channel_is_not_resolved() {
    let toy = first(plan_with("p", |spec| spec.version = None));
    let text = "cannot resolve plan: missing channel and version";
    assert_eq!(toy.says("p", "LatestResolved"), says("False", "Error", text));
    assert_eq!(toy.says("p", "Validated"), says("True", "PlanIsValid", ""));
    assert_eq!(
        toy.complete("p"),
        says("False", "NotReady", "plan is not valid and resolved")
    );
    assert_eq!(
        (&toy.status("p").latest_version, &toy.status("p").latest_hash),
        (&None, &None)
    );
    assert_eq!(
        toy.told,
        [
            "Validated Plan is valid".to_owned(),
            format!("ResolveFailed {text}"),
        ]
    );
}

#[test]
fn a_version_is_published_with_a_minus_for_a_plus() {
    let toy = first(plan_with("p", |spec| {
        spec.version = Some("v1.2.3+k3s1+x".to_owned());
    }));
    assert_eq!(toy.status("p").latest_version.as_deref(), Some("v1.2.3-k3s1-x"));
}

#[test]
fn what_is_wrong_with_a_plan_is_said_in_system_upgrade_controllers_words() {
    type Mistake = (fn(&mut crate::api::PlanSpec), &'static str);
    let mistakes: [Mistake; 4] = [
        (
            |spec| {
                spec.drain = Some(DrainSpec {
                    delete_local_data: Some(true),
                    delete_emptydir_data: Some(false),
                    ..DrainSpec::default()
                });
            },
            "spec.drain cannot specify both deleteEmptydirData and deleteLocalData",
        ),
        (
            |spec| spec.post_complete_delay = Some("-30s".to_owned()),
            "spec.postCompleteDelay is negative",
        ),
        (
            |spec| {
                spec.window = Some(TimeWindowSpec {
                    days: Some(vec!["mon".to_owned()]),
                    start_time: Some("24:00".to_owned()),
                    ..TimeWindowSpec::default()
                });
            },
            "spec.window is invalid, Invalid time format: 24:00",
        ),
        (
            |spec| {
                spec.secrets = Some(
                    ["x", "y"]
                        .map(|name| SecretSpec {
                            name: name.to_owned(),
                            ..SecretSpec::default()
                        })
                        .into(),
                );
            },
            "secrets \"x\" not found, secrets \"y\" not found",
        ),
    ];
    for (mistake, text) in mistakes {
        let mut toy = first(plan_with("p", mistake));
        assert_eq!(toy.says("p", "Validated"), says("False", "Error", text));
        assert_eq!(
            toy.complete("p"),
            says("False", "NotReady", "plan is not valid and resolved")
        );
        assert_eq!(
            toy.told_of("ValidateFailed"),
            [format!("Failed to validate plan: {text}")]
        );
        assert!(toy.jobs.is_empty());
        toy.edit("p", |spec| *spec = plan("p").spec);
        toy.settle();
        assert_eq!(toy.says("p", "Validated"), says("True", "PlanIsValid", ""));
        assert_eq!(toy.jobs.len(), 1);
    }
}

#[test]
fn an_invalid_plan_keeps_applying_what_is_under_way() {
    let mut toy = first(plan("p"));
    toy.upgrades("a");
    toy.edit("p", |spec| spec.post_complete_delay = Some("-1s".to_owned()));
    toy.settle();
    assert_eq!(toy.complete("p").1, "NotReady");
    assert_eq!(toy.status("p").applying, Some(vec!["a".to_owned()]));
    toy.succeeds("a");
    assert!(toy.is_done("a", "p"));
}

#[test]
fn a_malformed_plan_says_so_and_its_jobs_go_on() {
    let mut toy = first(plan("p"));
    toy.settle();
    let job = toy.job_for("a").facts.uid.clone();
    toy.change_plan("p", |facts| {
        facts.object.spec = crate::api::PlanSpec::default();
        facts.malformed = Some("spec cannot be read: invalid type".to_owned());
    });
    toy.settle();
    assert_eq!(
        toy.says("p", "Validated"),
        says("False", "Error", "spec cannot be read: invalid type")
    );
    assert_eq!(toy.job_for("a").facts.uid, job);
}

#[test]
fn a_name_that_no_label_can_hold_is_refused() {
    let name = "n".repeat(64);
    let mut toy = Toy::new();
    toy.add_nodes(&["a"]);
    toy.apply(plan(&name));
    toy.settle();
    let text = "metadata.name has 64 characters, and the label that marks a finished node holds 63";
    assert_eq!(toy.says(&name, "Validated"), says("False", "Error", text));
    assert!(toy.jobs.is_empty());
}

#[test]
fn an_edit_is_not_complete_before_it_is_resolved() {
    let mut toy = first(plan("p"));
    toy.rolls_out();
    toy.edit("p", |spec| {
        spec.version = None;
        spec.channel = Some("https://example.com/stable".to_owned());
    });
    toy.tell(Kind::Plan);
    let steps = toy.steps();
    let status = written(&steps);
    assert_eq!(status.conditions[0].reason.as_deref(), Some("NotReady"));
    assert_eq!(status.observed_generation, Some(2));
}

#[test]
fn of_several_secrets_nothing_is_said_before_all_have_been_asked_for() {
    let mut toy = Toy::new();
    toy.apply(plan_with("p", |spec| {
        let named = |name: &&str| SecretSpec {
            name: (*name).to_owned(),
            ..SecretSpec::default()
        };
        spec.secrets = Some(["x", "y"].iter().map(named).collect());
    }));
    toy.tell(Kind::Plan);
    let asks = |steps: &[Step]| {
        steps
            .iter()
            .filter(|step| matches!(step, Step::ReadSecret { .. }))
            .count()
    };
    assert_eq!(asks(&toy.steps()), 2);
    toy.world.secret_missing(&"y".into());
    let steps = toy.steps();
    assert_eq!(asks(&steps), 1);
    assert!(steps.iter().all(|step| !matches!(step, Step::WriteStatus { .. })));
}

#[test]
fn a_secret_that_has_to_be_read_again_changes_nothing_until_it_is() {
    let mut toy = Toy::new();
    toy.add_nodes(&["a"]);
    toy.secret("s", "2tg9fbfm4c");
    toy.apply(plan_with("p", |spec| {
        spec.secrets = Some(vec![SecretSpec {
            name: "s".to_owned(),
            ..SecretSpec::default()
        }]);
    }));
    toy.rolls_out();
    let (hash, written) = (toy.hash("p"), toy.plans["p"].version);
    toy.secret("s", "2tg9fbfm4c");
    toy.later(1);
    assert_eq!(toy.plans["p"].version, written, "its metadata only");
    toy.wakes_up();
    toy.later(1);
    assert_eq!(toy.plans["p"].version, written, "nor does another controller");
    toy.secret("s", "b6hh84k47k");
    toy.later(1);
    assert_ne!(toy.hash("p"), hash);
    assert_eq!(toy.slots("p"), ["a"]);
}

#[test]
fn secrets_are_not_forgotten_when_they_are_listed_again() {
    let mut toy = Toy::new();
    toy.secret("s", "2tg9fbfm4c");
    toy.apply(plan_with("p", |spec| {
        spec.secrets = Some(vec![SecretSpec {
            name: "s".to_owned(),
            ..SecretSpec::default()
        }]);
    }));
    toy.settle();
    toy.list(Kind::Secret);
    toy.settle();
    assert_eq!(toy.says("p", "Validated").0, "True");
    assert!(toy.steps().is_empty());
}

#[test]
fn progress_waits_a_second_and_news_does_not() {
    let mut toy = Toy::with(&["a", "b"], plan("p"));
    let written = toy.plans["p"].version;
    let first = toy.slots("p")[0].clone();
    toy.comes_to(&first, Stage::Upgrade);
    assert_eq!(toy.plans["p"].version, written);
    assert_eq!(toy.decision().wake, Some("2026-01-01T09:00:01Z".parse().unwrap()));
    toy.succeeds(&first);
    assert!(toy.plans["p"].version > written);
    let written = toy.plans["p"].version;
    let second = toy.slots("p")[0].clone();
    toy.later(2);
    assert!(toy.plans["p"].version > written, "the name of the Job");
    let entry = toy.entry("p", &second);
    assert_eq!(entry.job.as_deref(), Some(&*toy.job_of(&second)));
}

#[test]
fn with_many_slots_news_of_several_nodes_is_written_at_once_and_soon() {
    let names: Vec<_> = (10..71).map(|n| format!("node-{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let plan = plan_with("p", |spec| spec.concurrency = Some(60));
    let mut toy = Toy::with(&names, plan);
    let slots = toy.slots("p");
    assert_eq!(slots.len(), 60);
    let written = toy.plans["p"].version;
    toy.succeeds(&slots[0]);
    toy.succeeds(&slots[1]);
    assert_eq!(toy.plans["p"].version, written);
    let soon = SignedDuration::from_millis(30);
    assert_eq!(toy.decision().wake, Some(morning() + soon));
    toy.passes(soon);
    toy.settle();
    assert!(toy.plans["p"].version > written);
    assert_eq!(toy.slots("p").len(), 59);
    assert_eq!(toy.status("p").progress.as_deref(), Some("2/61"));
}

#[test]
fn with_many_slots_an_api_server_that_is_slow_is_told_less_often_and_sooner_where_a_node_waits_for_it() {
    let names: Vec<_> = (10..90).map(|n| format!("node-{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    // Twelve of those that wait are next, and need not be told first.
    for (done, takes, due) in [
        (1, 2, 30),
        (1, 8, 64),
        (12, 95, 500),
        (13, 8, 30),
        (13, 95, 190),
        (13, 4_000, 500),
    ] {
        let mut toy = Toy::new();
        toy.status_takes = SignedDuration::from_millis(takes);
        toy.add_nodes(&names);
        toy.apply(plan_with("p", |spec| spec.concurrency = Some(60)));
        toy.settle();
        let slots = toy.slots("p");
        // Status names the next ones once all have their slots.
        toy.later(2);
        let written = toy.plans["p"].version;
        for node in &slots[..done] {
            toy.succeeds_unseen(node);
        }
        toy.settle();
        assert_eq!(toy.plans["p"].version, written);
        let due = toy.now + SignedDuration::from_millis(due);
        assert_eq!(
            toy.decision().wake,
            Some(due),
            "{done} are done after a status that took {takes} ms"
        );
    }
}

#[test]
fn a_clock_that_was_set_back_does_not_hold_up_progress() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.passes(SignedDuration::from_hours(-2));
    toy.upgrades("a");
    toy.later(1);
    assert_eq!(toy.entry("p", "a").phase, "Upgrading");
}

#[test]
fn what_a_job_does_is_its_phase() {
    let drains = plan_with("p", |spec| spec.drain = Some(DrainSpec::default()));
    let mut toy = Toy::with(&["a"], drains);
    let phases = [
        (Stage::Unbound, "Pending"),
        (Stage::Starting, "Starting"),
        (Stage::Prepare, "Preparing"),
        (Stage::Drain, "Draining"),
        (Stage::Upgrade, "Upgrading"),
    ];
    for (stage, phase) in phases {
        toy.comes_to("a", stage);
        toy.later(1);
        assert_eq!(toy.entry("p", "a").phase, phase);
        assert_eq!(toy.entry("p", "a").attempt, Some(1));
    }
}

#[test]
fn why_a_pod_does_not_come_further_is_told() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.comes_to("a", Stage::Unbound);
    let pod = toy.pods.keys().next().unwrap().clone();
    toy.change_pod(&pod, |pod| {
        pod.facts.waiting = Some("0/1 nodes are available".to_owned());
    });
    toy.later(1);
    let entry = toy.entry("p", "a");
    assert_eq!(
        (entry.reason.as_deref(), entry.message.as_deref()),
        (Some("PodWaiting"), Some("0/1 nodes are available"))
    );
}

#[test]
fn what_a_drain_waits_for_is_told_while_it_drains() {
    let mut toy = Toy::with(
        &["a"],
        plan_with("p", |spec| spec.drain = Some(DrainSpec::default())),
    );
    toy.comes_to("a", Stage::Drain);
    let pod = toy.pods.keys().next().unwrap().clone();
    let note = |waiting: &[&str]| DrainNote {
        evicted: 2,
        total: 9,
        waiting: waiting
            .iter()
            .map(|pod| DrainWait {
                pod: (*pod).to_owned(),
                pdb: Some("web".to_owned()),
                since: morning(),
                why: "x".repeat(600),
            })
            .collect(),
        more: 0,
    };
    for (waiting, reason, says) in [
        (&[][..], None, "2 of 9 pods are gone"),
        (
            &["shop/web-1", "shop/web-2"][..],
            Some("DrainWaiting"),
            "2 of 9 pods are gone; shop/web-1 waits for PodDisruptionBudget web since 2026-01-01T09:00:00Z (x",
        ),
    ] {
        let written = note(waiting);
        toy.change_pod(&pod, |pod| pod.facts.drain = Some(written));
        toy.later(1);
        let entry = toy.entry("p", "a");
        assert_eq!(
            (entry.phase.as_str(), entry.reason.as_deref()),
            ("Draining", reason)
        );
        let message = entry.message.clone().unwrap();
        assert!(message.starts_with(says), "{message}");
        assert!(message.len() <= 1_024 + "…".len(), "{}", message.len());
    }
    toy.comes_to("a", Stage::Upgrade);
    toy.later(1);
    let entry = toy.entry("p", "a");
    assert_eq!(
        (entry.reason.as_deref(), entry.message.as_deref()),
        (None, None),
        "that is over"
    );
}

#[test]
fn status_shows_all_nodes_with_a_slot_those_that_are_next_and_others_up_to_a_hundred() {
    let mut toy = Toy::new();
    for number in 0..150 {
        toy.add_nodes(&[&format!("n{number:03}")]);
    }
    toy.apply(plan_with("p", |spec| spec.concurrency = Some(3)));
    toy.settle();
    let active = toy.status("p").active.clone().unwrap();
    assert_eq!(active.len(), 100);
    assert!(
        active[..3].iter().all(|n| n.phase == "Pending") && active[3..].iter().all(|n| n.phase == "Waiting")
    );
    toy.edit("p", |spec| spec.concurrency = Some(120));
    toy.later(1);
    assert_eq!(toy.slots("p").len(), 120);
    assert_eq!(toy.status("p").active.as_ref().unwrap().len(), 120 + 24);
}

#[test]
fn counts_are_of_what_the_plan_is_for() {
    let mut toy = Toy::new();
    toy.add_nodes(&["a", "b", "c", "d", "e"]);
    toy.set_done_label("e", "p", Some("disabled"));
    toy.apply(plan_with("p", |spec| spec.concurrency = Some(2)));
    toy.settle();
    let slots = toy.slots("p");
    toy.succeeds(&slots[0]);
    toy.fails(&slots[1]);
    toy.later(1);
    let counts = toy.status("p").nodes.unwrap();
    assert_eq!((counts.selected, counts.disabled, counts.done), (4, 1, 1));
    assert_eq!((counts.applying, counts.failed, counts.waiting), (1, 1, 1));
    assert_eq!(toy.status("p").progress.as_deref(), Some("1/4"));
}

#[test]
fn what_somebody_else_left_in_status_goes() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.rolls_out();
    toy.later(1);
    let right = toy.status("p").clone();
    toy.change_plan("p", |facts| {
        let status = facts.object.status.as_mut().unwrap();
        status.applying = Some(vec!["z".to_owned()]);
        status.conditions.reverse();
    });
    toy.later(1);
    assert_eq!(*toy.status("p"), right);
}
