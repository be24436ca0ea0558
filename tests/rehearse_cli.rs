//! `refit rehearse` as a command: files, clusters, assumptions, output and exit codes. None of these tests needs a
//! cluster.

mod blockers;
mod cluster;
mod faults;
mod front_ends;
mod hooks;
mod input;
mod page;
mod repeat;
mod stalls;

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::recording;
use crate::workdir::{Workdir, run_in};

/// A Plan for workers, two at a time, with more lines of spec.
fn plan(name: &str, more: &str) -> String {
    format!(
        "apiVersion: upgrade.cattle.io/v1
kind: Plan
metadata: {{name: {name}, namespace: system-upgrade}}
spec:
  concurrency: 2
  version: v1.34.1
  nodeSelector: {{matchExpressions: [{{key: node-role.kubernetes.io/control-plane, operator: DoesNotExist}}]}}
  serviceAccountName: system-upgrade
  upgrade: {{image: example.com/upgrade}}
{more}"
    )
}

/// A folder with one Plan, `plan.yaml`.
fn with_plan(name: &str, more: &str) -> Workdir {
    Workdir::new([("plan.yaml", &plan(name, more))])
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")
}

/// The seconds that a node was in a phase.
fn seconds(turn: &Value, phase: &str) -> i64 {
    let phases = turn["phases"].as_array().unwrap().iter();
    let all = phases.filter(|one| one["phase"] == phase);
    all.map(|one| one["seconds"].as_i64().unwrap()).sum()
}

#[test]
fn every_example_completes() {
    let files = std::fs::read_dir(examples()).unwrap();
    let files: Vec<_> = files
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(files.len(), 16);
    for mut file in files {
        if file == "limits.yaml" {
            // Limits for all Plans, and no Plan.
            file += " k3s-upgrade.yaml";
        }
        let ran = run_in(&examples(), &format!("rehearse {file} --nodes 7 -q")).ends(0);
        assert!(ran.last_line().starts_with("complete: "), "{ran:#?}");
    }
}

/// Keeps the output in the documents up to date.
#[test]
fn the_recorded_output_is_that_of_its_command() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    recording::check("docs/rehearsal.md", "refit rehearse", |arguments| {
        run_in(root, &format!("rehearse {arguments}")).out
    });
    // The README leaves out some lines.
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let shown = readme
        .split("```")
        .find(|block| block.contains("complete: "))
        .unwrap();
    let whole = run_in(root, "rehearse examples/k3s-upgrade.yaml --nodes 12 -q").out;
    for line in shown.lines().filter(|line| line.trim() != "…") {
        assert!(
            whole.lines().any(|other| other == line),
            "README.md shows {line:?}, which is not in:\n{whole}"
        );
    }
}

#[test]
fn plans_of_several_files_are_rehearsed_together() {
    let line =
        "rehearse k3s-upgrade.yaml opensuse-sle.yaml script.yaml ubuntu-reboot.yaml --nodes 14 -o json";
    let report = run_in(&examples(), line).ends(0).json();
    let plans = report["plans"].as_array().unwrap();
    assert_eq!(plans.len(), 5);
    for plan in plans {
        assert!(
            plan["done"].as_i64().unwrap() > 0 && plan["done"] == plan["selected"],
            "{plan}"
        );
    }
    let waits = report["waits"].as_array().unwrap();
    // One disruptive Plan on a node at a time.
    assert!(
        waits.iter().any(|wait| wait["reason"] == "NodeBusy"),
        "{waits:#?}"
    );
}

fn time(turn: &Value, key: &str) -> jiff::Timestamp {
    turn[key].as_str().unwrap().parse().unwrap()
}

