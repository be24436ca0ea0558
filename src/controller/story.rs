//! The story of a roll-out in the log, at `info`: what each change of a Plan's status means for its nodes. Whoever has only the
//! log, without access to the cluster, reads there what happened.

use std::collections::BTreeMap;

use refit_api::{NodePhase, NodeProgress, PlanStatus, Severity};
use refit_facts::PlanName;

/// Phases before a node is disrupted, or while it is drained.
const BEFORE_THE_UPGRADE: [NodePhase; 5] = [
    NodePhase::Pending,
    NodePhase::Starting,
    NodePhase::Preparing,
    NodePhase::Cordoning,
    NodePhase::Draining,
];

/// Logs what differs between the stored status and the one that replaces it.
pub(crate) fn tell(plan: &PlanName, drains: bool, stored: &PlanStatus, status: &PlanStatus) {
    let version = status.latest_version.as_deref().unwrap_or_default();
    if stored.latest_version != status.latest_version {
        tracing::info!(%plan, version, "resolved");
    }
    tell_channel(plan, stored, status);
    let (before, now) = (slots(stored), slots(status));
    for (node, entry) in &now {
        let known = before.get(node).copied();
        tell_node(plan, version, drains, known, entry);
    }
    for node in before.keys().filter(|node| !now.contains_key(*node)) {
        // More than its slot is gone only if someone has interfered; the events say more.
        let counts = |status: &PlanStatus| status.nodes.as_ref().map_or(0, |nodes| nodes.done);
        let is_done = counts(status) > counts(stored);
        let what = if is_done { "done" } else { "no longer in progress" };
        tracing::info!(%plan, node, version, "{what}");
    }
    tell_obstacle(plan, stored, status);
}

fn slots(status: &PlanStatus) -> BTreeMap<&str, &NodeProgress> {
    status.slots().map(|entry| (entry.name.as_str(), entry)).collect()
}

fn tell_node(plan: &PlanName, version: &str, drains: bool, known: Option<&NodeProgress>, now: &NodeProgress) {
    let node = &*now.name;
    let is_before = |entry: &NodeProgress| BEFORE_THE_UPGRADE.iter().any(|phase| entry.phase == *phase);
    let reason = now.reason.as_deref().unwrap_or_default();
    let message = now.message.as_deref().unwrap_or_default();
    if known.is_none() {
        tracing::info!(%plan, node, version, "started");
    }
    let was_before = known.is_none_or(is_before);
    if drains && was_before && !is_before(now) && !now.is_failed() {
        tracing::info!(%plan, node, version, "drained");
    }
    let is_new = known.is_none_or(|known| known.reason != now.reason);
    if now.is_failed() {
        if known.is_none_or(|known| !known.is_failed()) {
            tracing::info!(%plan, node, version, reason, message, "failed");
        }
    } else if is_new && !reason.is_empty() {
        tracing::info!(%plan, node, version, reason, message, "held");
    }
}

/// What holds the Plan as a whole.
fn tell_obstacle(plan: &PlanName, stored: &PlanStatus, status: &PlanStatus) {
    let of = |status: &PlanStatus| {
        let obstacle = status.obstacle.clone()?;
        // That of a node with a slot is logged already.
        let is_of_slot = obstacle
            .node
            .as_deref()
            .is_some_and(|node| slots(status).contains_key(node));
        (!is_of_slot).then_some((obstacle.reason, obstacle.node, obstacle.message))
    };
    let (before, now) = (of(stored), of(status));
    let same = |it: &(_, Option<String>, _)| {
        before
            .as_ref()
            .is_some_and(|before| (&before.0, &before.1) == (&it.0, &it.1))
    };
    match &now {
        Some(it) if !same(it) => {
            let (reason, node, message) = it;
            let expected = reason
                .known()
                .is_some_and(|reason| reason.severity() == Severity::Normal);
            let what = if expected { "waits" } else { "held" };
            let node = node.as_deref().unwrap_or_default();
            tracing::info!(%plan, node, reason = &**reason, message, "{what}");
        }
        _ => {}
    }
}

