//! `Plan.spec`. The doc comments are what `kubectl explain` prints.
//!
//! Reading is more lenient than the schema: what the schema requires is `#[serde(default)]` here (and `!default` for the
//! schema), so that one Plan stored under another schema cannot break the list of all. `crd` turns what this module
//! derives into the CustomResourceDefinition.
//!
//! Containers are boxed: inline they are half of a Plan, and Plans that futures and threads hold by value overflow their
//! stacks without optimisation.
//!
//! `x-in-job` marks a field that ends up in a Job: an edit of it replaces the Jobs that have not reached their upgrade.
//! All fields of `drain` do, but for those with `x-in-job = false`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, LocalObjectReference, SecurityContext, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::access::ApiAccess;
use super::check::CheckSpec;
use super::failure::FailureSpec;
use super::field_enum::{field_enum, inline_schema};
use super::hook::HookSpec;
use super::installs::{Installs, OnDrift};
use super::node_info::{NodeInfoSpec, SkipWhenSpec};
use super::node_limit::NodeLimit;
use super::order::OrderSpec;
use super::pod_blocker::PodBlockerSpec;
use super::reboot::{HostAccess, RebootSpec, SettleSpec};
use super::repeat::RepeatSpec;
use super::schedule::{BlackoutSpec, WindowSpec};
use super::secret_ref::SecretRef;
use super::status::PlanStatus;
use super::trigger::Trigger;
use super::version_policy::VersionPolicySpec;
use super::wait_for::WaitForSpec;
use super::wave::WaveSpec;
use super::window::TimeWindowSpec;

