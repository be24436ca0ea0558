//! The node that a Job is rendered for: from a file, the cluster or flags.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::live::LiveCluster;
use super::{Flags, Os};
use refit_api::selector::{Selector, explain};
use refit_api::{Plan, names};
use refit_offline::gitops::input::read_text;

#[derive(Clone, Debug, Default)]
pub(super) struct NodeFacts {
    pub(super) name: String,
    pub(super) uid: Option<String>,
    /// `None` if the labels are unknown.
    pub(super) labels: Option<BTreeMap<String, String>>,
    pub(super) os: Option<String>,
    pub(super) unschedulable: bool,
    pub(super) boot_id: Option<String>,
}

pub(super) fn node(flags: &Flags, live: Option<&LiveCluster>) -> anyhow::Result<NodeFacts> {
    let read: Option<Node> = match (&flags.node_file, live, &flags.node) {
        (Some(path), _, _) => {
            let text = read_text(path)?;
            let node = serde_saphyr::from_str(&text)
                .with_context(|| format!("{}: the file has no Node", path.display()))?;
            Some(node)
        }
        (None, Some(live), Some(name)) => Some(live.node(name)?),
        _ => None,
    };
    let mut facts = match read {
        Some(node) => NodeFacts {
            name: node.metadata.name.unwrap_or_default(),
            uid: node.metadata.uid,
            labels: Some(node.metadata.labels.unwrap_or_default()),
            os: None,
            boot_id: node
                .status
                .and_then(|status| status.node_info)
                .map(|info| info.boot_id),
            unschedulable: node.spec.and_then(|spec| spec.unschedulable).unwrap_or_default(),
        },
        None => NodeFacts {
            name: flags.node.clone().unwrap_or_default(),
            ..NodeFacts::default()
        },
    };
    if facts.name.is_empty() {
        bail!("the node has no name");
    }
    if !flags.label.is_empty() {
        let labels = facts.labels.get_or_insert_default();
        // The kubelet sets this label on every node.
        labels
            .entry(names::LABEL_HOSTNAME.to_owned())
            .or_insert_with(|| facts.name.clone());
        labels.extend(flags.label.iter().cloned());
    }
    facts.os = match flags.os {
        Some(Os::Windows) => Some("windows".to_owned()),
        Some(Os::Linux) => Some("linux".to_owned()),
        None => facts
            .labels
            .as_ref()
            .and_then(|labels| labels.get(names::LABEL_OS).cloned()),
    };
    if let (Some(os), Some(labels)) = (&facts.os, &mut facts.labels) {
        labels.insert(names::LABEL_OS.to_owned(), os.clone());
    }
    Ok(facts)
}

/// Why the Plan does not select the node. A node with unknown labels is assumed to be selected, as far as
/// the flags do not say otherwise.
pub(super) fn unselected(plan: &Plan, node: &NodeFacts, hash: &str) -> anyhow::Result<Option<String>> {
    let Some(asked) = &plan.spec.node_selector else {
        return Ok(Some("it has no spec.nodeSelector".to_owned()));
    };
    let Some(labels) = &node.labels else {
        // The labels that the flags give.
        let given = [
            (names::LABEL_HOSTNAME, Some(&node.name)),
            (names::LABEL_OS, node.os.as_ref()),
        ];
        let given = given
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value?.clone())));
        let given: BTreeMap<String, String> = given.collect();
        let is_given = |one: &explain::Requirement| given.contains_key(&one.key);
        return Ok(unmet(asked, &given, is_given));
    };
    let selector = Selector::new(Some(asked))?;
    let key = names::plan_label(plan.metadata.name.as_deref().unwrap_or_default());
    let done = labels.get(&key).map(String::as_str);
    if !selector.matches(labels) {
        return Ok(unmet(asked, labels, |_| true));
    }
    Ok(match done {
        Some(names::LABEL_VALUE_DISABLED) => Some(format!(
            "the node's label {key}={} excludes it from the Plan; remove the label to include the node",
            names::LABEL_VALUE_DISABLED
        )),
        Some(value) if value == hash => Some(format!(
            "the node is done: its label {key} has the Plan's hash already"
        )),
        _ => None,
    })
}

/// The requirements of this kind that the labels do not meet.
fn unmet(
    asked: &LabelSelector,
    labels: &BTreeMap<String, String>,
    counts: impl Fn(&explain::Requirement) -> bool,
) -> Option<String> {
    let missing = explain::requirements(asked);
    let missing = missing
        .iter()
        .filter(|one| counts(one) && !one.matches(|key| labels.get(key).map(String::as_str)));
    let missing = missing.map(|one| format!("{}, and {}", one.text(), explain::found(&one.key, labels)));
    let missing: Vec<String> = missing.collect();
    (!missing.is_empty()).then(|| format!("spec.nodeSelector requires {}", missing.join("; for ")))
}
