//! `spec.verify` looks at a node after its upgrade, before it is done.

use super::scenario::Scenario;
use refit_api::failure::{FailurePolicy, FailureSpec};
use refit_api::{ContainerSpec, NodePhase, Plan, PlanSpec, RebootWhen, SettleSpec};
use refit_facts::PodStage;
use refit_fixtures::{plan_with, reboot};
use refit_rehearse::Kind;
use refit_rehearse::json::json;

fn look(image: &str) -> Box<ContainerSpec> {
    Box::new(ContainerSpec {
        image: image.to_owned(),
        ..ContainerSpec::default()
    })
}

fn verified(change: impl FnOnce(&mut PlanSpec)) -> Plan {
    plan_with("p", |spec| {
        spec.concurrency = Some(1);
        spec.cordon = Some(true);
        spec.verify = Some(look("look"));
        change(spec);
    })
}

/// `a` is upgraded, and is being verified.
fn verifying(change: impl FnOnce(&mut PlanSpec)) -> Scenario {
    let mut scenario = Scenario::of_nodes(&["a", "b"]);
    scenario.steer("a", "verify.run-delay", Some("1h"));
    scenario.apply(verified(change));
    scenario.succeed("a");
    scenario.until("a is being verified", |state| {
        let mut pods = state.all(Kind::Pod);
        pods.any(|pod| {
            pod["spec"]["containers"][0]["name"] == "verify" && pod["status"]["phase"] == "Running"
        })
    });
    scenario.settle();
    scenario
}

fn end(scenario: &mut Scenario, code: Option<&str>) {
    scenario.steer("a", "verify.exit-code", code);
    scenario.steer("a", "verify.run-delay", Some("0s"));
    scenario.roll_out();
}

#[test]
fn a_node_is_verified_before_it_is_uncordoned_and_the_next_one_starts() {
    let mut scenario = verifying(|_| {});
    assert_eq!(scenario.entry("p", "a").phase, NodePhase::Verifying);
    assert!(scenario.is_cordoned("a") && !scenario.is_done("a", "p"));
    assert_eq!(scenario.slots("p"), ["a"]);
    let job = scenario.invariants.verify_jobs.values().next().unwrap();
    assert_eq!(
        job.verifies.as_deref(),
        Some(&*scenario.record("a", "p").job_uid),
        "it names the Job that it verifies"
    );
    end(&mut scenario, None);
    scenario.assert_over();
    assert_eq!(scenario.events_of("JobComplete").len(), 2);
}

#[test]
fn a_node_is_verified_in_its_new_boot_and_once_it_has_settled() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.steer("a", "verify.run-delay", Some("1h"));
    scenario.apply(verified(|spec| {
        spec.reboot = Some(reboot(RebootWhen::Always));
        spec.settle = Some(Box::new(SettleSpec {
            min_ready: Some("5m".to_owned()),
            ..SettleSpec::default()
        }));
    }));
    scenario.succeed("a");
    scenario.pass_secs(120);
    assert_eq!(scenario.invariants.reboots, 1);
    assert_eq!(scenario.entry("p", "a").phase, NodePhase::Settling);
    assert!(scenario.invariants.verify_jobs.is_empty());
    scenario.pass_secs(300);
    assert_eq!(scenario.entry("p", "a").phase, NodePhase::Verifying);
    assert!(scenario.is_cordoned("a"));
    end(&mut scenario, None);
    scenario.assert_over();
    assert_eq!(scenario.invariants.reboots, 1);
}

#[test]
fn a_node_whose_verification_fails_stays_cordoned_and_a_retry_upgrades_and_verifies_it_again() {
    let mut scenario = verifying(|_| {});
    scenario.steer("a", "verify.message", Some("the kubelet has no certificate"));
    end(&mut scenario, Some("1"));
    let failed = scenario.entry("p", "a");
    assert_eq!(failed.phase, NodePhase::Failed);
    assert_eq!(failed.reason.as_deref(), Some("VerifyFailed"));
    let message = failed.message.unwrap();
    assert!(
        message.starts_with(
            "the upgrade succeeded, but verify did not: container verify exited with 1: the kubelet has no certificate; "
        ) && message.ends_with(" (BackoffLimitExceeded)"),
        "{message}"
    );
    assert!(scenario.is_cordoned("a") && !scenario.is_done("a", "p"));
    assert_eq!(scenario.events_of("VerifyFailed").len(), 1);
    assert!(!scenario.is_done("b", "p"), "a failed node keeps its slot");
    scenario.steer("a", "verify.exit-code", None);
    scenario.retry("a", "p");
    scenario.finish();
    assert_eq!(scenario.invariants.upgrades, 3);
    assert_eq!(scenario.events_of("VerifyFailed").len(), 1);
}

