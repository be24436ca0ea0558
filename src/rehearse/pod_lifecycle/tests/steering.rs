use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde_json::json;

use super::super::behaviour::{Defaults, Delay, PodBehaviour, Reboots};
use super::{PodFixture, job, single};

fn layer(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries
        .iter()
        .map(|(key, value)| (format!("fake-kubelet/{key}"), (*value).to_owned()))
        .collect()
}

fn resolve(own: &[(&str, &str)], node: &[(&str, &str)]) -> PodBehaviour {
    let fixture = PodFixture::new(&job(), own);
    PodBehaviour::resolve(&fixture.pod, &[&layer(node)], &Defaults::default(), &|name| {
        name == "drain"
    })
    .unwrap()
}

#[test]
fn the_pods_annotations_come_before_its_nodes() {
    let behaviour = resolve(
        &[("exit-code", "1")],
        &[("exit-code", "2"), ("start-delay", "7s")],
    );
    assert_eq!(behaviour.regular[0].exit_code, 1);
    assert_eq!(behaviour.start, Delay::After(SignedDuration::from_secs(7)));
}

#[test]
fn steering_that_names_a_container_wins_even_when_it_is_the_nodes() {
    let behaviour = resolve(
        &[("run-delay", "1s")],
        &[("upgrade.run-delay", "2s"), ("upgrade.reboot", "always")],
    );
    assert_eq!(
        behaviour.regular[0].run,
        Delay::After(SignedDuration::from_secs(2))
    );
    assert_eq!(behaviour.regular[0].reboots, Reboots::Always);
}

#[test]
fn init_containers_are_steered_apart_from_the_others() {
    let steering = [
        ("init-delay", "5s"),
        ("init-exit-code", "4"),
        ("run-delay", "6s"),
        ("exit-code", "5"),
    ];
    let behaviour = resolve(&steering, &[]);
    let secs = SignedDuration::from_secs;
    let of = |container: &super::super::behaviour::ContainerBehaviour| (container.run, container.exit_code);
    assert_eq!(
        behaviour.init.iter().map(of).collect::<Vec<_>>(),
        [(Delay::After(secs(5)), 4); 2]
    );
    assert_eq!(of(&behaviour.regular[0]), (Delay::After(secs(6)), 5));
}

#[test]
fn steering_of_a_container_of_another_pod_has_no_effect() {
    let behaviour = resolve(&[], &[("verify.exit-code", "1")]);
    let mut containers = behaviour.init.iter().chain(&behaviour.regular);
    assert!(containers.all(|container| container.exit_code == 0));
}

#[test]
fn a_steered_exit_code_replaces_the_task_of_a_container() {
    assert!(resolve(&[], &[]).init[1].has_task);
    assert!(
        resolve(&[("init-exit-code", "1")], &[]).init[1].has_task,
        "that was not said of this container"
    );
    assert!(!resolve(&[("drain.exit-code", "1")], &[]).init[1].has_task);
}

#[test]
fn a_mistyped_steering_is_an_error_that_names_it() {
    for (key, value, message) in [
        ("exitcode", "1", "no such key"),
        ("exit-code", "no", "must be an exit code from 0 to 255"),
        ("exit-code", "256", "must be an exit code from 0 to 255"),
        ("run-delay", "5", "must be a duration such as 300ms or 1m30s"),
        ("run-delay", "-5s", "must be a duration such as 300ms or 1m30s"),
        (
            "upgrade.reboot",
            "yes",
            "must be never, afterwards, once or always",
        ),
        ("upgrade.start-delay", "1s", "no such key of a container"),
    ] {
        let fixture = PodFixture::new(&job(), &[(key, value)]);
        let resolved = PodBehaviour::resolve(&fixture.pod, &[], &Defaults::default(), &|_| false);
        let expected = format!("annotation fake-kubelet/{key}={value:?}: {message}");
        assert_eq!(resolved.unwrap_err().to_string(), expected);
    }
}

#[test]
fn durations_of_steering_are_in_gos_format() {
    for (text, millis) in [
        ("0", 0),
        ("0s", 0),
        ("300ms", 300),
        ("1m30s", 90_000),
        ("1.5s", 1_500),
        ("2h", 7_200_000),
    ] {
        assert_eq!(
            resolve(&[("start-delay", text)], &[]).start,
            Delay::millis(millis),
            "{text}"
        );
    }
}

#[test]
fn pods_that_are_restarted_for_ever_run_for_ever() {
    let fixture = PodFixture::new(&single("Always"), &[]);
    assert_eq!(fixture.behaviour().regular[0].run, Delay::Never);
    let steered = PodFixture::new(&single("Always"), &[("run-delay", "3s")]);
    assert_eq!(steered.behaviour().regular[0].run, Delay::millis(3_000));
}

#[test]
fn sidecars_run_until_they_are_stopped_unless_they_are_named() {
    let spec = json!({
        "restartPolicy": "Never",
        "initContainers": [{"name": "s", "image": "i", "restartPolicy": "Always"}, {"name": "a", "image": "i"}],
        "containers": [{"name": "c", "image": "i"}],
    });
    let runs = |steering| {
        let behaviour = PodFixture::new(&spec, steering).behaviour();
        (behaviour.init[0].run, behaviour.init[1].run)
    };
    assert_eq!(
        runs(&[("init-delay", "5s")]),
        (Delay::Never, Delay::millis(5_000))
    );
    assert_eq!(
        runs(&[("s.run-delay", "1s")]),
        (Delay::millis(1_000), Delay::millis(200))
    );
}

#[test]
fn jitter_is_within_its_bounds_and_the_same_for_the_same_pod() {
    let defaults = Defaults {
        jitter_percent: 20,
        ..Defaults::default()
    };
    let mut seen = std::collections::BTreeSet::new();
    for index in 0..200 {
        let mut fixture = PodFixture::new(&single("Never"), &[]);
        fixture.pod.metadata.uid = Some(format!("uid-{index}"));
        let run = || {
            PodBehaviour::resolve(&fixture.pod, &[], &defaults, &|_| false)
                .unwrap()
                .regular[0]
                .run
        };
        let Delay::After(first) = run() else {
            panic!("it ends")
        };
        assert!((800..=1_200).contains(&first.as_millis()), "{first}");
        assert_eq!(run(), Delay::After(first));
        seen.insert(first);
    }
    assert!(seen.len() > 100, "{} different delays", seen.len());
}
