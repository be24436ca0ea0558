//! `spec.verify` looks at a node after its upgrade, before it is done.

use super::scenario::Scenario;
use crate::api::failure::{FailurePolicy, FailureSpec};
use crate::api::{ContainerSpec, NodePhase, Plan, PlanSpec, RebootWhen, SettleSpec};
use crate::rehearse::Kind;
use crate::rollout::PodStage;
use crate::rollout::tests::build::{plan_with, reboot};

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
    let mut story = Scenario::empty();
    story.add_nodes(&["a", "b"]);
    story.steer("a", "verify.run-delay", Some("1h"));
    story.apply(verified(change));
    story.succeed("a");
    story.until("a is being verified", |state| {
        let mut pods = state.all(Kind::Pod);
        pods.any(|pod| {
            pod["spec"]["containers"][0]["name"] == "verify" && pod["status"]["phase"] == "Running"
        })
    });
    story.settle();
    story
}

fn end(story: &mut Scenario, code: Option<&str>) {
    story.steer("a", "verify.exit-code", code);
    story.steer("a", "verify.run-delay", Some("0s"));
    story.roll_out();
}

#[test]
fn a_node_is_verified_before_it_is_uncordoned_and_the_next_one_starts() {
    let mut story = verifying(|_| {});
    assert_eq!(story.entry("p", "a").phase, NodePhase::Verifying);
    assert!(story.is_cordoned("a") && !story.is_done("a", "p"));
    assert_eq!(story.slots("p"), ["a"]);
    let job = story.invariants.verify_jobs.values().next().unwrap();
    assert_eq!(
        job.verifies.as_deref(),
        Some(&*story.record("a", "p").job_uid),
        "it names the Job that it verifies"
    );
    end(&mut story, None);
    story.assert_over();
    assert_eq!(story.events_of("JobComplete").len(), 2);
}

#[test]
fn a_node_is_verified_in_its_new_boot_and_once_it_has_settled() {
    let mut story = Scenario::empty();
    story.add_nodes(&["a"]);
    story.steer("a", "verify.run-delay", Some("1h"));
    story.apply(verified(|spec| {
        spec.reboot = Some(reboot(RebootWhen::Always));
        spec.settle = Some(SettleSpec {
            min_ready: Some("5m".to_owned()),
            ..SettleSpec::default()
        });
    }));
    story.succeed("a");
    story.pass_secs(120);
    assert_eq!(story.invariants.reboots, 1);
    assert_eq!(story.entry("p", "a").phase, NodePhase::Settling);
    assert!(story.invariants.verify_jobs.is_empty());
    story.pass_secs(300);
    assert_eq!(story.entry("p", "a").phase, NodePhase::Verifying);
    assert!(story.is_cordoned("a"));
    end(&mut story, None);
    story.assert_over();
    assert_eq!(story.invariants.reboots, 1);
}

#[test]
fn a_node_whose_verification_fails_stays_cordoned_and_a_retry_upgrades_and_verifies_it_again() {
    let mut story = verifying(|_| {});
    story.steer("a", "verify.message", Some("the kubelet has no certificate"));
    end(&mut story, Some("1"));
    let failed = story.entry("p", "a");
    assert_eq!(failed.phase, NodePhase::Failed);
    assert_eq!(failed.reason.as_deref(), Some("VerifyFailed"));
    let message = failed.message.unwrap();
    assert!(
        message.starts_with("the upgrade succeeded, but verify did not: BackoffLimitExceeded: ")
            && message.ends_with("container verify exited with 1: the kubelet has no certificate"),
        "{message}"
    );
    assert!(story.is_cordoned("a") && !story.is_done("a", "p"));
    assert_eq!(story.events_of("VerifyFailed").len(), 1);
    assert!(!story.is_done("b", "p"), "a failed node keeps its slot");
    story.steer("a", "verify.exit-code", None);
    story.retry("a", "p");
    story.roll_out();
    story.assert_over();
    assert_eq!(story.invariants.upgrades, 3);
    assert_eq!(story.events_of("VerifyFailed").len(), 1);
}

