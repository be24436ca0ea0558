use super::compare::Comparison;
use super::*;
use crate::verdict::UnfinishedPlan;
use jiff::SignedDuration;
use refit_api::TimeWindowSpec;
use refit_api::schedule::PlanWindow;
use refit_api::window::Window;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn turn(since: &str, until: &str) -> NodeRun {
    NodeRun::new(at(since), Some(at(until)), RowState::Done)
}

#[test]
fn a_window_report_says_how_often_it_was_used_and_which_nodes_were_late() {
    let spec = TimeWindowSpec {
        days: Some(vec!["mon".to_owned(), "tue".to_owned()]),
        start_time: Some("22:00".to_owned()),
        end_time: Some("22:59:59".to_owned()),
        time_zone: None,
    };
    let window = Window::parse(&spec, &TimeZone::UTC).unwrap();
    let window = Windows(vec![PlanWindow::Weekly(window)]);
    let turns = [
        turn("2026-01-05T22:00:00Z", "2026-01-05T22:30:00Z"),
        turn("2026-01-05T22:55:00Z", "2026-01-05T23:10:00Z"),
        turn("2026-01-06T22:00:00Z", "2026-01-06T22:20:00Z"),
    ];
    let turns: Vec<&NodeRun> = turns.iter().collect();
    assert_eq!(
        used(&window, &turns),
        WindowReport {
            window: "Mon,Tue 22:00:00-22:59:59 UTC".to_owned(),
            time_zone: "UTC".to_owned(),
            used: 2,
            late: 1,
            late_seconds: 600,
        }
    );
}

fn example() -> Report {
    let start = at("2026-01-05T09:00:00Z");
    let mut report = Report {
        verdict: Verdict {
            complete: false,
            line: "would stall: Plan a starts no node".to_owned(),
            headline: "would stall: Plan a starts no node".to_owned(),
            reasons: ["a", "b"]
                .map(|plan| UnfinishedPlan {
                    plan: plan.to_owned(),
                    how: crate::verdict::Problem::Stalls,
                    why: "starts no node".to_owned(),
                    brief: "starts no node".to_owned(),
                    reason: Some(refit_api::Reason::Suspended.into()),
                    node: None,
                    waits_for: None,
                })
                .into(),
        },
        seed: 1,
        start,
        end: at("2026-01-05T10:00:00Z"),
        seconds: 3_600,
        assumed: Vec::new(),
        faults: Vec::new(),
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
            blackout: None,
            repeats: None,
            hooks: Vec::new(),
        }],
        turns: vec![NodeRunReport {
            plan: "a".to_owned(),
            node: "node-1".to_owned(),
            result: "done",
            run: NodeRun::new(start, Some(at("2026-01-05T09:04:10Z")), RowState::Done),
            phases: Vec::new(),
        }],
        waits: vec![WaitReport {
            wait: Wait {
                plan: "a".to_owned(),
                node: Some("node-1".to_owned()),
                reason: "DrainWaiting".into(),
                blocker: "PodDisruptionBudget shop/web".to_owned(),
                message: String::new(),
                prepare: None,
                since: start,
                until: None,
            },
            seconds: 60,
        }],
        control_plane: None,
        version_changes: Vec::new(),
        budgets_that_never_allow: vec!["shop/web".to_owned()],
        cordoned: vec!["node-1".to_owned()],
        soaks_without_nodes: Vec::new(),
        new_nodes: Vec::new(),
        wait_groups: Vec::new(),
        times: TimeFormat::since(start),
    };
    report.wait_groups = waits::groups(&report.waits);
    report
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

PodDisruptionBudget shop/web allows no eviction even when all its pods are ready; raise maxUnavailable or lower minAvailable
Still cordoned: node-1

Plan b starts no node
would stall: Plan a starts no node
"
    );
}

#[test]
fn the_page_has_each_line_that_the_text_has_besides_its_tables() {
    let report = example();
    let remarks = report.remarks();
    assert_eq!(remarks.len(), 3, "{remarks:#?}");
    let text = report.to_text();
    let below_the_waits = text.split_once("(from +0:00:00)\n").unwrap().1;
    let lines = below_the_waits.lines().filter(|line| !line.is_empty());
    for line in lines.filter(|line| *line != report.verdict.line) {
        assert!(remarks.iter().any(|remark| remark == line), "{line}");
    }
}

