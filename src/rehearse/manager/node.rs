//! The node controller, which turns what a node says into taints, those who take pods off nodes that are tainted or gone, and
//! the one that serves definitions.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Taint, Toleration};
use serde::Deserialize as _;

use crate::rehearse::agenda::Work;
use crate::rehearse::deletion::Deletion;
use crate::rehearse::json::{Value, json};
use crate::rehearse::podlife::tolerates;

use crate::rehearse::resources::Kind;
use crate::rehearse::state::{State, is_over, seconds};
use crate::rehearse::store::{Key, Object};
use crate::rehearse::write::Part;

/// Taints that follow from a node's own words.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const OWN: [&str; 3] = [UNSCHEDULABLE, NOT_READY, UNREACHABLE];

impl State {
    /// Brings the taints of a node in line with what it says.
    pub(in crate::rehearse) fn taint(&mut self, name: &str) {
        let key = Key::new("", name);
        let Some(node) = self.store.get(Kind::Node, &key) else {
            return;
        };
        let known = node.value["spec"]["taints"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let ready = node.value["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|one| one["type"] == "Ready")
            .and_then(|one| one["status"].as_str());
        let mut wanted: Vec<(&str, &str)> = Vec::new();
        if node.value["spec"]["unschedulable"] == true {
            wanted.push((UNSCHEDULABLE, "NoSchedule"));
        }
        match ready {
            Some("True") => {}
            Some("Unknown") => wanted.extend([(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]),
            Some(_) | None => wanted.extend([(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]),
        }
        let is =
            |taint: &Value, (key, effect): (&str, &str)| taint["key"] == key && taint["effect"] == effect;
        let mut taints = known.clone();
        taints.retain(|taint| {
            let own = taint["key"].as_str().is_some_and(|key| OWN.contains(&key));
            !own || wanted.iter().any(|one| is(taint, *one))
        });
        let now = seconds(self.now());
        for one in wanted {
            if !taints.iter().any(|taint| is(taint, one)) {
                taints.push(json!({ "key": one.0, "effect": one.1, "timeAdded": now }));
            }
        }
        if taints == known {
            return;
        }
        let _ = self.update(Kind::Node, &key, Part::Whole, false, |old| {
            let mut new = old.clone();
            if taints.is_empty() {
                if let Some(spec) = new["spec"].as_object_mut() {
                    spec.remove("taints");
                }
            } else {
                new["spec"]["taints"] = taints.into();
            }
            Ok(new)
        });
        self.soon(Work::Expel(name.to_owned()));
    }

    /// Deletes the pods of a node that do not tolerate its taints, or not for so long (`pkg/controller/tainteviction`).
    pub(in crate::rehearse) fn expel(&mut self, name: &str) {
        let Some(node) = self.store.get(Kind::Node, &Key::new("", name)) else {
            return;
        };
        let mut taints = Vec::<Taint>::deserialize(&node.value["spec"]["taints"]).unwrap_or_default();
        taints.retain(|taint| taint.effect == "NoExecute");
        if taints.is_empty() {
            return;
        }
        let now = self.now();
        let pods: Vec<Arc<Object>> = self.store.pods_on(name).cloned().collect();
        for pod in pods.iter().filter(|pod| !pod.is_leaving() && !is_over(pod)) {
            match expulsion(pod, &taints) {
                Some(at) if at <= now => {
                    let message = "Taint manager: deleting due to NoExecute taint";
                    self.disrupted_by(&pod.key(), "DeletionByTaintManager", message, None);
                    let _ = self.delete(Kind::Pod, &pod.key(), &Deletion::default());
                }
                Some(at) => self.agenda.add(at, Work::Expel(name.to_owned())),
                None => {}
            }
        }
    }

    /// Takes away the pods of a node that is gone (`pkg/controller/podgc`).
    pub(in crate::rehearse) fn sweep(&mut self, name: &str) {
        if self.store.get(Kind::Node, &Key::new("", name)).is_some() {
            return;
        }
        let pods: Vec<Arc<Object>> = self.store.pods_on(name).cloned().collect();
        for pod in pods {
            let message = "PodGC: node no longer exists";
            let phase = (!is_over(&pod)).then_some("Failed");
            self.disrupted_by(&pod.key(), "DeletionByPodGC", message, phase);
            let at_once = Deletion {
                grace: Some(0),
                ..Deletion::default()
            };
            let _ = self.delete(Kind::Pod, &pod.key(), &at_once);
        }
    }

    /// Says on a pod who ends it.
    fn disrupted_by(&mut self, key: &Key, reason: &str, message: &str, phase: Option<&str>) {
        let now = seconds(self.now());
        let _ = self.update(Kind::Pod, key, Part::Status, false, |old| {
            let mut new = old.clone();
            let mut conditions = new["status"]["conditions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            conditions.retain(|condition| condition["type"] != "DisruptionTarget");
            conditions.push(json!({
                "type": "DisruptionTarget", "status": "True", "reason": reason, "message": message,
                "lastProbeTime": null, "lastTransitionTime": now,
            }));
            new["status"]["conditions"] = conditions.into();
            if let Some(phase) = phase {
                new["status"]["phase"] = phase.into();
            }
            Ok(new)
        });
    }

    /// A definition is served from now on.
    pub(in crate::rehearse) fn establish(&mut self, key: &Key) {
        let now = seconds(self.now());
        let _ = self.update(Kind::Definition, key, Part::Status, false, |old| {
            let mut new = old.clone();
            if old["status"]["conditions"].is_array() {
                return Ok(new);
            }
            let condition = |type_: &str, reason: &str, message: &str| {
                json!({
                    "type": type_, "status": "True", "reason": reason, "message": message,
                    "lastTransitionTime": now,
                })
            };
            new["status"] = json!({
                "acceptedNames": old["spec"]["names"],
                "storedVersions": ["v1"],
                "conditions": [
                    condition("NamesAccepted", "NoConflicts", "no conflicts found"),
                    condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
                ],
            });
            Ok(new)
        });
    }
}

/// When a pod has to go for these taints; never, where it tolerates them for good.
fn expulsion(pod: &Object, taints: &[Taint]) -> Option<Timestamp> {
    let tolerations = &pod.value["spec"]["tolerations"];
    let tolerations = Vec::<Toleration>::deserialize(tolerations).unwrap_or_default();
    let ends = taints.iter().filter_map(|taint| {
        let since = taint
            .time_added
            .as_ref()
            .map_or(Timestamp::UNIX_EPOCH, |time| time.0);
        let bearing = tolerations.iter().filter(|one| tolerates(one, taint));
        // Of several that fit, the one that bears it for the shortest time counts.
        match bearing
            .map(|one| one.toleration_seconds)
            .min_by_key(|seconds| seconds.unwrap_or(i64::MAX))
        {
            None => Some(since),
            Some(None) => None,
            Some(Some(seconds)) => since.checked_add(SignedDuration::from_secs(seconds.max(0))).ok(),
        }
    });
    ends.min()
}
