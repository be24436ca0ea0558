//! Choices between versions of several distributions: a Plan keeps its own.

use super::*;

#[test]
fn no_policy_exchanges_one_distribution_for_another() {
    let policies = || {
        [
            Policy::default(),
            policy(|_| {}),
            policy(|policy| policy.allow_downgrade = true),
            range("*"),
        ]
    };
    let exchanges = [
        ("v1.33.4-k3s1", "v1.34.2+rke2r1"),
        ("v1.33.4-rke2r1", "v1.34.2+k3s1"),
        ("v1.33.4-rke2r1", "v1.33.4+k3s1"),
        ("v1.33.4-rke2r1", "v1.32.0+k3s1"),
        ("v1.33.4-rc1-rke2r1", "v1.34.0-rc1+k3s1"),
        ("v1.33.4-k3s1", "v1.34.2+k0s.0"),
        ("v1.33.4-k3s1", "v1.34.2"),
        ("v1.33.4-k3s1", "v1.34.2-rc1"),
        ("1.2.3-alpine", "v1.34.2+k3s1"),
        ("v1.33.4-k0s.0", "v1.34.2+rke2r1"),
    ];
    for (current, offered) in exchanges {
        for policy in policies() {
            let case = format!("{policy:?} {current} {offered}");
            let choice = Case::new(policy.clone(), Some(current), offer(&[offered])).choose();
            assert_eq!((choice.take.as_deref(), choice.withdrawn), (None, None), "{case}");
            assert!(choice.fault.is_some(), "{case}");
            // The same if the channel offers several versions.
            let choice = Case::new(policy, Some(current), offer(&[offered, "0.0.1-other"])).choose();
            assert_eq!(choice.take.as_deref(), None, "{case}");
        }
    }
    for (current, offered) in [
        ("v1.33.4-k3s1", "v1.34.2+k3s2"),
        ("v1.33.4-rke2r1", "v1.34.2+rke2r1"),
        ("v1.33.4", "v1.34.2"),
        ("1.2.3-alpine", "1.2.4-alpine"),
    ] {
        for policy in policies() {
            let choice = Case::new(policy.clone(), Some(current), offer(&[offered])).choose();
            // In a range, an unknown suffix may be a prerelease.
            let is_prerelease = reason(&choice) == "Prerelease";
            assert!(
                choice.take == Some(munge(offered)) || is_prerelease,
                "{policy:?} {current} {offered}"
            );
        }
    }
}

#[test]
fn the_image_of_a_distribution_takes_no_version_of_another() {
    for (installed, offered, is_taken) in [
        (Some("rke2"), "v1.34.2+k3s1", false),
        (Some("k3s"), "v1.34.2+rke2r1", false),
        (Some("k3s"), "v1.34.2+k3s1", true),
        (Some("rke2"), "v1.34.2", true),
        (None, "v1.34.2+k3s1", true),
    ] {
        for current in [None, Some("stable"), Some("v1.33.4")] {
            let mut case = Case::new(Policy::default(), current, offer(&[offered]));
            case.installed = installed;
            let choice = case.choose();
            assert_eq!(
                choice.take.is_some(),
                is_taken,
                "{installed:?} {current:?} {offered}"
            );
            assert_eq!(choice.fault.is_none(), is_taken, "{choice:?}");
        }
        let mut case = Case::new(Policy::default(), None, offer(&[offered, "v1.0.0"]));
        case.installed = installed;
        assert_eq!(case.choose().take == Some(munge(offered)), is_taken, "{offered}");
    }
}

/// A Plan of kubeadm may read the channel of K3s from the start, and drop the build.
#[test]
fn a_plan_of_kubeadm_or_talos_without_a_build_gets_none() {
    for installed in [Some("kubeadm"), Some("Talos"), None] {
        for (current, is_plain) in [
            (Some("v1.33.4"), true),
            (Some("v1.33.4-rc.1"), true),
            (Some("v1.33.4-k3s1"), false),
            (None, false),
        ] {
            let mut case = Case::new(Policy::default(), current, offer(&["v1.34.2+k3s1"]));
            case.installed = installed;
            let choice = case.choose();
            let is_taken = installed.is_none() || !is_plain;
            assert_eq!(choice.take.is_some(), is_taken, "{installed:?} {current:?}");
            assert_eq!(choice.fault.is_none(), is_taken, "{choice:?}");
        }
    }
}

#[test]
fn a_list_without_a_version_to_take_is_refused_for_its_newest_version_and_not_for_a_word() {
    let tags = [
        "latest",
        "v1.34.1-k3s1",
        "v1.36.3-k3s1",
        "v1.36.3-k3s1-arm64",
        "stable",
    ];
    let mut case = Case::new(Policy::default(), None, offer(&tags));
    case.installed = Some("rke2");
    let choice = case.choose();
    let held = choice.held.as_ref().unwrap();
    assert_eq!(
        (held.version.as_str(), reason(&choice)),
        ("v1.36.3-k3s1", "NotComparable")
    );
    assert!(held.message.contains("is a version of k3s"), "{choice:?}");
}
