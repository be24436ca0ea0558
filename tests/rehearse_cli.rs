//! `refit rehearse` as it is run: files, clusters, assumptions, what it prints and how it ends. None of it needs a cluster.

mod input;
mod stalls;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// How a run of the program ended.
struct Ended {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Ended {
    /// The last line of standard output.
    fn last_line(&self) -> &str {
        self.stdout.lines().last().unwrap_or_default()
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }
}

/// Runs `refit rehearse` in a folder, with nothing of this process' environment that it would heed.
fn rehearse(folder: &Path, arguments: &[&str]) -> Ended {
    with_input(folder, arguments, "")
}

fn with_input(folder: &Path, arguments: &[&str], input: &str) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_refit"));
    command
        .current_dir(folder)
        .arg("rehearse")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    for (name, _) in std::env::vars() {
        let heeded = ["SYSTEM_UPGRADE_", "REFIT_", "KUBE", "HTTP", "http"];
        if heeded.iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    let mut child = command.spawn().unwrap();
    // Who does not read it is told otherwise what it did.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    Ended {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A Plan for workers, two at a time, changed by lines of its spec.
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

fn write(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

#[test]
fn every_example_completes() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut count = 0;
    for entry in std::fs::read_dir(&examples).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        let ended = rehearse(&examples, &[&file, "--nodes", "7", "-q"]);
        assert_eq!(ended.code, 0, "{file}: {}{}", ended.stdout, ended.stderr);
        assert!(
            ended.last_line().starts_with("complete: "),
            "{file}: {}",
            ended.stdout
        );
        count += 1;
    }
    assert_eq!(count, 6);
}

/// The documents show what is printed, and this is what is printed.
#[test]
fn the_recorded_output_is_that_of_its_command() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join("docs/rehearsal.md")).unwrap();
    let (_, rest) = text.split_once("<!-- recorded: refit rehearse ").unwrap();
    let (command, rest) = rest.split_once(" -->\n```\n").unwrap();
    let (recorded, _) = rest.split_once("```\n").unwrap();
    let arguments: Vec<&str> = command.split(' ').collect();
    let ended = rehearse(root, &arguments);
    assert_eq!(ended.stdout, recorded);
}

#[test]
fn plans_of_several_files_are_played_side_by_side() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let files = [
        "k3s-upgrade.yaml",
        "opensuse-sle.yaml",
        "script.yaml",
        "ubuntu-reboot.yaml",
    ];
    let ended = rehearse(
        &examples,
        &[&files[..], &["--nodes", "14", "-o", "json"]].concat(),
    );
    let report = ended.json();
    assert_eq!(ended.code, 0, "{}", report["verdict"]);
    let plans = report["plans"].as_array().unwrap();
    assert_eq!(plans.len(), 6);
    for plan in plans {
        assert!(
            plan["done"].as_i64().unwrap() > 0 && plan["done"] == plan["selected"],
            "{plan}"
        );
    }
    let waits = report["waits"].as_array().unwrap();
    assert!(
        waits.iter().any(|wait| wait["reason"] == "NodeBusy"),
        "one disruptive Plan on a node at a time"
    );
}

#[test]
fn servers_come_before_agents_and_each_node_has_its_times() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let ended = rehearse(
        &examples,
        &[
            "k3s-upgrade.yaml",
            "--nodes",
            "12",
            "-o",
            "json",
            "--upgrade",
            "4m..9m",
        ],
    );
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let report = ended.json();
    let turns = report["turns"].as_array().unwrap();
    assert_eq!(turns.len(), 12);
    let of = |plan: &str| -> Vec<&Value> { turns.iter().filter(|turn| turn["plan"] == plan).collect() };
    let (servers, agents) = (of("k3s-server"), of("k3s-agent"));
    assert_eq!((servers.len(), agents.len()), (3, 9));
    let seconds = |turn: &Value, phase: &str| -> i64 {
        let phases = turn["phases"].as_array().unwrap();
        let all = phases.iter().filter(|one| one["phase"] == phase);
        all.map(|one| one["seconds"].as_i64().unwrap()).sum()
    };
    for turn in turns {
        assert_eq!(turn["result"], "done");
        let upgrading = seconds(turn, "Upgrading");
        assert!((4 * 60 - 2..=9 * 60 + 2).contains(&upgrading), "{turn}");
    }
    // One server after the other, and no agent before the last of them.
    for pair in servers.windows(2) {
        assert!(pair[0]["end"].as_str() <= pair[1]["start"].as_str(), "{pair:?}");
    }
    let last = servers.iter().map(|turn| turn["end"].as_str().unwrap()).max();
    assert!(
        agents.iter().all(|turn| turn["end"].as_str() > last),
        "{agents:?}"
    );
    assert!(
        report["waits"]
            .as_array()
            .unwrap()
            .iter()
            .any(|wait| wait["blocker"] == "Plan k3s-server"),
        "{}",
        report["waits"]
    );
    assert!(
        ended
            .stderr
            .contains("assumed: label k3s-upgrade=enabled on 12 nodes"),
        "{}",
        ended.stderr
    );
    assert!(
        ended.stderr.contains(
            "assumed: the channel https://update.k3s.io/v1-release/channels/stable gives v1.34.1 (--version"
        ),
        "{}",
        ended.stderr
    );
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_one_others() {
    let folder = write(&[("plan.yaml", &plan("drains", "  drain: {}\n"))]);
    let run = |seed: &str, format: &str| {
        let arguments = [
            "plan.yaml",
            "--nodes",
            "9",
            "--fail",
            "30%",
            "--seed",
            seed,
            "-o",
            format,
        ];
        let ended = rehearse(folder.path(), &arguments);
        assert_eq!(ended.code, 1, "{}", ended.stderr);
        ended.stdout
    };
    for format in ["json", "text"] {
        assert_eq!(run("7", format), run("7", format));
    }
    assert_ne!(run("7", "json"), run("8", "json"));
}

