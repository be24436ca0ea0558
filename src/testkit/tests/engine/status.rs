//! The status of a Plan, and its events.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::scenario::{Scenario, Setup};
use refit_api::{DrainSpec, Plan, PlanSpec, SecretSpec, TimeWindowSpec};
use refit_facts::PodStage;
use refit_fixtures::{plan, plan_with};
use refit_rehearse::Kind;
use refit_rehearse::json::json;

fn one(plan: Plan) -> Scenario {
    Scenario::with(&["a"], plan)
}

#[test]
fn the_first_status_is_final_and_its_conditions_come_in_system_upgrade_controllers_order() {
    let scenario = one(plan("p"));
    assert_eq!(
        scenario.requests("PATCH /plans/p/status"),
        2,
        "the first, and one of mere progress"
    );
    let status = scenario.status("p");
    let conditions: Vec<_> = status
        .conditions
        .iter()
        .map(|one| (one.type_.as_str(), one.reason.as_deref()))
        .collect();
    let expected = [
        ("Complete", Some("SyncJob")),
        ("Validated", Some("PlanIsValid")),
        ("LatestResolved", Some("Version")),
    ];
    assert_eq!(conditions, expected);
    for one in &status.conditions {
        assert_eq!(one.last_update_time.as_deref(), Some("2026-01-01T09:00:00Z"));
        assert_eq!(one.last_transition_time.as_deref(), Some("2026-01-01T09:00:00Z"));
    }
    assert_eq!(
        (status.latest_version.as_deref(), status.observed_generation),
        (Some("v1"), Some(1))
    );
    assert_eq!(scenario.hash("p").len(), 56);
    assert_eq!(
        (&status.applying, status.progress.as_deref()),
        (&Some(vec!["a".to_owned()]), Some("0/1"))
    );
}

#[test]
fn a_plan_that_selects_no_node_is_complete_and_says_why() {
    let nowhere = LabelSelector {
        match_labels: Some([("no".to_owned(), "such".to_owned())].into()),
        ..LabelSelector::default()
    };
    for (selector, why) in [
        (None, "spec.nodeSelector is absent, which selects no node"),
        (Some(nowhere), "spec.nodeSelector matches no node"),
        (Some(LabelSelector::default()), ""), // the label disables all nodes
    ] {
        // Slots do not matter if no node is selected (F7).
        for slots in [Some(1), Some(0), None] {
            let mut scenario = Scenario::of_nodes(&["a"]);
            scenario.set_done_label("a", "p", why.is_empty().then_some("disabled"));
            scenario.apply_and_settle(plan_with("p", |spec| {
                (spec.node_selector, spec.concurrency) = (selector.clone(), slots);
            }));
            assert_eq!(scenario.complete("p"), ["True", "Complete", why], "{slots:?}");
            let stored = scenario.cluster.get(Kind::Plan, "system-upgrade", "p").unwrap();
            assert!(
                stored["status"].get("applying").is_none(),
                "prepare containers count null as none (S68)"
            );
            assert_eq!(
                scenario.requests("PATCH /plans/p/status"),
                1,
                "its first status is its last"
            );
        }
    }
}

#[test]
fn applying_has_hostnames_in_the_order_of_the_nodes_names() {
    let mut scenario = Scenario::empty();
    for (node, hostname) in [("a", "host-9"), ("b", "host-8"), ("c", "host-7"), ("d", "host-6")] {
        let labels = json!({ "labels": { "kubernetes.io/hostname": hostname } });
        scenario.add_node(node, &json!({ "metadata": labels }));
    }
    scenario.apply_and_settle(plan_with("p", |spec| spec.concurrency = Some(3)));
    let slots = scenario.slots("p");
    assert!(slots.len() == 3 && slots.is_sorted(), "{slots:?}");
    let hostnames = slots.iter().map(|node| scenario.node(node).hostname().to_owned());
    let hostnames: Vec<_> = hostnames.collect();
    assert_eq!(scenario.status("p").applying.as_ref(), Some(&hostnames));
    let text = format!(
        "Jobs synced for version v1 on Nodes {}. Hash: {}",
        hostnames.join(","),
        scenario.hash("p")
    );
    assert_eq!(scenario.events_of("SyncJob"), [text]);
}