/// The error of a channel, once until it changes.
fn tell_channel(plan: &PlanName, stored: &PlanStatus, status: &PlanStatus) {
    let error = |status: &PlanStatus| {
        status
            .channel
            .as_ref()
            .and_then(|channel| channel.last_error.clone())
    };
    let url = status.channel.as_ref().and_then(|channel| channel.url.as_deref());
    let channel = url.unwrap_or_default();
    match (error(stored), error(status)) {
        (before, Some(error)) if before.as_ref() != Some(&error) => {
            tracing::warn!(%plan, channel, %error, "cannot resolve a channel");
        }
        (Some(_), None) if url.is_some() => tracing::info!(%plan, channel, "the channel answers again"),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use refit_api::{ChannelStatus, NodeCounts, Obstacle, Reason};

    use super::*;
    use crate::telemetry::tests::logged_text;

    fn entry(name: &str, phase: NodePhase, reason: Option<Reason>) -> NodeProgress {
        NodeProgress {
            name: name.to_owned(),
            phase: phase.into(),
            reason: reason.map(Into::into),
            message: reason.map(|_| "the words".to_owned()),
            ..NodeProgress::default()
        }
    }

    fn status(done: i64, active: &[NodeProgress]) -> PlanStatus {
        PlanStatus {
            latest_version: Some("v1".to_owned()),
            nodes: Some(NodeCounts {
                done,
                ..NodeCounts::default()
            }),
            active: Some(active.to_vec()),
            ..PlanStatus::default()
        }
    }

    #[test]
    fn each_step_of_a_node_is_a_line_with_plan_and_node() {
        let begun = entry("a", NodePhase::Pending, None);
        let held = entry("a", NodePhase::Draining, Some(Reason::DrainWaiting));
        let upgrading = entry("a", NodePhase::Upgrading, None);
        let failed = entry("b", NodePhase::Failed, Some(Reason::BackoffLimitExceeded));
        let mut suspended = status(1, std::slice::from_ref(&failed));
        suspended.obstacle = Some(Obstacle {
            reason: Reason::Suspended.into(),
            message: "by alice".to_owned(),
            ..Obstacle::default()
        });
        let mut unreachable = suspended.clone();
        unreachable.channel = Some(ChannelStatus {
            url: Some("https://example.com".to_owned()),
            last_error: Some("refused".to_owned()),
            ..ChannelStatus::default()
        });
        let story = [
            PlanStatus::default(),
            status(0, &[begun]),
            status(0, std::slice::from_ref(&held)),
            status(0, &[held]),
            status(0, &[upgrading]),
            status(1, &[]),
            status(1, &[entry("b", NodePhase::Upgrading, None)]),
            status(1, &[failed]),
            suspended,
            unreachable.clone(),
            unreachable,
        ];
        let log = logged_text(|| {
            for pair in story.windows(2) {
                tell(&"p".into(), true, &pair[0], &pair[1]);
            }
        });
        let lines: Vec<_> = log.lines().collect();
        let expected: [&[&str]; 10] = [
            &["resolved", "v1"],
            &["started", "node=\"a\""],
            &["held", "node=\"a\"", "DrainWaiting", "the words"],
            &["drained", "node=\"a\""],
            &["done", "node=\"a\""],
            &["started", "node=\"b\""],
            &["drained", "node=\"b\""],
            &["failed", "node=\"b\"", "BackoffLimitExceeded", "the words"],
            &["waits", "Suspended", "by alice"],
            &[
                "WARN",
                "cannot resolve a channel",
                "https://example.com",
                "refused",
            ],
        ];
        assert_eq!(lines.len(), expected.len(), "{log}");
        for (line, parts) in lines.iter().zip(expected) {
            assert!(line.contains("plan=p"), "{line}");
            for part in parts {
                assert!(line.contains(part), "{part:?} is not in {line}");
            }
        }
    }
}
