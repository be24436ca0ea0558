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

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, LocalObjectReference, SecurityContext, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::access::ApiAccess;
use super::check::CheckSpec;
use super::failure::FailureSpec;
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
    /// Maximum number of nodes in progress at the same time. A node on which the Plan failed counts. With 0, or if
    /// absent, no node starts, unless `maxConcurrent` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<i64>,
    /// Maximum number of nodes in progress at the same time: a number, or a share of the selected nodes such as `25%`,
    /// rounded down to at least 1. Overrides `concurrency`. If absent, `concurrency` applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<NodeLimit>")]
    pub max_concurrent: Option<IntOrString>,
    /// How many of the selected nodes may be unavailable, as a number or as a share such as `10%` (rounded down, at least
    /// 1). While this number is reached, no further node starts. A node is unavailable if it is not Ready, if anyone has
    /// cordoned it, or if this Plan, or another Plan that cordons, drains, reboots or is exclusive, works on it. A node that
    /// is unavailable already may start. If absent, there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<NodeLimit>")]
    pub max_unavailable: Option<IntOrString>,
    /// The order in which nodes start: criteria, the most significant first. Among nodes that are equal by all of them, the
    /// node on which the controller runs comes last, and the others come as if `order` were absent. If absent, the order is
    /// that of system-upgrade-controller, which differs between Plans and versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8))]
    pub order: Option<Vec<OrderSpec>>,
    /// Whether a control-plane node starts only while, without it, a majority of the control-plane nodes is Ready and no
    /// Plan that cordons, drains, reboots or is exclusive works on them; likewise a node with the etcd role for the etcd
    /// nodes. Has no effect with fewer than three such nodes. A node that is not Ready itself may start nevertheless.
    /// Defaults to true if the Plan cordons, drains or reboots nodes, otherwise to false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_quorum: Option<bool>,
    /// Parts of the selected nodes that are upgraded one after the other, such as a canary, then a tenth, then all
    /// others. A node that joins later belongs to the last wave that has begun, unless its own is still to come. A
    /// failed node holds its wave. The nodes that no wave takes come last. If absent, there is one wave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub waves: Option<Vec<WaveSpec>>,
    /// Checks against servers such as Prometheus. A node starts, and the soak of a wave continues, only while all
    /// checks pass. A missing or unparseable response fails the check. Nodes in progress finish. Defaults to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub checks: Option<Vec<CheckSpec>>,
    /// If true, no further node starts; nodes in progress finish. Defaults to false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// What happens when the Plan fails on a node: whether other nodes continue, whether and when the failed one is retried,
    /// and whether it is uncordoned. If absent, a failed node keeps its slot and its cordon until a person intervenes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureSpec>,
    /// Time limit of a Job in seconds, including image pulls and waits. A Job that exceeds it fails. 0 means no limit.
    /// If absent or negative, the default of the controller applies (`SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub job_active_deadline_secs: Option<i64>,
    /// Selects the nodes that the Plan upgrades, by their labels. `{}` selects all nodes that have the label
    /// `kubernetes.io/hostname`. If absent, the Plan selects no node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,
    /// Facts that a node must have in addition to the labels of `nodeSelector`, such as a version of its kubelet, for
    /// the Plan to start on it. If absent, the labels suffice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_info: Option<NodeInfoSpec>,
    /// When a node is marked as done without a Job. If absent, each node gets one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_when: Option<SkipWhenSpec>,
    /// Service account of the Job's pods, in the Plan's namespace. A change runs the Plan again on all nodes. Defaults
    /// to the namespace's default service account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub service_account_name: Option<String>,
    /// URL from which the Plan gets its version. `https://update.k3s.io/v1-release/channels/stable` is a channel
    /// server, which redirects to the version; with `#stable` instead of `/stable`, its list of channels is read;
    /// `github://k3s-io/k3s` are the releases of a GitHub repository, without prereleases;
    /// `oci://docker.io/rancher/k3s-upgrade` are the tags of a repository in a registry. The controller polls it every
    /// 15 minutes, or as `SYSTEM_UPGRADE_PLAN_POLLING_INTERVAL` says. Ignored if `version` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Secret with the credentials for the channel, in the Plan's namespace. Its keys are one of: `token` (bearer);
    /// `username` and `password` (basic); `header` and `value` (a header of that name); `.dockerconfigjson` (for
    /// registries). Sent to the host of the channel only. If absent, refit uses no credentials, or `imagePullSecrets`
    /// for registries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel_secret_ref: Option<SecretRef>,
    /// Secret with certificate authorities to trust for the channel in addition to the public ones, as PEM under the
    /// key `ca.crt`, in the Plan's namespace. If absent, refit trusts only the public ones and those of `--ca-file`.
    #[serde(
        default,
        rename = "channelCASecretRef",
        skip_serializing_if = "Option::is_none"
    )]
    pub channel_ca_secret_ref: Option<SecretRef>,
    /// Version to upgrade to, such as `v1.33.4+k3s1`. `+` becomes `-`, so that the version can be an image tag and a
    /// label value. If absent, `channel` gives the version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Limits which versions the Plan takes from the channel, and when; how far a node may be behind; and whether
    /// images run by digest. The Plan keeps its version until the next one passes; the condition `UpToDate` says what
    /// holds that one back. If absent, the Plan follows the channel, except to older versions and to other
    /// distributions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version_policy: Option<VersionPolicySpec>,
    /// Plans in the same namespace that must be `Complete` before a node starts: for their current generation and
    /// version, at the version of this Plan if both follow the same channel, and at no older version if both install
    /// the same distribution. While this Plan waits, it holds no slot. Defaults to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub depends_on: Option<Vec<DependencySpec>>,
    /// What makes a node run the Plan. `RebootNeeded`: the node requests a reboot in its current boot. The Plan is done
    /// once the node has rebooted, and runs again at the next reboot request; nodes without a request count as done.
    /// Needs `reboot`; `upgrade`, `version` and `channel` may be absent. If absent, every selected node runs the Plan
    /// once for each version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<Trigger>,
    /// Secrets mounted into every container of the Job. A change of their content runs the Plan again on all nodes,
    /// unless `ignoreUpdates` is set. Defaults to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub secrets: Option<Vec<SecretSpec>>,
    /// Tolerations of the Job's pods, in addition to the one for unschedulable nodes that they always have. Defaults to
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub tolerations: Option<Vec<Toleration>>,
    /// If true, no other Plan that cordons, drains or is exclusive works on a node at the same time. Defaults to false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub exclusive: Option<bool>,
    /// Times at which nodes may start. The controller checks it before each node; nodes in progress finish outside of
    /// it. If absent, nodes may start at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<TimeWindowSpec>,
    /// Maintenance windows. A node starts while at least one is open and, unlike with `window`, only if it is expected to
    /// finish before the window closes: within the longest time that a node has taken in this roll-out, or within its time
    /// limits (`jobActiveDeadlineSecs`, and `reboot.timeout`, `settle.timeout` and `postCompleteDelay` where they are set),
    /// whichever is shorter. Cannot be combined with `window`. If absent, `window` applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub windows: Option<Vec<WindowSpec>>,
    /// Times in which no node starts, whatever the windows say. A node starts only if it will finish before the next
    /// one, as with `windows`. Defaults to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub blackouts: Option<Vec<BlackoutSpec>>,
    /// Time before which no node starts, in RFC 3339: `2026-12-05T02:00:00Z`. So a change can be merged now and take effect
    /// later. Nodes in progress finish. Defaults to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<String>,
    /// When the Plan runs again on all nodes, at the same version: a weekly package update, for example. Each repetition is
    /// a roll-out of its own, with another `latestHash`, and with the windows, waves and limits of the Plan. It begins when
    /// it is due and the roll-out before it is over; several that were missed meanwhile, or while the Plan was suspended,
    /// are one. If absent, every node runs the Plan once for each version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat: Option<RepeatSpec>,
    /// Container that checks the node before anything else happens there, and decides whether the Plan applies to it.
    /// By default it has no privileges; the host's `/` is mounted read-only. With exit code 0 the Job continues. With
    /// 77 the node is skipped at this version: refit adds the Plan to the annotation `refit.rs/skip` of the node, and
    /// reports the container's termination message as the reason. With any other exit code the Job fails. If absent,
    /// the Job starts with `prepare`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub preflight: Option<Box<ContainerSpec>>,
    /// Container that runs first, before the node is cordoned or drained. If it fails, the node has not been changed.
    /// If absent, the Job starts with the cordon or the drain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub prepare: Option<Box<ContainerSpec>>,
    /// Container that upgrades the node. If its image has neither tag nor digest, the version becomes the tag.
    /// Required, except with `trigger`: without it the node is only rebooted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub upgrade: Option<Box<ContainerSpec>>,
    /// Container that checks the node after the upgrade and the reboot, once it has settled and before it is
    /// uncordoned. It runs in a Job of its own, by default without privileges; the host's `/` is mounted read-only.
    /// With exit code 0 the node is done. With any other the Job retries, and in the end the node fails
    /// (`VerifyFailed`). If absent, nothing is verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub verify: Option<Box<ContainerSpec>>,
    /// If true, the node is cordoned before the upgrade, and uncordoned when it is done. Has no effect with `drain`,
    /// which cordons too. Defaults to false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub cordon: Option<bool>,
    /// Cordons and drains the node before the upgrade. `{}` drains with the defaults. If absent, the node is not
    /// drained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub drain: Option<DrainSpec>,
    /// Secrets with which the kubelet pulls the Job's images, in the Plan's namespace. Defaults to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub image_pull_secrets: Option<Vec<LocalObjectReference>>,
    /// Time from the end of the Job until the node counts as done and the next one starts, as a Go duration such as
    /// `30s` or `1m30s`. The node is schedulable during that time. Defaults to `0s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post_complete_delay: Option<String>,
    /// Priority class of the Job's pods. If absent, the default of the cluster applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub priority_class_name: Option<String>,
    /// If true, the image of `upgrade` is on a node before it is cordoned or drained, so that a slow or failing pull
    /// disturbs nothing; and while nodes are in progress, the next ones pull it. Has no effect without `cordon` or
    /// `drain`, nor on Windows. Defaults to false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub prepull: Option<bool>,
    /// Labels that a node gets when it is done. `$(LATEST_VERSION)` and `$(LATEST_HASH)` in their values are replaced
    /// by `status.latestVersion` and `status.latestHash`; `$$` becomes `$`. Defaults to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post_complete_labels: Option<BTreeMap<String, String>>,
    /// Reboots the node after the upgrade. The node is done only when it is Ready with a new boot ID. Not on Windows.
    /// If absent, the node is not rebooted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub reboot: Option<RebootSpec>,
    /// Conditions that a node must meet after its upgrade and its reboot before it is done and the next one starts. If
    /// absent, it must be Ready (for 10 seconds after a reboot).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settle: Option<SettleSpec>,
    /// How much of the host the Job's pods can access. `Full`: its `/` at `/host`, and its process, IPC and network
    /// namespaces. `Root`: its `/` at `/host` only. `None`: only the volumes that the Plan names, and no privileges
    /// unless the Plan sets them; not allowed with `reboot`. Windows nodes allow only `Full`. Defaults to `Full`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub host_access: Option<HostAccess>,
    /// Which of `prepare` and `upgrade` get a token of `serviceAccountName` for the API server. `PrepareOnly`: `prepare`,
    /// which reads the API in the images `k3s-upgrade` and `rke2-upgrade`. `None`: neither. `All`: both, as under
    /// system-upgrade-controller. `preflight` and `verify` never get one; refit's own `cordon` and `drain` always do.
    /// Defaults to `All`, and for `serviceAccountName: system-upgrade` to the variable `REFIT_JOB_API_ACCESS` of the controller,
    /// which refit's manifests set to `PrepareOnly`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = true))]
    pub api_access: Option<ApiAccess>,
    /// What the version is of. `Kubernetes`: it is the one that the kubelets of the nodes report after the upgrade, so that a
    /// node whose kubelet is newer does not start, and one that is not of the control plane starts only when the control
    /// plane has the version. `Other`: refit does not compare it. Defaults to `Kubernetes` if the image of `upgrade` is known
    /// to install it (`k3s-upgrade`, `rke2-upgrade`, their installers, images named after kubeadm), otherwise to `Other`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installs: Option<Installs>,
    /// What follows if the kubelet of a done node goes back to an older version, as on a machine that is re-imaged or rolled
    /// back (`Drifted` in `status.versionDiffers`). `Report`: nothing more. `Rerun`: a minute later, the Plan runs on the node
    /// again. Only for Plans that install Kubernetes. Defaults to `Report`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_drift: Option<OnDrift>,
}

