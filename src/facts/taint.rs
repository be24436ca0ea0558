//! Taints of Nodes.

use std::fmt;

use k8s_openapi::api::core::v1::Toleration;
use serde::{Deserialize, Serialize};

use refit_api::names::{TAINT_NEW_NODE, TAINT_PENDING_PREFIX};

/// An entry of `spec.taints` of a Node. Fields that refit does not use are kept as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taint {
    pub key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    pub effect: String,
    #[serde(flatten)]
    pub others: serde_json::Map<String, serde_json::Value>,
}

impl Taint {
    /// The taint of a node that is still to be upgraded for a Plan.
    pub fn pending(plan: &str, namespace: &str) -> Self {
        Self {
            key: format!("{TAINT_PENDING_PREFIX}{plan}"),
            value: Some(namespace.to_owned()),
            // With `NoSchedule`, evicted pods would stay Pending while the nodes that are done have no room for
            // them.
            effect: "PreferNoSchedule".to_owned(),
            ..Self::default()
        }
    }

    /// The Plan of this namespace for which the node is still to be upgraded, if the taint says so.
    pub fn pending_for(&self, namespace: &str) -> Option<&str> {
        let plan = self.key.strip_prefix(TAINT_PENDING_PREFIX)?;
        (self.value.as_deref() == Some(namespace)).then_some(plan)
    }

    /// The taint of a node that has joined, and on which a Plan of this namespace is not done yet.
    pub fn new_node(namespace: &str) -> Self {
        Self {
            key: TAINT_NEW_NODE.to_owned(),
            value: Some(namespace.to_owned()),
            effect: "NoSchedule".to_owned(),
            ..Self::default()
        }
    }

    /// Whether it is that of a new node, whatever the namespace. The Jobs of all Plans tolerate it.
    pub fn is_of_new_node(&self) -> bool {
        self.key == TAINT_NEW_NODE && self.effect == "NoSchedule"
    }

    /// Whether it is that of a new node for Plans of this namespace.
    pub fn is_new_for(&self, namespace: &str) -> bool {
        self.is_of_new_node() && self.value.as_deref() == Some(namespace)
    }

    /// Whether the scheduler keeps pods off the node that do not tolerate the taint. `PreferNoSchedule` does not.
    pub fn keeps_pods_off(&self) -> bool {
        matches!(self.effect.as_str(), "NoSchedule" | "NoExecute")
    }

    /// Whether a pod with this toleration may run on the node in spite of the taint (`ToleratesTaint` in `k8s.io/api`).
    pub fn is_tolerated_by(&self, toleration: &Toleration) -> bool {
        // An empty field is the same as an absent one, and matches every taint.
        let matches = |field: &Option<String>, text: &str| {
            field
                .as_deref()
                .is_none_or(|field| field.is_empty() || field == text)
        };
        let value = self.value.as_deref().unwrap_or_default();
        matches(&toleration.key, &self.key)
            && matches(&toleration.effect, &self.effect)
            && match toleration.operator.as_deref().unwrap_or_default() {
                "" | "Equal" => toleration.value.as_deref().unwrap_or_default() == value,
                // `Exists`, or an operator that only the scheduler knows, such as `Gt` (KEP-5471). The API server refuses
                // a pod with one that it does not know.
                _ => true,
            }
    }

    /// Whether Kubernetes sets the taint for the time of a condition of the node, such as `DiskPressure`.
    pub fn is_of_condition(&self) -> bool {
        self.key.starts_with("node.kubernetes.io/")
            || self.key.starts_with("node.cloudprovider.kubernetes.io/")
    }

    /// The narrowest toleration of the taint, as an entry of `spec.tolerations`.
    pub fn toleration(&self) -> String {
        let (key, effect) = (&self.key, &self.effect);
        match self.value.as_deref() {
            None | Some("") => format!("{{key: {key}, operator: Exists, effect: {effect}}}"),
            // Quoted: `value: true` would not be a text.
            Some(value) => format!("{{key: {key}, value: {value:?}, effect: {effect}}}"),
        }
    }
}

/// `key=value:Effect`, as in `kubectl taint`.
impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        match self.value.as_deref() {
            None | Some("") => {}
            Some(value) => write!(f, "={value}")?,
        }
        write!(f, ":{}", self.effect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(text: &str) -> Taint {
        let (key, effect) = text.split_once(':').unwrap();
        let (key, value) = key
            .split_once('=')
            .map_or((key, None), |(key, value)| (key, Some(value)));
        Taint {
            key: key.to_owned(),
            value: value.map(str::to_owned),
            effect: effect.to_owned(),
            ..Taint::default()
        }
    }

    /// The cases of `TestTolerationToleratesTaint` in `k8s.io/api/core/v1`, and an operator that it does not know.
    #[test]
    fn a_toleration_matches_the_taints_that_it_matches_in_kubernetes() {
        for ([key, operator, value, effect], of, expected) in [
            (["foo", "Exists", "", "NoSchedule"], "foo:NoSchedule", true),
            (["foo", "Exists", "", "NoSchedule"], "foo=bar:NoSchedule", true),
            (["", "Exists", "", "NoSchedule"], "foo=bar:NoSchedule", true),
            (["", "Exists", "", ""], "foo=bar:NoExecute", true),
            (["foo", "Equal", "bar", "NoSchedule"], "foo=bar:NoSchedule", true),
            (["foo", "", "bar", "NoSchedule"], "foo=bar:NoSchedule", true),
            (["foo", "", "bar", ""], "foo=bar:NoExecute", true),
            (["foo", "", "", ""], "foo:NoSchedule", true),
            (["foo", "", "", ""], "foo=bar:NoSchedule", false),
            (["foo", "", "bar", ""], "foo:NoSchedule", false),
            (["foo", "Exists", "", "NoSchedule"], "foo:NoExecute", false),
            (["foo", "Exists", "", "NoSchedule"], "foo2:NoSchedule", false),
            (["foo", "", "bar", "NoSchedule"], "foo=baz:NoSchedule", false),
            (["foo", "Gt", "5", ""], "foo=7:NoSchedule", true),
            (["foo", "Gt", "5", ""], "foo2=7:NoSchedule", false),
        ] {
            for absent in [true, false] {
                let field = |text: &str| (!absent || !text.is_empty()).then(|| text.to_owned());
                let toleration = Toleration {
                    key: field(key),
                    operator: field(operator),
                    value: field(value),
                    effect: field(effect),
                    ..Toleration::default()
                };
                let tolerates = taint(of).is_tolerated_by(&toleration);
                assert_eq!(tolerates, expected, "{toleration:?} {of}");
            }
        }
    }

    #[test]
    fn a_taint_says_how_it_is_written_and_how_it_is_tolerated() {
        for (text, toleration) in [
            (
                "example.com/full:NoSchedule",
                "{key: example.com/full, operator: Exists, effect: NoSchedule}",
            ),
            (
                "ready=true:NoExecute",
                "{key: ready, value: \"true\", effect: NoExecute}",
            ),
        ] {
            let taint = taint(text);
            assert_eq!(
                (taint.to_string().as_str(), taint.toleration().as_str()),
                (text, toleration)
            );
        }
    }
}
