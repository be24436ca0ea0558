//! A successful upgrade, from its Job or its record.

use jiff::Timestamp;

use crate::plan::DerivedPlan;
use refit_facts::record::{Phase, Record};
use refit_facts::{Hash, JobFacts, JobName, JobUid, NodeUid, PlanUid};

pub(super) struct Success<'a> {
    pub(super) hash: Hash,
    pub(super) version: &'a str,
    pub(super) at: Timestamp,
    /// When the Job was created.
    pub(super) started: Option<Timestamp>,
    pub(super) attempt: i64,
    pub(super) job: JobName,
    pub(super) job_uid: JobUid,
    pub(super) inputs: Option<&'a str>,
    /// Whether something that keeps no ledger cordoned the node, and it has not been released.
    pub(super) uncordon: bool,
}

impl<'a> Success<'a> {
    pub(super) fn of_job(job: &'a JobFacts, at: Timestamp, plan: &DerivedPlan) -> Self {
        let spec = plan.spec();
        let cordons = spec.cordon.unwrap_or_default() || spec.drain.is_some();
        let uncordon = match job.unschedulable_before {
            Some(before) => !before,
            None => job.is_made_by_suc() && cordons, // S60
        };
        Self {
            hash: job.hash.clone(),
            version: &job.version,
            at,
            started: Some(job.created),
            attempt: job.attempt,
            job: job.name.clone(),
            job_uid: job.uid.clone(),
            inputs: job.inputs.as_deref(),
            uncordon,
        }
    }

    pub(super) fn without_job(hash: &Hash, version: &'a str, at: Timestamp) -> Self {
        Self {
            hash: hash.clone(),
            version,
            at,
            started: None,
            attempt: 0,
            job: JobName::default(),
            job_uid: JobUid::default(),
            inputs: None,
            uncordon: false,
        }
    }

    pub(super) fn of_record(record: &'a Record) -> Self {
        Self {
            hash: record.hash.clone(),
            version: &record.version,
            at: record.at,
            started: record.started,
            attempt: record.attempt,
            job: record.job.clone(),
            job_uid: record.job_uid.clone(),
            inputs: record.inputs.as_deref(),
            uncordon: record.uncordon,
        }
    }

    pub(super) fn record(&self, namespace: &str, plan_uid: &PlanUid, node_uid: &NodeUid) -> Record {
        Record {
            namespace: namespace.to_owned(),
            plan_uid: plan_uid.clone(),
            node_uid: node_uid.clone(),
            hash: self.hash.clone(),
            version: self.version.to_owned(),
            phase: Phase::Upgraded,
            attempt: self.attempt,
            retries: 0,
            job_uid: self.job_uid.clone(),
            job: self.job.clone(),
            inputs: self.inputs.map(str::to_owned),
            at: self.at,
            started: self.started,
            uncordon: self.uncordon,
            reboot: None,
            settling: None,
            verify: None,
            workloads: Vec::new(),
            reason: None,
            message: None,
        }
    }
}
