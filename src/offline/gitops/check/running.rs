//! Nodes in the files, as `kubectl get nodes -o yaml` prints them.

use std::collections::BTreeMap;

use super::subject::Subject;
use crate::gitops::objects::Object;
use crate::gitops::rule::Rule;
use crate::gitops::yaml::{Kind, Node, Step};
use refit_base::version::Version;

/// A node in the files, if its status has a kubelet version.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) version: Version,
}

impl Subject<'_> {
    /// Reports labels of a Node that are no text: selectors do not see them, and the API server refuses the object.
    pub(super) fn check_node_labels(&mut self) {
        if !is_node(self.object) {
            return;
        }
        let labels = self.node("metadata.labels").and_then(Node::object);
        for entry in labels.iter().flat_map(|labels| &labels.entries) {
            let (key, value) = (&entry.key.name, &entry.value);
            if value.text().is_some() {
                continue;
            }
            let found = value.to_json();
            let message = format!("metadata.labels.{key} must be text, but is {found}");
            let is_scalar = matches!(value.kind, Kind::Bool(_) | Kind::Number(_));
            let hint = is_scalar.then(|| format!("write `\"{}\"`", self.written(value)));
            self.report_at(Rule::WrongType, value.offset(), None, message, hint);
        }
    }
}

fn is_node(object: &Object<'_>) -> bool {
    (object.api_version.as_str(), object.kind.as_str()) == ("v1", "Node")
}

impl Running {
    /// Reads an item of `kubectl get nodes -o yaml`; `None` for another object.
    pub(super) fn read(object: &Object<'_>) -> Option<Self> {
        if !is_node(object) {
            return None;
        }
        let path = ["status", "nodeInfo", "kubeletVersion"].map(Step::from);
        let labels = object.node.get("metadata")?.get("labels").and_then(Node::object);
        let labels = labels.iter().flat_map(|labels| &labels.entries);
        Some(Self {
            name: object.metadata("name")?.to_owned(),
            labels: labels
                .filter_map(|entry| Some((entry.key.name.clone(), entry.value.text()?.to_owned())))
                .collect(),
            version: object.node.at(&path)?.text()?.parse().ok()?,
        })
    }
}
