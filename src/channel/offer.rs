//! What a channel offers: the releases that a Plan of it may choose from. Which one it takes is decided elsewhere. Pure.

use jiff::Timestamp;

use super::version::{is_behind, munge};

/// What a channel gave when it was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// One for a redirect and for a channel of a channel server; all of them, in no order that means anything, for a feed and
    /// for a registry. Each can be an image tag and a label value; none is there twice.
    pub releases: Vec<Release>,
    /// Why these are not all releases, where they are not. What is not among them has not been withdrawn then.
    pub partial: Option<String>,
}

/// A release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The version as it was released, with its `+`.
    pub version: String,
    /// When it was published, where the channel says so.
    pub published: Option<Timestamp>,
}

impl Offer {
    /// The offer of a channel that gives one version.
    pub fn one(version: String) -> Self {
        let published = None;
        Self {
            releases: vec![Release { version, published }],
            partial: None,
        }
    }
}

impl Offer {
    /// The newest release that is no prerelease, as far as they can be compared; for callers that have no other wish.
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
