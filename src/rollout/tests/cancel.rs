//! A drain that the Plan no longer asks for is told to stop (design: change while running).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;

use super::build::{CONTROLLER, NAMESPACE, plan, plan_with};
use super::toy::{Cordon, Fate, Toy};
use crate::api::{DrainSpec, PlanSpec};
use crate::rollout::{Holder, Kind, Ledger, NodeFacts, Outcome, Stage, Step};

/// A Plan whose drain of node `a` goes on.
fn draining() -> Toy {
    let mut toy = Toy::with(
        &["a"],
        plan_with("p", |spec| spec.drain = Some(DrainSpec::default())),
    );
    toy.comes_to("a", Stage::Drain);
    assert!(toy.is_cordoned("a"));
    toy
}

fn holders(node: &NodeFacts) -> &[Holder] {
    node.ledger.as_ref().map_or(&[], |ledger| &ledger.holders)
}

fn is_cancelled(toy: &Toy) -> bool {
    let held = holders(&toy.nodes["a"].it.facts);
    !held.is_empty() && held.iter().all(|holder| holder.cancelled)
}

fn to_v2(spec: &mut PlanSpec) {
    spec.version = Some("v2".to_owned());
}

fn with_args(spec: &mut PlanSpec) {
    spec.upgrade.args = Some(vec!["--new".to_owned()]);
}

/// How many upgrades have begun.
fn upgrades(toy: &Toy) -> u32 {
    toy.laws.starts.values().sum()
}

#[test]
fn a_drain_that_is_no_longer_asked_for_is_stopped_and_the_next_job_follows() {
    for edit in [to_v2, with_args] {
        let mut toy = draining();
        let old = toy.job_for("a").facts.clone();
        assert!(old.backoff_limit > 0);
        toy.edit("p", edit);
        toy.settle();
        let job = &toy.job_for("a").facts;
        assert_eq!((&job.uid, job.backoff_limit), (&old.uid, 0));
        assert!(is_cancelled(&toy) && toy.is_cordoned("a"));
        assert!(toy.steps().is_empty(), "said once is enough");
        toy.later(1);
        let entry = toy.entry("p", "a");
        assert_eq!(
            (entry.phase.as_str(), entry.reason.as_deref()),
            ("Draining", Some("Cancelled"))
        );

        toy.rolls_out();
        assert!(toy.is_done("a", "p") && !toy.is_cordoned("a"));
        assert!(toy.nodes["a"].it.facts.ledger.is_none() && toy.nodes["a"].it.facts.records.is_empty());
        assert_eq!(upgrades(&toy), 1, "the old Job never came to its own");
        assert!(toy.told_of("JobFailed").is_empty(), "it was asked to");
        let new = toy.jobs_for("a").into_iter().find(|job| job.upgraded).unwrap();
        assert_eq!(
            (new.facts.attempt, new.facts.inputs.as_deref()),
            (1, toy.world.inputs("p"))
        );
    }
}

#[test]
fn the_job_gets_no_further_pod_before_its_drain_is_told() {
    let mut toy = draining();
    toy.edit("p", to_v2);
    toy.tell_all();
    toy.decides();
    let first: Vec<_> = toy.steps();
    assert!(
        first
            .iter()
            .any(|step| matches!(step, Step::EndRetries { limit: 0, .. })),
        "{first:?}"
    );
    assert!(
        !first.iter().any(|step| matches!(step, Step::PatchNode { .. })),
        "{first:?}"
    );
    let job = toy.job_for("a").facts.name.to_string();
    toy.rounds_until(|toy| toy.jobs[&job].it.facts.backoff_limit == 0);
    assert!(!is_cancelled(&toy));
    toy.rounds_until(is_cancelled);
}

#[test]
fn failures_that_a_job_has_are_not_held_against_the_pod_that_runs() {
    let mut toy = draining();
    let pod = toy.pods.keys().next().unwrap().clone();
    toy.pod_ends(&pod, false);
    toy.comes_to("a", Stage::Drain);
    toy.edit("p", to_v2);
    toy.settle();
    let job = &toy.job_for("a").facts;
    assert_eq!((job.failures, job.backoff_limit), (1, 1));
    assert!(is_cancelled(&toy) && job.outcome == Outcome::Running);
    toy.rolls_out();
    assert!(toy.is_done("a", "p"));
    assert_eq!(upgrades(&toy), 1);
}

#[test]
fn a_pod_that_is_seen_to_fail_counts_before_its_job_says_so() {
    let mut toy = draining();
    let pod = toy.pods.keys().next().unwrap().clone();
    toy.pod_ends(&pod, false);
    toy.comes_to("a", Stage::Drain);
    let job = toy.job_for("a").facts.name.to_string();
    toy.change_job(&job, |job| job.facts.failures = 0);
    toy.edit("p", to_v2);
    toy.tell_all();
    let steps = toy.steps();
    assert!(
        steps
            .iter()
            .any(|step| matches!(step, Step::EndRetries { limit: 1, .. })),
        "{steps:?}"
    );
}

