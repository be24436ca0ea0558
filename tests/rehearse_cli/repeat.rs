//! Plans that repeat: the rehearsal goes on until each has done so once.

use serde_json::Value;

use super::plan;
use crate::workdir::Workdir;

fn rehearsed(text: &str, arguments: &str) -> Value {
    let dir = Workdir::new([("plan.yaml", text)]);
    let ran = dir.run(&format!("rehearse plan.yaml -q --nodes 3 -o json {arguments}"));
    ran.json()
}

fn nodes_of(report: &Value, plan: &str) -> usize {
    let turns = report["turns"].as_array().unwrap();
    turns
        .iter()
        .filter(|turn| turn["plan"] == plan && turn["result"] == "done")
        .count()
}

#[test]
fn a_plan_that_repeats_is_rehearsed_until_it_has_done_so_once() {
    let report = rehearsed(&plan("p", "  repeat: {cron: 0 12 * * *}\n"), "");
    assert_eq!(nodes_of(&report, "p"), 4);
    let repeats = &report["plans"][0]["repeats"];
    assert_eq!(repeats["due"], "2026-01-05T12:00:00Z");
    assert_eq!(repeats["next"], "2026-01-06T12:00:00Z");
    assert!(
        repeats["complete"]
            .as_str()
            .unwrap()
            .starts_with("2026-01-05T12:0")
    );
    let line = report["verdict"]["line"].as_str().unwrap();
    // Of the first roll-out.
    assert!(line.starts_with("complete: 1 Plan, 2 nodes, in "), "{line}");
    assert!(line.contains(" at 2026-01-05 09:"), "{line}");
}

#[test]
fn a_repetition_after_the_limit_is_not_waited_for() {
    let report = rehearsed(&plan("p", "  repeat: {cron: 0 12 1 7 *}\n"), "");
    assert_eq!(nodes_of(&report, "p"), 2);
    let repeats = &report["plans"][0]["repeats"];
    assert_eq!(repeats["due"], Value::Null);
    assert_eq!(repeats["next"], "2026-07-01T12:00:00Z");
    assert_eq!(report["verdict"]["complete"], true);
    assert_eq!(report["end"].as_str().unwrap()[..11], *"2026-01-05T");
}

#[test]
fn a_plan_that_repeats_does_not_hide_that_another_one_stalls() {
    let both = plan("p", "  repeat: {every: 1h}\n") + "---\n" + &plan("held", "  suspend: true\n");
    let report = rehearsed(&both, "");
    let line = report["verdict"]["line"].as_str().unwrap();
    assert!(
        line.starts_with("would stall: Plan held starts no node: Suspended"),
        "{line}"
    );
}
