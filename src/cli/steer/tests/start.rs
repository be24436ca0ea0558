//! `refit start --despite`.

use std::collections::BTreeSet;

use super::*;
use crate::cli::steer::start::reason;
use refit_api::exemption::{Exemption, StartLimit};

use StartLimit::{Soak, Window};

const HASH: &str = "21c75c607087495cc7f2c945c508a36de1f8661ce8c6b4d5989a883c";

fn start(limits: &[StartLimit]) -> Action {
    Action::Start {
        limits: limits.iter().copied().collect(),
        reason: "a disk fails".to_owned(),
    }
}

fn hashed(plan: &mut Plan) {
    plan.status.as_mut().unwrap().latest_hash = Some(HASH.to_owned());
}

fn with(value: &'static str) -> Snapshot {
    snapshot(|plan| {
        hashed(plan);
        annotated(names::ANNOTATION_DESPITE, value)(plan);
    })
}

#[track_caller]
fn written(snapshot: &Snapshot, limits: &[StartLimit], nodes: &[&str]) -> (String, String) {
    let plan = ask(snapshot, &start(limits), nodes).unwrap().plan.unwrap();
    let value = plan.patch["metadata"]["annotations"]["refit.rs/despite"].as_str();
    (value.unwrap().to_owned(), plan.says)
}

#[test]
fn an_exemption_has_the_limits_the_nodes_the_roll_out_who_when_and_why() {
    let (value, says) = written(&snapshot(hashed), &[Soak, Window], &["waiting"]);
    assert_eq!(
        value,
        format!("window+soak/waiting@21c75c607087 {BY}: a disk fails")
    );
    assert_eq!(says, "starts on waiting in spite of window, soak at version v1");
    let (entry, read) = Exemption::all(&value, HASH).next().unwrap();
    assert_eq!(
        read.unwrap(),
        Exemption::new([Soak, Window].into(), ["waiting".to_owned()].into(), HASH)
    );
    assert_eq!(entry.author().unwrap(), format!("{BY}: a disk fails"));
    let (value, says) = written(&snapshot(hashed), &[Window], &[]);
    assert_eq!(value, format!("window@21c75c607087 {BY}: a disk fails"));
    assert_eq!(says, "starts in spite of window at version v1");
}

#[test]
fn it_is_added_to_those_of_this_roll_out_unless_one_of_them_covers_it() {
    let (value, _) = written(
        &with("window/waiting@21c75c607087 by bob, soak@aaaaaaaaaaaa by bob, quorum@21c75c607087"),
        &[Soak],
        &["waiting"],
    );
    assert_eq!(
        value,
        format!("window/waiting@21c75c607087 by bob, soak/waiting@21c75c607087 {BY}: a disk fails")
    );
    let known = with("window+soak@21c75c607087 by bob");
    says(
        &known,
        &start(&[Soak]),
        &["waiting"],
        "start in spite of that already: window, soak, by bob",
    );
    says(&known, &start(&[Soak, Window]), &[], "already");
    // One for some nodes does not cover all.
    written(&with("window/waiting@21c75c607087 by bob"), &[Window], &[]);
    // Nor does one that has ended with the roll-out.
    let ended = snapshot(|plan| {
        let text = "window@21c75c607087 by bob";
        let (entry, read) = Exemption::all(text, HASH).next().unwrap();
        let mut status = Exemption::status(&entry, &read, HASH);
        status.ended = Some("2026-01-01T08:00:00Z".to_owned());
        hashed(plan);
        plan.status.as_mut().unwrap().despite = Some(vec![status]);
        annotated(names::ANNOTATION_DESPITE, text)(plan);
    });
    let (value, _) = written(&ended, &[Window], &[]);
    assert!(!value.contains("bob"), "{value}");
    let many = with(
        "window/a@21c75c607087,window/b@21c75c607087,window/c@21c75c607087,window/d@21c75c607087,\
         window/e@21c75c607087,window/f@21c75c607087,window/g@21c75c607087,window/h@21c75c607087",
    );
    refuses(&many, &start(&[Window]), &[], "has 8 exemptions");
}