#[test]
fn servers_come_before_agents_and_each_node_has_its_times() {
    let ran = run_in(
        &examples(),
        "rehearse k3s-upgrade.yaml --nodes 12 -o json --upgrade 4m..9m",
    )
    .ends(0);
    let report = ran.json();
    let turns = report["turns"].as_array().unwrap();
    let of = |plan: &str| -> Vec<&Value> { turns.iter().filter(|turn| turn["plan"] == plan).collect() };
    let (servers, agents) = (of("k3s-server"), of("k3s-agent"));
    assert_eq!((turns.len(), servers.len(), agents.len()), (12, 3, 9));
    for turn in turns {
        assert_eq!(turn["result"], "done");
        let upgrading = seconds(turn, "Upgrading");
        assert!((4 * 60 - 2..=9 * 60 + 2).contains(&upgrading), "{turn}");
    }
    // One server after another, and no agent before the last of them.
    for pair in servers.windows(2) {
        assert!(time(pair[0], "end") <= time(pair[1], "start"), "{pair:?}");
    }
    let last = servers.iter().map(|turn| time(turn, "end")).max().unwrap();
    assert!(agents.iter().all(|turn| time(turn, "end") > last), "{agents:?}");
    let waits = report["waits"].as_array().unwrap();
    assert!(
        waits.iter().any(|wait| wait["blocker"] == "Plan k3s-server"),
        "{waits:#?}"
    );
    let ran = ran.err_has("assumed: label k3s-upgrade=enabled on 12 nodes");
    ran.err_has(
        "assumed: the channel https://update.k3s.io/v1-release/channels/stable gives v1.34.1+k3s1 (change it with --version",
    );
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_one_others() {
    let dir = with_plan("drains", "  drain: {}\n");
    let run = |seed: u8, format: &str| {
        let line = format!("rehearse plan.yaml --nodes 9 --fail 30% --seed {seed} -o {format}");
        dir.run(&line).ends(1).out
    };
    for format in ["json", "text"] {
        assert_eq!(run(7, format), run(7, format));
    }
    assert_ne!(run(7, "json"), run(8, "json"));
}

#[test]
fn a_rehearsal_in_a_pipe_prints_events_as_plain_lines() {
    let dir = with_plan("cordons", "  cordon: true\n");
    let line = "rehearse plan.yaml --nodes 4 --upgrade 2m";
    let ran = dir.run(line).ends(0).out_lacks("\x1b");
    let lines: Vec<&str> = ran.out.lines().map(str::trim_start).collect();
    assert_eq!(lines[0], "+0:00:00  cordons  version v1.34.1");
    let count = |what: &str| {
        let events = lines.iter().filter(|line| line.starts_with('+'));
        events.filter(|line| line.ends_with(what)).count()
    };
    assert_eq!(
        [count("  begins"), count("  done"), count("cordons  complete")],
        [3, 3, 1],
        "{ran:#?}"
    );
    let quiet = dir.run(&format!("{line} -q")).out_lacks("begins");
    assert!(ran.out.ends_with(&quiet.out), "the result is the same");
}

#[test]
fn a_wait_for_a_window_is_reported() {
    let window = "  window: {days: [mon, tue, wed], startTime: '22:00', endTime: '22:09'}\n";
    let text = plan("nightly", window).replace("concurrency: 2", "concurrency: 1");
    let dir = Workdir::new([("plan.yaml", &text)]);
    let line = "rehearse plan.yaml --nodes 6 --upgrade 6m --start 2026-01-05T20:00";
    let report = dir.run(&format!("{line} -o json")).ends(0).json();
    // Two nodes start while it is open, and the second one ends after it has closed.
    let window = &report["plans"][0]["window"];
    assert_eq!(
        (&window["used"], &window["late"]),
        (&3.into(), &2.into()),
        "{window}"
    );
    let begins = [0, 2, 4].map(|turn: usize| &report["turns"][turn]["start"].as_str().unwrap()[..16]);
    assert_eq!(
        begins,
        ["2026-01-05T22:00", "2026-01-06T22:00", "2026-01-07T22:00"]
    );
    let ran = dir.run(&format!("{line} --limit 1 -q")).ends(1);
    assert_eq!(
        ran.last_line(),
        "would not complete within 1d: Plan nightly starts no further node: WindowClosed: spec.window is closed and opens at \
         2026-01-06T22:00:00Z (Mon,Tue,Wed 22:00:00-22:09:00 UTC); 3 nodes are left waiting"
    );
    ran.out_has("1 node of Plan nightly ends after its window has closed");
}

#[test]
fn a_reboot_is_part_of_the_work_on_a_node() {
    let dir = with_plan("reboots", "  reboot: {when: Always}\n  settle: {minReady: 1m}\n");
    let ran = dir
        .run("rehearse plan.yaml --nodes 3 --upgrade 2m --reboot 5m -o json")
        .ends(0);
    for turn in ran.json()["turns"].as_array().unwrap() {
        assert!((295..330).contains(&seconds(turn, "Rebooting")), "{turn}");
        assert!(seconds(turn, "Settling") >= 55, "{turn}");
    }
}

#[test]
fn nodes_have_the_conditions_for_which_a_plan_waits_and_their_daemon_sets_are_waited_for() {
    let settle = "  drain: {}\n  settle: {conditions: [{type: KernelDeadlock, status: 'False'}], taintsGone: [example.com/x], daemonSets: {}, \
                  workloads: true}\n";
    let dir = with_plan("well", settle);
    let ran = dir.run("rehearse plan.yaml --nodes 3 --upgrade 2m").ends(0);
    ran.err_has("every node has the condition KernelDeadlock False");
    let ran = dir
        .run("rehearse plan.yaml --nodes 3 --upgrade 2m -o json")
        .ends(0);
    for turn in ran.json()["turns"].as_array().unwrap() {
        assert!(seconds(turn, "Settling") >= 3, "{turn}");
    }
}