#[test]
fn times_tell_when_a_condition_changed_and_when_its_status_did() {
    let time = |scenario: &Scenario| {
        let complete = scenario.status("p").conditions[0].clone();
        (
            complete.last_transition_time.unwrap(),
            complete.last_update_time.unwrap(),
        )
    };
    let mut scenario = one(plan("p"));
    scenario.pass_secs(57); // 9:01:00
    scenario.edit("p", |spec| spec.suspend = Some(true));
    scenario.succeed("a");
    scenario.edit_and_settle("p", |spec| spec.suspend = None);
    let done = time(&scenario);
    assert!(
        done.0.starts_with("2026-01-01T09:01:0") && done.0 == done.1,
        "{done:?}"
    );
    assert_eq!(
        scenario.status("p").conditions[1].last_update_time.as_deref(),
        Some("2026-01-01T09:00:00Z")
    );
    scenario.add_nodes(&["b"]);
    scenario.pass_secs(60);
    let began = time(&scenario);
    assert!(began.0 > done.0);
    scenario.fail("b");
    let failed = time(&scenario);
    assert!(
        failed.0 == began.0 && failed.1 > began.1,
        "{failed:?}: only what is said has changed"
    );
}

/// Its e2e suite polls once a second.
#[test]
fn errors_of_a_plan_have_the_words_of_system_upgrade_controller_within_a_second_until_they_are_fixed() {
    type Mistake = (fn(&mut PlanSpec), &'static str);
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
                let named = |name: &str| SecretSpec {
                    name: name.to_owned(),
                    ..SecretSpec::default()
                };
                spec.secrets = Some(["x", "y"].map(named).into());
            },
            "secrets \"x\" not found, secrets \"y\" not found",
        ),
    ];
    for (mistake, text) in mistakes {
        let mut scenario = one(plan_with("p", mistake));
        assert_eq!(scenario.condition("p", "Validated"), ["False", "Error", text]);
        assert_eq!(
            scenario.complete("p"),
            ["False", "NotReady", "plan is not valid and resolved"]
        );
        assert_eq!(
            scenario.events_of("ValidateFailed"),
            [format!("Failed to validate plan: {text}")]
        );
        assert!(scenario.invariants.jobs.is_empty());
        scenario.edit("p", |spec| *spec = plan("p").spec);
        scenario.pass_secs(1);
        assert_eq!(scenario.condition("p", "Validated"), ["True", "PlanIsValid", ""]);
        assert_eq!(scenario.jobs_for("a").len(), 1);
        scenario.edit("p", mistake);
        scenario.pass_secs(1);
        assert_eq!(scenario.condition("p", "Validated"), ["False", "Error", text]);
    }
}

#[test]
fn a_plan_without_version_and_channel_says_so_until_it_has_one() {
    // An empty text counts as absent (S54).
    for absent in [None, Some(String::new())] {
        let mut scenario = one(plan_with("p", |spec| {
            (spec.version, spec.channel) = (absent.clone(), absent.clone());
        }));
        let text = "cannot resolve plan: missing channel and version";
        assert_eq!(
            scenario.condition("p", "LatestResolved"),
            ["False", "Error", text]
        );
        assert_eq!(scenario.condition("p", "Validated"), ["True", "PlanIsValid", ""]);
        assert_eq!(
            scenario.complete("p"),
            ["False", "NotReady", "plan is not valid and resolved"]
        );
        assert_eq!(scenario.events_of("ResolveFailed"), [text]);
        let status = scenario.status("p");
        assert_eq!((&status.latest_version, &status.latest_hash), (&None, &None));
        scenario.edit_and_settle("p", |spec| spec.version = Some("v1.2.3+test+x".to_owned()));
        assert_eq!(scenario.condition("p", "LatestResolved"), ["True", "Version", ""]);
        assert_eq!(
            scenario.status("p").latest_version.as_deref(),
            Some("v1.2.3-test-x")
        );
    }
}

#[test]
fn an_invalid_or_malformed_plan_lets_running_nodes_finish() {
    let mut scenario = one(plan("p"));
    scenario.comes_to("a", PodStage::Upgrade);
    scenario.edit_and_settle("p", |spec| spec.post_complete_delay = Some("-1s".to_owned()));
    assert_eq!(scenario.complete("p")[1], "NotReady");
    assert_eq!(scenario.status("p").applying, Some(vec!["a".to_owned()]));
    scenario.succeed("a");
    assert!(scenario.is_done("a", "p"));
}

#[test]
fn a_name_that_no_label_can_hold_is_refused() {
    let name = "n".repeat(64);
    let scenario = one(plan(&name));
    let text = "metadata.name has 64 characters, and the label that marks a finished node holds 63";
    assert_eq!(scenario.condition(&name, "Validated"), ["False", "Error", text]);
    assert!(scenario.invariants.jobs.is_empty());
}

