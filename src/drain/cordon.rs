//! Makes a node unschedulable, or schedulable again. For a Plan the ledger is written in the same patch, under the version
//! that was read, so that whoever gives the node back knows what it was before (design: the ledger).

use std::time::Duration;

use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Resource as _};
use serde_json::{Value, json};

use super::PlanRun;
use crate::api::names;
use crate::controller::client::{Failure, brief, failure};
use crate::controller::objects::{Intern, SlimNode};
use crate::rollout::{Cancelled, Holder, Ledger, NodeFacts};

/// How often a patch is made anew of what the node is by then. Kubelets and controllers write nodes often, and each of
/// their writes can come in between.
const TRIES: u32 = 20;
/// How long to wait before that.
const PAUSE: Duration = Duration::from_millis(100);
/// How often a drain looks whether it is still wanted.
const LOOK: Duration = Duration::from_secs(3);

/// Whether anything was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Changed {
    /// It was.
    Yes,
    /// The node was so already.
    Already,
}

/// Why a node could not be cordoned, uncordoned or confirmed.
#[derive(Debug, thiserror::Error)]
pub enum CordonError {
    /// The Plan's machine is gone.
    #[error("node {node:?} is another machine now: its UID is {found}, not {expected}")]
    AnotherMachine {
        node: String,
        found: String,
        expected: String,
    },
    /// The controller does not want it any more.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    /// The Plan's holder was taken out of the ledger while the node stays cordoned.
    #[error("the Plan no longer holds node {0:?}: its entry in the ledger is gone")]
    Released(String),
    /// Every try met another writer.
    #[error("node {0:?} is changed by others all the time")]
    Busy(String),
    /// The account may not.
    #[error("MissingPermission: {0}")]
    Forbidden(String),
    /// The API server said so.
    #[error("{0}")]
    Api(String),
}

impl From<kube::Error> for CordonError {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.code == 403 => Self::Forbidden(brief(&error)),
            _ => Self::Api(brief(&error)),
        }
    }
}

/// How the node is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Cordon, and go on.
    Begin,
    /// Cordon, and that is all.
    Whole,
    /// The last act of a drain.
    Confirm,
}

/// A node as it was read.
struct Seen {
    version: Option<String>,
    facts: NodeFacts,
}

async fn read(api: &Api<SlimNode>, node: &str, plan: Option<&PlanRun>) -> Result<Seen, CordonError> {
    let object = api.get(node).await?;
    let facts = object.facts(&Intern::default());
    if let Some(expected) = plan.map(|plan| &plan.node_uid).filter(|uid| !uid.is_empty())
        && *facts.uid != **expected
    {
        return Err(CordonError::AnotherMachine {
            node: node.to_owned(),
            found: facts.uid.to_string(),
            expected: expected.clone(),
        });
    }
    Ok(Seen {
        version: object.meta().resource_version.clone(),
        facts,
    })
}

/// Fails unless the node is there and the one that is meant.
pub(super) async fn look(client: &Client, node: &str, plan: Option<&PlanRun>) -> Result<(), CordonError> {
    let seen = read(&Api::all(client.clone()), node, plan).await?;
    let mine = seen.facts.ledger.iter().flat_map(|ledger| &ledger.holders);
    let cancelled = plan.is_some_and(|plan| {
        mine.into_iter()
            .any(|one| one.is_same(&plan.holder) && one.cancelled)
    });
    if cancelled { Err(Cancelled.into()) } else { Ok(()) }
}

/// Returns when the controller has cancelled the Plan's hold on the node: never, where it runs for no Plan. What cannot be
/// read is asked again, as the last act asks for certain.
pub(super) async fn cancelled(client: Client, node: String, plan: Option<PlanRun>) {
    let Some(plan) = plan else {
        return std::future::pending().await;
    };
    loop {
        tokio::time::sleep(LOOK).await;
        if matches!(
            look(&client, &node, Some(&plan)).await,
            Err(CordonError::Cancelled(_))
        ) {
            return;
        }
    }
}

/// What cordoning the node would change.
pub(super) async fn is_cordoned(client: &Client, node: &str) -> Result<Changed, CordonError> {
    let seen = read(&Api::all(client.clone()), node, None).await?;
    Ok(if seen.facts.unschedulable {
        Changed::Already
    } else {
        Changed::Yes
    })
}

/// Cordons the node; for a Plan with its ledger.
pub(super) async fn cordon(
    client: &Client,
    node: &str,
    plan: Option<&PlanRun>,
    act: Act,
    dry_run: bool,
) -> Result<Changed, CordonError> {
    let api = Api::<SlimNode>::all(client.clone());
    let params = PatchParams {
        dry_run,
        ..PatchParams::default()
    };
    for _ in 0..TRIES {
        let seen = read(&api, node, plan).await?;
        let already = if seen.facts.unschedulable {
            Changed::Already
        } else {
            Changed::Yes
        };
        let patch = match plan {
            None if already == Changed::Already => return Ok(already),
            None => json!({ "spec": { "unschedulable": true } }),
            Some(plan) => match of_plan(&seen, node, plan, act)? {
                Some(patch) => patch,
                None => return Ok(already),
            },
        };
        match api.patch(node, &params, &Patch::Merge(patch)).await {
            Ok(_) => return Ok(already),
            Err(error) if is_worth_another_look(&error) => tokio::time::sleep(PAUSE).await,
            Err(error) => return Err(error.into()),
        }
    }
    Err(CordonError::Busy(node.to_owned()))
}

/// The patch that a Plan makes of what was read; nothing where a person has uncordoned the node meanwhile, which is to be
/// respected.
fn of_plan(seen: &Seen, node: &str, plan: &PlanRun, act: Act) -> Result<Option<Value>, CordonError> {
    let known = seen.facts.ledger.as_ref();
    if act == Act::Confirm {
        let mine = known.and_then(|ledger| ledger.holders.iter().find(|one| one.is_same(&plan.holder)));
        match mine {
            Some(mine) if mine.cancelled => return Err(Cancelled.into()),
            _ if !seen.facts.unschedulable => return Ok(None),
            Some(_) => {}
            None => return Err(CordonError::Released(node.to_owned())),
        }
    }
    let holder = Holder {
        passed: act != Act::Begin,
        ..plan.holder.clone()
    };
    let ledger = Ledger::entered(known, seen.facts.unschedulable, holder)?;
    Ok(Some(json!({
        "metadata": {
            "uid": &*seen.facts.uid,
            "resourceVersion": seen.version,
            "annotations": { names::ANNOTATION_CORDON: ledger.to_text() },
        },
        "spec": { "unschedulable": true },
    })))
}

/// Uncordons the node. Who held it holds it no more: a person's word ends the ledger.
pub(super) async fn uncordon(client: &Client, node: &str, dry_run: bool) -> Result<Changed, CordonError> {
    let api = Api::<SlimNode>::all(client.clone());
    let seen = read(&api, node, None).await?;
    if !seen.facts.unschedulable {
        return Ok(Changed::Already);
    }
    let params = PatchParams {
        dry_run,
        ..PatchParams::default()
    };
    let patch = json!({
        "metadata": { "annotations": { names::ANNOTATION_CORDON: null } },
        "spec": { "unschedulable": null },
    });
    api.patch(node, &params, &Patch::Merge(patch)).await?;
    Ok(Changed::Yes)
}

/// Another writer was faster, or it is not known whether the patch was made: what the node is now tells. Made twice it is
/// the same patch.
fn is_worth_another_look(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, 409 | 429) || status.code >= 500,
        _ => failure(error) != Failure::Refused,
    }
}
