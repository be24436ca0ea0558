use std::path::Path;

use serde_json::Value;

use super::*;

/// As on a host of Kairos 4.0.3 with K3s.
const RELEASE: &str = r#"KAIROS_ARCH="amd64"
KAIROS_BUG_REPORT_URL="https://github.com/kairos-io/kairos/issues"
KAIROS_FAMILY="hadron"
KAIROS_FIPS="false"
KAIROS_FLAVOR="hadron"
KAIROS_FLAVOR_RELEASE="v0.0.4"
KAIROS_HOME_URL="https://github.com/kairos-io/kairos"
KAIROS_ID="kairos"
KAIROS_ID_LIKE="kairos-core-hadron-v0.0.4"
KAIROS_INIT_VERSION="v0.8.4"
KAIROS_MODEL="generic"
KAIROS_NAME="kairos-core-hadron-v0.0.4"
KAIROS_RELEASE="v4.0.3"
KAIROS_SOFTWARE_VERSION="v1.32.4+k3s1"
KAIROS_SOFTWARE_VERSION_PREFIX="k3s"
KAIROS_TARGETARCH="amd64"
KAIROS_TRUSTED_BOOT="false"
KAIROS_VARIANT="core"
KAIROS_VERSION="v4.0.3"
"#;

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pairs = pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    pairs.collect()
}

fn node(labels: &[(&str, &str)], annotations: &[(&str, &str)]) -> Metadata {
    Metadata {
        labels: map(labels),
        annotations: map(annotations),
    }
}

fn kairos(release: &str) -> Metadata {
    match Distribution::of(Some(release), None, "COS_ACTIVE") {
        Distribution::Kairos(metadata) => metadata,
        Distribution::Other => panic!("{release:?} is none of Kairos"),
    }
}

#[test]
fn a_kairos_release_becomes_the_labels_and_annotations_of_kairos_operator() {
    let expected = node(
        &[
            ("kairos.io/arch", "amd64"),
            ("kairos.io/boot-state", "active"),
            ("kairos.io/family", "hadron"),
            ("kairos.io/fips", "false"),
            ("kairos.io/flavor", "hadron"),
            ("kairos.io/flavor-release", "v0.0.4"),
            ("kairos.io/id", "kairos"),
            ("kairos.io/managed", "true"),
            ("kairos.io/model", "generic"),
            ("kairos.io/release", "v4.0.3"),
            ("kairos.io/software-version", "v1.32.4-k3s1"),
            ("kairos.io/software-version-prefix", "k3s"),
            ("kairos.io/trusted-boot", "false"),
            ("kairos.io/variant", "core"),
        ],
        &[
            (
                "kairos.io/bug-report-url",
                "https://github.com/kairos-io/kairos/issues",
            ),
            ("kairos.io/home-url", "https://github.com/kairos-io/kairos"),
            ("kairos.io/id-like", "kairos-core-hadron-v0.0.4"),
            ("kairos.io/init-version", "v0.8.4"),
            ("kairos.io/name", "kairos-core-hadron-v0.0.4"),
            ("kairos.io/version", "v4.0.3"),
        ],
    );
    assert_eq!(kairos(RELEASE), expected);
    let keys = |all: &BTreeMap<String, String>| all.keys().cloned().collect::<Vec<_>>();
    let sorted = |all: Vec<String>| all.into_iter().collect::<std::collections::BTreeSet<_>>();
    assert_eq!(sorted(keys(&expected.labels)), sorted(label_keys().collect()));
    assert_eq!(
        sorted(keys(&expected.annotations)),
        sorted(annotation_keys().collect())
    );
}

