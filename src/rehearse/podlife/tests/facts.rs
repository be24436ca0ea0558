//! Lives beside those that a real kubelet told (`tests/facts/kubelet`).

use std::fmt::Write as _;

use k8s_openapi::api::core::v1::{ContainerState, PodStatus};

use super::Stage;

/// A scenario and the steering that makes our containers do what the real ones did.
const SCENARIOS: &[(&str, &[(&str, &str)])] = &[
    (
        "success",
        &[("init-delay", "2s"), ("run-delay", "2s"), ("message", "all good")],
    ),
    (
        "failure",
        &[("run-delay", "2s"), ("exit-code", "3"), ("message", "it broke\n")],
    ),
    (
        "init-failure",
        &[("init-delay", "2s"), ("b.exit-code", "7"), ("b.message", "no")],
    ),
    (
        "init-failure-on-failure",
        &[
            ("init-delay", "2s"),
            ("run-delay", "2s"),
            ("b.exit-code-first", "1"),
        ],
    ),
    (
        "init-failure-on-failure-thrice",
        &[("init-delay", "2s"), ("init-exit-code", "1")],
    ),
    ("crash-on-failure", &[("run-delay", "2s"), ("exit-code", "1")]),
    ("always", &[("run-delay", "2s")]),
    ("deadline", &[("run-delay", "never"), ("delete-delay", "never")]),
    (
        "deadline-init",
        &[("init-delay", "never"), ("delete-delay", "never")],
    ),
    (
        "delete-running",
        &[("run-delay", "never"), ("delete-delay", "never")],
    ),
    (
        "delete-running-exits-0",
        &[("run-delay", "never"), ("stop-exit-code", "0")],
    ),
    (
        "delete-running-always",
        &[("c.stop-exit-code", "0"), ("d.delete-delay", "never")],
    ),
    (
        "delete-running-job-finalizer",
        &[("run-delay", "never"), ("delete-delay", "never")],
    ),
    (
        "delete-init",
        &[
            ("a.run-delay", "1s"),
            ("b.run-delay", "never"),
            ("delete-delay", "never"),
        ],
    ),
    ("delete-succeeded", &[("run-delay", "1s")]),
    ("delete-backoff", &[("run-delay", "1s"), ("exit-code", "1")]),
    ("image-missing", &[("start-delay", "never")]),
    (
        "evicted-by-api",
        &[("run-delay", "never"), ("delete-delay", "never")],
    ),
    (
        "sidecar",
        &[
            ("a.run-delay", "1s"),
            ("b.run-delay", "2s"),
            ("run-delay", "3s"),
            ("s.stop-exit-code", "0"),
        ],
    ),
    (
        "sidecar-crash",
        &[("s.run-delay", "3s"), ("s.exit-code", "1"), ("run-delay", "12s")],
    ),
    (
        "sidecar-delete",
        &[
            ("run-delay", "never"),
            ("s.stop-exit-code", "0"),
            ("stop-exit-code", "0"),
        ],
    ),
    (
        "two-containers",
        &[("c.run-delay", "2s"), ("d.run-delay", "5s"), ("d.exit-code", "4")],
    ),
    (
        "two-containers-on-failure",
        &[
            ("c.run-delay", "2s"),
            ("d.run-delay", "4s"),
            ("d.exit-code-first", "1"),
        ],
    ),
    ("affinity-refused", &[]),
    ("selector-refused", &[]),
    ("reboot-never", &[("init-delay", "1s"), ("run-delay", "never")]),
    (
        "reboot-on-failure",
        &[("init-delay", "2s"), ("run-delay", "never")],
    ),
    ("reboot-always", &[("init-delay", "2s"), ("stop-exit-code", "0")]),
    (
        "reboot-in-init-never",
        &[("a.run-delay", "1s"), ("b.run-delay", "never")],
    ),
    (
        "reboot-in-init-on-failure",
        &[("a.run-delay", "1s"), ("b.run-delay", "never")],
    ),
    ("reboot-sidecar", &[("init-delay", "2s"), ("run-delay", "never")]),
    (
        "reboot-sidecar-always",
        &[
            ("init-delay", "2s"),
            ("s.stop-exit-code", "0"),
            ("stop-exit-code", "0"),
        ],
    ),
    (
        "reboot-in-backoff",
        &[("init-delay", "1s"), ("run-delay", "1s"), ("exit-code", "1")],
    ),
    (
        "reboot-one-done",
        &[("c.run-delay", "1s"), ("d.run-delay", "never")],
    ),
];

