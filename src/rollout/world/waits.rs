//! How long something has lasted, as far as this process has seen. It may only delay: who takes over counts anew.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::World;
use crate::rollout::facts::{JobFacts, NodeFacts, Outcome, Text};
use crate::rollout::record::{Phase, Record};

/// Something that lasts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wait {
    /// A node on which an upgrade has succeeded is fit, in one boot.
    Fit {
        node: Text,
        boot_id: Text,
        job_uid: String,
    },
    /// A node has this record, and may be in for a reboot.
    Record {
        node: Text,
        job_uid: String,
        boot_id: Option<String>,
    },
    /// A Job with a sentinel has succeeded.
    Success { job_uid: Text },
}

/// Since when something lasts.
#[derive(Debug, Default)]
pub(super) struct Waits(BTreeMap<Wait, Timestamp>);

impl World {
    /// What lasts now goes on, and what has begun begins now.
    pub(super) fn count_waits(&mut self, now: Timestamp) {
        let mut lasting = BTreeSet::new();
        let mut evicted = BTreeSet::new();
        for (plan, nodes) in self.recorded_on.iter() {
            for node in nodes.iter().filter_map(|node| self.nodes.get(node)) {
                let record = node.records.get(plan);
                let record = record.filter(|r| matches!(r.phase, Phase::Upgraded | Phase::Recovering));
                if let Some(record) = record {
                    evicted.extend(record.workloads.iter().map(String::as_str));
                    lasting.extend(node.is_fit().then(|| fit(node, record)));
                    lasting.insert(known(node, record));
                }
            }
        }
        let jobs = self.open_jobs.iter().flat_map(|(_, jobs)| jobs);
        for job in jobs.filter_map(|job| self.jobs.get(job)) {
            if job.sentinel && matches!(job.outcome, Outcome::Complete { .. }) {
                lasting.insert(success(job));
            }
        }
        self.workloads.retain(|workload, _| evicted.contains(&**workload));
        if lasting.is_empty() && self.waits.0.is_empty() {
            return;
        }
        self.waits.0.retain(|wait, _| lasting.contains(wait));
        for wait in lasting {
            self.waits.0.entry(wait).or_insert(now);
        }
    }

    /// A node was seen that is not fit, if only for a moment.
    pub(super) fn is_not_fit(&mut self, node: &str) {
        let broken = |wait: &Wait| matches!(wait, Wait::Fit { node: of, .. } if **of == *node);
        self.waits.0.retain(|wait, _| !broken(wait));
    }

    /// Since when a node with this record is fit, in the boot that it is in.
    pub(in crate::rollout) fn fit_since(&self, node: &NodeFacts, record: &Record) -> Option<Timestamp> {
        self.waits.0.get(&fit(node, record)).copied()
    }

    /// Since when this process knows of this record, and of the reboot that it may ask for.
    pub(in crate::rollout) fn known_since(&self, node: &NodeFacts, record: &Record) -> Option<Timestamp> {
        self.waits.0.get(&known(node, record)).copied()
    }

    /// Since when this process knows that the Job has succeeded.
    pub(in crate::rollout) fn success_since(&self, job: &JobFacts) -> Option<Timestamp> {
        self.waits.0.get(&success(job)).copied()
    }
}

fn fit(node: &NodeFacts, record: &Record) -> Wait {
    Wait::Fit {
        node: node.name.clone(),
        boot_id: node.boot_id.clone(),
        job_uid: record.job_uid.clone(),
    }
}

fn known(node: &NodeFacts, record: &Record) -> Wait {
    let reboot = record.reboot.as_ref();
    Wait::Record {
        node: node.name.clone(),
        job_uid: record.job_uid.clone(),
        boot_id: reboot.and_then(|reboot| reboot.boot_id.clone()),
    }
}

fn success(job: &JobFacts) -> Wait {
    Wait::Success {
        job_uid: job.uid.clone(),
    }
}