#[test]
fn waits_for_the_same_thing_are_one_line() {
    let mut report = example();
    let wait = |node: &str, seconds: i64| WaitReport {
        wait: Wait {
            node: Some(node.to_owned()),
            since: at("2026-01-05T09:00:00Z"),
            until: Some(at("2026-01-05T09:10:00Z")),
            ..report.waits[0].wait.clone()
        },
        seconds,
    };
    let waits = vec![wait("node-1", 250), wait("node-2", 120), wait("node-2", 60)];
    report.wait_groups = waits::groups(&waits);
    let text = report.to_text();
    let line = "\nLongest waits:\n    4m10s  2 nodes of a for PodDisruptionBudget shop/web (3 times, from +0:00:00): node-1 \
                4m10s, node-2 3m\n\n";
    assert!(text.contains(line), "{text}");
}

#[test]
fn nodes_that_share_waits_are_named() {
    let mut report = example();
    let of = |seconds: i64| WaitReport {
        wait: Wait {
            node: None,
            reason: "TaintNotTolerated".into(),
            blocker: "TaintNotTolerated".to_owned(),
            message: "the node has the taint a".to_owned(),
            ..report.waits[0].wait.clone()
        },
        seconds,
    };
    let shared = waits::groups(&[of(250), of(60)]);
    let mut line = |names: &[&str]| {
        let mut groups = shared.clone();
        groups[0].some = names.iter().map(|name| (*name).to_owned()).collect();
        report.wait_groups = groups;
        let text = report.to_text();
        let lines = text.lines();
        lines
            .skip_while(|line| *line != "Longest waits:")
            .nth(1)
            .unwrap()
            .to_owned()
    };
    assert_eq!(
        line(&[]),
        "  forever  all nodes of a for TaintNotTolerated (2 times, from +0:00:00): the node has the taint a"
    );
    assert_eq!(
        line(&["w2"]),
        "  forever  w2 of a for TaintNotTolerated (2 times, from +0:00:00): the node has the taint a"
    );
    assert_eq!(
        line(&["w2", "w3"]),
        "  forever  w2, w3 of a for TaintNotTolerated (2 times, from +0:00:00): the node has the taint a"
    );
}

#[test]
fn a_node_that_gets_one_version_after_another_has_a_row_for_each() {
    let mut report = example();
    let with = |version: &str| {
        let mut turn = report.turns[0].clone();
        turn.run.version = Some(version.to_owned());
        turn
    };
    let (one, two) = (with("v1.35.3"), with("v1.36.3"));
    let mut rows = |turns: Vec<NodeRunReport>| {
        report.turns = turns;
        let text = report.to_text();
        let rows = text.lines().skip(1).take_while(|line| !line.is_empty());
        let results = rows.map(|row| row.split_once("  4m10s  ").unwrap().1.to_owned());
        results.collect::<Vec<_>>()
    };
    assert_eq!(rows(vec![one.clone(), two]), ["done (v1.35.3)", "done (v1.36.3)"]);
    assert_eq!(rows(vec![one.clone(), one]), ["done", "done"]);
}

#[test]
fn control_plane_nodes_that_are_down_together_are_reported_with_a_remedy() {
    let line = |down: &[&str], not_ready: &[&str], plans: &[&str], loses_quorum: bool| {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let mut report = example();
        report.control_plane = Some(ControlPlaneReport {
            nodes: 3,
            most_down: down.len(),
            at: Some(at("2026-01-05T09:00:10Z")),
            down: owned(down),
            not_ready: owned(not_ready),
            plans: owned(plans),
            etcd_members: 3,
            etcd_most_down: down.len(),
            loses_quorum,
        });
        let text = report.to_text();
        let mut lines = text.lines().filter(|line| line.starts_with("Control plane: "));
        lines.next().unwrap().to_owned()
    };
    assert_eq!(
        line(&["c1"], &[], &["a"], false),
        "Control plane: 1 of 3 nodes down at a time"
    );
    assert_eq!(
        line(&["c1", "c2"], &[], &["a"], true),
        "Control plane: 2 of 3 nodes down together, first at +0:00:10 (c1, c2); etcd loses its quorum with 2 of 3 members \
         down; set concurrency: 1 in Plan a"
    );
    assert_eq!(
        line(&["c1", "c2"], &["c2"], &["a"], true),
        "Control plane: 2 of 3 nodes down together, first at +0:00:10 (c1, c2); not Ready from the start: c2; etcd loses its \
         quorum with 2 of 3 members down; wait until the others are Ready"
    );
    assert!(
        line(&["c1", "c2"], &[], &["a", "b"], false)
            .ends_with("(c1, c2); let one of the Plans a and b wait for the other in `prepare`")
    );
}

