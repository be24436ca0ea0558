//! Events, in system-upgrade-controller's words (S63): each once.

use super::build::{plan, plan_with};
use super::toy::{Fate, Toy};
use crate::api::TimeWindowSpec;
use crate::rollout::{Event, EventType, Step};

#[test]
fn a_roll_out_tells_its_story_in_these_words() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.rolls_out();
    let hash = toy.hash("p");
    assert_eq!(
        toy.told,
        [
            "Validated Plan is valid".to_owned(),
            "Resolved Resolved latest version from Spec.Version: v1".to_owned(),
            format!("SyncJob Jobs synced for version v1 on Nodes a. Hash: {hash}"),
            "JobComplete Job completed on Node a".to_owned(),
            format!("Complete Jobs complete for version v1. Hash: {hash}"),
        ]
    );
}

#[test]
fn nodes_are_joined_by_commas() {
    let toy = Toy::with(
        &["b", "a", "c"],
        plan_with("p", |spec| spec.concurrency = Some(3)),
    );
    let text = format!(
        "Jobs synced for version v1 on Nodes a,b,c. Hash: {}",
        toy.hash("p")
    );
    assert_eq!(toy.told_of("SyncJob"), [text]);
}

#[test]
fn a_long_list_of_nodes_is_cut_to_what_an_event_holds() {
    let mut toy = Toy::new();
    for number in 0..100 {
        toy.add_nodes(&[&format!("node-with-a-long-name-{number:03}")]);
    }
    toy.apply(plan_with("p", |spec| spec.concurrency = Some(100)));
    toy.settle();
    let text = toy.told_of("SyncJob")[0];
    let named = text.matches("node-with-a-long-name-").count();
    assert!(
        text.contains(&format!(" and {} more. Hash: ", 100 - named)),
        "{text}"
    );
    assert!(named > 25 && text.len() < 1024, "{named} {}", text.len());
}

#[test]
fn a_closed_window_is_told() {
    let closed = TimeWindowSpec {
        days: Some(vec!["fri".to_owned()]),
        start_time: Some("1:00".to_owned()),
        end_time: Some("2:00".to_owned()),
        time_zone: None,
    };
    let toy = Toy::with(&["a"], plan_with("p", |spec| spec.window = Some(closed)));
    let text = format!(
        "Waiting for start of Spec.Window to sync Jobs for version v1. Hash: {}",
        toy.hash("p")
    );
    assert_eq!(toy.told_of("Waiting"), [text]);
}

#[test]
fn a_failure_is_told_with_what_the_container_said_last() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.fails("a");
    let job = toy.job_for("a").facts.name.clone();
    let text = format!(
        "Job system-upgrade/{job} failed on Node a: BackoffLimitExceeded: Job has reached the specified backoff limit: \
         container upgrade exited with 1: no space left"
    );
    assert_eq!(toy.told_of("JobFailed"), [text]);
}

#[test]
fn a_delay_is_told_as_go_prints_it() {
    let mut toy = Toy::with(
        &["a"],
        plan_with("p", |spec| spec.post_complete_delay = Some("90s".to_owned())),
    );
    toy.succeeds("a");
    assert_eq!(
        toy.told_of("JobCompleteWaiting"),
        ["Job completed on Node a, waiting 1m30s PostCompleteDelay"]
    );
}

#[test]
fn a_new_version_is_told() {
    let mut toy = Toy::with(&["a"], plan("p"));
    toy.edit("p", |spec| spec.version = Some("v2".to_owned()));
    toy.settle();
    assert_eq!(
        toy.told_of("Resolved")[1],
        "Resolved latest version from Spec.Version: v2"
    );
}

#[test]
fn suspension_is_nothing_to_warn_of() {
    let mut toy = Toy::new();
    toy.add_nodes(&["a"]);
    toy.apply(plan_with("p", |spec| spec.suspend = Some(true)));
    toy.tell_all();
    let types: Vec<_> = events(&mut toy)
        .into_iter()
        .map(|event| (event.reason, event.type_))
        .collect();
    assert!(types.contains(&("Suspended", EventType::Normal)), "{types:?}");
}

#[test]
fn an_event_is_written_once_though_the_write_after_it_is_tried_twice() {
    let mut toy = Toy::new();
    toy.add_nodes(&["a"]);
    toy.apply(plan("p"));
    toy.tell_all();
    let first = events(&mut toy);
    toy.decides();
    for flight in toy.sent() {
        toy.reaches(flight, Fate::LostBefore(false));
    }
    toy.wakes_up();
    toy.tell_all();
    let second = events(&mut toy);
    assert_eq!(first, second, "the same keys");
    toy.rolls_out();
    assert_eq!(toy.told_of("SyncJob").len(), 1);
}

#[test]
fn the_same_words_at_another_time_are_another_event() {
    let mut toy = Toy::with(&["a"], plan("p"));
    for _ in 0..3 {
        toy.rolls_out();
        toy.later(2);
        toy.set_done_label("a", "p", None);
    }
    toy.rolls_out();
    assert_eq!(toy.told_of("SyncJob").len(), 4);
    assert_eq!(toy.told_of("JobComplete").len(), 4);
    assert_eq!(toy.told_of("Complete").len(), 4);
}

#[test]
fn what_happened_to_a_job_has_one_key_whatever_is_said_of_it() {
    let (plan, uid) = ("p".into(), "uid".into());
    let event = |reason, text: &str, job| {
        Event::job(&plan, &uid, EventType::Normal, reason, text.to_owned(), job).key
    };
    assert_eq!(event("JobFailed", "a", "job-1"), event("JobFailed", "b", "job-1"));
    assert_ne!(event("JobFailed", "a", "job-1"), event("JobFailed", "a", "job-2"));
    assert_ne!(
        event("JobFailed", "a", "job-1"),
        event("JobComplete", "a", "job-1")
    );
}

#[test]
fn what_blocks_a_plan_is_told_by_its_own_name() {
    let mut toy = Toy::new();
    toy.add_nodes(&["a"]);
    toy.ready("a", false);
    toy.apply(plan("not-ready"));
    toy.apply(plan_with("nobody", |spec| spec.concurrency = None));
    toy.apply(plan_with("image", |spec| {
        spec.upgrade.image = "NOT AN IMAGE".to_owned();
    }));
    toy.settle();
    for reason in ["NodeNotReady", "ConcurrencyZero", "ImageInvalid"] {
        assert_eq!(toy.told_of(reason).len(), 1, "{reason}");
    }
}

fn events(toy: &mut Toy) -> Vec<Event> {
    let steps = toy.steps().into_iter();
    steps
        .flat_map(|step| match step {
            Step::WriteStatus { events, .. } => events,
            _ => Vec::new(),
        })
        .collect()
}
