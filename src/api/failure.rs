//! `spec.failure`: what follows when the Plan fails on a node. The doc comments of the fields are what `kubectl explain`
//! prints; the functions here supply the defaults.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::field_enum::{field_enum, inline_schema};
use super::node_limit::NodeLimit;
use super::reason::Reason;
use refit_base::go::{DurationError, GoDuration};

/// Default of `failure.backoff`.
pub const BACKOFF: GoDuration = GoDuration::from_nanos(60_000_000_000);
/// Longest delay before a retry, unless `failure.backoff` is longer.
const MAX_BACKOFF: SignedDuration = SignedDuration::from_hours(1);
/// Maximum of `failure.retries`.
pub const MAX_RETRIES: i64 = 100;

/// What happens when the Plan fails on a node.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureSpec {
    /// What a failed node means for others. Defaults to `Hold`.
    ///
    /// `Hold`: it keeps its slot. `Stop`: it frees its slot, and no further node starts once `budget` is used up.
    /// `Continue`: it frees its slot, and the roll-out continues. Nodes in progress finish.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<FailurePolicy>,
    /// With `policy: Stop`, the number of failed nodes at which the roll-out stops, or a share of the selected nodes
    /// such as `10%` (rounded down, at least 1). Defaults to 1.
    ///
    /// Nodes that are retried do not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<BudgetLimit>")]
    pub budget: Option<IntOrString>,
    /// How often the Plan is tried again on a node where it failed, by a new Job each time. Defaults to 0.
    ///
    /// The node keeps its slot. `UpgradeInterrupted`, `RebootLoop`, `EvidenceLost` and `SentinelMissing` are never
    /// retried. An edit of the containers or a manual retry resets the count.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub retries: Option<i64>,
    /// Time from a failure to the first retry, as a Go duration such as `30s`. Defaults to `1m`.
    ///
    /// It doubles with each retry, up to an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<String>,
    /// If true, a node that failed for good is uncordoned, if refit had cordoned it. Defaults to false, so that the
    /// node can be inspected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncordon: Option<bool>,
}

field_enum! {
    /// What a failed node means for the others.
    #[derive(Default)]
    FailurePolicy {
        /// A failed node keeps its slot, as under system-upgrade-controller.
        #[default]
        Hold,
        /// No further node starts once the budget is used up.
        Stop,
        /// Other nodes continue.
        Continue,
    }
}

/// Schema of `failure.budget`, which may be 0, unlike other numbers of nodes.
struct BudgetLimit;

inline_schema!(BudgetLimit { "x-kubernetes-int-or-string": true, "minimum": 0, "maximum": i32::MAX });

impl FailureSpec {
    pub fn policy(&self) -> FailurePolicy {
        self.policy.unwrap_or_default()
    }

    /// The parsed budget; `None` if it is invalid.
    pub fn budget(&self) -> Option<NodeLimit> {
        match &self.budget {
            None | Some(IntOrString::Int(0)) => Some(NodeLimit::Nodes(1)),
            Some(budget) => NodeLimit::parse(budget),
        }
    }

    pub fn retries(&self) -> i64 {
        self.retries.unwrap_or_default().clamp(0, MAX_RETRIES)
    }

    /// Time from a failure to the first retry.
    ///
    /// # Errors
    /// Fails if it is not a Go duration; `validate` has reported it.
    pub fn backoff(&self) -> Result<GoDuration, DurationError> {
        self.backoff.as_deref().map_or(Ok(BACKOFF), str::parse)
    }

    /// Time from a failure to the next retry, after so many retries.
    pub fn delay(&self, retries: i64) -> SignedDuration {
        let first = self.backoff().unwrap_or(BACKOFF);
        let first = SignedDuration::from_nanos(first.as_nanos());
        let doubled = i32::try_from(retries)
            .ok()
            .and_then(|retries| 2_i32.checked_pow(retries.try_into().ok()?))
            .and_then(|factor| first.checked_mul(factor));
        doubled.unwrap_or(SignedDuration::MAX).min(MAX_BACKOFF.max(first))
    }
}

/// Whether a failure is retried without a person: not if the node may be half upgraded, or how far it came is unknown.
pub fn is_retried(reason: Option<Reason>) -> bool {
    !matches!(
        reason,
        Some(
            Reason::UpgradeInterrupted | Reason::RebootLoop | Reason::EvidenceLost | Reason::SentinelMissing
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_up_to_an_hour_or_to_the_first_one() {
        let failure = |backoff: Option<&str>| FailureSpec {
            backoff: backoff.map(str::to_owned),
            ..FailureSpec::default()
        };
        for (backoff, retries, seconds) in [
            (None, 0, 60),
            (None, 1, 120),
            (None, 5, 1_920),
            (None, 6, 3_600),
            (None, 99, 3_600),
            (Some("10s"), 2, 40),
            (Some("2h"), 0, 7_200),
            (Some("2h"), 3, 7_200),
        ] {
            let delay = failure(backoff).delay(retries);
            assert_eq!(delay, SignedDuration::from_secs(seconds), "{backoff:?} {retries}");
        }
    }

    #[test]
    fn a_budget_of_none_stops_at_the_first_failure() {
        for (budget, nodes, of_forty) in [
            (None, Some(NodeLimit::Nodes(1)), 1),
            (Some(IntOrString::Int(0)), Some(NodeLimit::Nodes(1)), 1),
            (Some(IntOrString::Int(3)), Some(NodeLimit::Nodes(3)), 3),
            (
                Some(IntOrString::String("10%".to_owned())),
                Some(NodeLimit::Percent(10)),
                4,
            ),
            (Some(IntOrString::Int(-1)), None, 0),
            (Some(IntOrString::String("3".to_owned())), None, 0),
        ] {
            let failure = FailureSpec {
                budget: budget.clone(),
                ..FailureSpec::default()
            };
            assert_eq!(failure.budget(), nodes, "{budget:?}");
            assert_eq!(nodes.map_or(0, |nodes| nodes.of(40)), of_forty);
        }
    }
}
