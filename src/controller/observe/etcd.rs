//! The etcd members of clusters of kubeadm: on each node of the control plane the kubelet runs a static pod, whose mirror pod is
//! `etcd-<node>` in `kube-system` (kubeadm, "Implementation details"). K3s and RKE2 have the Node condition `EtcdIsVoter`
//! instead.

use kube::{Resource as _, ResourceExt as _};

use super::{Observer, PAGE};
use crate::watches::{News, Permission, Subject};
use refit_cluster::kube::permissions::{Need, Scope};
use refit_cluster::kube::watch::Selection;
use refit_facts::objects::{SlimPod, version};
use refit_facts::store::{Change, Entry, Store};
use refit_facts::{NodeName, Text};
use refit_rollout::Observation;

const NAMESPACE: &str = "kube-system";
/// The label that kubeadm gives the static pod.
const LABEL: &str = "component=etcd";

const NEED: Need = Need::new("", "pods", Scope::Namespace, &["list", "watch"]);

/// The members, by the name of their pod: the node, if the member is not Ready.
type Members = Store<String, String, Option<NodeName>>;

impl Observer {
    /// Watches the pods. Without the permission, or before the first answer, no member is known to be down: the guard of the
    /// control plane counts Nodes then, as in a cluster that keeps its etcd elsewhere.
    pub(crate) async fn etcd(self) {
        let pods = Subject {
            selection: Selection {
                path: SlimPod::url_path(&(), Some(NAMESPACE)),
                labels: Some(LABEL.to_owned()),
                page: PAGE,
                ..Selection::default()
            },
            permission: Some(Permission {
                need: NEED,
                namespace: NAMESPACE.to_owned(),
                name: None,
            }),
            ..Subject::default()
        };
        let (mut members, mut is_known) = (Members::default(), false);
        let down = |news| {
            let is_answer = match news {
                News::Change(change) => {
                    members.apply(of_members(change)?);
                    !members.is_being_listed()
                }
                News::NotPermitted => {
                    if !is_known {
                        tracing::info!(
                            "the controller may not list and watch pods in kube-system, so it does not know whether the etcd members \
                             of kubeadm are Ready; apply deploy/rbac.yaml to allow it"
                        );
                    }
                    members = Members::default();
                    true
                }
                // What is known stays.
                News::Failed(..) if !is_known => {
                    members = Members::default();
                    true
                }
                News::Failed(..) | News::Watching => false,
            };
            is_known |= is_answer;
            let down = || members.iter().filter_map(|(_, node)| node.clone()).collect();
            is_answer.then(|| Observation::EtcdDown(down()))
        };
        self.follow(pods, down).await;
    }
}

/// What happens to the pods of members.
fn of_members(change: Change<SlimPod>) -> Option<Change<Entry<String, String, Option<NodeName>>>> {
    if let Change::Object(pod) = &change
        && member(pod).is_none()
    {
        return None;
    }
    Some(change.map(|pod| Entry {
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        version: version(pod.meta()),
        object: member(&pod).filter(|_| !pod.is_ready()),
    }))
}

/// The node of the member. Only a mirror pod has the name of its node at the end of its own.
fn member(pod: &SlimPod) -> Option<NodeName> {
    let node = pod.node_name()?;
    let is_member = pod.name_any().strip_prefix("etcd-") == Some(node);
    is_member.then(|| NodeName::from(Text::from(node)))
}