/// What the containers did otherwise in their second life.
const AFTER_REBOOT: &[(&str, &str, &str)] = &[
    ("reboot-on-failure", "run-delay", "5s"),
    ("reboot-in-init-on-failure", "b.run-delay", "1s"),
    ("reboot-one-done", "d.run-delay", "4s"),
];

enum Fact {
    Status(String),
    Delete(i64),
    Reboot,
    Gone,
}

/// The spec of a scenario, and what happened when (in milliseconds).
fn facts(scenario: &str) -> (serde_json::Value, Vec<(i64, Fact)>) {
    let path = format!(
        "{}/tests/facts/kubelet/{scenario}.txt",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let (spec, story) = text.split_once('\n').unwrap();
    let spec = serde_json::from_str(spec.strip_prefix("spec ").unwrap()).unwrap();
    let facts = story.split("\n@").map(|part| {
        let (at, what) = part.trim_start_matches('@').trim_end().split_once(' ').unwrap();
        #[expect(clippy::cast_possible_truncation, reason = "a minute or two")]
        let millis = (at.parse::<f64>().unwrap() * 1_000.0).round() as i64;
        let fact = match what.split_once(' ') {
            Some(("status", status)) => Fact::Status(status.to_owned()),
            Some(("delete", grace)) => Fact::Delete(grace.parse().unwrap()),
            None if what == "reboot" => Fact::Reboot,
            None if what == "gone" => Fact::Gone,
            _ => panic!("{path}: {what}"),
        };
        (millis, fact)
    });
    (spec, facts.collect())
}

/// Plays a scenario; what was told, and whether the pod was deleted.
fn play(scenario: &str, steering: &[(&str, &str)], forgetful: bool) -> (Vec<String>, bool) {
    let (spec, facts) = facts(scenario);
    let mut stage = Stage::new(&spec, steering);
    stage.pod.metadata.name = Some(scenario.to_owned());
    stage.pod.metadata.namespace = Some("cap".to_owned());
    stage.defaults.teardown = jiff::SignedDuration::from_secs(1);
    let events = facts
        .iter()
        .enumerate()
        .filter(|(_, (_, fact))| !matches!(fact, Fact::Status(_)));
    for (index, (at, event)) in events {
        live(&mut stage, *at, forgetful);
        match event {
            Fact::Delete(grace) => {
                stage.delete(*grace);
                if scenario == "evicted-by-api" {
                    let evicted = serde_json::json!({"type": "DisruptionTarget", "status": "True",
                        "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"});
                    let status = stage.pod.status.as_mut().unwrap();
                    status
                        .conditions
                        .as_mut()
                        .unwrap()
                        .push(serde_json::from_value(evicted).unwrap());
                }
            }
            Fact::Reboot => {
                stage.power_off();
                let back = facts[index..]
                    .iter()
                    .find(|(_, fact)| matches!(fact, Fact::Status(_)))
                    .unwrap()
                    .0;
                live(&mut stage, back - 500, forgetful);
                let second = AFTER_REBOOT.iter().filter(|(name, ..)| *name == scenario);
                let annotations = stage.pod.metadata.annotations.get_or_insert_default();
                annotations.extend(
                    second.map(|(_, key, value)| (format!("fake-kubelet/{key}"), (*value).to_owned())),
                );
                stage.boot();
            }
            Fact::Gone | Fact::Status(_) => {}
        }
    }
    let end = facts.last().unwrap().0;
    if matches!(scenario, "crash-on-failure") {
        live(&mut stage, 15_000, forgetful);
        stage
            .pod
            .metadata
            .annotations
            .as_mut()
            .unwrap()
            .insert("fake-kubelet/exit-code".into(), "0".into());
    }
    live(&mut stage, end + 5_000, forgetful);
    let told = stage.told.iter().map(|(_, status)| text(status)).collect();
    (told, stage.gone)
}

fn live(stage: &mut Stage, until: i64, forgetful: bool) {
    if forgetful {
        while stage.millis() < until && !stage.gone {
            stage.forget();
            let next = (stage.millis() + 2_600).min(until);
            stage.run_until(next);
        }
    } else if stage.millis() < until {
        stage.run_until(until);
    }
}

/// A status as the facts are written: without times, IDs and addresses, but with whether there were any.
fn text(status: &PodStatus) -> String {
    let quoted = |message: &Option<String>| {
        message
            .iter()
            .fold(String::new(), |text, message| format!("{text} {message:?}"))
    };
    let word = |word: &Option<String>| {
        word.iter()
            .fold(String::new(), |text, word| format!("{text} {word}"))
    };
    let mut text = status.phase.clone().unwrap();
    text += &(word(&status.reason) + &quoted(&status.message));
    if let Some(generation) = status.observed_generation {
        let _ = write!(text, " generation {generation}");
    }
    if status.start_time.is_some() {
        text += " started";
    }
    for condition in status.conditions.iter().flatten() {
        let why = word(&condition.reason) + &quoted(&condition.message);
        let _ = write!(text, "\n  {}={}{why}", condition.type_, condition.status);
        if condition.observed_generation != status.observed_generation {
            text += " generation none";
        }
    }
    let inits = status
        .init_container_statuses
        .iter()
        .flatten()
        .map(|status| ("init", status));
    for (kind, container) in inits.chain(
        status
            .container_statuses
            .iter()
            .flatten()
            .map(|status| ("container", status)),
    ) {
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

fn state(state: &ContainerState) -> String {
    let message = |message: &Option<String>| {
        message
            .iter()
            .fold(String::new(), |text, message| format!("{text} {message:?}"))
    };
    if let Some(waiting) = &state.waiting {
        return format!(
            "waiting {}{}",
            waiting.reason.as_deref().unwrap(),
            message(&waiting.message)
        );
    }
    if state.running.is_some() {
        return "running".to_owned();
    }
    let exit = state.terminated.as_ref().unwrap();
    let idless = if exit.container_id.is_some() {
        ""
    } else {
        " idless"
    };
    let timeless = if exit.started_at.is_some() && exit.finished_at.is_some() {
        ""
    } else {
        " timeless"
    };
    let reason = exit.reason.as_deref().unwrap();
    format!(
        "terminated {} {reason}{idless}{timeless}{}",
        exit.exit_code,
        message(&exit.message)
    )
}

fn real_statuses(scenario: &str) -> (Vec<String>, bool) {
    let facts = facts(scenario).1;
    let gone = facts.iter().any(|(_, fact)| matches!(fact, Fact::Gone));
    let told = facts.into_iter().filter_map(|(_, fact)| {
        if let Fact::Status(status) = fact {
            Some(status)
        } else {
            None
        }
    });
    (told.collect(), gone)
}

#[test]
fn every_status_is_one_that_a_real_kubelet_told_in_the_same_place() {
    for (scenario, steering) in SCENARIOS {
        let (real, really_gone) = real_statuses(scenario);
        let (told, gone) = play(scenario, steering, false);
        let mut rest = real.as_slice();
        for status in &told {
            let found = rest.iter().position(|real| real == status);
            let index = found.unwrap_or_else(|| {
                panic!(
                    "{scenario}: no real kubelet told\n{status}\nbut from there on\n{}",
                    rest.join("\n")
                )
            });
            rest = &rest[index + 1..];
        }
        assert_eq!(told.last(), real.last(), "{scenario}: the end");
        // The API server deletes a pod by itself that had ended before.
        assert_eq!(
            gone,
            really_gone && *scenario != "delete-succeeded",
            "{scenario}: whether the kubelet deletes it"
        );
    }
}

#[test]
fn a_kubelet_that_forgets_everything_but_the_status_comes_to_the_same_end() {
    // How many restarts a container had before the boot, from which its back-offs count, is not in the status.
    for (scenario, steering) in SCENARIOS
        .iter()
        .filter(|(scenario, _)| *scenario != "reboot-in-backoff")
    {
        let (told, gone) = play(scenario, steering, false);
        let (told_forgetful, gone_forgetful) = play(scenario, steering, true);
        assert_eq!(
            (told.last(), gone),
            (told_forgetful.last(), gone_forgetful),
            "{scenario}"
        );
    }
}

#[test]
fn every_fact_is_used() {
    let folder = format!("{}/tests/facts/kubelet", env!("CARGO_MANIFEST_DIR"));
    let names = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    for name in names.filter_map(|name| name.strip_suffix(".txt").map(str::to_owned)) {
        assert!(SCENARIOS.iter().any(|(scenario, _)| *scenario == name), "{name}");
    }
}
