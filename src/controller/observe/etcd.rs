//! The etcd members of clusters of kubeadm: on each node of the control plane the kubelet runs a static pod, whose mirror pod is
//! `etcd-<node>` in `kube-system` (kubeadm, "Implementation details"). K3s and RKE2 have the Node condition `EtcdIsVoter`
//! instead.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::{Resource as _, ResourceExt as _};

use super::{Observer, PAGE};
use refit_cluster::kube::Answer;
use refit_cluster::kube::brief;
use refit_cluster::kube::permissions::{Need, may_all};
use refit_cluster::kube::watch::{Selection, Watch, WatchEvent};
use refit_facts::objects::SlimPod;
use refit_facts::{NodeName, Text};
use refit_rollout::Observation;

const NAMESPACE: &str = "kube-system";
/// The label that kubeadm gives the static pod.
const LABEL: &str = "component=etcd";

const NEED: Need = Need {
    group: "",
    resource: "pods",
    subresource: "",
    namespaced: true,
    verbs: &["list", "watch"],
};

/// How long to wait before the permission is asked for again.
const ASK_AGAIN: Duration = Duration::from_secs(300);
/// How long to wait after the question failed.
const RETRY: Duration = Duration::from_secs(5);

/// The members, by the name of their pod: the node, if the member is not Ready.
type Members = BTreeMap<String, Option<NodeName>>;

impl Observer {
    /// Watches the pods. Without the permission, or before the first answer, no member is known to be down: the guard of the
    /// control plane counts Nodes then, as in a cluster that keeps its etcd elsewhere.
    pub async fn etcd(self) {
        let mut is_known = false;
        loop {
            let pause = match may_all(&self.client, Some(NAMESPACE), &NEED, None).await {
                Ok(true) => {
                    self.watch_etcd(&mut is_known).await;
                    RETRY
                }
                Ok(false) => {
                    if !is_known {
                        tracing::info!(
                            "the controller may not list and watch pods in kube-system, so it does not know whether the etcd members \
                             of kubeadm are Ready; apply deploy/rbac.yaml to allow it"
                        );
                    }
                    self.report_etcd(&Members::new(), &mut is_known).await;
                    ASK_AGAIN
                }
                Err(error) => {
                    let why = brief(&error);
                    tracing::warn!(error = why, "cannot check the permission for the pods of etcd");
                    self.no_etcd_answer(&mut is_known).await;
                    RETRY
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// What was known stays.
    async fn no_etcd_answer(&self, is_known: &mut bool) {
        if !*is_known {
            self.report_etcd(&Members::new(), is_known).await;
        }
    }

    async fn report_etcd(&self, members: &Members, is_known: &mut bool) {
        *is_known = true;
        let down: BTreeSet<NodeName> = members.values().flatten().cloned().collect();
        self.send(Observation::EtcdDown(down)).await;
    }

    /// Returns when the permission is gone.
    async fn watch_etcd(&self, is_known: &mut bool) {
        let selection = Selection {
            path: SlimPod::url_path(&(), Some(NAMESPACE)),
            labels: Some(LABEL.to_owned()),
            page: PAGE,
            ..Selection::default()
        };
        let mut watch = Watch::<SlimPod>::new(self.client.clone(), selection);
        let mut members = Members::new();
        let mut is_listing = false;
        loop {
            match watch.next().await {
                WatchEvent::ListStarted => {
                    members.clear();
                    is_listing = true;
                }
                WatchEvent::ListFinished => is_listing = false,
                WatchEvent::Object(pod) => {
                    let Some(node) = member(&pod) else { continue };
                    members.insert(pod.name_any(), (!pod.is_ready()).then_some(node));
                }
                WatchEvent::Deleted { name, .. } => drop(members.remove(&*name)),
                WatchEvent::Watching | WatchEvent::Unreadable(_) => continue,
                WatchEvent::VersionsReset => return self.give_up().await,
                WatchEvent::Failed(error) => {
                    tracing::debug!(%error, "the watch of the pods of etcd broke off and starts again");
                    if error.answer() == Answer::Forbidden {
                        return;
                    }
                    self.no_etcd_answer(is_known).await;
                    continue;
                }
            }
            if !is_listing {
                self.report_etcd(&members, is_known).await;
            }
        }
    }
}

/// The node of the member. Only a mirror pod has the name of its node at the end of its own.
fn member(pod: &SlimPod) -> Option<NodeName> {
    let node = pod.node_name()?;
    let is_member = pod.name_any().strip_prefix("etcd-") == Some(node);
    is_member.then(|| NodeName::from(Text::from(node)))
}
