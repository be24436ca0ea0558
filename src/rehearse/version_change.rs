//! Classifies unusual changes of the kubelet's version. Pure.

use serde::Serialize;

use refit_base::version::Version;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Unusual {
    Downgrade,
    /// At least one minor version is skipped.
    SkipsMinor,
    OtherDistribution,
}

pub fn unusual(from: &str, to: &str) -> Option<Unusual> {
    let (old, new): (Version, Version) = (read(from)?, read(to)?);
    if old.compare_numbers(&new).is_gt() || old.compare(&new).is_ok_and(std::cmp::Ordering::is_gt) {
        return Some(Unusual::Downgrade);
    }
    if old.minors_from(&new).is_some_and(|minors| minors > 1) {
        return Some(Unusual::SkipsMinor);
    }
    // A version without a build suffix may be of any distribution.
    let both = old.builder().zip(new.builder());
    both.is_some_and(|(old, new)| old != new)
        .then_some(Unusual::OtherDistribution)
}

fn read(version: &str) -> Option<Version> {
    let version: Version = version.parse().ok()?;
    (version.major() == 1).then_some(version)
}

/// The next minor version: `v1.32`.
pub fn next_minor(version: &str) -> Option<String> {
    let version = read(version)?;
    Some(format!("v{}.{}", version.major(), version.minor()? + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_no_step_to_the_next_version_is_unusual() {
        for (from, to, found) in [
            ("v1.33.5", "v1.34.1", None),
            ("v1.33.5+k3s1", "v1.33.5+k3s2", None),
            ("v1.33.5+k3s1", "v1.34.1-k3s1", None),
            ("v1.34.1", "v1.34.1", None),
            ("v1.31.4+k3s1", "v1.33.0+k3s1", Some(Unusual::SkipsMinor)),
            ("v1.31.4", "v1.34.0", Some(Unusual::SkipsMinor)),
            ("v1.34.1", "v1.33.9", Some(Unusual::Downgrade)),
            ("v1.34.1", "v1.31.9", Some(Unusual::Downgrade)),
            ("v1.34.1+k3s2", "v1.34.1+k3s1", Some(Unusual::Downgrade)),
            ("v1.34.1", "v1.34.0-rc.1", Some(Unusual::Downgrade)),
            ("v1.33.5+k3s1", "v1.34.1+rke2r1", Some(Unusual::OtherDistribution)),
            ("v1.33.5+k3s1", "v1.34.1", None),
            ("", "v1.34.1", None),
        ] {
            assert_eq!(unusual(from, to), found, "{from} {to}");
        }
        assert_eq!(next_minor("v1.31.4+k3s1").as_deref(), Some("v1.32"));
    }
}
