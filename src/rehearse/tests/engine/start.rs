//! Which nodes start, which wait, and why.

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::scenario::{Scenario, Setup};
use crate::api::{DrainSpec, TimeWindowSpec, names};
use crate::rehearse::Kind;
use crate::rehearse::fault::Rule;
use crate::rehearse::json::json;
use crate::rollout::PodStage;
use crate::rollout::tests::build::{plan, plan_with};

fn says(status: &str, reason: &str, message: &str) -> (String, String, String) {
    (status.to_owned(), reason.to_owned(), message.to_owned())
}

#[test]
fn no_more_nodes_are_begun_with_than_concurrency_allows_and_who_has_a_slot_keeps_it() {
    let mut story = Scenario::with(
        &["a", "b", "c", "d"],
        plan_with("p", |spec| spec.concurrency = Some(3)),
    );
    let slots = story.slots("p");
    assert_eq!((slots.len(), story.invariants.jobs.len()), (3, 3));
    let waits = ["a", "b", "c", "d"]
        .into_iter()
        .find(|node| !slots.contains(&(*node).to_owned()))
        .unwrap();
    let entry = story.entry("p", waits);
    assert_eq!(
        (entry.reason.as_deref(), entry.message.as_deref()),
        (Some("NoSlot"), Some("all 3 slots of the Plan are in use"))
    );
    story.edit("p", |spec| spec.concurrency = Some(1));
    story.settle();
    assert_eq!(story.slots("p"), slots);
    story.succeed(&slots[0]);
    assert_eq!(story.slots("p"), slots[1..]);
    story.roll_out();
    story.assert_over();
}

#[test]
fn without_concurrency_no_node_starts_and_a_plan_with_no_node_left_is_complete() {
    for concurrency in [None, Some(0), Some(-1)] {
        let story = Scenario::with(&["a"], plan_with("p", |spec| spec.concurrency = concurrency));
        let text = "spec.concurrency is 0 or absent, so no node starts; set it, or spec.maxConcurrent";
        assert_eq!(story.complete("p"), says("False", "ConcurrencyZero", text));
        assert!(story.invariants.jobs.is_empty());
    }
    let mut story = Scenario::with(&["a"], plan("p"));
    story.succeed("a");
    story.edit("p", |spec| spec.concurrency = None);
    story.settle();
    assert_eq!(story.complete("p"), says("True", "Complete", ""));
}

#[test]
fn max_concurrent_replaces_concurrency_and_a_share_is_one_of_the_nodes_that_the_plan_is_for() {
    let percent = |text: &str| IntOrString::String(text.to_owned());
    for (limit, slots) in [
        (IntOrString::Int(3), 3),
        (percent("50%"), 2),
        (percent("1%"), 1),
        (percent("100%"), 5),
    ] {
        let mut story = Scenario::empty();
        story.add_nodes(&["a", "b", "c", "d", "e", "f"]);
        story.set_done_label("f", "p", Some("disabled"));
        story.apply(plan_with("p", |spec| spec.max_concurrent = Some(limit.clone())));
        story.settle();
        assert_eq!(story.slots("p").len(), slots, "{limit:?}");
    }
}

#[test]
fn a_node_that_someone_has_cordoned_counts_as_unavailable_and_may_itself_start() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a", "b", "c"]);
    story.cordon("c", true);
    story.apply(plan_with("p", |spec| {
        spec.concurrency = Some(3);
        spec.max_unavailable = Some(IntOrString::Int(1));
    }));
    story.settle();
    assert_eq!(story.slots("p"), ["c"]);
    assert_eq!(
        story.phase("p", "a").1,
        "NoSlot",
        "only the Plan's own work takes the room"
    );
    story.succeed("c");
    assert!(story.is_done("c", "p") && story.is_cordoned("c"));
    assert!(story.slots("p").is_empty());
    assert_eq!(story.phase("p", "a").1, "MaxUnavailable");
    let text = "spec.maxUnavailable is 1: no further node starts while c is unavailable";
    assert_eq!(story.complete("p"), says("False", "MaxUnavailable", text));
    assert_eq!(story.events_of("MaxUnavailable"), [text]);
    story.cordon("c", false);
    story.settle();
    assert_eq!(story.slots("p").len(), 1);
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_node_that_is_not_ready_counts_as_unavailable_and_a_plan_that_repairs_such_nodes_starts_it() {
    for repairs in [false, true] {
        let mut story = Scenario::empty();
        story.add_nodes(&["a", "b"]);
        story.ready("a", false);
        story.apply(plan_with("p", |spec| {
            spec.concurrency = Some(2);
            spec.max_unavailable = Some(IntOrString::Int(1));
            spec.tolerations = repairs.then(|| {
                vec![Toleration {
                    key: Some("node.kubernetes.io/not-ready".to_owned()),
                    operator: Some("Exists".to_owned()),
                    ..Toleration::default()
                }]
            });
        }));
        story.settle();
        if repairs {
            assert_eq!(story.slots("p"), ["a"]);
            continue;
        }
        assert!(story.slots("p").is_empty());
        assert_eq!(story.phase("p", "a").1, "NodeNotReady");
        assert_eq!(story.phase("p", "b").1, "MaxUnavailable");
        story.ready("a", true);
        story.settle();
        assert_eq!(story.slots("p").len(), 1);
        story.roll_out();
        story.assert_over();
    }
}

