//! `spec.before` and `spec.after` run once for each roll-out.

use super::scenario::Scenario;
use crate::fault::{Effect, Moment, Rule};
use refit_api::failure::FailureSpec;
use refit_api::{ContainerSpec, Hook, HookPhase, HookSpec, HookStatus, Plan, PlanSpec, names};
use refit_fixtures::plan_with;
use refit_rehearse::Kind;
use refit_rehearse::json::json;

fn hook(image: &str) -> Box<HookSpec> {
    Box::new(HookSpec {
        container: ContainerSpec {
            image: image.to_owned(),
            ..ContainerSpec::default()
        },
        ..HookSpec::default()
    })
}

fn hooked(change: impl FnOnce(&mut PlanSpec)) -> Plan {
    plan_with("p", |spec| {
        spec.before = Some(hook("snapshot"));
        spec.after = Some(hook("smoke"));
        change(spec);
    })
}

/// A Plan whose `before` and `after` run until a test ends them.
fn running(change: impl FnOnce(&mut PlanSpec)) -> Scenario {
    let mut scenario = Scenario::of_nodes(&["a", "b"]);
    for node in ["a", "b"] {
        for hook in ["before", "after"] {
            scenario.steer(node, &format!("{hook}.run-delay"), Some("1h"));
        }
    }
    scenario.apply(hooked(change));
    scenario.pass_secs(60);
    scenario
}

/// Ends the Job of a hook, which then has this exit code.
fn end(scenario: &mut Scenario, hook: Hook, code: Option<&str>) {
    for node in ["a", "b"] {
        scenario.steer(node, &format!("{}.exit-code", hook.as_str()), code);
        scenario.steer(
            node,
            &format!("{}.message", hook.as_str()),
            code.map(|_| "no space left"),
        );
        scenario.steer(node, &format!("{}.run-delay", hook.as_str()), Some("0s"));
    }
    scenario.pass_secs(30);
}

fn hook_status(scenario: &Scenario, hook: Hook) -> HookStatus {
    hook.status(scenario.status("p")).expect("a status").clone()
}

fn upgrade_all(scenario: &mut Scenario) {
    scenario.succeed("a");
    scenario.succeed("b");
    scenario.pass_secs(60);
}

fn names_of(scenario: &Scenario, hook: Hook) -> Vec<String> {
    let jobs = scenario.invariants.hook_jobs.values();
    let of_hook = jobs.filter(|job| job.hook.as_deref() == Some(hook.as_str()));
    of_hook.map(|job| job.name.to_string()).collect()
}

#[test]
fn before_comes_before_the_first_node_and_after_after_the_last_and_each_once() {
    let mut scenario = running(|_| {});
    let [status, reason, message] = scenario.complete("p");
    let job = hook_status(&scenario, Hook::Before).job;
    assert_eq!([status.as_str(), &reason], ["False", "BeforeRunning"]);
    assert!(
        message.starts_with(&format!(
            "spec.before: no node starts until Job {job}, created at 2026-01-01T09:00:"
        )),
        "{message}"
    );
    assert_eq!(scenario.phase("p", "a"), ["Waiting", "BeforeRunning"]);
    assert!(scenario.slots("p").is_empty());
    end(&mut scenario, Hook::Before, None);
    assert_eq!(scenario.slots("p"), ["a"]);
    upgrade_all(&mut scenario);
    assert!(scenario.is_done("a", "p") && scenario.is_done("b", "p"));
    assert_eq!(scenario.complete("p")[..2], ["False", "AfterRunning"]);
    assert!(scenario.slots("p").is_empty());
    end(&mut scenario, Hook::After, None);
    scenario.finish();
    assert_eq!(scenario.complete("p")[..2], ["True", "Complete"]);
    for hook in Hook::ALL {
        assert_eq!(hook_status(&scenario, hook).phase, HookPhase::Succeeded);
        assert_eq!(names_of(&scenario, hook).len(), 1);
    }
    let history = scenario.status("p").history.clone().unwrap();
    assert_eq!((history.len(), history[0].complete), (1, Some(true)));
    // Neither a restart after the Jobs are gone, nor a node that joins, runs them again.
    for name in names_of(&scenario, Hook::Before)
        .into_iter()
        .chain(names_of(&scenario, Hook::After))
    {
        scenario.delete(Kind::Job, &name);
    }
    scenario.restart();
    scenario.add_node("c", &json!({}));
    scenario.succeed("c");
    scenario.finish();
    assert!(scenario.invariants.hook_jobs.is_empty());
    // A new version is another roll-out.
    scenario.edit("p", |spec| spec.version = Some("v2".to_owned()));
    scenario.roll_out();
    scenario.finish();
    assert_eq!(scenario.invariants.hook_jobs.len(), 2);
}

