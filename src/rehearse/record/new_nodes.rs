//! Nodes that have joined and are kept free of pods until a Plan is done there (`spec.taintNewNodes`).

use jiff::Timestamp;
use serde::Serialize;

use crate::store::{Change, Object};
use refit_api::names::TAINT_NEW_NODE;

/// A node that has joined, and gets no pods before a Plan is done there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NewNode {
    pub node: String,
    #[serde(rename = "start")]
    pub since: Timestamp,
    #[serde(rename = "end", skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

pub(super) fn observe(nodes: &mut Vec<NewNode>, change: &Change, now: Timestamp) {
    let has = |object: &Object| {
        let taints = object.value["spec"]["taints"].as_array().into_iter().flatten();
        taints.into_iter().any(|taint| taint["key"] == TAINT_NEW_NODE)
    };
    let node = change.new.meta("name");
    match (change.old.as_deref().is_some_and(has), has(&change.new)) {
        (false, true) => nodes.push(NewNode {
            node: node.to_owned(),
            since: now,
            until: None,
        }),
        (true, false) => {
            if let Some(known) = nodes.iter_mut().rfind(|known| known.node == node) {
                known.until.get_or_insert(now);
            }
        }
        _ => {}
    }
}
