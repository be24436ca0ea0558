//! `before`, `after` and `taintNewNodes` in a rehearsal.

use serde_json::{Value, json};

use super::page::data;
use super::with_plan;
use crate::workdir::run_in;

const HOOKS: &str = "  before: {image: example.com/snapshot}
  after: {image: example.com/smoke}
";

#[test]
fn what_runs_once_for_the_roll_out_has_its_assumption_its_lines_and_its_place_on_the_page() {
    let folder = with_plan("patch", HOOKS);
    let ran = folder
        .run("rehearse plan.yaml --nodes 4 --hook 2m --html page.html")
        .ends(0)
        .err_has("assumed: `before` takes 2m\n")
        .err_has("assumed: `after` takes 2m\n");
    for line in [
        "  +0:00:00  patch  runs `before`\n",
        "  +0:02:07  patch  `before` has succeeded\n",
        "\nPlan patch runs `before` at +0:00:00, which succeeds after 2m7s\nPlan patch runs `after` at +0:",
    ] {
        assert!(ran.out.contains(line), "{line}: {ran:#?}");
    }
    let page = data(&folder.read("page.html"));
    let bands = page["bands"].as_array().unwrap();
    let labels: Vec<&str> = bands.iter().map(|band| band["label"].as_str().unwrap()).collect();
    assert_eq!(labels, ["3 nodes", "before", "after"]);
    let chain = page["chain"].as_array().unwrap();
    let texts = [&chain[0], chain.last().unwrap()].map(|link| link["text"].as_str().unwrap());
    assert_eq!(
        texts,
        [
            "`before` of Plan patch takes 2m7s",
            "`after` of Plan patch takes 2m7s"
        ]
    );
    assert_eq!(page["figures"]["ends"][0], bands[2]["to"]);
    // Each Plan has its own, and one without has no word about it.
    let report = folder.run("rehearse plan.yaml --nodes 4 -o json").ends(0).json();
    let hooks = report["plans"][0]["hooks"].as_array().unwrap();
    let results: Vec<[&Value; 2]> = hooks.iter().map(|run| [&run["hook"], &run["result"]]).collect();
    assert_eq!(
        json!(results),
        json!([["before", "succeeded"], ["after", "succeeded"]])
    );
    let without = with_plan("patch", "").run("rehearse plan.yaml --nodes 4").ends(0);
    assert!(!(without.out + &without.err).contains("before"));
}

#[test]
fn a_hook_that_fails_stops_the_roll_out_before_the_first_node_or_after_the_last() {
    let folder = with_plan("patch", &format!("{HOOKS}  jobActiveDeadlineSecs: 600\n"));
    for (hook, done, why) in [
        (
            "before",
            "  0/3   0 ",
            "starts no node: BeforeFailed: spec.before: Job before-patch-",
        ),
        (
            "after",
            "  3/3   0 ",
            "is not complete: AfterFailed: spec.after: Job after-patch-",
        ),
    ] {
        let ran = folder
            .run(&format!("rehearse plan.yaml --nodes 4 --fail {hook}"))
            .ends(1)
            .err_has(&format!("assumed: `{hook}` fails after 30s\n"))
            .out_has(&format!("  patch  `{hook}` has FAILED\n"))
            .out_has(&format!("Plan patch runs `{hook}` at +0:"))
            .out_has(", which fails after 10m")
            .out_has(done);
        let last = ran.last_line();
        assert!(
            last.starts_with(&format!("would fail: Plan patch {why}"))
                && last.contains(&format!(
                    "container {hook} exited with 1: made to fail by --fail ("
                )),
            "{last}"
        );
    }
}

#[test]
fn what_fail_may_name_is_said() {
    let without = with_plan("patch", "");
    let run = |value: &str| without.run(&format!("rehearse plan.yaml --nodes 4 -q --fail {value}"));
    run("before")
        .ends(0)
        .err_has("--fail before: it has no effect: no Plan has spec.before\n");
    run("befor")
        .ends(2)
        .err_has("error: --fail befor: the cluster has no such node; did you mean before?\n");
    run("xyz").ends(2).err_has(
        "error: --fail xyz: the cluster has no such node; write the name of a node, a share such as 5%, before or after\n",
    );
    run(",")
        .ends(2)
        .err_has("write the name of a node, a share such as 5%, before or after");
}

/// The lines that `docs/rollouts.md` shows. It leaves out others, and the ends of long ones.
#[test]
fn a_failing_snapshot_looks_as_the_documents_show_it() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let line = "refit rehearse examples/etcd-snapshot.yaml --nodes 4 --fail before";
    let page = std::fs::read_to_string(root.join("docs/rollouts.md")).unwrap();
    let mut blocks = page.split("```").skip_while(|block| !block.contains(line));
    let shown = blocks.nth(2).unwrap();
    let ran = run_in(root, line.strip_prefix("refit ").unwrap()).ends(1);
    let lines = || shown.lines().map(|line| line.trim_end_matches('…'));
    for line in lines().filter(|line| !line.is_empty()) {
        assert!(
            ran.out.lines().any(|other| other.starts_with(line)),
            "{line:?} is not in {}",
            ran.out
        );
    }
    assert!(lines().count() > 3, "{shown}");
}

#[test]
fn a_late_node_gets_no_pods_until_the_plan_is_done_there_if_the_plan_says_so() {
    let late = "rehearse plan.yaml --nodes 4 --fault node-2:late";
    let tainting = with_plan("patch", "  taintNewNodes: true\n");
    let report = tainting.run(&format!("{late} -o json")).ends(0).json();
    let new = report["newNodes"].as_array().unwrap();
    let turns = report["turns"].as_array().unwrap();
    let turn = turns.iter().find(|turn| turn["node"] == "node-2").unwrap();
    let [since, until] = ["start", "end"].map(|field| new[0][field].as_str().unwrap());
    assert_eq!((new.len(), &new[0]["node"]), (1, &json!("node-2")));
    assert!(since.starts_with("2026-01-05T09:10:00"), "{since}");
    assert_eq!(until[..19], turn["end"].as_str().unwrap()[..19]);
    tainting
        .run(&format!("{late} -q"))
        .ends(0)
        .out_has("No new pods on node-2 for 4m42s, from +0:10:00 (taintNewNodes)\n");
    let without = with_plan("patch", "")
        .run(&format!("{late} -o json"))
        .ends(0)
        .json();
    assert_eq!(without["newNodes"], Value::Null);
}
