use super::super::tests::{container, linux_pod, spec};
use super::*;

fn volume_names(yaml: &str) -> Vec<String> {
    of_pod(&spec(yaml))
        .unwrap()
        .into_iter()
        .map(|volume| volume.name)
        .collect()
}

fn refused(yaml: &str) -> JobError {
    let error = of_pod(&spec(yaml)).unwrap_err();
    assert_eq!(errors(&spec(yaml))[0], error);
    error
}

fn mount_paths(yaml: &str, name: &str) -> Vec<String> {
    let pod = linux_pod(yaml);
    let mounts = container(&pod, name).volume_mounts.clone().unwrap();
    mounts.into_iter().map(|mount| mount.mount_path).collect()
}

#[test]
fn volumes_that_only_prepare_has_are_made_too() {
    for (name, source, volumes) in [
        ("b", "/b", &["host-root", "pod-info", "a", "b"][..]),
        ("a", "/a", &["host-root", "pod-info", "a"]), // in both containers: made once
    ] {
        let yaml = format!(
            "{{upgrade: {{image: x, volumes: [{{name: a, source: /a, destination: /in-upgrade}}]}},
               prepare: {{image: x, volumes: [{{name: {name}, source: {source}, destination: /in-prepare}}]}}}}"
        );
        assert_eq!(volume_names(&yaml), volumes);
        for container in ["prepare", "upgrade"] {
            let own = format!("/in-{container}");
            assert_eq!(
                mount_paths(&yaml, container),
                ["/host", "/run/system-upgrade/pod", &own]
            );
        }
    }
}

#[test]
fn two_volumes_of_one_name_are_an_error_that_names_it() {
    for (yaml, name) in [
        (
            "{upgrade: {image: x, volumes: [{name: a, source: /a, destination: /d}]},
              prepare: {image: x, volumes: [{name: a, source: /b, destination: /d}]}}",
            "a",
        ),
        (
            "{upgrade: {image: x, volumes: [{name: pod-info, source: /a, destination: /d}]}}",
            "pod-info",
        ),
        (
            "{upgrade: {image: x, volumes: [{name: secret-s, source: /a, destination: /d}]},
              secrets: [{name: s, path: p}]}",
            "secret-s",
        ),
        (
            "{upgrade: {image: x}, secrets: [{name: s, path: p}, {name: s, path: q, defaultMode: 256}]}",
            "secret-s",
        ),
    ] {
        assert_eq!(refused(yaml), JobError::VolumeConflict(name.to_owned()), "{yaml}");
    }
}

#[test]
fn a_secret_at_two_paths_is_one_volume() {
    let yaml = "{upgrade: {image: x}, secrets: [{name: s, path: /p}, {name: s, path: q}]}";
    assert_eq!(volume_names(yaml), ["host-root", "pod-info", "secret-s"]);
    let paths = [
        "/host",
        "/run/system-upgrade/pod",
        "/p",
        "/run/system-upgrade/secrets/q",
    ];
    assert_eq!(mount_paths(yaml, "upgrade"), paths);
}

#[test]
fn secrets_with_dots_and_with_dashes_are_two_volumes() {
    let yaml = "{upgrade: {image: x}, secrets: [{name: a.b, path: ''}, {name: a-b, path: ''}]}";
    assert_eq!(
        volume_names(yaml),
        ["host-root", "pod-info", "secret-a-b-2e7336dc", "secret-a-b"]
    );
}

#[test]
fn a_secret_may_be_missing_when_its_updates_do_not_matter() {
    let yaml = "{upgrade: {image: x}, secrets: [{name: a, path: a}, {name: b, path: b, ignoreUpdates: true, defaultMode: 256}]}";
    let volumes = of_pod(&spec(yaml)).unwrap();
    let [.., a, b] = volumes.as_slice() else {
        panic!("{volumes:?}")
    };
    let (a, b) = (a.secret.as_ref().unwrap(), b.secret.as_ref().unwrap());
    assert_eq!((a.optional, a.default_mode), (Some(false), None));
    assert_eq!((b.optional, b.default_mode), (Some(true), Some(0o400)));
}

#[test]
fn a_secret_is_mounted_where_system_upgrade_controller_mounts_it() {
    let vectors = [
        ("/abs", "/abs"),
        ("/abs/../x/", "/abs/../x/"),
        ("", "/run/system-upgrade/secrets/name"),
        ("rel", "/run/system-upgrade/secrets/rel"),
        ("rel/./x/../y//z/", "/run/system-upgrade/secrets/rel/y/z"),
        (".", "/run/system-upgrade/secrets"),
        ("../x", "/run/system-upgrade/x"),
        ("../../../../../x", "/x"),
        ("../../..", "/"),
    ];
    for (path, mounted) in vectors {
        let secret = SecretSpec {
            name: "name".to_owned(),
            path: path.to_owned(),
            ..SecretSpec::default()
        };
        assert_eq!(secret_path(&secret), mounted, "{path:?}");
    }
}

#[test]
fn only_secrets_and_what_the_pod_knows_of_itself_are_read_only() {
    let pod = linux_pod(
        "{upgrade: {image: x, volumes: [{name: a, source: /a, destination: /a}]}, secrets: [{name: s, path: s}]}",
    );
    let mounts = container(&pod, "upgrade").volume_mounts.clone().unwrap();
    let read_only = mounts
        .iter()
        .map(|mount| (mount.name.as_str(), mount.read_only.unwrap_or(false)));
    let expected = [
        ("host-root", false),
        ("pod-info", true),
        ("secret-s", true),
        ("a", false),
    ];
    assert_eq!(read_only.collect::<Vec<_>>(), expected);
}

#[test]
fn a_volume_that_the_api_server_would_refuse_is_refused_by_render() {
    let volume = |name: &str, source: &str, destination: &str| {
        refused(&format!(
            "{{upgrade: {{image: x, volumes: [{{name: '{name}', source: '{source}', destination: '{destination}'}}]}}}}"
        ))
    };
    let path = |path: &str| JobError::VolumePath {
        name: "a".to_owned(),
        path: path.to_owned(),
    };
    assert_eq!(volume("a.b", "/a", "/a"), JobError::VolumeName("a.b".to_owned()));
    assert_eq!(volume("", "/a", "/a"), JobError::VolumeName(String::new()));
    assert_eq!(volume("a", "", "/a"), path(""));
    assert_eq!(volume("a", "/x/../etc", "/a"), path("/x/../etc"));
    assert_eq!(volume("a", "/a", ""), path(""));
}

#[test]
fn two_volumes_in_one_place_are_found() {
    let yaml = "{upgrade: {image: x, volumes: [{name: a, source: /a, destination: /host}]},
                 prepare: {image: x, volumes: [{name: b, source: /b, destination: /s}]}, secrets: [{name: s, path: /s}]}";
    let conflict = |container, path: &str| JobError::MountConflict {
        container,
        path: path.to_owned(),
    };
    assert_eq!(
        errors(&spec(yaml)),
        [conflict("prepare", "/s"), conflict("upgrade", "/host")]
    );
}
