//! The disruption controller, which counts how many pods a PodDisruptionBudget allows to evict
//! (`pkg/controller/disruption`).

use std::sync::Arc;

use jiff::SignedDuration;

use super::selected_pods::is_healthy;
use crate::json::{Map, Value, json};
use crate::resources::Kind;
use crate::state::{State, seconds};
use crate::store::{Change, Key, Object};
use crate::work_queue::Work;
use crate::write::WriteTarget;

/// Time after which a granted eviction without effect no longer counts against a budget (`DeletionTimeout`).
const DISRUPTION: SignedDuration = SignedDuration::from_mins(2);

impl State {
    pub(crate) fn budget_changed(&mut self, key: &Key, change: &Change) {
        // Each eviction writes the status, after which the budget still selects the same pods.
        let spec = |budget: &Arc<Object>| budget.value["spec"].clone();
        let is_same = change.old.as_ref().map(spec) == Some(spec(&change.new));
        if change.gone {
            self.budgets.remove(key);
        } else if !is_same {
            let pods = self.store.in_namespace(Kind::Pod, &key.namespace);
            self.budgets.insert(&change.new, pods);
        }
        self.enqueue(Work::Budget(key.clone()));
    }

    /// Recomputes the status of a budget.
    pub(crate) fn sync_budget(&mut self, key: &Key) {
        let Some(budget) = self.store.get(Kind::Budget, key).cloned() else {
            return;
        };
        let pods = self.budgets.get(key);
        let (all, healthy) = pods.map_or((0, 0), |pods| (pods.all, pods.healthy));
        let disrupted = self.disrupted(key, &budget);
        // Otherwise two drains could use the same disruption before the first pod is being deleted.
        let leaving = disrupted.iter().filter(|(name, _)| {
            let pod = self.store.get(Kind::Pod, &Key::new(&key.namespace, name));
            pod.is_some_and(|pod| is_healthy(pod))
        });
        let healthy = i64::try_from(healthy - leaving.count()).unwrap_or(i64::MAX);
        let spec = &budget.value["spec"];
        let (expected, desired) = if spec["maxUnavailable"].is_null() {
            let least = &spec["minAvailable"];
            let expected = match least {
                // A plain number needs no expected count.
                Value::Number(_) => i64::try_from(all).unwrap_or(i64::MAX),
                _ => self.expected(key),
            };
            (expected, scaled(least, expected))
        } else {
            let expected = self.expected(key);
            (
                expected,
                (expected - scaled(&spec["maxUnavailable"], expected)).max(0),
            )
        };
        // A budget that selects no pods yet must not allow the disruption of the first ones (`updatePdbStatus`).
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
        let _ = self.change(Kind::Budget, key, WriteTarget::Status, |new| {
            let since = new
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
        });
    }

    /// Selected pods whose eviction was granted, and whose deletion has not begun.
    fn disrupted(&self, key: &Key, budget: &Object) -> Map {
        let known = budget.value["status"]["disruptedPods"].as_object();
        let now = self.now();
        let fresh = |at: &Value| {
            let at = at.as_str().and_then(|at| at.parse::<jiff::Timestamp>().ok());
            at.is_some_and(|at| now.duration_since(at) < DISRUPTION)
        };
        let selected = self.budgets.get(key);
        let staying = |name: &str| {
            let pod = self.store.get(Kind::Pod, &Key::new(&key.namespace, name));
            pod.is_some_and(|pod| !pod.is_being_deleted() && selected.is_some_and(|pods| pods.selects(pod)))
        };
        let kept = known
            .into_iter()
            .flatten()
            .filter(|(name, at)| fresh(at) && staying(name));
        kept.map(|(name, at)| (name, at.clone())).collect()
    }

    /// How many pods there should be, by the controllers of the selected ones. So a pod that is not recreated counts as
    /// unavailable (`getExpectedScale`).
    fn expected(&self, key: &Key) -> i64 {
        let controllers = self.budgets.get(key).map(|pods| pods.controllers.keys());
        let replicas = controllers.into_iter().flatten().filter_map(|uid| {
            let (kind, key) = self.store.find(uid)?;
            self.store.get(*kind, key)?.value["spec"]["replicas"].as_i64()
        });
        replicas.sum()
    }
}

/// A number, or a percentage of all. The disruption controller rounds up for both fields of a budget.
fn scaled(value: &Value, all: i64) -> i64 {
    if let Some(number) = value.as_i64() {
        return number;
    }
    let share = value
        .as_str()
        .and_then(|text| text.strip_suffix('%')?.parse::<i64>().ok());
    share.map_or(0, |share| (share * all + 99) / 100)
}