#[test]
fn a_host_is_one_of_kairos_by_its_file_even_if_that_is_empty_and_otherwise_by_its_os_release() {
    let bare = || {
        Distribution::Kairos(node(
            &[("kairos.io/managed", "true"), ("kairos.io/boot-state", "unknown")],
            &[],
        ))
    };
    for (release, os_release, expected) in [
        (Some(""), None, bare()),
        (Some(""), Some("ID=debian\n"), bare()),
        (None, Some("NAME=x\nID=kairos\n"), bare()),
        (None, Some("ID=\"KAIROS-opensuse\"\nKAIROS_FLAVOR=x\n"), bare()),
        (None, Some("ID='myKairos'"), bare()),
        (
            None,
            Some("ID=debian\nID_LIKE=kairos\nNAME=kairos\n"),
            Distribution::Other,
        ),
        (None, Some("#ID=kairos\nXID=kairos\n"), Distribution::Other),
        (None, Some(""), Distribution::Other),
        (None, None, Distribution::Other),
    ] {
        assert_eq!(
            Distribution::of(release, os_release, "quiet"),
            expected,
            "{release:?} {os_release:?}"
        );
    }
}

#[test]
fn lines_are_read_as_kairos_operator_reads_them() {
    for (release, expected) in [
        ("KAIROS_FLAVOR=alpine", Some("alpine")),
        ("  KAIROS_FLAVOR='alpine' \r\n", Some("alpine")),
        ("KAIROS_FLAVOR=\"'alpine\"", Some("alpine")),
        ("KAIROS_FLAVOR=a=b", Some("a-b")),
        ("KAIROS_FLAVOR=a\nKAIROS_FLAVOR=b", Some("b")),
        ("KAIROS_FLAVOR=\"\"", None),
        ("KAIROS_FLAVOR", None),
        ("KAIROS_FLAVOR =a", None),
        ("# KAIROS_FLAVOR=a", None),
        ("FLAVOR=a", None),
        ("kairos_flavor=a", None),
        // It has a value, of which nothing can be in a label.
        ("KAIROS_FLAVOR=++", Some("")),
    ] {
        let labels = kairos(release).labels;
        assert_eq!(
            labels.get("kairos.io/flavor").map(String::as_str),
            expected,
            "{release:?}"
        );
    }
}

#[test]
fn a_value_becomes_one_that_a_label_may_have() {
    let long = |count: usize, end: &str| format!("{}{end}", "a".repeat(count));
    for (text, expected) in [
        ("v1.32.4+k3s1".to_owned(), "v1.32.4-k3s1".to_owned()),
        ("v4.0.3".to_owned(), "v4.0.3".to_owned()),
        ("ubuntu_24.04".to_owned(), "ubuntu_24.04".to_owned()),
        ("-leading".to_owned(), "leading".to_owned()),
        ("trailing.".to_owned(), "trailing".to_owned()),
        ("a b/c".to_owned(), "a-b-c".to_owned()),
        ("größe→".to_owned(), "gr--e".to_owned()),
        ("a\u{1b}[2J\0b".to_owned(), "a--2J-b".to_owned()),
        (long(70, ""), long(63, "")),
        (long(62, "-a"), long(62, "")),
        (long(62, "++b"), long(62, "")),
        ("+".repeat(70_000), String::new()),
    ] {
        let value = label_value(&text);
        assert_eq!(value, expected, "{text:?}");
        assert!(value.len() <= MAX_LABEL);
    }
}

#[test]
fn an_annotation_has_the_text_itself_without_what_a_terminal_would_obey() {
    let of = |text: &str| kairos(&format!("KAIROS_NAME={text}")).annotations["kairos.io/name"].clone();
    assert_eq!(of("Kairos größer + 1"), "Kairos größer + 1");
    assert_eq!(of("a\u{1b}]0;x\u{7}\tb"), "a-]0;x--b");
    let long = of(&"x".repeat(60_000));
    assert!(
        long.len() <= MAX_MESSAGE && long.ends_with("x…"),
        "{}",
        long.len()
    );
}

