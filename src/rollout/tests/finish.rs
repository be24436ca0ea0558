//! When a node is done, and what is written then (S26, S27, S39, S59, S60).

use super::build::{labels, plan, plan_with};
use super::toy::{Fate, Toy};
use crate::api::names;
use crate::rollout::{Kind, NodeChange, Step};

fn delayed(delay: &str) -> crate::api::Plan {
    plan_with("p", |spec| spec.post_complete_delay = Some(delay.to_owned()))
}

/// The Job of node `a` succeeds, and the controller has not looked yet.
fn succeeded(plan: crate::api::Plan) -> Toy {
    let mut toy = Toy::with(&["a"], plan);
    toy.succeeds_unseen("a");
    toy
}

#[test]
fn one_patch_says_that_a_node_is_done_and_gives_it_back() {
    let mut toy = succeeded(plan_with("p", |spec| {
        let pairs = [
            ("example.com/at", "$(LATEST_VERSION)"),
            ("example.com/x", "static"),
        ];
        spec.post_complete_labels = Some(pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    }));
    assert!(toy.is_cordoned("a"));
    let patches: Vec<_> = toy
        .steps()
        .into_iter()
        .filter_map(|step| match step {
            Step::PatchNode {
                node, change, events, ..
            } => Some((node, change, events)),
            _ => None,
        })
        .collect();
    let [(node, change, events)] = patches.as_slice() else {
        panic!("{patches:?}")
    };
    assert_eq!(&**node, "a");
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(
        *change,
        NodeChange {
            labels: [
                ("example.com/at".to_owned(), text("v1")),
                ("example.com/x".to_owned(), text("static")),
                (format!("{}p", names::LABEL_PLAN_PREFIX), text(&toy.hash("p"))),
            ]
            .into(),
            annotations: [(names::ANNOTATION_CORDON.to_owned(), None)].into(),
            unschedulable: Some(false),
            exact: true,
        }
    );
    assert!(events.is_empty(), "the next node waits for this: {events:?}");
    assert!(
        !toy.steps()
            .iter()
            .any(|step| matches!(step, Step::MarkRecorded { .. })),
        "the node comes first"
    );
    toy.settle();
    assert_eq!(toy.told_of("JobComplete"), ["Job completed on Node a"]);
    assert!(toy.is_done("a", "p") && !toy.is_cordoned("a"));
    assert!(toy.job_for("a").facts.recorded);
    assert!(toy.steps().is_empty());
}

#[test]
fn a_plan_is_complete_only_when_the_label_is_there() {
    let toy = succeeded(plan("p"));
    assert_eq!(toy.complete("p").0, "False");
    let mut toy = toy;
    toy.settle();
    assert_eq!(toy.complete("p").0, "True");
}

#[test]
fn a_node_that_is_not_ready_is_not_done() {
    let mut toy = succeeded(plan("p"));
    toy.ready("a", false);
    toy.later(1);
    assert!(!toy.is_done("a", "p") && toy.is_cordoned("a"));
    assert_eq!(toy.entry("p", "a").phase, "Settling");
    assert_eq!(toy.entry("p", "a").reason.as_deref(), Some("NodeNotReady"));
    let job = toy.jobs.keys().next().unwrap().clone();
    assert!(
        toy.jobs[&job].it.facts.recorded,
        "its result is in the node's record"
    );
    toy.job_goes(&job);
    toy.ready("a", true);
    toy.settle();
    assert!(toy.is_done("a", "p") && !toy.is_cordoned("a"));
    assert_eq!(toy.told_of("JobComplete"), ["Job completed on Node a"]);
}

#[test]
fn during_the_delay_the_node_is_schedulable_and_not_done() {
    let mut toy = succeeded(delayed("90s"));
    toy.later(1);
    assert!(!toy.is_cordoned("a") && toy.done_label("a", "p").is_none());
    let entry = toy.entry("p", "a");
    assert_eq!(
        (entry.phase.as_str(), entry.reason.as_deref()),
        ("Settling", Some("PostCompleteDelay"))
    );
    assert_eq!(
        entry.message.as_deref(),
        Some("spec.postCompleteDelay is over at 2026-01-01T09:01:30Z")
    );
    assert_eq!(
        toy.told_of("JobCompleteWaiting"),
        ["Job completed on Node a, waiting 1m30s PostCompleteDelay"]
    );
    assert_eq!(toy.decision().wake, Some("2026-01-01T09:01:30Z".parse().unwrap()));
    toy.later(88);
    assert!(toy.done_label("a", "p").is_none() && toy.told_of("JobComplete").is_empty());
    toy.later(1);
    assert!(toy.is_done("a", "p"));
    assert_eq!(toy.told_of("JobComplete"), ["Job completed on Node a"]);
    assert!(toy.nodes["a"].it.facts.records.is_empty());
}

#[test]
fn a_job_lost_during_the_delay_is_not_made_again() {
    let mut toy = succeeded(delayed("90s"));
    toy.settle();
    let job = toy.jobs.keys().next().unwrap().clone();
    toy.delete_job(&job);
    toy.wakes_up(); // nor by a controller that knows of it from the node only
    toy.later(45);
    assert!(toy.jobs.is_empty());
    toy.later(45);
    assert!(toy.is_done("a", "p") && toy.jobs.is_empty());
    assert_eq!(toy.told_of("JobComplete").len(), 1);
}

#[test]
fn the_delay_holds_the_slot() {
    let mut toy = Toy::with(&["a", "b"], delayed("90s"));
    let first = toy.slots("p")[0].clone();
    toy.succeeds(&first);
    assert_eq!(toy.slots("p"), [first.as_str()]);
    toy.later(90);
    assert_eq!(toy.slots("p"), [if first == "a" { "b" } else { "a" }]);
}

#[test]
fn who_cordons_a_node_during_the_delay_finds_it_cordoned_after_it() {
    let mut toy = succeeded(delayed("90s"));
    toy.settle();
    toy.cordon("a");
    toy.later(90);
    assert!(toy.is_done("a", "p") && toy.is_cordoned("a"));
}

#[test]
fn a_windows_node_goes_back_to_what_it_was_before_kubectl_cordoned_it() {
    for cordoned in [false, true] {
        let mut toy = Toy::new();
        toy.add_node("win", |node| {
            node.labels = labels([(names::LABEL_HOSTNAME, "win"), (names::LABEL_OS, "windows")]);
            node.unschedulable = cordoned;
        });
        toy.apply(delayed("90s"));
        toy.upgrades("win");
        assert!(toy.is_cordoned("win") && toy.nodes["win"].it.facts.ledger.is_none());
        toy.succeeds("win");
        assert_eq!(toy.is_cordoned("win"), cordoned);
        toy.cordon("win");
        toy.later(90);
        assert!(
            toy.is_done("win", "p") && toy.is_cordoned("win"),
            "given back once"
        );
    }
}

#[test]
fn a_windows_node_that_is_not_ready_is_given_back_when_its_plan_is_deleted() {
    let mut toy = Toy::new();
    toy.add_node("win", |node| {
        node.labels = labels([(names::LABEL_HOSTNAME, "win"), (names::LABEL_OS, "windows")]);
    });
    toy.apply(plan("p"));
    toy.upgrades("win");
    toy.ready("win", false);
    toy.succeeds_unseen("win");
    toy.settle();
    toy.delete_plan("p");
    toy.settle();
    assert!(!toy.is_cordoned("win") && toy.nodes["win"].it.facts.records.is_empty());
}

#[test]
fn a_node_disabled_in_mid_upgrade_keeps_that_label_and_is_given_back() {
    for labels in [false, true] {
        let mut toy = Toy::with(
            &["a"],
            plan_with("p", |spec| {
                spec.post_complete_labels = labels.then(|| [("x".to_owned(), "y".to_owned())].into());
            }),
        );
        toy.upgrades("a");
        toy.set_done_label("a", "p", Some("disabled"));
        toy.succeeds("a");
        assert_eq!(toy.done_label("a", "p").as_deref(), Some("disabled"));
        assert!(!toy.is_cordoned("a") && toy.job_for("a").facts.recorded);
        assert_eq!(toy.told_of("JobComplete").len(), 1);
        assert!(toy.steps().is_empty(), "{:?}", toy.steps());
    }
}

#[test]
fn a_patch_that_is_refused_is_told_in_status() {
    let mut toy = succeeded(plan("p"));
    toy.decides();
    let flight = toy
        .sent()
        .into_iter()
        .find(|flight| toy.patches_node(*flight))
        .unwrap();
    toy.reaches(flight, super::toy::Fate::Forbidden);
    toy.hears(flight);
    toy.settle();
    assert_eq!(toy.entry("p", "a").reason.as_deref(), Some("NodeRefused"));
    assert_eq!(
        toy.complete("p").2,
        "Node a: the node cannot be patched: forbidden"
    );
    toy.later(60);
    assert!(toy.is_done("a", "p"));
}

#[test]
fn the_label_is_the_jobs_hash_and_expands_its_version() {
    let mut toy = Toy::with(
        &["a"],
        plan_with("p", |spec| {
            spec.post_complete_labels =
                Some([("at".to_owned(), "$(LATEST_VERSION)-$(OTHER)".to_owned())].into());
        }),
    );
    let hash = toy.hash("p");
    toy.upgrades("a");
    toy.edit("p", |spec| spec.version = Some("v2".to_owned()));
    toy.succeeds("a");
    assert_eq!(toy.done_label("a", "p"), Some(hash));
    assert_eq!(toy.nodes["a"].it.facts.labels.get("at"), Some("v1-$(OTHER)"));
}

#[test]
fn a_job_that_is_deleted_while_its_label_is_on_the_way_is_not_made_again() {
    let mut toy = Toy::with(&["a"], plan("p"));
    let job = toy.job_for("a").facts.name.to_string();
    toy.succeeds_unseen("a");
    toy.tell_all();
    toy.decides();
    let label = toy.sent().into_iter().find(|flight| toy.patches_node(*flight));
    toy.reaches(label.unwrap(), Fate::Fine);
    toy.delete_job(&job);
    while toy.kinds_waiting().contains(&Kind::Job) {
        toy.tell(Kind::Job);
    }
    toy.decides();
    let creates = toy.sent().into_iter().any(|flight| toy.creates(flight));
    assert!(!creates, "the label is stored, which the watch has not told");
    toy.settle();
    assert!(toy.is_done("a", "p") && toy.jobs.is_empty());
}

#[test]
fn a_job_that_was_never_marked_does_not_undo_what_the_next_one_did() {
    let mut toy = Toy::with(&["a"], plan("p"));
    let first = toy.job_of("a");
    toy.rolls_out();
    toy.later(1);
    toy.edit("p", |spec| spec.version = Some("v2".to_owned()));
    toy.settle();
    toy.rolls_out();
    assert!(toy.is_done("a", "p"));
    let starts: u32 = toy.laws.starts.values().sum();
    // The mark of the first was refused for so long that another controller has taken over.
    toy.change_job(&first, |job| job.facts.recorded = false);
    toy.wakes_up();
    toy.rolls_out();
    assert!(toy.is_done("a", "p"));
    assert_eq!(toy.laws.starts.values().sum::<u32>(), starts);
    assert!(toy.jobs[&first].it.facts.recorded);
}
