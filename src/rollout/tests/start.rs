//! Which nodes start, which wait, and why (S11, S13, S49–S51, S58, S60).

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::build::{labels, plan, plan_with};
use super::toy::Toy;
use crate::api::{SecretSpec, TimeWindowSpec, names};
use crate::rollout::{Blocker, Missing, Stage, Step};

fn says(status: &str, reason: &str, message: &str) -> (String, String, String) {
    (status.to_owned(), reason.to_owned(), message.to_owned())
}

/// Open on Thursdays from ten to eleven; it is Thursday, nine.
fn window() -> TimeWindowSpec {
    TimeWindowSpec {
        days: Some(vec!["thu".to_owned()]),
        start_time: Some("10:00".to_owned()),
        end_time: Some("11:00".to_owned()),
        time_zone: None,
    }
}

#[test]
fn nodes_come_in_the_order_of_their_digests() {
    let mut toy = Toy::new();
    for (name, uid) in [("a", "node-uid-1"), ("b", "node-uid-2"), ("c", "node-uid-3")] {
        toy.add_node(name, |node| node.uid = uid.into());
    }
    let mut plan = plan_with("p", |spec| {
        spec.version = Some("v1.20.11+k3s1".to_owned());
        spec.service_account_name = Some("system-upgrade".to_owned());
    });
    plan.metadata.uid = Some("plan-uid".to_owned());
    toy.apply(plan);
    toy.settle();
    assert_eq!(
        toy.hash("p"),
        "21c75c607087495cc7f2c945c508a36de1f8661ce8c6b4d5989a883c"
    );
    for node in ["c", "b", "a"] {
        assert_eq!(toy.slots("p"), [node]);
        toy.succeeds(node);
    }
    assert_eq!(toy.complete("p"), says("True", "Complete", ""));
}

#[test]
fn no_more_nodes_are_begun_with_than_concurrency_allows() {
    let mut toy = Toy::with(
        &["a", "b", "c", "d"],
        plan_with("p", |spec| spec.concurrency = Some(2)),
    );
    assert_eq!(toy.slots("p").len(), 2);
    assert_eq!(toy.jobs.len(), 2);
    let (first, other) = (toy.slots("p")[0].clone(), toy.slots("p")[1].clone());
    toy.succeeds(&first);
    let slots = toy.slots("p");
    assert!(
        slots.len() == 2 && slots.contains(&other) && !slots.contains(&first),
        "{slots:?}"
    );
    let waiting = toy
        .nodes
        .keys()
        .find(|node| !slots.contains(node) && **node != first)
        .unwrap()
        .clone();
    assert_eq!(toy.blocker("p", &waiting), Some(Blocker::NoSlot { limit: 2 }));
    assert_eq!(
        toy.entry("p", &waiting).message.unwrap(),
        "2 nodes at a time, and all are taken"
    );
}

#[test]
fn without_concurrency_nobody_starts_and_the_plan_is_not_complete() {
    for concurrency in [None, Some(0), Some(-1)] {
        let toy = Toy::with(&["a"], plan_with("p", |spec| spec.concurrency = concurrency));
        let text = "spec.concurrency is 0 or absent, so that no node is started";
        assert_eq!(toy.complete("p"), says("False", "ConcurrencyZero", text));
        assert!(toy.jobs.is_empty());
    }
}

#[test]
fn without_concurrency_a_plan_with_no_node_left_is_complete() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.succeeds("a");
    toy.edit("p", |spec| spec.concurrency = None);
    toy.settle();
    assert_eq!(toy.complete("p"), says("True", "Complete", ""));
}

#[test]
fn max_concurrent_replaces_concurrency() {
    let limited = |limit: IntOrString| {
        let plan = plan_with("p", |spec| spec.max_concurrent = Some(limit));
        Toy::with(&["a", "b", "c", "d", "e"], plan).slots("p").len()
    };
    assert_eq!(limited(IntOrString::Int(3)), 3);
    assert_eq!(limited(IntOrString::String("50%".to_owned())), 2);
    assert_eq!(limited(IntOrString::String("1%".to_owned())), 1);
    assert_eq!(limited(IntOrString::String("100%".to_owned())), 5);
}

