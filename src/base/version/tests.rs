//! The order of versions, as tables and as properties; and ranges.

use std::cmp::Ordering;

use proptest::prelude::*;

use super::*;
use crate::version::tag::munge;

fn version(text: &str) -> Version {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn versions_of_one_kind_are_in_their_order() {
    let lists = "
        v1.29.9+k3s1 < v1.30.0-alpha.1+k3s1 < v1.30.0-beta.0+k3s1 < v1.30.0-rc1+k3s1 < v1.30.0-rc1+k3s2 < v1.30.0-rc2+k3s1 < v1.30.0-rc10+k3s1 < v1.30.0+k3s1 < v1.30.0+k3s2 < v1.30.0+k3s10 < v1.30.1+k3s1 < v1.30.10+k3s1 < v1.31.0-rc1+k3s1 < v2.0.0+k3s1
        v1.30.1-rc1+rke2r1 < v1.30.1+rke2r1 < v1.30.1+rke2r2 < v1.31.0+rke2r1
        1.31.0-alpha.2 < 1.31.0-alpha.10 < 1.31.0-beta.1 < 1.31.0-rc.0 < 1.31.0 < 1.31.1
        1.0.0-rc < 1.0.0-rc.1 < 1.0.0-rc.1.1 < 1.0.0
        20.04 < 22.04 < 22.04.1 < 22.10 < 24.04
        9 < 10 < 11
        2025.12.31 < 2026.02.1 < 2026.08.1 < 2026.08.10 < 2026.10
        20251231 < 20260101 < 20260801
        10.0.17763.1 < 10.0.20348.1 < 10.0.20348.20
        1.2.3-9-build < 1.2.3-10-build
        v1.31.4-k3s1-amd64 < v1.31.4-k3s2-amd64
        3.13.0rc1 < 3.13.0rc2 < 3.13.0";
    for list in lists.lines().skip(1) {
        let list: Vec<_> = list.trim().split(" < ").collect();
        for (at, one) in list.iter().enumerate() {
            for (other_at, other) in list.iter().enumerate() {
                let (a, b) = (version(one), version(other));
                assert_eq!(a.compare(&b), Ok(at.cmp(&other_at)), "{one} {other}");
                // As in a tag, also if only one of them is.
                let tag = version(&munge(one));
                assert_eq!(tag.compare(&b), Ok(at.cmp(&other_at)), "{tag} {other}");
            }
        }
    }
}

#[test]
fn the_same_release_is_equal_however_it_is_spelled() {
    for (one, other) in [
        ("v1.31.4", "1.31.4"),
        ("v1.31.4+k3s1", "v1.31.4-k3s1"),
        ("v1.30.0-rc1+k3s1", "1.30.0-rc1-k3s1"),
        ("1.31.0-rc.1", "1.31.0-rc1"),
        ("1.31.0-RC1", "1.31.0-rc1"),
        ("1.31", "1.31.0"),
        ("22.04", "22.4"),
        ("2026.08.1", "2026.8.1"),
        ("1.2.3+abc", "1.2.3_abc"),
    ] {
        assert_eq!(version(one), version(other), "{one} {other}");
    }
}

#[test]
fn versions_that_cannot_be_compared_are_refused_with_the_reason() {
    for case in "\
        v1.31.4+k3s1 v1.31.4+rke2r1 => one is a build of k3s, the other of rke2
        v1.31.4+k3s1 v1.31.4 => one is a build of k3s, and the other is not
        2026.08.1 1.31.4 => one is a date and the other is not
        20260801 1.31.4 => one is a date and the other is not
        4152.2.0 1.31.4 => one is a date and the other is not
        1.2.3-alpine 1.2.3-bookworm => the order of the two suffixes is unknown
        1.2.3-alpine 1.2.3 => the order of the two suffixes is unknown
        1.2.3-alpine 1.2.3-rc1 => the order of the two suffixes is unknown
        1.2.3-dev1 1.2.3-nightly1 => the order of the two suffixes is unknown
        v1.31.4-k3s1-amd64 v1.31.4-k3s2-arm64 => the order of the two suffixes is unknown"
        .lines()
    {
        let (versions, why) = case.split_once(" => ").unwrap();
        let (one, other) = versions.trim().split_once(' ').unwrap();
        let (a, b) = (version(one), version(other));
        let error = a.compare(&b).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("\"{one}\" and \"{other}\" cannot be compared: {why}")
        );
        assert!(b.compare(&a).is_err(), "{other} {one}");
        assert_eq!(a.partial_cmp(&b), None);
    }
}

