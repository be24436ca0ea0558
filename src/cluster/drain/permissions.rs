//! Checks the permissions of a drain before anything is changed, because half a drain is worse than none.

use std::collections::BTreeSet;

use kube::Client;

use super::options::Options;
use super::pods::PodId;
use crate::kube::Answer;
use crate::kube::permissions::{Need, Scope, may, phrase};
use refit_api::AfterTimeout;

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

/// The missing permissions to drain a node of these pods, as sentences. None, if access reviews are forbidden: then the drain
/// finds out.
pub(super) async fn missing(
    client: &Client,
    options: &Options,
    pods: &[PodId],
) -> Result<Vec<String>, kube::Error> {
    match by_review(client, options, pods).await {
        Err(error) if Answer::of(&error) == Answer::Forbidden => Ok(Vec::new()),
        other => other,
    }
}

async fn by_review(client: &Client, options: &Options, pods: &[PodId]) -> Result<Vec<String>, kube::Error> {
    let mut needs = vec![PATCH_NODES];
    if options.disable_eviction {
        needs.push(DELETE);
    } else {
        needs.push(EVICT);
        needs.extend((options.after_timeout == AfterTimeout::Delete).then_some(DELETE));
    }
    needs.extend(options.conditions.then_some(PATCH_CONDITIONS));
    let namespaces: BTreeSet<&str> = pods.iter().map(|pod| pod.namespace.as_str()).collect();
    let mut missing = Vec::new();
    for need in needs {
        let verb = need.verbs[0];
        let is_needed = need.scope == Scope::Cluster || !pods.is_empty();
        // With a ClusterRole, as in `deploy/`, one review covers all namespaces.
        if !is_needed || may(client, None, &need, verb).await? {
            continue;
        }
        if need.scope == Scope::Cluster {
            missing.push(phrase(&need, verb, ""));
            continue;
        }
        for namespace in &namespaces {
            if !may(client, Some(namespace), &need, verb).await? {
                missing.push(phrase(&need, verb, namespace));
            }
        }
    }
    Ok(missing)
}
