//! Which pods of a node a drain takes, which it leaves and which stop it, by kubectl's rules and in kubectl's order: the
//! first rule that keeps a pod decides. Pure: what has to be asked (is the
//! DaemonSet still there?) comes in as an answer.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

/// Annotation of the API server's copy of a static pod, which only the kubelet can delete.
const MIRROR: &str = "kubernetes.io/config.mirror";

const DAEMON_SET_FATAL: &str = "DaemonSet-managed Pods (use --ignore-daemonsets to ignore)";
const DAEMON_SET_WARNING: &str = "ignoring DaemonSet-managed Pods";
const LOCAL_STORAGE_FATAL: &str = "Pods with local storage (use --delete-emptydir-data to override)";
const UNMANAGED_FATAL: &str = "Pods that declare no controller (use --force to override)";
const UNMANAGED_WARNING: &str = "deleting Pods that declare no controller";

/// What the rules depend on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// `--ignore-daemonsets`.
    pub ignore_daemon_sets: bool,
    /// `--delete-emptydir-data`.
    pub delete_empty_dir_data: bool,
    /// `--force`.
    pub force: bool,
    /// `--skip-wait-for-delete-timeout`, in seconds; 0 is never.
    pub skip_wait_for_delete: i64,
}

/// One pod of one machine: another pod of the same name has another UID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PodId {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

impl PodId {
    /// Namespace and name, with a slash between.
    pub fn path(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// What of a pod the rules look at.
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
    empty_dir: Option<IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: String,
}

/// Whether the DaemonSet that a pod names as its controller is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DaemonSet {
    /// It is.
    Exists,
    /// It is not, in the API server's words.
    Gone(String),
    /// It could not be asked for, and why.
    Unknown(String),
}

/// What becomes of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes.
    Goes,
    /// It goes, and that is told.
    GoesWithWarning(String),
    /// It stays.
    Stays,
    /// It stays, and that is told.
    StaysWithWarning(String),
    /// It stops the drain.
    Refused(String),
}

impl Pod {
    /// Which pod it is.
    pub fn id(&self) -> PodId {
        PodId {
            namespace: self.metadata.namespace.clone(),
            name: self.metadata.name.clone(),
            uid: self.metadata.uid.clone(),
        }
    }

    /// Its labels.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.metadata.labels
    }

    /// When its grace period is over, if it has been told to go.
    pub fn deletion_timestamp(&self) -> Option<Timestamp> {
        self.metadata.deletion_timestamp
    }

    fn is_finished(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    fn controller(&self) -> Option<&OwnerReference> {
        let owners = &self.metadata.owner_references;
        owners.iter().find(|owner| owner.controller.unwrap_or_default())
    }

    /// The controller that makes it again and says how many of its pods are ready: kind, namespace and name. Others that make
    /// pods do not say so in a way that is always the same.
    pub fn workload(&self) -> Option<String> {
        let owner = self.controller()?;
        let is_one =
            matches!(owner.kind.as_str(), "ReplicaSet" | "StatefulSet") && owner.api_version == "apps/v1";
        (is_one && !self.is_finished())
            .then(|| format!("{}/{}/{}", owner.kind, self.metadata.namespace, owner.name))
    }

    /// The DaemonSet that has to be asked for before [`triage`], by name.
    pub fn daemon_set(&self) -> Option<&str> {
        let owner = self.controller()?;
        let is_one = owner.kind == "DaemonSet" && owner.api_version == "apps/v1";
        (is_one && !self.is_finished()).then_some(owner.name.as_str())
    }
}

/// Whether a pod was told to go so long ago that it is not waited for. `deleted`: when its grace period is over.
pub fn is_given_up(deleted: Option<Timestamp>, rules: Rules, now: Timestamp) -> bool {
    rules.skip_wait_for_delete > 0
        && deleted.is_some_and(|deleted| now.duration_since(deleted).as_secs() > rules.skip_wait_for_delete)
}

/// What becomes of one pod. `daemon_set`: the answer about the one that [`Pod::daemon_set`] names.
pub fn triage(pod: &Pod, daemon_set: Option<&DaemonSet>, rules: Rules, now: Timestamp) -> Verdict {
    if is_given_up(pod.deletion_timestamp(), rules, now) {
        return Verdict::Stays;
    }
    match daemon_set {
        None => {}
        // Nobody makes it again.
        Some(DaemonSet::Gone(_)) if rules.force => {}
        Some(DaemonSet::Gone(why) | DaemonSet::Unknown(why)) => return Verdict::Refused(why.clone()),
        Some(DaemonSet::Exists) if rules.ignore_daemon_sets => {
            return Verdict::StaysWithWarning(DAEMON_SET_WARNING.to_owned());
        }
        Some(DaemonSet::Exists) => return Verdict::Refused(DAEMON_SET_FATAL.to_owned()),
    }
    if pod.metadata.annotations.contains_key(MIRROR) {
        return Verdict::Stays;
    }
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

/// What was found on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The pods that go, and those of them that are going already.
    pub pods: Vec<PodId>,
    /// Their controllers, each once, as [`Pod::workload`] names them.
    pub workloads: Vec<String>,
    /// What is told about pods, by message.
    warnings: Vec<(String, Vec<String>)>,
    /// What stops the drain, by message.
    errors: Vec<(String, Vec<String>)>,
}

impl Found {
    /// Adds the controller of a pod that goes.
    pub fn of(&mut self, workload: Option<String>) {
        self.workloads
            .extend(workload.filter(|one| !self.workloads.contains(one)));
    }

    /// Adds a pod and what becomes of it.
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

    /// All warnings, in one line; nothing where there are none.
    pub fn warning(&self) -> Option<String> {
        let lines: Vec<_> = self
            .warnings
            .iter()
            .map(|(message, pods)| format!("{message}: {}", pods.join(", ")))
            .collect();
        (!lines.is_empty()).then(|| lines.join("; "))
    }

    /// What stops the drain, a sentence each.
    pub fn errors(&self) -> Vec<String> {
        self.errors
            .iter()
            .map(|(message, pods)| format!("cannot delete {message}: {}", pods.join(", ")))
            .collect()
    }
}

#[cfg(test)]
mod tests;
