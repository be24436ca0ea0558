//! The disruption controller: how many pods of a PodDisruptionBudget may go (`pkg/controller/disruption`).

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize as _;

use crate::api::selector::Selector;
use crate::rehearse::json::{Map, Value, json};
use crate::rehearse::resources::Kind;
use crate::rehearse::server::evict::is_ready;
use crate::rehearse::state::{State, is_over, seconds};
use crate::rehearse::store::{Key, Object};
use crate::rehearse::write::Part;

/// How long an eviction that nothing has come of counts against a budget.
const DISRUPTION: SignedDuration = SignedDuration::from_mins(2);

/// Whether a budget is for a pod.
pub(in crate::rehearse) fn selects(budget: &Object, pod: &Object) -> bool {
    selector(budget).is_some_and(|selector| selector.matches_by(|key| pod.label(key)))
}

/// Which pods a budget is for.
fn selector(budget: &Object) -> Option<Selector> {
    let selector = LabelSelector::deserialize(&budget.value["spec"]["selector"]).ok()?;
    Selector::new(Some(&selector)).ok()
}

impl State {
    /// Whether a namespace has budgets.
    pub(in crate::rehearse) fn has_budgets(&self, namespace: &str) -> bool {
        self.store.in_namespace(Kind::Budget, namespace).next().is_some()
    }

    /// Counts anew what the budgets of a namespace allow.
    pub(in crate::rehearse) fn sync_budgets(&mut self, namespace: &str) {
        let budgets = self.store.in_namespace(Kind::Budget, namespace);
        let keys: Vec<Key> = budgets.map(|budget| budget.key()).collect();
        for key in keys {
            self.sync_budget(&key);
        }
    }

    fn sync_budget(&mut self, key: &Key) {
        let Some(budget) = self.store.get(Kind::Budget, key).cloned() else {
            return;
        };
        let selector = selector(&budget);
        let pods: Vec<Arc<Object>> = self
            .store
            .in_namespace(Kind::Pod, &key.namespace)
            .filter(|pod| {
                selector
                    .as_ref()
                    .is_some_and(|selector| selector.matches_by(|key| pod.label(key)))
            })
            .cloned()
            .collect();
        let disrupted = self.disrupted(&budget, &pods);
        let healthy = pods
            .iter()
            .filter(|pod| {
                !pod.is_leaving()
                    && !is_over(pod)
                    && is_ready(pod)
                    && !disrupted.contains_key(pod.meta("name"))
            })
            .count();
        let healthy = i64::try_from(healthy).unwrap_or(i64::MAX);
        let spec = &budget.value["spec"];
        let (expected, desired) = if spec["maxUnavailable"].is_null() {
            let least = &spec["minAvailable"];
            let expected = match least {
                // Of a plain number it need not be known how many there should be.
                Value::Number(_) => i64::try_from(pods.len()).unwrap_or(i64::MAX),
                _ => self.expected(&pods),
            };
            (expected, scaled(least, expected))
        } else {
            let expected = self.expected(&pods);
            (
                expected,
                (expected - scaled(&spec["maxUnavailable"], expected)).max(0),
            )
        };
        let allowed = if expected <= 0 {
            0
        } else {
            (healthy - desired).max(0)
        };
        let (reason, holds) = if allowed > 0 {
            ("SufficientPods", "True")
        } else {
            ("InsufficientPods", "False")
        };
        let generation = budget.value["metadata"]["generation"].clone();
        let now = seconds(self.now());
        let _ = self.update(Kind::Budget, key, Part::Status, false, |old| {
            let mut new = old.clone();
            let since = old
                .pointer("/status/conditions/0")
                .filter(|one| one["status"] == holds);
            let since = since.map_or_else(|| now.into(), |one| one["lastTransitionTime"].clone());
            let mut status = json!({
                "currentHealthy": healthy, "desiredHealthy": desired, "expectedPods": expected,
                "disruptionsAllowed": allowed, "observedGeneration": generation,
                "conditions": [{
                    "type": "DisruptionAllowed", "status": holds, "reason": reason, "message": "",
                    "lastTransitionTime": since, "observedGeneration": generation,
                }],
            });
            if !disrupted.is_empty() {
                status["disruptedPods"] = disrupted.into();
            }
            new["status"] = status;
            Ok(new)
        });
    }

    /// Pods whose eviction was granted, and which have not begun to go.
    fn disrupted(&self, budget: &Object, pods: &[Arc<Object>]) -> Map {
        let known = budget.value["status"]["disruptedPods"].as_object();
        let now = self.now();
        let fresh = |at: &Value| {
            let at = at.as_str().and_then(|at| at.parse::<jiff::Timestamp>().ok());
            at.is_some_and(|at| now.duration_since(at) < DISRUPTION)
        };
        let staying = |name: &str| {
            pods.iter()
                .any(|pod| pod.meta("name") == name && !pod.is_leaving())
        };
        let kept = known
            .into_iter()
            .flatten()
            .filter(|(name, at)| fresh(at) && staying(name));
        kept.map(|(name, at)| (name, at.clone())).collect()
    }

    /// How many pods there should be, as their ReplicaSets say.
    fn expected(&self, pods: &[Arc<Object>]) -> i64 {
        let sets: BTreeSet<&str> = pods.iter().filter_map(|pod| pod.controller()).collect();
        let replicas = sets.into_iter().filter_map(|uid| {
            let (kind, key) = self.store.find(uid)?;
            self.store.get(*kind, key)?.value["spec"]["replicas"].as_i64()
        });
        replicas.sum()
    }
}

/// A number, or a share of all, rounded up.
fn scaled(value: &Value, all: i64) -> i64 {
    if let Some(number) = value.as_i64() {
        return number;
    }
    let share = value
        .as_str()
        .and_then(|text| text.strip_suffix('%')?.parse::<i64>().ok());
    share.map_or(0, |share| (share * all + 99) / 100)
}
