//! How long conditions have lasted, as far as this process has seen. Timers only delay steps: a new leader starts them
//! again.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::ClusterState;
use refit_api::names::ControlPlaneRole;
use refit_facts::record::{Phase, Record};
use refit_facts::{BootId, JobFacts, JobOutcome, JobUid, NodeFacts, NodeName};

/// A condition that lasts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// A node with a successful upgrade is Ready and untainted, in one boot.
    Ready {
        node: NodeName,
        boot_id: BootId,
        job_uid: JobUid,
    },
    /// A node has this record, and may need a reboot.
    Record {
        node: NodeName,
        job_uid: JobUid,
        boot_id: Option<String>,
    },
    /// A Job with a sentinel has succeeded.
    Success { job_uid: JobUid },
    /// A node of the control plane is deleted.
    Departed { node: NodeName, role: ControlPlaneRole },
}

/// How long a deleted node of the control plane counts as a member that is down. A cloud provider deletes the Node of a
/// machine that is switched off, also for a reboot, and it registers again when it is back.
const DEPARTED_MEMBERSHIP: SignedDuration = SignedDuration::from_mins(10);

/// When each condition began.
#[derive(Debug, Default)]
pub(super) struct Timers(BTreeMap<Timer, Timestamp>);

impl ClusterState {
    /// Starts timers of new conditions, and drops those of conditions that ended.
    pub(super) fn update_timers(&mut self, now: Timestamp) {
        let mut lasting = BTreeSet::new();
        let mut evicted = BTreeSet::new();
        for (plan, nodes) in self.recorded_on.iter() {
            for node in nodes.iter().filter_map(|node| self.nodes.get(node)) {
                let record = node.records.get(plan);
                let record = record.filter(|r| matches!(r.phase, Phase::Upgraded | Phase::Recovering));
                if let Some(record) = record {
                    evicted.extend(record.workloads.iter().map(String::as_str));
                    lasting.extend(node.is_ready_and_untainted().then(|| ready_timer(node, record)));
                    lasting.insert(record_timer(node, record));
                }
            }
        }
        let jobs = self.open_jobs.iter().flat_map(|(_, jobs)| jobs);
        for job in jobs.filter_map(|job| self.jobs.get(job)) {
            if job.sentinel && matches!(job.outcome, JobOutcome::Complete { .. }) {
                lasting.insert(success_timer(job));
            }
        }
        for (role, nodes) in &mut self.departed {
            let timer = |node: &NodeName| departed_timer(node, *role);
            let since = |node: &NodeName| self.timers.0.get(&timer(node));
            nodes.retain(|node| since(node).is_none_or(|since| *since + DEPARTED_MEMBERSHIP > now));
            lasting.extend(nodes.iter().map(timer));
        }
        self.workloads.retain(|workload, _| evicted.contains(&**workload));
        if lasting.is_empty() && self.timers.0.is_empty() {
            return;
        }
        self.timers.0.retain(|timer, _| lasting.contains(timer));
        for timer in lasting {
            self.timers.0.entry(timer).or_insert(now);
        }
    }

    /// Nodes with the role that were deleted a short time ago.
    pub(crate) fn departed(&self, role: ControlPlaneRole) -> impl Iterator<Item = &NodeName> {
        self.departed.get(&role).into_iter().flatten()
    }

    /// When the next deleted node stops being a member of the control plane.
    pub(crate) fn next_departed_expiry(&self) -> Option<Timestamp> {
        let since = self.departed.iter().flat_map(|(role, nodes)| {
            let timers = nodes.iter().map(|node| departed_timer(node, *role));
            timers.filter_map(|timer| self.timers.0.get(&timer))
        });
        since.min().map(|since| *since + DEPARTED_MEMBERSHIP)
    }

    /// The time of day was set by so much: what this process has seen began so much later or earlier by the new time.
    /// Times in objects are compared with the new one as they are.
    pub fn shift_times(&mut self, step: SignedDuration) {
        let shift = |at: &mut Timestamp| *at = at.saturating_add(step).unwrap_or(*at);
        self.timers.0.values_mut().for_each(shift);
        self.name_conflicts.values_mut().for_each(shift);
        self.pruned.iter_mut().for_each(shift);
        for plan in self.plans.values_mut() {
            plan.shift_times(step);
        }
        self.pod_checks
            .values_mut()
            .for_each(|look| shift(&mut look.seen));
        self.refusals
            .values_mut()
            .for_each(|refusal| shift(&mut refusal.seen));
        for workload in self.workloads.values_mut() {
            shift(&mut workload.facts.seen);
            workload.available_since.iter_mut().for_each(shift);
        }
    }

    /// Resets the timers of a node that was seen not Ready or tainted, even for a moment: before the next decision it
    /// may be Ready again.
    pub(super) fn reset_ready_timers(&mut self, node: &str) {
        let broken = |timer: &Timer| matches!(timer, Timer::Ready { node: of, .. } if **of == *node);
        self.timers.0.retain(|timer, _| !broken(timer));
    }

    /// Since when a node with this record has been Ready and untainted in its current boot.
    pub(crate) fn ready_since(&self, node: &NodeFacts, record: &Record) -> Option<Timestamp> {
        self.timers.0.get(&ready_timer(node, record)).copied()
    }

    /// Since when this process has known this record, and the reboot that it may require.
    pub(crate) fn record_known_since(&self, node: &NodeFacts, record: &Record) -> Option<Timestamp> {
        self.timers.0.get(&record_timer(node, record)).copied()
    }

    /// Since when this process has known that the Job succeeded.
    pub(crate) fn success_known_since(&self, job: &JobFacts) -> Option<Timestamp> {
        self.timers.0.get(&success_timer(job)).copied()
    }
}

fn ready_timer(node: &NodeFacts, record: &Record) -> Timer {
    Timer::Ready {
        node: node.name.clone(),
        boot_id: node.boot_id.clone(),
        job_uid: record.job_uid.clone(),
    }
}

fn record_timer(node: &NodeFacts, record: &Record) -> Timer {
    let reboot = record.reboot.as_ref();
    Timer::Record {
        node: node.name.clone(),
        job_uid: record.job_uid.clone(),
        boot_id: reboot.and_then(|reboot| reboot.boot_id.clone()),
    }
}

fn success_timer(job: &JobFacts) -> Timer {
    Timer::Success {
        job_uid: job.uid.clone(),
    }
}

fn departed_timer(node: &NodeName, role: ControlPlaneRole) -> Timer {
    let node = node.clone();
    Timer::Departed { node, role }
}
