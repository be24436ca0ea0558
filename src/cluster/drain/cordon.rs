//! Cordons and uncordons a node. For a Plan, the same patch writes the ledger, at the version that was read, so that
//! the controller can later restore what the node was before.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Resource as _};
use serde_json::{Value, json};

use super::changes::{Changes, LastAnswer};
use super::conditions;
use super::event::DryRun;
use super::plan_run::PlanRun;
use crate::kube::{Answer, brief, should_reread};
use refit_api::{Cancelled, Holder, Ledger, MarkForm, NodeMark, Reason, names};
use refit_facts::objects::{Intern, SlimNode};
use refit_facts::{NodeFacts, Taint};

/// Attempts to patch a node. Kubelets and controllers write nodes often, and each of their writes can cause a conflict.
const TRIES: u32 = 20;
/// Delay between attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// How often a drain checks whether it was cancelled.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Changed {
    Yes,
    /// The node was in that state already.
    Already,
}

#[derive(Debug, thiserror::Error)]
pub enum CordonError {
    /// The Node has another UID than the Plan's.
    #[error("node {node:?} has been replaced: its UID is {found}, not {expected}")]
    AnotherMachine {
        node: String,
        found: String,
        expected: String,
    },
    /// The controller has cancelled the drain.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    /// The Plan's holder was removed from the ledger, but the node is still cordoned.
    #[error("the Plan no longer holds node {0:?}: its entry in the ledger is gone")]
    Released(String),
    /// Every attempt had a conflict.
    #[error("node {0:?} could not be written, because others keep changing it")]
    Busy(String),
    /// A permission is missing.
    #[error("{reason}: {0}", reason = Reason::MissingPermission)]
    Forbidden(String),
    /// Another error of the API server.
    #[error("{0}")]
    Api(String),
}

impl From<kube::Error> for CordonError {
    fn from(error: kube::Error) -> Self {
        match Answer::of(&error) {
            Answer::Forbidden => Self::Forbidden(brief(&error)),
            _ => Self::Api(brief(&error)),
        }
    }
}

/// The purpose of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CordonMode {
    /// Cordon before a drain.
    Begin,
    /// Cordon without a drain.
    Whole,
    /// The last step of a drain.
    Confirm,
}

struct NodeSnapshot {
    version: Option<String>,
    facts: NodeFacts,
    /// The marks that the node has, whether refit or another client set them.
    marks: Vec<NodeMark>,
}

async fn read(api: &Api<SlimNode>, node: &str, plan: Option<&PlanRun>) -> Result<NodeSnapshot, CordonError> {
    let object = api.get(node).await?;
    let facts = object.facts(&Intern::default());
    if let Some(expected) = plan.map(|plan| &plan.node_uid).filter(|uid| !uid.is_empty())
        && facts.uid != *expected
    {
        return Err(CordonError::AnotherMachine {
            node: node.to_owned(),
            found: facts.uid.to_string(),
            expected: expected.to_string(),
        });
    }
    let meta = object.meta();
    let has = |mark: &NodeMark| {
        let has_key = |all: &Option<BTreeMap<String, String>>| {
            all.as_ref().is_some_and(|all| all.contains_key(mark.key()))
        };
        match mark.form() {
            MarkForm::Label => has_key(&meta.labels),
            MarkForm::Annotation => has_key(&meta.annotations),
            // A list of taints that cannot be read is not changed.
            MarkForm::Taint => facts
                .taints
                .as_ref()
                .is_none_or(|taints| taints.iter().any(|taint| is_mark(taint, *mark))),
        }
    };
    let marks = NodeMark::ALL.into_iter().filter(has).collect();
    Ok(NodeSnapshot {
        version: meta.resource_version.clone(),
        facts,
        marks,
    })
}

/// Fails unless the node exists and has the expected UID.
pub(super) async fn check(client: &Client, node: &str, plan: Option<&PlanRun>) -> Result<(), CordonError> {
    let snapshot = read(&Api::all(client.clone()), node, plan).await?;
    let holders = snapshot.facts.ledger.iter().flat_map(|ledger| &ledger.holders);
    // The Job creates another pod after a failure. Without this check, the drain of that pod would continue although
    // its Plan has cancelled it.
    let cancelled = plan.is_some_and(|plan| {
        holders
            .into_iter()
            .any(|one| one.is_same(&plan.holder) && one.cancelled)
    });
    if cancelled { Err(Cancelled.into()) } else { Ok(()) }
}

/// Returns when the controller has cancelled the drain, or never if it runs for no Plan. Read errors are ignored,
/// because the last patch detects a cancellation for certain.
pub(super) async fn cancelled(client: Client, node: String, plan: Option<PlanRun>, changes: Option<Changes>) {
    let Some(plan) = plan else {
        return std::future::pending().await;
    };
    let last = LastAnswer::default();
    loop {
        // A poll, not a watch: one `get` in three seconds is enough for a decision that a user waits for,
        // and the account of the Plan needs no permission to watch Nodes.
        tokio::time::sleep(CANCEL_POLL_INTERVAL).await;
        let version = changes.as_ref().map(|changes| changes(&node).node);
        if last.at(version).is_some() {
            continue;
        }
        match check(&client, &node, Some(&plan)).await {
            Err(CordonError::Cancelled(_)) => return,
            Ok(()) => last.keep(version, &()),
            Err(_) => {}
        }
    }
}