#[test]
fn a_share_is_one_of_the_nodes_that_the_plan_is_for() {
    let mut toy = Toy::new();
    toy.add_nodes(&["a", "b", "c", "d"]);
    toy.set_done_label("d", "p", Some("disabled"));
    toy.apply(plan_with("p", |spec| {
        spec.max_concurrent = Some(IntOrString::String("67%".to_owned()));
    }));
    toy.settle();
    assert_eq!(toy.slots("p").len(), 2); // of three
}

#[test]
fn who_has_a_slot_keeps_it_when_concurrency_is_lowered() {
    let mut toy = Toy::with(
        &["a", "b", "c", "d"],
        plan_with("p", |spec| spec.concurrency = Some(3)),
    );
    let slots = toy.slots("p");
    toy.edit("p", |spec| spec.concurrency = Some(1));
    toy.settle();
    assert_eq!(toy.slots("p"), slots);
    toy.succeeds(&slots[0]);
    assert_eq!(toy.slots("p"), slots[1..]);
}

#[test]
fn suspend_starts_nobody_and_lets_finish_what_is_under_way() {
    let mut toy = Toy::with(&["a", "b"], plan("p"));
    let (first, second) = if toy.slots("p") == ["a"] {
        ("a", "b")
    } else {
        ("b", "a")
    };
    toy.comes_to(first, Stage::Starting);
    toy.edit("p", |spec| spec.suspend = Some(true));
    toy.succeeds(first);
    assert!(toy.is_done(first, "p"));
    assert_eq!(
        toy.complete("p"),
        says("False", "Suspended", "spec.suspend is true")
    );
    assert_eq!(toy.blocker("p", second), Some(Blocker::Suspended));
    toy.edit("p", |spec| spec.suspend = None);
    toy.rolls_out();
    assert!(toy.is_done(second, "p"));
}

#[test]
fn a_node_without_a_job_goes_back_to_waiting_when_nobody_may_start() {
    let mut toy = Toy::new();
    toy.add_nodes(&["a"]);
    toy.refuses_jobs = Some("quota".to_owned());
    toy.apply(plan("p"));
    toy.settle();
    assert_eq!(toy.slots("p"), ["a"]);
    toy.edit("p", |spec| spec.suspend = Some(true));
    toy.settle();
    assert!(toy.slots("p").is_empty());
    assert_eq!(toy.status("p").applying, None);
}

#[test]
fn a_node_that_lost_its_job_goes_on_though_the_plan_is_suspended() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.upgrades("a");
    toy.later(2);
    toy.edit("p", |spec| spec.suspend = Some(true));
    let job = toy.job_of("a");
    toy.delete_job(&job);
    toy.rolls_out();
    assert!(toy.is_done("a", "p"));
}

#[test]
fn the_window_is_asked_before_each_node() {
    let mut toy = Toy::with(&["a", "b"], plan_with("p", |spec| spec.window = Some(window())));
    assert_eq!(
        toy.complete("p"),
        says("False", "Waiting", "current time is not within configured window")
    );
    assert_eq!(
        toy.status("p").next_window.as_deref(),
        Some("2026-01-01T10:00:00Z")
    );
    assert_eq!(toy.decision().wake, Some("2026-01-01T10:00:00Z".parse().unwrap()));
    toy.later(3600);
    let slots = toy.slots("p");
    assert_eq!(slots.len(), 1);
    assert_eq!(toy.status("p").next_window, None);
    toy.later(1);
    assert_eq!(toy.decision().wake, Some("2026-01-01T11:00:01Z".parse().unwrap()));
    toy.later(3601);
    toy.succeeds(&slots[0]);
    assert!(toy.is_done(&slots[0], "p"), "what was begun is finished");
    assert!(toy.slots("p").is_empty());
    assert_eq!(
        toy.status("p").next_window.as_deref(),
        Some("2026-01-08T10:00:00Z")
    );
}

