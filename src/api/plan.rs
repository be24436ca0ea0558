//! `Plan.spec`. The doc comments are what `kubectl explain` prints.
//!
//! Reading is more lenient than the schema: what the schema requires is `#[serde(default)]` here (and `!default` for the
//! schema), so that one Plan stored under another schema cannot break the list of all. `crd` turns what this module
//! derives into the CustomResourceDefinition.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, LocalObjectReference, SecurityContext, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::reboot::{HostAccess, RebootSpec, SettleSpec};
use super::status::PlanStatus;
use super::version_policy::VersionPolicySpec;
use super::window;

/// A Plan says which nodes are upgraded to which version, by which container, and how many at a time.
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
    /// How many nodes are worked on at the same time. 0 or absent starts none. A node on which the Plan failed counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<i64>,
    /// How many nodes are worked on at the same time, as a number or as a share of the selected nodes such as `25%`
    /// (rounded down, at least 1). Replaces `concurrency`; absent means `concurrency`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent: Option<IntOrString>,
    /// Starts no new node while true. Nodes that are under way finish. Absent means false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Seconds after which a Job is ended and counts as failed, waiting and image pulls included. 0 means no limit;
    /// absent or negative means the controller's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_active_deadline_secs: Option<i64>,
    /// Which nodes the Plan is for. Absent selects none, `{}` all that have the label `kubernetes.io/hostname`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,
    /// Service account of the Job's pods, in the Plan's namespace. Another one runs the Plan again. Absent means the
    /// namespace's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// URL that says the version. `https://update.k3s.io/v1-release/channels/stable` answers with a redirect whose Location
    /// ends in it; with `#stable` in place of `/stable`, the list of a channel server's channels is read; `github://k3s-io/k3s`
    /// are the releases of a repository on GitHub, prereleases aside; `oci://docker.io/rancher/k3s-upgrade` are the tags of a
    /// repository in a registry. Asked every 15 minutes, unless the controller is set otherwise. Ignored when `version` is
    /// set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Secret with which the channel is asked, in the Plan's namespace: `token` (bearer), or `username` and `password`
    /// (basic), or `header` and `value` (a header of that name), or, for registries, `.dockerconfigjson`. Sent to the channel's
    /// own host only. Absent means none; registries are then asked with `imagePullSecrets`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel_secret_ref: Option<SecretRef>,
    /// Secret with the certificate authorities to trust for the channel beside the public ones, in the Plan's namespace:
    /// PEM under `ca.crt`. Absent means none.
    #[serde(
        default,
        rename = "channelCASecretRef",
        skip_serializing_if = "Option::is_none"
    )]
    pub channel_ca_secret_ref: Option<SecretRef>,
    /// Version to upgrade to, such as `v1.33.4+k3s1`. `+` becomes `-`, so that it is an image tag and a label value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Which versions are taken from the channel, and when; how far a node may be behind; whether images run by digest. A Plan
    /// that has one keeps its last good version, and says in the condition `UpToDate` what holds the next one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version_policy: Option<VersionPolicySpec>,
    /// Secrets mounted into every container of the Job. A change of one runs the Plan again, unless `ignoreUpdates`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<Vec<SecretSpec>>,
    /// Tolerations of the Job's pods, beside the one for unschedulable nodes that they always have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerations: Option<Vec<Toleration>>,
    /// No other Plan that cordons, drains or is exclusive may work on a node at the same time. Absent means false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclusive: Option<bool>,
    /// When nodes may be started. Asked before each node; nodes that are under way finish. Absent means always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<TimeWindowSpec>,
    /// Container that runs first, before the node is cordoned or drained. When it fails, nothing has happened to the
    /// node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare: Option<ContainerSpec>,
    /// Container that upgrades the node. Its image gets the version as tag when it has neither tag nor digest.
    #[serde(default)]
    #[schemars(!default)]
    pub upgrade: ContainerSpec,
    /// Cordons the node before the upgrade, and undoes that when the node is done. Ignored with `drain`, which cordons
    /// too. Absent means false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordon: Option<bool>,
    /// Cordons and drains the node before the upgrade. `{}` is enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainSpec>,
    /// Secrets with which the Job's images are pulled, in the Plan's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_secrets: Option<Vec<LocalObjectReference>>,
    /// How long to wait after a Job has completed before the node counts as done and the next one starts, as a Go
    /// duration such as `30s` or `1m30s`. The node is schedulable meanwhile. Absent means no wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post_complete_delay: Option<String>,
    /// Priority class of the Job's pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// Labels put on a node when it is done. In their values `$(LATEST_VERSION)` and `$(LATEST_HASH)` are replaced by
    /// what status has; `$$` is a `$`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post_complete_labels: Option<BTreeMap<String, String>>,
    /// Reboots the node after the upgrade, and proves that it came back: its boot ID is another one, and it is Ready. Not on
    /// Windows. Absent means no reboot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reboot: Option<RebootSpec>,
    /// What a node must show after its upgrade, and its reboot if there is one, before it counts as done and the next one
    /// starts. Absent means that it is Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settle: Option<SettleSpec>,
    /// What the Job's pods get of the host. `Full`: its `/` at `/host`, and its process, IPC and network namespaces. `Root`: its
    /// `/` at `/host` only. `None`: nothing but the volumes that the Plan names, and no privileges unless the Plan asks for
    /// them; not with `reboot`. On Windows only `Full`. Absent means `Full`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_access: Option<HostAccess>,
}

