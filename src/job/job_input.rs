//! What a Job depends on besides the settings of the controller.

use std::collections::BTreeMap;

use crate::name::RunId;
use refit_api::PlanSpec;

/// The inputs of a Job. It only borrows and is `Copy`, because a roll-out renders thousands.
#[derive(Clone, Copy, Debug)]
pub struct JobInput<'a> {
    pub plan: PlanInput<'a>,
    pub node: NodeInput<'a>,
    /// Name of the Job: [`job_name`](crate::name::job_name), or [`RunId::second_job_name`] if
    /// that is taken.
    pub name: &'a str,
    /// Number of the attempt on this node for this hash, from 1.
    pub attempt: u32,
    /// Whether the node was unschedulable before the Job. Set if no ledger records that, because the drain is not
    /// refit's own.
    pub unschedulable_before: Option<bool>,
}

/// The Plan's inputs of a Job, the same for all its nodes.
#[derive(Clone, Copy, Debug)]
pub struct PlanInput<'a> {
    pub name: &'a str,
    /// Namespace of the Plan and of its Jobs.
    pub namespace: &'a str,
    pub uid: &'a str,
    /// Labels of the Plan. Job and pod inherit the user's labels, but not those of Kubernetes, Rancher and refit.
    pub labels: Option<&'a BTreeMap<String, String>>,
    /// Annotations of the Plan, inherited in the same way.
    pub annotations: Option<&'a BTreeMap<String, String>>,
    pub spec: &'a PlanSpec,
    /// `status.latestVersion`.
    pub latest_version: &'a str,
    /// `status.latestHash`.
    pub latest_hash: &'a str,
    /// Result of [`inputs`](crate::inputs::inputs) for this spec and version.
    pub inputs: &'a str,
    /// Digests of images, by image with tag. These images run by digest.
    pub digests: &'a BTreeMap<String, String>,
}

impl<'a> PlanInput<'a> {
    /// What the names of objects on a node depend on.
    pub(crate) fn run_id(&self, node: &NodeInput<'a>, upgrade: &'a str) -> RunId<'a> {
        RunId {
            plan: self.name,
            plan_uid: self.uid,
            node: node.name,
            node_uid: node.uid,
            upgrade,
        }
    }

    pub(crate) fn is_exclusive(&self) -> bool {
        self.spec.exclusive.unwrap_or_default()
    }
}

/// [`PlanInput::digests`] of a Plan that pins none.
pub static NO_DIGESTS: BTreeMap<String, String> = BTreeMap::new();

/// The node's inputs of a Job.
#[derive(Clone, Copy, Debug)]
pub struct NodeInput<'a> {
    pub name: &'a str,
    pub uid: &'a str,
    /// Value of the label `kubernetes.io/os`.
    pub os: Option<&'a str>,
    /// Whether another node has the same label `kubernetes.io/hostname`, which a kubelet can give its node. By
    /// hostname, pods there would then keep the Job's pod off this node.
    pub shares_hostname: bool,
    /// Whether it has the taint of a new node, or may get it before the pod is bound.
    pub may_be_new: bool,
}

impl NodeInput<'_> {
    /// Whether the node runs Windows, where containers differ (S38).
    pub(crate) fn is_windows(&self) -> bool {
        self.os == Some("windows")
    }
}