#[test]
fn a_node_that_a_plan_has_cordoned_for_its_upgrade_counts_once() {
    let mut story = Scenario::with(
        &["a", "b", "c", "d"],
        plan_with("p", |spec| {
            spec.concurrency = Some(4);
            spec.max_unavailable = Some(IntOrString::String("50%".to_owned()));
        }),
    );
    let slots = story.slots("p");
    assert_eq!(slots.len(), 2);
    for node in &slots {
        story.comes_to(node, PodStage::Upgrade);
        assert!(story.is_cordoned(node));
    }
    story.succeed(&slots[0]);
    assert_eq!(story.slots("p").len(), 2);
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_share_of_unavailable_nodes_is_one_of_the_nodes_that_the_plan_is_for() {
    for (share, slots) in [("1%", 1), ("40%", 2), ("100%", 5)] {
        let mut story = Scenario::empty();
        story.add_nodes(&["a", "b", "c", "d", "e", "f"]);
        story.set_done_label("f", "p", Some("disabled"));
        story.cordon("f", true);
        story.apply(plan_with("p", |spec| {
            spec.concurrency = Some(6);
            spec.max_unavailable = Some(IntOrString::String(share.to_owned()));
        }));
        story.settle();
        assert_eq!(story.slots("p").len(), slots, "{share}");
    }
}

#[test]
fn a_node_that_another_disruptive_plan_works_on_counts_as_unavailable() {
    let mut story = Scenario::with(
        &["a", "b"],
        plan_with("exclusive", |spec| {
            (spec.cordon, spec.exclusive) = (None, Some(true));
        }),
    );
    let busy = story.slots("exclusive")[0].clone();
    story.apply(plan_with("patch", |spec| {
        spec.concurrency = Some(2);
        spec.max_unavailable = Some(IntOrString::Int(1));
    }));
    story.settle();
    assert!(story.slots("patch").is_empty() && !story.is_cordoned(&busy));
    let text = format!("spec.maxUnavailable is 1: no further node starts while {busy} is unavailable");
    assert_eq!(story.complete("patch"), says("False", "MaxUnavailable", &text));
    story.roll_out();
    story.assert_over();
}

#[test]
fn suspend_starts_no_node_and_lets_running_nodes_finish_also_where_its_job_was_lost() {
    let mut story = Scenario::with(&["a", "b"], plan("p"));
    let first = story.slots("p")[0].clone();
    let second = if first == "a" { "b" } else { "a" };
    story.comes_to(&first, PodStage::Upgrade);
    story.edit("p", |spec| spec.suspend = Some(true));
    story.settle();
    let job = story.live_job(&first).name;
    story.delete(Kind::Job, &job);
    story.settle();
    story.succeed(&first);
    assert!(story.is_done(&first, "p"));
    assert_eq!(
        story.complete("p"),
        says("False", "Suspended", "spec.suspend is true")
    );
    assert_eq!(story.phase("p", second).0, "Waiting");
    story.edit("p", |spec| spec.suspend = None);
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_node_without_a_job_goes_back_to_waiting_when_it_may_not_start_any_more() {
    for suspends in [true, false] {
        let mut story = Scenario::empty();
        story.add_nodes(&["a"]);
        story.fault_always(Rule::on("create", "jobs").answer(422));
        story.apply(plan("p"));
        story.settle();
        assert_eq!(story.slots("p"), ["a"]);
        if suspends {
            story.edit("p", |spec| spec.suspend = Some(true));
        } else {
            story.ready("a", false);
        }
        story.settle();
        assert!(story.slots("p").is_empty() && story.status("p").applying.is_none());
    }
}

#[test]
fn the_window_is_asked_before_each_node() {
    let mut story = Scenario::with(
        &["a", "b"],
        plan_with("p", |spec| {
            spec.window = Some(TimeWindowSpec {
                days: Some(vec!["thu".to_owned()]),
                start_time: Some("10:00".to_owned()),
                end_time: Some("11:00".to_owned()),
                time_zone: None,
            });
        }),
    );
    let text = "current time is not within configured window";
    assert_eq!(story.complete("p"), says("False", "Waiting", text));
    assert_eq!(
        story.status("p").next_window.as_deref(),
        Some("2026-01-01T10:00:00Z")
    );
    story.pass_secs(3600 - 10);
    assert!(story.invariants.jobs.is_empty());
    story.pass_secs(15);
    let slots = story.slots("p");
    assert_eq!((slots.len(), &story.status("p").next_window), (1, &None));
    story.pass_secs(3600);
    story.succeed(&slots[0]);
    assert!(story.is_done(&slots[0], "p"), "what was begun is finished");
    assert!(story.slots("p").is_empty());
    assert_eq!(
        story.status("p").next_window.as_deref(),
        Some("2026-01-08T10:00:00Z")
    );
}

#[test]
fn a_window_that_never_opens_says_so() {
    let never = TimeWindowSpec {
        start_time: Some("10:00".to_owned()),
        end_time: Some("11:00".to_owned()),
        ..TimeWindowSpec::default()
    };
    let story = Scenario::with(&["a"], plan_with("p", |spec| spec.window = Some(never)));
    let text = "current time is not within configured window, and will never be";
    assert_eq!(story.complete("p"), says("False", "Waiting", text));
}

#[test]
fn a_node_that_is_not_ready_is_skipped_and_takes_no_slot() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a", "b"]);
    story.ready("a", false);
    story.apply(plan("p"));
    story.settle();
    assert_eq!(story.slots("p"), ["b"]);
    story.succeed("b");
    assert_eq!(
        story.complete("p"),
        says("False", "NodeNotReady", "Node a: the node is not Ready")
    );
    assert_eq!(story.phase("p", "a").1, "NodeNotReady");
    story.ready("a", true);
    story.settle();
    assert_eq!(story.slots("p"), ["a"]);
}

#[test]
fn a_plan_that_names_the_taints_of_such_nodes_repairs_them() {
    for (key, starts) in [
        (Some("node.kubernetes.io/not-ready"), true),
        (Some("node.kubernetes.io/unreachable"), true),
        (Some("dedicated"), false),
        (None, false), // tolerates everything, but not this taint by name
    ] {
        let mut story = Scenario::empty();
        story.add_nodes(&["a"]);
        story.ready("a", false);
        story.apply(plan_with("p", |spec| {
            spec.tolerations = Some(vec![Toleration {
                key: key.map(str::to_owned),
                operator: Some("Exists".to_owned()),
                ..Toleration::default()
            }]);
        }));
        story.settle();
        assert_eq!(!story.invariants.jobs.is_empty(), starts, "{key:?}");
    }
}

#[test]
fn one_disruptive_plan_is_at_work_on_a_node_at_a_time_and_holds_up_no_other_node_or_plan() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a"]);
    story.apply(plan("patch"));
    story.settle();
    story.apply(plan_with("exclusive", |spec| {
        (spec.cordon, spec.exclusive) = (None, Some(true));
    }));
    story.apply(plan_with("plain", |spec| spec.cordon = None));
    story.settle();
    assert_eq!(
        story.complete("exclusive"),
        says("False", "NodeBusy", "Node a: Plan patch works on the node")
    );
    let mut plans: Vec<_> = story
        .jobs_for("a")
        .iter()
        .map(|job| job.plan.to_string())
        .collect();
    plans.sort();
    assert_eq!(plans, ["patch", "plain"]);
    story.add_nodes(&["b"]);
    story.apply(plan_with("drain", |spec| spec.drain = Some(DrainSpec::default())));
    story.settle();
    assert_eq!(story.slots("patch"), ["a"]);
    assert_eq!(
        story.slots("exclusive").len() + story.slots("drain").len(),
        1,
        "one of them has b"
    );
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_failed_node_does_not_keep_others_off_and_is_not_retried_while_they_are_at_work() {
    let mut story = Scenario::with(&["a"], plan("server"));
    story.fail("a");
    story.apply(plan("patch"));
    story.settle();
    assert_eq!(story.slots("patch"), ["a"]);
    story.retry("a", "server");
    story.settle();
    assert_eq!(story.phase("server", "a").1, "NodeBusy");
    story.roll_out();
    story.assert_over();
}

#[test]
fn labels_say_what_is_done_and_what_is_left_alone() {
    let hash = Scenario::with(&["a"], plan("p")).hash("p");
    let mut story = Scenario::empty();
    story.add_nodes(&["disabled", "done", "enabled", "old", "fresh"]);
    story.add_node(
        "nameless",
        &json!({ "metadata": { "labels": { "kubernetes.io/hostname": null } } }),
    );
    for (node, value) in [
        ("disabled", "disabled"),
        ("done", &hash),
        ("enabled", "enabled"),
        ("old", "0123"),
    ] {
        story.set_done_label(node, "p", Some(value));
    }
    story.apply(plan_with("p", |spec| spec.concurrency = Some(9)));
    story.settle();
    assert_eq!(story.slots("p"), ["enabled", "fresh", "old"]);
    let counts = story.status("p").nodes.unwrap();
    assert_eq!(
        (counts.selected, counts.done, counts.disabled, counts.applying),
        (4, 1, 1, 3)
    );
}

#[test]
fn a_node_that_leaves_the_selector_leaves_its_slot_when_nothing_runs() {
    let mut story = Scenario::empty();
    story.add_node(
        "a",
        &json!({ "spec": { "taints": [{ "key": "example.com/full", "effect": "NoSchedule" }] } }),
    );
    story.apply(plan("p"));
    story.settle();
    assert_eq!(story.slots("p"), ["a"]);
    story.label("a", names::LABEL_HOSTNAME, None);
    story.settle();
    assert!(story.invariants.jobs.is_empty() && story.slots("p").is_empty());
}

#[test]
fn a_windows_node_needs_a_kubectl_image() {
    let mut story = Scenario::new(&Setup {
        kubectl_image_windows: None,
        ..Setup::default()
    });
    story.add_node(
        "win",
        &json!({ "metadata": { "labels": { "kubernetes.io/os": "windows" } } }),
    );
    story.add_nodes(&["zulu"]);
    story.apply(plan_with("p", |spec| spec.concurrency = Some(2)));
    story.settle();
    let text = "Failed to create job for node win: SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS is required when targeting Windows nodes";
    assert_eq!(story.complete("p"), says("False", "SyncJob", text));
    assert_eq!(story.events_of("ValidationFailed"), [text]);
    assert_eq!(story.phase("p", "win").1, "SettingMissing");
    story.succeed("zulu");
    assert!(story.is_done("zulu", "p"), "other nodes go on");
    assert_eq!(story.complete("p").2, text);
}

#[test]
fn without_refits_own_image_no_node_is_cordoned_and_plans_that_need_none_go_on() {
    let mut story = Scenario::new(&Setup {
        own_image: None,
        ..Setup::default()
    });
    story.add_nodes(&["a"]);
    story.apply(plan("cordons"));
    story.apply(plan_with("plain", |spec| spec.cordon = None));
    story.settle();
    let (status, reason, message) = story.complete("cordons");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "OwnImageUnknown"));
    assert!(message.contains("set REFIT_IMAGE"), "{message}");
    assert!(story.slots("cordons").is_empty());
    assert_eq!(story.phase("cordons", "a").1, "OwnImageUnknown");
    assert_eq!(story.slots("plain"), ["a"]);
    story.succeed("a");
    assert!(story.is_done("a", "plain"));
    assert!(!story.is_done("a", "cordons"));
}

#[test]
fn an_image_that_cannot_be_read_holds_up_the_nodes_and_not_the_version() {
    let story = Scenario::with(
        &["a"],
        plan_with("p", |spec| {
            spec.upgrade.get_or_insert_default().image = "Not An Image".to_owned();
        }),
    );
    assert_eq!(story.condition("p", "LatestResolved").0, "True");
    let (status, reason, message) = story.complete("p");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "ImageInvalid"));
    assert!(message.contains("Not An Image"), "{message}");
    assert!(story.invariants.jobs.is_empty());
}
