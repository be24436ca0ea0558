//! Nodes that have joined and are kept free of pods until a Plan is done there (`spec.taintNewNodes`).

use jiff::Timestamp;

use super::Recorder;
use crate::store::{Change, Object};
use refit_api::names::TAINT_NEW_NODE;

/// A node with the taint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewNode {
    pub node: String,
    pub since: Timestamp,
    pub until: Option<Timestamp>,
}

impl Recorder {
    /// The nodes that were kept free of pods, in the order in which that began.
    pub fn new_nodes(&self) -> &[NewNode] {
        &self.new_nodes
    }

    pub(super) fn note_new_node(&mut self, change: &Change, now: Timestamp) {
        let has = |object: &Object| {
            let taints = object.value["spec"]["taints"].as_array().into_iter().flatten();
            taints.into_iter().any(|taint| taint["key"] == TAINT_NEW_NODE)
        };
        let node = change.new.meta("name");
        let before = change.old.as_deref().is_some_and(has);
        match (before, has(&change.new)) {
            (false, true) => self.new_nodes.push(NewNode {
                node: node.to_owned(),
                since: now,
                until: None,
            }),
            (true, false) => {
                let mut open = self.new_nodes.iter_mut().filter(|one| one.node == node);
                if let Some(open) = open.rfind(|one| one.until.is_none()) {
                    open.until = Some(now);
                }
            }
            _ => {}
        }
    }
}
