//! A number of nodes, or a percentage of the nodes that a Plan selects.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::field_enum::inline_schema;

/// The parsed value of `spec.maxConcurrent` and `spec.maxUnavailable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeLimit {
    /// At least one.
    Nodes(u32),
    /// Percentage of the selected nodes, from 1 to 100.
    Percent(u8),
}

impl NodeLimit {
    /// Parses a number of at least 1, or a text from `1%` to `100%`. A quoted number is invalid.
    pub fn parse(limit: &IntOrString) -> Option<Self> {
        match limit {
            IntOrString::Int(nodes) => u32::try_from(*nodes)
                .ok()
                .filter(|nodes| *nodes > 0)
                .map(Self::Nodes),
            IntOrString::String(share) => percent(share).map(Self::Percent),
        }
    }

    /// A limit as a number of nodes; 0 if it is invalid, which validation reports.
    pub fn nodes_of(limit: &IntOrString, selected: i64) -> i64 {
        let selected = usize::try_from(selected).unwrap_or_default();
        let nodes = Self::parse(limit).map_or(0, |limit| limit.of(selected));
        i64::try_from(nodes).unwrap_or(i64::MAX)
    }

    /// The limit for `selected` nodes: a percentage is rounded down, but to at least 1.
    pub fn of(self, selected: usize) -> usize {
        match self {
            Self::Nodes(nodes) => usize::try_from(nodes).unwrap_or(usize::MAX),
            // Divided first where a multiplication could overflow.
            Self::Percent(percent) => {
                let percent = usize::from(percent);
                selected
                    .checked_mul(percent)
                    .map_or(selected / 100 * percent, |product| product / 100)
                    .max(1)
            }
        }
    }
}

// At least one node, and what 32 bits hold. A share is text, whose form `validate` looks at.
inline_schema!(NodeLimit { "x-kubernetes-int-or-string": true, "minimum": 1, "maximum": i32::MAX });

fn percent(share: &str) -> Option<u8> {
    let digits = share.strip_suffix('%')?;
    let canonical = !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    canonical
        .then(|| digits.parse().ok())
        .flatten()
        .filter(|percent| *percent <= 100)
}