#[test]
fn in_a_pipe_what_happens_is_told_in_plain_lines() {
    let folder = write(&[("plan.yaml", &plan("cordons", "  cordon: true\n"))]);
    let ended = rehearse(folder.path(), &["plan.yaml", "--nodes", "4", "--upgrade", "2m"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(!ended.stdout.contains('\x1b'), "{}", ended.stdout);
    let lines: Vec<&str> = ended.stdout.lines().map(str::trim_start).collect();
    assert_eq!(lines[0], "+0:00:00  cordons  version v1.34.1");
    let count = |what: &str| {
        let happened = lines.iter().filter(|line| line.starts_with('+'));
        happened.filter(|line| line.ends_with(what)).count()
    };
    assert_eq!((count("  begins"), count("  done")), (3, 3), "{}", ended.stdout);
    assert!(
        lines.iter().any(|line| line.ends_with("cordons  complete")),
        "{}",
        ended.stdout
    );
    let quiet = rehearse(
        folder.path(),
        &["plan.yaml", "--nodes", "4", "--upgrade", "2m", "-q"],
    );
    assert!(ended.stdout.ends_with(&quiet.stdout), "the result is the same");
    assert!(!quiet.stdout.contains("begins"), "{}", quiet.stdout);
}

#[test]
fn a_window_is_waited_for_and_told() {
    let window = "  window: {days: [mon, tue, wed], startTime: '22:00', endTime: '22:09'}\n";
    let text = plan("nightly", window).replace("concurrency: 2", "concurrency: 1");
    let folder = write(&[("plan.yaml", &text)]);
    let arguments = [
        "plan.yaml",
        "--nodes",
        "6",
        "--upgrade",
        "6m",
        "--start",
        "2026-01-05T20:00",
        "-o",
        "json",
    ];
    let ended = rehearse(folder.path(), &arguments);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let report = ended.json();
    // Two nodes begin while it is open, and the second of them ends after it has closed.
    let window = &report["plans"][0]["window"];
    assert_eq!(
        (&window["used"], &window["late"]),
        (&3.into(), &2.into()),
        "{window}"
    );
    let begins = |turn: usize| report["turns"][turn]["start"].as_str().unwrap()[..16].to_owned();
    assert_eq!(
        [begins(0), begins(2), begins(4)],
        ["2026-01-05T22:00", "2026-01-06T22:00", "2026-01-07T22:00"]
    );
    let limited = [&arguments[..7], &["--limit", "1", "-q"]].concat();
    let ended = rehearse(folder.path(), &limited);
    assert_eq!(ended.code, 1);
    let line = "would not be through within 1d: Plan nightly starts no node: WindowClosed: spec.window is closed and opens at \
                2026-01-06T22:00:00Z (Mon,Tue,Wed 22:00:00-22:09:00 UTC); 3 nodes are left waiting";
    assert_eq!(ended.last_line(), line);
    assert!(
        ended
            .stdout
            .contains("1 node of Plan nightly ends after its window has closed"),
        "{}",
        ended.stdout
    );
}

#[test]
fn a_reboot_is_part_of_the_work_on_a_node() {
    let reboot = "  reboot: {when: Always}\n  settle: {minReady: 1m}\n";
    let folder = write(&[("plan.yaml", &plan("reboots", reboot))]);
    let arguments = [
        "plan.yaml",
        "--nodes",
        "3",
        "--upgrade",
        "2m",
        "--reboot",
        "5m",
        "-o",
        "json",
    ];
    let ended = rehearse(folder.path(), &arguments);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    for turn in ended.json()["turns"].as_array().unwrap() {
        let phase = |name: &str| -> i64 {
            let phases = turn["phases"].as_array().unwrap();
            let all = phases.iter().filter(|one| one["phase"] == name);
            all.map(|one| one["seconds"].as_i64().unwrap()).sum()
        };
        assert!((295..330).contains(&phase("Rebooting")), "{turn}");
        assert!(phase("Settling") >= 55, "{turn}");
    }
}
