//! Budgets of pods that an operator controls. Many operators lift them, or move the pods, once a node is cordoned; the
//! simulation has no operators, and would wait for such a budget for ever.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize as _;

use super::controller;
use crate::json::Value;
use crate::words::pluralized;
use refit_api::selector::Selector;
use refit_cluster::drain::is_of_operator;

/// Leaves out the budgets that select only such pods.
pub(super) fn drop_budgets(objects: &mut Vec<Value>, pods: &[Value], notes: &mut Vec<String>) {
    let before = objects.len();
    objects.retain(|object| object["kind"] != "PodDisruptionBudget" || !is_of_operators(object, pods));
    let budgets = match before - objects.len() {
        0 => return,
        number => pluralized(number, "disruption budget"),
    };
    notes.push(format!("operators let their pods go in spite of {budgets}"));
}

fn is_of_operators(budget: &Value, pods: &[Value]) -> bool {
    let selector = LabelSelector::deserialize(&budget["spec"]["selector"]).ok();
    let Some(selector) = selector.and_then(|selector| Selector::new(Some(&selector)).ok()) else {
        return false;
    };
    let mut selected = pods.iter().filter(|pod| {
        pod.meta("namespace") == budget.meta("namespace")
            && selector.matches_by(|key| pod["metadata"]["labels"][key].as_str())
    });
    let of_operator = |pod: &Value| {
        let api_version = controller(pod).and_then(|owner| owner["apiVersion"].as_str());
        api_version.is_some_and(is_of_operator)
    };
    selected.next().is_some_and(of_operator) && selected.all(of_operator)
}
