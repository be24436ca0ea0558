//! Which pods each disruption budget selects.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize as _;

use crate::pods::{has_ended, is_ready};
use crate::store::{Change, Key, Object};
use refit_api::selector::Selector;

/// The selectors of all budgets, and how many pods they select. The counts are kept, not taken anew: a workload with a pod
/// on each node would otherwise cost a look at all its pods for each change of one of them.
#[derive(Debug, Default)]
pub(crate) struct Budgets(BTreeMap<Key, SelectedPods>);

#[derive(Debug)]
pub(super) struct SelectedPods {
    selector: Selector,
    pub(super) all: usize,
    pub(super) healthy: usize,
    /// How many pods each controller has among them.
    pub(super) controllers: BTreeMap<String, usize>,
}

impl SelectedPods {
    pub(super) fn selects(&self, pod: &Object) -> bool {
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
    pub(super) fn get(&self, budget: &Key) -> Option<&SelectedPods> {
        self.0.get(budget)
    }

    pub(super) fn remove(&mut self, budget: &Key) {
        self.0.remove(budget);
    }

    /// Counts the pods of a new or changed budget among those of its namespace.
    pub(super) fn insert<'p>(&mut self, budget: &Object, pods: impl Iterator<Item = &'p Arc<Object>>) {
        self.remove(&budget.key());
        let Some(selector) = selector(budget) else {
            return;
        };
        let mut selected = SelectedPods {
            selector,
            all: 0,
            healthy: 0,
            controllers: BTreeMap::new(),
        };
        for pod in pods {
            if selected.selects(pod) {
                selected.add(pod);
            }
        }
        self.0.insert(budget.key(), selected);
    }

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
pub(super) fn is_healthy(pod: &Object) -> bool {
    !pod.is_being_deleted() && !has_ended(pod) && is_ready(&pod.value)
}

fn selector(budget: &Object) -> Option<Selector> {
    let selector = LabelSelector::deserialize(&budget.value["spec"]["selector"]).ok()?;
    Selector::new(Some(&selector)).ok()
}
