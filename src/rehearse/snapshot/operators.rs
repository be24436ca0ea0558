//! Budgets of pods that an operator controls. Many operators lift them, or move the pods, once a node is cordoned; the
//! simulation has no operators, and would wait for such a budget for ever.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize as _;

use super::{controller, meta};
use crate::json::Value;
use refit_api::selector::Selector;

/// Leaves out the budgets that select such pods.
pub(super) fn drop_budgets(objects: &mut Vec<Value>, pods: &[Value], notes: &mut Vec<String>) {
    let of_operators: Vec<&Value> = pods.iter().filter(|pod| is_of_operator(pod)).collect();
    let before = objects.len();
    objects.retain(|object| object["kind"] != "PodDisruptionBudget" || !selects_any(object, &of_operators));
    let budgets = match before - objects.len() {
        0 => return,
        1 => "1 disruption budget".to_owned(),
        many => format!("{many} disruption budgets"),
    };
    notes.push(format!("operators let their pods go in spite of {budgets}"));
}

/// Whether its controller is of a kind that Kubernetes does not have.
fn is_of_operator(pod: &Value) -> bool {
    let api_version = controller(pod).and_then(|owner| owner["apiVersion"].as_str());
    let group = api_version.and_then(|version| version.split_once('/'));
    group.is_some_and(|(group, _)| group.contains('.'))
}

fn selects_any(budget: &Value, pods: &[&Value]) -> bool {
    let selector = LabelSelector::deserialize(&budget["spec"]["selector"]).ok();
    let selector = selector.and_then(|selector| Selector::new(Some(&selector)).ok());
    selector.is_some_and(|selector| {
        pods.iter().any(|pod| {
            meta(pod, "namespace") == meta(budget, "namespace")
                && selector.matches_by(|key| pod["metadata"]["labels"][key].as_str())
        })
    })
}