#[test]
fn a_window_that_never_opens_says_so() {
    let never = TimeWindowSpec {
        days: None,
        ..window()
    };
    let mut toy = Toy::with(&["a"], plan_with("p", |spec| spec.window = Some(never)));
    let text = "current time is not within configured window, and will never be";
    assert_eq!(toy.complete("p"), says("False", "Waiting", text));
    assert_eq!(toy.decision().wake, None);
}

#[test]
fn a_node_that_is_not_ready_is_passed_over_and_takes_no_slot() {
    let mut toy = Toy::new();
    toy.add_nodes(&["a", "b"]);
    toy.ready("a", false);
    toy.apply(plan("p"));
    toy.settle();
    assert_eq!(toy.slots("p"), ["b"]);
    toy.succeeds("b");
    assert_eq!(
        toy.complete("p"),
        says("False", "NodeNotReady", "Node a: the node is not Ready")
    );
    assert_eq!(toy.entry("p", "a").reason.as_deref(), Some("NodeNotReady"));
    toy.ready("a", true);
    toy.settle();
    assert_eq!(toy.slots("p"), ["a"]);
}

#[test]
fn a_plan_that_names_the_taints_of_such_nodes_repairs_them() {
    for (key, starts) in [
        (Some("node.kubernetes.io/not-ready"), true),
        (Some("node.kubernetes.io/unreachable"), true),
        (Some("dedicated"), false),
        (None, false), // tolerates everything, and does not say that it is for this
    ] {
        let mut toy = Toy::new();
        toy.add_nodes(&["a"]);
        toy.ready("a", false);
        toy.apply(plan_with("p", |spec| {
            let key = key.map(str::to_owned);
            spec.tolerations = Some(vec![Toleration {
                key,
                operator: Some("Exists".to_owned()),
                ..Toleration::default()
            }]);
        }));
        toy.settle();
        assert_eq!(!toy.jobs.is_empty(), starts, "{key:?}");
    }
}

#[test]
fn a_node_that_is_no_longer_ready_when_its_job_is_due_goes_back_to_waiting() {
    let mut toy = Toy::new();
    toy.add_nodes(&["a"]);
    toy.refuses_jobs = Some("quota".to_owned());
    toy.apply(plan("p"));
    toy.settle();
    toy.ready("a", false);
    toy.settle();
    assert!(toy.slots("p").is_empty());
}

#[test]
fn one_disruptive_plan_is_at_work_on_a_node_at_a_time() {
    let mut toy = Toy::new();
    toy.add_nodes(&["a"]);
    toy.apply(plan("patch"));
    toy.apply(plan_with("server", |spec| {
        spec.cordon = None;
        spec.exclusive = Some(true);
    }));
    toy.settle();
    assert_eq!(
        (toy.slots("patch"), toy.slots("server")),
        (vec!["a".to_owned()], vec![])
    );
    assert_eq!(toy.jobs.len(), 1);
    let text = "Node a: Plan patch is at work on the node";
    assert_eq!(toy.complete("server"), says("False", "NodeBusy", text));
    toy.rolls_out();
    assert!(toy.is_done("a", "patch") && toy.is_done("a", "server"));
}

#[test]
fn a_plan_that_disturbs_nobody_does_not_wait_for_others() {
    let mut toy = Toy::new();
    toy.add_nodes(&["a"]);
    toy.apply(plan("patch"));
    toy.apply(plan_with("plain", |spec| spec.cordon = None));
    toy.settle();
    assert_eq!(toy.jobs_for("a").len(), 2);
}

#[test]
fn a_node_that_is_busy_does_not_hold_up_the_next() {
    let mut toy = Toy::new();
    toy.add_nodes(&["a"]);
    toy.apply(plan("patch"));
    toy.settle();
    toy.add_nodes(&["b"]);
    toy.apply(plan_with("server", |spec| {
        spec.drain = Some(crate::api::DrainSpec::default());
    }));
    toy.settle();
    assert_eq!(
        (toy.slots("patch"), toy.slots("server")),
        (vec!["a".to_owned()], vec!["b".to_owned()])
    );
}

