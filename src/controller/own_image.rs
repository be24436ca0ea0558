//! The image of this process, from which the containers of Jobs run that cordon, drain and reboot: `REFIT_IMAGE`, or
//! that of the own pod. Never the image ID, which differs between architectures; and never a guess: an image that was
//! never published would leave each node with a Job that waits for it.
//!
//! The own pod is the one that the downward API names, or that has the host name as its name. With `hostNetwork` the host
//! name is the node's, so it is the pod of this controller on this node then.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use super::settings::Settings;
use refit_api::names;
use refit_base::backoff::Backoff;
use refit_cluster::kube::brief;
use refit_job::JobSettings;

/// The image that belongs to this build. Only for commands that no node runs anything of.
pub const OF_THIS_BUILD: &str = concat!("ghcr.io/refit-rs/refit:v", env!("CARGO_PKG_VERSION"));
/// The controller's container has this variable, in the manifests of refit, system-upgrade-controller and Rancher.
pub const CONTROLLER_NAME_VARIABLE: &str = "SYSTEM_UPGRADE_CONTROLLER_NAME";

/// Pause before the pod is looked for again, which doubles up to the second.
const FIRST_RETRY: Duration = Duration::from_secs(5);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// The pod of this process, as far as its environment says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodIdentity {
    /// `POD_NAME`.
    pub name: Option<String>,
    /// `POD_NAMESPACE`.
    pub namespace: Option<String>,
    /// `POD_UID`.
    pub uid: Option<String>,
}

/// An image and the names of its pull secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnImage {
    pub(super) image: String,
    pub(super) pull_secrets: Vec<String>,
}

impl OwnImage {
    fn of(spec: PodSpec) -> Option<Self> {
        let image = controller_container(&spec)?
            .image
            .clone()
            .filter(|image| !image.is_empty())?;
        let secrets = spec.image_pull_secrets.into_iter().flatten();
        Some(Self {
            image,
            pull_secrets: secrets.map(|secret| secret.name).collect(),
        })
    }
}

/// The container of a controller in a pod.
pub fn controller_container(pod: &PodSpec) -> Option<&Container> {
    let is_ours = |container: &&Container| {
        let mut variables = container.env.iter().flatten();
        variables.any(|variable| variable.name == CONTROLLER_NAME_VARIABLE)
    };
    pod.containers.iter().find(is_ours)
}

/// Sets the image and its pull secrets, if they can be found now.
pub(super) async fn fill_in(jobs: &mut JobSettings, client: &Client, settings: &Settings) {
    let found = if settings.api.in_cluster {
        find(client, settings).await
    } else {
        Err("the controller does not run in a pod".to_owned())
    };
    let is_given = !jobs.own_image.is_empty();
    match found {
        Ok(own) => {
            jobs.own_image_pull_secrets = own.pull_secrets;
            if !is_given {
                jobs.own_image = own.image;
            }
        }
        Err(why) if is_given => {
            tracing::debug!(why, "the own pod was not found; REFIT_IMAGE names the image");
        }
        Err(why) => tracing::warn!(
            why,
            "the controller cannot determine its own image, so Plans that cordon, drain or reboot start no node: \
             set REFIT_IMAGE to it, or POD_NAME by fieldRef to metadata.name"
        ),
    }
    if !jobs.own_image.is_empty() {
        tracing::info!(
            image = jobs.own_image,
            "nodes are cordoned, drained and rebooted with"
        );
    }
}

/// Looks for the image until it is found.
pub(super) async fn search(client: &Client, settings: &Settings) -> OwnImage {
    let mut backoff = Backoff::default();
    loop {
        tokio::time::sleep(backoff.pause(FIRST_RETRY, LAST_RETRY)).await;
        match find(client, settings).await {
            Ok(own) => {
                tracing::info!(image = own.image, "nodes are cordoned, drained and rebooted with");
                return own;
            }
            Err(why) => tracing::debug!(why, "the own pod was not found"),
        }
    }
}

/// The image of the own pod, or why it is not known.
async fn find(client: &Client, settings: &Settings) -> Result<OwnImage, String> {
    let identity = &settings.pod;
    let namespace = identity.namespace.as_deref().unwrap_or(&settings.namespace);
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let is_own = |pod: &Pod| identity.uid.is_none() || pod.metadata.uid == identity.uid;
    let mut tried = Vec::new();
    let names = identity
        .name
        .iter()
        .chain([&settings.hostname])
        .collect::<Vec<_>>();
    for (index, name) in names.iter().enumerate() {
        if name.is_empty() || names[..index].contains(name) {
            continue;
        }
        match pods.get_opt(name).await {
            Ok(Some(pod)) if is_own(&pod) => match pod.spec.and_then(OwnImage::of) {
                Some(own) => return Ok(own),
                None => tried.push(format!(
                    "pod {namespace}/{name} has no container with the variable {CONTROLLER_NAME_VARIABLE}"
                )),
            },
            Ok(Some(_)) => tried.push(format!("pod {namespace}/{name} has another UID than POD_UID")),
            Ok(None) => tried.push(format!("there is no pod {namespace}/{name}")),
            Err(error) => tried.push(format!(
                "pod {namespace}/{name} cannot be read: {}",
                brief(&error)
            )),
        }
    }
    // Its Jobs have the label of the controller too, and that of their Plan.
    let labels = format!(
        "{}={},!{}",
        names::LABEL_CONTROLLER,
        settings.name,
        names::LABEL_PLAN
    );
    match pods.list(&ListParams::default().labels(&labels)).await {
        Ok(list) => match among(list.items, settings) {
            Ok(own) => return Ok(own),
            Err(why) => tried.push(why),
        },
        Err(error) => tried.push(format!(
            "the pods of {namespace} cannot be listed: {}",
            brief(&error)
        )),
    }
    Err(tried.join("; "))
}

/// The image of the own pod among those of the controller's replicas: the one with the own UID, or else those on this node.
fn among(pods: Vec<Pod>, settings: &Settings) -> Result<OwnImage, String> {
    let is_running = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        !matches!(phase, Some("Succeeded" | "Failed"))
    };
    let mut pods: Vec<_> = pods.into_iter().filter(is_running).collect();
    if let Some(uid) = &settings.pod.uid {
        pods.retain(|pod| pod.metadata.uid.as_ref() == Some(uid));
    } else {
        let is_here = |pod: &Pod| {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            node.is_some_and(|node| node == settings.node_name || node == settings.hostname)
        };
        pods.retain(is_here);
    }
    let names: Vec<_> = pods.iter().map(ResourceExt::name_any).collect();
    let mut found: Vec<_> = pods
        .into_iter()
        .filter_map(|pod| pod.spec.and_then(OwnImage::of))
        .collect();
    let images: BTreeSet<_> = found.iter().map(|own| own.image.clone()).collect();
    match (images.len(), found.pop()) {
        (1, Some(own)) => Ok(own),
        (0, _) | (_, None) => Err(format!(
            "no pod with the label {}={} is on this node, {}",
            names::LABEL_CONTROLLER,
            settings.name,
            settings.node_name
        )),
        // In the middle of an update, any of them may be this one.
        _ => Err(format!("the pods {} have different images", names.join(" and "))),
    }
}

#[cfg(test)]
mod tests;
