//! Facts of a Node.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::condition::NodeCondition;
use crate::record::Record;
use crate::taint::Taint;
use refit_api::ids::{BootId, NodeName, NodeUid, PlanName, Text};
use refit_api::names::{ControlPlaneRole, LABEL_PLAN_PREFIX};
use refit_api::{Ledger, NodeConditionType, NodeDrain, NodeInfo, RebootRequest, RemediationPause};

/// Labels, sorted by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Box<[(Text, Text)]>);

impl Labels {
    /// Builds labels from pairs in any order; of equal keys the last one wins.
    pub fn new(pairs: impl IntoIterator<Item = (Text, Text)>) -> Self {
        Self(
            pairs
                .into_iter()
                .collect::<BTreeMap<_, _>>()
                .into_iter()
                .collect(),
        )
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.0
            .binary_search_by(|(k, _)| (**k).cmp(key))
            .ok()
            .map(|i| &*self.0[i].1)
    }

    /// The value of the label of a Plan. It allocates no key, because each new version of a Plan looks at this label of every
    /// node.
    pub fn of_plan(&self, plan: &str) -> Option<&str> {
        let prefix = LABEL_PLAN_PREFIX.as_bytes();
        let compare = |key: &str| match key.as_bytes().split_at_checked(prefix.len()) {
            Some((head, tail)) => head.cmp(prefix).then_with(|| tail.cmp(plan.as_bytes())),
            None => key.as_bytes().cmp(prefix),
        };
        self.0
            .binary_search_by(|(k, _)| compare(k))
            .ok()
            .map(|i| &*self.0[i].1)
    }

    /// All labels, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (&**k, &**v))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct NodeFacts {
    pub name: NodeName,
    pub uid: NodeUid,
    pub labels: Labels,
    /// Whether the condition Ready is True.
    pub ready: bool,
    /// All conditions, also Ready.
    pub conditions: Box<[NodeCondition]>,
    pub unschedulable: bool,
    /// Whether it has the taint of a node that is not ready or unreachable.
    pub tainted: bool,
    /// `spec.taints`; `None` if it cannot be read as a whole, and then refit does not change it: a merge patch replaces
    /// the whole list, and would drop what was not read.
    pub taints: Option<Vec<Taint>>,
    /// `metadata.creationTimestamp`: when the node was registered.
    pub created: Option<Timestamp>,
    /// Boot ID of the node. The other facts were reported in this boot.
    pub boot_id: BootId,
    /// Version of the kubelet.
    pub kubelet: Text,
    /// `status.nodeInfo.osImage`.
    pub os_image: Text,
    /// `status.nodeInfo.kernelVersion`.
    pub kernel: Text,
    /// `status.nodeInfo.architecture`.
    pub architecture: Text,
    pub records: BTreeMap<PlanName, Record>,
    /// Value of the annotation `refit.rs/labelled-jobs`.
    pub labelled_jobs: Option<Text>,
    /// The ledger, if refit cordoned the node.
    pub ledger: Option<Ledger>,
    /// Whether the node has the annotation `refit.rs/keep-cordoned`.
    pub keep_cordoned: bool,
    /// Value of the annotation `refit.rs/retry`: names of Plans, separated by commas, or `*`.
    pub retry: Option<Text>,
    /// Value of the annotation `refit.rs/skip`: Plans, separated by commas, each with or without `@<version>`.
    pub skip: Option<Text>,
    /// The reboot that the node needs, if it says so.
    pub reboot_request: Option<Box<RebootRequest>>,
    /// Progress of the drain that runs on it, or did last.
    pub drain: Option<Box<NodeDrain>>,
    /// Who keeps remediation operators off the node.
    pub remediation: Option<Box<RemediationPause>>,
}

impl NodeFacts {
    pub fn condition(&self, type_: &str) -> Option<&NodeCondition> {
        self.conditions
            .iter()
            .find(|condition| &*condition.type_ == type_)
    }

    /// Whether its member of etcd has a vote, as the condition `EtcdIsVoter` of K3s and RKE2 says.
    pub fn etcd_voter(&self) -> Option<bool> {
        self.condition("EtcdIsVoter").map(NodeCondition::is_true)
    }

    /// The name of the node in `status.applying`: its hostname label, or its name (S50).
    pub fn hostname(&self) -> &str {
        self.labels
            .get(refit_api::names::LABEL_HOSTNAME)
            .unwrap_or(&self.name)
    }

    /// What the node says of itself.
    pub fn info(&self) -> NodeInfo<'_> {
        NodeInfo {
            kubelet_version: &self.kubelet,
            os_image: &self.os_image,
            kernel_version: &self.kernel,
            architecture: &self.architecture,
        }
    }

    /// The reboot that the node needs in its current boot.
    pub fn needed_reboot(&self) -> Option<&RebootRequest> {
        self.reboot_request
            .as_deref()
            .filter(|request| request.is_for(&self.boot_id))
    }

    /// Whether the node is Ready and has no taint left from when it was not. The node lifecycle controller removes
    /// these taints some time after the kubelet has reported Ready; until then no pod can be scheduled there.
    pub fn is_ready_and_untainted(&self) -> bool {
        self.ready && !self.tainted
    }

    /// Whether the node runs the control plane, or a part of it, by its role labels.
    pub fn is_control_plane(&self) -> bool {
        ControlPlaneRole::ALL.into_iter().any(|role| self.has_role(role))
    }

    /// Whether the node has the role. Distributions give the label an empty value or `true`.
    pub fn has_role(&self, role: ControlPlaneRole) -> bool {
        let mut values = role.labels().iter().filter_map(|label| self.labels.get(label));
        values.any(|value| value != "false")
    }

    /// Whether the node runs Windows, by its label.
    pub fn is_windows(&self) -> bool {
        self.labels.get(refit_api::names::LABEL_OS) == Some("windows")
    }

    /// Whether it has the taint of a new node for Plans of this namespace.
    pub fn is_new_for(&self, namespace: &str) -> bool {
        let mut taints = self.taints.iter().flatten();
        taints.any(|taint| taint.is_new_for(namespace))
    }

    /// The Plans of this namespace for which the node is still to be upgraded, by its taints.
    pub fn pending_for<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a str> {
        let taints = self.taints.iter().flatten();
        taints.filter_map(move |taint| taint.pending_for(namespace))
    }

    /// Whether the controller of this namespace has written a condition of the node.
    pub fn has_conditions_of(&self, namespace: &str) -> bool {
        let mut conditions = self.conditions.iter();
        conditions.any(|one| one.is_of_controller(namespace))
    }

    /// The condition by which another client says that it works on the node.
    pub fn maintenance_of_others(&self, namespace: &str) -> Option<(NodeConditionType, &NodeCondition)> {
        NodeConditionType::BUSY.into_iter().find_map(|type_| {
            let condition = self.condition(type_.name())?;
            let counts = condition.is_true() && !condition.is_of_controller(namespace);
            counts.then_some((type_, condition))
        })
    }
}