#[test]
fn the_command_line_tells_what_was_booted() {
    for (line, state) in [
        (
            "BOOT_IMAGE=/boot/vmlinuz root=LABEL=COS_ACTIVE rd.cos.disable",
            "active",
        ),
        ("BOOT_IMAGE=/vmlinuz root=LABEL=COS_PASSIVE", "passive"),
        ("root=LABEL=COS_RECOVERY", "recovery"),
        ("root=LABEL=COS_SYSTEM", "recovery"),
        ("quiet recovery-mode", "recovery"),
        ("root=live:LABEL=COS_LIVE", "livecd"),
        ("root=live:CDLABEL=COS_LIVE", "livecd"),
        ("netboot ip=dhcp", "livecd"),
        ("COS_PASSIVE COS_ACTIVE netboot", "active"),
        ("COS_RECOVERY COS_PASSIVE", "passive"),
        ("root=/dev/sda1 cos_active", "unknown"),
        ("", "unknown"),
    ] {
        assert_eq!(boot_state(line), state, "{line}");
    }
}

#[test]
fn only_what_differs_is_written_and_only_keys_of_a_labeler_are_removed() {
    let host = Distribution::Kairos(node(
        &[("kairos.io/managed", "true"), ("kairos.io/flavor", "alpine")],
        &[("kairos.io/name", "n")],
    ));
    let present = node(
        &[
            ("kairos.io/managed", "true"),
            ("kairos.io/flavor", "debian"),
            ("kairos.io/family", "debian"),
            ("kairos.io/rack", "of a user"),
            ("operator.kairos.io/x", "y"),
            ("a", "b"),
        ],
        &[("kairos.io/version", "v1"), ("kairos.io/note", "of a user")],
    );
    let change_of = change(&host, &present);
    assert_eq!(
        change_of.to_string(),
        "set kairos.io/flavor, kairos.io/name; removed kairos.io/family, kairos.io/version"
    );
    let mut after = present;
    change_of.apply(&mut after);
    assert_eq!(after.labels["kairos.io/rack"], "of a user");
    assert_eq!(after.annotations["kairos.io/note"], "of a user");
    assert!(change(&host, &after).is_empty());
}

#[test]
fn a_node_that_a_user_has_marked_as_not_managed_stays_as_it_is() {
    let host = Distribution::Kairos(kairos(RELEASE));
    let labels = [("kairos.io/managed", "false"), ("kairos.io/flavor", "old")];
    let annotations = [("kairos.io/name", "old")];
    for host in [host, Distribution::Other] {
        assert!(change(&host, &node(&labels, &annotations)).is_empty());
    }
}

#[test]
fn of_a_host_that_is_no_kairos_any_more_the_labels_are_removed_and_one_that_never_was_stays() {
    let was = node(
        &[
            ("kairos.io/managed", "true"),
            ("kairos.io/boot-state", "active"),
            ("kairos.io/rack", "r1"),
        ],
        &[("kairos.io/name", "n")],
    );
    assert_eq!(
        change(&Distribution::Other, &was).to_string(),
        "removed kairos.io/boot-state, kairos.io/managed, kairos.io/name"
    );
    let never = node(&[("kairos.io/arch", "of a user")], &[]);
    assert!(change(&Distribution::Other, &never).is_empty());
}

#[test]
fn the_policy_of_the_component_allows_these_keys_and_no_more() {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/overlays/agent-kairos/admission.yaml");
    let patch: Value = serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let expression = |name: &str| -> Vec<String> {
        let operations = patch.as_array().unwrap().iter();
        let mut values = operations.map(|operation| &operation["value"]);
        let value = values
            .find(|value| value["name"] == name)
            .unwrap_or_else(|| panic!("no variable {name}"));
        let list = value["expression"].as_str().unwrap().replace('\'', "\"");
        serde_json::from_str(&list).unwrap()
    };
    assert_eq!(expression("ownLabels"), label_keys().collect::<Vec<_>>());
    let mut annotations = vec![refit_api::names::ANNOTATION_REBOOT_NEEDED.to_owned()];
    annotations.extend(annotation_keys());
    assert_eq!(expression("ownAnnotations"), annotations);
}
