//! Decides which pods of a node a drain evicts, which it leaves and which stop it, by kubectl's rules in kubectl's
//! order: the first rule that keeps a pod applies. Pure: the result of a query (does the DaemonSet exist?) is an
//! argument.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use refit_api::{WaitFor, Workload, names};
use refit_facts::read::present_time;

/// Annotation of a mirror pod, the API server's copy of a static pod, which only the kubelet can delete.
const MIRROR: &str = "kubernetes.io/config.mirror";

// kubectl's texts (pkg/drain/filters.go). The flags that they name have the same names here.
const DAEMON_SET_FATAL: &str = "DaemonSet-managed Pods (use --ignore-daemonsets to ignore)";
const DAEMON_SET_WARNING: &str = "ignoring DaemonSet-managed Pods";
const LOCAL_STORAGE_FATAL: &str = "Pods with local storage (use --delete-emptydir-data to override)";
const UNMANAGED_FATAL: &str = "Pods that declare no controller (use --force to override)";
const UNMANAGED_WARNING: &str = "deleting Pods that declare no controller";

/// The fields of `spec.drain` for the flags that these texts ask for. A message may have only the beginning of one.
pub fn fields_wanted(message: &str) -> impl Iterator<Item = &'static str> {
    [
        ("use --force", "force"),
        ("use --delete-emptydir-data", "deleteEmptydirData"),
        ("use --ignore-daemonsets", "ignoreDaemonSets"),
    ]
    .into_iter()
    .filter(move |(flag, _)| message.contains(flag))
    .map(|(_, field)| field)
}

/// Options that affect the rules.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// `--ignore-daemonsets`.
    pub ignore_daemon_sets: bool,
    pub delete_empty_dir_data: bool,
    pub force: bool,
    /// `--skip-wait-for-delete-timeout` in seconds; 0 means never.
    pub skip_wait_for_delete: i64,
}

