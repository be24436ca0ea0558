//! Whether a pod may run on a node, by labels and taints, as the scheduler and the kubelets decide it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration};

/// Checks `nodeSelector` and required node affinity.
pub fn selects(
    node_selector: Option<&BTreeMap<String, String>>,
    affinity: Option<&Affinity>,
    node: &str,
    labels: &BTreeMap<String, String>,
) -> bool {
    let selector = node_selector.into_iter().flatten();
    if !selector
        .into_iter()
        .all(|(key, value)| labels.get(key) == Some(value))
    {
        return false;
    }
    let required = affinity
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| {
            affinity
                .required_during_scheduling_ignored_during_execution
                .as_ref()
        });
    required.is_none_or(|required| {
        required
            .node_selector_terms
            .iter()
            .any(|term| term_matches(term, node, labels))
    })
}

/// Terms are alternatives, and all requirements of a term must match. A term without requirements matches nothing.
fn term_matches(term: &NodeSelectorTerm, node: &str, labels: &BTreeMap<String, String>) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let by_label = |requirement: &NodeSelectorRequirement| {
        requirement_matches(requirement, labels.get(&requirement.key).map(String::as_str))
    };
    let by_field = |requirement: &NodeSelectorRequirement| {
        // The API server admits no other field (`nodeFieldSelectorValidators`).
        requirement.key == "metadata.name" && requirement_matches(requirement, Some(node))
    };
    !(expressions.is_empty() && fields.is_empty())
        && expressions.iter().all(by_label)
        && fields.iter().all(by_field)
}

fn requirement_matches(requirement: &NodeSelectorRequirement, actual: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let among = |actual: &str| values.iter().any(|value| value == actual);
    let number = |text: &str| text.parse::<i64>().ok();
    let compared = || Some((number(actual?)?, number(values.first()?)?));
    match requirement.operator.as_str() {
        "In" => actual.is_some_and(among),
        "NotIn" => !actual.is_some_and(among),
        "Exists" => actual.is_some(),
        "DoesNotExist" => actual.is_none(),
        "Gt" => compared().is_some_and(|(actual, wanted)| actual > wanted),
        "Lt" => compared().is_some_and(|(actual, wanted)| actual < wanted),
        _ => false,
    }
}

pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let same_effect = given(&toleration.effect).is_none_or(|effect| effect == taint.effect);
    // An empty key matches every taint. The API server admits it only with the operator `Exists`.
    let same_key = given(&toleration.key).is_none_or(|key| key == taint.key);
    let same_value = match toleration.operator.as_deref().unwrap_or_default() {
        "Exists" => true,
        "" | "Equal" => {
            toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
        }
        _ => false,
    };
    same_effect && same_key && same_value
}

#[cfg(test)]
mod tests;
