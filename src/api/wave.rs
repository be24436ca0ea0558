//! `spec.waves`: parts of the selected nodes that are upgraded one after the other. The doc comments of the fields are
//! what `kubectl explain` prints.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PlanSpec;
use super::node_limit::NodeLimit;
use super::selector::{Selector, SelectorError};
use refit_base::go::{DurationError, GoDuration};

/// Maximum number of waves, as in the schema. A Plan stored under another schema may have more.
const MAX_WAVES: usize = 32;
/// Maximum length of a name.
const MAX_NAME_LEN: usize = 63;

/// Nodes that are upgraded before those of the next wave. With neither `nodes` nor `selector`, it takes all nodes that are
/// left.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaveSpec {
    /// Name of the wave, for approvals and messages: lower-case letters, digits and `-`, beginning with a letter.
    /// Defaults to `wave-1` for the first one, and so on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Number of nodes that are upgraded when the wave is over, as a number, or as a share of the selected nodes such
    /// as `10%` (rounded down, at least 1). Nodes of earlier waves are included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<NodeLimit>")]
    pub nodes: Option<IntOrString>,
    /// Selects the nodes of the wave by their labels, among those that the Plan selects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// How long all upgraded nodes must stay Ready before the next wave starts, as a Go duration such as `30m`. No node
    /// starts meanwhile. It begins again when one of them is not Ready. Defaults to `0s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soak: Option<String>,
    /// If true, the next wave starts only with approval: the annotation `refit.rs/approve` on the Plan with `<wave>@<hash>`,
    /// where the hash is `status.latestHash`. Defaults to false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<bool>,
}

/// A wave, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wave {
    pub name: String,
    pub nodes: WaveNodes,
    pub soak: SignedDuration,
    pub approval: bool,
}

/// Which nodes belong to a wave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaveNodes {
    /// So many, with those of earlier waves.
    UpTo(NodeLimit),
    Selected(Selector),
    /// All that are left.
    Rest,
}

/// Why waves are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadWave {
    #[error("spec.waves has {0} waves: it must have at most {MAX_WAVES}")]
    TooMany(usize),
    #[error(
        "spec.waves[{index}].name is {name:?}: it must be at most {MAX_NAME_LEN} lower-case letters, digits and '-', must start with \
         a letter, and must not end with '-'"
    )]
    Name { index: usize, name: String },
    #[error("spec.waves[{index}].name is {name:?}, as that of spec.waves[{first}]")]
    NameTwice {
        index: usize,
        first: usize,
        name: String,
    },
    #[error(
        "spec.waves[{0}] has nodes and selector: it must have one of them, or none for all nodes that are left"
    )]
    NodesAndSelector(usize),
    #[error(
        "spec.waves[{index}].nodes is {value}: it must be a number from 1 on, or a share of the nodes from \"1%\" to \"100%\""
    )]
    Nodes { index: usize, value: String },
    #[error(
        "spec.waves[{index}].nodes is not more than that of spec.waves[{first}], whose nodes it includes, so that the wave has none"
    )]
    NotMore { index: usize, first: usize },
    #[error("spec.waves[{index}].selector is invalid, {error}")]
    Selector { index: usize, error: SelectorError },
    #[error("spec.waves[{index}].soak is invalid, {error}")]
    Soak { index: usize, error: DurationError },
    #[error("spec.waves[{0}].soak is negative")]
    NegativeSoak(usize),
    #[error("spec.waves[{0}] takes all nodes that are left, so that the waves after it have none")]
    RestNotLast(usize),
}

impl WaveSpec {
    fn nodes(&self, index: usize) -> Result<WaveNodes, BadWave> {
        match (&self.nodes, &self.selector) {
            (Some(_), Some(_)) => Err(BadWave::NodesAndSelector(index)),
            (Some(nodes), None) => {
                NodeLimit::parse(nodes)
                    .map(WaveNodes::UpTo)
                    .ok_or_else(|| BadWave::Nodes {
                        index,
                        value: match nodes {
                            IntOrString::Int(nodes) => nodes.to_string(),
                            IntOrString::String(share) => format!("{share:?}"),
                        },
                    })
            }
            (None, Some(selector)) => Selector::new(Some(selector))
                .map(WaveNodes::Selected)
                .map_err(|error| BadWave::Selector { index, error }),
            (None, None) => Ok(WaveNodes::Rest),
        }
    }

    fn read(&self, index: usize) -> Result<Wave, BadWave> {
        let name = match &self.name {
            Some(name) if !is_name(name) => {
                let name = name.clone();
                return Err(BadWave::Name { index, name });
            }
            Some(name) => name.clone(),
            None => default_name(index),
        };
        let nodes = self.nodes(index)?;
        let soak = self.soak.as_deref().map(str::parse::<GoDuration>).transpose();
        let soak = soak
            .map_err(|error| BadWave::Soak { index, error })?
            .unwrap_or_default();
        if soak.is_negative() {
            return Err(BadWave::NegativeSoak(index));
        }
        Ok(Wave {
            name,
            nodes,
            soak: SignedDuration::from_nanos(soak.as_nanos()),
            approval: self.approval.unwrap_or_default(),
        })
    }
}