#[test]
fn a_verification_that_waits_until_its_deadline_says_for_what() {
    let mut scenario = Scenario::of_nodes(&["a"]);
    scenario.apply(verified(|spec| spec.job_active_deadline_secs = Some(120)));
    scenario.comes_to("a", PodStage::Upgrade);
    // From now on, pods do not start.
    scenario.steer("a", "start-delay", Some("1h"));
    scenario.succeed("a");
    scenario.until("the pod that verifies exists", |state| {
        let mut pods = state.all(Kind::Pod);
        pods.any(|pod| pod["spec"]["containers"][0]["name"] == "verify")
    });
    let mut pods = scenario.pods().map(|pod| pod.facts.name.to_string());
    let pod = pods.find(|name| name.starts_with("verify-")).unwrap();
    drop(pods);
    let image = "Back-off pulling image \"look:v1\"";
    let waiting = json!({ "status": { "containerStatuses": [{
        "name": "verify", "image": "look:v1", "imageID": "", "ready": false, "restartCount": 0,
        "state": { "waiting": { "reason": "ImagePullBackOff", "message": image } },
    }] } });
    let patched = scenario
        .cluster
        .patch_status(Kind::Pod, refit_fixtures::NAMESPACE, &pod, &waiting);
    patched.unwrap();
    scenario.settle();
    let entry = scenario.entry("p", "a");
    assert_eq!(entry.phase, NodePhase::Verifying);
    assert_eq!(entry.reason.as_deref(), Some("PodWaiting"));
    scenario.pass_secs(180);
    let failed = scenario.entry("p", "a");
    assert_eq!(failed.reason.as_deref(), Some("VerifyFailed"));
    let message = failed.message.unwrap();
    assert!(
        message.starts_with("the upgrade succeeded, but verify did not: ")
            && message.ends_with(" (PodWaiting)")
            && message.contains(image)
            && message.contains("; DeadlineExceeded: "),
        "{message}"
    );
}

#[test]
fn with_a_policy_that_goes_on_a_node_that_is_not_verified_is_released_and_the_others_start() {
    let mut scenario = verifying(|spec| {
        spec.failure = Some(FailureSpec {
            policy: Some(FailurePolicy::Continue),
            uncordon: Some(true),
            ..FailureSpec::default()
        });
    });
    end(&mut scenario, Some("1"));
    assert!(!scenario.is_cordoned("a") && !scenario.is_done("a", "p"));
    assert!(scenario.is_done("b", "p"));
}

#[test]
fn an_edit_of_verify_replaces_its_job_and_to_remove_it_ends_the_wait() {
    let mut scenario = verifying(|_| {});
    let uid = |scenario: &Scenario| {
        let jobs = &scenario.invariants.verify_jobs;
        jobs.values().next().map(|job| job.uid.clone())
    };
    let first = uid(&scenario);
    scenario.edit("p", |spec| spec.verify = Some(look("look-twice")));
    scenario.pass_secs(60);
    assert_eq!(scenario.entry("p", "a").phase, NodePhase::Verifying);
    assert!(uid(&scenario).is_some() && uid(&scenario) != first);
    assert_eq!(scenario.invariants.upgrades, 1, "the upgrade does not run again");
    scenario.edit("p", |spec| spec.verify = None);
    scenario.finish();
}

#[test]
fn a_delay_begins_after_the_verification_which_is_not_repeated_in_it() {
    let mut scenario = verifying(|spec| spec.post_complete_delay = Some("5m".to_owned()));
    scenario.steer("a", "verify.run-delay", Some("0s"));
    scenario.pass_secs(30);
    assert_eq!(scenario.entry("p", "a").phase, NodePhase::Settling);
    assert!(!scenario.is_cordoned("a") && !scenario.is_done("a", "p"));
    let names: Vec<String> = scenario.invariants.verify_jobs.keys().cloned().collect();
    for name in names {
        scenario.delete(Kind::Job, &name);
    }
    scenario.restart();
    scenario.steer("a", "verify.exit-code", Some("1"));
    scenario.pass_secs(300);
    assert!(scenario.is_done("a", "p"));
}

#[test]
fn while_the_plan_has_lost_its_fields_no_node_counts_as_verified() {
    // Before the verification has begun, and while it runs.
    for begun in [false, true] {
        let mut scenario = if begun {
            verifying(|_| {})
        } else {
            let mut scenario = Scenario::with(&["a"], verified(|_| {}));
            scenario.comes_to("a", PodStage::Upgrade);
            scenario
        };
        scenario.stop();
        scenario.serve_definition_of_suc(true);
        scenario.settle();
        // A user writes the Plan, which is stored as it was read.
        scenario.annotate(Kind::Plan, "p", "example.com/x", Some("y"));
        scenario.serve_definition_of_suc(false);
        if !begun {
            scenario.succeed_unseen("a");
        }
        scenario.start();
        scenario.pass_secs(120);
        assert!(
            scenario.is_cordoned("a") && !scenario.is_done("a", "p"),
            "{begun}"
        );
        let entry = scenario.entry("p", "a");
        assert_eq!(entry.phase, NodePhase::Verifying);
        // What runs there ends, and nothing else begins.
        let waits = entry.reason.map(|reason| reason.to_string());
        assert_eq!(waits.as_deref(), (!begun).then_some("SpecPruned"));
        scenario.steer("a", "verify.run-delay", Some("0s"));
        scenario.edit("p", |spec| spec.verify = Some(look("look")));
        scenario.finish();
    }
}

#[test]
fn a_deleted_plan_takes_its_verification_with_it_and_releases_the_node() {
    let mut scenario = verifying(|_| {});
    scenario.delete(Kind::Plan, "p");
    scenario.rest();
    assert!(!scenario.is_cordoned("a"));
    assert!(scenario.invariants.verify_jobs.is_empty());
    assert!(scenario.node("a").records.is_empty());
}
