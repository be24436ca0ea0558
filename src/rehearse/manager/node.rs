//! The node controller, which turns what a node says into taints, and the one that serves definitions.

use serde_json::{Value, json};

use crate::rehearse::resources::Kind;
use crate::rehearse::state::{State, seconds};
use crate::rehearse::store::Key;
use crate::rehearse::write::Part;

/// Taints that follow from a node's own words.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const OWN: [&str; 3] = [UNSCHEDULABLE, NOT_READY, UNREACHABLE];

impl State {
    /// Brings the taints of a node in line with what it says. Pods are not evicted for them.
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
