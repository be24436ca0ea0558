//! `drain.blockedBy`: pods that delay a node. The doc comments of the fields are what `kubectl explain` prints.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::invalid::{ErrorList, FieldPath, at};
use super::selector::{Selector, label_value_problems};

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

impl PodBlockerSpec {
    fn parse(&self, entry: &FieldPath) -> Result<PodBlocker, ErrorList> {
        let is_empty = |selector: &LabelSelector| {
            let labels = selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty);
            labels && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
        };
        let mut errors = ErrorList::default();
        let namespace = self.namespace.clone().filter(|name| !name.is_empty());
        if namespace.is_none() && self.selector.as_ref().is_none_or(is_empty) {
            errors.push(entry.invalid(
                "has neither namespace nor selector, so that every pod would keep its node from being upgraded: write one of them",
            ));
        }
        if let Some(name) = namespace.as_ref().filter(|name| !is_namespace(name)) {
            let problem = format!("is {name:?}: it must be the name of a namespace");
            errors.push(entry.field("namespace").invalid(problem));
        }
        let selector = match &self.selector {
            Some(selector) => errors.take(entry.field("selector").selector(selector)),
            None => Some(Selector::everything()),
        };
        errors.finish(selector.map(|selector| PodBlocker { namespace, selector }))
    }
}

/// The parsed `spec.drain.blockedBy`.
///
/// # Errors
/// Fails with all invalid entries; `validate` has reported them.
pub(super) fn parse(specs: &[PodBlockerSpec]) -> Result<Vec<PodBlocker>, ErrorList> {
    let list = at("drain.blockedBy");
    list.at_most(specs, MAX_ENTRIES, "entries")?;
    let mut errors = ErrorList::default();
    let each = specs.iter().enumerate();
    let parsed: Vec<_> = each
        .filter_map(|(index, spec)| errors.take(spec.parse(&list.index(index))))
        .collect();
    errors.finish(Some(parsed))
}

/// Whether the text can be the name of a namespace: a DNS label (RFC 1123).
pub(super) fn is_namespace(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    label_value_problems(name).is_empty() && name.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PlanSpec;

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
