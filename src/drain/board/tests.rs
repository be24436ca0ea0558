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

fn board<const N: usize>(names: [&str; N]) -> Board {
    Board::new(names.map(id), Rules::default(), start())
}

const fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn refusal(why: &str) -> Refusal {
    Refusal {
        pdb: Some("web".to_owned()),
        why: why.to_owned(),
    }
}

/// Asks for the next pod, which is `name`, and answers.
fn ask(board: &mut Board, name: &str, answer: Answer, now: Duration) -> Option<News> {
    let (pod, _) = board
        .next(now)
        .unwrap_or_else(|| panic!("{name} is not due at {now:?}"));
    assert_eq!(pod, id(name));
    board.answered(&pod, answer, now, false)
}

fn on_node<const N: usize>(names: [&str; N]) -> BTreeMap<String, Option<Timestamp>> {
    names.map(|name| (id(name).uid, None)).into()
}

#[test]
fn a_pod_is_evicted_when_a_list_no_longer_has_it() {
    let mut board = board(["a", "b"]);
    assert_eq!(ask(&mut board, "a", Answer::Accepted, at(0)), None);
    assert_eq!(ask(&mut board, "b", Answer::Accepted, at(0)), None);
    assert_eq!(board.next(at(100)), None);
    assert!(!board.is_over() && board.wants_list());
    assert_eq!(board.seen(&on_node(["a", "b"]), start()), []);
    assert_eq!(board.seen(&on_node(["b"]), start()), [News::Gone(id("a"))]);
    assert!(!board.is_over());
    assert_eq!(board.seen(&on_node([]), start()), [News::Gone(id("b"))]);
    assert!(board.is_over());
    assert_eq!((board.note().evicted, board.note().total), (2, 2));
    assert_eq!(board.seen(&on_node([]), start()), [], "it is told once");
}

#[test]
fn a_namesake_is_another_pod() {
    let mut board = board(["db-0"]);
    ask(&mut board, "db-0", Answer::Refused(refusal("no")), at(0));
    // The StatefulSet has made db-0 again on the same node while the first one was refused.
    let namesake = BTreeMap::from([("another".to_owned(), None)]);
    assert_eq!(board.seen(&namesake, start()), [News::Gone(id("db-0"))]);
    assert_eq!(board.next(at(10)), None, "the namesake is not asked to go");
    assert!(board.is_over());
}

#[test]
fn what_a_budget_refuses_is_asked_again_every_five_seconds() {
    let mut board = board(["a"]);
    let news = ask(&mut board, "a", Answer::Refused(refusal("no")), at(0));
    assert_eq!(news, Some(News::Refused(id("a"), refusal("no"))));
    assert_eq!(board.next(Duration::from_millis(4_999)), None);
    assert_eq!(board.wake(), Some(at(5)));
    assert_eq!(
        ask(&mut board, "a", Answer::Refused(refusal("no")), at(5)),
        None,
        "told once"
    );
    let news = ask(&mut board, "a", Answer::Refused(refusal("still")), at(10));
    assert_eq!(news, Some(News::Refused(id("a"), refusal("still"))));
    let note = board.note();
    assert_eq!(note.waiting.len(), 1);
    assert_eq!(note.waiting[0].since, start(), "since the first refusal");
    assert_eq!(
        (note.waiting[0].pod.as_str(), note.waiting[0].pdb.as_deref()),
        ("shop/a", Some("web"))
    );
    assert_eq!(ask(&mut board, "a", Answer::Accepted, at(15)), None);
    assert_eq!(board.note().waiting, []);
}

#[test]
fn those_that_were_never_asked_come_before_those_that_were_refused() {
    let mut board = board(["a", "b"]);
    ask(&mut board, "a", Answer::Refused(refusal("no")), at(0));
    assert_eq!(board.next(at(60)), Some((id("b"), true)));
    assert_eq!(board.next(at(60)), Some((id("a"), false)));
}

#[test]
fn an_overloaded_server_is_left_alone_by_all_and_is_no_budget() {
    let mut board = board(["a", "b"]);
    let overloaded = || Answer::Overloaded(at(1));
    assert_eq!(ask(&mut board, "a", overloaded(), at(0)), None);
    assert_eq!(board.next(Duration::from_millis(999)), None);
    assert_eq!(board.wake(), Some(at(1)));
    assert_eq!(board.note().waiting, []);
    ask(&mut board, "b", overloaded(), at(1));
    assert_eq!(
        (board.next(at(2)), board.wake()),
        (None, Some(at(3))),
        "twice as long"
    );
    ask(&mut board, "a", overloaded(), at(3));
    ask(&mut board, "a", overloaded(), at(7));
    assert_eq!(board.wake(), Some(at(12)), "at most five seconds");
    ask(&mut board, "a", Answer::Accepted, at(12));
    ask(&mut board, "b", overloaded(), at(12));
    assert_eq!(board.wake(), Some(at(13)), "from the beginning");
}

