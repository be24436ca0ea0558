//! A pod of this controller, reduced to its progress and its messages.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::{Resource, ResourceExt};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::parts::{Intern, SlimCondition, SlimPodSpec, ignored_time, owner, slim_meta};
use crate::read::lenient_time;
use crate::watched::Watched;
use crate::{BootId, PodFacts, PodStage, RebootPod, SentinelResult, Termination};
use refit_api::text::{MAX_MESSAGE, MAX_NAME, shorten};
use refit_api::{RebootFault, SentinelReport, names, sentinel};

#[derive(Clone, Debug, Default, Deserialize)]
pub struct SlimPod {
    #[serde(deserialize_with = "slim_meta")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: SlimPodSpec,
    #[serde(default)]
    status: SlimPodStatus,
}
resource!(
    SlimPod,
    "",
    "v1",
    "Pod",
    "pods",
    k8s_openapi::NamespaceResourceScope
);

impl Watched for SlimPod {
    fn ignored_time(&self) -> Option<String> {
        ignored_time(&self.status.conditions)
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SlimPodStatus {
    phase: String,
    conditions: Vec<SlimCondition>,
    init_container_statuses: Vec<SlimContainerStatus>,
    container_statuses: Vec<SlimContainerStatus>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SlimContainerStatus {
    name: String,
    state: SlimState,
    #[serde(rename = "lastState")]
    last_state: SlimState,
}

impl SlimContainerStatus {
    fn has_begun(&self) -> bool {
        self.state.running.is_some() || self.state.terminated.is_some()
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SlimState {
    waiting: Option<SlimReason>,
    running: Option<IgnoredAny>,
    terminated: Option<SlimEnd>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SlimReason {
    reason: Option<String>,
    message: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SlimEnd {
    exit_code: i32,
    message: Option<String>,
    #[serde(deserialize_with = "lenient_time")]
    finished_at: Option<Timestamp>,
}

impl SlimPod {
    /// Whether it belongs to a Plan of the controller of this name.
    pub fn is_of(&self, controller: &str) -> bool {
        let of = self.labels().get(names::LABEL_CONTROLLER);
        of.is_some_and(|of| of == controller) && self.labels().contains_key(names::LABEL_PLAN)
    }

    pub fn node_name(&self) -> Option<&str> {
        self.spec.node_name.as_deref()
    }

    pub fn is_ready(&self) -> bool {
        let mut conditions = self.status.conditions.iter();
        conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
    }

    /// The name of the DaemonSet that it belongs to.
    pub fn daemon_set(&self) -> Option<&str> {
        let owner = owner(&self.metadata).filter(|owner| owner.kind == "DaemonSet")?;
        Some(&owner.name)
    }

    /// Whether it has succeeded or failed.
    pub fn has_ended(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    pub fn facts(&self, intern: &Intern) -> PodFacts {
        if !self.is_ours() {
            return self.foreign_facts(intern);
        }
        let label = |key: &str| self.labels().get(key).map_or("", String::as_str);
        PodFacts {
            name: self.metadata.name.as_deref().unwrap_or_default().into(),
            uid: self.metadata.uid.as_deref().unwrap_or_default().into(),
            job_uid: owner(&self.metadata)
                .filter(|owner| owner.kind == "Job")
                .map_or("", |owner| &owner.uid)
                .into(),
            foreign: false,
            plan: intern.text(label(names::LABEL_PLAN)),
            node: self.spec.node_name.as_deref().map(|node| intern.text(node)),
            stage: self.stage(),
            waiting: self.waiting().map(|why| shorten(&why, MAX_MESSAGE).into_owned()),
            failed: self.failed(),
            upgraded: self
                .containers()
                .any(|c| c.name == refit_job::render::UPGRADE && c.has_begun()),
            sentinel_result: self.sentinel_result(),
            reboot: self.reboot(intern).map(Box::new),
            deleting: self.metadata.deletion_timestamp.is_some(),
            hook: !label(names::LABEL_HOOK).is_empty(),
        }
    }

    /// Whether a Job or, for a pod that belongs to none, a Plan controls the pod. Labels prove nothing: a kubelet creates
    /// mirror pods with any name and any labels in any namespace. It can give them no owner but its Node.
    ///
    /// A pod without an owner is the one of a Job that was deleted with `--cascade=orphan`, which may still upgrade its
    /// node. A kubelet cannot create one: the API server demands the annotation of mirror pods (admission plugin
    /// `NodeRestriction`).
    fn is_ours(&self) -> bool {
        if self.annotation(names::ANNOTATION_MIRROR).is_some() {
            return false;
        }
        let has_role = self.labels().contains_key(names::LABEL_ROLE);
        let (group, kind) = if has_role {
            (names::GROUP, "Plan")
        } else {
            ("batch", "Job")
        };
        let is_owner = |owner: &OwnerReference| {
            owner.kind == kind
                && owner
                    .api_version
                    .split_once('/')
                    .is_some_and(|(of, _)| of == group)
        };
        owner(&self.metadata).map_or(!has_role, is_owner)
    }

    /// The facts of a pod that has refit's labels and is not refit's. Only its name counts.
    fn foreign_facts(&self, intern: &Intern) -> PodFacts {
        PodFacts {
            name: self.metadata.name.as_deref().unwrap_or_default().into(),
            uid: self.metadata.uid.as_deref().unwrap_or_default().into(),
            foreign: true,
            node: self.spec.node_name.as_deref().map(|node| intern.text(node)),
            stage: PodStage::Ended,
            ..PodFacts::default()
        }
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations().get(key).map(String::as_str)
    }

    /// The purpose of a pod that belongs to no Job.
    fn reboot(&self, intern: &Intern) -> Option<RebootPod> {
        let labels = self.labels();
        let boot_id = match labels.get(names::LABEL_ROLE)?.as_str() {
            names::ROLE_REBOOT => {
                let boot_id = self.annotation(names::ANNOTATION_BOOT_ID).unwrap_or_default();
                Some(BootId::from(&*shorten(boot_id, MAX_NAME)))
            }
            names::ROLE_ASK => None,
            _ => return None,
        };
        let plan = labels.get(names::LABEL_PLAN)?;
        let hash = labels.get(&names::plan_label(plan))?;
        Some(RebootPod {
            owner_uid: owner(&self.metadata).map_or("", |owner| &owner.uid).into(),
            plan_uid: intern.text(self.annotation(names::ANNOTATION_PLAN_UID).unwrap_or_default()),
            node_uid: intern.text(self.annotation(names::ANNOTATION_NODE_UID).unwrap_or_default()),
            service_account: intern.text(self.spec.service_account_name.as_deref().unwrap_or_default()),
            hash: intern.text(hash),
            boot_id,
            created: self
                .metadata
                .creation_timestamp
                .as_ref()
                .map_or(Timestamp::UNIX_EPOCH, |t| t.0),
            succeeded: self.status.phase == "Succeeded",
        })
    }

    /// The report of the sentinel. That of a failed pod does not count, because its Job creates another pod.
    fn sentinel_result(&self) -> Option<SentinelResult> {
        let last = |c: &SlimContainerStatus| {
            // The kubelet restarts the container of a reboot Pod (OnFailure), and moves its end to `lastState`.
            let ends = [&c.state.terminated, &c.last_state.terminated];
            ends.into_iter()
                .flatten()
                .next()
                .and_then(|end| end.message.clone())
        };
        let of = |name: &str| self.containers().find(|c| c.name == name).and_then(last);
        if let Some(message) = of(refit_job::reboot::REBOOT)
            && let Some((RebootFault::SentinelMissing, sentence)) = RebootFault::parse(&message)
        {
            let boot_id = sentence.split_once(sentinel::IN_BOOT).map(|(_, boot_id)| boot_id);
            let boot_id = boot_id
                .filter(|text| sentinel::is_boot_id(text))
                .map(BootId::from);
            return Some(SentinelResult::Nothing { boot_id });
        }
        if self.status.phase != "Succeeded" {
            return None;
        }
        let message = of(refit_job::render::SENTINEL).or_else(|| of(refit_job::reboot::REBOOT))?;
        let report = SentinelReport::parse(&message).ok()?;
        Some(SentinelResult::Success {
            boot_id: report.boot_id.as_str().into(),
            required: report.required,
        })
    }

    fn containers(&self) -> impl Iterator<Item = &SlimContainerStatus> {
        self.status
            .init_container_statuses
            .iter()
            .chain(&self.status.container_statuses)
    }

    /// The last container that has started, which shows the progress of the pod.
    pub fn last_begun(&self) -> Option<&str> {
        let begun = self.containers().filter(|c| c.has_begun());
        begun.last().map(|c| c.name.as_str())
    }

    fn stage(&self) -> PodStage {
        if self.has_ended() {
            return PodStage::Ended;
        }
        if self.spec.node_name.is_none() {
            return PodStage::Unbound;
        }
        match self.last_begun() {
            None | Some(refit_job::render::PROBE) => PodStage::Starting,
            Some("prepare" | refit_job::render::PREFLIGHT) => PodStage::Prepare,
            Some("cordon") => PodStage::Cordon,
            Some("drain") => PodStage::Drain,
            Some(_) => PodStage::Upgrade,
        }
    }

    fn waiting(&self) -> Option<String> {
        let unscheduled = self
            .status
            .conditions
            .iter()
            .find(|c| c.type_ == "PodScheduled" && c.status == "False")
            .and_then(|c| c.message.clone());
        unscheduled.or_else(|| {
            let waiting = self
                .containers()
                .filter_map(|c| Some((c, c.state.waiting.as_ref()?)));
            let (container, why) = waiting.into_iter().find(|(_, why)| {
                // The reasons of the kubelet while nothing is wrong (pkg/kubelet/kubelet_pods.go).
                !matches!(
                    why.reason.as_deref(),
                    None | Some("ContainerCreating" | "PodInitializing")
                )
            })?;
            let reason = why.reason.as_deref().unwrap_or_default();
            let message = why.message.as_deref().unwrap_or_default();
            Some(format!("container {}: {reason}: {message}", container.name))
        })
    }

    /// `metadata.deletionTimestamp` is when the grace period ends.
    fn deletion_requested(&self) -> Option<Timestamp> {
        let Time(ends) = self.metadata.deletion_timestamp.as_ref()?;
        let grace = self.metadata.deletion_grace_period_seconds.unwrap_or_default();
        ends.checked_sub(SignedDuration::from_secs(grace)).ok()
    }

    fn failed(&self) -> Option<Termination> {
        let ended = self.containers().filter_map(|c| {
            Some((
                c,
                c.state.terminated.as_ref().or(c.last_state.terminated.as_ref())?,
            ))
        });
        let (container, end) = ended.filter(|(_, end)| end.exit_code != 0).last()?;
        let message = end.message.as_deref().unwrap_or_default().trim();
        Some(Termination {
            container: container.name.clone(),
            exit_code: end.exit_code,
            says: tail(message, MAX_MESSAGE_TAIL).to_owned(),
            is_of_deletion: self.deletion_requested().is_some_and(|requested| {
                // Both have whole seconds.
                end.finished_at.is_none_or(|finished| finished >= requested)
            }),
        })
    }
}

/// Maximum length of a termination message, in bytes: it becomes part of conditions and events, whose message has at
/// most 1,024.
const MAX_MESSAGE_TAIL: usize = 512;

/// With `FallbackToLogsOnError` the message is the end of the log, and its last lines name the error.
fn tail(text: &str, most: usize) -> &str {
    let start = text.len().saturating_sub(most);
    // The first position that is not within a character of UTF-8.
    (start..=text.len())
        .find_map(|at| text.get(at..))
        .unwrap_or_default()
}
