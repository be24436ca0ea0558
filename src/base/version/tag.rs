//! Versions as image tags and label values: which are valid, and which moves a Plan never makes. Pure.

use super::parts::{Version, quoted};

/// Maximum length of a label value. Image tags may be longer (128).
const MAX_LENGTH: usize = 63;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the answer does not end in a version")]
    Empty,
    #[error("{} cannot be an image tag and a label value: {reason}", quoted(.version))]
    Malformed { version: String, reason: &'static str },
    #[error("{} is not a semantic version, and {} is: the channel gives another kind of version than before", quoted(.offered), quoted(.current))]
    NotSemver { current: String, offered: String },
    #[error("{why}: a Plan keeps its distribution; correct its channel, or change its version by hand")]
    OtherDistribution { why: String },
}

/// The version as an image tag and a label value: `+` becomes `-` (S15, S46).
pub fn munge(version: &str) -> String {
    version.replace('+', "-")
}

/// Checks that a version, with `-` instead of `+`, is an image tag and a label value.
///
/// # Errors
/// Fails if it is not one of the two.
pub fn check(version: &str) -> Result<(), Refused> {
    let malformed = |reason| {
        Err(Refused::Malformed {
            version: version.to_owned(),
            reason,
        })
    };
    let alphanumeric = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    if matches!(version, "" | "." | "/") {
        return Err(Refused::Empty);
    }
    if version.len() > MAX_LENGTH {
        return malformed("it has more than 63 characters");
    }
    if !version
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
    {
        return malformed("it has characters other than letters, digits, '.', '_' and '-'");
    }
    if !alphanumeric(version.chars().next()) || !alphanumeric(version.chars().next_back()) {
        return malformed("it does not start and end with a letter or digit");
    }
    Ok(())
}

/// Whether a Plan at `current` may take the offered version. A Plan never moves from a semantic version to anything
/// else, because `/login` instead of `/v1.30.1-k3s1` is an error, not a release. Nor does it move to another
/// distribution, because RKE2's channel would reinstall a node of K3s. The first version may be any word.
///
/// # Errors
/// Fails with the reason why the Plan never takes the version.
pub fn accept(current: Option<&str>, offered: &str) -> Result<(), Refused> {
    check(offered)?;
    match current {
        Some(current) if is_semver(current) && !is_semver(offered) => Err(Refused::NotSemver {
            current: current.to_owned(),
            offered: offered.to_owned(),
        }),
        Some(current) => match (current.parse::<Version>(), offered.parse::<Version>()) {
            (Ok(current), Ok(offered)) => match offered.other_distribution(&current) {
                Some(why) => Err(Refused::OtherDistribution { why }),
                None => Ok(()),
            },
            _ => Ok(()),
        },
        None => Ok(()),
    }
}

/// Whether it is a semantic version (semver.org 2.0.0), apart from a leading `v`.
pub fn is_semver(version: &str) -> bool {
    version
        .parse::<Version>()
        .is_ok_and(|version| version.is_semantic())
}

/// Whether `offered` is older than `current`; not if the two cannot be compared.
pub fn is_behind(current: &str, offered: &str) -> bool {
    let (Ok(current), Ok(offered)) = (current.parse::<Version>(), offered.parse::<Version>()) else {
        return false;
    };
    offered < current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plus_becomes_a_minus_everywhere() {
        assert_eq!(munge("v1.2.3+k3s1+x"), "v1.2.3-k3s1-x");
    }

    #[test]
    fn a_version_is_an_image_tag_and_a_label_value() {
        let longest = "a".repeat(63);
        for version in [
            "test",
            "local",
            "latest",
            "v1.2.3-test",
            "22.04",
            "A_b.c-D9",
            "0",
            &longest,
        ] {
            assert_eq!(check(version), Ok(()), "{version}");
        }
        let long = "a".repeat(64);
        for version in [
            "v1 beta",
            "v1.2.3?z=1",
            "v1.2.3+k3s1",
            "-v1",
            "v1-",
            ".1",
            "1.",
            "_a",
            "a_",
            "ä",
            "a\u{7f}",
            "a:b",
            &long,
        ] {
            assert!(
                matches!(check(version), Err(Refused::Malformed { .. })),
                "{version}"
            );
        }
        for version in ["", ".", "/"] {
            assert_eq!(check(version), Err(Refused::Empty));
        }
    }

    #[test]
    fn a_semver_plan_does_not_move_to_a_word() {
        assert_eq!(
            accept(Some("v1.30.1-k3s1"), "login").unwrap_err().to_string(),
            r#""login" is not a semantic version, and "v1.30.1-k3s1" is: the channel gives another kind of version than before"#
        );
        assert_eq!(accept(Some("v1.30.1-k3s1"), "v1.30.2-k3s1"), Ok(()));
        assert_eq!(accept(Some("1.30.1"), "v1.29.0"), Ok(()));
        assert!(accept(Some("1.30.1"), "1.31").is_err());
    }

    #[test]
    fn an_older_release_is_behind() {
        assert!(is_behind("v1.30.1-k3s1", "v1.29.9-k3s1"));
        assert!(is_behind("v1.30.1", "1.30.0"));
        assert!(is_behind("v1.30.1-k3s10", "v1.30.1-k3s2"));
        assert!(is_behind("v1.30.1-rke2r2", "v1.30.1-rke2r1"));
        assert!(!is_behind("v1.30.1-k3s2", "v1.30.1-k3s10"));
        assert!(!is_behind("v1.30.1-k3s1", "v1.30.1-k3s1"));
        assert!(!is_behind("v1.30.1-rc1-k3s1", "v1.30.1-k3s1"));
        assert!(!is_behind("v1.30.1-k3s1", "v1.31.0-rc1-k3s1"));
        assert!(!is_behind("focal", "bionic"));
        assert!(is_behind("22.04", "20.04") && !is_behind("20.04", "22.04"));
        assert!(is_behind("v1.30.1-k3s1", "v1.30.1-rc1-k3s1"));
        assert!(is_behind("v1.30.1-k3s1", "v1.29.9-rke2r1"));
    }

    #[test]
    fn a_plan_that_is_not_semver_moves_anywhere() {
        assert_eq!(accept(None, "latest"), Ok(()));
        assert_eq!(accept(Some("bionic"), "focal"), Ok(()));
        assert_eq!(accept(Some("bionic"), "v1.2.3"), Ok(()));
        assert!(accept(Some("bionic"), "a b").is_err());
    }

    #[test]
    fn a_refusal_is_short_and_harmless() {
        let text = check(&format!("\u{1b}[2J{}", "x".repeat(5000)))
            .unwrap_err()
            .to_string();
        assert!(text.len() < 200 && !text.contains('\u{1b}'), "{text}");
    }
}
