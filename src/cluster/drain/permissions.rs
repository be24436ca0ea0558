//! Checks the permissions of a drain before anything is changed, because half a drain is worse than none.

use std::collections::BTreeSet;

use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use super::evict::Evictor;
use super::outcome::EvictionOutcome;
use super::pods::PodId;
use crate::kube::permissions::{Need, Scope, may, phrase};
use crate::kube::{Answer, brief};
use refit_facts::objects::SlimNode;

const PATCH_NODES: Need = Need::new("", "nodes", Scope::Cluster, &["patch"]);
const PATCH_CONDITIONS: Need = Need {
    subresource: "status",
    ..PATCH_NODES
};
const EVICT: Need = Need {
    subresource: "eviction",
    ..Need::new("", "pods", Scope::Namespace, &["create"])
};
const DELETE: Need = Need::new("", "pods", Scope::Namespace, &["delete"]);

/// The missing permissions to cordon this node and to evict these pods, as sentences. Uses access reviews, and dry-run
/// requests if reviews are forbidden.
pub(super) async fn missing(
    client: &Client,
    node: &str,
    cordons: bool,
    pods: &[PodId],
    evictor: &Evictor,
) -> Result<Vec<String>, kube::Error> {
    match by_review(client, cordons, pods, evictor).await {
        Err(error)
            if matches!(
                Answer::of(&error),
                Answer::Forbidden | Answer::NotFound | Answer::NotAllowed
            ) =>
        {
            by_trial(client, node, cordons, pods, evictor).await
        }
        other => other,
    }
}

/// The missing permission for `--conditions`. Nothing, if reviews are forbidden.
pub(super) async fn missing_for_conditions(client: &Client) -> Result<Option<String>, kube::Error> {
    match may(client, None, &PATCH_CONDITIONS, "patch").await {
        Ok(true) => Ok(None),
        Ok(false) => Ok(Some(phrase(&PATCH_CONDITIONS, "patch", ""))),
        Err(error) if Answer::of(&error) == Answer::Forbidden => Ok(None),
        Err(error) => Err(error),
    }
}

async fn by_review(
    client: &Client,
    cordons: bool,
    pods: &[PodId],
    evictor: &Evictor,
) -> Result<Vec<String>, kube::Error> {
    let mut missing = Vec::new();
    if cordons && !may(client, None, &PATCH_NODES, "patch").await? {
        missing.push(phrase(&PATCH_NODES, "patch", ""));
    }
    let need = if evictor.by_delete { DELETE } else { EVICT };
    let verb = need.verbs.first().copied().unwrap_or_default();
    // With a ClusterRole, as in `deploy/`, one review covers all namespaces.
    if pods.is_empty() || may(client, None, &need, verb).await? {
        return Ok(missing);
    }
    for namespace in namespaces(pods) {
        if !may(client, Some(namespace), &need, verb).await? {
            missing.push(phrase(&need, verb, namespace));
        }
    }
    Ok(missing)
}

async fn by_trial(
    client: &Client,
    node: &str,
    cordons: bool,
    pods: &[PodId],
    evictor: &Evictor,
) -> Result<Vec<String>, kube::Error> {
    let mut missing = Vec::new();
    if cordons {
        let dry = PatchParams {
            dry_run: true,
            ..PatchParams::default()
        };
        let patch = Patch::Merge(json!({ "spec": { "unschedulable": true } }));
        match Api::<SlimNode>::all(client.clone())
            .patch(node, &dry, &patch)
            .await
        {
            Err(error) if Answer::of(&error) == Answer::Forbidden => missing.push(brief(&error)),
            Err(error) => return Err(error),
            Ok(_) => {}
        }
    }
    let dry = Evictor {
        dry_run: true,
        ..evictor.clone()
    };
    for namespace in namespaces(pods) {
        // RBAC grants evictions by namespace, so one pod of each is enough.
        let Some(pod) = pods.iter().find(|pod| pod.namespace == namespace) else {
            continue;
        };
        // The API server authorizes a request before it looks at budgets, so a refusal by a budget proves the
        // permission.
        if let (_, EvictionOutcome::Fatal(why)) = dry.clone().ask(pod.clone()).await {
            missing.push(why);
        }
    }
    Ok(missing)
}

fn namespaces(pods: &[PodId]) -> BTreeSet<&str> {
    pods.iter().map(|pod| pod.namespace.as_str()).collect()
}