#[test]
fn a_pod_that_will_not_go_ends_the_drain_once_all_others_were_asked() {
    let mut board = board(["a", "b", "c"]);
    ask(&mut board, "a", Answer::Refused(refusal("no")), at(0));
    let news = ask(&mut board, "b", Answer::TwoBudgets("two".to_owned()), at(0));
    assert_eq!(news, Some(News::Failed(id("b"), "two".to_owned())));
    assert!(!board.is_over(), "c has not been asked");
    ask(&mut board, "c", Answer::Accepted, at(0));
    assert!(board.is_over());
    assert_eq!(
        (board.next(at(60)), board.wake()),
        (None, None),
        "a is not asked again"
    );
    let pending: Vec<_> = board.pending().collect();
    assert_eq!(pending, [(&id("a"), false), (&id("b"), false), (&id("c"), true)]);
    assert_eq!(board.failures().collect::<Vec<_>>(), [(&id("b"), "two")]);
}

#[test]
fn without_a_clear_answer_it_goes_on_for_a_minute() {
    let mut board = board(["a"]);
    let unclear = || Answer::Unclear("connection refused".to_owned());
    for second in (0..60).step_by(5) {
        assert_eq!(ask(&mut board, "a", unclear(), at(second)), None, "{second}");
    }
    let news = ask(&mut board, "a", unclear(), at(60));
    assert_eq!(news, Some(News::Failed(id("a"), "connection refused".to_owned())));

    let mut board = self::board(["a"]);
    ask(&mut board, "a", unclear(), at(0));
    ask(&mut board, "a", Answer::Refused(refusal("no")), at(55));
    assert_eq!(
        ask(&mut board, "a", unclear(), at(60)),
        None,
        "a minute from then on"
    );
}

#[test]
fn in_a_namespace_that_is_being_deleted_pods_go_by_themselves() {
    let mut board = board(["a"]);
    let news = ask(
        &mut board,
        "a",
        Answer::Terminating("being terminated".to_owned()),
        at(0),
    );
    assert!(matches!(news, Some(News::Refused(_, Refusal { pdb: None, .. }))));
    let leaving = BTreeMap::from([(id("a").uid, Some(start()))]);
    assert_eq!(board.seen(&leaving, start()), []);
    assert_eq!(board.next(at(60)), None, "it has been told to go");
    assert_eq!(board.seen(&on_node([]), start()), [News::Gone(id("a"))]);
}

#[test]
fn a_pod_that_changed_meanwhile_is_asked_again() {
    let mut board = board(["a"]);
    assert_eq!(ask(&mut board, "a", Answer::Conflict, at(0)), None);
    assert_eq!(board.wake(), Some(at(1)));
    assert_eq!(
        ask(&mut board, "a", Answer::Gone, at(1)),
        Some(News::Gone(id("a")))
    );
}

#[test]
fn a_pod_that_may_be_another_one_by_now_is_looked_for() {
    let mut board = board(["a"]);
    // It was evicted, and nobody said so; its successor has its name.
    assert_eq!(
        ask(&mut board, "a", Answer::Unclear("504".to_owned()), at(0)),
        None
    );
    assert!(!board.wants_list());
    assert_eq!(ask(&mut board, "a", Answer::Conflict, at(5)), None);
    assert!(board.wants_list() && !board.is_over());
    assert_eq!(board.seen(&on_node([]), start()), [News::Gone(id("a"))]);
    assert!(board.is_over() && !board.wants_list());
}

#[test]
fn a_pod_that_does_not_end_is_given_up_where_that_is_asked_for() {
    let rules = Rules {
        skip_wait_for_delete: 10,
        ..Rules::default()
    };
    let mut board = Board::new([id("a")], rules, start());
    ask(&mut board, "a", Answer::Accepted, at(0));
    let stuck = BTreeMap::from([(id("a").uid, Some(start()))]);
    let after = |seconds| start() + SignedDuration::from_secs(seconds);
    assert_eq!(board.seen(&stuck, after(10)), []);
    assert_eq!(board.seen(&stuck, after(11)), [News::GivenUp(id("a"))]);
    assert!(board.is_over());
    assert_eq!((board.note().evicted, board.pending().count()), (0, 0));
}

#[test]
fn a_list_that_is_faster_than_an_answer_is_believed() {
    let mut board = board(["a"]);
    let (pod, first) = board.next(at(0)).unwrap();
    assert!(first);
    assert_eq!(board.seen(&on_node([]), start()), [News::Gone(id("a"))]);
    assert_eq!(
        board.answered(&pod, Answer::Refused(refusal("late")), at(1), false),
        None
    );
    assert!(board.is_over());
}

#[test]
fn in_a_dry_run_a_refusal_is_the_result() {
    let mut board = board(["a", "b"]);
    for (name, answer) in [("a", Answer::Accepted), ("b", Answer::Refused(refusal("no")))] {
        let (pod, _) = board.next(at(0)).unwrap();
        assert_eq!(pod, id(name));
        board.answered(&pod, answer, at(0), true);
    }
    assert!(board.is_over());
    assert_eq!(board.failures().collect::<Vec<_>>(), [(&id("b"), "no")]);
}

#[test]
fn a_note_names_the_longest_waits_and_counts_the_others() {
    let mut board = board(["a", "b", "c", "d", "e"]);
    for name in ["a", "b", "c", "d"] {
        ask(&mut board, name, Answer::Refused(refusal("no")), at(0));
    }
    ask(&mut board, "e", Answer::Refused(refusal("no")), at(2));
    let note = board.note();
    let named: Vec<_> = note.waiting.iter().map(|wait| wait.pod.as_str()).collect();
    assert_eq!((named, note.more), (vec!["shop/a", "shop/b", "shop/c"], 2));
}
