//! Whether pods that a drain would evict fit on another node: an estimate by requests, node selectors, required node affinity and
//! taints. It knows neither volumes, nor affinity between pods, nor priorities. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::api::core::v1::{Affinity, Taint, Toleration};
use serde::Deserialize;

use crate::node_fit::{selects, tolerates};
use refit_api::names;

/// Resources by name, in billionths of their base units. Not floats: what is left of 1 CPU beside 900m would be less than 100m.
type Amounts = BTreeMap<String, i128>;

/// Of one base unit.
const NANOS: i128 = 1_000_000_000;

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
        most.insert(PODS.to_owned(), NANOS);
        most
    }

    /// Its requests, for a sentence.
    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        for (name, amount) in self.requests() {
            let _ = match name.as_str() {
                PODS => Ok(()),
                "cpu" => write!(text, " cpu {}m", amount / (NANOS / 1000)),
                "memory" => write!(text, " memory {}Mi", amount / (NANOS << 20)),
                name => write!(text, " {name} {}", amount / NANOS),
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
            && self.free().has(pod)
    }

    /// Whether the pod runs here because of the node's name, as a storage daemon does that serves its disks: it waits for the
    /// node to come back.
    pub(super) fn binds(&self, pod: &PlacedPod) -> bool {
        let PodSpec {
            node_selector,
            affinity,
            ..
        } = &pod.spec;
        let selects = |name: &str, labels| selects(node_selector.as_ref(), affinity.as_ref(), name, labels);
        let Meta { name, labels } = &self.metadata;
        let mut of_another = labels.clone();
        of_another.insert(names::LABEL_HOSTNAME.to_owned(), String::new());
        selects(name, labels) && !selects("", &of_another)
    }

    /// All that it has for pods.
    pub(super) fn free(&self) -> Free {
        // A node that says nothing, as in a rehearsal, has enough.
        if self.status.allocatable.is_empty() {
            return Free(None);
        }
        let mut free = Amounts::new();
        add(&mut free, &self.status.allocatable);
        Free(Some(free))
    }
}

/// What a node has left; `None` for anything.
#[derive(Clone, Debug)]
pub(super) struct Free(Option<Amounts>);

impl Free {
    /// Whether there is room for the pod.
    pub(super) fn has(&self, pod: &PlacedPod) -> bool {
        let Some(free) = &self.0 else { return true };
        let left = |name: &str| free.get(name).copied().unwrap_or_default();
        pod.requests()
            .iter()
            .all(|(name, amount)| *amount <= 0 || *amount <= left(name))
    }

    /// Takes the room of a pod that is there.
    pub(super) fn take(&mut self, pod: &PlacedPod) {
        let Some(free) = self.0.as_mut().filter(|_| !pod.has_ended()) else {
            return;
        };
        for (name, amount) in pod.requests() {
            if let Some(left) = free.get_mut(&name) {
                *left = left.saturating_sub(amount);
            }
        }
    }
}

fn add(sum: &mut Amounts, texts: &BTreeMap<String, String>) {
    for (name, text) in texts {
        let known = sum.entry(name.clone()).or_default();
        *known = known.saturating_add(quantity(text));
    }
}

fn raise(most: &mut Amounts, amounts: Amounts) {
    for (name, amount) in amounts {
        let known = most.entry(name).or_default();
        *known = amount.max(*known);
    }
}

/// A quantity of Kubernetes such as `250m` or `1Gi`, in billionths; 0 if it cannot be read.
fn quantity(text: &str) -> i128 {
    let (number, suffix) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().unwrap_or_default();
    let ten = |power: u32| 10_i128.checked_pow(power).unwrap_or(i128::MAX);
    digits.saturating_mul(factor(suffix)) / ten(u32::try_from(fraction.len()).unwrap_or(u32::MAX))
}

/// What a quantity with this suffix is multiplied by, in billionths; 0 for no suffix of Kubernetes.
fn factor(suffix: &str) -> i128 {
    let power = |letter: &str| "kMGTPE".find(letter).and_then(|at| u32::try_from(at + 1).ok());
    match suffix {
        "" => return NANOS,
        "n" => return 1,
        "u" => return 1_000,
        "m" => return 1_000_000,
        "Ki" => return NANOS << 10,
        _ => {}
    }
    // `E` is a suffix and an exponent: `1E` and `1E3`.
    if let Some(exponent) = suffix.strip_prefix(['e', 'E'])
        && let Ok(exponent) = exponent.parse::<i32>()
    {
        let power = u32::try_from(exponent.saturating_add(9));
        return power.map_or(0, |power| 10_i128.checked_pow(power).unwrap_or(i128::MAX));
    }
    match suffix.strip_suffix('i') {
        Some(binary) if binary.len() == 1 => power(binary).map_or(0, |power| NANOS << (10 * power)),
        None if suffix.len() == 1 => power(suffix).map_or(0, |power| NANOS * 1000_i128.pow(power)),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
