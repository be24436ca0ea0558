//! What of a `PodDisruptionBudget` tells whether it can ever allow an eviction. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;

use super::pods::Pod;
use refit_api::selector::Selector;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Budget {
    metadata: Meta,
    spec: Spec,
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Meta {
    name: String,
    namespace: String,
    generation: i64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    selector: Option<LabelSelector>,
    unhealthy_pod_eviction_policy: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    observed_generation: i64,
    expected_pods: i64,
    desired_healthy: i64,
}

impl Budget {
    pub(super) fn name(&self) -> &str {
        &self.metadata.name
    }

    pub(super) fn selects(&self, pod: &Pod) -> bool {
        pod.id().namespace == self.metadata.namespace
            && Selector::new(self.spec.selector.as_ref()).is_ok_and(|selector| selector.matches(pod.labels()))
    }

    /// Whether it requires all of its pods, so that it allows no eviction of this one even if all are healthy: then it does
    /// not only wait for others. What the disruption controller has not seen says nothing, nor does the budget of an operator,
    /// which it may lift once the node is cordoned.
    fn never_allows(&self, pod: &Pod) -> bool {
        let Status {
            observed_generation,
            expected_pods,
            desired_healthy,
        } = self.status;
        // `AlwaysAllow` (KEP-3017): the pod that is not Ready may go.
        let spares = self.spec.unhealthy_pod_eviction_policy.as_deref() != Some("AlwaysAllow");
        observed_generation >= self.metadata.generation
            && expected_pods > 0
            && desired_healthy >= expected_pods
            && (spares || pod.is_ready())
            && !pod.is_of_operator()
    }
}

/// Budgets that a message names. A tenant may have any number, with names of 253 bytes.
const NAMED: usize = 3;

/// The budgets that select one pod, of which only what a message says is kept: they may be many and large.
#[derive(Debug, Default)]
pub(super) struct Selecting {
    count: usize,
    names: Vec<String>,
    /// Why the last one never allows an eviction.
    refuses: Option<String>,
}

impl Selecting {
    pub(super) fn add(&mut self, budget: &Budget, pod: &Pod) {
        // The API server ignores budgets for pods that are not guarded (`canIgnorePDB`).
        if !pod.is_guarded() || !budget.selects(pod) {
            return;
        }
        let name = budget.name();
        self.count += 1;
        if self.names.len() < NAMED {
            self.names.push(name.to_owned());
        }
        self.refuses = budget.never_allows(pod).then(|| {
            let Status {
                expected_pods: all,
                desired_healthy: least,
                ..
            } = budget.status;
            format!("PodDisruptionBudget {name} requires {least} of its {all} pods, so that it never allows an eviction")
        });
    }

    /// Why no eviction of the pod can ever succeed; `None` if one may succeed.
    pub(super) fn refusal(self) -> Option<String> {
        if self.count < 2 {
            return self.refuses;
        }
        let more = match self.count - self.names.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let names = self.names.join(", ");
        Some(format!(
            "more than one PodDisruptionBudget selects it ({names}{more}), so that it cannot be evicted"
        ))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(change: &Value) -> Pod {
        let mut pod = json!({
            "metadata": { "name": "web-1", "namespace": "shop", "labels": { "app": "web" } },
            "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] },
        });
        for (key, value) in change.as_object().unwrap() {
            pod[key] = value.clone();
        }
        serde_json::from_value(pod).unwrap()
    }

    fn budget(name: &str, status: [i64; 3], spec: &Value) -> Budget {
        let [observed, expected, desired] = status;
        let mut budget = json!({
            "metadata": { "name": name, "namespace": "shop", "generation": 2 },
            "spec": { "selector": { "matchLabels": { "app": "web" } } },
            "status": { "observedGeneration": observed, "expectedPods": expected, "desiredHealthy": desired },
        });
        for (key, value) in spec.as_object().unwrap() {
            budget["spec"][key] = value.clone();
        }
        serde_json::from_value(budget).unwrap()
    }

    fn refusal(pod: &Pod, budgets: &[Budget]) -> Option<String> {
        let mut selecting = Selecting::default();
        for budget in budgets {
            selecting.add(budget, pod);
        }
        selecting.refusal()
    }

    #[test]
    fn a_budget_refuses_for_good_if_it_requires_all_of_its_pods() {
        let none = json!({});
        let of = |status: [i64; 3]| refusal(&pod(&json!({})), &[budget("web", status, &json!({}))]);
        assert_eq!(
            of([2, 3, 3]).as_deref(),
            Some("PodDisruptionBudget web requires 3 of its 3 pods, so that it never allows an eviction")
        );
        assert_eq!(of([2, 3, 2]), None, "it may only be busy");
        assert_eq!(of([1, 3, 3]), None, "it has been edited");
        assert_eq!(of([2, 0, 0]), None, "it has no pods yet");
        let other = json!({ "selector": { "matchLabels": { "app": "db" } } });
        assert_eq!(refusal(&pod(&none), &[budget("db", [2, 3, 3], &other)]), None);
        let all = [budget("a", [2, 3, 1], &none), budget("b", [2, 3, 1], &none)];
        assert!(refusal(&pod(&none), &all).unwrap().contains("(a, b)"));
        let many = ["a", "b", "c", "d", "e"].map(|name| budget(name, [2, 3, 1], &none));
        let many = refusal(&pod(&none), &many).unwrap();
        assert!(many.contains("(a, b, c and 2 more)"), "{many}");
    }

    #[test]
    fn pods_that_no_budget_guards_can_always_go() {
        let web = [budget("web", [2, 3, 3], &json!({}))];
        let allows = [budget(
            "web",
            [2, 3, 3],
            &json!({ "unhealthyPodEvictionPolicy": "AlwaysAllow" }),
        )];
        let pending = pod(&json!({ "status": { "phase": "Pending" } }));
        let unready = pod(&json!({ "status": { "phase": "Running" } }));
        assert_eq!(refusal(&pending, &web), None);
        assert!(refusal(&unready, &web).is_some());
        assert_eq!(refusal(&unready, &allows), None);
        assert!(refusal(&pod(&json!({})), &allows).is_some());
    }

    #[test]
    fn a_budget_of_an_operator_may_allow_the_eviction_once_the_node_is_cordoned() {
        let of = |api_version: &str, kind: &str| {
            let owner = json!({ "apiVersion": api_version, "kind": kind, "name": "o", "uid": "u", "controller": true });
            let metadata = json!({
                "name": "web-1", "namespace": "shop", "labels": { "app": "web" }, "ownerReferences": [owner],
            });
            let pod = pod(&json!({ "metadata": metadata }));
            refusal(&pod, &[budget("web", [2, 1, 1], &json!({}))])
        };
        for (api_version, kind) in [
            ("kubevirt.io/v1", "VirtualMachineInstance"),
            ("longhorn.io/v1beta2", "InstanceManager"),
            ("postgresql.cnpg.io/v1", "Cluster"),
        ] {
            assert_eq!(of(api_version, kind), None, "{kind}");
        }
        for (api_version, kind) in [
            ("apps/v1", "StatefulSet"),
            ("apps.kruise.io/v1alpha1", "CloneSet"),
            ("batch/v1", "Job"),
            ("v1", "ReplicationController"),
        ] {
            assert!(of(api_version, kind).is_some(), "{kind}");
        }
    }
}