#[test]
fn other_numbers_are_compared_whoever_built_it() {
    assert!(version("v1.30.1+k3s1") < version("v1.31.0+rke2r1"));
    assert!(version("v1.30.1") < version("v1.31.0+k3s1"));
    assert!(version("1.2.3-alpine") < version("1.2.4"));
}

#[test]
fn an_invalid_version_says_why() {
    let no_number = "does not begin with a number, such as v1.31.4 or 2026.08.1";
    let no_suffix = "has something else after its numbers than a suffix such as -rc1, +k3s1 or -rke2r1";
    for (text, why) in [
        ("latest", no_number),
        ("", no_number),
        ("v", no_number),
        ("1.2.3.4.5", "has more than four numbers"),
        ("1.99999999999999999999.0", "has a number that is too large"),
        ("1.2.3 beta", no_suffix),
        ("22a", no_suffix),
        ("1.2.", no_suffix),
        ("1.2.3-", no_suffix),
        ("1.2.3--x", no_suffix),
        ("1.2.3-ä", no_suffix),
    ] {
        let error = text.parse::<Version>().unwrap_err().to_string();
        assert_eq!(error, format!("{} {why}", quoted(text)));
    }
    let long = format!("{}\u{1b}", "x".repeat(5000));
    let error = long.parse::<Version>().unwrap_err().to_string();
    assert!(error.len() < 200 && !error.contains('\u{1b}'), "{error}");
}

#[test]
fn a_version_has_numbers_a_builder_and_a_kind() {
    let k3s = version("v1.31.4+k3s1");
    assert_eq!(
        (k3s.major(), k3s.minor(), k3s.builder()),
        (1, Some(31), Some("k3s"))
    );
    assert_eq!(version("v1.31.4+rke2r1").builder(), Some("rke2"));
    assert_eq!(version("12").minor(), None);
    for text in [
        "v1.32.0-rc1+k3s1",
        "1.0.0-alpha",
        "1.2.3-something",
        "1.2.3-foo+bar",
    ] {
        assert!(version(text).is_prerelease(), "{text}");
    }
    for text in [
        "v1.32.0+k3s1",
        "v1.32.0-rke2r1",
        "1.2.3+something",
        "22.04",
        "2026.08.1",
    ] {
        assert!(!version(text).is_prerelease(), "{text}");
    }
    assert!(version("2026.08.1").is_dated() && version("20260801").is_dated());
    assert!(!version("22.04").is_dated() && !version("2026-08-01").is_alike(&version("2026.8.1")));
    assert!(version("v1.31.4-k3s1-amd64").is_variant() && !k3s.is_variant());
    assert!(k3s.is_alike(&version("v1.30.0-k3s2")) && !k3s.is_alike(&version("v1.30.0-k3s2-arm64")));
    assert_eq!(k3s.minors_from(&version("v1.29.0")), Some(2));
    assert_eq!(version("v1.29.0").minors_from(&k3s), Some(2));
    assert_eq!(version("2.0.0").minors_from(&k3s), None);
}

/// Arbitrary versions that are similar enough to be equal often.
fn any_version() -> impl Strategy<Value = String> {
    let numbers = prop_oneof![
        proptest::collection::vec(0_u64..3, 1..=4).prop_map(|numbers| {
            let words: Vec<_> = numbers.iter().map(ToString::to_string).collect();
            words.join(".")
        }),
        Just("2026.08.1".to_owned()),
        Just("2026.8".to_owned()),
        Just("20260801".to_owned()),
        Just("1.31.4".to_owned()),
    ];
    let piece = prop_oneof![
        Just("rc1".to_owned()),
        Just("rc.2".to_owned()),
        Just("alpha".to_owned()),
        Just("dev3".to_owned()),
        Just("k3s1".to_owned()),
        Just("k3s2".to_owned()),
        Just("rke2r1".to_owned()),
        Just("amd64".to_owned()),
        Just("7".to_owned()),
        "[a-z]{1,2}[0-9]{0,2}",
    ];
    let suffix = proptest::collection::vec((prop_oneof![Just("-"), Just("+"), Just("_")], piece), 0..3);
    (any::<bool>(), numbers, suffix).prop_map(|(v, numbers, suffix)| {
        let mut text = if v { "v".to_owned() } else { String::new() };
        text.push_str(&numbers);
        for (sign, piece) in suffix {
            text.push_str(sign);
            text.push_str(&piece);
        }
        text
    })
}

