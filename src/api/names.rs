//! Labels, annotations and other names: those of system-upgrade-controller, and refit's own under `refit.rs`.

use super::selector::is_subdomain;

/// API group of the Plan.
pub const GROUP: &str = "upgrade.cattle.io";
/// The service account for work on nodes in refit's manifests.
pub const JOB_SERVICE_ACCOUNT: &str = "system-upgrade";
/// Job and pod label: name of the controller that created the Job.
pub const LABEL_CONTROLLER: &str = "upgrade.cattle.io/controller";
/// Job and pod label: whether the Plan is exclusive, `"true"` or `"false"`.
pub const LABEL_EXCLUSIVE: &str = "upgrade.cattle.io/exclusive";
/// Job and pod label: the node (shortened by `SafeConcatName` if the name is not a label value).
pub const LABEL_NODE: &str = "upgrade.cattle.io/node";
/// Job and pod label: the Plan.
pub const LABEL_PLAN: &str = "upgrade.cattle.io/plan";
/// Job and pod label: `status.latestVersion`.
pub const LABEL_VERSION: &str = "upgrade.cattle.io/version";
/// Prefix of the node label whose value is the hash for which a Plan is done, and of the same label on Jobs and pods.
pub const LABEL_PLAN_PREFIX: &str = "plan.upgrade.cattle.io/";
/// Pod label: purpose of a pod that belongs to no Job, [`ROLE_REBOOT`] or [`ROLE_ASK`].
pub const LABEL_ROLE: &str = "refit.rs/role";
/// Value of [`LABEL_ROLE`]: the pod reboots its node.
pub const ROLE_REBOOT: &str = "reboot";
/// Value of [`LABEL_ROLE`]: the pod reads the sentinel on its node.
pub const ROLE_ASK: &str = "ask";
/// Prefix of the key of the taint of nodes that a Plan is still to upgrade (`spec.drain.avoidPendingNodes`). The name
/// of the Plan follows; the value is its namespace.
pub const TAINT_PENDING_PREFIX: &str = "pending.refit.rs/";
/// Taint of a node that has joined and on which a Plan with `taintNewNodes` is not done yet; its value is the namespace.
pub const TAINT_NEW_NODE: &str = "refit.rs/new-node";
/// Label of a Job, and of its pod, that pulls the image of an upgrade on a node that comes next.
pub const LABEL_PREPULL: &str = "refit.rs/prepull";
/// Label of a Job, and of its pod, that runs once for each roll-out: `before` or `after`.
pub const LABEL_HOOK: &str = "refit.rs/hook";
/// Value of the node label that excludes a node from a Plan.
pub const LABEL_VALUE_DISABLED: &str = "disabled";
/// Plan annotation: fields that are part of the hash, separated by commas.
pub const ANNOTATION_DIGEST: &str = "upgrade.cattle.io/digest";
/// Job annotation: the TTL that the Job gets once its result is recorded.
pub const ANNOTATION_TTL: &str = "upgrade.cattle.io/ttl-seconds-after-finished";