#[test]
fn before_that_fails_holds_the_roll_out_with_its_last_words_until_a_retry() {
    let mut scenario = running(|_| {});
    end(&mut scenario, Hook::Before, Some("3"));
    let failed = hook_status(&scenario, Hook::Before);
    assert_eq!(
        (failed.phase.clone(), failed.attempt),
        (HookPhase::Failed.into(), 1)
    );
    let [status, reason, message] = scenario.complete("p");
    assert_eq!([status.as_str(), &reason], ["False", "BeforeFailed"]);
    let says = format!(
        "spec.before: Job {} failed, so no node starts: container before exited with 3: no space left (",
        failed.job
    );
    assert!(message.starts_with(&says), "{message}");
    assert!(
        message.ends_with(&format!(
            "; refit retry PLAN once the cause is corrected, or annotate the Plan with refit.rs/retry={}, or edit it",
            failed.job
        )),
        "{message}"
    );
    assert_eq!(scenario.condition("p", "Degraded")[..2], ["True", "BeforeFailed"]);
    assert_eq!(scenario.events_of("BeforeFailed").len(), 1);
    scenario.pass_secs(3600);
    scenario.restart();
    assert!(scenario.slots("p").is_empty());
    end(&mut scenario, Hook::Before, None);
    assert_eq!(
        names_of(&scenario, Hook::Before).len(),
        0,
        "its TTL is over, and nobody has asked for another"
    );
    scenario.annotate(
        Kind::Plan,
        "p",
        names::ANNOTATION_RETRY,
        Some(&format!("{} by user", failed.job)),
    );
    scenario.pass_secs(60);
    let status = hook_status(&scenario, Hook::Before);
    assert_eq!((status.phase, status.attempt), (HookPhase::Succeeded.into(), 2));
    assert!(
        scenario
            .status("p")
            .conditions
            .iter()
            .all(|it| it.type_ != "Degraded")
    );
    upgrade_all(&mut scenario);
    end(&mut scenario, Hook::After, None);
    scenario.finish();
}

#[test]
fn after_that_fails_leaves_the_nodes_done_and_the_plan_and_its_dependents_waiting() {
    let mut scenario = running(|_| {});
    scenario.apply(plan_with("next", |spec| {
        let dependency = refit_api::DependencySpec { name: "p".to_owned() };
        spec.depends_on = Some(vec![dependency]);
    }));
    end(&mut scenario, Hook::Before, None);
    upgrade_all(&mut scenario);
    end(&mut scenario, Hook::After, Some("1"));
    assert!(scenario.is_done("a", "p") && scenario.is_done("b", "p"));
    assert_eq!(scenario.complete("p")[..2], ["False", "AfterFailed"]);
    assert_eq!(scenario.condition("p", "Degraded")[..2], ["True", "AfterFailed"]);
    assert_eq!(scenario.complete("next")[1], "DependencyNotComplete");
    assert!(!scenario.is_cordoned("a"));
    // An edit of `after` begins anew, and upgrades no node again.
    end(&mut scenario, Hook::After, None);
    scenario.edit("p", |spec| spec.after = Some(hook("smoke-again")));
    scenario.pass_secs(60);
    assert_eq!(scenario.complete("p")[..2], ["True", "Complete"]);
    assert_eq!(scenario.slots("next").len(), 1);
    assert_eq!(scenario.invariants.upgrades, 2 + 1);
}

#[test]
fn retries_of_the_failure_policy_apply_to_hooks() {
    let mut scenario = running(|spec| {
        spec.failure = Some(FailureSpec {
            retries: Some(1),
            backoff: Some("5m".to_owned()),
            ..FailureSpec::default()
        });
    });
    end(&mut scenario, Hook::Before, Some("1"));
    assert!(scenario.complete("p")[2].contains("; it is tried again at 2026-01-01T09:0"));
    assert!(
        scenario
            .status("p")
            .conditions
            .iter()
            .all(|it| it.type_ != "Degraded")
    );
    scenario.pass_secs(360);
    let failed = hook_status(&scenario, Hook::Before);
    assert_eq!(
        (failed.phase, failed.attempt, failed.retries),
        (HookPhase::Failed.into(), 2, 1)
    );
    assert_eq!(scenario.condition("p", "Degraded")[1], "BeforeFailed");
    assert_eq!(scenario.events_of("BeforeFailed").len(), 2);
}