#[test]
fn a_limit_is_lowered_only_in_the_version_in_which_that_was_decided() {
    let mut toy = draining();
    let (job, limit) = (toy.job_of("a"), toy.job_for("a").facts.backoff_limit);
    toy.edit("p", to_v2);
    toy.tell_all();
    toy.decides();
    toy.change_job(&job, |job| job.facts.failures = 1);
    for flight in toy.sent() {
        toy.reaches(flight, Fate::Fine);
    }
    assert_eq!(
        toy.jobs[&job].it.facts.backoff_limit, limit,
        "below its failures it would end at once"
    );
    toy.settle();
    assert_eq!(toy.jobs[&job].it.facts.backoff_limit, 1);
}

#[test]
fn a_drain_that_gets_through_first_is_let_finish() {
    let mut toy = draining();
    let v1 = toy.hash("p");
    toy.edit("p", to_v2);
    toy.rounds_until(|toy| toy.sent().iter().any(|flight| toy.patches_node(*flight)));
    let pod = toy.pods.keys().next().unwrap().clone();
    toy.play_go(&pod); // its last act, and the mark is on its way
    toy.settle();
    assert!(!is_cancelled(&toy) && holders(&toy.nodes["a"].it.facts)[0].passed);
    toy.succeeds("a");
    assert_eq!(toy.done_label("a", "p"), Some(v1));
    toy.rolls_out();
    assert!(toy.is_done("a", "p") && !toy.is_cordoned("a"));
    assert_eq!(upgrades(&toy), 2);
}

#[test]
fn what_keeps_no_ledger_cannot_be_told_and_is_let_finish() {
    for foreign in [false, true] {
        let mut toy = Toy::new();
        toy.add_node("a", |node| {
            let os = if foreign { "linux" } else { "windows" };
            let pairs = node.labels.iter().map(|(key, value)| (key.into(), value.into()));
            let os = ("kubernetes.io/os".into(), os.into());
            node.labels = crate::rollout::Labels::new(pairs.chain([os]).collect::<Vec<_>>());
        });
        toy.apply(plan_with("p", |spec| {
            spec.drain = Some(DrainSpec::default());
            spec.concurrency = Some(i64::from(!foreign));
        }));
        toy.settle();
        if foreign {
            let hash = toy.hash("p");
            let job = toy.suc_job("apply-p", "p", "a", &hash);
            toy.add_suc_job(job, true);
        }
        toy.comes_to("a", Stage::Drain);
        let job = toy.job_for("a").clone();
        assert_eq!(job.cordon, Cordon::Kubectl);
        // What an earlier Job of the Plan has left there is not this one's.
        let holder = Holder {
            namespace: NAMESPACE.to_owned(),
            controller: CONTROLLER.to_owned(),
            plan: "p".to_owned(),
            plan_uid: job.facts.plan_uid.to_string(),
            cancelled: false,
            passed: false,
            evicted: Vec::new(),
        };
        toy.change_node("a", |node| {
            node.facts.ledger = Ledger::entered(None, false, holder).ok();
        });
        toy.edit("p", to_v2);
        toy.settle();
        assert_eq!(toy.job_for("a").facts, job.facts);
        assert!(toy.steps().is_empty());
    }
}

#[test]
fn a_node_that_leaves_the_plan_in_mid_drain_is_given_back_and_not_upgraded() {
    for disable in [false, true] {
        let mut toy = draining();
        if disable {
            toy.set_done_label("a", "p", Some("disabled"));
        } else {
            toy.edit("p", |spec| spec.node_selector = None);
        }
        toy.settle();
        assert!(
            is_cancelled(&toy) && toy.is_cordoned("a"),
            "not before the pod is gone"
        );
        toy.runs();
        assert!(!toy.is_cordoned("a") && toy.nodes["a"].it.facts.ledger.is_none());
        assert_eq!(upgrades(&toy), 0);
        assert!(toy.told_of("JobFailed").is_empty() && toy.slots("p").is_empty());
    }
}

#[test]
fn a_mistake_in_a_plan_stops_nobody() {
    let mistakes: [fn(&mut PlanSpec); 3] = [
        |spec| spec.version = None,
        |spec| {
            with_args(spec);
            spec.post_complete_delay = Some("soon".to_owned());
        },
        |spec| spec.node_selector.get_or_insert_default().match_expressions = Some(vec![unreadable()]),
    ];
    for mistake in mistakes {
        let mut toy = draining();
        let job = toy.job_for("a").facts.clone();
        toy.edit("p", mistake);
        toy.settle();
        assert_eq!(toy.job_for("a").facts, job);
        assert!(!is_cancelled(&toy));
    }
}