/// A container of the Job.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerSpec {
    /// Image. Without tag and digest it gets the Plan's version as its tag: `rancher/k3s-upgrade` becomes
    /// `rancher/k3s-upgrade:v1.33.4-k3s1`. Required.
    #[serde(default)]
    #[schemars(!default)]
    pub image: String,
    /// Entrypoint. Defaults to the image's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Arguments of the entrypoint. Defaults to the image's, unless `command` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// Environment variables, in addition to the `SYSTEM_UPGRADE_*` variables that every container gets. Defaults to
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envs: Option<Vec<EnvVar>>,
    /// Secrets and `ConfigMaps` that provide environment variables. Defaults to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env_from: Option<Vec<EnvFromSource>>,
    /// Host paths to mount into the container, in addition to the host's `/` at `/host`. Defaults to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<VolumeSpec>>,
    /// Security context. For `prepare` it defaults to none, for `preflight` and `verify` to one without privileges. For
    /// `upgrade` it defaults to privileged with `CAP_SYS_BOOT`; not privileged if the controller runs with
    /// `SYSTEM_UPGRADE_JOB_PRIVILEGED=false`; none if `hostAccess` is `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    /// Where the Secret is mounted, read-only: an absolute path, or a path below `/run/system-upgrade/secrets`. If
    /// empty, it is mounted there under its name.
    #[serde(default)]
    #[schemars(!default)]
    pub path: String,
    /// If true, a change of the Secret does not run the Plan again, and the Secret may be missing. Defaults to false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore_updates: Option<bool>,
    /// Mode of the files as a decimal number: 256 is 0400. Defaults to 420, which is 0644.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_mode: Option<i32>,
}

