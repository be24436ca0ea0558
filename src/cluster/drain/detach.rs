//! Waits until the volumes of evicted pods are detached from the node (`--wait-for-detach`). A volume that is still
//! attached when the node goes down can be attached elsewhere only after six minutes (kube-controller-manager,
//! `maxWaitForUnmountDuration`).
//!
//! `status.volumesAttached` of the Node has them, also those of CSI drivers. So a drain needs no permission for it,
//! unless pods that stay on the node have volumes of their own: then it reads which these are.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Client;
use serde::Deserialize;
use tokio::time::Instant;

use super::failure::Failure;
use super::lister::PodLister;
use super::pods::PodId;
use super::waiter::Waiter;
use crate::kube::read::get;
use refit_api::DrainNote;

/// Interval of reads. The kubelet reports every ten seconds which volumes it no longer uses.
const INTERVAL: Duration = Duration::from_secs(2);

/// The attached volumes of a Node.
#[derive(Deserialize)]
struct AttachedNode {
    #[serde(default)]
    status: AttachedStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AttachedStatus {
    volumes_attached: Vec<AttachedVolume>,
}

#[derive(Deserialize)]
struct AttachedVolume {
    name: String,
}

/// Reads which volumes of pods that stay, those that are not in `leaving`, are attached, by the names that
/// `status.volumesAttached` gives them. Those of other drivers than CSI's have no such name, and count as those of
/// evicted pods.
///
/// # Errors
/// Fails if the pods, their claims or their volumes cannot be read.
pub(super) async fn kept(lister: &PodLister, leaving: &[PodId]) -> Result<BTreeSet<String>, kube::Error> {
    let mut kept = BTreeSet::new();
    for (pod, claims) in lister.claims().await? {
        if leaving.contains(&pod) {
            continue;
        }
        for claim in claims {
            kept.extend(attached_name(&lister.client, &pod.namespace, &claim).await?);
        }
    }
    Ok(kept)
}

/// The name of the volume of a claim; `None` if it has none.
async fn attached_name(client: &Client, namespace: &str, claim: &str) -> Result<Option<String>, kube::Error> {
    let claim = get::<PersistentVolumeClaim>(client, Some(namespace), claim).await?;
    let Some(volume) = claim.and_then(|claim| claim.spec?.volume_name) else {
        return Ok(None);
    };
    let volume = get::<PersistentVolume>(client, None, &volume).await?;
    let csi = volume.and_then(|volume| volume.spec?.csi);
    // As the attach-detach controller names it (pkg/volume/util/util.go, GetUniqueVolumeName).
    Ok(csi.map(|csi| format!("kubernetes.io/csi/{}^{}", csi.driver, csi.volume_handle)))
}

/// Volumes that are attached to the node, except these.
async fn attached(lister: &PodLister, kept: &BTreeSet<String>) -> Result<BTreeSet<String>, kube::Error> {
    let node: AttachedNode = lister.read_node().await?;
    let names = node.status.volumes_attached.into_iter().map(|volume| volume.name);
    Ok(names.filter(|name| !kept.contains(name)).collect())
}

/// Waits until no volume of an evicted pod is attached. At the deadline it returns those that still are. `note` has the progress
/// so far.
pub(super) async fn wait(
    waiter: &mut Waiter<'_>,
    deadline: Option<Instant>,
    mut note: DrainNote,
) -> Result<Option<BTreeSet<String>>, Failure> {
    // Read once: the evictions are over, so every pod that is left on the node stays.
    let mut kept = None;
    loop {
        let read = async {
            if kept.is_none() {
                kept = Some(self::kept(waiter.lister, &[]).await?);
            }
            attached(waiter.lister, kept.as_ref().unwrap_or(&BTreeSet::new())).await
        };
        let read = read.await;
        let left = waiter
            .admit(read)
            .map_err(|why| Failure::new(format!("the volumes of the node cannot be read: {why}")))?;
        if let Some(left) = &left {
            if left.is_empty() {
                return Ok(None);
            }
            let before = (note.attached, note.volume.take());
            note.attached = left.len();
            note.volume = left.first().cloned();
            if before != (note.attached, note.volume.clone()) {
                waiter.report(0, note.clone());
            }
            waiter.show(&note);
        }
        let next = Instant::now() + INTERVAL;
        if let Some(deadline) = deadline.filter(|deadline| *deadline <= next) {
            waiter
                .pause(deadline.saturating_duration_since(Instant::now()))
                .await?;
            return Ok(Some(left.unwrap_or_default()));
        }
        waiter.pause(INTERVAL).await?;
    }
}
