//! The offer of a channel: the releases from which a Plan may choose. Pure.

use jiff::Timestamp;

use super::tag::{is_behind, munge};

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
    /// The newest release. Of two that cannot be compared, the first one.
    pub fn newest(&self) -> Option<&Release> {
        self.releases.iter().reduce(|best, release| {
            if is_behind(&munge(&release.version), &munge(&best.version)) {
                release
            } else {
                best
            }
        })
    }
}
