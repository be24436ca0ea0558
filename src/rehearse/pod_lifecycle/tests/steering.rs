use std::collections::BTreeMap;

use jiff::SignedDuration;

use super::super::behaviour::{ContainerBehaviour, Defaults, Delay, PodBehaviour, Reboots};
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

fn of<'a>(behaviour: &'a PodBehaviour, name: &str) -> &'a ContainerBehaviour {
    behaviour.containers.iter().find(|one| one.name == name).unwrap()
}

const fn secs(secs: i64) -> Delay {
    Delay::After(SignedDuration::from_secs(secs))
}

#[test]
fn the_pods_annotations_come_before_its_nodes() {
    let behaviour = resolve(
        &[("exit-code", "1")],
        &[("exit-code", "2"), ("start-delay", "7s")],
    );
    assert_eq!(of(&behaviour, "upgrade").exit_code, 1);
    assert_eq!(behaviour.start, secs(7));
}

#[test]
fn steering_that_names_a_container_wins_even_when_it_is_the_nodes() {
    let behaviour = resolve(
        &[("run-delay", "1s")],
        &[("upgrade.run-delay", "2s"), ("upgrade.reboot", "always")],
    );
    let upgrade = of(&behaviour, "upgrade");
    assert_eq!((upgrade.run, upgrade.reboots), (secs(2), Reboots::Always));
}

#[test]
fn init_containers_are_steered_by_their_names_only() {
    let steering = [
        ("run-delay", "6s"),
        ("exit-code", "5"),
        ("drain.exit-code", "4"),
        ("delete-delay", "8s"),
    ];
    let behaviour = resolve(&steering, &[]);
    let found = ["prepare", "drain", "upgrade"].map(|name| {
        let one = of(&behaviour, name);
        (one.run, one.exit_code, one.stop)
    });
    let init = Delay::millis(200);
    assert_eq!(
        found,
        [(init, 0, secs(8)), (init, 4, secs(8)), (secs(6), 5, secs(8))]
    );
}

#[test]
fn steering_of_a_container_of_another_pod_has_no_effect() {
    let behaviour = resolve(&[], &[("verify.exit-code", "1")]);
    let mut containers = behaviour.containers.iter();
    assert!(containers.all(|container| container.exit_code == 0));
}

#[test]
fn a_steered_exit_code_replaces_the_task_of_a_container() {
    for (key, has_task) in [
        ("upgrade.exit-code", true),
        ("exit-code", true),
        ("drain.exit-code", false),
    ] {
        assert_eq!(resolve(&[(key, "1")], &[]).has_task("drain"), has_task, "{key}");
    }
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
        ("upgrade.start-delay", "1s", "no such key"),
    ] {
        let fixture = PodFixture::new(&job(), &[(key, value)]);
        let resolved = PodBehaviour::resolve(&fixture.pod, &[], &Defaults::default(), &|_| false);
        let expected = format!("annotation fake-kubelet/{key}={value:?}: {message}");
        assert_eq!(resolved.unwrap_err(), expected);
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
    assert_eq!(of(&fixture.behaviour(), "c").run, Delay::Never);
    let steered = PodFixture::new(&single("Always"), &[("run-delay", "3s")]);
    assert_eq!(of(&steered.behaviour(), "c").run, secs(3));
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
            let resolved = PodBehaviour::resolve(&fixture.pod, &[], &defaults, &|_| false);
            of(&resolved.unwrap(), "c").run
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
