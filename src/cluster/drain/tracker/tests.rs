use super::EvictionEvent as Event;
use super::EvictionOutcome::{
    Accepted, Conflict, Gone, Overloaded, Refused, Terminating, TwoBudgets, Unclear,
};
use super::*;

fn start() -> Timestamp {
    "2026-01-01T09:00:00Z".parse().unwrap()
}

fn id(name: &str) -> PodId {
    PodId {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
    }
}

fn tracker<const N: usize>(names: [&str; N]) -> EvictionTracker {
    EvictionTracker::new(names.map(id), &BTreeMap::new(), Rules::default(), start())
}

const fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn refusal(why: &str) -> Refusal {
    Refusal {
        pdb: Some("web".to_owned()),
        virtual_machine: None,
        why: why.to_owned(),
    }
}

fn refused(why: &str) -> EvictionOutcome {
    Refused(refusal(why))
}

/// Expects `name` as the next pod, and applies a response.
fn evict(tracker: &mut EvictionTracker, name: &str, answer: EvictionOutcome, now: Duration) -> Option<Event> {
    let (pod, _) = tracker
        .next(now)
        .unwrap_or_else(|| panic!("{name} is not due at {now:?}"));
    assert_eq!(pod, id(name));
    tracker.apply_outcome(&pod, answer, now, false)
}

fn on_node<const N: usize>(names: [&str; N]) -> BTreeMap<String, Option<Timestamp>> {
    names.map(|name| (id(name).uid, None)).into()
}

#[test]
fn a_pod_is_evicted_when_a_list_no_longer_has_it() {
    let mut tracker = tracker(["a", "b"]);
    assert_eq!(evict(&mut tracker, "a", Accepted, at(0)), None);
    assert_eq!(evict(&mut tracker, "b", Accepted, at(0)), None);
    assert_eq!(tracker.next(at(100)), None);
    assert!(!tracker.is_over() && tracker.wants_list());
    assert_eq!(tracker.apply_list(&on_node(["a", "b"]), start()), []);
    assert_eq!(
        tracker.apply_list(&on_node(["b"]), start()),
        [Event::Gone(id("a"))]
    );
    assert!(!tracker.is_over());
    assert_eq!(tracker.apply_list(&on_node([]), start()), [Event::Gone(id("b"))]);
    assert!(tracker.is_over());
    assert_eq!((tracker.note().evicted, tracker.note().total), (2, 2));
    assert_eq!(
        tracker.apply_list(&on_node([]), start()),
        [],
        "it is reported once"
    );
}

#[test]
fn a_new_pod_of_the_same_name_is_another_pod() {
    let mut tracker = tracker(["db-0"]);
    evict(&mut tracker, "db-0", refused("no"), at(0));
    // The StatefulSet has recreated db-0 on the same node while the eviction of the first one was refused.
    let new_pod = BTreeMap::from([("another".to_owned(), None)]);
    assert_eq!(tracker.apply_list(&new_pod, start()), [Event::Gone(id("db-0"))]);
    assert_eq!(tracker.next(at(10)), None, "the new pod is not evicted");
    assert!(tracker.is_over());
}

#[test]
fn an_eviction_that_a_budget_refuses_is_retried_every_five_seconds() {
    let mut tracker = tracker(["a"]);
    let event = evict(&mut tracker, "a", refused("no"), at(0));
    assert_eq!(event, Some(Event::Refused(id("a"), refusal("no"))));
    assert_eq!(tracker.next(Duration::from_millis(4_999)), None);
    assert_eq!(tracker.wake(), Some(at(5)));
    assert_eq!(
        evict(&mut tracker, "a", refused("no"), at(5)),
        None,
        "reported once"
    );
    let event = evict(&mut tracker, "a", refused("still"), at(10));
    assert_eq!(event, Some(Event::Refused(id("a"), refusal("still"))));
    let note = tracker.note();
    assert_eq!(note.waiting.len(), 1);
    assert_eq!(note.waiting[0].since, start(), "since the first refusal");
    assert_eq!(
        (note.waiting[0].pod.as_str(), note.waiting[0].pdb.as_deref()),
        ("shop/a", Some("web"))
    );
    assert_eq!(evict(&mut tracker, "a", Accepted, at(15)), None);
    assert_eq!(tracker.note().waiting, []);
}

