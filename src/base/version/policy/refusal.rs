//! Reasons to refuse a version, and what would let it through.

use jiff::{SignedDuration, Timestamp};

use super::Policy;
use crate::go::GoDuration;
use crate::version::parts::quoted;
use crate::version::range::Range;
use crate::version::tag::Refused;

/// Plan annotation for users: approves versions that `spec.versionPolicy.propose` holds back, separated by commas.
pub const ANNOTATION_APPROVE: &str = "refit.rs/approve";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is not a version, or a move that no Plan makes.
    Accident(Refused),
    /// It cannot be compared with the current version, for this reason.
    Incomparable(String),
    /// It is a prerelease, and the range names none.
    Prerelease,
    /// It is another variant of the release than the Plan's, such as for one architecture.
    Variant,
    OutOfRange,
    Older,
    /// It skips minor versions of the oldest node.
    MinorSkip {
        /// The version of that node.
        from: String,
        /// Which node that is, and of which Plan; empty if no nodes are known.
        node: String,
        skip: u64,
    },
    TooYoung {
        /// When it was published, or first seen.
        since: Timestamp,
        /// Whether the channel dates it.
        published: bool,
        /// When the Plan takes it.
        due: Timestamp,
    },
    NotApproved,
}

impl Refusal {
    /// The field of `spec.versionPolicy` that refuses it, if one does.
    pub fn guard(&self) -> Option<&'static str> {
        match self {
            Self::Accident(_) | Self::Variant => None,
            Self::Incomparable(_) | Self::Older => Some("allowDowngrade"),
            Self::Prerelease | Self::OutOfRange => Some("range"),
            Self::MinorSkip { .. } => Some("maxMinorSkip"),
            Self::TooYoung { .. } => Some("minimumAge"),
            Self::NotApproved => Some("propose"),
        }
    }

    /// Whether the version is taken later, or once it is approved.
    pub(super) fn is_delay(&self) -> bool {
        matches!(self, Self::TooYoung { .. } | Self::NotApproved)
    }

    /// Whether the offer is an error of the channel.
    pub(super) fn is_fault(&self) -> bool {
        matches!(self, Self::Accident(_) | Self::Incomparable(_) | Self::Older)
    }

    /// The version, the reason, and what would let it through, in one sentence.
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
            Self::MinorSkip { from, node, skip } => {
                let of = if node.is_empty() {
                    String::new()
                } else {
                    format!(" ({node})")
                };
                format!(
                    "{version} is not taken yet: it is {skip} minor versions from {from}, the oldest{of}, and \
                     spec.versionPolicy.maxMinorSkip is {}; it can be taken when all nodes, also those of Plans that wait for this \
                     one, have a version in between",
                    policy.max_minor_skip.unwrap_or_default()
                )
            }
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