/// Node annotation: the ledger.
pub const ANNOTATION_CORDON: &str = "refit.rs/cordon";
/// Node annotation: progress of the drain that runs for a Plan, and what it waits for.
pub const ANNOTATION_DRAIN: &str = "refit.rs/drain";
/// Node annotation for users: refit never uncordons such a node.
pub const ANNOTATION_KEEP_CORDONED: &str = "refit.rs/keep-cordoned";
/// Node annotation for users: names of Plans to retry on this node, separated by commas; `*` means all. Plan annotation for
/// users: name of the Job of `before` or `after` that failed and is to be tried again.
pub const ANNOTATION_RETRY: &str = "refit.rs/retry";
/// Node annotation for users: Plans that skip this node, separated by commas, each with or without `@<version>`.
pub const ANNOTATION_SKIP: &str = "refit.rs/skip";
/// Node annotation: the reboot that the node needs, as `refit agent` writes it.
pub const ANNOTATION_REBOOT_NEEDED: &str = "refit.rs/reboot-needed";
/// Plan annotation for users: no node starts, and drains stop; only upgrades that run finish.
pub const ANNOTATION_ABORT: &str = "refit.rs/abort";
/// Plan annotation: who set `spec.suspend`, when and why.
pub const ANNOTATION_SUSPENDED: &str = "refit.rs/suspended";
/// Plan annotation: who last ran the Plan again at its version, and when.
pub const ANNOTATION_RERUN: &str = "refit.rs/rerun";
/// Plan annotation: the commit that the Plan comes from.
pub const ANNOTATION_COMMIT: &str = "refit.rs/commit";
/// Plan annotation: the author of that commit.
pub const ANNOTATION_AUTHOR: &str = "refit.rs/author";
/// Prefix of the node annotation with the record of a Plan.
pub const ANNOTATION_RECORD_PREFIX: &str = "plan.refit.rs/";
/// Job annotation: UID of the Plan.
pub const ANNOTATION_PLAN_UID: &str = "refit.rs/plan-uid";
/// Job annotation: full name of the node.
pub const ANNOTATION_NODE_NAME: &str = "refit.rs/node";
/// Job annotation: UID of the node.
pub const ANNOTATION_NODE_UID: &str = "refit.rs/node-uid";
/// Job annotation: number of the attempt on this node for this hash, from 1.
pub const ANNOTATION_ATTEMPT: &str = "refit.rs/attempt";
/// Job annotation: digest of the user's part of the rendered template.
pub const ANNOTATION_INPUTS: &str = "refit.rs/inputs";
/// Job annotation: whether the node was unschedulable before the Job. Set if the drain is not refit's own.
pub const ANNOTATION_UNSCHEDULABLE_BEFORE: &str = "refit.rs/unschedulable-before";
/// Job and pod annotation: `spec.reboot.when` when the Job was created. Such a Job ends with a sentinel.
pub const ANNOTATION_REBOOT: &str = "refit.rs/reboot";
/// Job annotation: the Plan had `verify` when the Job was created, so its node is not done before another Job has
/// verified it.
pub const ANNOTATION_VERIFY: &str = "refit.rs/verify";
/// Annotation of a Job that verifies a node: UID of the Job that has upgraded it.
pub const ANNOTATION_VERIFIES: &str = "refit.rs/verifies";
/// Node annotation: the Jobs for whose success refit labelled the node, `<namespace>/<Plan>/<UID of the Job>`,
/// separated by commas.
pub const ANNOTATION_LABELLED_JOBS: &str = "refit.rs/labelled-jobs";
/// Annotation of a reboot Pod: the boot that it must end.
pub const ANNOTATION_BOOT_ID: &str = "refit.rs/boot-id";
/// Job annotation: boot IDs of the node under this Job, separated by commas.
pub const ANNOTATION_BOOT_IDS: &str = "refit.rs/boot-ids";
/// Job annotation: the result of this Job is recorded, and no controller adopts it again.
pub const ANNOTATION_RECORDED: &str = "refit.rs/recorded";
/// Lease annotation: UIDs of the Plans that this controller has known, separated by commas.
pub const ANNOTATION_KNOWN_PLANS: &str = "refit.rs/known-plans";
/// Node annotation: a controller keeps remediation operators off the node, as
/// [`RemediationPause`](super::RemediationPause) writes it.
pub const ANNOTATION_REMEDIATION: &str = "refit.rs/remediation";
/// Node annotations of Cluster API: the name of the Machine of the node, and its namespace.
pub const ANNOTATIONS_MACHINE: [&str; 2] = ["cluster.x-k8s.io/machine", "cluster.x-k8s.io/cluster-namespace"];
/// Annotation of a Machine of Cluster API: health checks leave it alone, whatever the value.
pub const ANNOTATION_SKIP_REMEDIATION: &str = "cluster.x-k8s.io/skip-remediation";
/// Pod annotation of Kubernetes: a kubelet has created the pod, from a file on its node.
pub const ANNOTATION_MIRROR: &str = "kubernetes.io/config.mirror";
/// Plan annotation: digest of refit's own fields, to detect a schema that prunes them.
pub const ANNOTATION_FIELDS: &str = "refit.rs/fields";
/// Plan: marks of the notifications that were sent.
pub const ANNOTATION_NOTIFIED: &str = "refit.rs/notified";

// Defined in `version`, whose messages name it, because `version` does not import `api`.
pub use refit_base::version::policy::ANNOTATION_APPROVE;
/// Plan annotation for users: limits in spite of which nodes start in this roll-out.
pub const ANNOTATION_DESPITE: &str = "refit.rs/despite";
/// Plan annotation for users: each new value polls the channel at once.
pub const ANNOTATION_POLL_NOW: &str = "refit.rs/poll-now";