#[test]
fn a_group_begins_when_the_one_before_is_gone_and_never_after_a_failure() {
    let later = BTreeMap::from([(id("db"), 1), (id("osd"), 2)]);
    let new = || EvictionTracker::new(["a", "db", "osd"].map(id), &later, Rules::default(), start());
    let mut tracker = new();
    assert_eq!(tracker.next(at(0)), Some((id("a"), true)));
    assert_eq!(tracker.next(at(0)), None, "the first group is not gone");
    tracker.apply_outcome(&id("a"), Accepted, at(0), false);
    assert_eq!(
        (tracker.next(at(9)), tracker.is_over()),
        (None, false),
        "a is terminating"
    );
    tracker.apply_list(&on_node(["db", "osd"]), start());
    assert_eq!(tracker.next(at(9)), Some((id("db"), true)));
    tracker.apply_outcome(&id("db"), refused("no"), at(9), false);
    assert_eq!(
        (tracker.next(at(10)), tracker.wake()),
        (None, Some(at(14))),
        "only db is tried again"
    );
    tracker.apply_outcome(&id("db"), Gone, at(14), false);
    let mut failed = new();
    failed.next(at(0));
    failed.apply_outcome(&id("a"), TwoBudgets("two".to_owned()), at(0), false);
    assert_eq!(
        (failed.next(at(9)), failed.is_over()),
        (None, true),
        "storage stays"
    );
}

#[test]
fn pods_without_a_try_come_before_pods_that_were_refused() {
    let mut tracker = tracker(["a", "b"]);
    evict(&mut tracker, "a", refused("no"), at(0));
    assert_eq!(tracker.next(at(60)), Some((id("b"), true)));
    assert_eq!(tracker.next(at(60)), Some((id("a"), false)));
}

#[test]
fn an_overloaded_server_delays_all_evictions_and_is_not_reported_as_a_budget() {
    let mut tracker = tracker(["a", "b"]);
    let overloaded = || Overloaded(at(1));
    assert_eq!(evict(&mut tracker, "a", overloaded(), at(0)), None);
    assert_eq!(tracker.next(Duration::from_millis(999)), None);
    assert_eq!(tracker.wake(), Some(at(1)));
    assert_eq!(tracker.note().waiting, []);
    evict(&mut tracker, "b", overloaded(), at(1));
    assert_eq!(
        (tracker.next(at(2)), tracker.wake()),
        (None, Some(at(3))),
        "twice as long"
    );
    evict(&mut tracker, "a", overloaded(), at(3));
    evict(&mut tracker, "a", overloaded(), at(7));
    assert_eq!(tracker.wake(), Some(at(12)), "at most five seconds");
    evict(&mut tracker, "a", Accepted, at(12));
    evict(&mut tracker, "b", overloaded(), at(12));
    assert_eq!(tracker.wake(), Some(at(13)), "from the beginning");
}

#[test]
fn a_pod_that_cannot_be_evicted_ends_the_drain_once_all_others_were_tried() {
    let mut tracker = tracker(["a", "b", "c"]);
    evict(&mut tracker, "a", refused("no"), at(0));
    let event = evict(&mut tracker, "b", TwoBudgets("two".to_owned()), at(0));
    assert_eq!(event, Some(Event::Failed(id("b"), "two".to_owned())));
    assert!(!tracker.is_over(), "c was not tried yet");
    evict(&mut tracker, "c", Accepted, at(0));
    assert!(tracker.is_over());
    assert_eq!(
        (tracker.next(at(60)), tracker.wake()),
        (None, None),
        "a is not tried again"
    );
    let pending: Vec<_> = tracker.pending().collect();
    assert_eq!(pending, [(&id("a"), false), (&id("b"), false), (&id("c"), true)]);
    assert_eq!(tracker.failures().collect::<Vec<_>>(), [(&id("b"), "two")]);
}

#[test]
fn an_eviction_without_a_clear_response_is_retried_for_a_minute() {
    let mut tracker = tracker(["a"]);
    let unclear = || Unclear("connection refused".to_owned());
    for second in (0..60).step_by(5) {
        assert_eq!(evict(&mut tracker, "a", unclear(), at(second)), None, "{second}");
    }
    let event = evict(&mut tracker, "a", unclear(), at(60));
    assert_eq!(
        event,
        Some(Event::Failed(id("a"), "connection refused".to_owned()))
    );

    let mut tracker = self::tracker(["a"]);
    evict(&mut tracker, "a", unclear(), at(0));
    evict(&mut tracker, "a", refused("no"), at(55));
    assert_eq!(
        evict(&mut tracker, "a", unclear(), at(60)),
        None,
        "a minute from then on"
    );
}