#[test]
fn a_changed_secret_changes_the_hash_within_a_second_and_runs_the_plan_again() {
    let secret = |name: &str, value: &str, note: &str| {
        let metadata =
            json!({ "name": name, "namespace": "system-upgrade", "annotations": { "note": note } });
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": { "key": value } })
    };
    let mut scenario = Scenario::of_nodes(&["a"]);
    for name in ["s", "ignored"] {
        scenario.cluster.put(secret(name, "eA==", "")).unwrap();
    }
    scenario.apply_and_settle(plan_with("p", |spec| {
        let named = |name: &str, ignored| SecretSpec {
            name: name.to_owned(),
            ignore_updates: ignored,
            ..SecretSpec::default()
        };
        spec.secrets = Some([named("s", None), named("ignored", Some(true))].into());
    }));
    scenario.roll_out();
    let (hash, writes) = (scenario.hash("p"), scenario.requests("PATCH /plans/p"));
    scenario.patch(Kind::Secret, "s", &secret("s", "eA==", "its metadata only"));
    scenario.patch(Kind::Secret, "ignored", &secret("ignored", "eQ==", ""));
    scenario.settle();
    scenario.fault_injector.cut_watches("secrets");
    scenario.settle();
    scenario.restart();
    assert_eq!(
        scenario.requests("PATCH /plans/p"),
        writes,
        "nor does a list or another controller"
    );
    for (value, is_first, upgrades) in [("eQ==", false, 2), ("eA==", true, 3)] {
        scenario.patch(Kind::Secret, "s", &secret("s", value, ""));
        scenario.pass_secs(1);
        assert_eq!(scenario.hash("p") == hash, is_first);
        assert_eq!(scenario.slots("p"), ["a"]);
        scenario.roll_out();
        assert_eq!(scenario.invariants.upgrades, upgrades);
        assert_eq!(scenario.condition("p", "LatestResolved"), ["True", "Version", ""]);
    }
}

#[test]
fn a_secret_that_was_made_a_moment_before_its_plan_is_found() {
    let mut scenario = Scenario::empty();
    scenario.fault_injector.hold_watch("secrets", true);
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s", "namespace": "system-upgrade" } });
    scenario.cluster.put(secret).unwrap();
    scenario.apply_and_settle(plan_with("p", |spec| {
        spec.secrets = Some(vec![SecretSpec {
            name: "s".to_owned(),
            ..SecretSpec::default()
        }]);
    }));
    let assert_valid = |scenario: &Scenario| {
        assert_eq!(scenario.condition("p", "Validated"), ["True", "PlanIsValid", ""]);
        assert!(scenario.events_of("ValidateFailed").is_empty());
        assert_eq!(scenario.requests("GET /secrets/s"), 1, "it is read once");
    };
    assert_valid(&scenario);
    scenario.fault_injector.hold_watch("secrets", false);
    scenario.pass_secs(60);
    assert_valid(&scenario);
}

#[test]
fn the_phase_of_a_node_is_what_its_job_does() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.guard("a");
    scenario.steer("a", "start-delay", Some("1h"));
    scenario.steer("a", "prepare.run-delay", Some("1h"));
    let plan = plan_with("p", |spec| {
        spec.drain = Some(DrainSpec::default());
        spec.prepare = spec.upgrade.clone();
    });
    scenario.apply_and_taint("a", plan);
    let entry = scenario.entry("p", "a");
    assert_eq!(
        (entry.phase.as_str(), entry.reason.as_deref()),
        ("Pending", Some("PodWaiting"))
    );
    assert!(entry.message.unwrap().contains("nodes are available"));
    scenario.patch(Kind::Node, "a", &json!({ "spec": { "taints": null } }));
    scenario.settle();
    assert_eq!(scenario.phase("p", "a")[0], "Starting");
    scenario.steer("a", "start-delay", None);
    scenario.settle();
    assert_eq!(scenario.phase("p", "a")[0], "Preparing");
    scenario.steer("a", "prepare.run-delay", None);
    scenario.pass_secs(20);
    let entry = scenario.entry("p", "a");
    assert_eq!(
        (entry.phase.as_str(), entry.reason.as_deref()),
        ("Draining", Some("DrainWaiting")),
        "{entry:?}"
    );
    let message = entry.message.unwrap();
    assert!(
        message.starts_with("0 of 1 pods are gone; shop/guarded-")
            && message.contains("PodDisruptionBudget guarded since"),
        "{message}"
    );
    scenario.open_budget();
    scenario.pass_secs(10);
    let entry = scenario.entry("p", "a");
    assert_eq!(
        (entry.phase.as_str(), entry.reason, entry.message),
        ("Upgrading", None, None),
        "that is over"
    );
    assert_eq!(entry.attempt, Some(1));
}

#[test]
fn progress_waits_a_second_and_news_does_not() {
    let mut scenario = Scenario::with(&["a", "b"], plan("p"));
    let first = scenario.slots("p")[0].clone();
    let writes = scenario.requests("PATCH /plans/p/status");
    assert!(writes <= 4, "its name, its phases: {writes}");
    scenario.succeed_unseen(&first);
    scenario.pass(std::time::Duration::from_millis(100));
    assert_ne!(scenario.slots("p"), [first.as_str()], "at once");
    scenario.settle();
    let second = scenario.slots("p")[0].clone();
    assert_eq!(
        scenario.entry("p", &second).job.as_deref(),
        Some(&*scenario.live_job(&second).name)
    );
}