#[test]
fn nodes_that_cannot_start_are_named() {
    let there = snapshot(hashed);
    for (node, why) in [
        ("upgrading", "Node upgrading is Upgrading: it has started"),
        (
            "failed",
            "Node failed is Failed (BackoffLimitExceeded): it has started",
        ),
        ("skipped", "Node skipped is skipped: refit skip --undo starts it"),
    ] {
        refuses(&there, &start(&[Window]), &["waiting", node], why);
    }
    let done = snapshot(|_| ());
    refuses(&done, &start(&[Window]), &["done"], "is done: refit rerun");
    let selects_none = snapshot(|plan| {
        hashed(plan);
        plan.spec.node_selector = None;
    });
    refuses(
        &selects_none,
        &start(&[Window]),
        &["waiting"],
        "does not select Node waiting",
    );
    let complete = snapshot(|plan| {
        let complete = condition(ConditionType::Complete, "True", Reason::Complete);
        plan.status.as_mut().unwrap().conditions = vec![complete];
        plan.status.as_mut().unwrap().active = None;
    });
    refuses(&complete, &start(&[Window]), &[], "is complete");
    let fresh = snapshot(|plan| plan.status.as_mut().unwrap().latest_hash = None);
    refuses(&fresh, &start(&[Window]), &[], "has no version yet");
}

#[test]
fn what_still_holds_the_plan_is_noted() {
    let suspended = snapshot(|plan| {
        hashed(plan);
        plan.spec.suspend = Some(true);
    });
    let changes = ask(&suspended, &start(&[Window]), &[]).unwrap();
    assert!(
        changes.notes[0].contains("is suspended: nodes start after refit resume"),
        "{changes:?}"
    );
    let changes = ask(&snapshot(hashed), &start(&[Window]), &[]).unwrap();
    assert!(
        changes
            .notes
            .iter()
            .any(|note| note.contains("which still counts")),
        "{changes:?}"
    );
}

#[test]
fn a_reason_is_required_and_stays_one_entry() {
    assert_eq!(reason(" a, b\nc ").unwrap(), "a; b;c");
    assert_eq!(reason(" ").unwrap_err(), "it must say why");
    assert!(reason(&"x".repeat(300)).unwrap_err().contains("300 bytes"));
}

#[test]
fn the_goal_is_that_these_nodes_are_done_or_the_plan_is_complete() {
    let there = snapshot(hashed);
    let view = PlanOverview::new(&there, &there.plans[0]);
    let action = start(&[Window]);
    let changes = Changes::default();
    let named = ["waiting".to_owned()];
    let goal = Goal::of(&action, &named, &view, &changes);
    assert!(!goal.check(&view, &BTreeSet::new()).unwrap());
    assert!(goal.check(&view, &named.into()).unwrap());
    let all = Goal::of(&action, &[], &view, &changes);
    assert_eq!(all, Goal::Complete { version: None });
}

#[test]
fn a_limit_that_never_is_lifted_is_named_with_those_that_may_be() {
    for line in [
        "start p --despite quorum --reason x",
        "start p --despite window,locks --reason x",
    ] {
        let args = ["refit"].into_iter().chain(line.split(' ')).map(Into::into);
        let error = crate::cli::parse(args.collect::<Vec<_>>())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("is none of window, soak, checks, blackout; nodes never start in spite of quorum"),
            "{error}"
        );
    }
    for (limit, hint) in [
        ("notBefore", "window includes notBefore"),
        ("freeze", "refit unfreeze"),
    ] {
        let args = ["refit", "start", "p", "--reason=x", "--despite", limit];
        let error = crate::cli::parse(args.map(Into::into).to_vec()).unwrap_err();
        assert!(error.to_string().contains(hint), "{error}");
    }
    for line in ["start p --reason x", "start p --despite window"] {
        let args = ["refit"].into_iter().chain(line.split(' ')).map(Into::into);
        assert!(crate::cli::parse(args.collect::<Vec<_>>()).is_err(), "{line}");
    }
}
