//! Groups waits: the nodes of a Plan that waited for the same thing, and for how long.

use std::cmp::Reverse;

use jiff::Timestamp;
use serde::Serialize;

use super::WaitReport;
use crate::words::MIN_WAIT;
use refit_api::{OpenEnum, Reason};

/// Nodes of a Plan that waited for the same thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitGroup {
    pub plan: String,
    pub reason: OpenEnum<Reason>,
    pub blocker: String,
    /// The message of the longest wait.
    pub message: String,
    /// Start of the first wait.
    pub start: Timestamp,
    /// End of the last wait; `None` if a node still waits.
    pub end: Option<Timestamp>,
    /// Maximum total time of a node.
    pub seconds: i64,
    pub waits: usize,
    /// The nodes, the longest total first; empty if the whole Plan waited, or some of its nodes together.
    pub nodes: Vec<NodeWait>,
    /// Nodes that have waited at some time during these waits, if they were not all nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub some: Vec<String>,
}

impl WaitGroup {
    /// Whether it is worth a line: shorter waits are normal in a roll-out.
    pub fn is_long(&self) -> bool {
        self.seconds >= MIN_WAIT || self.end.is_none()
    }
}

/// The waits of a node for one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeWait {
    pub name: String,
    /// Total of its waits.
    pub seconds: i64,
    pub waits: usize,
}

/// Groups waits: unfinished ones first, then the longest. `waits` must have the longest first.
pub(super) fn groups(waits: &[WaitReport]) -> Vec<WaitGroup> {
    let mut groups: Vec<WaitGroup> = Vec::new();
    let mut places = std::collections::BTreeMap::new();
    for WaitReport { wait, seconds } in waits {
        // A whole Plan and one of its nodes that wait for the same thing are separate groups.
        let key = (&wait.plan, &wait.reason, &wait.blocker, wait.node.is_some());
        let place = *places.entry(key).or_insert_with(|| {
            groups.push(WaitGroup {
                plan: wait.plan.clone(),
                reason: wait.reason.clone(),
                blocker: wait.blocker.clone(),
                message: wait.message.clone(),
                start: wait.since,
                end: wait.until,
                seconds: 0,
                waits: 0,
                nodes: Vec::new(),
                some: Vec::new(),
            });
            groups.len() - 1
        });
        let Some(group) = groups.get_mut(place) else {
            continue;
        };
        group.start = group.start.min(wait.since);
        group.end = group.end.zip(wait.until).map(|(one, other)| one.max(other));
        group.waits += 1;
        match &wait.node {
            None => group.seconds += seconds,
            Some(name) => match group.nodes.iter_mut().find(|node| node.name == *name) {
                Some(node) => {
                    node.seconds += seconds;
                    node.waits += 1;
                }
                None => group.nodes.push(NodeWait {
                    name: name.clone(),
                    seconds: *seconds,
                    waits: 1,
                }),
            },
        }
    }
    for group in &mut groups {
        group.nodes.sort_by_key(|node| Reverse(node.seconds));
        if let Some(longest) = group.nodes.first() {
            group.seconds = longest.seconds;
        }
    }
    groups.sort_by_key(|group| (group.end.is_some(), Reverse(group.seconds)));
    groups
}
