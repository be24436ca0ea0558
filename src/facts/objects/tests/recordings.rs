//! What is read of pods that a real kubelet ran (`tests/recordings/kubelet`).

use serde_json::{Value, json};

use super::super::{Intern, SlimPod};

/// The recordings, and each reading that differs from the one before it.
const READINGS: [(&str, &[&str]); 11] = [
    (
        "success",
        &[
            "Starting",
            "Prepare",
            "Drain",
            "Upgrade, upgraded",
            "Ended, upgraded",
        ],
    ),
    (
        "failure",
        &[
            "Starting",
            "Upgrade, upgraded",
            "Upgrade, upgraded, failed: container upgrade exited with 3: it broke",
            "Ended, upgraded, failed: container upgrade exited with 3: it broke",
        ],
    ),
    (
        "init-failure",
        &[
            "Starting",
            "Prepare",
            "Drain",
            "Drain, failed: container drain exited with 7: no",
            "Ended, failed: container drain exited with 7: no",
        ],
    ),
    (
        "init-failure-on-failure-thrice",
        &[
            "Starting",
            "Drain",
            "Drain, failed: container drain exited with 1",
            "Starting, waits: container drain: CrashLoopBackOff: back-off 10s restarting failed container=b pod=init-failure-on-failure-thrice_cap(UID), failed: container drain exited with 1",
            "Drain, failed: container drain exited with 1",
            "Starting, waits: container drain: CrashLoopBackOff: back-off 20s restarting failed container=b pod=init-failure-on-failure-thrice_cap(UID), failed: container drain exited with 1",
            "Drain, failed: container drain exited with 1",
            "Ended, failed: container drain exited with 1",
        ],
    ),
    (
        "crash-on-failure",
        &[
            "Starting",
            "Upgrade, upgraded",
            "Upgrade, upgraded, failed: container upgrade exited with 1",
            "Starting, waits: container upgrade: CrashLoopBackOff: back-off 10s restarting failed container=c pod=crash-on-failure_cap(UID), failed: container upgrade exited with 1",
            "Upgrade, upgraded, failed: container upgrade exited with 1",
            "Upgrade, upgraded",
            "Ended, upgraded",
        ],
    ),
    (
        "image-missing",
        &[
            "Starting",
            "Starting, waits: container upgrade: ErrImageNeverPull: Container image \"localhost/none:1\" is not present with pull policy of Never",
            "Starting",
            "Ended, upgraded, failed: container upgrade exited with 137: The container could not be located when the pod was terminated",
        ],
    ),
    (
        "delete-init",
        &[
            "Starting",
            "Prepare",
            "Drain",
            "Ended, failed: container drain exited with 137",
        ],
    ),
    (
        "deadline",
        &[
            "Starting",
            "Upgrade, upgraded",
            "Ended, upgraded, failed: container upgrade exited with 137",
        ],
    ),
    ("affinity-refused", &["Starting", "Ended"]),
    (
        "reboot-on-failure",
        &[
            "Starting",
            "Prepare",
            "Upgrade, upgraded",
            "Upgrade, upgraded, failed: container upgrade exited with 255",
            "Upgrade, upgraded",
            "Ended, upgraded",
        ],
    ),
    (
        "reboot-in-init-never",
        &[
            "Starting",
            "Prepare",
            "Drain",
            "Drain, failed: container drain exited with 255",
            "Ended, failed: container drain exited with 255",
        ],
    ),
];

#[test]
fn a_pod_on_a_real_kubelet_is_read_as_what_it_does() {
    for (recording, expected) in READINGS {
        let mut readings: Vec<String> = statuses(recording).iter().map(read).collect();
        readings.dedup();
        assert_eq!(readings, expected, "{recording}");
    }
}

#[test]
fn every_recording_is_read() {
    let folder = format!("{}/../../tests/recordings/kubelet", env!("CARGO_MANIFEST_DIR"));
    let names = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    for name in names.filter_map(|name| name.strip_suffix(".txt").map(str::to_owned)) {
        assert!(READINGS.iter().any(|(recording, _)| *recording == name), "{name}");
    }
}

fn read(status: &Value) -> String {
    let owner =
        json!({ "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true });
    let pod = json!({
        "metadata": { "name": "p", "uid": "u", "ownerReferences": [owner] },
        "spec": { "nodeName": "n" },
        "status": status,
    });
    let facts = serde_json::from_value::<SlimPod>(pod)
        .unwrap()
        .facts(&Intern::default());
    let mut reading = format!("{:?}", facts.stage);
    reading += if facts.upgraded { ", upgraded" } else { "" };
    let messages = [
        ("waits", facts.waiting),
        ("failed", facts.failed.map(|it| it.to_string())),
    ];
    for (what, message) in messages {
        reading += &message.map_or_else(String::new, |message| format!(", {what}: {message}"));
    }
    reading
}

/// The statuses of a recording. Its containers get names of a Job's containers.
fn statuses(recording: &str) -> Vec<Value> {
    let path = format!(
        "{}/../../tests/recordings/kubelet/{recording}.txt",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(path).unwrap();
    let steps = text.split("\n@").filter_map(|step| step.split_once(" status "));
    steps.map(|(_, status)| parse(status)).collect()
}

fn parse(status: &str) -> Value {
    let mut lines = status.lines();
    let phase = lines.next().unwrap().split(' ').next();
    let (mut conditions, mut inits, mut regulars) = (Vec::new(), Vec::new(), Vec::new());
    for line in lines.map(str::trim) {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        match kind {
            "init" => inits.push(container(rest)),
            "container" => regulars.push(container(rest)),
            condition => {
                let (kind, verdict) = condition.split_once('=').unwrap();
                conditions.push(json!({ "type": kind, "status": verdict }));
            }
        }
    }
    json!({
        "phase": phase, "conditions": conditions,
        "initContainerStatuses": inits, "containerStatuses": regulars,
    })
}

fn container(text: &str) -> Value {
    let (head, states) = text.split_once(": ").unwrap();
    let name = match head.split(' ').next().unwrap() {
        "a" => "prepare",
        "b" => "drain",
        "c" => "upgrade",
        other => other,
    };
    let (now, last) = states.split_once(", last ").unwrap_or((states, ""));
    let mut container = json!({ "name": name, "state": state(now) });
    if !last.is_empty() {
        container["lastState"] = state(last);
    }
    container
}

fn state(text: &str) -> Value {
    let (words, message) = text.split_once(" \"").unwrap_or((text, ""));
    let message = message
        .strip_suffix('"')
        .map(|message| message.replace("\\\"", "\"").replace("\\n", "\n"));
    match *words.split(' ').collect::<Vec<_>>() {
        ["running"] => json!({ "running": {} }),
        ["waiting", reason] => json!({ "waiting": { "reason": reason, "message": message } }),
        ["terminated", code, reason, ..] => {
            let code: i32 = code.parse().unwrap();
            json!({ "terminated": { "exitCode": code, "reason": reason, "message": message } })
        }
        _ => panic!("{text}"),
    }
}
