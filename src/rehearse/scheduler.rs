//! The scheduler: a node for each pod that has none. It looks at selectors and affinity, taints, and the anti-affinity of pods;
//! nothing here runs out of anything. Of the nodes that will do, the one with the fewest pods is taken.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm};
use serde::Deserialize as _;

use super::podlife::{Machine, selects, tolerates};
use super::resources::Kind;
use super::state::{State, is_over, seconds};
use super::store::{Key, Object};
use super::write::Part;
use crate::api::names::FIELD_NODE_NAME;
use crate::api::selector::Selector;
use crate::rehearse::json::{Value, json};

/// Why a node will not do, in the scheduler's words.
const AFFINITY: &str = "node(s) didn't match Pod's node affinity/selector";
const TAINT: &str = "node(s) had untolerated taint(s)";
const ANTI_AFFINITY: &str = "node(s) didn't match pod anti-affinity rules";
const OTHERS_ANTI_AFFINITY: &str = "node(s) didn't satisfy existing pods anti-affinity rules";

/// How many pods each node has been given, and the nodes in that order.
#[derive(Debug, Default)]
pub(super) struct Loads {
    pods: BTreeMap<String, usize>,
    order: BTreeSet<(usize, String)>,
}

impl Loads {
    fn of(&self, node: &str) -> usize {
        self.pods.get(node).copied().unwrap_or_default()
    }

    /// There is such a node from now on.
    pub(super) fn add_node(&mut self, node: &str) {
        self.order.insert((self.of(node), node.to_owned()));
    }

    /// There is none any more. Its pods are still counted, for who comes under its name.
    pub(super) fn remove_node(&mut self, node: &str) {
        self.order.remove(&(self.of(node), node.to_owned()));
    }

    /// A node has one pod more, or less.
    pub(super) fn change(&mut self, node: &str, more: bool) {
        let before = self.of(node);
        let after = if more {
            before + 1
        } else {
            before.saturating_sub(1)
        };
        self.pods.insert(node.to_owned(), after);
        if self.order.remove(&(before, node.to_owned())) {
            self.order.insert((after, node.to_owned()));
        }
    }

    /// Nodes, those with the fewest pods first.
    fn ascending(&self) -> impl Iterator<Item = &str> {
        self.order.iter().map(|(_, node)| node.as_str())
    }
}

impl State {
    /// Tries again what found no node.
    pub(super) fn schedule_all(&mut self) {
        for key in self.unscheduled.clone() {
            self.schedule(&key);
        }
    }

    /// Gives a pod a node.
    pub(super) fn schedule(&mut self, key: &Key) {
        let Some(object) = self.store.get(Kind::Pod, key).cloned() else {
            return;
        };
        if super::state::is_bound(&object) || object.is_leaving() || is_over(&object) {
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
        // The first that will do is the one with the fewest pods.
        let candidates = match named {
            Some(_) => either(named.into_iter()),
            None => either(self.loads.ascending()),
        };
        let mut best = None;
        for machine in candidates.filter_map(|name| self.kubelets.machine(name)) {
            let Some(reason) = self.unfit(&pod, &object, machine) else {
                best = Some(machine.name.clone());
                break;
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
        self.say_why_not(key, all, &reasons);
    }

    /// Why the pod cannot be on this machine.
    fn unfit(&self, pod: &Pod, object: &Object, machine: &Machine) -> Option<&'static str> {
        if !selects(pod, machine) {
            return Some(AFFINITY);
        }
        let tolerations = pod.spec.as_ref()?.tolerations.as_deref().unwrap_or_default();
        let keeps_off = |effect: &str| matches!(effect, "NoSchedule" | "NoExecute");
        let untolerated = machine
            .taints
            .iter()
            .any(|taint| keeps_off(&taint.effect) && !tolerations.iter().any(|one| tolerates(one, taint)));
        if untolerated {
            return Some(TAINT);
        }
        let terms = anti_affinity(&object.value);
        for neighbour in self.store.pods_on(&machine.name).filter(|one| !is_over(one)) {
            if terms.iter().any(|term| means(term, object, neighbour)) {
                return Some(ANTI_AFFINITY);
            }
            if anti_affinity(&neighbour.value)
                .iter()
                .any(|term| means(term, neighbour, object))
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
        let condition = json!({
            "type": "PodScheduled", "status": "True", "lastProbeTime": null,
            "lastTransitionTime": seconds(self.now()), "observedGeneration": new["metadata"]["generation"],
        });
        set_condition(&mut new, condition);
        self.commit(Kind::Pod, key, Some(new));
    }

    fn say_why_not(&mut self, key: &Key, all: usize, reasons: &BTreeMap<&str, usize>) {
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
        let _ = self.update(Kind::Pod, key, Part::Status, false, |old| {
            let mut new = old.clone();
            let known = new["status"]["conditions"].as_array().into_iter().flatten();
            let said = known
                .into_iter()
                .any(|one| one["type"] == "PodScheduled" && one["message"] == *message);
            if !said {
                let condition = json!({
                    "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
                    "lastProbeTime": null, "lastTransitionTime": now,
                });
                set_condition(&mut new, condition);
            }
            Ok(new)
        });
    }
}

fn set_condition(pod: &mut Value, condition: Value) {
    let mut conditions = pod["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    conditions.retain(|one| one["type"] != condition["type"]);
    conditions.push(condition);
    pod["status"]["conditions"] = conditions.into();
}

fn either<'a>(names: impl Iterator<Item = &'a str> + 'a) -> Box<dyn Iterator<Item = &'a str> + 'a> {
    Box::new(names)
}

/// The one node whose name the pod asks for, as refit's Jobs do.
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

/// Terms by which a pod keeps others off its host. Only the host counts as a neighbourhood here.
fn anti_affinity(pod: &Value) -> Vec<PodAffinityTerm> {
    let terms = pod.pointer("/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution");
    terms
        .and_then(|terms| Vec::<PodAffinityTerm>::deserialize(terms).ok())
        .unwrap_or_default()
        .into_iter()
        .filter(|term| term.topology_key == crate::api::names::LABEL_HOSTNAME)
        .collect()
}

/// Whether a term of `whose` pod means `other`.
fn means(term: &PodAffinityTerm, whose: &Object, other: &Object) -> bool {
    let same_namespace = match term.namespaces.as_deref() {
        None | Some([]) => whose.meta("namespace") == other.meta("namespace"),
        Some(namespaces) => namespaces.iter().any(|one| one == other.meta("namespace")),
    };
    same_namespace
        && Selector::new(term.label_selector.as_ref())
            .is_ok_and(|selector| selector.matches_by(|key| other.label(key)))
}
