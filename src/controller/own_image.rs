//! The image of this process, from which the cordon and drain containers of Jobs run: `REFIT_IMAGE`, or that of the own
//! pod, or the default of the build. Never the image ID, which differs between architectures.

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::Api;

use super::settings::Settings;
use crate::job::JobSettings;
use crate::kube::brief;

/// Image of refit if nothing else sets it.
pub(crate) const DEFAULT_IMAGE: &str = concat!("ghcr.io/refit-rs/refit:v", env!("CARGO_PKG_VERSION"));
/// The controller's container has this variable, in the manifests of refit, system-upgrade-controller and Rancher.
pub(crate) const CONTROLLER_NAME_VARIABLE: &str = "SYSTEM_UPGRADE_CONTROLLER_NAME";

/// Sets the image and its pull secrets.
pub(super) async fn fill_in(jobs: &mut JobSettings, client: &Client, settings: &Settings) {
    let pod = if settings.api.in_cluster {
        own_pod(client, settings).await
    } else {
        None
    };
    if let Some(spec) = pod.and_then(|pod| pod.spec) {
        let secrets = spec.image_pull_secrets.into_iter().flatten();
        jobs.own_image_pull_secrets = secrets.map(|secret| secret.name).collect();
        let is_ours = |c: &&k8s_openapi::api::core::v1::Container| {
            c.env
                .iter()
                .flatten()
                .any(|variable| variable.name == CONTROLLER_NAME_VARIABLE)
        };
        if jobs.own_image.is_empty() {
            let container = spec.containers.iter().find(is_ours);
            jobs.own_image = container.and_then(|c| c.image.clone()).unwrap_or_default();
        }
    }
    if jobs.own_image.is_empty() {
        DEFAULT_IMAGE.clone_into(&mut jobs.own_image);
    }
    tracing::info!(image = jobs.own_image, "nodes are cordoned and drained with");
}

async fn own_pod(client: &Client, settings: &Settings) -> Option<Pod> {
    match Api::<Pod>::namespaced(client.clone(), &settings.namespace)
        .get_opt(&settings.hostname)
        .await
    {
        Ok(pod) => pod,
        Err(error) => {
            tracing::info!(error = brief(&error), "cannot read the own pod; set REFIT_IMAGE");
            None
        }
    }
}
