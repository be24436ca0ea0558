//! Labels, annotations and other names: system-upgrade-controller's as they are, and refit's own under `refit.rs`.

/// API group of the Plan.
pub const GROUP: &str = "upgrade.cattle.io";
/// Job and pod label: name of the controller that made the Job.
pub const LABEL_CONTROLLER: &str = "upgrade.cattle.io/controller";
/// Job and pod label: whether the Plan is exclusive, `"true"` or `"false"`.
pub const LABEL_EXCLUSIVE: &str = "upgrade.cattle.io/exclusive";
/// Job and pod label: the node (shortened by `SafeConcatName` where a label cannot hold the name).
pub const LABEL_NODE: &str = "upgrade.cattle.io/node";
/// Job and pod label: the Plan.
pub const LABEL_PLAN: &str = "upgrade.cattle.io/plan";
/// Job and pod label: `status.latestVersion`.
pub const LABEL_VERSION: &str = "upgrade.cattle.io/version";
/// Prefix of the node label that says which hash of a Plan is done, and of the same label on Jobs and pods.
pub const LABEL_PLAN_PREFIX: &str = "plan.upgrade.cattle.io/";
/// Pod label: what a pod that no Job made is for, [`ROLE_REBOOT`] or [`ROLE_ASK`].
pub const LABEL_ROLE: &str = "refit.rs/role";
/// Value of [`LABEL_ROLE`]: the pod reboots its node.
pub const ROLE_REBOOT: &str = "reboot";
/// Value of [`LABEL_ROLE`]: the pod reads the sentinel on its node.
pub const ROLE_ASK: &str = "ask";
/// Value of the node label that keeps a Plan off a node.
pub const LABEL_VALUE_DISABLED: &str = "disabled";
/// Plan annotation: fields that take part in the digest, comma separated.
pub const ANNOTATION_DIGEST: &str = "upgrade.cattle.io/digest";
/// Job annotation: the TTL that the Job gets once its result is recorded.
pub const ANNOTATION_TTL: &str = "upgrade.cattle.io/ttl-seconds-after-finished";

/// Node annotation: the ledger, who cordoned the node and what it was before.
pub const ANNOTATION_CORDON: &str = "refit.rs/cordon";
/// Node annotation for people: a node with it is never uncordoned by refit.
pub const ANNOTATION_KEEP_CORDONED: &str = "refit.rs/keep-cordoned";
/// Node annotation for people: names of the Plans, separated by commas, whose failure on this node is to be tried again;
/// `*` means all.
pub const ANNOTATION_RETRY: &str = "refit.rs/retry";
/// Prefix of the node annotation that is the record of a Plan on a node.
pub const ANNOTATION_RECORD_PREFIX: &str = "plan.refit.rs/";
/// Job annotation: UID of the Plan.
pub const ANNOTATION_PLAN_UID: &str = "refit.rs/plan-uid";
/// Job annotation: full name of the node.
pub const ANNOTATION_NODE_NAME: &str = "refit.rs/node";
/// Job annotation: UID of the node.
pub const ANNOTATION_NODE_UID: &str = "refit.rs/node-uid";
/// Job annotation: which attempt on this node for this hash, from 1.
pub const ANNOTATION_ATTEMPT: &str = "refit.rs/attempt";
/// Job annotation: digest of the user's part of the rendered template.
pub const ANNOTATION_INPUTS: &str = "refit.rs/inputs";
/// Job annotation: whether the node was unschedulable before the Job, where the drain is not our own.
pub const ANNOTATION_UNSCHEDULABLE_BEFORE: &str = "refit.rs/unschedulable-before";
/// Job and pod annotation: `spec.reboot.when` as it was when the Job was made. A Job with it ends with a sentinel.
pub const ANNOTATION_REBOOT: &str = "refit.rs/reboot";
/// Annotation of a reboot Pod: the boot that it is to end.
pub const ANNOTATION_BOOT_ID: &str = "refit.rs/boot-id";
/// Job annotation: boot IDs of the node seen under this Job, comma separated.
pub const ANNOTATION_BOOT_IDS: &str = "refit.rs/boot-ids";
/// Job annotation: the result of this Job has been recorded; it is never adopted again.
pub const ANNOTATION_RECORDED: &str = "refit.rs/recorded";
/// Pod annotation: how far the drain that runs in the pod has come, and what it waits for.
pub const ANNOTATION_DRAIN: &str = "refit.rs/drain";
/// Plan annotation: digest of refit's own fields, to notice a schema that prunes them.
pub const ANNOTATION_FIELDS: &str = "refit.rs/fields";

/// Plan annotation for people: the version that `spec.versionPolicy.propose` may take.
pub const ANNOTATION_APPROVE: &str = "refit.rs/approve";
/// Plan annotation for people: a value that it has not had yet has the channel asked at once.
pub const ANNOTATION_POLL_NOW: &str = "refit.rs/poll-now";

/// Label that says on which host a node runs.
pub const LABEL_HOSTNAME: &str = "kubernetes.io/hostname";
/// Label that says which operating system a node runs.
pub const LABEL_OS: &str = "kubernetes.io/os";

/// Field by which a Node is selected whatever its labels say.
pub const FIELD_NODE_NAME: &str = "metadata.name";

// Environment variables of the containers of a Job. The first six are system-upgrade-controller's (S35) and in every container
// that it has too; the last four are where refit cordons and drains, and tell it for which Plan and node.

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
/// Environment: name of the controller that made the Job.
pub const ENV_CONTROLLER_NAME: &str = "REFIT_CONTROLLER_NAME";
/// Environment: namespace of the Plan.
pub const ENV_PLAN_NAMESPACE: &str = "REFIT_PLAN_NAMESPACE";
/// Environment: UID of the Plan. Where it is set, `refit cordon` and `refit drain` run for that Plan.
pub const ENV_PLAN_UID: &str = "REFIT_PLAN_UID";
/// Environment: where it is set, `refit drain` notes in the ledger whose pods it evicts.
pub const ENV_NOTE_WORKLOADS: &str = "REFIT_NOTE_WORKLOADS";
/// Environment: UID of the node.
pub const ENV_NODE_UID: &str = "REFIT_NODE_UID";
