//! Compares lifecycles with recordings of a real kubelet (`tests/recordings/kubelet`).

use std::fmt::Write as _;

use k8s_openapi::api::core::v1::{ContainerState, PodStatus};

use super::PodFixture;

/// Scenarios, each with the annotations (without their prefix) that make its containers behave like the recorded ones.
const SCENARIOS: &[(&str, &str)] = &[
    ("success", "init-delay=2s, run-delay=2s, message=all good"),
    ("failure", "run-delay=2s, exit-code=3, message=it broke\n"),
    ("init-failure", "init-delay=2s, b.exit-code=7, b.message=no"),
    (
        "init-failure-on-failure",
        "init-delay=2s, run-delay=2s, b.exit-code-first=1",
    ),
    (
        "init-failure-on-failure-thrice",
        "init-delay=2s, init-exit-code=1",
    ),
    ("crash-on-failure", "run-delay=2s, exit-code=1"),
    ("always", "run-delay=2s"),
    ("deadline", "run-delay=never, delete-delay=never"),
    ("deadline-init", "init-delay=never, delete-delay=never"),
    ("delete-running", "run-delay=never, delete-delay=never"),
    ("delete-running-exits-0", "run-delay=never, stop-exit-code=0"),
    (
        "delete-running-always",
        "c.stop-exit-code=0, d.delete-delay=never",
    ),
    (
        "delete-running-job-finalizer",
        "run-delay=never, delete-delay=never",
    ),
    (
        "delete-init",
        "a.run-delay=1s, b.run-delay=never, delete-delay=never",
    ),
    ("delete-succeeded", "run-delay=1s"),
    ("delete-backoff", "run-delay=1s, exit-code=1"),
    ("image-missing", "start-delay=never"),
    ("evicted-by-api", "run-delay=never, delete-delay=never"),
    (
        "sidecar",
        "a.run-delay=1s, b.run-delay=2s, run-delay=3s, s.stop-exit-code=0",
    ),
    ("sidecar-crash", "s.run-delay=3s, s.exit-code=1, run-delay=12s"),
    (
        "sidecar-delete",
        "run-delay=never, s.stop-exit-code=0, stop-exit-code=0",
    ),
    ("two-containers", "c.run-delay=2s, d.run-delay=5s, d.exit-code=4"),
    (
        "two-containers-on-failure",
        "c.run-delay=2s, d.run-delay=4s, d.exit-code-first=1",
    ),
    ("affinity-refused", ""),
    ("selector-refused", ""),
    ("reboot-never", "init-delay=1s, run-delay=never"),
    ("reboot-on-failure", "init-delay=2s, run-delay=never"),
    ("reboot-always", "init-delay=2s, stop-exit-code=0"),
    ("reboot-in-init-never", "a.run-delay=1s, b.run-delay=never"),
    ("reboot-in-init-on-failure", "a.run-delay=1s, b.run-delay=never"),
    ("reboot-sidecar", "init-delay=2s, run-delay=never"),
    (
        "reboot-sidecar-always",
        "init-delay=2s, s.stop-exit-code=0, stop-exit-code=0",
    ),
    ("reboot-in-backoff", "init-delay=1s, run-delay=1s, exit-code=1"),
    ("reboot-one-done", "c.run-delay=1s, d.run-delay=never"),
];

/// Changes of the steering after the reboot.
const AFTER_REBOOT: &[(&str, &str, &str)] = &[
    ("reboot-on-failure", "run-delay", "5s"),
    ("reboot-in-init-on-failure", "b.run-delay", "1s"),
    ("reboot-one-done", "d.run-delay", "4s"),
];

enum RecordedStep {
    Status(String),
    Delete(i64),
    Reboot,
    Gone,
}