#[test]
fn before_waits_for_what_the_first_node_waits_for_and_does_not_run_for_a_complete_plan() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.apply(hooked(|spec| spec.suspend = Some(true)));
    scenario.pass_secs(60);
    assert!(scenario.invariants.hook_jobs.is_empty());
    assert_eq!(scenario.complete("p")[1], "Suspended");
    scenario.edit("p", |spec| spec.suspend = None);
    // No node can start.
    scenario.ready("a", false);
    scenario.pass_secs(60);
    assert_eq!(scenario.complete("p")[1], "NodeNotReady");
    assert!(scenario.invariants.hook_jobs.is_empty());
    scenario.ready("a", true);
    scenario.succeed("a");
    scenario.finish();
    assert_eq!(scenario.invariants.hook_jobs.len(), 2);
    // A Plan that is complete gets a hook with the next version.
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.apply(plan_with("p", |_| {}));
    scenario.succeed("a");
    scenario.finish();
    scenario.edit("p", |spec| {
        (spec.before, spec.after) = (Some(hook("x")), Some(hook("x")));
    });
    scenario.pass_secs(60);
    scenario.finish();
    assert!(scenario.invariants.hook_jobs.is_empty());
}

#[test]
fn a_new_version_an_edit_and_an_abort_end_a_job_that_runs() {
    let mut scenario = running(|_| {});
    let first = names_of(&scenario, Hook::Before);
    scenario.edit("p", |spec| spec.version = Some("v2".to_owned()));
    scenario.pass_secs(60);
    let second = names_of(&scenario, Hook::Before);
    assert!(second.len() == 1 && second != first, "{second:?}");
    scenario.edit("p", |spec| spec.before = Some(hook("other")));
    scenario.pass_secs(60);
    let third = names_of(&scenario, Hook::Before);
    assert!(third.len() == 1 && third != second, "{third:?}");
    scenario.annotate(Kind::Plan, "p", names::ANNOTATION_ABORT, Some("by user"));
    scenario.pass_secs(60);
    assert!(names_of(&scenario, Hook::Before).is_empty());
    scenario.annotate(Kind::Plan, "p", names::ANNOTATION_ABORT, None);
    scenario.pass_secs(60);
    assert_eq!(names_of(&scenario, Hook::Before), third);
    scenario.edit("p", |spec| spec.before = None);
    scenario.pass_secs(60);
    assert!(names_of(&scenario, Hook::Before).is_empty());
    assert_eq!(scenario.slots("p").len(), 1);
    scenario.delete(Kind::Plan, "p");
    scenario.rest();
    assert!(scenario.invariants.hook_jobs.is_empty());
}

#[test]
fn while_the_plan_has_lost_before_no_node_starts() {
    let mut scenario = running(|_| {});
    scenario.stop();
    scenario.serve_definition_of_suc(true);
    scenario.settle();
    scenario.annotate(Kind::Plan, "p", "example.com/x", Some("y"));
    scenario.serve_definition_of_suc(false);
    scenario.start();
    scenario.pass_secs(120);
    assert!(scenario.slots("p").is_empty());
    assert_eq!(scenario.complete("p")[1], "SpecPruned");
    scenario.edit("p", |spec| {
        (spec.before, spec.after) = (Some(hook("snapshot")), Some(hook("smoke")));
    });
    scenario.pass_secs(30);
    assert_eq!(names_of(&scenario, Hook::Before).len(), 1);
    end(&mut scenario, Hook::Before, None);
    assert_eq!(scenario.slots("p"), ["a"]);
}

#[test]
fn a_version_that_comes_while_a_node_is_in_progress_has_its_own_before_first() {
    let mut scenario = running(|_| {});
    end(&mut scenario, Hook::Before, None);
    scenario.comes_to("a", refit_facts::PodStage::Upgrade);
    for node in ["a", "b"] {
        scenario.steer(node, "before.run-delay", Some("1h"));
    }
    scenario.edit("p", |spec| spec.version = Some("v2".to_owned()));
    scenario.pass_secs(60);
    assert_eq!(scenario.slots("p"), ["a"], "the upgrade that runs finishes");
    scenario.succeed("a");
    scenario.pass_secs(60);
    assert_eq!(hook_status(&scenario, Hook::Before).hash, scenario.hash("p"));
    assert_eq!(hook_status(&scenario, Hook::Before).phase, HookPhase::Running);
    end(&mut scenario, Hook::Before, None);
    end(&mut scenario, Hook::After, None);
    scenario.roll_out();
    scenario.finish();
    assert_eq!(scenario.done_label("a", "p"), Some(scenario.hash("p")));
}