/// Node label: the host name.
pub const LABEL_HOSTNAME: &str = "kubernetes.io/hostname";
/// Node label: the operating system.
pub const LABEL_OS: &str = "kubernetes.io/os";

/// A role of nodes whose majority a cluster needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ControlPlaneRole {
    /// The node runs the control plane.
    ControlPlane,
    /// The node is a member of etcd. K3s and RKE2 set this label, also on nodes that run nothing but etcd.
    Etcd,
}

impl ControlPlaneRole {
    pub const ALL: [Self; 2] = [Self::ControlPlane, Self::Etcd];

    /// Node labels of the role. `master` was the label before Kubernetes 1.24 (KEP-2067), `controlplane` is RKE1's.
    pub const fn labels(self) -> &'static [&'static str] {
        match self {
            Self::ControlPlane => &[
                "node-role.kubernetes.io/control-plane",
                "node-role.kubernetes.io/master",
                "node-role.kubernetes.io/controlplane",
            ],
            Self::Etcd => &["node-role.kubernetes.io/etcd"],
        }
    }

    /// What a node with the role is called.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ControlPlane => "control-plane",
            Self::Etcd => "etcd",
        }
    }
}

// Roles in `deploy/` that grant the controller what Plans need.

/// What every Plan needs.
pub const ROLE: &str = "system-upgrade-controller";
/// For `drain.checkFirst`.
pub const ROLE_DRAIN_CHECKS: &str = "system-upgrade-controller-check-drains";
/// For `drain.blockedBy` and `settle.daemonSets`.
pub const ROLE_PODS: &str = "system-upgrade-controller-pods";
/// For `pauseRemediation`.
pub const ROLE_REMEDIATION: &str = "system-upgrade-controller-remediation";

/// Field that selects a Node by name, whatever its labels say.
pub const FIELD_NODE_NAME: &str = "metadata.name";

// Environment variables of the containers of a Job. The first six are system-upgrade-controller's (S35), in every
// container. The others are for the containers in which refit cordons and drains, and identify the Plan and the node.

/// Environment: name of the node.
pub const ENV_NODE_NAME: &str = "SYSTEM_UPGRADE_NODE_NAME";
/// Environment: name of the pod.
pub const ENV_POD_NAME: &str = "SYSTEM_UPGRADE_POD_NAME";
/// Environment: UID of the pod.
pub const ENV_POD_UID: &str = "SYSTEM_UPGRADE_POD_UID";
/// Environment: name of the Plan.
pub const ENV_PLAN_NAME: &str = "SYSTEM_UPGRADE_PLAN_NAME";
/// Environment: `status.latestHash` of the Plan.
pub const ENV_PLAN_LATEST_HASH: &str = "SYSTEM_UPGRADE_PLAN_LATEST_HASH";
/// Environment: `status.latestVersion` of the Plan.
pub const ENV_PLAN_LATEST_VERSION: &str = "SYSTEM_UPGRADE_PLAN_LATEST_VERSION";
/// Environment: name of the controller that created the Job.
pub const ENV_CONTROLLER_NAME: &str = "REFIT_CONTROLLER_NAME";
/// Environment: namespace of the Plan.
pub const ENV_PLAN_NAMESPACE: &str = "REFIT_PLAN_NAMESPACE";
/// Environment: UID of the Plan. If it is set, `refit cordon` and `refit drain` run for that Plan.
pub const ENV_PLAN_UID: &str = "REFIT_PLAN_UID";
/// Environment: if it is set, `refit drain` writes the controllers of evicted pods to the ledger.
pub const ENV_NOTE_WORKLOADS: &str = "REFIT_NOTE_WORKLOADS";
/// Environment: the marks that `refit drain` makes on the node, as [`NodeMark::join`](super::NodeMark::join) writes them.
pub const ENV_NODE_MARKS: &str = "REFIT_NODE_MARKS";
/// Environment: UID of the node.
pub const ENV_NODE_UID: &str = "REFIT_NODE_UID";

/// Maximum length of an object's name (RFC 1123 subdomain).
const MAX_OBJECT_NAME_LEN: usize = 253;

/// The key of the label of a Plan. On a node its value is the hash for which the Plan is done.
pub fn plan_label(plan: &str) -> String {
    format!("{LABEL_PLAN_PREFIX}{plan}")
}

/// Whether the text is a valid name of a Secret.
pub fn is_secret_name(name: &str) -> bool {
    name.len() <= MAX_OBJECT_NAME_LEN && is_subdomain(name)
}
