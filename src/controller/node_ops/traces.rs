//! What the Plan of an object leaves: on nodes, the label of those that are done and the annotation of those that
//! `preflight` has skipped; its Jobs.

use futures::{StreamExt as _, stream};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, Request};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::NodeOps;
use refit_api::{Plan, annotation, names};
use refit_cluster::kube::Answer;
use refit_cluster::kube::read::{list_metadata, send};

/// Nodes that are patched at the same time.
const PATCHES: usize = 8;

impl NodeOps {
    /// Removes them from all nodes. A node that was skipped has an annotation, and no label.
    ///
    /// # Errors
    /// Fails if nodes cannot be listed, or one of them cannot be changed.
    pub(super) async fn remove_traces(&self, plan: &str, may_have_skipped: bool) -> Result<(), kube::Error> {
        let label = names::plan_label(plan);
        let selector = (!may_have_skipped).then_some(&*label);
        let listed = self.list_nodes(selector).await?;
        let changes = listed.into_iter().filter_map(|node| {
            let change = without_traces(&node, &label, plan)?;
            Some((node.name?, change))
        });
        let nodes = &Request::new(Node::url_path(&(), None));
        let clean = |(name, change): (String, Value)| async move {
            let patch = nodes.patch_metadata(&name, &PatchParams::default(), &Patch::Merge(&change));
            let result = send::<IgnoredAny>(&self.client, patch).await;
            missing_is_fine(result.map(drop))
        };
        // Other objects wait meanwhile.
        let mut cleaned = stream::iter(changes.map(clean)).buffer_unordered(PATCHES);
        while let Some(result) = cleaned.next().await {
            result?;
        }
        Ok(())
    }

    /// Deletes the Jobs of a Plan, as the garbage collector would once it is gone.
    ///
    /// # Errors
    /// Fails if they cannot be listed, or one of them cannot be deleted.
    pub(super) async fn delete_jobs(&self, plan: &Plan) -> Result<(), kube::Error> {
        let name = plan.metadata.name.as_deref().unwrap_or_default();
        let jobs = Api::<Job>::namespaced(self.client.clone(), &self.namespace);
        let of_plan = ListParams::default().labels(&format!("{}={name}", names::LABEL_PLAN));
        for metadata in list_metadata::<Job>(&self.client, Some(&self.namespace), of_plan).await? {
            let mut owners = metadata.owner_references.iter().flatten();
            let is_owned = owners.any(|owner| Some(&owner.uid) == plan.metadata.uid.as_ref());
            if let Some(name) = metadata
                .name
                .filter(|_| is_owned && metadata.deletion_timestamp.is_none())
            {
                let deleted = jobs.delete(&name, &DeleteParams::background()).await;
                missing_is_fine(deleted.map(drop))?;
            }
        }
        Ok(())
    }
}

pub(super) fn missing_is_fine(result: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(error) if Answer::of(&error) == Answer::NotFound => Ok(()),
        result => result,
    }
}

/// Why `preflight` has skipped a node, by its annotation.
pub(super) fn skipped_because(skip: &str, plan: &str) -> Option<String> {
    let mut entries = annotation::entries(skip).filter(|entry| entry.plan == plan);
    let author = entries.find_map(|entry| entry.author())?;
    let why = author.strip_prefix(annotation::BY_PREFLIGHT)?;
    Some(why.to_owned())
}

/// A patch that removes what a Plan has left on a node for those who look later.
pub(super) fn without_traces(node: &ObjectMeta, label: &str, plan: &str) -> Option<Value> {
    let has_label = node
        .labels
        .as_ref()
        .is_some_and(|labels| labels.contains_key(label));
    let skip = node
        .annotations
        .as_ref()
        .and_then(|all| all.get(names::ANNOTATION_SKIP));
    let others = skip.map(|skip| {
        let others = annotation::entries(skip).filter(|entry| entry.plan != plan);
        others.map(|entry| entry.text).collect::<Vec<_>>()
    });
    let is_skipped = skip.is_some_and(|skip| annotation::entries(skip).any(|entry| entry.plan == plan));
    if !has_label && !is_skipped {
        return None;
    }
    let mut metadata = json!({ "uid": node.uid });
    if has_label {
        metadata["labels"] = json!({ label: null });
    }
    if is_skipped {
        let left = others
            .filter(|others| !others.is_empty())
            .map(|others| others.join(", "));
        // Other clients may write the annotation, and their entries must not be lost.
        metadata["resourceVersion"] = json!(node.resource_version);
        metadata["annotations"] = json!({ names::ANNOTATION_SKIP: left });
    }
    Some(json!({ "metadata": metadata }))
}
