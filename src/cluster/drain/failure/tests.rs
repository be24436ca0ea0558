use std::collections::BTreeMap;

use std::time::Duration;

use super::*;
use crate::drain::outcome::{EvictionOutcome, Refusal};
use crate::drain::pods::{PodId, Rules};

fn id(name: &str) -> PodId {
    PodId {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
    }
}

/// A tracker in which each pod has its response.
fn tracker(answers: &[(&str, EvictionOutcome)]) -> EvictionTracker {
    let pods: Vec<_> = answers.iter().map(|(name, _)| id(name)).collect();
    let mut tracker = EvictionTracker::new(
        pods,
        &BTreeMap::new(),
        Rules::default(),
        "2026-01-01T09:00:00Z".parse().unwrap(),
    );
    for _ in 0..answers.len() {
        let (pod, _) = tracker.next(Duration::ZERO).unwrap();
        let (_, answer) = answers.iter().find(|(name, _)| *name == pod.name).unwrap();
        tracker.apply_outcome(&pod, answer.clone(), Duration::ZERO, false);
    }
    tracker
}

fn refused(pdb: &str) -> EvictionOutcome {
    EvictionOutcome::Refused(Refusal {
        pdb: Some(pdb.to_owned()),
        virtual_machine: None,
        why: format!("The disruption budget {pdb} needs 2 healthy pods and has 2 currently"),
    })
}

#[test]
fn the_last_line_says_what_is_gone_and_why_the_others_are_not() {
    let tracker = tracker(&[
        ("a", EvictionOutcome::Gone),
        ("b", refused("web")),
        ("c", EvictionOutcome::Accepted),
        ("d", EvictionOutcome::TwoBudgets("two".to_owned())),
    ]);
    assert_eq!(
        last_line("global timeout reached: 30s", &tracker),
        "global timeout reached: 30s; 1 of 4 pods are gone; shop/d: two; shop/b waits for PodDisruptionBudget web since \
         2026-01-01T09:00:00Z (The disruption budget web needs 2 healthy pods and has 2 currently); shop/c is still \
         terminating"
    );
}

#[test]
fn the_last_line_is_no_longer_than_what_status_shows_of_it() {
    let names: Vec<_> = (0..300).map(|number| format!("pod-{number:03}")).collect();
    let answers: Vec<_> = names.iter().map(|name| (name.as_str(), refused("web"))).collect();
    let line = last_line("ended by SIGTERM", &tracker(&answers));
    assert!(
        line.len() < 512 - "error: unable to drain node".len(),
        "{}: {line}",
        line.len()
    );
    assert!(
        line.contains("shop/pod-000 waits for PodDisruptionBudget web"),
        "{line}"
    );
    assert!(
        line.contains("0 of 300 pods are gone") && line.ends_with(" more"),
        "{line}"
    );
}

#[test]
fn one_failure_names_all_nodes() {
    let failed = |text: &str| Failure::new(text.to_owned());
    assert_eq!(all_or("drain", &[]), Ok(()));
    let two = vec![("one".to_owned(), failed("x")), ("two".to_owned(), failed("y"))];
    let expected = "unable to drain node \"one\": x\nerror: unable to drain node \"two\": y";
    assert_eq!(all_or("drain", &two), Err(failed(expected)));
    let expected = Failure::stopped("SIGTERM", "unable to drain node \"one\": z".to_owned());
    let stopped = Failure::stopped("SIGTERM", "z".to_owned());
    assert_eq!(all_or("drain", &[("one".to_owned(), stopped)]), Err(expected));
}