/// The spec of a scenario, and its steps by milliseconds.
fn recorded_steps(scenario: &str) -> (serde_json::Value, Vec<(i64, RecordedStep)>) {
    let path = format!(
        "{}/../../tests/recordings/kubelet/{scenario}.txt",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let (spec, steps) = text.split_once('\n').unwrap();
    let spec = serde_json::from_str(spec.strip_prefix("spec ").unwrap()).unwrap();
    let facts = steps.split("\n@").map(|part| {
        let (at, what) = part.trim_start_matches('@').trim_end().split_once(' ').unwrap();
        #[expect(clippy::cast_possible_truncation, reason = "a minute or two")]
        let millis = (at.parse::<f64>().unwrap() * 1_000.0).round() as i64;
        let fact = match what.split_once(' ') {
            Some(("status", status)) => RecordedStep::Status(status.to_owned()),
            Some(("delete", grace)) => RecordedStep::Delete(grace.parse().unwrap()),
            None if what == "reboot" => RecordedStep::Reboot,
            None if what == "gone" => RecordedStep::Gone,
            _ => panic!("{path}: {what}"),
        };
        (millis, fact)
    });
    (spec, facts.collect())
}

/// Replays a scenario. Returns the written statuses, and whether the pod was deleted.
fn replay(scenario: &str, steering: &str, forgetful: bool) -> (Vec<String>, bool) {
    let (spec, facts) = recorded_steps(scenario);
    let steering: Vec<_> = steering
        .split(", ")
        .filter_map(|one| one.split_once('='))
        .collect();
    let mut fixture = PodFixture::new(&spec, &steering);
    fixture.pod.metadata.name = Some(scenario.to_owned());
    fixture.pod.metadata.namespace = Some("cap".to_owned());
    fixture.defaults.teardown = jiff::SignedDuration::from_secs(1);
    let events = facts
        .iter()
        .enumerate()
        .filter(|(_, (_, fact))| !matches!(fact, RecordedStep::Status(_)));
    for (index, (at, event)) in events {
        run_fixture(&mut fixture, *at, forgetful);
        match event {
            RecordedStep::Delete(grace) => {
                fixture.delete(*grace);
                if scenario == "evicted-by-api" {
                    let evicted = serde_json::json!({"type": "DisruptionTarget", "status": "True",
                        "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"});
                    let conditions = &mut fixture.pod.status.as_mut().unwrap().conditions;
                    conditions
                        .as_mut()
                        .unwrap()
                        .push(serde_json::from_value(evicted).unwrap());
                }
            }
            RecordedStep::Reboot => {
                fixture.power_off();
                let mut later = facts[index..].iter();
                let back = later.find(|(_, fact)| matches!(fact, RecordedStep::Status(_)));
                run_fixture(&mut fixture, back.unwrap().0 - 500, forgetful);
                let second = AFTER_REBOOT.iter().filter(|(name, ..)| *name == scenario);
                let annotations = fixture.pod.metadata.annotations.get_or_insert_default();
                annotations.extend(
                    second.map(|(_, key, value)| (format!("fake-kubelet/{key}"), (*value).to_owned())),
                );
                fixture.boot();
            }
            RecordedStep::Gone | RecordedStep::Status(_) => {}
        }
    }
    let end = facts.last().unwrap().0;
    if matches!(scenario, "crash-on-failure") {
        run_fixture(&mut fixture, 15_000, forgetful);
        let annotations = fixture.pod.metadata.annotations.as_mut().unwrap();
        annotations.insert("fake-kubelet/exit-code".into(), "0".into());
    }
    run_fixture(&mut fixture, end + 5_000, forgetful);
    let reported = fixture.reported.iter().map(|(_, status)| text(status)).collect();
    (reported, fixture.gone)
}

fn run_fixture(fixture: &mut PodFixture, until: i64, forgetful: bool) {
    if forgetful {
        while fixture.millis() < until && !fixture.gone {
            fixture.forget();
            let next = (fixture.millis() + 2_600).min(until);
            fixture.run_until(next);
        }
    } else if fixture.millis() < until {
        fixture.run_until(until);
    }
}

/// A status in the format of the recordings: times, IDs and addresses are reduced to whether they are set.
fn text(status: &PodStatus) -> String {
    let word = |word: &Option<String>| {
        word.iter()
            .fold(String::new(), |text, word| format!("{text} {word}"))
    };
    let mut text = status.phase.clone().unwrap();
    text += &(word(&status.reason) + &quoted(status.message.as_ref()));
    if let Some(generation) = status.observed_generation {
        let _ = write!(text, " generation {generation}");
    }
    if status.start_time.is_some() {
        text += " started";
    }
    for condition in status.conditions.iter().flatten() {
        let why = word(&condition.reason) + &quoted(condition.message.as_ref());
        let _ = write!(text, "\n  {}={}{why}", condition.type_, condition.status);
        if condition.observed_generation != status.observed_generation {
            text += " generation none";
        }
    }
    let inits = status.init_container_statuses.iter().flatten();
    let others = status.container_statuses.iter().flatten();
    let inits = inits.map(|status| ("init", status));
    for (kind, container) in inits.chain(others.map(|status| ("container", status))) {
        let _ = write!(text, "\n  {kind} {}", container.name);
        for (flag, set) in [
            (" ready", container.ready),
            (" started", container.started == Some(true)),
            (" id", container.container_id.is_some()),
        ] {
            text += if set { flag } else { "" };
        }
        if container.restart_count > 0 {
            let _ = write!(text, " restarts={}", container.restart_count);
        }
        text += ": ";
        text += &state(container.state.as_ref().unwrap());
        if let Some(last) = &container.last_state {
            let _ = write!(text, ", last {}", state(last));
        }
    }
    text
}

/// The message in quotes, with a space before it.
fn quoted(message: Option<&String>) -> String {
    message.map_or_else(String::new, |message| format!(" {message:?}"))
}

fn state(state: &ContainerState) -> String {
    if let Some(waiting) = &state.waiting {
        let reason = waiting.reason.as_deref().unwrap();
        return format!("waiting {reason}{}", quoted(waiting.message.as_ref()));
    }
    if state.running.is_some() {
        return "running".to_owned();
    }
    let exit = state.terminated.as_ref().unwrap();
    let has_times = exit.started_at.is_some() && exit.finished_at.is_some();
    let idless = if exit.container_id.is_some() {
        ""
    } else {
        " idless"
    };
    let timeless = if has_times { "" } else { " timeless" };
    let (code, reason) = (exit.exit_code, exit.reason.as_deref().unwrap());
    format!(
        "terminated {code} {reason}{idless}{timeless}{}",
        quoted(exit.message.as_ref())
    )
}

fn real_statuses(scenario: &str) -> (Vec<String>, bool) {
    let facts = recorded_steps(scenario).1;
    let gone = facts.iter().any(|(_, fact)| matches!(fact, RecordedStep::Gone));
    let reported = facts.into_iter().filter_map(|(_, fact)| match fact {
        RecordedStep::Status(status) => Some(status),
        _ => None,
    });
    (reported.collect(), gone)
}

#[test]
fn every_status_is_one_that_a_real_kubelet_reported_at_the_same_point() {
    for (scenario, steering) in SCENARIOS {
        let (real, really_gone) = real_statuses(scenario);
        let (reported, gone) = replay(scenario, steering, false);
        let mut rest = real.as_slice();
        for status in &reported {
            let found = rest.iter().position(|real| real == status);
            let index = found.unwrap_or_else(|| {
                panic!(
                    "{scenario}: no real kubelet reported\n{status}\nbut from there on\n{}",
                    rest.join("\n")
                )
            });
            rest = &rest[index + 1..];
        }
        assert_eq!(reported.last(), real.last(), "{scenario}: the end");
        // The API server itself deletes a pod that had terminated before.
        assert_eq!(
            gone,
            really_gone && *scenario != "delete-succeeded",
            "{scenario}: whether the kubelet deletes it"
        );
    }
}

#[test]
fn a_kubelet_that_keeps_only_the_status_reaches_the_same_result() {
    // Status does not contain the restart counts before the boot, from which back-offs are computed.
    for (scenario, steering) in SCENARIOS
        .iter()
        .filter(|(scenario, _)| *scenario != "reboot-in-backoff")
    {
        let (reported, gone) = replay(scenario, steering, false);
        let (reported_forgetful, gone_forgetful) = replay(scenario, steering, true);
        assert_eq!(
            (reported.last(), gone),
            (reported_forgetful.last(), gone_forgetful),
            "{scenario}"
        );
    }
}

#[test]
fn every_recording_is_used() {
    let folder = format!("{}/../../tests/recordings/kubelet", env!("CARGO_MANIFEST_DIR"));
    let names = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    for name in names.filter_map(|name| name.strip_suffix(".txt").map(str::to_owned)) {
        assert!(SCENARIOS.iter().any(|(scenario, _)| *scenario == name), "{name}");
    }
}
