//! `spec.waves`: parts of the selected nodes that are upgraded one after the other. The doc comments of the fields are
//! what `kubectl explain` prints.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::invalid::{ErrorList, FieldPath, Invalid, at};
use super::node_limit::NodeLimit;
use super::selector::{Selector, is_dns_label};
use refit_base::go::GoDuration;

/// Maximum number of waves, as in the schema. A Plan stored under another schema may have more.
const MAX_WAVES: usize = 32;
/// Maximum length of a name.
const MAX_NAME_LEN: usize = 63;

/// Nodes that are upgraded before those of the next wave. With neither `nodes` nor `selector`, it takes all nodes that are
/// left.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaveSpec {
    /// Name of the wave: lower-case letters, digits and `-`, beginning with a letter. Defaults to `wave-1` for the
    /// first, and so on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How many nodes are upgraded when the wave is over, including those of earlier waves: a number, or a share of
    /// the selected nodes such as `10%` (rounded down, at least 1).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<NodeLimit>")]
    pub nodes: Option<IntOrString>,
    /// Selects the nodes of the wave by their labels, among those that the Plan selects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// How long all upgraded nodes must stay Ready before the next wave, as a Go duration such as `30m`; it starts
    /// over when one does not. Defaults to `0s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soak: Option<String>,
    /// If true, the next wave needs the annotation `refit.rs/approve` with `<wave>@<hash>`, where the hash is
    /// `status.latestHash`. Defaults to false.
    #[serde(skip_serializing_if = "Option::is_none")]
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

impl WaveSpec {
    fn nodes(&self, wave: &FieldPath) -> Result<WaveNodes, Invalid> {
        match (&self.nodes, &self.selector) {
            (Some(_), Some(_)) => Err(wave.invalid(
                "has nodes and selector: it must have one of them, or none for all nodes that are left",
            )),
            (Some(nodes), None) => wave.field("nodes").node_limit(nodes).map(WaveNodes::UpTo),
            (None, Some(selector)) => wave.field("selector").selector(selector).map(WaveNodes::Selected),
            (None, None) => Ok(WaveNodes::Rest),
        }
    }

    /// The index is that of the wave in the spec.
    fn parse(&self, index: usize) -> Result<Wave, ErrorList> {
        let wave = at("waves").index(index);
        let mut errors = ErrorList::default();
        let name = self.name_or_default(index);
        if !is_name(&name) {
            errors.push(wave.field("name").invalid(format_args!(
                "is {name:?}: it must be at most {MAX_NAME_LEN} lower-case letters, digits and '-', must start with a letter, and must \
                 not end with '-'"
            )));
        }
        let nodes = errors.take(self.nodes(&wave));
        let soak = self.soak.as_deref().map(|soak| wave.field("soak").parse(soak));
        let soak: GoDuration = soak.and_then(|soak| errors.take(soak)).unwrap_or_default();
        if soak.is_negative() {
            let hint = "write a duration such as `30m`";
            errors.push(wave.field("soak").invalid("is negative").hint(hint));
        }
        let approval = self.approval.unwrap_or_default();
        let soak = SignedDuration::from_nanos(soak.as_nanos());
        errors.finish(nodes.map(|nodes| Wave {
            name,
            nodes,
            soak,
            approval,
        }))
    }

    fn name_or_default(&self, index: usize) -> String {
        self.name.clone().unwrap_or_else(|| default_name(index))
    }

    /// Whether a wave after another one has no nodes, because that one includes them.
    fn is_within(&self, other: &Self) -> bool {
        let limit = |wave: &Self| NodeLimit::parse(wave.nodes.as_ref().filter(|_| wave.selector.is_none())?);
        match (limit(self), limit(other)) {
            (Some(NodeLimit::Nodes(own)), Some(NodeLimit::Nodes(others))) => own <= others,
            (Some(NodeLimit::Percent(own)), Some(NodeLimit::Percent(others))) => own <= others,
            _ => false,
        }
    }
}

fn default_name(index: usize) -> String {
    format!("wave-{}", index + 1)
}

/// Whether the text has neither of the separators of approvals, and is not a version.
fn is_name(name: &str) -> bool {
    is_dns_label(name) && name.starts_with(|c: char| c.is_ascii_lowercase())
}

/// The parsed `spec.waves`. Unless there are none, the last one takes the nodes that are left.
///
/// # Errors
/// Fails with all that is wrong with them; `validate` has reported it.
pub(super) fn parse(specs: &[WaveSpec]) -> Result<Vec<Wave>, ErrorList> {
    let list = at("waves");
    list.at_most(specs, MAX_WAVES, "waves")?;
    let mut errors = ErrorList::default();
    let mut waves: Vec<Wave> = Vec::with_capacity(specs.len() + 1);
    for (index, spec) in specs.iter().enumerate() {
        let (wave, before) = (list.index(index), &specs[..index]);
        waves.extend(errors.take(spec.parse(index)));
        let name = spec.name_or_default(index);
        let mut names = before.iter().enumerate();
        let first = names.position(|(index, other)| other.name_or_default(index) == name);
        if let Some(first) = first.filter(|_| is_name(&name)) {
            let problem = format!("is {name:?}, as that of spec.waves[{first}]");
            errors.push(wave.field("name").invalid(problem));
        }
        if let Some(first) = before.iter().rposition(|other| spec.is_within(other)) {
            let problem = format!(
                "is not more than that of spec.waves[{first}], whose nodes it includes, so that the wave has none"
            );
            let hint = "raise it: the nodes of earlier waves are included";
            errors.push(wave.field("nodes").invalid(problem).hint(hint));
        }
        let takes_rest = spec.nodes.is_none() && spec.selector.is_none();
        if takes_rest && index + 1 < specs.len() {
            let problem = "takes all nodes that are left, so that the waves after it have none";
            let hint = "move the wave to the end, or give it nodes or a selector";
            errors.push(wave.invalid(problem).hint(hint));
        }
    }
    if waves.last().is_some_and(|last| last.nodes != WaveNodes::Rest) {
        waves.push(Wave {
            name: default_name(specs.len()),
            nodes: WaveNodes::Rest,
            soak: SignedDuration::ZERO,
            approval: false,
        });
    }
    errors.finish(Some(waves))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::PlanSpec;

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