fn unreadable() -> LabelSelectorRequirement {
    LabelSelectorRequirement {
        key: "pool".to_owned(),
        operator: "Beside".to_owned(),
        values: None,
    }
}

#[test]
fn an_edit_that_is_taken_back_leads_to_one_upgrade_all_the_same() {
    let mut toy = draining();
    toy.edit("p", to_v2);
    toy.settle();
    toy.edit("p", |spec| spec.version = Some("v1".to_owned()));
    toy.settle();
    toy.rolls_out();
    assert!(toy.is_done("a", "p") && !toy.is_cordoned("a"));
    assert_eq!(toy.done_label("a", "p"), Some(toy.hash("p")));
    assert_eq!(upgrades(&toy), 1);
    assert!(toy.told_of("JobFailed").is_empty());
}

#[test]
fn no_job_follows_before_the_word_is_taken_back() {
    let mut toy = draining();
    toy.edit("p", to_v2);
    toy.settle();
    let old = toy.job_for("a").facts.name.to_string();
    let pod = toy.pods.keys().next().unwrap().clone();
    toy.play_go(&pod);
    toy.play_end(&old);
    toy.play_end(&old);
    assert!(matches!(toy.jobs[&old].it.facts.outcome, Outcome::Failed { .. }));
    // Whoever takes over at any time goes on from what is written.
    for _ in 0..12 {
        let (cancelled, jobs) = (is_cancelled(&toy), toy.jobs.len());
        assert!(!cancelled || jobs == 1, "its drain would stop");
        assert!(
            cancelled || toy.jobs[&old].it.facts.recorded,
            "it would count as a failure"
        );
        toy.one_round(Fate::Fine);
    }
    assert_eq!(toy.jobs.len(), 2);
    toy.rolls_out();
    assert!(toy.is_done("a", "p"));
    assert_eq!(toy.nodes["a"].it.facts.ledger, None);
}

#[test]
fn a_job_that_is_deleted_while_it_is_being_stopped_leaves_no_word_behind() {
    let mut toy = draining();
    toy.edit("p", to_v2);
    toy.settle();
    let old = toy.job_for("a").facts.name.to_string();
    toy.delete_job(&old);
    toy.settle();
    assert!(
        is_cancelled(&toy) && toy.jobs.is_empty(),
        "its pod may still hear of it"
    );
    toy.rolls_out();
    assert!(toy.is_done("a", "p") && !toy.is_cordoned("a"));
    assert_eq!(upgrades(&toy), 1);
}

#[test]
fn a_drain_that_is_still_asked_for_is_left_alone() {
    let mut toy = draining();
    let job = toy.job_for("a").facts.clone();
    toy.edit("p", |spec| spec.concurrency = Some(7));
    toy.settle();
    assert_eq!(toy.job_for("a").facts, job);
    assert!(!is_cancelled(&toy));
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.comes_to("a", Stage::Cordon);
    toy.edit("p", to_v2);
    toy.settle();
    assert!(!is_cancelled(&toy), "a cordon is through as soon as it is seen");
}

#[test]
fn a_word_that_comes_too_late_does_not_stop_the_next_drain() {
    let mut toy = draining();
    toy.change_node("a", |node| {
        node.facts.ledger.as_mut().unwrap().holders[0].cancelled = true;
    });
    assert!(is_cancelled(&toy));
    toy.settle();
    assert!(!is_cancelled(&toy), "nobody has told this Job to stop");
    toy.rolls_out();
    assert!(toy.is_done("a", "p") && !toy.is_cordoned("a"));
}

#[test]
fn no_job_is_made_while_a_word_for_the_one_before_is_on_its_way() {
    let mut toy = draining();
    toy.edit("p", to_v2);
    toy.rounds_until(|toy| toy.job_for("a").facts.backoff_limit == 0);
    toy.decides();
    let word = *toy.sent().last().unwrap();
    let old = toy.job_for("a").facts.name.to_string();
    toy.delete_job(&old);
    let pod = toy.pods.keys().next().unwrap().clone();
    toy.pod_goes(&pod);
    for _ in 0..6 {
        for kind in [Kind::Plan, Kind::Job, Kind::Pod] {
            toy.tell(kind);
        }
        toy.decides();
        for other in toy.sent() {
            if other != word {
                toy.reaches(other, Fate::Fine);
                toy.hears(other);
            }
        }
        assert!(toy.jobs.is_empty());
    }
    toy.reaches(word, Fate::Fine);
    toy.hears(word);
    toy.rolls_out();
    assert!(toy.is_done("a", "p") && !toy.is_cordoned("a"));
}
