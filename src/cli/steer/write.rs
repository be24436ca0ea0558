//! Writes the changes of a command, one request per object.

use anyhow::{anyhow, bail};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::Value;

use super::edit::{Changes, NodeChange};
use refit_api::Plan;
use refit_cluster::kube::{Answer, brief};

/// Attempts to change a Node that others change meanwhile: kubelets report every ten seconds.
const ATTEMPTS: usize = 10;
/// Who wrote it, if the API server does not say.
const UNKNOWN: &str = "unknown";

/// What was written, and why no more.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) plan: bool,
    /// Number of nodes.
    pub(super) nodes: usize,
    pub(super) error: Option<anyhow::Error>,
}

impl Written {
    pub(super) fn all(changes: &Changes) -> Self {
        Self {
            plan: true,
            nodes: changes.nodes.len(),
            error: None,
        }
    }
}

/// The user as the API server sees them.
pub(super) async fn whoami(client: &Client) -> String {
    // Kubernetes serves this from 1.28 on (KEP-3325). With an older API server the author is unknown.
    let reviews = Api::<SelfSubjectReview>::all(client.clone());
    let review = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await;
    let name = review.ok().and_then(|review| review.status?.user_info?.username);
    name.filter(|name| !name.is_empty())
        .unwrap_or_else(|| UNKNOWN.to_owned())
}

/// The Plans of a namespace as the API server stores them, which may be more than this version of refit knows.
pub(super) fn plans(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<Plan>(&()))
}

/// Writes the Plan first: it says who, and a node that is written starts at once.
pub(super) async fn write(client: &Client, changes: &Changes, dry_run: bool) -> Written {
    let params = PatchParams {
        dry_run,
        field_manager: Some("refit-cli".to_owned()),
        ..PatchParams::default()
    };
    if let Some(plan) = &changes.plan {
        let (namespace, name) = (&changes.namespace, &changes.name);
        let written = plans(client, namespace)
            .patch(name, &params, &Patch::Merge(&plan.patch))
            .await
            .map_err(|error| anyhow!("Plan {namespace}/{name} cannot be written: {}", brief(&error)))
            .and_then(|answer| check(&plan.patch, &answer.data));
        if let Err(error) = written {
            return Written {
                plan: false,
                nodes: 0,
                error: Some(error),
            };
        }
    }
    let nodes = Api::<Node>::all(client.clone());
    for (written, node) in changes.nodes.iter().enumerate() {
        if let Err(error) = write_node(&nodes, &params, node).await {
            return Written {
                plan: true,
                nodes: written,
                error: Some(error),
            };
        }
    }
    Written::all(changes)
}

/// An API server that serves system-upgrade-controller's definition drops `spec.suspend`.
fn check(patch: &Value, answer: &Value) -> anyhow::Result<()> {
    if patch.pointer("/spec/suspend") == Some(&Value::Bool(true))
        && answer.pointer("/spec/suspend") != Some(&Value::Bool(true))
    {
        bail!(
            "the API server dropped spec.suspend: the definition that it serves is not refit's; apply crds/"
        );
    }
    Ok(())
}

/// Changes a Node in the version in which it was read, because its annotations have entries of others.
async fn write_node(nodes: &Api<Node>, params: &PatchParams, change: &NodeChange) -> anyhow::Result<()> {
    let name = &change.name;
    let error = |error: &kube::Error| anyhow!("Node {name} cannot be written: {}", brief(error));
    for attempt in 1..=ATTEMPTS {
        let known = nodes.get_metadata(name).await.map_err(|it| error(&it))?.metadata;
        let annotations = known.annotations.unwrap_or_default();
        let labels = known.labels.unwrap_or_default();
        let Some(mut body) = change.edit.patch(&annotations, &labels) else {
            return Ok(());
        };
        body["metadata"]["resourceVersion"] = known.resource_version.into();
        body["metadata"]["uid"] = known.uid.into();
        match nodes.patch_metadata(name, params, &Patch::Merge(&body)).await {
            Ok(_) => return Ok(()),
            Err(it) if Answer::of(&it) == Answer::Conflict && attempt < ATTEMPTS => {}
            Err(it) => return Err(error(&it)),
        }
    }
    Ok(())
}
