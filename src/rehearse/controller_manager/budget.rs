//! The disruption controller, which counts how many pods a PodDisruptionBudget allows to evict
//! (`pkg/controller/disruption`).

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize as _;

use crate::json::{Map, Value, json};
use crate::resources::Kind;
use crate::server::evict::is_ready;
use crate::state::{State, has_ended, seconds};
use crate::store::{Change, Key, Object};
use crate::work_queue::Work;
use crate::write::WriteTarget;
use refit_api::selector::Selector;

/// Time after which a granted eviction without effect no longer counts against a budget (`DeletionTimeout`).
const DISRUPTION: SignedDuration = SignedDuration::from_mins(2);

/// The selectors of all budgets, and how many pods they select. The counts are kept, not taken anew: a workload with a pod
/// on each node would otherwise cost a look at all its pods for each change of one of them.
#[derive(Debug, Default)]
pub(crate) struct Budgets(BTreeMap<Key, SelectedPods>);

#[derive(Debug)]
struct SelectedPods {
    selector: Selector,
    all: usize,
    healthy: usize,
    /// How many pods each controller has among them.
    controllers: BTreeMap<String, usize>,
}

impl SelectedPods {
    fn selects(&self, pod: &Object) -> bool {
        self.selector.matches_by(|key| pod.label(key))
    }

    fn add(&mut self, pod: &Object) {
        self.all += 1;
        self.healthy += usize::from(is_healthy(pod));
        if let Some(controller) = pod.controller() {
            *self.controllers.entry(controller.to_owned()).or_default() += 1;
        }
    }

    fn remove(&mut self, pod: &Object) {
        self.all -= 1;
        self.healthy -= usize::from(is_healthy(pod));
        if let Some(controller) = pod.controller()
            && let Some(count) = self.controllers.get_mut(controller)
        {
            *count -= 1;
            if *count == 0 {
                self.controllers.remove(controller);
            }
        }
    }
}

impl Budgets {
    /// Counts a changed pod. Returns the budgets that select it, or did before the change.
    pub(crate) fn apply(&mut self, namespace: &str, change: &Change) -> Vec<Key> {
        let mut changed = Vec::new();
        let of_namespace = self.0.range_mut(Key::new(namespace, "")..);
        for (key, pods) in of_namespace.take_while(|(key, _)| *key.namespace == *namespace) {
            let before = change.old.as_ref().filter(|pod| pods.selects(pod));
            let is_selected = pods.selects(&change.new);
            if let Some(pod) = before {
                pods.remove(pod);
            }
            if is_selected && !change.gone {
                pods.add(&change.new);
            }
            if is_selected || before.is_some() {
                changed.push(key.clone());
            }
        }
        changed
    }

    /// The budgets that select a pod.
    pub(crate) fn of_pod(&self, namespace: &str, pod: &Object) -> Vec<Key> {
        let budgets = self.0.range(Key::new(namespace, "")..);
        let budgets = budgets.take_while(|(key, _)| *key.namespace == *namespace);
        let budgets = budgets.filter(|(_, pods)| pods.selects(pod));
        budgets.map(|(key, _)| key.clone()).collect()
    }
}

/// Whether the disruption controller counts a pod as healthy (`countHealthyPods`).
fn is_healthy(pod: &Object) -> bool {
    !pod.is_being_deleted() && !has_ended(pod) && is_ready(pod)
}

fn selector(budget: &Object) -> Option<Selector> {
    let selector = LabelSelector::deserialize(&budget.value["spec"]["selector"]).ok()?;
    Selector::new(Some(&selector)).ok()
}

impl State {
    pub(crate) fn budget_changed(&mut self, key: &Key, change: &Change) {
        // Each eviction writes the status, after which the budget still selects the same pods.
        let spec = |budget: &Arc<Object>| budget.value["spec"].clone();
        let is_same = change.old.as_ref().map(spec) == Some(spec(&change.new));
        if change.gone {
            self.budgets.0.remove(key);
        } else if !is_same {
            self.budgets.0.remove(key);
            if let Some(selector) = selector(&change.new) {
                let mut pods = SelectedPods {
                    selector,
                    all: 0,
                    healthy: 0,
                    controllers: BTreeMap::new(),
                };
                for pod in self.store.in_namespace(Kind::Pod, &key.namespace) {
                    if pods.selects(pod) {
                        pods.add(pod);
                    }
                }
                self.budgets.0.insert(key.clone(), pods);
            }
        }
        self.enqueue(Work::Budget(key.clone()));
    }

    /// Recomputes the status of a budget.
    pub(crate) fn sync_budget(&mut self, key: &Key) {
        let Some(budget) = self.store.get(Kind::Budget, key).cloned() else {
            return;
        };
        let pods = self.budgets.0.get(key);
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
        let _ = self.update(Kind::Budget, key, WriteTarget::Status, false, |old| {
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

    /// Selected pods whose eviction was granted, and whose deletion has not begun.
    fn disrupted(&self, key: &Key, budget: &Object) -> Map {
        let known = budget.value["status"]["disruptedPods"].as_object();
        let now = self.now();
        let fresh = |at: &Value| {
            let at = at.as_str().and_then(|at| at.parse::<jiff::Timestamp>().ok());
            at.is_some_and(|at| now.duration_since(at) < DISRUPTION)
        };
        let selected = self.budgets.0.get(key);
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
        let controllers = self.budgets.0.get(key).map(|pods| pods.controllers.keys());
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
