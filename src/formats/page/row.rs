//! A Plan on a node, and the failures among them.

use serde::Serialize;

use refit_api::{NodePhase, OpenEnum, Reason};

/// A Plan on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    pub plan: String,
    pub node: String,
    pub state: RowState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<OpenEnum<Reason>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// In the order of their starts.
    pub spans: Vec<Span>,
    /// The wave in which it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wave: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Number of pods that its drains have evicted.
    #[serde(skip_serializing_if = "is_zero")]
    pub evicted: usize,
    /// Number of times that it has booted in between.
    #[serde(skip_serializing_if = "is_zero")]
    pub boots: usize,
    /// Number of attempts that failed.
    #[serde(skip_serializing_if = "no_failures")]
    pub failures: i64,
    /// Grows with each change, so that a viewer gets what it has not seen.
    #[serde(skip)]
    pub revision: u64,
}

impl Row {
    /// One that waits, without spans.
    pub fn new(plan: &str, node: &str) -> Self {
        Self {
            plan: plan.to_owned(),
            node: node.to_owned(),
            ..Self::default()
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn no_failures(failures: &i64) -> bool {
    *failures == 0
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum RowState {
    #[default]
    Waiting,
    Applying,
    Done,
    Failed,
    /// It gave its slot back without being done, as after an abort.
    Released,
}

/// A time in one phase, in seconds of the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Span {
    pub phase: OpenEnum<NodePhase>,
    pub from: i64,
    /// Absent while it lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<i64>,
    /// Why the node waits, or why it failed in this phase. Absent in other phases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<OpenEnum<Reason>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Nodes of a Plan that failed alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FailureGroup {
    pub plan: String,
    pub reason: OpenEnum<Reason>,
    /// That of the first node.
    pub message: String,
    /// What puts it right, perhaps with commands between backticks.
    pub remedy: String,
    pub nodes: Vec<String>,
}

/// The failed nodes, those that failed alike together, the largest group first.
pub fn failures(rows: &[Row]) -> Vec<FailureGroup> {
    let mut groups: Vec<(String, FailureGroup)> = Vec::new();
    for row in rows.iter().filter(|row| row.state == RowState::Failed) {
        let reason = row.reason.clone().unwrap_or_default();
        let message = row.message.clone().unwrap_or_default();
        // Names of nodes, and those of their Jobs, are all that differs between equal errors.
        let words = message.split(' ').filter(|word| !names(word, &row.node));
        let alike = words.collect::<Vec<_>>().join(" ");
        let is_alike = |group: &&mut (String, FailureGroup)| {
            group.0 == alike && group.1.plan == row.plan && group.1.reason == reason
        };
        match groups.iter_mut().find(is_alike) {
            Some((_, group)) => group.nodes.push(row.node.clone()),
            None => groups.push((
                alike,
                FailureGroup {
                    plan: row.plan.clone(),
                    remedy: reason.known().map_or_else(String::new, Reason::plain_remedy),
                    reason,
                    message,
                    nodes: vec![row.node.clone()],
                },
            )),
        }
    }
    groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.nodes.len()));
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Whether the word is the node's name, or a name with that of the node in it.
fn names(word: &str, node: &str) -> bool {
    let is_part = |text: &str, last: bool| {
        let next = if last {
            text.chars().next_back()
        } else {
            text.chars().next()
        };
        next.is_some_and(char::is_alphanumeric)
    };
    let mut places = word.match_indices(node);
    places.any(|(at, _)| !is_part(&word[..at], true) && !is_part(&word[at + node.len()..], false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_failed_alike_are_one_group() {
        let failed = |node: &str, message: String| Row {
            state: RowState::Failed,
            reason: Some(Reason::JobFailed.into()),
            message: Some(message),
            ..Row::new("p", node)
        };
        let mut rows = vec![failed("a", "disk full".to_owned())];
        rows.extend(
            ["b", "node-1", "node-2"]
                .map(|node| failed(node, format!("Job apply-p-on-{node}-x: exit code 3"))),
        );
        rows.push(Row::new("p", "waiting"));
        let groups = failures(&rows);
        let nodes: Vec<_> = groups.iter().map(|group| group.nodes.join(" ")).collect();
        assert_eq!(nodes, ["b node-1 node-2", "a"]);
        assert_eq!(groups[0].message, "Job apply-p-on-b-x: exit code 3");
        assert!(!groups[0].remedy.is_empty());
    }
}
