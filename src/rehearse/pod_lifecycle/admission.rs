//! Checks of a kubelet before it runs a pod that is bound to its node.
//!
//! Resources are not checked, because they are not simulated.

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Pod, Taint, Toleration};

use super::{Machine, PodBehaviour, Power};

/// `status.reason` and `status.message` of a refused pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rejection {
    pub(super) reason: String,
    pub(super) message: String,
}

impl Rejection {
    pub(super) fn new(reason: &str, message: &str) -> Self {
        Self {
            reason: reason.to_owned(),
            message: format!("Pod was rejected: {message}"),
        }
    }

    /// Parses `Reason` or `Reason: message`.
    pub(super) fn parse(text: &str) -> Self {
        let (reason, message) = text.split_once(':').unwrap_or((text, "as the annotation says"));
        Self::new(reason.trim(), message.trim())
    }
}

/// Why the kubelet refuses the pod.
pub(super) fn refuse(pod: &Pod, machine: &Machine, behaviour: &PodBehaviour) -> Option<Rejection> {
    if machine.power == Power::ShuttingDown {
        return Some(Rejection {
            reason: "NodeShutdown".to_owned(),
            message: "Pod was rejected as the node is shutting down.".to_owned(),
        });
    }
    if let Some(rejection) = &behaviour.reject {
        return Some(rejection.clone());
    }
    if !selects(pod, machine) {
        let message = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
        return Some(Rejection::new("NodeAffinity", message));
    }
    let tolerations = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.tolerations.as_deref())
        .unwrap_or_default();
    // NoSchedule concerns the scheduler only. The kubelet accepts a pod that was bound in spite of it, as Jobs of refit
    // are on a cordoned node.
    let untolerated = |taint: &Taint| {
        taint.effect == "NoExecute" && !tolerations.iter().any(|toleration| tolerates(toleration, taint))
    };
    machine.taints.iter().any(untolerated).then(|| {
        let message = "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
        Rejection::new("TaintToleration", message)
    })
}

/// Checks `nodeSelector` and required node affinity.
pub(crate) fn selects(pod: &Pod, machine: &Machine) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let selector = spec.node_selector.iter().flatten();
    if !selector
        .into_iter()
        .all(|(key, value)| machine.labels.get(key) == Some(value))
    {
        return false;
    }
    let required = spec
        .affinity
        .as_ref()
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
            .any(|term| term_matches(term, machine))
    })
}

/// Terms are alternatives, and all requirements of a term must match. A term without requirements matches nothing.
fn term_matches(term: &NodeSelectorTerm, machine: &Machine) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let by_label = |requirement: &NodeSelectorRequirement| {
        requirement_matches(
            requirement,
            machine.labels.get(&requirement.key).map(String::as_str),
        )
    };
    let by_field = |requirement: &NodeSelectorRequirement| {
        // The API server admits no other field (`nodeFieldSelectorValidators`).
        requirement.key == "metadata.name" && requirement_matches(requirement, Some(&machine.name))
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

pub(crate) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
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
