use super::*;
use crate::api::TimeWindowSpec;
use crate::rehearse::verdict::Reason;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn turn(since: &str, until: &str) -> Turn {
    Turn::new(at(since), Some(at(until)), Standing::Done)
}

#[test]
fn a_window_tells_how_often_it_was_needed_and_who_was_late() {
    let spec = TimeWindowSpec {
        days: Some(vec!["mon".to_owned(), "tue".to_owned()]),
        start_time: Some("22:00".to_owned()),
        end_time: Some("22:59:59".to_owned()),
        time_zone: None,
    };
    let window = Window::parse(&spec, &TimeZone::UTC).unwrap();
    let turns = [
        turn("2026-01-05T22:00:00Z", "2026-01-05T22:30:00Z"),
        turn("2026-01-05T22:55:00Z", "2026-01-05T23:10:00Z"),
        turn("2026-01-06T22:00:00Z", "2026-01-06T22:20:00Z"),
    ];
    let turns: Vec<&Turn> = turns.iter().collect();
    assert_eq!(
        used(&window, &turns),
        WindowReport {
            window: "Mon,Tue 22:00:00-22:59:59 UTC".to_owned(),
            used: 2,
            late: 1,
            late_seconds: 600,
            shorter_than_a_node: false,
        }
    );
    let long = turn("2026-01-05T22:00:00Z", "2026-01-05T23:30:00Z");
    assert!(used(&window, &[&long]).shorter_than_a_node);
    assert!(!used(&window, &[]).shorter_than_a_node);
}

fn example() -> Report {
    let start = at("2026-01-05T09:00:00Z");
    Report {
        verdict: Verdict {
            complete: false,
            line: "would stall: Plan a starts no node".to_owned(),
            reasons: ["a", "b"]
                .map(|plan| Reason {
                    plan: plan.to_owned(),
                    how: crate::rehearse::verdict::How::Stalls,
                    why: "starts no node".to_owned(),
                    waits_for: None,
                })
                .into(),
        },
        seed: 1,
        start,
        end: at("2026-01-05T10:00:00Z"),
        seconds: 3_600,
        assumed: Vec::new(),
        nodes: 2,
        plans: vec![PlanReport {
            name: "a".to_owned(),
            rehearsed: true,
            complete: false,
            version: Some("v1".to_owned()),
            hash: None,
            selected: 2,
            done: 1,
            failed: 0,
            waiting: 1,
            start: Some(start),
            end: None,
            window: None,
        }],
        turns: vec![TurnReport {
            plan: "a".to_owned(),
            node: "node-1".to_owned(),
            start,
            end: Some(at("2026-01-05T09:04:10Z")),
            result: "done",
            reason: None,
            message: None,
            failures: 0,
            phases: Vec::new(),
        }],
        waits: vec![WaitReport {
            plan: "a".to_owned(),
            node: Some("node-1".to_owned()),
            reason: "DrainWaiting".to_owned(),
            blocker: "PodDisruptionBudget shop/web".to_owned(),
            message: String::new(),
            start,
            end: None,
            seconds: 60,
        }],
        budgets_that_never_allow: vec!["shop/web".to_owned()],
        cordoned: vec!["node-1".to_owned()],
    }
}

#[test]
fn the_text_ends_with_the_verdict() {
    assert_eq!(
        example().to_text(),
        "   NODE    PLAN  START     END       TOOK   RESULT
1  node-1  a     +0:00:00  +0:04:10  4m10s  done

PLAN  VERSION  DONE  FAILED  WAITING  FIRST     LAST
a     v1       1/2   0       1        +0:00:00  -

Longest waits:
  forever  node-1 of a for PodDisruptionBudget shop/web (from +0:00:00)

PodDisruptionBudget shop/web never lets a pod go, not even when all are ready
Still cordoned: node-1

Plan b starts no node
would stall: Plan a starts no node
"
    );
}

#[test]
fn a_long_table_is_cut_in_the_middle() {
    let mut report = example();
    report.turns = (0..100)
        .map(|number| TurnReport {
            node: format!("node-{number}"),
            ..report.turns[0].clone()
        })
        .collect();
    let text = report.to_text();
    assert!(text.contains("\n… 40 more (-o json has all)\n"), "{text}");
    assert!(text.contains("node-29 ") && !text.contains("node-30 "), "{text}");
    assert!(
        !text.contains("node-69 ") && text.contains("node-70 ") && text.contains("node-99 "),
        "{text}"
    );
    assert_eq!(
        report.to_json().matches("\"node\": \"node-").count(),
        101,
        "and JSON is not"
    );
}

#[test]
fn a_time_since_the_start_has_days_when_it_takes_days() {
    for (seconds, told) in [(0, "+0:00:00"), (3_723, "+1:02:03"), (90_061, "+1d 01:01:01")] {
        assert_eq!(offset(SignedDuration::from_secs(seconds)), told);
    }
}