/// A Plan says which nodes to upgrade to which version, with which container, and how many at a time.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[kube(
    group = "upgrade.cattle.io",
    version = "v1",
    kind = "Plan",
    plural = "plans",
    singular = "plan",
    namespaced,
    status = "PlanStatus",
    derive = "PartialEq",
    derive = "Default",
    // A Plan need not have a spec (S10), and one that has none must not break the list of all. The derive takes no
    // `serde` attribute, but does take a condition that always holds.
    attr = "cfg_attr(all(), serde(default))",
    doc = "Plan says which nodes are upgraded to which version, by which container, and how many at a time."
)]
#[serde(rename_all = "camelCase")]
pub struct PlanSpec {
    /// Maximum number of nodes in progress at the same time, including failed ones. With 0, or if absent, no node
    /// starts, unless `maxConcurrent` is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<i64>,
    /// Maximum number of nodes in progress: a number, or a share of the selected nodes such as `25%` (rounded down,
    /// at least 1). Overrides `concurrency`, which applies if this is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<NodeLimit>")]
    pub max_concurrent: Option<IntOrString>,
    /// How many of the selected nodes may be unavailable before no further node starts: a number, or a share such as
    /// `10%` (rounded down, at least 1). If absent, there is no limit.
    ///
    /// Unavailable are nodes that are not Ready, cordoned, or worked on by this Plan or another one that cordons,
    /// drains, reboots or is exclusive. An unavailable node may start.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<NodeLimit>")]
    pub max_unavailable: Option<IntOrString>,
    /// The order in which nodes start: criteria, the most significant first. If absent, the order is that of
    /// system-upgrade-controller.
    ///
    /// Of equal nodes, the controller's own comes last. The order of system-upgrade-controller differs between Plans
    /// and versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8))]
    pub order: Option<Vec<OrderSpec>>,
    /// If true, a control-plane or etcd node starts only while a majority of these nodes stays available without it.
    /// Defaults to true if the Plan cordons, drains or reboots nodes.
    ///
    /// Available are nodes that are Ready, and left alone by Plans that cordon, drain, reboot or are exclusive. Has no
    /// effect with fewer than three, or for a node that is not Ready itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_quorum: Option<bool>,
    /// Parts of the selected nodes that are upgraded one after the other, such as a canary, then a tenth; nodes that
    /// no wave takes come last. If absent, there is one wave.
    ///
    /// A failed node holds its wave.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub waves: Option<Vec<WaveSpec>>,
    /// Checks against servers such as Prometheus, all of which must pass for a node to start and for a soak to
    /// continue. Defaults to none.
    ///
    /// A missing or unparseable response fails the check.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub checks: Option<Vec<CheckSpec>>,
    /// If true, no further node starts; nodes in progress finish. Defaults to false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// What happens when the Plan fails on a node. If absent, a failed node keeps its slot and its cordon until a
    /// person intervenes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureSpec>,
    /// Time limit of a Job in seconds, including image pulls and waits. 0 means no limit. If absent or negative,
    /// `SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS` of the controller applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub job_active_deadline_secs: Option<i64>,
    /// Selects the nodes that the Plan upgrades, by their labels. `{}` selects all nodes that have the label
    /// `kubernetes.io/hostname`. If absent, the Plan selects no node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,
    /// Facts that a node must report, besides the labels of `nodeSelector`, for the Plan to start on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_info: Option<NodeInfoSpec>,
    /// When a node is marked as done without a Job. If absent, each node gets one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_when: Option<SkipWhenSpec>,
    /// Service account of the Job's pods. A change runs the Plan again on all nodes. Defaults to the namespace's
    /// default one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub service_account_name: Option<String>,
    /// URL from which the Plan gets its version, unless `version` is set.
    ///
    /// `https://update.k3s.io/v1-release/channels/stable` redirects to it; `…/channels#stable` reads the server's list;
    /// `github://k3s-io/k3s` are releases of a repository, without prereleases; `oci://docker.io/rancher/k3s-upgrade`
    /// are tags in a registry. Polled every 15 minutes, or as `SYSTEM_UPGRADE_PLAN_POLLING_INTERVAL` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Secret with the credentials for the channel, in the Plan's namespace. Defaults to none, and to
    /// `imagePullSecrets` for registries.
    ///
    /// Its keys are one of: `token` (bearer); `username` and `password` (basic); `header` and `value`;
    /// `.dockerconfigjson` (registries). Sent to the host of the channel only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel_secret_ref: Option<SecretRef>,
    /// Secret with certificate authorities to trust for the channel, as PEM under `ca.crt`, in the Plan's namespace.
    ///
    /// They are trusted besides the public ones and those of `--ca-file`.
    #[serde(rename = "channelCASecretRef", skip_serializing_if = "Option::is_none")]
    pub channel_ca_secret_ref: Option<SecretRef>,
    /// Version to upgrade to, such as `v1.33.4+k3s1`; `+` becomes `-`, for tags and labels. If absent, `channel`
    /// gives the version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Limits which versions the Plan takes, and when, how far a node may be behind, and says whether images run by
    /// digest. If absent, the Plan follows the channel, except to older versions and other distributions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version_policy: Option<VersionPolicySpec>,
    /// Plans in the same namespace that must be `Complete` before a node starts. Defaults to none.
    ///
    /// They must be `Complete` for their current generation and version, at this Plan's version if both follow one
    /// channel (with `maxMinorSkip`, or a newer one), and at no older one if both install one distribution.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub depends_on: Option<Vec<DependencySpec>>,
    /// `RebootNeeded`: a node runs the Plan when it requests a reboot in its current boot, again at each request;
    /// others count as done. If absent, every node runs the Plan once for each version.
    ///
    /// Needs `reboot`; `upgrade`, `version` and `channel` may be absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger: Option<Trigger>,
    /// Secrets mounted into every container. A change of their content runs the Plan again on all nodes, unless
    /// `ignoreUpdates` is set. Defaults to none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub secrets: Option<Vec<SecretSpec>>,
    /// Tolerations of the Job's pods, in addition to the one for unschedulable nodes that they always have. Defaults to
    /// none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub tolerations: Option<Vec<Toleration>>,
    /// If true, no other Plan that cordons, drains or is exclusive works on a node at the same time. Defaults to false.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub exclusive: Option<bool>,
    /// Times at which nodes may start, checked before each node; nodes in progress finish outside of it. If absent,
    /// at any time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<TimeWindowSpec>,
    /// Maintenance windows, instead of `window`.
    ///
    /// A node starts while one is open, and only if it is expected to finish before it closes: within the longest
    /// time that a node has taken in this roll-out, or its time limits (`jobActiveDeadlineSecs`, `reboot.timeout`,
    /// `settle.timeout`, `postCompleteDelay`), whichever is shorter.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub windows: Option<Vec<WindowSpec>>,
    /// Times in which no node starts, whatever the windows say, and which no node is expected to reach in progress.
    /// Defaults to none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub blackouts: Option<Vec<BlackoutSpec>>,
    /// Time before which no node starts, in RFC 3339: `2026-12-05T02:00:00Z`. Defaults to none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<String>,
    /// When the Plan runs again on all nodes at the same version. If absent, every node runs the Plan once for each
    /// version.
    ///
    /// For example a weekly package update: each repetition is a roll-out with another `latestHash`; it begins when it
    /// is due and the roll-out before it is over, and missed ones are one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat: Option<RepeatSpec>,
    /// Container that checks the node before anything happens there, by default without privileges and with the host's
    /// `/` read-only. Defaults to none.
    ///
    /// Exit code 0: the Job continues. 77: the node is skipped at this version (annotation `refit.rs/skip`), for the
    /// reason in the termination message. Other: the Job fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub preflight: Option<Box<ContainerSpec>>,
    /// Container that runs before the node is cordoned or drained. Defaults to none.
    ///
    /// If it fails, the node has not been changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub prepare: Option<Box<ContainerSpec>>,
    /// Container that upgrades the node. Without tag and digest its image gets the version as its tag. Required,
    /// except with `trigger`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub upgrade: Option<Box<ContainerSpec>>,
    /// Container that checks the node once it has upgraded, rebooted and settled, before it is uncordoned. Defaults to
    /// none.
    ///
    /// Exit code 0: the node is done. Other: the Job retries, and in the end the node fails (`VerifyFailed`). It runs
    /// in a Job of its own, by default without privileges and with the host's `/` read-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub verify: Option<Box<ContainerSpec>>,
    /// If true, the node is cordoned before the upgrade, and uncordoned when it is done. Defaults to false.
    ///
    /// Has no effect with `drain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub cordon: Option<bool>,
    /// Cordons and drains the node before the upgrade. `{}` drains with the defaults. If absent, the node is not
    /// drained.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub drain: Option<DrainSpec>,
    /// If true, remediation operators leave a node alone while the Plan works on it, and a failed node until it is
    /// retried. Defaults to false.
    ///
    /// The node has the label `remediation.medik8s.io/exclude-from-remediation`, the controller holds its Lease
    /// `medik8s-leases/node-<name>`, and its Machine of Cluster API has the annotation
    /// `cluster.x-k8s.io/skip-remediation`. A node whose Lease another one holds does not start. The controller must be
    /// allowed to write these Leases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_remediation: Option<bool>,
    /// If true, a node that joins after the Plan's first roll-out has begun has the taint
    /// `refit.rs/new-node:NoSchedule` until the Plan is done there. Defaults to false.
    ///
    /// Until then no pod starts on it. Nodes that were there before never get it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taint_new_nodes: Option<bool>,
    /// Secrets with which the kubelet pulls the Job's images, in the Plan's namespace. Defaults to none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub image_pull_secrets: Option<Vec<LocalObjectReference>>,
    /// Time from the end of the Job until the node counts as done, as a Go duration such as `1m30s`. Defaults to
    /// `0s`.
    ///
    /// The node is schedulable meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub post_complete_delay: Option<String>,
    /// Priority class of the Job's pods. If absent, the default of the cluster applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub priority_class_name: Option<String>,
    /// If true, the image of `upgrade` is on a node before it is cordoned or drained, and the next nodes pull it
    /// while others are in progress. Defaults to false.
    ///
    /// Has no effect without `cordon` or `drain`, nor on Windows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub prepull: Option<bool>,
    /// Labels that a node gets when it is done. `$(LATEST_VERSION)` and `$(LATEST_HASH)` in values are replaced; `$$`
    /// becomes `$`. Defaults to none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub post_complete_labels: Option<BTreeMap<String, String>>,
    /// Reboots the node after the upgrade; it is done when it is Ready with a new boot ID. Not on Windows. Defaults
    /// to none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub reboot: Option<RebootSpec>,
    /// Conditions that a node must meet after its upgrade and reboot before the next one starts. If absent, it must
    /// be Ready (for 10 seconds after a reboot).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settle: Option<Box<SettleSpec>>,
    /// What the Job's pods can access of the host. `Full`: its `/` at `/host`, and its process, IPC and network
    /// namespaces. `Root`: its `/` only. `None`: only the Plan's volumes, and no privileges by default; not with
    /// `reboot`. Windows allows only `Full`. Defaults to `Full`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub host_access: Option<HostAccess>,
    /// Which of `prepare` and `upgrade` get a token of `serviceAccountName`: `All`, `PrepareOnly` or `None`. Defaults
    /// to `All`, and for `serviceAccountName: system-upgrade` to `REFIT_JOB_API_ACCESS` of the controller.
    ///
    /// `preflight` and `verify` never get one; `cordon` and `drain` do; `before` and `after` do with `All`. refit's
    /// manifests set `REFIT_JOB_API_ACCESS` to `PrepareOnly`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub api_access: Option<ApiAccess>,
    /// What the version is of: `Kubernetes`, or `Other`, which is not compared with nodes. Defaults to `Kubernetes` for
    /// images known to install it, otherwise to `Other`.
    ///
    /// With `Kubernetes`, a node with a newer kubelet does not start, and other nodes wait for the control plane.
    /// Images known to install it are `k3s-upgrade`, `rke2-upgrade`, their installers, and those named after kubeadm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installs: Option<Installs>,
    /// What follows if the kubelet of a done node goes back to an older version: `Report`, or `Rerun`, which runs the
    /// Plan there again. Defaults to `Report`.
    ///
    /// That happens on a machine that was re-imaged. `Report` is only an entry in `status.versionDiffers`; `Rerun`
    /// follows after a minute. Has an effect only if the Plan installs Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_drift: Option<OnDrift>,
    /// Container that runs once for each roll-out, before its first node starts, such as a snapshot of etcd. No node
    /// starts until it has succeeded; `failure.retries` applies. Defaults to none.
    ///
    /// It runs in a Job of its own, by default on any node and without access to the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Box<HookSpec>>,
    /// Container that runs once for each roll-out, after its last node, such as a smoke test. The Plan is not
    /// `Complete` until it has succeeded; `failure.retries` applies. Defaults to none.
    ///
    /// It runs in a Job of its own, by default on any node and without access to the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Box<HookSpec>>,
}