#[test]
fn a_long_table_is_cut_in_the_middle() {
    let mut report = example();
    report.turns = (0..100)
        .map(|number| NodeRunReport {
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
    for (seconds, text) in [(0, "+0:00:00"), (3_723, "+1:02:03"), (90_061, "+1d 01:01:01")] {
        assert_eq!(offset(SignedDuration::from_secs(seconds)), text);
    }
}

#[test]
fn nodes_that_are_late_for_one_of_several_windows_or_for_a_blackout_are_counted() {
    let spec = serde_json::json!({
        "concurrency": 1,
        "windows": [
            { "cron": "0 22 * * mon", "duration": "1h", "timeZone": "Europe/Berlin" },
            { "days": ["tue"], "startTime": "22:00", "endTime": "22:59:59" },
        ],
        "blackouts": [{ "start": "2026-01-05T22:30:00+01:00", "end": "2026-01-06" }],
    });
    let spec: refit_api::PlanSpec = serde_json::from_value(spec).unwrap();
    let mut end = PlanFacts::default();
    end.object.spec = spec;
    let turns = [
        turn("2026-01-05T21:00:00Z", "2026-01-05T21:40:00Z"),
        turn("2026-01-05T21:20:00Z", "2026-01-05T22:10:00Z"),
        turn("2026-01-06T22:00:00Z", "2026-01-06T22:20:00Z"),
    ];
    let turns: Vec<&NodeRun> = turns.iter().collect();
    let window = window_report(&end, &turns).unwrap();
    assert_eq!(
        window,
        WindowReport {
            window: "0 22 * * mon for 1h Europe/Berlin; Tue 22:00:00-22:59:59 UTC".to_owned(),
            time_zone: "Europe/Berlin".to_owned(),
            used: 2,
            late: 1,
            late_seconds: 600,
        }
    );
    let blackout = blackout_report(&end, &[], &turns).unwrap();
    assert_eq!((blackout.late, blackout.late_seconds), (2, 40 * 60));
    let for_all = end.object.spec.valid_blackouts(&TimeZone::UTC);
    let unlimited = PlanFacts::default();
    assert_eq!(window_report(&unlimited, &turns), None);
    assert_eq!(blackout_report(&unlimited, &[], &turns), None);
    assert_eq!(
        blackout_report(&unlimited, &for_all, &turns),
        Some(blackout.clone())
    );
    let mut report = example();
    report.plans[0].window = Some(window);
    report.plans[0].blackout = Some(blackout);
    let text = report.to_text();
    for line in [
        "\nPlan a needs 2 openings of its window (0 22 * * mon for 1h Europe/Berlin; Tue 22:00:00-22:59:59 UTC)\n",
        "\n1 node of Plan a ends after its window has closed, up to 10m later; refit does not stop a running Job\n",
        "\n2 nodes of Plan a end after a blackout has begun, up to 40m later; refit does not stop a running Job\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn a_comparison_has_the_differences_and_no_seconds() {
    let (old, mut new) = (example(), example());
    new.seconds = old.seconds + 14;
    assert!(
        Comparison::new(&old, &new).changes.is_empty(),
        "1s longer says nothing"
    );
    new.seconds = old.seconds * 2;
    new.verdict.complete = true;
    new.cordoned.clear();
    new.plans[0].version = Some("v2".to_owned());
    (new.plans[0].done, new.plans[0].failed, new.plans[0].waiting) = (0, 1, 0);
    new.wait_groups.clear();
    let comparison = Comparison::new(&old, &new);
    let said = comparison
        .changes
        .iter()
        .map(|one| [&*one.what, &*one.old, &*one.new]);
    assert_eq!(
        said.collect::<Vec<_>>(),
        [
            ["result", "not complete", "complete"],
            ["duration", "1h", "2h (1h longer)"],
            ["nodes left cordoned", "node-1", "none"],
            ["Plan a: version", "v1", "v2"],
            ["Plan a: done", "1", "0"],
            ["Plan a: failed", "0", "1"],
            ["Plan a: waiting at the end", "1", "0"],
            [
                "Plan a: DrainWaiting (PodDisruptionBudget shop/web)",
                "1 node, up to 1m, does not end",
                "no wait"
            ],
        ]
    );
}
