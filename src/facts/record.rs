//! The record of a Plan on a Node: its progress there, where it must outlive Job, pod and Plan. JSON in the annotation
//! `plan.refit.rs/<plan>`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use refit_api::ids::{Hash, JobName, JobUid, NodeUid, PlanUid};
use refit_api::ledger::limit_workloads;
use refit_api::text::{MAX_MESSAGE, MAX_NAME, shorten_in_place};
use refit_api::{OpenEnum, Reason, names};

/// Maximum length of a record in bytes: one with as many workloads as possible has half of it.
const MAX_RECORD: usize = 128 * 1024;

/// Progress of a Plan on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// The Job succeeded, but the node is not done yet.
    Upgraded,
    /// The Job failed for good.
    Failed,
    /// Another attempt was decided; its Job is created next.
    Retry,
    /// The node was released as it was, because pods had not ended in time (`drain.waitFor`). Its turn comes later.
    Skipped,
    /// The node is done and released; the controllers of the evicted pods are not available yet.
    Recovering,
}

/// Annotation `plan.refit.rs/<plan>` of a Node. It is void if the UID of the Plan or of the Node differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Namespace of the Plan.
    pub namespace: String,
    pub plan_uid: PlanUid,
    pub node_uid: NodeUid,
    /// Hash for which the Job ran.
    pub hash: Hash,
    /// Version for which the Job ran.
    pub version: String,
    /// Progress.
    pub phase: Phase,
    /// Number of the attempt, from 1.
    pub attempt: i64,
    /// How often the Plan was tried again on the node by itself, as `spec.failure.retries` says. For a node that was
    /// released because pods had not ended: how often in a row.
    #[serde(default, skip_serializing_if = "refit_base::is_zero")]
    pub retries: i64,
    pub job_uid: JobUid,
    /// Name of the Job.
    pub job: JobName,
    /// Digest of the user's part of the template that ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inputs: Option<String>,
    /// When the Job ended.
    pub at: Timestamp,
    /// When the Job was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// Whether something that keeps no ledger cordoned the node for the Job, so that refit must uncordon it when it is
    /// done.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncordon: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reboot: Option<Reboot>,
    /// When settling began; `settle.timeout` counts from then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settling: Option<Timestamp>,
    /// How far `spec.verify` is, once it has begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<Verification>,
    /// Controllers of the evicted pods, in the format of [`Holder::evicted`](refit_api::Holder).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<String>,
    /// Why it failed, as one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<OpenEnum<Reason>>,
    /// Why it failed, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A required reboot. It is over when the node shows another boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reboot {
    /// The boot in which the upgrade succeeded, which has to end. Absent while only the node knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// When the reboot was requested; `reboot.timeout` counts from then.
    pub since: Timestamp,
}

/// The node is verified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verification {
    /// When it began.
    pub since: Timestamp,
    /// Whether its Job has succeeded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub passed: bool,
}

impl Record {
    /// The key of the annotation that records the upgrade of a Plan.
    pub fn key(plan: &str) -> String {
        format!("{}{plan}", names::ANNOTATION_RECORD_PREFIX)
    }

    /// What identifies the upgrade that it records: the UID of its Job, which is not known if the Job was lost.
    pub fn upgrade_id(&self) -> String {
        if self.job_uid.is_empty() {
            format!("{}.{}", self.hash, self.attempt)
        } else {
            self.job_uid.to_string()
        }
    }

    /// Parses the annotation. An invalid one counts as absent, and so does one that is too long. Anyone who may patch
    /// the Node can write it, including its kubelet, so its texts are shortened, and names that become part of a path
    /// are checked.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_RECORD {
            return None;
        }
        let mut record: Self = serde_json::from_str(text).ok()?;
        let Self {
            namespace,
            plan_uid,
            node_uid,
            hash,
            version,
            job_uid,
            job,
            ..
        } = &mut record;
        for text in [namespace, version] {
            shorten_in_place(text, MAX_NAME);
        }
        plan_uid.shorten(MAX_NAME);
        node_uid.shorten(MAX_NAME);
        hash.shorten(MAX_NAME);
        job_uid.shorten(MAX_NAME);
        job.shorten(MAX_NAME);
        for text in record
            .inputs
            .iter_mut()
            .chain(record.reboot.iter_mut().filter_map(|it| it.boot_id.as_mut()))
        {
            shorten_in_place(text, MAX_NAME);
        }
        limit_workloads(&mut record.workloads);
        if let Some(OpenEnum::Other(word)) = &mut record.reason {
            shorten_in_place(word, MAX_NAME);
        }
        if let Some(message) = &mut record.message {
            shorten_in_place(message, MAX_MESSAGE);
        }
        Some(record)
    }

    /// The value of the annotation.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl Record {
    /// The retries that were made without a person, if this is about the same hash.
    pub fn retries_at(&self, hash: &str) -> i64 {
        if *self.hash == *hash { self.retries } else { 0 }
    }
}
