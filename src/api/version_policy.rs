//! `spec.versionPolicy`: what a Plan asks of a version before it takes it. The doc comments of the fields are what `kubectl explain`
//! prints; what is absent is filled in by the functions here.
//!
//! Which version that is, is chosen by [`version::policy`](crate::version::policy).

use jiff::SignedDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PlanSpec;
use super::duration::{DurationError, GoDuration};
use crate::version::policy::Policy;
use crate::version::{Range, RangeError};

/// Which versions a Plan takes, and when.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VersionPolicySpec {
    /// Versions that may be taken from the channel, such as `>=1.33 <1.35`, `1.33.x`, `~1.33` or `^1`; `||` between two means either.
    /// A build such as `+k3s1` does not count unless the range names one; a prerelease is taken only if the range names one of
    /// the same release. Absent means any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<String>,
    /// The channel may move the Plan to an older version, or to one that cannot be compared with what it has. Absent means
    /// false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_downgrade: Option<bool>,
    /// By how many minor versions a node may differ from the Plan's version when it is started, as its kubelet says: with 1, a
    /// node at 1.31 is not started for 1.33. It waits, and the others go on. Absent means any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_minor_skip: Option<i32>,
    /// How long a version must have been out before it is taken from the channel, as a Go duration such as `72h`: since its
    /// release, where the channel dates it, otherwise since it was seen first. Absent means `0s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_age: Option<String>,
    /// Asks the registry once for each version what the tags of the Plan's images stand for, and runs its Jobs by that digest: all
    /// nodes get the same, whatever their architecture, though the tag may move. Absent means false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin_digest: Option<bool>,
    /// Takes no version from the channel by itself: status shows the candidate, and the annotation `refit.rs/approve` with that
    /// version takes it. Absent means false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub propose: Option<bool>,
}

/// What of a policy cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPolicy {
    /// A range that is none.
    #[error("spec.versionPolicy.range is invalid, {0}")]
    Range(RangeError),
    /// An age that is no duration.
    #[error("spec.versionPolicy.minimumAge is invalid, {0}")]
    Age(DurationError),
    /// A version cannot be out for less than nothing.
    #[error("spec.versionPolicy.minimumAge is {0}: it must not be negative")]
    NegativeAge(GoDuration),
    /// A node cannot differ by less than nothing.
    #[error("spec.versionPolicy.maxMinorSkip is {0}: it must be 0 or more")]
    MinorSkip(i32),
}

impl VersionPolicySpec {
    /// The policy, read.
    ///
    /// # Errors
    /// The first field that cannot be read.
    pub fn read(&self) -> Result<Policy, BadPolicy> {
        let range = self.range.as_deref().map(str::parse::<Range>);
        let range = range.transpose().map_err(BadPolicy::Range)?;
        let age = self.minimum_age.as_deref().map(str::parse::<GoDuration>);
        let age = age.transpose().map_err(BadPolicy::Age)?.unwrap_or_default();
        if age.is_negative() {
            return Err(BadPolicy::NegativeAge(age));
        }
        if let Some(skip) = self.max_minor_skip.filter(|skip| *skip < 0) {
            return Err(BadPolicy::MinorSkip(skip));
        }
        Ok(Policy {
            is_given: true,
            range,
            allow_downgrade: self.allow_downgrade.unwrap_or_default(),
            minimum_age: SignedDuration::from_nanos(age.as_nanos()),
            propose: self.propose.unwrap_or_default(),
        })
    }
}

impl PlanSpec {
    /// `spec.versionPolicy`, read, or what its absence means.
    ///
    /// # Errors
    /// The first field of it that cannot be read; `validate` has said so.
    pub fn version_policy(&self) -> Result<Policy, BadPolicy> {
        let policy = self.version_policy.as_ref();
        policy.map_or_else(|| Ok(Policy::default()), VersionPolicySpec::read)
    }

    /// Jobs run their images by digest.
    pub fn pins_digests(&self) -> bool {
        let policy = self.version_policy.as_ref();
        policy.and_then(|policy| policy.pin_digest).unwrap_or_default()
    }

    /// By how many minor versions a node may differ when it is started.
    pub fn max_minor_skip(&self) -> Option<u64> {
        let skip = self.version_policy.as_ref()?.max_minor_skip?;
        u64::try_from(skip).ok()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(policy: serde_json::Value) -> Result<Policy, String> {
        let policy: VersionPolicySpec = serde_json::from_value(policy).unwrap();
        policy.read().map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_absent_asks_for_nothing() {
        let policy = read(json!({})).unwrap();
        assert_eq!(
            policy,
            Policy {
                is_given: true,
                ..Policy::default()
            }
        );
        assert!(!PlanSpec::default().version_policy().unwrap().is_given);
        assert!(!PlanSpec::default().pins_digests());
        assert_eq!(PlanSpec::default().max_minor_skip(), None);
    }

    #[test]
    fn a_mistake_says_where_what_and_what_instead() {
        let range = read(json!({"range": ">=1.30 <"})).unwrap_err();
        assert_eq!(
            range,
            r#"spec.versionPolicy.range is invalid, ">=1.30 <" is no range of versions: no version follows "<"; write for example ">=1.30 <1.32", "1.31.x" or "~1.31""#
        );
        assert_eq!(
            read(json!({"minimumAge": "3d"})).unwrap_err(),
            r#"spec.versionPolicy.minimumAge is invalid, time: unknown unit "d" in duration "3d""#
        );
        assert_eq!(
            read(json!({"minimumAge": "-1h"})).unwrap_err(),
            "spec.versionPolicy.minimumAge is -1h0m0s: it must not be negative"
        );
        assert_eq!(
            read(json!({"maxMinorSkip": -1})).unwrap_err(),
            "spec.versionPolicy.maxMinorSkip is -1: it must be 0 or more"
        );
    }
}
