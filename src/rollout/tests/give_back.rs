//! Nodes are given back as they were (S60 and its deviation).

use super::build::{CONTROLLER, NAMESPACE, plan, plan_with};
use super::toy::Toy;
use crate::rollout::{Holder, Kind, Ledger, Stage};

fn holder(namespace: &str, controller: &str, plan: &str, plan_uid: &str) -> Holder {
    Holder {
        namespace: namespace.to_owned(),
        controller: controller.to_owned(),
        plan: plan.to_owned(),
        plan_uid: plan_uid.to_owned(),
        cancelled: false,
        passed: false,
        evicted: Vec::new(),
    }
}

fn cordoned() -> Toy {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.upgrades("a");
    assert!(toy.is_cordoned("a"));
    toy
}

#[test]
fn a_node_that_a_person_had_cordoned_stays_cordoned() {
    let mut toy = Toy::new();
    toy.add_nodes(&["a"]);
    toy.cordon("a");
    toy.apply(plan("p"));
    toy.runs();
    assert!(toy.is_done("a", "p") && toy.is_cordoned("a"));
    assert_eq!(toy.nodes["a"].it.facts.ledger, None);
}

#[test]
fn a_node_is_kept_cordoned_when_a_person_asks_for_it() {
    let mut toy = cordoned();
    toy.change_node("a", |node| node.facts.keep_cordoned = true);
    toy.succeeds("a");
    assert!(toy.is_done("a", "p") && toy.is_cordoned("a"));
    assert_eq!(toy.nodes["a"].it.facts.ledger, None);
}

#[test]
fn a_person_who_uncordons_ends_the_ledger() {
    let mut toy = cordoned();
    toy.uncordon("a");
    toy.settle();
    assert_eq!(toy.nodes["a"].it.facts.ledger, None);
    toy.cordon("a"); // for a reason of their own
    toy.succeeds("a");
    assert!(toy.is_done("a", "p") && toy.is_cordoned("a"));
}

#[test]
fn a_plan_without_cordon_uncordons_nothing() {
    let mut toy = Toy::new();
    toy.add_nodes(&["a"]);
    toy.cordon("a");
    toy.apply(plan_with("p", |spec| spec.cordon = None));
    toy.runs();
    assert!(toy.is_cordoned("a"));
}

#[test]
fn a_node_is_given_back_when_its_plan_is_gone_and_its_pod_too() {
    let mut toy = cordoned();
    toy.delete_plan("p");
    toy.settle();
    assert!(toy.is_cordoned("a"), "its pod is still at work");
    assert!(
        toy.world.has_work_on_nodes(),
        "so pods are still listed where they cannot be watched"
    );
    toy.runs();
    assert!(!toy.is_cordoned("a"));
    assert_eq!(toy.nodes["a"].it.facts.ledger, None);
}

#[test]
fn a_node_is_given_back_by_a_controller_that_was_not_there() {
    let mut toy = cordoned();
    toy.delete_plan("p");
    for job in toy.jobs.keys().cloned().collect::<Vec<_>>() {
        toy.job_goes(&job);
    }
    for pod in toy.pods.keys().cloned().collect::<Vec<_>>() {
        toy.pod_goes(&pod);
    }
    toy.wakes_up();
    toy.settle();
    assert!(!toy.is_cordoned("a"));
}

#[test]
fn a_node_is_given_back_when_a_plan_of_the_same_name_takes_over() {
    let mut toy = cordoned();
    toy.delete_plan("p");
    toy.apply(plan_with("p", |spec| spec.node_selector = None));
    toy.runs();
    assert!(!toy.is_cordoned("a"));
}

#[test]
fn the_last_holder_gives_the_node_back() {
    let mut toy = cordoned();
    let other = holder(NAMESPACE, CONTROLLER, "failed", "plan-x");
    toy.change_node("a", |node| {
        node.facts
            .ledger
            .as_mut()
            .unwrap()
            .holders
            .insert(0, other.clone());
    });
    toy.comes_to("a", Stage::Upgrade);
    assert_eq!(
        toy.nodes["a"].it.facts.ledger.as_ref().unwrap().holders.len(),
        1,
        "that Plan is not there"
    );
    toy.succeeds("a");
    assert!(!toy.is_cordoned("a"));
}

#[test]
fn holders_of_other_controllers_are_theirs_to_judge() {
    for other in [
        holder("elsewhere", CONTROLLER, "p", "plan-x"),
        holder(NAMESPACE, "another", "p", "plan-x"),
    ] {
        let mut toy = cordoned();
        toy.change_node("a", |node| {
            node.facts.ledger.as_mut().unwrap().holders.push(other.clone());
        });
        toy.succeeds("a");
        assert!(toy.is_done("a", "p") && toy.is_cordoned("a"));
        let ledger = Ledger {
            before: false,
            holders: vec![other],
        };
        assert_eq!(toy.nodes["a"].it.facts.ledger, Some(ledger));
    }
}

#[test]
fn what_was_before_counts_when_the_last_holder_leaves() {
    let mut toy = Toy::with(&["a"], plan("p"));
    let ledger = Ledger {
        before: true,
        holders: vec![holder(NAMESPACE, CONTROLLER, "gone", "plan-x")],
    };
    toy.cordon("a");
    toy.change_node("a", |node| node.facts.ledger = Some(ledger));
    toy.settle();
    assert!(toy.is_cordoned("a"));
    assert_eq!(toy.nodes["a"].it.facts.ledger, None);
}

#[test]
fn a_node_is_given_back_only_in_the_version_in_which_that_was_decided() {
    let mut toy = cordoned();
    toy.succeeds_unseen("a");
    toy.decides();
    let flight = toy
        .sent()
        .into_iter()
        .find(|flight| toy.patches_node(*flight))
        .unwrap();
    toy.change_node("a", |node| node.facts.keep_cordoned = true);
    toy.reaches(flight, super::toy::Fate::Fine);
    assert!(toy.is_cordoned("a"), "the person was faster");
    toy.settle();
    assert!(toy.is_done("a", "p") && toy.is_cordoned("a"));
}

#[test]
fn records_of_plans_that_are_gone_leave_the_node() {
    let mut toy = Toy::with(&["a", "b"], plan_with("p", |spec| spec.concurrency = Some(2)));
    toy.fails("a");
    assert!(!toy.nodes["a"].it.facts.records.is_empty());
    toy.delete_plan("p");
    toy.runs();
    assert!(toy.nodes["a"].it.facts.records.is_empty() && !toy.is_cordoned("a"));
}

#[test]
fn records_of_another_namespace_stay() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.fails("a");
    let mut record = toy.nodes["a"].it.facts.records["p"].clone();
    record.namespace = "elsewhere".to_owned();
    toy.change_node("a", |node| {
        node.facts.records.insert("theirs".into(), record);
    });
    toy.settle();
    assert!(toy.nodes["a"].it.facts.records.contains_key("theirs"));
    assert!(toy.steps().is_empty());
}

#[test]
fn the_watch_of_pods_may_be_behind_when_a_plan_goes() {
    let mut toy = cordoned();
    toy.delete_plan("p");
    toy.tell(Kind::Plan);
    toy.decides();
    assert!(!toy.sent().iter().any(|flight| toy.patches_node(*flight)));
}