fn default_name(index: usize) -> String {
    format!("wave-{}", index + 1)
}

/// Whether the text has neither of the separators of approvals, and is not a version.
fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    name.len() <= MAX_NAME_LEN
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(is_plain)
        && !name.ends_with('-')
}

impl PlanSpec {
    /// The parsed `spec.waves`. Unless there are none, the last one takes the nodes that are left.
    ///
    /// # Errors
    /// Fails with the first invalid wave; `validate` has reported it.
    pub fn waves(&self) -> Result<Vec<Wave>, BadWave> {
        let specs = self.waves.as_deref().unwrap_or_default();
        if specs.len() > MAX_WAVES {
            return Err(BadWave::TooMany(specs.len()));
        }
        let mut waves: Vec<Wave> = Vec::with_capacity(specs.len() + 1);
        for (index, spec) in specs.iter().enumerate() {
            if let Some(last) = waves.len().checked_sub(1)
                && waves[last].nodes == WaveNodes::Rest
            {
                return Err(BadWave::RestNotLast(last));
            }
            let wave = spec.read(index)?;
            if let Some(first) = waves.iter().position(|other| other.name == wave.name) {
                let name = wave.name;
                return Err(BadWave::NameTwice { index, first, name });
            }
            let has_as_many = |other: &Wave| match (&wave.nodes, &other.nodes) {
                (WaveNodes::UpTo(NodeLimit::Nodes(own)), WaveNodes::UpTo(NodeLimit::Nodes(others))) => {
                    own <= others
                }
                (WaveNodes::UpTo(NodeLimit::Percent(own)), WaveNodes::UpTo(NodeLimit::Percent(others))) => {
                    own <= others
                }
                _ => false,
            };
            if let Some(first) = waves.iter().rposition(has_as_many) {
                return Err(BadWave::NotMore { index, first });
            }
            waves.push(wave);
        }
        if waves.last().is_some_and(|last| last.nodes != WaveNodes::Rest) {
            waves.push(Wave {
                name: default_name(specs.len()),
                nodes: WaveNodes::Rest,
                soak: SignedDuration::ZERO,
                approval: false,
            });
        }
        Ok(waves)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn waves(waves: &serde_json::Value) -> Result<Vec<Wave>, String> {
        let spec: PlanSpec = serde_json::from_value(json!({ "waves": waves })).unwrap();
        spec.waves().map_err(|error| error.to_string())
    }

    #[test]
    fn waves_have_names_and_the_last_one_takes_the_rest() {
        let read = waves(&json!([
            {"name": "canary", "selector": {"matchLabels": {"canary": "true"}}, "soak": "30m"},
            {"nodes": "10%", "approval": true},
            {"nodes": 20}
        ]));
        let read = read.unwrap();
        let names: Vec<_> = read.iter().map(|wave| wave.name.as_str()).collect();
        assert_eq!(names, ["canary", "wave-2", "wave-3", "wave-4"]);
        assert_eq!(read[0].soak, SignedDuration::from_mins(30));
        assert!(!read[0].approval && read[1].approval);
        assert_eq!(read[1].nodes, WaveNodes::UpTo(NodeLimit::Percent(10)));
        assert_eq!(read[3].nodes, WaveNodes::Rest);
        assert_eq!(
            waves(&json!([{"nodes": 1}, {}])).unwrap().len(),
            2,
            "the rest is there already"
        );
        assert_eq!(PlanSpec::default().waves(), Ok(Vec::new()));
    }

    #[test]
    fn an_invalid_wave_is_named_with_its_place() {
        for (invalid, error) in [
            (
                json!([{"name": "Canary"}]),
                "spec.waves[0].name is \"Canary\": it must be",
            ),
            (
                json!([{"name": "a@b"}]),
                "spec.waves[0].name is \"a@b\": it must be",
            ),
            (
                json!([{"name": "wave-2", "nodes": 1}, {}]),
                "spec.waves[1].name is \"wave-2\", as that of spec.waves[0]",
            ),
            (
                json!([{"nodes": 1, "selector": {}}]),
                "spec.waves[0] has nodes and selector: it must have one of them, or none for all nodes that are left",
            ),
            (
                json!([{"nodes": "10"}]),
                "spec.waves[0].nodes is \"10\": it must be a number",
            ),
            (
                json!([{"nodes": "10%"}, {"nodes": 3}, {"nodes": "10%"}]),
                "spec.waves[2].nodes is not more than that of spec.waves[0]",
            ),
            (
                json!([{"selector": {"matchLabels": {"a b": "c"}}}]),
                "spec.waves[0].selector is invalid, ",
            ),
            (
                json!([{"nodes": 1, "soak": "30"}]),
                "spec.waves[0].soak is invalid, ",
            ),
            (
                json!([{"nodes": 1, "soak": "-1s"}]),
                "spec.waves[0].soak is negative",
            ),
            (
                json!([{"soak": "1h"}, {"nodes": 1}]),
                "spec.waves[0] takes all nodes that are left, so that the waves after it have none",
            ),
        ] {
            let message = waves(&invalid).unwrap_err();
            assert!(message.starts_with(error), "{message}");
        }
    }
}