#[test]
fn a_failed_node_is_not_tried_again_while_another_plan_is_at_work_there() {
    let mut toy = Toy::with(&["a"], plan("server"));
    toy.fails("a");
    toy.apply(plan("patch"));
    toy.settle();
    assert_eq!(toy.slots("patch"), ["a"], "what failed does not keep others off");
    toy.upgrades("a");
    toy.retry("a", "server");
    toy.settle();
    assert_eq!(toy.entry("server", "a").reason.as_deref(), Some("NodeBusy"));
    assert_eq!(
        toy.jobs_for("a").iter().filter(|job| job.facts.is_live()).count(),
        1
    );
    toy.rolls_out();
    assert!(toy.is_done("a", "patch") && toy.is_done("a", "server"));
}

#[test]
fn labels_say_what_is_done_and_what_is_left_alone() {
    let mut toy = Toy::new();
    toy.add_nodes(&["disabled", "done", "enabled", "old", "fresh"]);
    toy.add_node("nameless", |node| node.labels = labels([]));
    toy.apply(plan_with("p", |spec| spec.concurrency = Some(9)));
    toy.settle();
    let hash = toy.hash("p");
    let mut toy = Toy::new();
    toy.add_nodes(&["disabled", "done", "enabled", "old", "fresh"]);
    toy.add_node("nameless", |node| node.labels = labels([]));
    for (node, value) in [
        ("disabled", "disabled"),
        ("done", &hash),
        ("enabled", "enabled"),
        ("old", "0123"),
    ] {
        toy.set_done_label(node, "p", Some(value));
    }
    toy.apply(plan_with("p", |spec| spec.concurrency = Some(9)));
    toy.settle();
    assert_eq!(toy.slots("p"), ["enabled", "fresh", "old"]);
    let counts = toy.status("p").nodes.unwrap();
    assert_eq!(
        (counts.selected, counts.done, counts.disabled, counts.applying),
        (4, 1, 1, 3)
    );
}

#[test]
fn a_node_whose_label_is_deleted_runs_again() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.rolls_out();
    let first = toy.job_for("a").facts.uid.clone();
    toy.later(1);
    toy.set_done_label("a", "p", None);
    toy.rolls_out();
    assert!(toy.is_done("a", "p"));
    let second = toy.job_for("a").facts.uid.clone();
    assert_ne!(first, second, "its old result is not taken for a new one");
    assert_eq!(toy.told_of("JobComplete").len(), 2);
}

#[test]
fn an_absent_selector_selects_nobody_and_one_that_matches_nobody_says_so() {
    let toy = Toy::with(&["a"], plan_with("p", |spec| spec.node_selector = None));
    let text = "spec.nodeSelector is absent, which selects no node";
    assert_eq!(toy.complete("p"), says("True", "Complete", text));
    let toy = Toy::with(&[], plan("p"));
    assert_eq!(
        toy.complete("p"),
        says("True", "Complete", "spec.nodeSelector matches no node")
    );
}

#[test]
fn a_node_that_leaves_the_selector_leaves_its_slot_when_nothing_runs() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.label("a", names::LABEL_HOSTNAME, None);
    toy.settle();
    assert!(toy.jobs.is_empty() && toy.slots("p").is_empty());
}

#[test]
fn status_names_nodes_by_hostname_in_the_order_of_their_names() {
    let mut toy = Toy::new();
    toy.add_node("a", |node| {
        node.labels = labels([(names::LABEL_HOSTNAME, "zulu")]);
    });
    toy.add_node("b", |node| {
        node.labels = labels([(names::LABEL_HOSTNAME, "alpha")]);
    });
    toy.apply(plan_with("p", |spec| spec.concurrency = Some(2)));
    toy.settle();
    assert_eq!(
        toy.status("p").applying,
        Some(vec!["zulu".to_owned(), "alpha".to_owned()])
    );
    toy.rolls_out();
    assert!(toy.is_done("a", "p") && toy.is_done("b", "p"));
}

