//! The offer of a channel: the releases from which a Plan may choose. Pure.

use jiff::Timestamp;

use super::parts::Version;

/// The offer of a channel at one poll.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// One release for a redirect and for a channel of a channel server; for a feed and a registry all releases,
    /// unordered. Each can be an image tag and a label value, and there are no duplicates.
    pub releases: Vec<Release>,
    /// Why releases are missing, if any are. Then a missing release does not count as withdrawn.
    pub partial: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The version as released, with its `+`.
    pub version: String,
    /// When it was published, if the channel says so.
    pub published: Option<Timestamp>,
}

impl Offer {
    /// The offer of a channel with one version.
    pub fn one(version: String) -> Self {
        let published = None;
        Self {
            releases: vec![Release { version, published }],
            partial: None,
        }
    }
}

impl Offer {
    /// The newest release, or else the newest prerelease or variant. Of two that cannot be compared, the first one. A tag
    /// that is not a version, such as `latest`, counts only if there are no others.
    pub fn newest(&self) -> Option<&Release> {
        let parsed = self.releases.iter().filter_map(|release| {
            let version = release.version.parse::<Version>().ok()?;
            Some((release, version))
        });
        let is_whole = |version: &Version| !version.is_prerelease() && !version.is_variant();
        let (whole, others): (Vec<_>, Vec<_>) = parsed.partition(|(_, version)| is_whole(version));
        let newest = |of: Vec<(_, Version)>| {
            let newest = of
                .into_iter()
                .reduce(|best, next| if next.1 > best.1 { next } else { best });
            newest.map(|(release, _)| release)
        };
        newest(whole).or_else(|| newest(others)).or(self.releases.first())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_a_registry_is_a_release_and_no_word_prerelease_or_variant() {
        for (versions, newest) in [
            (
                "v1.36.3-k3s1 v1.34.1-k3s1 v1.37.0-rc1-k3s1 v1.36.9-k3s1-arm64 latest",
                Some("v1.36.3-k3s1"),
            ),
            ("latest stable v1.34.1-k3s1", Some("v1.34.1-k3s1")),
            (
                "latest v1.34.0-rc1-k3s1 v1.34.0-rc2-k3s1",
                Some("v1.34.0-rc2-k3s1"),
            ),
            ("v1.34.1-k3s2 v1.34.1-k3s10", Some("v1.34.1-k3s10")),
            ("latest", Some("latest")),
            ("", None),
        ] {
            let release = |version: &str| Release {
                version: version.to_owned(),
                published: None,
            };
            let offer = Offer {
                releases: versions.split_whitespace().map(release).collect(),
                partial: None,
            };
            let found = offer.newest().map(|release| release.version.as_str());
            assert_eq!(found, newest, "{versions}");
        }
    }
}
