//! `spec.versionPolicy`: which versions a Plan takes from its channel. The doc comments of the fields are what `kubectl
//! explain` prints; the functions here supply the defaults.
//!
//! [`version::policy`](refit_base::version::policy) chooses the version.

use jiff::SignedDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::invalid::{ErrorList, at};
use refit_base::go::GoDuration;
use refit_base::version::policy::Policy;

/// Which versions a Plan takes, and when.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VersionPolicySpec {
    /// Versions that the Plan may take from the channel, such as `>=1.33 <1.35`. If absent, any version.
    ///
    /// Also `1.33.x`, `~1.33` or `^1`; `||` means either. At most 1,024 characters. A bound without a build such as
    /// `+k3s1` is for all builds. A prerelease needs one of the same release in the range.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub range: Option<String>,
    /// If true, the channel may move the Plan to an older version, or one that cannot be compared, but not to another
    /// distribution; and nodes with a newer kubelet start. Defaults to false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_downgrade: Option<bool>,
    /// Maximum number of minor versions between a node's kubelet and the Plan's version. If absent, there is no
    /// limit.
    ///
    /// With 1, a node at 1.31 does not start for 1.33. From a feed or registry, the Plan takes the newest version
    /// within it of its oldest node, and the next one when all nodes have that.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_minor_skip: Option<i32>,
    /// Age at which the Plan takes a version, as a Go duration such as `72h`. Defaults to `0s`.
    ///
    /// Counted from its release if the channel dates it, otherwise from when it was first seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum_age: Option<String>,
    /// If true, Jobs run the digests of the Plan's images. Defaults to false.
    ///
    /// The tags are resolved once for each hash, so all nodes run the same images, on all architectures, even if a tag
    /// moves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin_digest: Option<bool>,
    /// If true, the Plan takes a version from the channel only once the annotation `refit.rs/approve` names it.
    /// Defaults to false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub propose: Option<bool>,
}

impl VersionPolicySpec {
    /// The parsed policy.
    ///
    /// # Errors
    /// Fails with all invalid fields.
    pub fn parse(&self) -> Result<Policy, ErrorList> {
        let field = |name| at("versionPolicy").field(name);
        let mut errors = ErrorList::default();
        let range = self.range.as_deref().map(|range| field("range").parse(range));
        let range = range.and_then(|range| errors.take(range));
        let age = self.minimum_age.as_deref();
        let age = age.map(|age| field("minimumAge").parse::<GoDuration>(age));
        let age = age.and_then(|age| errors.take(age)).unwrap_or_default();
        if age.is_negative() {
            errors.push(field("minimumAge").invalid(format!("is {age}: it must not be negative")));
        }
        if let Some(skip) = self.max_minor_skip.filter(|skip| *skip < 0) {
            errors.push(field("maxMinorSkip").invalid(format!("is {skip}: it must be 0 or more")));
        }
        errors.finish(Some(Policy {
            is_given: true,
            range,
            allow_downgrade: self.allow_downgrade.unwrap_or_default(),
            minimum_age: SignedDuration::from_nanos(age.as_nanos()),
            propose: self.propose.unwrap_or_default(),
            max_minor_skip: self.max_minor_skip.and_then(|skip| u64::try_from(skip).ok()),
        }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::PlanSpec;

    fn read(policy: serde_json::Value) -> Result<Policy, String> {
        let policy: VersionPolicySpec = serde_json::from_value(policy).unwrap();
        policy.parse().map_err(|error| error.to_string())
    }

    #[test]
    fn an_absent_policy_field_asks_for_nothing() {
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
    fn a_range_has_the_same_maximum_length_in_the_schema_and_in_the_controller() {
        let schema = serde_json::to_value(schemars::schema_for!(VersionPolicySpec)).unwrap();
        let longest = schema["properties"]["range"]["maxLength"].as_u64();
        assert_eq!(longest, u64::try_from(refit_base::version::MAX_RANGE_LEN).ok());
        let range = |length: usize| read(json!({ "range": format!("{:length$}", "1.31.x") }));
        assert!(range(1024).is_ok());
        let error = range(1025).unwrap_err();
        assert!(
            error.contains("spec.versionPolicy.range is invalid") && error.contains("1025 bytes"),
            "{error}"
        );
    }

    #[test]
    fn a_mistake_says_where_what_and_what_instead() {
        let range = read(json!({"range": ">=1.30 <"})).unwrap_err();
        assert_eq!(
            range,
            r#"spec.versionPolicy.range is invalid, ">=1.30 <" is not a version range: no version follows "<"; write for example ">=1.30 <1.32", "1.31.x" or "~1.31""#
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
