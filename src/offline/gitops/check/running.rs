//! Nodes in the files, as `kubectl get nodes -o yaml` prints them.

use std::collections::BTreeMap;

use crate::gitops::objects::Object;
use crate::gitops::yaml::{Node, Step};
use refit_base::version::Version;

/// A node in the files, if its status has a kubelet version.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) version: Version,
}

impl Running {
    /// Reads an item of `kubectl get nodes -o yaml`; `None` for another object.
    pub(super) fn read(object: &Object<'_>) -> Option<Self> {
        if (object.api_version.as_str(), object.kind.as_str()) != ("v1", "Node") {
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