/// Identifies one pod: another pod of the same name has another UID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PodId {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl PodId {
    /// Namespace and name, separated by `/`.
    pub fn path(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// The fields of a pod that the rules need.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    metadata: Meta,
    spec: Spec,
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Meta {
    name: String,
    namespace: String,
    uid: String,
    // The client of a deletion chooses the grace period, so this time may exceed the range of `Timestamp`. That must
    // not fail the whole list.
    #[serde(deserialize_with = "present_time")]
    deletion_timestamp: Option<Timestamp>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    owner_references: Vec<OwnerReference>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    volumes: Vec<Volume>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Volume {
    name: String,
    empty_dir: Option<IgnoredAny>,
    ephemeral: Option<IgnoredAny>,
    persistent_volume_claim: Option<Claim>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Claim {
    claim_name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: String,
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

/// Whether the DaemonSet that controls a pod exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DaemonSet {
    Exists,
    /// It does not exist; the message is the API server's.
    Gone(String),
    Unknown(String),
}

/// What a drain does with a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It evicts the pod.
    Goes,
    /// It evicts the pod with a warning.
    GoesWithWarning(String),
    /// It leaves the pod.
    Stays,
    /// It leaves the pod with a warning.
    StaysWithWarning(String),
    /// It stops before it begins.
    Refused(String),
}

/// Whether the API version of a pod's controller is not one of Kubernetes, nor of `OpenKruise`, whose workloads are like those of
/// Kubernetes.
pub fn is_of_operator(api_version: &str) -> bool {
    let group = api_version.split_once('/').map(|(group, _)| group);
    group.is_some_and(|group| group.contains('.') && group != "apps.kruise.io")
}

impl Pod {
    pub fn id(&self) -> PodId {
        PodId {
            namespace: self.metadata.namespace.clone(),
            name: self.metadata.name.clone(),
            uid: self.metadata.uid.clone(),
        }
    }

    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.metadata.labels
    }

    /// When its grace period ends, if it is being deleted.
    pub fn deletion_timestamp(&self) -> Option<Timestamp> {
        self.metadata.deletion_timestamp
    }

    /// The names of its claims, in its namespace. That of an ephemeral volume has the name of the pod in front (KEP-1698).
    pub fn claims(&self) -> Vec<String> {
        let of = |volume: &Volume| match &volume.persistent_volume_claim {
            Some(claim) => Some(claim.claim_name.clone()),
            None => volume
                .ephemeral
                .is_some()
                .then(|| format!("{}-{}", self.metadata.name, volume.name)),
        };
        // The attach-detach controller detaches the volumes of a finished pod although the pod still exists
        // (`DetermineVolumeAction` in pkg/controller/volume/attachdetach/util).
        let volumes = self.spec.volumes.iter().filter(|_| !self.is_finished());
        volumes.filter_map(of).collect()
    }

    fn is_finished(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Whether an entry of `drain.waitFor` waits for its end. Pods of DaemonSets and static pods do not end, and one of those
    /// of upgrades runs this drain.
    pub fn is_awaited(&self, wait: &WaitFor) -> bool {
        let of_namespace = wait.namespace.as_ref();
        of_namespace.is_none_or(|namespace| *namespace == self.metadata.namespace)
            && wait.selector.matches(&self.metadata.labels)
            && !self.is_finished()
            && self.controller().is_none_or(|owner| owner.kind != "DaemonSet")
            && !self.metadata.annotations.contains_key(MIRROR)
            && !self.metadata.labels.contains_key(names::LABEL_CONTROLLER)
    }

    /// Whether an eviction of it counts against budgets.
    pub fn is_guarded(&self) -> bool {
        !self.is_finished() && self.status.phase != "Pending" && self.deletion_timestamp().is_none()
    }

    pub fn is_ready(&self) -> bool {
        let mut conditions = self.status.conditions.iter();
        conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
    }

    /// Whether its controller creates another one instead of it, somewhere.
    pub fn is_replaced(&self) -> bool {
        self.controller().is_some_and(|owner| owner.kind != "DaemonSet")
    }

    /// Whether an operator controls it, such as that of virtual machines, of storage or of a database. Many of them lift the
    /// budgets of their pods once a node is cordoned, or answer evictions by a webhook and move the pods.
    pub fn is_of_operator(&self) -> bool {
        self.controller()
            .is_some_and(|owner| is_of_operator(&owner.api_version))
    }

    fn controller(&self) -> Option<&OwnerReference> {
        let owners = &self.metadata.owner_references;
        owners.iter().find(|owner| owner.controller.unwrap_or_default())
    }

    /// The controller that replaces the pod, if its kind may have a scale, as a [`Workload`].
    pub fn workload(&self) -> Option<String> {
        let owner = self.controller().filter(|_| !self.is_finished())?;
        Workload::entry(
            &owner.api_version,
            &owner.kind,
            &self.metadata.namespace,
            &owner.name,
        )
    }

    /// The name of the DaemonSet to look up before [`triage`].
    pub fn daemon_set(&self) -> Option<&str> {
        let owner = self.controller()?;
        // kubectl compares only the kind: it looks up a DaemonSet of another group in apps/v1, does not find it, and
        // refuses its pods.
        let is_one = owner.kind == "DaemonSet" && owner.api_version == "apps/v1";
        (is_one && !self.is_finished()).then_some(owner.name.as_str())
    }
}

/// Whether a pod has been terminating for so long that the drain does not wait for it. `deleted` is the end of its
/// grace period.
pub fn is_given_up(deleted: Option<Timestamp>, rules: Rules, now: Timestamp) -> bool {
    rules.skip_wait_for_delete > 0
        && deleted.is_some_and(|deleted| now.duration_since(deleted).as_secs() > rules.skip_wait_for_delete)
}

/// What a drain does with one pod. `daemon_set` is the result of the query for [`Pod::daemon_set`].
pub fn triage(pod: &Pod, daemon_set: Option<&DaemonSet>, rules: Rules, now: Timestamp) -> Verdict {
    if is_given_up(pod.deletion_timestamp(), rules, now) {
        return Verdict::Stays;
    }
    match daemon_set {
        None => {}
        // Nothing would replace the pod, so it needs `--force` as a pod without a controller does (kubectl:
        // `daemonSetFilter`).
        Some(DaemonSet::Gone(_)) if rules.force => {}
        Some(DaemonSet::Gone(why) | DaemonSet::Unknown(why)) => return Verdict::Refused(why.clone()),
        Some(DaemonSet::Exists) if rules.ignore_daemon_sets => {
            return Verdict::StaysWithWarning(DAEMON_SET_WARNING.to_owned());
        }
        Some(DaemonSet::Exists) => return Verdict::Refused(DAEMON_SET_FATAL.to_owned()),
    }
    // The API server would delete the mirror pod, and the kubelet would create it again at once (kubectl:
    // `mirrorPodFilter`).
    if pod.metadata.annotations.contains_key(MIRROR) {
        return Verdict::Stays;
    }
    // A finished pod has no process and no data that anyone reads, so neither rule below protects it (kubectl:
    // `localStorageFilter` and `unreplicatedFilter` check the phase first).
    if pod.is_finished() {
        return Verdict::Goes;
    }
    let keeps_data = pod.spec.volumes.iter().any(|volume| volume.empty_dir.is_some());
    if keeps_data && !rules.delete_empty_dir_data {
        return Verdict::Refused(LOCAL_STORAGE_FATAL.to_owned());
    }
    match pod.controller() {
        Some(_) => Verdict::Goes,
        None if rules.force => Verdict::GoesWithWarning(UNMANAGED_WARNING.to_owned()),
        None => Verdict::Refused(UNMANAGED_FATAL.to_owned()),
    }
}

/// The pods of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Pods to evict, including those that are already terminating.
    pub pods: Vec<PodId>,
    /// Those that are evicted after others, with the number of their group, which begins with 1.
    pub later: BTreeMap<PodId, usize>,
    /// Their controllers, without duplicates, as in [`Pod::workload`].
    pub workloads: Vec<String>,
    /// Pods with a warning, by message.
    warnings: Vec<(String, Vec<String>)>,
    /// Pods that stop the drain, by message.
    errors: Vec<(String, Vec<String>)>,
}

impl Found {
    /// Adds the controller of a pod to evict.
    pub fn add_workload(&mut self, workload: Option<String>) {
        self.workloads
            .extend(workload.filter(|one| !self.workloads.contains(one)));
    }

    pub fn add(&mut self, id: PodId, verdict: Verdict) {
        let note = |notes: &mut Vec<(String, Vec<String>)>, message: String| {
            let path = id.path();
            match notes.iter_mut().find(|(known, _)| *known == message) {
                Some((_, pods)) => pods.push(path),
                None => notes.push((message, vec![path])),
            }
        };
        match verdict {
            Verdict::Goes => self.pods.push(id),
            Verdict::GoesWithWarning(message) => {
                note(&mut self.warnings, message);
                self.pods.push(id);
            }
            Verdict::Stays => {}
            Verdict::StaysWithWarning(message) => note(&mut self.warnings, message),
            Verdict::Refused(message) => note(&mut self.errors, message),
        }
    }

    /// All warnings in one line; `None` if there are none.
    pub fn warning(&self) -> Option<String> {
        let lines: Vec<_> = self
            .warnings
            .iter()
            .map(|(message, pods)| format!("{message}: {}", pods.join(", ")))
            .collect();
        (!lines.is_empty()).then(|| lines.join("; "))
    }

    /// The reasons that stop the drain, as sentences.
    pub fn errors(&self) -> Vec<String> {
        self.errors
            .iter()
            .map(|(message, pods)| format!("cannot delete {message}: {}", pods.join(", ")))
            .collect()
    }
}

#[cfg(test)]
mod tests;