#[test]
fn pods_of_a_namespace_that_is_being_deleted_are_waited_for() {
    let mut tracker = tracker(["a"]);
    let event = evict(
        &mut tracker,
        "a",
        Terminating("being terminated".to_owned()),
        at(0),
    );
    assert!(matches!(
        event,
        Some(Event::Refused(_, Refusal { pdb: None, .. }))
    ));
    let leaving = BTreeMap::from([(id("a").uid, Some(start()))]);
    assert_eq!(tracker.apply_list(&leaving, start()), []);
    assert_eq!(tracker.next(at(60)), None, "it is being deleted");
    assert_eq!(tracker.apply_list(&on_node([]), start()), [Event::Gone(id("a"))]);
}

#[test]
fn an_eviction_with_a_conflict_is_retried() {
    let mut tracker = tracker(["a"]);
    assert_eq!(evict(&mut tracker, "a", Conflict, at(0)), None);
    assert_eq!(tracker.wake(), Some(at(1)));
    assert_eq!(evict(&mut tracker, "a", Gone, at(1)), Some(Event::Gone(id("a"))));
}

#[test]
fn a_pod_that_may_have_been_replaced_is_looked_up() {
    let mut tracker = tracker(["a"]);
    // It was evicted without a response, and its successor has its name.
    assert_eq!(evict(&mut tracker, "a", Unclear("504".to_owned()), at(0)), None);
    assert!(!tracker.wants_list());
    assert_eq!(evict(&mut tracker, "a", Conflict, at(5)), None);
    assert!(tracker.wants_list() && !tracker.is_over());
    assert_eq!(tracker.apply_list(&on_node([]), start()), [Event::Gone(id("a"))]);
    assert!(tracker.is_over() && !tracker.wants_list());
}

#[test]
fn a_pod_that_does_not_end_is_skipped_after_the_timeout_of_the_flag() {
    let rules = Rules {
        skip_wait_for_delete: 10,
        ..Rules::default()
    };
    let mut tracker = EvictionTracker::new([id("a")], &BTreeMap::new(), rules, start());
    evict(&mut tracker, "a", Accepted, at(0));
    let stuck = BTreeMap::from([(id("a").uid, Some(start()))]);
    let after = |seconds| start() + SignedDuration::from_secs(seconds);
    assert_eq!(tracker.apply_list(&stuck, after(10)), []);
    assert_eq!(tracker.apply_list(&stuck, after(11)), [Event::GivenUp(id("a"))]);
    assert!(tracker.is_over());
    assert_eq!((tracker.note().evicted, tracker.pending().count()), (0, 0));
}

#[test]
fn a_list_that_arrives_before_a_response_counts() {
    let mut tracker = tracker(["a"]);
    let (pod, first) = tracker.next(at(0)).unwrap();
    assert!(first);
    assert_eq!(tracker.apply_list(&on_node([]), start()), [Event::Gone(id("a"))]);
    assert_eq!(tracker.apply_outcome(&pod, refused("late"), at(1), false), None);
    assert!(tracker.is_over());
}

#[test]
fn in_a_dry_run_a_refusal_is_the_result() {
    let mut tracker = tracker(["a", "b"]);
    for (name, answer) in [("a", Accepted), ("b", refused("no"))] {
        let (pod, _) = tracker.next(at(0)).unwrap();
        assert_eq!(pod, id(name));
        tracker.apply_outcome(&pod, answer, at(0), true);
    }
    assert!(tracker.is_over());
    assert_eq!(tracker.failures().collect::<Vec<_>>(), [(&id("b"), "no")]);
}

#[test]
fn a_note_names_the_longest_waits_and_counts_the_others() {
    let mut tracker = tracker(["a", "b", "c", "d", "e"]);
    for name in ["a", "b", "c", "d"] {
        evict(&mut tracker, name, refused("no"), at(0));
    }
    evict(&mut tracker, "e", refused("no"), at(2));
    let note = tracker.note();
    let named: Vec<_> = note.waiting.iter().map(|wait| wait.pod.as_str()).collect();
    assert_eq!((named, note.more), (vec!["shop/a", "shop/b", "shop/c"], 2));
}
