//! Chooses the version that a Plan takes from a channel's offer, and explains why not another.
//!
//! If no version passes, the Plan keeps its own. Each refusal names the version, the reason, and what would let it
//! through. Pure: the time is an argument, and status stores when versions were first seen.

mod choose;
mod refusal;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::offer::{Offer, Release};
use super::parts::{NotAVersion, Version};
use super::range::Range;
use super::tag::{Refused, check, munge};

pub use choose::{Choice, Held, Verdict, choose, consider};
pub use refusal::{ANNOTATION_APPROVE, Refusal};

/// The conditions of a Plan for a version.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// Whether the Plan has a policy. Without one, it takes what system-upgrade-controller would take, except for words
    /// instead of versions, and older versions.
    pub is_given: bool,
    /// The version must be in this range.
    pub range: Option<Range>,
    /// The version may be older than the Plan's, or not comparable with it.
    pub allow_downgrade: bool,
    /// The version must be this old.
    pub minimum_age: SignedDuration,
    /// The version must be approved.
    pub propose: bool,
    /// Of a list, the version may be at most this many minor versions newer than the oldest node.
    pub max_minor_skip: Option<u64>,
}

impl Policy {
    /// Takes what it does not say from another policy, as Kustomize merges two; `false` and `0s` are what says nothing.
    pub fn complete(&mut self, other: &Self) {
        self.is_given |= other.is_given;
        self.range = self.range.take().or_else(|| other.range.clone());
        self.allow_downgrade |= other.allow_downgrade;
        self.propose |= other.propose;
        self.max_minor_skip = self.max_minor_skip.or(other.max_minor_skip);
        if self.minimum_age.is_zero() {
            self.minimum_age = other.minimum_age;
        }
    }
}

/// The parsed offer of a channel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Offered {
    entries: Vec<Entry>,
    is_partial: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    release: Release,
    /// The version as a tag and a label.
    munged: String,
    checked: Result<(), Refused>,
    version: Result<Version, NotAVersion>,
}

impl Offered {
    /// The version as released, found by its tag.
    pub fn released(&self, munged: &str) -> Option<&str> {
        let entry = self.entries.iter().find(|entry| entry.munged == munged)?;
        Some(&entry.release.version)
    }
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
        // A stable order, so that the choice is deterministic.
        entries.sort_by(|one, other| one.release.version.cmp(&other.release.version));
        Self {
            entries,
            is_partial: offer.partial.is_some(),
        }
    }
}

/// The inputs of a choice besides policy and offer.
#[derive(Clone, Copy, Debug)]
pub struct PolicyInputs<'a> {
    /// The Plan's current version, from its status.
    pub current: Option<&'a str>,
    /// The version of the oldest kubelet of the selected nodes, and a node that has it, if they are known; otherwise the current
    /// version counts.
    pub oldest: Option<(&'a str, &'a str)>,
    /// The same of the Plans that wait for this one and follow its channel by the same policy.
    pub oldest_follower: Option<(&'a str, &'a str)>,
    /// When versions that the channel does not date were first seen. Keys are in the form of tags.
    pub seen: &'a BTreeMap<String, Timestamp>,
    /// The approved versions: the annotation `refit.rs/approve`.
    pub approved: Option<&'a str>,
    /// What the Plan's image installs, such as `rke2` or `kubeadm`, if its name says so.
    pub installed: Option<&'a str>,
    /// The version that the channel offered when it last offered an older one than the Plan's.
    pub withdrawn: Option<&'a str>,
    /// When the channel made this offer.
    pub polled: Timestamp,
    pub now: Timestamp,
}
