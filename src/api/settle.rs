//! `settle.conditions`, `settle.taintsGone` and `settle.daemonSets`: what a node must show besides Ready. The doc comments
//! of the fields are what `kubectl explain` prints.

use std::fmt;
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::field_enum::field_enum;
use super::invalid::{ErrorList, FieldPath, at};
use super::pod_blocker::PodBlocker;
use super::reboot::SettleSpec;
use super::selector::label_key_problems;
use super::text::MAX_NAME;

/// Maximum number of conditions, and of taints.
const MAX_ENTRIES: usize = 16;

field_enum! {
    /// Status of a condition.
    ConditionStatus {
        /// The node has the condition.
        True,
        /// It does not have it.
        False,
        /// Nobody knows.
        Unknown,
    }
}

/// A condition of the Node, and the status that it must have.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SettleConditionSpec {
    /// Type of the condition, such as `KernelDeadlock`. A node without it is not done. Required.
    #[serde(default, rename = "type", skip_serializing_if = "String::is_empty")]
    pub type_: String,
    /// `True`, `False` or `Unknown`, in quotes. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<ConditionStatus>,
}

impl SettleConditionSpec {
    /// The status that the condition must have.
    pub fn status_text(&self) -> &'static str {
        self.status.map_or("", ConditionStatus::as_str)
    }
}

/// Pods of DaemonSets on the node. Without fields, all of them.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DaemonSetsSpec {
    /// Namespace of the pods. If absent, those of all namespaces count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Labels of the pods. If absent, all count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// A taint that must be gone: `key` or `key:Effect`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaintName {
    pub key: String,
    /// `None` for any.
    pub effect: Option<String>,
}

impl TaintName {
    pub fn matches(&self, key: &str, effect: &str) -> bool {
        self.key == key && self.effect.as_deref().is_none_or(|wanted| wanted == effect)
    }
}

impl fmt::Display for TaintName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        self.effect.iter().try_for_each(|effect| write!(f, ":{effect}"))
    }
}

/// The effects of taints.
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

impl FromStr for TaintName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, effect) = match text.split_once(':') {
            Some((key, effect)) => (key, Some(effect)),
            None => (text, None),
        };
        if key.contains('=') {
            return Err("a taint is named without its value, as `key` or `key:Effect`".to_owned());
        }
        if let Some(problem) = label_key_problems(key).into_iter().next() {
            return Err(format!("{key:?} is not the key of a taint: {problem}"));
        }
        if let Some(effect) = effect.filter(|effect| !EFFECTS.contains(effect)) {
            return Err(format!(
                "{effect:?} is not an effect: it must be {}, {} or {}",
                EFFECTS[0], EFFECTS[1], EFFECTS[2]
            ));
        }
        Ok(Self {
            key: key.to_owned(),
            effect: effect.map(str::to_owned),
        })
    }
}

impl SettleSpec {
    /// The conditions.
    ///
    /// # Errors
    /// Fails with all invalid entries; `validate` has reported them.
    pub fn conditions(&self) -> Result<&[SettleConditionSpec], ErrorList> {
        let all = self.conditions.as_deref().unwrap_or_default();
        let list = at("settle.conditions");
        list.at_most(all, MAX_ENTRIES, "entries")?;
        let mut errors = ErrorList::default();
        for (index, one) in all.iter().enumerate() {
            let entry = list.index(index);
            if one.status.is_none() {
                let error = entry.field("status").invalid("is missing");
                errors.push(error.hint("write \"True\", \"False\" or \"Unknown\""));
            }
            let field = entry.field("type");
            if one.type_.len() > MAX_NAME || !label_key_problems(&one.type_).is_empty() {
                let problem = format!(
                    "is {:?}: it must be the type of a condition, such as KernelDeadlock",
                    one.type_
                );
                errors.push(field.invalid(problem));
            } else if all[..index].iter().any(|other| other.type_ == one.type_) {
                errors.push(field.invalid(format!("is {:?}, as an earlier entry: remove one", one.type_)));
            }
        }
        errors.finish(Some(all))
    }

    /// The taints that must be gone.
    ///
    /// # Errors
    /// Fails with all invalid entries; `validate` has reported them.
    pub fn taints_gone(&self) -> Result<Vec<TaintName>, ErrorList> {
        let all = self.taints_gone.as_deref().unwrap_or_default();
        at("settle.taintsGone").each(all, MAX_ENTRIES, "entries", |text, item| item.parse(text))
    }

    /// The pods of DaemonSets that must be Ready; `None` if the Plan waits for none.
    ///
    /// # Errors
    /// Fails with what is invalid; `validate` has reported it.
    pub fn daemon_sets(&self) -> Result<Option<PodBlocker>, ErrorList> {
        let field = at("settle.daemonSets");
        self.daemon_sets
            .as_ref()
            .map(|spec| spec.parse(&field))
            .transpose()
    }
}

impl DaemonSetsSpec {
    fn parse(&self, field: &FieldPath) -> Result<PodBlocker, ErrorList> {
        let (namespace, selector) = (self.namespace.as_deref(), self.selector.as_ref());
        PodBlocker::parse(namespace, selector, field, ErrorList::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settle(yaml: &str) -> SettleSpec {
        serde_saphyr::from_str(yaml).unwrap()
    }

    #[test]
    fn a_taint_is_named_by_key_and_effect() {
        let spec = settle("taintsGone: [node.cilium.io/agent-not-ready, 'dedicated:NoExecute']");
        let taints = spec.taints_gone().unwrap();
        assert!(taints[0].matches("node.cilium.io/agent-not-ready", "NoSchedule"));
        assert!(!taints[0].matches("node.cilium.io/agent", "NoSchedule"));
        assert!(taints[1].matches("dedicated", "NoExecute") && !taints[1].matches("dedicated", "NoSchedule"));
        assert_eq!(taints[1].to_string(), "dedicated:NoExecute");
    }

    #[test]
    fn an_object_without_fields_means_the_pods_of_all_daemon_sets() {
        assert_eq!(settle("{}").daemon_sets().unwrap(), None);
        let all = settle("daemonSets: {}").daemon_sets().unwrap().unwrap();
        assert_eq!((all.namespace, all.selector.to_string()), (None, String::new()));
        let one = settle("daemonSets: {namespace: kube-system, selector: {matchLabels: {app: cilium}}}");
        let one = one.daemon_sets().unwrap().unwrap();
        assert_eq!(one.namespace.as_deref(), Some("kube-system"));
        assert_eq!(one.selector.to_string(), "app=cilium");
    }
}