/// A container of the Job.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerSpec {
    /// Image. Without tag and digest it gets the Plan's version as tag: `rancher/k3s-upgrade` becomes
    /// `rancher/k3s-upgrade:v1.33.4-k3s1`.
    #[serde(default)]
    #[schemars(!default)]
    pub image: String,
    /// Entrypoint. Absent means the image's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Arguments of the entrypoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// Environment variables, beside the `SYSTEM_UPGRADE_*` ones that every container gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envs: Option<Vec<EnvVar>>,
    /// Sources of environment variables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env_from: Option<Vec<EnvFromSource>>,
    /// Host paths mounted into the container, beside the host's `/`, which is at `/host`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<VolumeSpec>>,
    /// Security context. Absent means privileged with `CAP_SYS_BOOT` for `upgrade`, and none for `prepare`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_context: Option<SecurityContext>,
}

/// A host path mounted into a container.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSpec {
    /// Name of the volume.
    #[serde(default)]
    #[schemars(!default)]
    pub name: String,
    /// Path on the host.
    #[serde(default)]
    #[schemars(!default)]
    pub source: String,
    /// Path in the container.
    #[serde(default)]
    #[schemars(!default)]
    pub destination: String,
}

/// A secret in the Plan's namespace.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
pub struct SecretRef {
    /// Name of the secret.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// A secret mounted into every container of the Job.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretSpec {
    /// Name of the secret, in the Plan's namespace.
    #[serde(default)]
    #[schemars(!default)]
    pub name: String,
    /// Where it is mounted, read-only: an absolute path, or one below `/run/system-upgrade/secrets`. Empty means its
    /// name there.
    #[serde(default)]
    #[schemars(!default)]
    pub path: String,
    /// A change of the secret does not run the Plan again, and the secret may be missing. Absent means false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore_updates: Option<bool>,
    /// Mode of the files, as a decimal number: 256 is 0400. Absent means 420, which is 0644.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_mode: Option<i32>,
}

/// How the node is drained. The fields are `kubectl drain`'s flags.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrainSpec {
    /// How long the drain may take before it fails: a Go duration such as `5m`, or a number of nanoseconds. Absent or 0
    /// means no limit but the Job's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DrainTimeout>,
    /// Seconds that each pod is given to stop. Negative means the pod's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_period: Option<i32>,
    /// Old name of `deleteEmptydirData`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete_local_data: Option<bool>,
    /// Evicts pods with emptyDir volumes too, whose data is lost. Absent means true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete_emptydir_data: Option<bool>,
    /// Leaves pods of DaemonSets alone instead of failing on them. Absent means true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore_daemon_sets: Option<bool>,
    /// Evicts pods that no controller would make again, too. Absent means false, and the drain fails on them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
    /// Deletes pods instead of evicting them, past any PodDisruptionBudget. Absent means false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_eviction: Option<bool>,
    /// Does not wait for pods that have been terminating for longer than this many seconds. Absent or 0 means that it
    /// waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_wait_for_delete_timeout: Option<i64>,
    /// Which pods are drained. Absent means all. The pods of upgrades never are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<LabelSelector>,
}

/// `drain.timeout`: nanoseconds, or a Go duration.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(untagged)]
pub enum DrainTimeout {
    /// Nanoseconds, as system-upgrade-controller up to 0.16.2 wrote them.
    Nanoseconds(i64),
    /// A Go duration, handed to the drain as it is.
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

/// Schema of one of `window.days`. The spec itself keeps the words as they were written.
struct Day;

impl JsonSchema for Day {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Day".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let words: Vec<_> = window::DAYS.iter().flatten().collect();
        json_schema!({ "type": "string", "enum": words })
    }
}

/// A window of time: open while the clock on the wall in `timeZone` shows a time from `startTime` to `endTime`, on each of
/// `days`. One that ends before it starts goes on overnight and belongs to the day on which it starts.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TimeWindowSpec {
    /// Days of the week, such as `mo`, `mon` or `monday`, or `0` (Sunday) to `6`. Absent means that the window never
    /// opens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<Day>>", length(min = 1))]
    pub days: Option<Vec<String>>,
    /// Start, such as `22:00`, `22:00:30` or `10pm`. Required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<String>,
    /// End, in the same forms. The second that it names is still inside. Required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<String>,
    /// IANA time zone, such as `Europe/Berlin`, or `Local` for the controller's. Absent means UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
}

#[cfg(test)]
mod tests;
