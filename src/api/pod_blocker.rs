//! `drain.blockedBy`: pods that delay a node. The doc comments of the fields are what `kubectl explain` prints.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PlanSpec;
use super::selector::{Selector, SelectorError, label_value_problems};

/// Maximum number of entries. The pods of a node are listed once for each.
const MAX_ENTRIES: usize = 16;

/// Pods that, while they run, keep the Plan from starting on their node.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodBlockerSpec {
    /// Namespace of the pods. If absent, those of all namespaces count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Labels of the pods. If absent, `namespace` is required, and all of its pods count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// A valid entry.
#[derive(Clone, Debug, PartialEq)]
pub struct PodBlocker {
    /// `None` for all namespaces.
    pub namespace: Option<String>,
    pub selector: Selector,
}

/// Why an entry is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPodBlocker {
    #[error("spec.drain.blockedBy has {0} entries: it must have at most {MAX_ENTRIES}")]
    TooMany(usize),
    #[error(
        "spec.drain.blockedBy[{0}] has neither namespace nor selector, so that every pod would keep its node from being upgraded: write one \
         of them"
    )]
    Everything(usize),
    #[error("spec.drain.blockedBy[{index}].namespace is {name:?}: it must be the name of a namespace")]
    Namespace { index: usize, name: String },
    #[error("spec.drain.blockedBy[{index}].selector is invalid, {error}")]
    Selector { index: usize, error: SelectorError },
}

impl PodBlockerSpec {
    fn read(&self, index: usize) -> Result<PodBlocker, BadPodBlocker> {
        let is_empty = |selector: &LabelSelector| {
            let labels = selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty);
            labels && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
        };
        let namespace = self.namespace.clone().filter(|name| !name.is_empty());
        if namespace.is_none() && self.selector.as_ref().is_none_or(is_empty) {
            return Err(BadPodBlocker::Everything(index));
        }
        if let Some(name) = namespace.clone().filter(|name| !is_namespace(name)) {
            return Err(BadPodBlocker::Namespace { index, name });
        }
        let all = LabelSelector::default();
        let selector = Selector::new(Some(self.selector.as_ref().unwrap_or(&all)));
        let selector = selector.map_err(|error| BadPodBlocker::Selector { index, error })?;
        Ok(PodBlocker { namespace, selector })
    }
}

impl PlanSpec {
    /// The parsed `spec.drain.blockedBy`.
    ///
    /// # Errors
    /// Fails with the first invalid entry; `validate` has reported it.
    pub fn pod_blockers(&self) -> Result<Vec<PodBlocker>, BadPodBlocker> {
        let specs = self.drain.as_ref().and_then(|drain| drain.blocked_by.as_deref());
        let specs = specs.unwrap_or_default();
        if specs.len() > MAX_ENTRIES {
            return Err(BadPodBlocker::TooMany(specs.len()));
        }
        let each = specs.iter().enumerate();
        each.map(|(index, spec)| spec.read(index)).collect()
    }
}

/// Whether the text can be the name of a namespace: a DNS label (RFC 1123).
fn is_namespace(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    label_value_problems(name).is_empty() && name.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> Result<Vec<PodBlocker>, String> {
        let spec: PlanSpec = serde_saphyr::from_str(&format!("drain: {{blockedBy: {yaml}}}")).unwrap();
        spec.pod_blockers().map_err(|error| error.to_string())
    }

    #[test]
    fn an_entry_needs_a_namespace_or_labels() {
        let good = read("[{selector: {matchLabels: {job: training}}}, {namespace: ci}]").unwrap();
        assert_eq!(good.len(), 2);
        assert_eq!(good[0].selector.to_string(), "job=training");
        assert_eq!(good[1].namespace.as_deref(), Some("ci"));
        assert_eq!(good[1].selector.to_string(), "");
        for bad in ["[{}]", "[{selector: {}}]", "[{namespace: ''}]"] {
            let error = read(bad).unwrap_err();
            assert!(
                error.contains("has neither namespace nor selector"),
                "{bad}: {error}"
            );
        }
        let error = read("[{namespace: Not_A_Name}]").unwrap_err();
        assert!(
            error.starts_with("spec.drain.blockedBy[0].namespace is "),
            "{error}"
        );
        let error =
            read("[{namespace: a}, {selector: {matchExpressions: [{key: a, operator: Like}]}}]").unwrap_err();
        assert!(
            error.starts_with("spec.drain.blockedBy[1].selector is invalid, "),
            "{error}"
        );
    }
}