#[test]
fn counts_are_of_what_the_plan_is_for() {
    let mut scenario = Scenario::of_nodes(&["a", "b", "c", "d", "e"]);
    scenario.set_done_label("e", "p", Some("disabled"));
    scenario.apply_and_settle(plan_with("p", |spec| spec.concurrency = Some(2)));
    let slots = scenario.slots("p");
    scenario.succeed(&slots[0]);
    scenario.fail(&slots[1]);
    let counts = scenario.status("p").nodes.unwrap();
    assert_eq!((counts.selected, counts.disabled, counts.done), (4, 1, 1));
    assert_eq!((counts.applying, counts.failed, counts.waiting), (1, 1, 1));
    assert_eq!(scenario.status("p").progress.as_deref(), Some("1/4"));
}

#[test]
fn status_fields_that_another_controller_wrote_are_removed() {
    let mut scenario = one(plan("p"));
    scenario.roll_out();
    let right = scenario.status("p").clone();
    let mut conditions = serde_json::to_value(&right.conditions).unwrap();
    conditions.as_array_mut().unwrap().reverse();
    let patch = json!({ "status": { "applying": ["z"] } });
    scenario
        .cluster
        .patch_status(Kind::Plan, "system-upgrade", "p", &patch)
        .unwrap();
    let patch = serde_json::json!({ "status": { "conditions": conditions } });
    scenario
        .cluster
        .patch_status(Kind::Plan, "system-upgrade", "p", patch)
        .unwrap();
    scenario.settle();
    assert_eq!(*scenario.status("p"), right);
}

// -- events

#[test]
fn the_same_words_at_another_time_are_another_event() {
    let mut scenario = one(plan("p"));
    for _ in 0..3 {
        scenario.roll_out();
        scenario.set_done_label("a", "p", None);
        scenario.settle();
    }
    scenario.roll_out();
    for reason in ["SyncJob", "JobComplete", "Complete"] {
        assert_eq!(scenario.events_of(reason).len(), 4, "{reason}");
    }
}

#[test]
fn a_long_list_of_nodes_is_cut_to_what_an_event_holds() {
    let names: Vec<String> = (0..100)
        .map(|number| format!("node-with-a-long-name-{number:03}"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let scenario = Scenario::with(&names, plan_with("p", |spec| spec.concurrency = Some(100)));
    let text = scenario.events_of("SyncJob")[0];
    let shown = text.matches("node-with-a-long-name-").count();
    assert!(
        text.contains(&format!(" and {} more. Hash: ", 100 - shown)),
        "{text}"
    );
    assert!(
        text.contains("-000,node-with") && shown > 25 && text.len() < 1024,
        "{shown} {}",
        text.len()
    );
}

#[test]
fn a_blocker_of_a_whole_plan_is_reported_once_under_its_own_name() {
    let mut scenario = Scenario::new(&Setup::default());
    scenario.add_nodes(&["a"]);
    scenario.ready("a", false);
    let closed = TimeWindowSpec {
        days: Some(vec!["fri".to_owned()]),
        start_time: Some("1:00".to_owned()),
        end_time: Some("2:00".to_owned()),
        time_zone: None,
    };
    scenario.apply(plan("not-ready"));
    scenario.apply(plan_with("nobody", |spec| spec.concurrency = None));
    scenario.apply(plan_with("image", |spec| {
        spec.upgrade.get_or_insert_default().image = "NOT AN IMAGE".to_owned();
    }));
    scenario.apply(plan_with("suspended", |spec| spec.suspend = Some(true)));
    scenario.apply(plan_with("window", |spec| spec.window = Some(closed)));
    scenario.pass_secs(60);
    for reason in [
        "NodeNotReady",
        "ConcurrencyZero",
        "ImageInvalid",
        "Suspended",
        "Waiting",
    ] {
        assert_eq!(scenario.events_of(reason).len(), 1, "{reason}");
    }
    let text = format!(
        "Waiting for start of Spec.Window to sync Jobs for version v1. Hash: {}",
        scenario.hash("window")
    );
    assert_eq!(scenario.events_of("Waiting"), [text]);
    let types = scenario.cluster.with(|state| {
        let of = |event: &&refit_rehearse::json::Value| event["reason"] == "Suspended";
        state
            .all(Kind::Event)
            .filter(of)
            .map(|event| event["type"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    });
    assert_eq!(types, ["Normal"], "nothing to warn of");
}
