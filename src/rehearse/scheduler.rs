//! The scheduler. It checks selectors, affinity, taints and the anti-affinity of pods, but no resources, and chooses
//! the node with the fewest pods, among those without a taint of the effect `PreferNoSchedule` if there are any.

pub(super) mod loads;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm, Taint};
use serde::Deserialize as _;

use super::pod_lifecycle::Machine;
use super::pods::{condition, has_ended, is_bound, set_condition};
use super::resources::Kind;
use super::state::{State, seconds};
use super::store::{Key, Object};
use super::write::WriteTarget;
use crate::json::{Value, json};
use refit_api::names::FIELD_NODE_NAME;
use refit_api::selector::Selector;
use refit_cluster::node_fit::{selects, tolerates};

/// Messages of the scheduler.
const AFFINITY: &str = "node(s) didn't match Pod's node affinity/selector";
const TAINT: &str = "node(s) had untolerated taint(s)";
const ANTI_AFFINITY: &str = "node(s) didn't match pod anti-affinity rules";
const OTHERS_ANTI_AFFINITY: &str = "node(s) didn't satisfy existing pods anti-affinity rules";

impl State {
    /// Retries all pods without a node.
    pub(super) fn schedule_all(&mut self) {
        for key in self.unscheduled.clone() {
            self.schedule(&key);
        }
    }

    /// Binds a pod to a node.
    pub(super) fn schedule(&mut self, key: &Key) {
        let Some(object) = self.store.get(Kind::Pod, key).cloned() else {
            return;
        };
        if is_bound(&object) || object.is_being_deleted() || has_ended(&object) {
            self.unscheduled.remove(key);
            return;
        }
        let pod = match Pod::deserialize(&object.value) {
            Ok(pod) => pod,
            Err(error) => {
                tracing::error!(pod = &*key.name, %error, "a pod cannot be read");
                return;
            }
        };
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        let all = self.kubelets.count();
        let named = only_node(&pod);
        // The first suitable node is the one with the fewest pods.
        let is_preferred = |machine: &Machine| {
            let mut taints = machine
                .taints
                .iter()
                .filter(|taint| taint.effect == "PreferNoSchedule");
            taints.all(|taint| is_tolerated(&pod, taint))
        };
        let candidates = match named {
            Some(_) => either(named.into_iter()),
            None => either(self.loads.ascending()),
        };
        let mut best = None;
        for machine in candidates.filter_map(|name| self.kubelets.machine(name)) {
            let Some(reason) = self.unfit(&pod, &object, machine) else {
                best.get_or_insert_with(|| machine.name.clone());
                if is_preferred(machine) {
                    best = Some(machine.name.clone());
                    break;
                }
                continue;
            };
            *reasons.entry(reason).or_default() += 1;
        }
        if let Some(node) = best {
            return self.bind(key, &object, &node);
        }
        let rest = all - reasons.values().sum::<usize>();
        if rest > 0 {
            *reasons.entry(AFFINITY).or_default() += rest;
        }
        self.mark_unschedulable(key, all, &reasons);
    }

