//! `refit drain --conditions`: the conditions `DrainInProgress` and `Drained` of the node (KEP-5683). What another client has
//! written stays as it is.

use std::time::Duration;

use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Resource as _};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::clock::Clock;
use crate::kube::{Answer, brief};
use refit_api::node_condition::is_of_refit;
use refit_api::text::seconds;
use refit_api::{NodeConditionReason, NodeConditionType};
use refit_facts::objects::{Intern, SlimNode};
use refit_facts::{NodeCondition, NodeFacts};

/// Attempts to patch a node, which others write often.
const TRIES: u32 = 5;
/// Delay between attempts.
const PAUSE: Duration = Duration::from_millis(100);

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
    fn condition(self) -> Option<(NodeConditionType, &'static str)> {
        match self {
            Self::Draining => Some((
                NodeConditionType::DrainInProgress,
                "refit drain: the node is being drained",
            )),
            Self::Drained => Some((NodeConditionType::Drained, "refit drain: the node is drained")),
            Self::Nothing | Self::NothingOfRefit => None,
        }
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

/// Changes the conditions of the node. An error is a sentence.
pub(super) async fn write(client: &Client, clock: &Clock, node: &str, says: Says) -> Result<(), String> {
    let api = Api::<SlimNode>::all(client.clone());
    let mut last = String::new();
    for _ in 0..TRIES {
        let object = api.get(node).await.map_err(|error| brief(&error))?;
        let conditions = changes(&object.facts(&Intern::default()), says, &seconds(clock.now()));
        if conditions.is_empty() {
            return Ok(());
        }
        let meta = object.meta();
        let patch = json!({
            "metadata": { "uid": meta.uid, "resourceVersion": meta.resource_version },
            "status": { "conditions": conditions },
        });
        let params = PatchParams::default();
        match api.patch_status(node, &params, &Patch::Strategic(patch)).await {
            Ok(_) => return Ok(()),
            Err(error) if Answer::of(&error) == Answer::Conflict => {
                last = brief(&error);
                sleep(PAUSE).await;
            }
            Err(error) => return Err(brief(&error)),
        }
    }
    Err(last)
}

/// The items of a strategic merge patch.
fn changes(node: &NodeFacts, says: Says, now: &str) -> Vec<Value> {
    let wanted = says.condition();
    let change = |type_: &NodeConditionType| {
        let present = node.condition(type_.name());
        let may_change = present.is_none_or(|it| says.replaces(it));
        if let Some((_, message)) = wanted.filter(|(wanted, _)| wanted == type_) {
            return may_change.then(|| {
                json!({
                    "type": type_,
                    "status": "True",
                    "reason": NodeConditionReason::RefitDrainCommand,
                    "message": message,
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": now,
                })
            });
        }
        (present.is_some() && may_change).then(|| json!({ "$patch": "delete", "type": type_ }))
    };
    NodeConditionType::ALL.iter().filter_map(change).collect()
}