#[test]
fn what_the_controller_may_not_do_is_said_before_a_node_is_begun_with() {
    let mut toy = Toy::new();
    toy.forbidden.for_all = vec!["create jobs.batch".to_owned(), "patch nodes".to_owned()];
    toy.add_nodes(&["a"]);
    toy.apply(plan("p"));
    toy.settle();
    let text = "the controller may not create jobs.batch, patch nodes";
    assert_eq!(toy.complete("p"), says("False", "MissingPermission", text));
    assert!(toy.jobs.is_empty());
    toy.forbidden = Missing::default();
    toy.later(5);
    assert_eq!(toy.jobs.len(), 1);
}

#[test]
fn a_plan_without_secrets_needs_no_permission_for_them() {
    let mut toy = Toy::new();
    toy.forbidden.for_secrets = vec!["watch secrets".to_owned()];
    toy.secret("s", "hash");
    toy.add_nodes(&["a"]);
    let with_secret = |plan: &str, ignore_updates| {
        plan_with(plan, |spec| {
            spec.cordon = None;
            spec.secrets = Some(vec![SecretSpec {
                name: "s".to_owned(),
                ignore_updates,
                ..SecretSpec::default()
            }]);
        })
    };
    toy.apply(with_secret("ignores", Some(true)));
    toy.apply(with_secret("minds", None));
    toy.apply(plan("without"));
    toy.settle();
    let text = "the controller may not watch secrets";
    assert_eq!(toy.complete("minds"), says("False", "MissingPermission", text));
    let jobs = |toy: &Toy, plan: &str| {
        toy.jobs
            .values()
            .filter(|job| job.it.facts.plan == plan.into())
            .count()
    };
    assert_eq!(
        (jobs(&toy, "ignores"), jobs(&toy, "minds"), jobs(&toy, "without")),
        (1, 0, 1)
    );

    toy.forbidden.for_all = vec!["patch nodes".to_owned()];
    toy.later(5);
    let text = "the controller may not patch nodes, watch secrets";
    assert_eq!(toy.complete("minds"), says("False", "MissingPermission", text));
    toy.forbidden = Missing::default();
    toy.later(30);
    assert_eq!(jobs(&toy, "minds"), 1);
}

/// While the answer stays the same, status does too: a refusal is no news.
#[test]
fn what_is_refused_again_is_not_said_again() {
    let mut toy = Toy::new();
    toy.add_nodes(&["a", "b"]);
    toy.apply(plan("p"));
    toy.settle();
    toy.forbidden.for_all = vec!["patch nodes".to_owned()];
    toy.world.permissions_doubted();
    toy.settle();
    let said = toy.complete("p");
    toy.world.permissions_doubted();
    let decision = toy.decision();
    assert_eq!(decision.steps, [Step::AskPermissions]);
    assert_eq!(toy.complete("p"), said);
}

#[test]
fn a_windows_node_needs_a_kubectl_image() {
    let mut toy = Toy::asleep();
    toy.defaults.job.kubectl_image_windows = String::new();
    toy.wakes_up();
    toy.add_node("win", |node| {
        node.labels = labels([(names::LABEL_HOSTNAME, "win"), (names::LABEL_OS, "windows")]);
    });
    toy.add_nodes(&["zulu"]);
    toy.apply(plan_with("p", |spec| spec.concurrency = Some(2)));
    toy.settle();
    let text = "Failed to create job for node win: SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS is required when targeting Windows nodes";
    assert_eq!(toy.complete("p"), says("False", "SyncJob", text));
    assert_eq!(toy.entry("p", "win").reason.as_deref(), Some("SettingMissing"));
    assert_eq!(toy.jobs_for("zulu").len(), 1, "other nodes go on");
}

#[test]
fn an_image_that_cannot_be_read_holds_up_the_nodes_and_not_the_version() {
    let toy = Toy::with(
        &["a"],
        plan_with("p", |spec| spec.upgrade.image = "Not An Image".to_owned()),
    );
    assert_eq!(toy.says("p", "LatestResolved").0, "True");
    let (status, reason, message) = toy.complete("p");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "ImageInvalid"));
    assert!(message.contains("Not An Image"), "{message}");
    assert!(toy.jobs.is_empty());
}
