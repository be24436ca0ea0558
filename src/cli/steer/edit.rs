//! Requests of the command line, and the edits that they need.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use refit_api::annotation::entries;
use refit_api::exemption::StartLimit;
use refit_view::PlanOverview;

/// A command of the command line, such as `refit retry`, with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Suspend {
        reason: Option<String>,
    },
    Resume,
    Abort {
        reason: Option<String>,
    },
    Approve {
        version: Option<String>,
        wave: Option<String>,
    },
    Retry,
    Skip {
        always: bool,
    },
    Unskip,
    Rerun,
    Start {
        limits: BTreeSet<StartLimit>,
        reason: String,
    },
}

pub(super) struct Request<'a> {
    pub(super) view: &'a PlanOverview<'a>,
    /// Empty means all to which the action applies.
    pub(super) nodes: &'a [String],
    pub(super) action: &'a Action,
    /// Who and when.
    pub(super) signature: String,
}

/// The edits that a request needs: at most one of the Plan, and one for each node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Changes {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) plan: Option<PlanChange>,
    pub(super) nodes: Vec<NodeChange>,
    /// Nodes that are as requested already.
    pub(super) unchanged: Vec<String>,
    /// What is as requested already, and what still keeps nodes from starting.
    pub(super) notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct PlanChange {
    pub(super) patch: Value,
    pub(super) says: String,
}

impl PlanChange {
    pub(super) fn annotation(key: &str, value: &str, says: String) -> Self {
        Self {
            patch: json!({ "metadata": { "annotations": { key: value } } }),
            says,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeChange {
    pub(super) name: String,
    pub(super) edit: Edit,
    pub(super) says: String,
}

/// An edit of a Node, computed from its current metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Edit {
    /// Replaces the Plan's entry in an annotation; `None` removes it.
    Entry {
        annotation: &'static str,
        plan: String,
        entry: Option<String>,
    },
    /// Removes a label if it has this value.
    Unlabel { key: String, value: String },
}

impl Edit {
    /// The merge patch for a Node with these annotations and labels; `None` if there is nothing to write.
    pub(super) fn patch(
        &self,
        annotations: &BTreeMap<String, String>,
        labels: &BTreeMap<String, String>,
    ) -> Option<Value> {
        match self {
            Self::Entry {
                annotation,
                plan,
                entry,
            } => {
                let known = annotations
                    .get(*annotation)
                    .map(String::as_str)
                    .unwrap_or_default();
                let others = entries(known).filter(|one| one.plan != plan).map(|one| one.text);
                let all: Vec<&str> = others.chain(entry.as_deref()).collect();
                // In a merge patch, null removes the annotation (RFC 7396).
                let value = (!all.is_empty()).then(|| all.join(", "));
                (value.as_deref() != annotations.get(*annotation).map(String::as_str))
                    .then(|| json!({ "metadata": { "annotations": { *annotation: value } } }))
            }
            Self::Unlabel { key, value } => (labels.get(key) == Some(value))
                .then(|| json!({ "metadata": { "labels": { key.as_str(): null } } })),
        }
    }
}

impl Changes {
    /// Notes which nodes are as requested already, and returns the others.
    pub(super) fn without(
        &mut self,
        nodes: Vec<String>,
        already: impl Fn(&str) -> Option<String>,
    ) -> Vec<String> {
        let mut is_changed = |node: &String| match already(node) {
            Some(why) => {
                self.notes.push(why);
                self.unchanged.push(node.clone());
                false
            }
            None => true,
        };
        nodes.into_iter().filter(|node| is_changed(node)).collect()
    }
}

/// What a command wants of a Plan.
pub(super) enum Wanted {
    Write(PlanChange),
    /// The Plan is as requested already, as a person reads it. A script may repeat a command.
    Nothing(String),
}