/// A container of the Job.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerSpec {
    /// Image. Without tag and digest it gets the version as its tag, such as `rancher/k3s-upgrade:v1.33.4-k3s1`.
    /// Required.
    #[serde(default)]
    #[schemars(!default)]
    pub image: String,
    /// Entrypoint. Defaults to the image's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Arguments of the entrypoint. Defaults to the image's, unless `command` is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// Environment variables, besides `SYSTEM_UPGRADE_*`, which every container gets. Defaults to none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub envs: Option<Vec<EnvVar>>,
    /// Secrets and `ConfigMaps` that provide environment variables. Defaults to none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_from: Option<Vec<EnvFromSource>>,
    /// Host paths to mount into the container, besides the host's `/` at `/host`, which `hostAccess: None` leaves out.
    /// Defaults to none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<VolumeSpec>>,
    /// Security context. Defaults to none for `prepare`, to one without privileges for `preflight`, `verify`,
    /// `before` and `after`, and to privileged with `CAP_SYS_BOOT` for `upgrade`, unless `SYSTEM_UPGRADE_JOB_PRIVILEGED` is false or
    /// `hostAccess` is `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_context: Option<SecurityContext>,
}

/// A host path mounted into a container.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSpec {
    /// Name of the volume. Required.
    #[serde(default)]
    #[schemars(!default)]
    pub name: String,
    /// Path on the host. Required.
    #[serde(default)]
    #[schemars(!default)]
    pub source: String,
    /// Path in the container. Required.
    #[serde(default)]
    #[schemars(!default)]
    pub destination: String,
}