    /// Why the pod cannot run on this machine.
    fn unfit(&self, pod: &Pod, object: &Object, machine: &Machine) -> Option<&'static str> {
        let spec = pod.spec.as_ref();
        let selector = spec.and_then(|spec| spec.node_selector.as_ref());
        let affinity = spec.and_then(|spec| spec.affinity.as_ref());
        if !selects(selector, affinity, &machine.name, &machine.labels) {
            return Some(AFFINITY);
        }
        // This covers `spec.unschedulable`: the node lifecycle controller turns it into a taint
        // (`doNoScheduleTaintingPass`).
        if machine.taints.iter().any(|taint| keeps_off(pod, taint)) {
            return Some(TAINT);
        }
        let terms = anti_affinity(&object.value);
        // The scheduler does not watch pods in a terminal phase (`newPodInformer`).
        for neighbour in self.store.pods_on(&machine.name).filter(|one| !has_ended(one)) {
            if terms.iter().any(|term| term_matches(term, object, neighbour)) {
                return Some(ANTI_AFFINITY);
            }
            // Required anti-affinity is symmetric: it also keeps new pods away from the pod that has it.
            if anti_affinity(&neighbour.value)
                .iter()
                .any(|term| term_matches(term, neighbour, object))
            {
                return Some(OTHERS_ANTI_AFFINITY);
            }
        }
        None
    }

    fn bind(&mut self, key: &Key, pod: &Object, node: &str) {
        self.unscheduled.remove(key);
        let mut new = pod.value.clone();
        new["spec"]["nodeName"] = node.into();
        // The binding subresource sets node and condition in one write (`setPodNodeAndMetadata`).
        let condition = json!({
            "type": "PodScheduled", "status": "True", "lastProbeTime": null,
            "lastTransitionTime": seconds(self.now()), "observedGeneration": new["metadata"]["generation"],
        });
        set_condition(&mut new, condition);
        self.commit(Kind::Pod, key, Some(new));
    }

    fn mark_unschedulable(&mut self, key: &Key, all: usize, reasons: &BTreeMap<&str, usize>) {
        self.unscheduled.insert(key.clone());
        let reasons: Vec<String> = reasons
            .iter()
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        let message = match reasons.as_slice() {
            [] => "no nodes available to schedule pods".to_owned(),
            all_reasons => format!("0/{all} nodes are available: {}.", all_reasons.join(", ")),
        };
        let now = seconds(self.now());
        let _ = self.change(Kind::Pod, key, WriteTarget::Status, |new| {
            let said = condition(new, "PodScheduled").is_some_and(|known| known["message"] == *message);
            // Each retry would otherwise write, because the transition time differs.
            if !said {
                let condition = json!({
                    "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
                    "lastProbeTime": null, "lastTransitionTime": now,
                });
                set_condition(new, condition);
            }
        });
    }
}

/// Whether a taint keeps the pod off its machine.
fn keeps_off(pod: &Pod, taint: &Taint) -> bool {
    matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute") && !is_tolerated(pod, taint)
}

fn is_tolerated(pod: &Pod, taint: &Taint) -> bool {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref());
    tolerations
        .unwrap_or_default()
        .iter()
        .any(|one| tolerates(one, taint))
}

fn either<'a>(names: impl Iterator<Item = &'a str> + 'a) -> Box<dyn Iterator<Item = &'a str> + 'a> {
    Box::new(names)
}

/// The only node that the pod may run on, by name, as for refit's Jobs. The scheduler does not look at other nodes
/// either (`PreFilter` of its plugin `NodeAffinity`).
fn only_node(pod: &Pod) -> Option<&str> {
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity
        .required_during_scheduling_ignored_during_execution
        .as_ref()?;
    let [term] = required.node_selector_terms.as_slice() else {
        return None;
    };
    let field = term
        .match_fields
        .iter()
        .flatten()
        .find(|field| field.key == FIELD_NODE_NAME && field.operator == "In")?;
    match field.values.as_deref() {
        Some([name]) => Some(name),
        _ => None,
    }
}

/// Anti-affinity terms of a pod. Only the topology of host names is simulated.
fn anti_affinity(pod: &Value) -> Vec<PodAffinityTerm> {
    let terms = pod.pointer("/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution");
    terms
        .and_then(|terms| Vec::<PodAffinityTerm>::deserialize(terms).ok())
        .unwrap_or_default()
        .into_iter()
        .filter(|term| term.topology_key == refit_api::names::LABEL_HOSTNAME)
        .collect()
}

/// Whether a term of the pod `whose` matches `other`.
fn term_matches(term: &PodAffinityTerm, whose: &Object, other: &Object) -> bool {
    let same_namespace = match term.namespaces.as_deref() {
        None | Some([]) => whose.meta("namespace") == other.meta("namespace"),
        Some(namespaces) => namespaces.iter().any(|one| one == other.meta("namespace")),
    };
    same_namespace
        && Selector::new(term.label_selector.as_ref())
            .is_ok_and(|selector| selector.matches_by(|key| other.label(key)))
}
