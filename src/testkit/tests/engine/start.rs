//! Which nodes start, which wait, and why.

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::scenario::{Scenario, Setup};
use crate::fault::Rule;
use refit_api::{DrainSpec, PlanSpec, RebootWhen, TimeWindowSpec, names};
use refit_facts::PodStage;
use refit_fixtures::{plan, plan_with};
use refit_rehearse::Kind;
use refit_rehearse::json::json;

#[test]
fn no_more_nodes_are_begun_with_than_concurrency_allows_and_who_has_a_slot_keeps_it() {
    let mut scenario = Scenario::with(
        &["a", "b", "c", "d"],
        plan_with("p", |spec| spec.concurrency = Some(3)),
    );
    let slots = scenario.slots("p");
    assert_eq!((slots.len(), scenario.invariants.jobs.len()), (3, 3));
    let waits = ["a", "b", "c", "d"]
        .into_iter()
        .find(|node| !slots.contains(&(*node).to_owned()))
        .unwrap();
    let entry = scenario.entry("p", waits);
    assert_eq!(
        (entry.reason.as_deref(), entry.message.as_deref()),
        (Some("NoSlot"), Some("all 3 slots of the Plan are in use"))
    );
    scenario.edit_and_settle("p", |spec| spec.concurrency = Some(1));
    assert_eq!(scenario.slots("p"), slots);
    scenario.succeed(&slots[0]);
    assert_eq!(scenario.slots("p"), slots[1..]);
    scenario.edit_and_settle("p", |spec| spec.concurrency = Some(100));
    assert_eq!(scenario.slots("p").len(), 3);
    scenario.finish();
}

#[test]
fn without_concurrency_no_node_starts_and_a_plan_with_no_node_left_is_complete() {
    for concurrency in [None, Some(0), Some(-1)] {
        let scenario = Scenario::with(&["a"], plan_with("p", |spec| spec.concurrency = concurrency));
        let text = "spec.concurrency is 0 or absent, so no node starts; set it, or spec.maxConcurrent";
        assert_eq!(scenario.complete("p"), ["False", "ConcurrencyZero", text]);
        assert_eq!(scenario.phase("p", "a")[1], "ConcurrencyZero");
        assert!(scenario.invariants.jobs.is_empty());
    }
    let mut scenario = Scenario::with(&["a"], plan("p"));
    scenario.succeed("a");
    scenario.edit_and_settle("p", |spec| spec.concurrency = None);
    assert_eq!(scenario.complete("p"), ["True", "Complete", ""]);
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
        let mut scenario = Scenario::of_nodes(&["a", "b", "c", "d", "e", "f"]);
        scenario.set_done_label("f", "p", Some("disabled"));
        scenario.apply_and_settle(plan_with("p", |spec| spec.max_concurrent = Some(limit.clone())));
        assert_eq!(scenario.slots("p").len(), slots, "{limit:?}");
    }
}

#[test]
fn a_node_that_someone_has_cordoned_counts_as_unavailable_and_may_itself_start() {
    let mut scenario = Scenario::of_nodes(&["a", "b", "c"]);
    scenario.cordon("c", true);
    scenario.apply_and_settle(plan_with("p", |spec| {
        spec.concurrency = Some(3);
        spec.max_unavailable = Some(IntOrString::Int(1));
    }));
    assert_eq!(scenario.slots("p"), ["c"]);
    assert_eq!(
        scenario.phase("p", "a")[1],
        "NoSlot",
        "only the Plan's own work takes the room"
    );
    scenario.succeed("c");
    assert!(scenario.is_done("c", "p") && scenario.is_cordoned("c"));
    assert!(scenario.slots("p").is_empty());
    assert_eq!(scenario.phase("p", "a")[1], "MaxUnavailable");
    let text = "spec.maxUnavailable is 1: no further node starts while c is unavailable";
    assert_eq!(scenario.complete("p"), ["False", "MaxUnavailable", text]);
    assert_eq!(scenario.events_of("MaxUnavailable"), [text]);
    scenario.cordon("c", false);
    scenario.settle();
    assert_eq!(scenario.slots("p").len(), 1);
    scenario.finish();
}