/// Cordons the node; for a Plan also writes its ledger.
pub(super) async fn cordon(
    client: &Client,
    node: &str,
    plan: Option<&PlanRun>,
    mode: CordonMode,
    dry_run: DryRun,
) -> Result<Changed, CordonError> {
    let api = Api::<SlimNode>::all(client.clone());
    let params = PatchParams {
        dry_run: dry_run == DryRun::Server,
        ..PatchParams::default()
    };
    for _ in 0..TRIES {
        let snapshot = read(&api, node, plan).await?;
        let already = if snapshot.facts.unschedulable {
            Changed::Already
        } else {
            Changed::Yes
        };
        if dry_run == DryRun::Client {
            return Ok(already);
        }
        let patch = match plan {
            // Without a Plan there is no ledger, so a node that is cordoned already needs no write. kubectl does not
            // write either.
            None if already == Changed::Already => return Ok(already),
            None => json!({ "spec": { "unschedulable": true } }),
            Some(plan) => match of_plan(&snapshot, node, plan, mode)? {
                Some(patch) => patch,
                None => return Ok(already),
            },
        };
        // A merge patch with a resource version: the ledger is read, changed and written as a whole, so a concurrent
        // change by the controller must fail this write.
        match api.patch(node, &params, &Patch::Merge(patch)).await {
            Ok(_) => return Ok(already),
            Err(error) if should_reread(&error) => tokio::time::sleep(PAUSE).await,
            Err(error) => return Err(error.into()),
        }
    }
    Err(CordonError::Busy(node.to_owned()))
}

/// The patch for a Plan, computed from the node that was read. `None` if a user has uncordoned the node in the
/// meantime, which is respected.
fn of_plan(
    snapshot: &NodeSnapshot,
    node: &str,
    plan: &PlanRun,
    mode: CordonMode,
) -> Result<Option<Value>, CordonError> {
    let known = snapshot.facts.ledger.as_ref();
    if mode == CordonMode::Confirm {
        let holder = known.and_then(|ledger| ledger.holders.iter().find(|one| one.is_same(&plan.holder)));
        match holder {
            Some(holder) if holder.cancelled => return Err(Cancelled.into()),
            // An administrator has uncordoned the node. To cordon it again would overrule a decision that refit
            // cannot know the reason of.
            _ if !snapshot.facts.unschedulable => return Ok(None),
            Some(_) => {}
            // The node is cordoned by someone else, so nothing would uncordon it for this Plan later.
            None => return Err(CordonError::Released(node.to_owned())),
        }
    }
    let holder = Holder {
        // `Confirm` is the last patch of a drain, and `Whole` the only one of a cordon. After it the controller must
        // not cancel.
        completed: mode != CordonMode::Begin,
        ..plan.holder.clone()
    };
    let mut ledger = Ledger::with_holder(known, snapshot.facts.unschedulable, holder)?;
    // A key that the node already has stays out of the ledger: it keeps its value, and the release must not remove it.
    let marks = ledger.add_marks(&plan.marks, |mark| snapshot.marks.contains(&mark));
    let mut metadata = json!({
        // With the UID the API server refuses the patch if a Node of the same name has been created since.
        "uid": &*snapshot.facts.uid,
        "resourceVersion": snapshot.version,
        "annotations": { names::ANNOTATION_CORDON: ledger.to_text() },
    });
    if mode == CordonMode::Confirm {
        // Otherwise status would go on to show what this drain waited for.
        metadata["annotations"][names::ANNOTATION_DRAIN] = Value::Null;
    }
    write_marks(&mut metadata, &marks, &NodeMark::VALUE.into());
    let mut spec = json!({ "unschedulable": true });
    let new: Vec<_> = marks
        .iter()
        .filter(|mark| mark.form() == MarkForm::Taint)
        .collect();
    if !new.is_empty() {
        let new = new.into_iter().map(|mark| Taint {
            key: mark.key().to_owned(),
            effect: NodeMark::EFFECT.to_owned(),
            ..Taint::default()
        });
        // A merge patch replaces a list as a whole (RFC 7396), so it repeats the taints that the node has.
        let known = snapshot.facts.taints.iter().flatten().cloned();
        let taints: Vec<_> = new.chain(known).collect();
        spec["taints"] = json!(taints);
    }
    Ok(Some(json!({ "metadata": metadata, "spec": spec })))
}

fn is_mark(taint: &Taint, mark: NodeMark) -> bool {
    taint.key == mark.key() && taint.effect == NodeMark::EFFECT
}

/// Gives labels and annotations among the marks a value in the metadata of a patch; `null` removes them.
fn write_marks(metadata: &mut Value, marks: &[NodeMark], value: &Value) {
    for mark in marks {
        match mark.form() {
            MarkForm::Label => metadata["labels"][mark.key()] = value.clone(),
            MarkForm::Annotation => metadata["annotations"][mark.key()] = value.clone(),
            MarkForm::Taint => {}
        }
    }
}