#[test]
fn before_comes_first_on_a_node_that_failed_also_behind_a_gate_that_is_only_for_new_nodes() {
    let mut scenario = running(|_| {});
    end(&mut scenario, Hook::Before, None);
    scenario.comes_to("a", refit_facts::PodStage::Upgrade);
    scenario.fail("a");
    scenario.pass_secs(60);
    assert_eq!(scenario.phase("p", "a")[0], "Failed");
    for node in ["a", "b"] {
        scenario.steer(node, "before.run-delay", Some("1h"));
    }
    scenario.edit("p", |spec| {
        (spec.version, spec.suspend) = (Some("v2".to_owned()), Some(true));
    });
    scenario.pass_secs(120);
    let of_v2 = |scenario: &Scenario| {
        let (jobs, hash) = (scenario.jobs_for("a"), scenario.hash("p"));
        jobs.iter().filter(|job| *job.hash == *hash).count()
    };
    assert_eq!(of_v2(&scenario), 0, "{:?}", scenario.jobs_for("a"));
    scenario.edit("p", |spec| spec.suspend = None);
    scenario.pass_secs(60);
    assert_eq!(hook_status(&scenario, Hook::Before).phase, HookPhase::Running);
    assert_eq!(of_v2(&scenario), 0, "{:?}", scenario.jobs_for("a"));
}

#[test]
fn a_job_goes_with_its_plan_also_if_that_is_deleted_without_it() {
    let mut scenario = running(|_| {});
    assert_eq!(names_of(&scenario, Hook::Before).len(), 1);
    scenario.stop();
    scenario.delete_only_plan("p");
    scenario.pass_secs(60);
    assert_eq!(
        names_of(&scenario, Hook::Before).len(),
        1,
        "nobody else deletes it"
    );
    scenario.start();
    scenario.rest();
    assert!(names_of(&scenario, Hook::Before).is_empty());
    scenario.assert_over();
}

/// The node on which the pod of a hook runs.
fn node_of_pod(scenario: &Scenario) -> String {
    let node = scenario.cluster.with(|state| {
        let mut pods = state.all(Kind::Pod);
        let of_hook = pods.find(|pod| pod["metadata"]["labels"]["refit.rs/hook"].is_string());
        of_hook.and_then(|pod| pod["spec"]["nodeName"].as_str().map(str::to_owned))
    });
    node.expect("a pod of a hook that is bound to a node")
}

#[test]
fn no_plan_takes_down_the_node_on_which_the_pod_of_a_hook_runs() {
    let mut scenario = running(|_| {});
    let job = hook_status(&scenario, Hook::Before).job;
    let busy = node_of_pod(&scenario);
    let free = if busy == "a" { "b" } else { "a" };
    for plan in ["gentle", "other"] {
        scenario.apply(plan_with(plan, |spec| {
            spec.concurrency = Some(2);
            if plan == "gentle" {
                spec.cordon = None;
            }
        }));
    }
    scenario.pass_secs(60);
    assert_eq!(scenario.slots("gentle").len(), 2, "it disturbs no pod");
    for node in ["a", "b"] {
        scenario.succeed(node);
    }
    scenario.pass_secs(60);
    assert!(!scenario.is_done(&busy, "other"));
    assert_eq!(scenario.phase("other", &busy), ["Waiting", "NodeBusy"]);
    let [_, _, message] = scenario.complete("other");
    assert_eq!(
        message,
        format!("Node {busy}: Job {job} of Plan p works on the node")
    );
    // Without the controller's memory it is the same, and a Job that goes leaves its pod for a while.
    scenario.restart();
    scenario.pass_secs(60);
    assert_eq!(scenario.phase("other", &busy), ["Waiting", "NodeBusy"]);
    assert!(scenario.is_done(free, "other") || scenario.slots("other") == [free]);
    end(&mut scenario, Hook::Before, None);
    end(&mut scenario, Hook::After, None);
    scenario.finish();
    assert!(scenario.is_done(&busy, "other"));
}