#[test]
fn with_a_policy_that_goes_on_a_node_that_is_not_verified_is_released_and_the_others_start() {
    let mut story = verifying(|spec| {
        spec.failure = Some(FailureSpec {
            policy: Some(FailurePolicy::Continue),
            uncordon: Some(true),
            ..FailureSpec::default()
        });
    });
    end(&mut story, Some("1"));
    assert!(!story.is_cordoned("a") && !story.is_done("a", "p"));
    assert!(story.is_done("b", "p"));
}

#[test]
fn an_edit_of_verify_replaces_its_job_and_to_remove_it_ends_the_wait() {
    let mut story = verifying(|_| {});
    let uid = |story: &Scenario| {
        let jobs = &story.invariants.verify_jobs;
        jobs.values().next().map(|job| job.uid.clone())
    };
    let first = uid(&story);
    story.edit("p", |spec| spec.verify = Some(look("look-twice")));
    story.pass_secs(60);
    assert_eq!(story.entry("p", "a").phase, NodePhase::Verifying);
    assert!(uid(&story).is_some() && uid(&story) != first);
    assert_eq!(story.invariants.upgrades, 1, "the upgrade does not run again");
    story.edit("p", |spec| spec.verify = None);
    story.roll_out();
    story.assert_over();
}

#[test]
fn a_delay_begins_after_the_verification_which_is_not_repeated_in_it() {
    let mut story = verifying(|spec| spec.post_complete_delay = Some("5m".to_owned()));
    story.steer("a", "verify.run-delay", Some("0s"));
    story.pass_secs(30);
    assert_eq!(story.entry("p", "a").phase, NodePhase::Settling);
    assert!(!story.is_cordoned("a") && !story.is_done("a", "p"));
    let names: Vec<String> = story.invariants.verify_jobs.keys().cloned().collect();
    for name in names {
        story.delete(Kind::Job, &name);
    }
    story.restart();
    story.steer("a", "verify.exit-code", Some("1"));
    story.pass_secs(300);
    assert!(story.is_done("a", "p"));
}

#[test]
fn while_the_plan_has_lost_its_fields_no_node_counts_as_verified() {
    // Before the verification has begun, and while it runs.
    for begun in [false, true] {
        let mut story = if begun {
            verifying(|_| {})
        } else {
            let mut story = Scenario::with(&["a"], verified(|_| {}));
            story.comes_to("a", PodStage::Upgrade);
            story
        };
        story.stop();
        story.serve_definition_of_suc(true);
        story.settle();
        // A user writes the Plan, which is stored as it was read.
        story.annotate(Kind::Plan, "p", "example.com/x", Some("y"));
        story.serve_definition_of_suc(false);
        if !begun {
            story.succeed_unseen("a");
        }
        story.start();
        story.pass_secs(120);
        assert!(story.is_cordoned("a") && !story.is_done("a", "p"), "{begun}");
        let entry = story.entry("p", "a");
        assert_eq!(entry.phase, NodePhase::Verifying);
        // What runs there ends, and nothing else begins.
        let waits = entry.reason.map(|reason| reason.to_string());
        assert_eq!(waits.as_deref(), (!begun).then_some("SpecPruned"));
        story.steer("a", "verify.run-delay", Some("0s"));
        story.edit("p", |spec| spec.verify = Some(look("look")));
        story.roll_out();
        story.assert_over();
    }
}

#[test]
fn a_deleted_plan_takes_its_verification_with_it_and_releases_the_node() {
    let mut story = verifying(|_| {});
    story.delete(Kind::Plan, "p");
    story.rest();
    assert!(!story.is_cordoned("a"));
    assert!(story.invariants.verify_jobs.is_empty());
    assert!(story.node("a").records.is_empty());
}