/// Uncordons the node and removes its ledger with its marks: a user's decision overrides all holders. Also returns whether the
/// node has conditions of refit.
pub(super) async fn uncordon(
    client: &Client,
    node: &str,
    dry_run: DryRun,
) -> Result<(Changed, bool), CordonError> {
    let api = Api::<SlimNode>::all(client.clone());
    let snapshot = read(&api, node, None).await?;
    let has_conditions = conditions::are_left(&snapshot.facts);
    if !snapshot.facts.unschedulable {
        return Ok((Changed::Already, has_conditions));
    }
    if dry_run == DryRun::Client {
        return Ok((Changed::Yes, has_conditions));
    }
    let params = PatchParams {
        dry_run: dry_run == DryRun::Server,
        ..PatchParams::default()
    };
    let mut metadata = json!({
        "annotations": { names::ANNOTATION_CORDON: null, names::ANNOTATION_DRAIN: null },
    });
    let ledger = snapshot.facts.ledger.unwrap_or_default();
    write_marks(&mut metadata, &ledger.marks, &Value::Null);
    // `null` rather than `false`, as kubectl: an absent field and `false` differ for tools that compare manifests.
    let mut spec = json!({ "unschedulable": null });
    let is_ours = |taint: &Taint| ledger.marks.iter().any(|mark| is_mark(taint, *mark));
    if let Some(taints) = snapshot.facts.taints.filter(|taints| taints.iter().any(is_ours)) {
        let left: Vec<_> = taints.into_iter().filter(|taint| !is_ours(taint)).collect();
        spec["taints"] = json!(left);
        // The patch replaces the list, so it must fail if someone has set a taint in the meantime.
        metadata["resourceVersion"] = json!(snapshot.version);
    }
    let patch = json!({ "metadata": metadata, "spec": spec });
    api.patch(node, &params, &Patch::Merge(patch)).await?;
    Ok((Changed::Yes, has_conditions))
}

/// Uncordons a node that a drain without a Plan has cordoned. If a Plan holds it by now, it stays as it is, and the Plan is
/// returned.
pub(super) async fn undo(client: &Client, node: &str) -> Result<Option<String>, CordonError> {
    let api = Api::<SlimNode>::all(client.clone());
    for _ in 0..TRIES {
        let snapshot = read(&api, node, None).await?;
        let holder = snapshot.facts.ledger.iter().flat_map(|ledger| &ledger.holders);
        if let Some(holder) = holder.into_iter().next() {
            return Ok(Some(format!("{}/{}", holder.namespace, holder.plan)));
        }
        if !snapshot.facts.unschedulable {
            return Ok(None);
        }
        let patch = json!({
            "metadata": { "uid": &*snapshot.facts.uid, "resourceVersion": snapshot.version },
            "spec": { "unschedulable": null },
        });
        match api
            .patch(node, &PatchParams::default(), &Patch::Merge(patch))
            .await
        {
            Ok(_) => return Ok(None),
            Err(error) if should_reread(&error) => tokio::time::sleep(PAUSE).await,
            Err(error) => return Err(error.into()),
        }
    }
    Err(CordonError::Busy(node.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Method, Request, Response};
    use kube::client::Body;
    use tower::BoxError;

    use super::*;

    /// What becomes of a cordoned node with this ledger, and the patch.
    async fn undone(ledger: &str) -> (Option<String>, Option<Value>) {
        let patched = Arc::new(Mutex::new(None));
        let seen = patched.clone();
        let annotations = json!({ names::ANNOTATION_CORDON: ledger });
        let transport = tower::service_fn(move |request: Request<Body>| {
            let node = json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": { "name": "a", "uid": "u", "resourceVersion": "7", "annotations": annotations },
                "spec": { "unschedulable": true },
            });
            let seen = seen.clone();
            async move {
                if request.method() == Method::PATCH {
                    let body = http_body_util::BodyExt::collect(request.into_body())
                        .await?
                        .to_bytes();
                    *seen.lock().unwrap() = Some(serde_json::from_slice(&body)?);
                }
                Ok::<_, BoxError>(Response::new(Body::from(node.to_string().into_bytes())))
            }
        });
        let client = Client::new(transport, "default");
        let holder = undo(&client, "a").await.unwrap();
        (holder, patched.lock().unwrap().take())
    }

    #[tokio::test]
    async fn a_drain_does_not_uncordon_a_node_that_a_plan_holds_by_now() {
        let (holder, patch) = undone("").await;
        assert_eq!(holder, None);
        assert_eq!(patch.unwrap()["metadata"]["resourceVersion"], "7");
        let plan =
            json!({ "namespace": "system-upgrade", "controller": "refit", "plan": "p", "planUid": "x" });
        let ledger = Ledger::with_holder(None, true, serde_json::from_value(plan).unwrap()).unwrap();
        let held = undone(&ledger.to_text()).await;
        assert_eq!(held, (Some("system-upgrade/p".to_owned()), None));
    }
}
