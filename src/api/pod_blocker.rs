//! `drain.blockedBy`: pods that delay a node. The doc comments of the fields are what `kubectl explain` prints.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::invalid::{ErrorList, FieldPath, at};
use super::selector::{Selector, is_dns_label};

/// Maximum number of entries. The pods of a node are listed once for each.
const MAX_ENTRIES: usize = 16;

/// Pods that, while they run, keep the Plan from starting on their node.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodBlockerSpec {
    /// Namespace of the pods. If absent, those of all namespaces count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Labels of the pods. If absent, `namespace` is required, and all of its pods count.
    #[serde(skip_serializing_if = "Option::is_none")]
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
        let mut errors = ErrorList::default();
        if self.namespace.as_deref().is_none_or(str::is_empty)
            && self.selector.as_ref().is_none_or(selects_all)
        {
            errors.push(entry.invalid(
                "has neither namespace nor selector, so that every pod would keep its node from being upgraded: write one of them",
            ));
        }
        PodBlocker::parse(self.namespace.as_deref(), self.selector.as_ref(), entry, errors)
    }
}

impl PodBlocker {
    /// The pods of a field with `namespace` and `selector`. `errors` are those of the field so far.
    pub(super) fn parse(
        given: Option<&str>,
        selector: Option<&LabelSelector>,
        field: &FieldPath,
        mut errors: ErrorList,
    ) -> Result<Self, ErrorList> {
        let namespace = namespace(given, field, &mut errors);
        let selector = match selector {
            Some(selector) => errors.take(field.field("selector").selector(selector)),
            None => Some(Selector::everything()),
        };
        errors.finish(selector.map(|selector| Self { namespace, selector }))
    }
}

/// The field `namespace` of this field; `None` if it is absent or empty.
pub(super) fn namespace(given: Option<&str>, field: &FieldPath, errors: &mut ErrorList) -> Option<String> {
    let name = given.filter(|name| !name.is_empty())?;
    if !is_dns_label(name) {
        let problem = format!("is {name:?}: it must be the name of a namespace");
        errors.push(field.field("namespace").invalid(problem));
    }
    Some(name.to_owned())
}

/// The parsed `spec.drain.blockedBy`.
///
/// # Errors
/// Fails with all invalid entries; `validate` has reported them.
pub(super) fn parse(specs: &[PodBlockerSpec]) -> Result<Vec<PodBlocker>, ErrorList> {
    at("drain.blockedBy").each(specs, MAX_ENTRIES, "entries", PodBlockerSpec::parse)
}

/// Whether a selector has no condition.
pub(super) fn selects_all(selector: &LabelSelector) -> bool {
    let labels = selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty);
    labels && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
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
