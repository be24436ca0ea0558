//! Waits until the volumes of evicted pods are detached from the node (`--wait-for-detach`). A volume that is still
//! attached when the node goes down can be attached elsewhere only after six minutes (kube-controller-manager,
//! `maxWaitForUnmountDuration`).
//!
//! `status.volumesAttached` of the Node has them, also those of CSI drivers. So a drain needs no permission for it,
//! unless pods that stay on the node have volumes of their own: then it reads which these are.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Client;
use serde::Deserialize;
use tokio::time::{Instant, sleep, sleep_until};

use super::lister::PodLister;
use super::pods::PodId;
use super::publish::Publisher;
use crate::kube::read::get;
use crate::kube::{Answer, brief};
use refit_api::DrainNote;

/// Interval of reads. The kubelet reports every ten seconds which volumes it no longer uses.
const INTERVAL: Duration = Duration::from_secs(2);
/// How long errors of the API server are waited out.
const MAX_OUTAGE: Duration = super::tracker::MAX_OUTAGE;

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

/// How the wait ended.
pub(super) enum End {
    Detached,
    TimeUp(BTreeSet<String>),
    Cancelled,
    Failed(String),
}

/// The inputs of the wait.
pub(super) struct Wait<'a> {
    pub(super) lister: &'a PodLister,
    pub(super) deadline: Option<Instant>,
    pub(super) publisher: Option<&'a Publisher>,
    /// Progress so far.
    pub(super) note: DrainNote,
    /// Completes when the controller has cancelled the drain.
    pub(super) cancelled: BoxFuture<'static, ()>,
    /// Called with what is still attached whenever that changes.
    pub(super) report: &'a (dyn Fn(&DrainNote) + Send + Sync),
}

impl Wait<'_> {
    /// Waits until no volume of an evicted pod is attached.
    pub(super) async fn run(mut self) -> End {
        // Read once: the evictions are over, so every pod that is left on the node stays.
        let mut kept = None;
        let mut failing_since = None;
        loop {
            let look = async {
                if kept.is_none() {
                    kept = Some(self::kept(self.lister, &[]).await?);
                }
                attached(self.lister, kept.as_ref().unwrap_or(&BTreeSet::new())).await
            };
            let left = match look.await {
                Ok(left) => {
                    failing_since = None;
                    left
                }
                Err(error) => {
                    let now = Instant::now();
                    let since = *failing_since.get_or_insert(now);
                    // A 403 lasts until someone changes a role, so a retry would only delay the message. Any other
                    // error may come from a restart of the API server.
                    let is_final = Answer::of(&error) == Answer::Forbidden;
                    if is_final || now - since >= MAX_OUTAGE {
                        return End::Failed(brief(&error));
                    }
                    BTreeSet::new()
                }
            };
            if failing_since.is_none() {
                if left.is_empty() {
                    return End::Detached;
                }
                let before = (self.note.attached, self.note.volume.take());
                self.note.attached = left.len();
                self.note.volume = left.first().cloned();
                if before != (self.note.attached, self.note.volume.clone()) {
                    (self.report)(&self.note);
                }
                if let Some(publisher) = self.publisher {
                    publisher.show(&self.note);
                }
            }
            let time_up = async {
                match self.deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = &mut self.cancelled => return End::Cancelled,
                () = time_up => return End::TimeUp(left),
                () = sleep(INTERVAL) => {}
            }
        }
    }
}