/// A Plan that must be complete before nodes of this one start.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DependencySpec {
    /// Name of the Plan. Required.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// A Secret mounted into every container of the Job.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretSpec {
    /// Name of the Secret, in the Plan's namespace. Required.
    #[serde(default)]
    #[schemars(!default)]
    pub name: String,
    /// Where the Secret is mounted, read-only: an absolute path, or one below `/run/system-upgrade/secrets`. If
    /// empty, its name there. Required.
    #[serde(default)]
    #[schemars(!default)]
    pub path: String,
    /// If true, a change of the Secret does not run the Plan again, and the Secret may be missing. Defaults to false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignore_updates: Option<bool>,
    /// Mode of the files as a decimal number: 256 is 0400. Defaults to 420, which is 0644.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_mode: Option<i32>,
}

/// How to drain the node. The fields that system-upgrade-controller has too are flags of `kubectl drain`;
/// `deleteEmptydirData` and `ignoreDaemonSets` default to true.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrainSpec {
    /// Time after which the drain fails, or does what `afterTimeout` says, as a Go duration such as `5m`, or in nanoseconds.
    /// If absent or 0, only the deadline of the Job applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DrainTimeout>,
    /// Seconds that each pod has to stop. If absent or negative, the pod's own grace period applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period: Option<i32>,
    /// Old name of `deleteEmptydirData`. Only one of the two may be set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_local_data: Option<bool>,
    /// If true, pods with emptyDir volumes are evicted, and their data is lost. If false, one fails the drain.
    /// Defaults to true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_emptydir_data: Option<bool>,
    /// If true, pods of DaemonSets stay. If false, one fails the drain. Defaults to true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignore_daemon_sets: Option<bool>,
    /// If true, pods without a controller are evicted, and nothing recreates them. If false, one fails the drain.
    /// Defaults to false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
    /// If true, pods are deleted instead of evicted, which ignores `PodDisruptionBudgets`. Defaults to false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_eviction: Option<bool>,
    /// Pods that have been terminating for longer than this many seconds are not waited for. If absent or 0, all are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_wait_for_delete_timeout: Option<i64>,
    /// Labels of the pods to evict. If absent, all others.
    ///
    /// Pods of upgrades never are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<LabelSelector>,
    /// Pods that, while they run on a node, keep the Plan from starting there; other nodes start. Defaults to none.
    ///
    /// The controller must be allowed to list pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), extend("x-in-job" = false))]
    pub blocked_by: Option<Vec<PodBlockerSpec>>,
    /// If true, the drain waits, up to `timeout`, until the volumes of the evicted pods are detached from the node.
    /// Defaults to false.
    ///
    /// Has no effect on Windows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_for_detach: Option<bool>,
    /// If true, the node has the label `node.kubernetes.io/exclude-from-external-load-balancers` while it is
    /// cordoned. Defaults to false.
    ///
    /// Has no effect on Windows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude_from_load_balancers: Option<bool>,
    /// If true, the node has the annotations `cluster-autoscaler.kubernetes.io/scale-down-disabled` and
    /// `karpenter.sh/do-not-disrupt` while it is cordoned. Defaults to false.
    ///
    /// Has no effect on Windows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prevent_scale_down: Option<bool>,
    /// If true, nodes that are still to be upgraded have the taint `pending.refit.rs/<plan>:PreferNoSchedule`, so
    /// that evicted pods prefer upgraded ones. Defaults to false.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = false))]
    pub avoid_pending_nodes: Option<bool>,
    /// Time between the label of `excludeFromLoadBalancers` and the first eviction, as a Go duration such as `1m`.
    /// Defaults to `0s`.
    ///
    /// Load balancers notice the label in this time. Comes before `timeout`, and counts towards the deadline of the
    /// Job. Has no effect on Windows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_balancer_delay: Option<String>,
    /// Time between the end of the drain and the upgrade, as a Go duration such as `10s`. Defaults to `0s`.
    ///
    /// Counts towards the deadline of the Job. Has no effect on Windows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settle_delay: Option<String>,
    /// What happens to pods that could not be evicted within `timeout`. Defaults to `Fail`.
    ///
    /// `Fail` fails the node; `Delete` deletes them, whatever their `PodDisruptionBudgets` allow, and waits for as long
    /// again; `Continue` leaves them, and the upgrade begins. `Delete` concerns no pods of `order` whose turn had not
    /// come: they are evicted in the time that follows, and only those that still block at its end are deleted. Has no
    /// effect on Windows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_timeout: Option<AfterTimeout>,
    /// Pods that are evicted last, as groups by labels: first all other pods, then those of the first entry, and so on.
    /// Defaults to none.
    ///
    /// Each group begins when the one before is gone. Has no effect on Windows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub order: Option<Vec<LabelSelector>>,
    /// Pods that may end by themselves once the node is cordoned, before the drain begins. Defaults to none.
    ///
    /// The drain begins when they have succeeded, failed or are gone. Entries wait at the same time. Pods of
    /// DaemonSets, static pods and those of upgrades are not waited for. Has no effect on Windows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub wait_for: Option<Vec<WaitForSpec>>,
    /// If true, a node starts only if its drain would end, by what is known before. Defaults to the controller's
    /// `REFIT_CHECK_DRAINS`.
    ///
    /// That is, the drain would refuse no pod, no `PodDisruptionBudget` refuses an eviction for good, and the pods fit
    /// on other nodes, by an estimate. Other nodes start. The controller must be allowed to list pods and
    /// `PodDisruptionBudgets`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = false))]
    pub check_first: Option<bool>,
}

field_enum! {
    /// What happens to pods that could not be evicted in time.
    #[derive(Default)]
    AfterTimeout {
        /// The drain fails.
        #[default]
        Fail,
        /// They are deleted.
        Delete,
        /// They stay.
        Continue,
    }
}

/// `drain.timeout`: nanoseconds, or a Go duration.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(untagged)]
pub enum DrainTimeout {
    /// Nanoseconds, as system-upgrade-controller up to 0.16.2 wrote them.
    Nanoseconds(i64),
    /// A Go duration, passed to the drain unchanged.
    Text(String),
}

inline_schema!(DrainTimeout { "x-kubernetes-int-or-string": true });

mod meaning;
#[cfg(test)]
mod tests;