#[test]
fn a_node_that_is_not_ready_counts_as_unavailable_and_a_plan_that_repairs_such_nodes_starts_it() {
    for repairs in [false, true] {
        let mut scenario = Scenario::of_nodes(&["a", "b"]);
        scenario.ready("a", false);
        scenario.apply_and_settle(plan_with("p", |spec| {
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
        if repairs {
            assert_eq!(scenario.slots("p"), ["a"]);
            continue;
        }
        assert!(scenario.slots("p").is_empty());
        assert_eq!(scenario.phase("p", "a")[1], "NodeNotReady");
        assert_eq!(scenario.phase("p", "b")[1], "MaxUnavailable");
        scenario.ready("a", true);
        scenario.settle();
        assert_eq!(scenario.slots("p").len(), 1);
        scenario.finish();
    }
}

#[test]
fn a_node_that_a_plan_has_cordoned_for_its_upgrade_counts_once() {
    let mut scenario = Scenario::with(
        &["a", "b", "c", "d"],
        plan_with("p", |spec| {
            spec.concurrency = Some(4);
            spec.max_unavailable = Some(IntOrString::String("50%".to_owned()));
        }),
    );
    let slots = scenario.slots("p");
    assert_eq!(slots.len(), 2);
    for node in &slots {
        scenario.comes_to(node, PodStage::Upgrade);
        assert!(scenario.is_cordoned(node));
    }
    scenario.succeed(&slots[0]);
    assert_eq!(scenario.slots("p").len(), 2);
    scenario.finish();
}

#[test]
fn a_share_of_unavailable_nodes_is_one_of_the_nodes_that_the_plan_is_for() {
    for (share, slots) in [("1%", 1), ("40%", 2), ("100%", 5)] {
        let mut scenario = Scenario::of_nodes(&["a", "b", "c", "d", "e", "f"]);
        scenario.set_done_label("f", "p", Some("disabled"));
        scenario.cordon("f", true);
        scenario.apply_and_settle(plan_with("p", |spec| {
            spec.concurrency = Some(6);
            spec.max_unavailable = Some(IntOrString::String(share.to_owned()));
        }));
        assert_eq!(scenario.slots("p").len(), slots, "{share}");
    }
}

#[test]
fn a_node_that_another_disruptive_plan_works_on_counts_as_unavailable() {
    let mut scenario = Scenario::with(
        &["a", "b"],
        plan_with("exclusive", |spec| {
            (spec.cordon, spec.exclusive) = (None, Some(true));
        }),
    );
    let busy = scenario.slots("exclusive")[0].clone();
    scenario.apply_and_settle(plan_with("patch", |spec| {
        spec.concurrency = Some(2);
        spec.max_unavailable = Some(IntOrString::Int(1));
    }));
    assert!(scenario.slots("patch").is_empty() && !scenario.is_cordoned(&busy));
    let text = format!("spec.maxUnavailable is 1: no further node starts while {busy} is unavailable");
    assert_eq!(scenario.complete("patch"), ["False", "MaxUnavailable", &text]);
    scenario.finish();
}

#[test]
fn suspend_starts_no_node_and_lets_running_nodes_finish_also_where_its_job_was_lost() {
    let mut scenario = Scenario::with(&["a", "b"], plan("p"));
    let first = scenario.slots("p")[0].clone();
    let second = if first == "a" { "b" } else { "a" };
    scenario.comes_to(&first, PodStage::Upgrade);
    scenario.edit_and_settle("p", |spec| spec.suspend = Some(true));
    let job = scenario.live_job(&first).name;
    scenario.delete(Kind::Job, &job);
    scenario.settle();
    scenario.succeed(&first);
    assert!(scenario.is_done(&first, "p"));
    assert_eq!(
        scenario.complete("p"),
        ["False", "Suspended", "spec.suspend is true"]
    );
    assert_eq!(scenario.phase("p", second)[0], "Waiting");
    scenario.edit("p", |spec| spec.suspend = None);
    scenario.finish();
}

#[test]
fn a_node_without_a_job_goes_back_to_waiting_when_it_may_not_start_any_more() {
    for suspends in [true, false] {
        let mut scenario = Scenario::of_nodes(&["a"]);
        scenario.fault_always(Rule::on("create", "jobs").answer(422));
        scenario.apply_and_settle(plan("p"));
        assert_eq!(scenario.slots("p"), ["a"]);
        if suspends {
            scenario.edit("p", |spec| spec.suspend = Some(true));
        } else {
            scenario.ready("a", false);
        }
        scenario.settle();
        assert!(scenario.slots("p").is_empty() && scenario.status("p").applying.is_none());
    }
}

#[test]
fn the_window_is_asked_before_each_node() {
    let mut scenario = Scenario::with(
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
    assert_eq!(scenario.complete("p"), ["False", "Waiting", text]);
    assert_eq!(
        scenario.status("p").next_window.as_deref(),
        Some("2026-01-01T10:00:00Z")
    );
    scenario.pass_secs(3600 - 10);
    assert!(scenario.invariants.jobs.is_empty());
    scenario.pass_secs(15);
    let slots = scenario.slots("p");
    assert_eq!((slots.len(), &scenario.status("p").next_window), (1, &None));
    scenario.pass_secs(3600);
    scenario.succeed(&slots[0]);
    assert!(scenario.is_done(&slots[0], "p"), "what was begun is finished");
    assert!(scenario.slots("p").is_empty());
    assert_eq!(
        scenario.status("p").next_window.as_deref(),
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
    let scenario = Scenario::with(&["a"], plan_with("p", |spec| spec.window = Some(never)));
    let text = "current time is not within configured window, and will never be";
    assert_eq!(scenario.complete("p"), ["False", "Waiting", text]);
}

#[test]
fn a_node_that_is_not_ready_is_skipped_and_takes_no_slot() {
    let mut scenario = Scenario::of_nodes(&["a", "b"]);
    scenario.ready("a", false);
    scenario.apply_and_settle(plan("p"));
    assert_eq!(scenario.slots("p"), ["b"]);
    scenario.succeed("b");
    assert_eq!(
        scenario.complete("p"),
        ["False", "NodeNotReady", "Node a: the node is not Ready"]
    );
    assert_eq!(scenario.phase("p", "a")[1], "NodeNotReady");
    scenario.ready("a", true);
    scenario.settle();
    assert_eq!(scenario.slots("p"), ["a"]);
}

/// A server that joins without its role label for some seconds.
#[test]
fn a_node_that_has_just_joined_starts_after_a_minute_or_never_if_it_leaves_the_selector_meanwhile() {
    const ROLE: &str = "node-role.kubernetes.io/control-plane";
    let agents = || {
        plan_with("p", |spec| {
            let selector = json!({ "matchExpressions": [{ "key": ROLE, "operator": "DoesNotExist" }] });
            spec.node_selector = serde_json::from_str(&selector.to_string()).unwrap();
        })
    };
    for becomes_a_server in [true, false] {
        let mut scenario = Scenario::empty();
        scenario.apply_and_settle(agents());
        let now = scenario.now().to_string();
        scenario.add_node("a", &json!({ "metadata": { "creationTimestamp": now } }));
        scenario.settle();
        assert!(scenario.slots("p").is_empty() && scenario.invariants.jobs.is_empty());
        assert_eq!(scenario.phase("p", "a"), ["Waiting", "NodeJoining"]);
        if becomes_a_server {
            scenario.pass_secs(5);
            scenario.label("a", ROLE, Some("true"));
        }
        scenario.pass_secs(50);
        assert!(scenario.slots("p").is_empty());
        scenario.pass_secs(10);
        assert_eq!(scenario.slots("p").is_empty(), becomes_a_server);
        scenario.roll_out();
        assert_eq!(scenario.is_done("a", "p"), !becomes_a_server);
    }
}

#[test]
fn a_plan_that_names_the_taints_of_such_nodes_repairs_them() {
    for (key, ready, starts) in [
        (Some("node.kubernetes.io/not-ready"), "False", true),
        (Some("node.kubernetes.io/unreachable"), "Unknown", true),
        (Some("node.kubernetes.io/unreachable"), "False", false), // the pod does not tolerate the other taint
        (Some("dedicated"), "False", false),
        (None, "False", false), // tolerates everything, but not this taint by name
    ] {
        let mut scenario = Scenario::of_nodes(&["a"]);
        let condition = json!({ "type": "Ready", "status": ready, "reason": "Test", "message": "test" });
        let patch = json!({ "status": { "conditions": [condition] } });
        scenario.cluster.patch_status(Kind::Node, "", "a", patch).unwrap();
        scenario.apply_and_settle(plan_with("p", |spec| {
            spec.tolerations = Some(vec![Toleration {
                key: key.map(str::to_owned),
                operator: Some("Exists".to_owned()),
                ..Toleration::default()
            }]);
        }));
        assert_eq!(!scenario.invariants.jobs.is_empty(), starts, "{key:?} {ready}");
    }
}

#[test]
fn one_disruptive_plan_is_at_work_on_a_node_at_a_time_and_holds_up_no_other_node_or_plan() {
    let mut scenario = Scenario::with(&["a"], plan("patch"));
    scenario.apply(plan_with("exclusive", |spec| {
        (spec.cordon, spec.exclusive) = (None, Some(true));
    }));
    scenario.apply_and_settle(plan_with("plain", |spec| spec.cordon = None));
    assert_eq!(
        scenario.complete("exclusive"),
        ["False", "NodeBusy", "Node a: Plan patch works on the node"]
    );
    let mut plans: Vec<_> = scenario
        .jobs_for("a")
        .iter()
        .map(|job| job.plan.to_string())
        .collect();
    plans.sort();
    assert_eq!(plans, ["patch", "plain"]);
    scenario.add_nodes(&["b"]);
    scenario.apply_and_settle(plan_with("drain", |spec| spec.drain = Some(DrainSpec::default())));
    assert_eq!(scenario.slots("patch"), ["a"]);
    assert_eq!(
        scenario.slots("exclusive").len() + scenario.slots("drain").len(),
        1,
        "one of them has b"
    );
    scenario.finish();
}

#[test]
fn disruptive_plans_of_all_kinds_take_turns_on_a_node() {
    let exclusive: fn(&mut PlanSpec) = |spec| (spec.cordon, spec.exclusive) = (None, Some(true));
    let drain: fn(&mut PlanSpec) = |spec| spec.drain = Some(DrainSpec::default());
    let cordon: fn(&mut PlanSpec) = |_| {};
    for (row, specs) in [
        ("exclusive, exclusive", [exclusive, exclusive]),
        ("drain, cordon", [drain, cordon]),
        ("exclusive, drain", [exclusive, drain]),
    ] {
        let mut scenario = Scenario::of_nodes(&["a"]);
        scenario.apply(plan_with("first", specs[0]));
        scenario.comes_to("a", PodStage::Upgrade);
        scenario.apply_and_settle(plan_with("second", specs[1]));
        // The one that has the node is not what the next controller remembers, but what it sees.
        scenario.restart();
        assert_eq!(
            scenario.complete("second"),
            ["False", "NodeBusy", "Node a: Plan first works on the node"],
            "{row}"
        );
        assert_eq!(scenario.phase("second", "a"), ["Waiting", "NodeBusy"], "{row}");
        assert_eq!(
            scenario.jobs_for("a").len(),
            1,
            "{row}: it is decided before there is a Job"
        );
        scenario.finish();
        assert_eq!(scenario.invariants.upgrades, 2, "{row}");
    }
}

#[test]
fn a_failed_node_does_not_keep_others_off_and_is_not_retried_while_they_are_at_work() {
    let mut scenario = Scenario::with(&["a"], plan("server"));
    scenario.fail("a");
    scenario.apply_and_settle(plan("patch"));
    assert_eq!(scenario.slots("patch"), ["a"]);
    scenario.retry("a", "server");
    scenario.settle();
    assert_eq!(scenario.phase("server", "a")[1], "NodeBusy");
    scenario.finish();
}

#[test]
fn labels_say_what_is_done_and_what_is_left_alone() {
    let hash = Scenario::with(&["a"], plan("p")).hash("p");
    let mut scenario = Scenario::of_nodes(&["disabled", "done", "enabled", "old", "fresh"]);
    scenario.add_node(
        "nameless",
        &json!({ "metadata": { "labels": { "kubernetes.io/hostname": null } } }),
    );
    for (node, value) in [
        ("disabled", "disabled"),
        ("done", &hash),
        ("enabled", "enabled"),
        ("old", "0123"),
    ] {
        scenario.set_done_label(node, "p", Some(value));
    }
    scenario.apply_and_settle(plan_with("p", |spec| spec.concurrency = Some(9)));
    assert_eq!(scenario.slots("p"), ["enabled", "fresh", "old"]);
    let counts = scenario.status("p").nodes.unwrap();
    assert_eq!(
        (counts.selected, counts.done, counts.disabled, counts.applying),
        (4, 1, 1, 3)
    );
}

#[test]
fn a_node_that_leaves_the_selector_leaves_its_slot_when_nothing_runs() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.apply_and_taint("a", plan("p"));
    assert_eq!(scenario.slots("p"), ["a"]);
    scenario.label("a", names::LABEL_HOSTNAME, None);
    scenario.settle();
    assert!(scenario.invariants.jobs.is_empty() && scenario.slots("p").is_empty());
}

#[test]
fn a_node_that_is_deselected_in_mid_run_finishes_and_keeps_its_slot_until_then() {
    let mut scenario = Scenario::of_nodes(&["a", "b"]);
    for node in ["a", "b"] {
        scenario.label(node, "pool", Some("blue"));
    }
    scenario.apply_and_settle(plan_with("p", |spec| {
        let selector = spec.node_selector.get_or_insert_default();
        selector.match_labels = Some([("pool".to_owned(), "blue".to_owned())].into());
    }));
    let first = scenario.slots("p").remove(0);
    scenario.comes_to(&first, PodStage::Upgrade);
    scenario.label(&first, "pool", Some("green"));
    scenario.settle();
    let counts = scenario.status("p").nodes.unwrap();
    assert_eq!((counts.selected, counts.applying), (1, 1));
    assert_eq!(scenario.live_nodes("p"), [first.as_str()]);
    scenario.succeed(&first);
    assert!(scenario.is_done(&first, "p"));
    scenario.finish();
    assert_eq!(scenario.status("p").progress.as_deref(), Some("1/1"));
}

#[test]
fn a_windows_node_that_gets_no_job_says_why_and_other_nodes_go_on() {
    let no_image = "SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS is required when targeting Windows nodes";
    let reboots = "the Job cannot be created: spec.reboot.when is Always, and a Windows node cannot be rebooted: leave such \
                   nodes out with spec.nodeSelector";
    for (kubectl_image_windows, reboot, reason, why, event, text) in [
        (
            None,
            None,
            "SettingMissing",
            no_image,
            "ValidationFailed",
            "Failed to create job for node win",
        ),
        (
            Some("example.com/kubectl"),
            Some(RebootWhen::Always),
            "JobRefused",
            reboots,
            "JobRefused",
            "Node win",
        ),
    ] {
        let mut scenario = Scenario::new(&Setup {
            kubectl_image_windows,
            ..Setup::default()
        });
        let windows = json!({ "metadata": { "labels": { "kubernetes.io/os": "windows" } } });
        scenario.add_node("win", &windows);
        scenario.add_nodes(&["zulu"]);
        scenario.apply_and_settle(plan_with("p", |spec| {
            spec.concurrency = Some(2);
            spec.reboot = reboot.map(refit_fixtures::reboot);
        }));
        let text = format!("{text}: {why}");
        assert_eq!(scenario.complete("p"), ["False", "SyncJob", &text]);
        assert_eq!(scenario.events_of(event), [text.as_str()]);
        let entry = scenario.entry("p", "win");
        assert_eq!(
            (entry.reason.as_deref(), entry.message.as_deref()),
            (Some(reason), Some(why))
        );
        scenario.succeed("zulu");
        scenario.pass_secs(60);
        assert!(scenario.is_done("zulu", "p"), "other nodes go on");
        assert!(scenario.jobs_for("win").is_empty());
        assert_eq!(scenario.complete("p")[2], text);
    }
}

#[test]
fn without_refits_own_image_no_node_is_cordoned_and_plans_that_need_none_go_on() {
    let mut scenario = Scenario::new(&Setup {
        own_image: None,
        ..Setup::default()
    });
    scenario.add_nodes(&["a"]);
    scenario.apply(plan("cordons"));
    scenario.apply_and_settle(plan_with("plain", |spec| spec.cordon = None));
    let [status, reason, message] = scenario.complete("cordons");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "OwnImageUnknown"));
    assert!(message.contains("set REFIT_IMAGE"), "{message}");
    assert!(scenario.slots("cordons").is_empty());
    assert_eq!(scenario.phase("cordons", "a")[1], "OwnImageUnknown");
    assert_eq!(scenario.slots("plain"), ["a"]);
    scenario.succeed("a");
    assert!(scenario.is_done("a", "plain"));
    assert!(!scenario.is_done("a", "cordons"));
}

#[test]
fn an_image_that_cannot_be_read_holds_up_the_nodes_and_not_the_version() {
    let scenario = Scenario::with(
        &["a"],
        plan_with("p", |spec| {
            spec.upgrade.get_or_insert_default().image = "Not An Image".to_owned();
        }),
    );
    assert_eq!(scenario.condition("p", "LatestResolved")[0], "True");
    let [status, reason, message] = scenario.complete("p");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "ImageInvalid"));
    assert!(message.contains("Not An Image"), "{message}");
    assert!(scenario.invariants.jobs.is_empty());
}
