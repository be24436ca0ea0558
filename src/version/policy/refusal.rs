//! Why a version is not taken, and what would let it through.

use jiff::{SignedDuration, Timestamp};

use super::Policy;
use crate::api::duration::GoDuration;
use crate::api::names::ANNOTATION_APPROVE;
use crate::channel::version::Refused;
use crate::version::{Range, quoted};

/// Why a version is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is none, or nothing that the Plan would ever move to.
    Accident(Refused),
    /// Nobody knows whether it is newer, and why.
    Incomparable(String),
    /// It comes before a release, and nobody has asked for that.
    Prerelease,
    /// It is one of several of the same release, such as for one architecture, and another one than the Plan has.
    Variant,
    /// It is not in the range.
    OutOfRange,
    /// It is older than what the Plan is at.
    Older,
    /// It has not been out for long enough.
    TooYoung {
        /// When it was published, or seen first.
        since: Timestamp,
        /// The channel has said so itself.
        published: bool,
        /// When it will be taken.
        due: Timestamp,
    },
    /// Nobody has approved it.
    NotApproved,
}

impl Refusal {
    /// One word, for the condition.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Accident(_) => "NoVersion",
            Self::Incomparable(_) => "NotComparable",
            Self::Prerelease => "Prerelease",
            Self::Variant => "Variant",
            Self::OutOfRange => "OutOfRange",
            Self::Older => "Older",
            Self::TooYoung { .. } => "TooYoung",
            Self::NotApproved => "NotApproved",
        }
    }

    /// The field of `spec.versionPolicy` that it comes from, where it comes from one.
    pub fn guard(&self) -> Option<&'static str> {
        match self {
            Self::Accident(_) | Self::Variant => None,
            Self::Incomparable(_) | Self::Older => Some("allowDowngrade"),
            Self::Prerelease | Self::OutOfRange => Some("range"),
            Self::TooYoung { .. } => Some("minimumAge"),
            Self::NotApproved => Some("propose"),
        }
    }

    /// Nothing is wrong with the version: it is taken in time, or when somebody says so.
    pub(super) fn is_delay(&self) -> bool {
        matches!(self, Self::TooYoung { .. } | Self::NotApproved)
    }

    /// The channel has given something that it should not give.
    pub(super) fn is_fault(&self) -> bool {
        matches!(self, Self::Accident(_) | Self::Incomparable(_) | Self::Older)
    }

    /// What was refused, why, and what would let it through, in one sentence.
    pub fn sentence(&self, version: &str, policy: &Policy, current: Option<&str>) -> String {
        let shown = quoted(version);
        let version = shown.trim_matches('"');
        let current = current.unwrap_or("nothing");
        match self {
            Self::Accident(why) => format!("what spec.channel offers is not taken: {why}"),
            Self::Incomparable(why) => format!(
                "{version} is not taken: {why}; spec.version, or spec.versionPolicy.allowDowngrade, lets it through"
            ),
            Self::Prerelease => format!(
                "{version} is not taken: it is a prerelease; a spec.versionPolicy.range that names one of the same release lets \
                 it through"
            ),
            Self::Variant => format!(
                "{version} is not taken: its suffix makes it another thing than {current}; spec.version lets it through"
            ),
            Self::OutOfRange => format!(
                "{version} is not taken: it is not in spec.versionPolicy.range, {}; a range that has it lets it through",
                policy.range.as_ref().map_or("", Range::text)
            ),
            Self::Older => format!(
                "{version} is not taken: it is older than {current}; spec.versionPolicy.allowDowngrade lets it through"
            ),
            Self::TooYoung {
                since,
                published,
                due,
            } => format!(
                "{version} is taken at {due}: it was {} at {since}, and spec.versionPolicy.minimumAge is {}; a shorter one lets it \
                 through sooner",
                if *published { "published" } else { "first seen" },
                duration(policy.minimum_age),
            ),
            Self::NotApproved => format!(
                "{version} is proposed: the annotation {ANNOTATION_APPROVE}: {version} on the Plan lets it through"
            ),
        }
    }
}

fn duration(age: SignedDuration) -> GoDuration {
    GoDuration::from_nanos(i64::try_from(age.as_nanos()).unwrap_or(i64::MAX))
}