/// How to drain the node. The fields that system-upgrade-controller has too are flags of `kubectl drain`;
/// `deleteEmptydirData` and `ignoreDaemonSets` default to true.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrainSpec {
    /// Time after which the drain fails, as a Go duration such as `5m` or as a number of nanoseconds. If absent or 0,
    /// only the deadline of the Job applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DrainTimeout>,
    /// Seconds that each pod has to stop. If absent or negative, the pod's own grace period applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_period: Option<i32>,
    /// Old name of `deleteEmptydirData`. Only one of the two may be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete_local_data: Option<bool>,
    /// If true, pods with emptyDir volumes are evicted, and their data is lost. If false, such a pod fails the drain.
    /// Defaults to true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete_emptydir_data: Option<bool>,
    /// If true, pods of DaemonSets stay on the node. If false, such a pod fails the drain. Defaults to true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore_daemon_sets: Option<bool>,
    /// If true, pods without a controller are evicted, and nothing recreates them. If false, such a pod fails the
    /// drain. Defaults to false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
    /// If true, pods are deleted instead of evicted, which ignores `PodDisruptionBudgets`. Defaults to false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_eviction: Option<bool>,
    /// The drain does not wait for pods that have been terminating for longer than this many seconds. If absent or 0,
    /// it waits for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_wait_for_delete_timeout: Option<i64>,
    /// Selects the pods to evict, by their labels. The drain never evicts the pods of upgrades. If absent, it evicts
    /// all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<LabelSelector>,
    /// Pods that delay a node. While one of them runs on a node, the Plan does not start there, and starts other nodes.
    /// A node that has started is drained whatever runs there. The controller must be allowed to list pods. Defaults to
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), extend("x-in-job" = false))]
    pub blocked_by: Option<Vec<PodBlockerSpec>>,
    /// If true, the drain waits until the volumes of the evicted pods are detached from the node, so that none of them
    /// is stuck there while the node is down. Volumes of pods that stay on the node do not count. Limited by `timeout`.
    /// Has no effect on Windows. Defaults to false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_for_detach: Option<bool>,
    /// If true, the node has the label `node.kubernetes.io/exclude-from-external-load-balancers` from its cordon until it is
    /// uncordoned, so that load balancers send no traffic to it. Has no effect on Windows. Defaults to false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_from_load_balancers: Option<bool>,
    /// If true, the node has the annotations `cluster-autoscaler.kubernetes.io/scale-down-disabled` and
    /// `karpenter.sh/do-not-disrupt` from its cordon until it is uncordoned, so that no autoscaler removes it
    /// meanwhile. Has no effect on Windows. Defaults to false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prevent_scale_down: Option<bool>,
    /// If true, nodes that are still to be upgraded have the taint `pending.refit.rs/<plan>` with the effect
    /// `PreferNoSchedule` from the first node that starts until they are done, so that the scheduler prefers upgraded
    /// nodes for evicted pods. Defaults to false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-in-job" = false))]
    pub avoid_pending_nodes: Option<bool>,
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

impl JsonSchema for DrainTimeout {
    fn schema_name() -> Cow<'static, str> {
        "DrainTimeout".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "x-kubernetes-int-or-string": true })
    }
}

mod meaning;
#[cfg(test)]
mod tests;
