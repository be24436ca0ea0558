//! Which of the versions that a channel offers a Plan takes, and what keeps it from the others.
//!
//! What a Plan is at is never given up for nothing: where no offer passes, the Plan stays. Each refusal says what it refused,
//! why, and what would let it through. Pure: the time is an argument, and what was seen first when comes from status.

mod choose;
mod refusal;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::{NotAVersion, Range, Version};
use crate::channel::version::{Refused, check, munge};
use crate::channel::{Offer, Release};

pub use choose::{Choice, Held, Verdict, choose, consider};
pub use refusal::Refusal;

/// What a Plan asks of a version before it takes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// The Plan has a policy. One that has none takes what system-upgrade-controller takes, accidents aside: a word in place of
    /// a version, and a step back.
    pub is_given: bool,
    /// It must be one of these.
    pub range: Option<Range>,
    /// It may be older than what the Plan is at, or not to be compared with it.
    pub allow_downgrade: bool,
    /// It must have been out for this long.
    pub minimum_age: SignedDuration,
    /// Somebody must have approved it.
    pub propose: bool,
}

/// What a channel offers, read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Offered {
    entries: Vec<Entry>,
    is_partial: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    release: Release,
    /// As a tag and a label can hold it.
    munged: String,
    checked: Result<(), Refused>,
    version: Result<Version, NotAVersion>,
}

impl From<&Offer> for Offered {
    fn from(offer: &Offer) -> Self {
        let entry = |release: &Release| {
            let munged = munge(&release.version);
            Entry {
                checked: check(&munged),
                version: release.version.parse(),
                munged,
                release: release.clone(),
            }
        };
        let mut entries: Vec<_> = offer.releases.iter().map(entry).collect();
        // In an order that means nothing, but is always the same: so is then what is made of it.
        entries.sort_by(|one, other| one.release.version.cmp(&other.release.version));
        Self {
            entries,
            is_partial: offer.partial.is_some(),
        }
    }
}

/// What is so when a version is chosen.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances<'a> {
    /// What the Plan is at, as its status has it.
    pub current: Option<&'a str>,
    /// When versions that the channel does not date were seen first. Keys are as tags hold them.
    pub seen: &'a BTreeMap<String, Timestamp>,
    /// The version that somebody has approved.
    pub approved: Option<&'a str>,
    /// What the channel gave when it last gave something older than what the Plan is at.
    pub withdrawn: Option<&'a str>,
    /// When the channel made this offer.
    pub polled: Timestamp,
    /// Now.
    pub now: Timestamp,
}