#[test]
fn a_hook_whose_image_cannot_be_pulled_keeps_no_plan_off_its_node() {
    let mut scenario = running(|_| {});
    let busy = node_of_pod(&scenario);
    let (name, container) = scenario.cluster.with(|state| {
        let mut pods = state.all(Kind::Pod);
        let pod = pods.find(|pod| pod["metadata"]["labels"]["refit.rs/hook"].is_string());
        let pod = pod.expect("a pod of a hook");
        (
            pod["metadata"]["name"].clone(),
            pod["spec"]["containers"][0]["name"].clone(),
        )
    });
    let waiting = json!({ "waiting": { "reason": "ImagePullBackOff", "message": "no such image" } });
    let status =
        json!({ "phase": "Pending", "containerStatuses": [{ "name": container, "state": waiting }] });
    let patch = json!({ "status": status });
    let name = name.as_str().expect("a name");
    scenario
        .cluster
        .patch_status(Kind::Pod, "system-upgrade", name, &patch)
        .unwrap();
    scenario.apply(plan_with("other", |spec| spec.concurrency = Some(2)));
    scenario.pass_secs(60);
    assert!(
        scenario.slots("other").contains(&busy),
        "{:?}",
        scenario.slots("other")
    );
}

#[test]
fn a_hook_whose_pod_waited_until_the_deadline_says_for_what_whenever_the_controller_dies() {
    let nowhere = |spec: &mut PlanSpec| {
        let before = spec.before.as_mut().expect("the Plan has it");
        before.node_selector = Some([("pool".to_owned(), "backup".to_owned())].into());
        spec.job_active_deadline_secs = Some(600);
    };
    let mut writes = 0;
    for write in 0.. {
        let mut scenario = running(nowhere);
        let stored = hook_status(&scenario, Hook::Before);
        assert_eq!(stored.phase, HookPhase::Running);
        let waits = stored.message.expect("what it waits for");
        assert!(waits.contains("node(s) didn't match"), "{waits}");
        assert!(scenario.complete("p")[2].ends_with(&format!(": {waits}")));
        let kill = Rule::write_or_event()
            .nth(write + 1)
            .effect(Effect::Kill(Moment::After));
        scenario.fault_injector.add(kill);
        scenario.pass_secs(900);
        let was_met = scenario.fault_injector.clear_rules();
        let failed = hook_status(&scenario, Hook::Before);
        assert_eq!(failed.phase, HookPhase::Failed, "write {write}");
        let why = failed.message.expect("why it failed");
        assert!(
            why.starts_with(&format!("{waits} (DeadlineExceeded: ")),
            "write {write}: {why}"
        );
        assert_eq!(scenario.condition("p", "Degraded")[1], "BeforeFailed");
        if !was_met {
            break;
        }
        writes += 1;
    }
    assert!(writes > 1, "{writes}");
}

#[test]
fn a_hook_whose_pod_the_api_server_refuses_says_why() {
    let mut scenario = Scenario::of_nodes(&["a", "b"]);
    let why = "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\"";
    scenario.cluster.with(|state| state.refuses_pods = Some(why));
    scenario.apply(hooked(|spec| spec.job_active_deadline_secs = Some(600)));
    scenario.pass_secs(90);
    let stored = hook_status(&scenario, Hook::Before);
    assert_eq!(stored.phase, HookPhase::Running);
    let waits = stored.message.expect("why it has no pod");
    assert!(
        waits.starts_with("the API server refuses the pod of Job ") && waits.contains("violates PodSecurity"),
        "{waits}"
    );
    assert!(scenario.complete("p")[2].ends_with(&format!(": {waits}")));
    scenario.pass_secs(600);
    let failed = hook_status(&scenario, Hook::Before);
    assert_eq!(failed.phase, HookPhase::Failed);
    let text = failed.message.expect("why it failed");
    assert!(
        text.starts_with(&format!("{waits} (DeadlineExceeded: ")),
        "{text}"
    );
}

#[test]
fn a_hook_whose_name_another_job_has_says_so_and_runs_once_that_is_gone() {
    let mut scenario = running(|_| {});
    let name = hook_status(&scenario, Hook::Before).job;
    let foreign = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name, "namespace": "system-upgrade" },
        "spec": { "suspend": true, "template": { "spec": {
            "restartPolicy": "Never", "containers": [{ "name": "x", "image": "example.com/x" }] } } },
    });
    scenario.delete(Kind::Job, &name);
    scenario.cluster.put(foreign).unwrap();
    scenario.pass_secs(60);
    let [_, reason, message] = scenario.complete("p");
    assert_eq!(reason, "BeforeRunning");
    let says = format!("Job {name} comes before the first node: another Job has that name; delete it");
    assert!(message.ends_with(&says), "{message}");
    let writes = scenario.requests("PATCH /plans/p/status");
    scenario.pass_secs(60);
    assert_eq!(scenario.requests("PATCH /plans/p/status"), writes);
    scenario.delete(Kind::Job, &name);
    scenario.pass_secs(30);
    assert!(hook_status(&scenario, Hook::Before).since.is_some());
    assert!(scenario.complete("p")[2].contains("created at"));
}
