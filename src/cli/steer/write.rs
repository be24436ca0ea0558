//! Writes the changes of a command, one request per object.

use std::collections::BTreeMap;

use anyhow::{anyhow, bail};
use http::Request;
use kube::Client;
use serde_json::{Value, json};

use super::change::{Changes, NodeChange};
use refit_api::names;
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
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let uri = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer = send(client, "POST", uri, "application/json", &review).await;
    let name = answer.ok().and_then(|answer| {
        let name = answer.pointer("/status/userInfo/username")?.as_str()?;
        Some(name.to_owned())
    });
    name.filter(|name| !name.is_empty())
        .unwrap_or_else(|| UNKNOWN.to_owned())
}

/// Writes the Plan first: it says who, and a node that is written starts at once.
pub(super) async fn write(client: &Client, namespace: &str, changes: &Changes) -> Written {
    if let Some(plan) = &changes.plan {
        let name = &changes.name;
        let uri = format!("/apis/{}/v1/namespaces/{namespace}/plans/{name}", names::GROUP);
        let written = patch(client, &uri, &plan.patch).await;
        let written = written
            .map_err(|error| anyhow!("Plan {namespace}/{name} cannot be written: {}", brief(&error)))
            .and_then(|answer| check(&plan.patch, &answer));
        if let Err(error) = written {
            return Written {
                plan: false,
                nodes: 0,
                error: Some(error),
            };
        }
    }
    for (nodes, node) in changes.nodes.iter().enumerate() {
        if let Err(error) = write_node(client, node).await {
            return Written {
                plan: true,
                nodes,
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
async fn write_node(client: &Client, change: &NodeChange) -> anyhow::Result<()> {
    let uri = format!("/api/v1/nodes/{}", change.name);
    let error = |error: &kube::Error| anyhow!("Node {} cannot be written: {}", change.name, brief(error));
    for attempt in 1..=ATTEMPTS {
        let request = Request::get(&uri).body(Vec::new())?;
        let node: Value = client.request(request).await.map_err(|it| error(&it))?;
        let map = |pointer| -> BTreeMap<String, String> {
            let value = node.pointer(pointer).cloned().unwrap_or_default();
            serde_json::from_value(value).unwrap_or_default()
        };
        let Some(mut body) = change
            .edit
            .patch(&map("/metadata/annotations"), &map("/metadata/labels"))
        else {
            return Ok(());
        };
        body["metadata"]["resourceVersion"] = node["metadata"]["resourceVersion"].clone();
        body["metadata"]["uid"] = node["metadata"]["uid"].clone();
        match patch(client, &uri, &body).await {
            Ok(_) => return Ok(()),
            Err(it) if Answer::of(&it) == Answer::Conflict && attempt < ATTEMPTS => {}
            Err(it) => return Err(error(&it)),
        }
    }
    Ok(())
}

async fn patch(client: &Client, uri: &str, body: &Value) -> Result<Value, kube::Error> {
    let uri = format!("{uri}?fieldManager=refit-cli");
    send(client, "PATCH", &uri, "application/merge-patch+json", body).await
}

async fn send(
    client: &Client,
    method: &str,
    uri: &str,
    kind: &str,
    body: &Value,
) -> Result<Value, kube::Error> {
    let request = Request::builder()
        .method(method)
        .uri(uri)
        .header(http::header::CONTENT_TYPE, kind)
        .body(body.to_string().into_bytes())
        .map_err(kube::Error::HttpError)?;
    client.request(request).await
}
