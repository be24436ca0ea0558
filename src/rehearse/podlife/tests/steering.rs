use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde_json::json;

use super::super::behaviour::{Behaviour, Defaults, Delay, Reboots};
use super::{Stage, job, single};

fn layer(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries
        .iter()
        .map(|(key, value)| (format!("fake-kubelet/{key}"), (*value).to_owned()))
        .collect()
}

fn resolve(own: &[(&str, &str)], node: &[(&str, &str)]) -> Behaviour {
    let stage = Stage::new(&job(), own);
    Behaviour::resolve(&stage.pod, &[&layer(node)], &Defaults::default(), &|name| {
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
fn what_names_a_container_comes_before_what_does_not_even_from_farther_away() {
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
fn a_container_that_another_pod_has_is_none_of_this_ones_business() {
    let behaviour = resolve(&[], &[("verify.exit-code", "1")]);
    assert!(
        behaviour
            .init
            .iter()
            .chain(&behaviour.regular)
            .all(|container| container.exit_code == 0)
    );
}

#[test]
fn steering_the_exit_code_of_what_is_acted_puts_the_act_out_of_force() {
    assert!(resolve(&[], &[]).init[1].acted);
    assert!(
        resolve(&[("init-exit-code", "1")], &[]).init[1].acted,
        "that was not said of this container"
    );
    assert!(!resolve(&[("drain.exit-code", "1")], &[]).init[1].acted);
}

#[test]
fn a_slip_of_the_pen_is_an_error_that_names_it() {
    for (key, value, message) in [
        (
            "exitcode",
            "1",
            r#"annotation fake-kubelet/exitcode="1": no such key"#,
        ),
        (
            "exit-code",
            "no",
            r#"annotation fake-kubelet/exit-code="no": an exit code from 0 to 255 is wanted"#,
        ),
        (
            "exit-code",
            "256",
            r#"annotation fake-kubelet/exit-code="256": an exit code from 0 to 255 is wanted"#,
        ),
        (
            "run-delay",
            "5",
            r#"annotation fake-kubelet/run-delay="5": a duration such as 300ms or 1m30s is wanted"#,
        ),
        (
            "run-delay",
            "-5s",
            r#"annotation fake-kubelet/run-delay="-5s": a duration such as 300ms or 1m30s is wanted"#,
        ),
        (
            "upgrade.reboot",
            "yes",
            r#"annotation fake-kubelet/upgrade.reboot="yes": never, once or always is wanted"#,
        ),
        (
            "upgrade.start-delay",
            "1s",
            r#"annotation fake-kubelet/upgrade.start-delay="1s": no such key of a container"#,
        ),
    ] {
        let stage = Stage::new(&job(), &[(key, value)]);
        let error = Behaviour::resolve(&stage.pod, &[], &Defaults::default(), &|_| false).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn durations_are_gos() {
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
    let stage = Stage::new(&single("Always"), &[]);
    assert_eq!(stage.behaviour().regular[0].run, Delay::Never);
    let steered = Stage::new(&single("Always"), &[("run-delay", "3s")]);
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
        let behaviour = Stage::new(&spec, steering).behaviour();
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
        let mut stage = Stage::new(&single("Never"), &[]);
        stage.pod.metadata.uid = Some(format!("uid-{index}"));
        let run = || {
            Behaviour::resolve(&stage.pod, &[], &defaults, &|_| false)
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
