//! Whether pods that a drain would evict fit on another node: an estimate by requests, node selectors, required node affinity and
//! taints. It knows neither volumes, nor affinity between pods, nor priorities. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::api::core::v1::{Affinity, Taint, Toleration};
use serde::Deserialize;

use crate::node_fit::{selects, tolerates};

/// Resources by name, in their base units.
type Amounts = BTreeMap<String, f64>;

/// The resource that each pod needs one of.
const PODS: &str = "pods";

/// What a pod needs of a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PlacedPod {
    spec: PodSpec,
    status: Phase,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    containers: Vec<Container>,
    init_containers: Vec<Container>,
    overhead: BTreeMap<String, String>,
    node_selector: Option<BTreeMap<String, String>>,
    affinity: Option<Affinity>,
    tolerations: Vec<Toleration>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Container {
    resources: Resources,
    restart_policy: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Resources {
    requests: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Phase {
    phase: String,
}

/// A node that may take pods.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Place {
    metadata: Meta,
    spec: NodeSpec,
    status: NodeStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Meta {
    name: String,
    labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct NodeSpec {
    unschedulable: bool,
    taints: Vec<Taint>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct NodeStatus {
    allocatable: BTreeMap<String, String>,
}

impl PlacedPod {
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// As the scheduler counts: init containers run one by one, unless they are sidecars.
    fn requests(&self) -> Amounts {
        let (mut running, mut most) = (Amounts::new(), Amounts::new());
        for container in &self.spec.init_containers {
            if container.restart_policy.as_deref() == Some("Always") {
                add(&mut running, &container.resources.requests);
            } else {
                let mut now = running.clone();
                add(&mut now, &container.resources.requests);
                raise(&mut most, now);
            }
        }
        for container in &self.spec.containers {
            add(&mut running, &container.resources.requests);
        }
        raise(&mut most, running);
        add(&mut most, &self.spec.overhead);
        most.insert(PODS.to_owned(), 1.0);
        most
    }

    /// Its requests, for a sentence.
    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        for (name, amount) in self.requests() {
            let _ = match name.as_str() {
                PODS => Ok(()),
                "cpu" => write!(text, " cpu {}m", (amount * 1000.0).round()),
                "memory" => write!(text, " memory {}Mi", (amount / f64::from(1 << 20)).round()),
                name => write!(text, " {name} {amount}"),
            };
        }
        if text.is_empty() {
            " nothing".to_owned()
        } else {
            text
        }
    }
}

impl Place {
    pub(super) fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Whether the pod could run there if no other pod did.
    pub(super) fn suits(&self, pod: &PlacedPod) -> bool {
        let PodSpec {
            node_selector,
            affinity,
            tolerations,
            ..
        } = &pod.spec;
        let keeps_off = |taint: &&Taint| {
            matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
                && !tolerations.iter().any(|one| tolerates(one, taint))
        };
        let Meta { name, labels } = &self.metadata;
        !self.spec.unschedulable
            && selects(node_selector.as_ref(), affinity.as_ref(), name, labels)
            && self.spec.taints.iter().find(keeps_off).is_none()
            && self.free(&[]).has(&pod.requests())
    }

    /// What is left beside these pods.
    pub(super) fn free(&self, pods: &[PlacedPod]) -> Free {
        // A node that says nothing, as in a rehearsal, has enough.
        if self.status.allocatable.is_empty() {
            return Free(None);
        }
        let mut free = Amounts::new();
        add(&mut free, &self.status.allocatable);
        let mut free = Free(Some(free));
        for pod in pods.iter().filter(|pod| !pod.has_ended()) {
            free.take(pod);
        }
        free
    }
}

/// What a node has left; `None` for anything.
#[derive(Clone, Debug)]
pub(super) struct Free(Option<Amounts>);

impl Free {
    fn has(&self, requests: &Amounts) -> bool {
        let Some(free) = &self.0 else { return true };
        let left = |name: &str| free.get(name).copied().unwrap_or_default();
        requests
            .iter()
            .all(|(name, amount)| *amount <= 0.0 || *amount <= left(name))
    }

    fn take(&mut self, pod: &PlacedPod) {
        for (name, amount) in pod.requests() {
            if let Some(left) = self.0.as_mut().and_then(|free| free.get_mut(&name)) {
                *left -= amount;
            }
        }
    }

    /// Takes the room of a pod, if there is any.
    pub(super) fn place(&mut self, pod: &PlacedPod) -> bool {
        let fits = self.has(&pod.requests());
        if fits {
            self.take(pod);
        }
        fits
    }
}

fn add(sum: &mut Amounts, texts: &BTreeMap<String, String>) {
    for (name, text) in texts {
        *sum.entry(name.clone()).or_default() += quantity(text);
    }
}

fn raise(most: &mut Amounts, amounts: Amounts) {
    for (name, amount) in amounts {
        let known = most.entry(name).or_default();
        *known = known.max(amount);
    }
}

/// A quantity of Kubernetes such as `250m` or `1Gi`; 0 if it cannot be read.
fn quantity(text: &str) -> f64 {
    // `E` is a suffix and an exponent: `1E` and `1E3`.
    if let Ok(number) = text.parse() {
        return number;
    }
    let (number, suffix) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let thousands = |suffix: &str| "kMGTPE".find(suffix).and_then(|at| i32::try_from(at + 1).ok());
    let factor = match suffix {
        "" => 1.0,
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "Ki" => 1024.0,
        _ => match suffix.strip_suffix('i') {
            Some(binary) if binary.len() == 1 => thousands(binary).map_or(0.0, |power| 1024_f64.powi(power)),
            None if suffix.len() == 1 => thousands(suffix).map_or(0.0, |power| 1000_f64.powi(power)),
            _ => 0.0,
        },
    };
    number.parse().unwrap_or(0.0) * factor
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(requests: &Value, spec: &Value) -> PlacedPod {
        let mut all = json!({ "containers": [{ "resources": { "requests": requests } }] });
        for (key, value) in spec.as_object().unwrap() {
            all[key] = value.clone();
        }
        serde_json::from_value(json!({ "spec": all })).unwrap()
    }

    fn place(spec: &Value) -> Place {
        let allocatable = json!({ "cpu": "2", "memory": "4Gi", "pods": "3" });
        serde_json::from_value(json!({
            "metadata": { "name": "b", "labels": { "zone": "z1" } }, "spec": spec, "status": { "allocatable": allocatable },
        }))
        .unwrap()
    }

    #[test]
    fn quantities_have_the_suffixes_of_kubernetes() {
        for (text, number) in [
            ("2", 2.0),
            ("250m", 0.25),
            ("1k", 1e3),
            ("1Ki", 1024.0),
            ("1.5Gi", 1.5 * 1024.0 * 1024.0 * 1024.0),
            ("2E", 2e18),
            ("1e3", 1e3),
            ("x", 0.0),
            ("1Zi", 0.0),
            ("", 0.0),
        ] {
            assert!((quantity(text) - number).abs() < number.max(1.0) * 1e-9, "{text}");
        }
    }

    #[test]
    fn a_pod_fits_if_what_is_left_is_enough_for_its_requests() {
        let node = place(&json!({}));
        let half = pod(&json!({ "cpu": "1", "memory": "2Gi" }), &json!({}));
        let mut free = node.free(std::slice::from_ref(&half));
        assert!(free.place(&half));
        assert!(!free.place(&half), "the first two have taken all");
        assert!(free.place(&pod(&json!({}), &json!({}))));
        assert!(!free.place(&pod(&json!({}), &json!({}))), "three pods are all");
        assert!(!node.suits(&pod(&json!({ "example.com/gpu": "1" }), &json!({}))));
        let init = json!({ "initContainers": [{ "resources": { "requests": { "cpu": "3" } } }] });
        assert!(!node.suits(&pod(&json!({}), &init)));
        assert_eq!(half.describe(), " cpu 1000m memory 2048Mi");
        let silent: Place = serde_json::from_value(json!({ "metadata": { "name": "c" } })).unwrap();
        assert!(silent.suits(&half));
    }

    #[test]
    fn a_pod_fits_only_where_selectors_and_taints_let_it() {
        let none = json!({});
        assert!(place(&none).suits(&pod(&none, &json!({ "nodeSelector": { "zone": "z1" } }))));
        assert!(!place(&none).suits(&pod(&none, &json!({ "nodeSelector": { "zone": "z2" } }))));
        assert!(!place(&json!({ "unschedulable": true })).suits(&pod(&none, &none)));
        let tainted = place(&json!({ "taints": [{ "key": "gpu", "effect": "NoSchedule" }] }));
        assert!(!tainted.suits(&pod(&none, &none)));
        assert!(tainted.suits(&pod(
            &none,
            &json!({ "tolerations": [{ "key": "gpu", "operator": "Exists" }] })
        )));
    }
}