fn order(one: &str, other: &str) -> Option<Ordering> {
    version(one).partial_cmp(&version(other))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn the_order_is_the_same_from_either_side(one in any_version(), other in any_version()) {
        prop_assert_eq!(order(&one, &other), order(&other, &one).map(Ordering::reverse));
        prop_assert_eq!(order(&one, &one), Some(Ordering::Equal));
        prop_assert_eq!(version(&one).compare(&version(&other)).ok(), order(&one, &other));
    }

    #[test]
    fn the_order_of_versions_is_transitive(
        one in any_version(), two in any_version(), three in any_version()
    ) {
        if let (Some(first), Some(second)) = (order(&one, &two), order(&two, &three))
            && (first == second || first.is_eq() || second.is_eq())
        {
            let both = if first.is_eq() { second } else { first };
            prop_assert_eq!(order(&one, &three), Some(both), "{} {} {}", one, two, three);
        }
    }

    #[test]
    fn a_tag_is_the_release_that_it_is_made_of(one in any_version(), other in any_version()) {
        prop_assert_eq!(order(&one, &munge(&one)), Some(Ordering::Equal));
        prop_assert_eq!(order(&munge(&one), &munge(&other)), order(&one, &other));
    }

    #[test]
    fn any_text_is_parsed_or_refused_with_a_message(text in "\\PC{0,40}") {
        if let Err(error) = text.parse::<Version>() {
            prop_assert!(!error.to_string().is_empty());
        }
        if let Err(error) = text.parse::<Range>() {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn numbers_are_in_the_order_of_semantic_versions(
        one in (0_u64..4, 0_u64..4, 0_u64..4), other in (0_u64..4, 0_u64..4, 0_u64..4)
    ) {
        let text = |(a, b, c): (u64, u64, u64)| format!("{a}.{b}.{c}");
        let semantic = |numbers: (u64, u64, u64)| semver::Version::new(numbers.0, numbers.1, numbers.2);
        prop_assert_eq!(order(&text(one), &text(other)), Some(semantic(one).cmp(&semantic(other))));
    }
}

#[test]
fn a_range_has_what_it_says() {
    let table = "\
        >=1.30 <1.32 has v1.30.0 v1.30.0+k3s1 v1.31.99-rke2r2 1.31 1.30 but not v1.29.9 v1.32.0 v1.32.0+k3s1 v1.32.0-rc1+k3s1 v1.31.0-rc1+k3s1 2026.08.1
        >=1.30, <1.32 has v1.31.0 but not v1.32.0
        >= 1.30 , < 1.32 has v1.31.0 but not v1.32.0
        1.31.x has v1.31.0 v1.31.4+k3s1 but not v1.30.9 v1.32.0
        1.31.* has v1.31.4+k3s1 but not v1.32.0
        v1.31 has v1.31.0 v1.31.4+k3s1 but not v1.30.9 v1.32.0
        1.x has v1.0.0 v1.99.0 but not v0.9.0 v2.0.0
        ~1.31 has v1.31.0 v1.31.4+k3s1 but not v1.30.9 v1.32.0
        ~1.31.4 has v1.31.4+k3s1 v1.31.9 but not v1.31.3 v1.32.0
        ~1 has v1.0.0 v1.31.0 but not v2.0.0 v0.9.0
        ^1 has v1.0.0 v1.31.0+k3s1 but not v2.0.0 v0.9.0
        ^1.31.4 has v1.31.4 v1.40.0 but not v1.31.3 v2.0.0
        ^0.3 has 0.3.0 0.3.9 but not 0.4.0 0.2.9 1.0.0
        ^0.0.3 has 0.0.3 but not 0.0.4 0.1.0
        1.31.4 has v1.31.4 v1.31.4+k3s1 v1.31.4-k3s2 but not v1.31.5 v1.31.4-rc1
        =1.31.4+k3s2 has v1.31.4-k3s2 but not v1.31.4+k3s1 v1.31.4 v1.31.4+rke2r2
        >=1.31.4+k3s2 has v1.31.4+k3s2 v1.31.4+k3s10 v1.31.5+k3s1 but not v1.31.4+k3s1
        >1.31.4 has v1.31.5 but not v1.31.4 v1.31.4+k3s9
        >1.31 has v1.32.0 but not v1.31.9+k3s1
        <=1.31 has v1.31.9+k3s1 v1.2.0 but not v1.32.0
        <=1.31.4 has v1.31.4+k3s9 but not v1.31.5
        1.30 - 1.32 has v1.30.0 v1.32.9 but not v1.29.9 v1.33.0
        1.30.x || >=1.32 has v1.30.4 v1.33.0 but not v1.31.0
        * has v1.0.0 22.04 2026.08.1 but not v1.0.0-rc1
        22.04 has 22.04 22.04.3 but not 22.10 24.04
        2026.08.x has 2026.08.1 2026.8.30 but not 2026.09.1 2025.08.1
        2026.x has 2026.08.1 but not 2027.01.1
        >=2026.08 has 2026.08.1 2027.1 but not 2026.07.9 1.31.4
        >=1.32.0-rc1 has v1.32.0-rc1+k3s1 v1.32.0-rc2 v1.32.0 but not v1.32.0-beta.1 v1.33.0-rc1
        1.32.0-rc1 has v1.32.0-rc1 but not v1.32.0 v1.32.0-rc2";
    for line in table.lines() {
        let (text, rest) = line.trim().split_once(" has ").unwrap();
        let (has, has_not) = rest.split_once(" but not ").unwrap();
        let range: Range = text.parse().unwrap();
        for one in has.split(' ') {
            assert!(range.has(&version(one)), "{text:?} has {one}");
        }
        for one in has_not.split(' ') {
            assert!(!range.has(&version(one)), "{text:?} has not {one}");
        }
    }
}

#[test]
fn a_build_is_no_prerelease_to_a_range_also_where_its_plus_is_gone() {
    let range: Range = ">=1.30".parse().unwrap();
    assert!(range.has(&version("1.31.0+vmware.1")));
    let tag = version("1.31.0-vmware.1");
    assert!(!range.has(&tag) && range.may_have(&tag));
    assert!(range.has_release_of(&tag));
    assert!(!range.may_have(&version("1.31.0-rc1")) && range.has_release_of(&version("1.31.0-rc1")));
    assert!(!range.may_have(&version("1.29.0-vmware.1")));
}

#[test]
fn an_invalid_range_says_why_and_what_to_write_instead() {
    let table = r#"
 => it is empty, or has an empty side of a "||"
1.30 || => it is empty, or has an empty side of a "||"
>=1.30 < => no version follows "<"
1.30 - => no version follows "-"
!=1.30 => "!=" is not an operator; the operators are: = > >= < <= ~ ^
=>1.30 => "=>" is not an operator; the operators are: = > >= < <= ~ ^
latest => "latest" is not a version: numbers such as 1.31.4 are expected
1.30.y => "1.30.y" is not a version: a point must be followed by a number or "x"
1.30-1.32 => "1.30-1.32" is not a version: a range between two versions is written with spaces: "1.30 - 1.32"
1.x-rc1 => "1.x-rc1" is not a version: a point must be followed by a number or "x"
>* => nothing is above "*"
<* => nothing is below "*"
>=1.32 <1.30 => it contains no version
>1.31.4 <=1.31.4 => it contains no version
1.30.x 1.31.x => it contains no version
>=2026.08 <1.31.4 => it contains no version"#;
    for (text, why) in table.lines().skip(1).map(|line| line.split_once(" => ").unwrap()) {
        let error = text.parse::<Range>().unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "{} is not a version range: {why}; write for example \">=1.30 <1.32\", \"1.31.x\" or \"~1.31\"",
                quoted(text)
            )
        );
    }
}
