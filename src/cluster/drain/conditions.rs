//! `refit drain --conditions`: the conditions `DrainInProgress` and `Drained` of the node (KEP-5683). What another client has
//! written stays as it is.

use std::time::Duration;

use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Resource as _};
use tokio::time::{Instant, sleep};

use crate::clock::Clock;
use crate::kube::{brief, should_reread};
use refit_api::node_condition::is_of_refit;
use refit_api::{NodeConditionReason, NodeConditionType};
use refit_facts::objects::{Intern, SlimNode};
use refit_facts::{ConditionChange, ConditionText, NodeCondition, NodeFacts};

/// How long to try again what a drain need not wait for.
pub(super) const BRIEF: Duration = Duration::from_secs(2);
/// First delay between attempts, and the longest: others write a node often, and an API server restarts for seconds.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// What the conditions of a node say from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Says {
    Draining,
    Drained,
    /// Nothing of the command any more: the drain has failed.
    Nothing,
    /// Nothing of refit any more: a user has uncordoned the node.
    NothingOfRefit,
}

impl Says {
    /// The condition that is True.
    fn condition(self) -> Option<(NodeConditionType, ConditionText)> {
        let (type_, message) = match self {
            Self::Draining => (
                NodeConditionType::DrainInProgress,
                "refit drain: the node is being drained",
            ),
            Self::Drained => (NodeConditionType::Drained, "refit drain: the node is drained"),
            Self::Nothing | Self::NothingOfRefit => return None,
        };
        let text = ConditionText {
            reason: NodeConditionReason::RefitDrainCommand,
            message: message.to_owned(),
        };
        Some((type_, text))
    }

    fn replaces(self, condition: &NodeCondition) -> bool {
        let is_of_command = *condition.reason == *NodeConditionReason::RefitDrainCommand.name();
        is_of_command || self == Self::NothingOfRefit && is_of_refit(&condition.reason)
    }
}

/// Whether an uncordon has conditions to remove.
pub(super) fn are_left(node: &NodeFacts) -> bool {
    let mut all = node.conditions.iter();
    all.any(|one| one.lifecycle().is_some() && is_of_refit(&one.reason))
}

/// Changes the conditions of the node. Tries again for so long: what a failed drain leaves would block Plans. An error is a
/// sentence.
pub(super) async fn write(
    client: &Client,
    clock: &Clock,
    node: &str,
    says: Says,
    patience: Duration,
) -> Result<(), String> {
    let (began, (mut pause, longest)) = (Instant::now(), PAUSES);
    loop {
        match attempt(client, clock, node, says).await {
            Err(error) if should_reread(&error) && began.elapsed() < patience => {
                sleep(pause).await;
                pause = longest.min(pause * 2);
            }
            result => return result.map_err(|error| brief(&error)),
        }
    }
}

async fn attempt(client: &Client, clock: &Clock, node: &str, says: Says) -> Result<(), kube::Error> {
    let api = Api::<SlimNode>::all(client.clone());
    let object = api.get(node).await?;
    let changes = changes(&object.facts(&Intern::default()), says);
    if changes.is_empty() {
        return Ok(());
    }
    let meta = object.meta();
    let [uid, version] = [&meta.uid, &meta.resource_version].map(|text| text.as_deref().unwrap_or_default());
    let patch = ConditionChange::patch(uid, version, &changes, clock.now());
    let params = PatchParams::default();
    api.patch_status(node, &params, &Patch::Strategic(patch)).await?;
    Ok(())
}

fn changes(node: &NodeFacts, says: Says) -> Vec<ConditionChange> {
    let mut wanted = says.condition();
    let change = |type_: &NodeConditionType| {
        let present = node.condition(type_.name());
        let to = wanted
            .take_if(|(wanted, _)| wanted == type_)
            .map(|(_, text)| text);
        let changes = present.map_or(to.is_some(), |it| says.replaces(it));
        changes.then_some(ConditionChange {
            type_: *type_,
            to,
            is_transition: true,
        })
    };
    NodeConditionType::ALL.iter().filter_map(change).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use tower::BoxError;

    use super::*;

    /// Removes a condition of a node while the API server fails so many requests.
    async fn removed(failures: u32, patience: Duration) -> Result<(), String> {
        let asked = Arc::new(AtomicU32::new(0));
        let transport = tower::service_fn(move |_: Request<Body>| {
            let fails = asked.fetch_add(1, Ordering::Relaxed) < failures;
            async move {
                if fails {
                    return Err(BoxError::from("the connection is reset"));
                }
                let condition = json!({
                    "type": NodeConditionType::DrainInProgress, "status": "True",
                    "reason": NodeConditionReason::RefitDrainCommand,
                });
                let node = json!({
                    "apiVersion": "v1", "kind": "Node", "metadata": { "name": "a", "uid": "u", "resourceVersion": "7" },
                    "status": { "conditions": [condition] },
                });
                Ok(Response::new(Body::from(node.to_string().into_bytes())))
            }
        });
        let client = Client::new(transport, "default");
        let clock = Clock::new(|| jiff::Timestamp::UNIX_EPOCH);
        write(&client, &clock, "a", Says::Nothing, patience).await
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_left_of_a_failed_drain_is_removed_after_an_outage() {
        let minute = Duration::from_secs(60);
        assert_eq!(removed(20, minute).await, Ok(()));
        assert_eq!(
            removed(u32::MAX, minute).await.unwrap_err(),
            "the connection is reset"
        );
        assert!(removed(20, BRIEF).await.is_err());
    }
}
