//! How long conditions have lasted, as far as this process has seen. Timers only delay steps: a new leader starts them
//! again.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::world::jobs::Jobs;
use crate::world::nodes::{Nodes, roles};
use refit_api::names::ControlPlaneRole;
use refit_facts::record::{Phase, Record};
use refit_facts::{BootId, JobFacts, JobOutcome, JobUid, NodeFacts, NodeName, Text};

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
pub(crate) struct Timers {
    since: BTreeMap<Timer, Timestamp>,
    /// Nodes of the control plane that were deleted a short time ago: their machines may still be members of etcd, and
    /// may register again.
    departed: BTreeMap<ControlPlaneRole, BTreeSet<NodeName>>,
}

impl Timers {
    /// Starts timers of new conditions, and drops those of conditions that ended. Returns the controllers whose pods were
    /// evicted from these nodes.
    pub(crate) fn update(&mut self, nodes: &Nodes, jobs: &Jobs, now: Timestamp) -> BTreeSet<Text> {
        let mut lasting = BTreeSet::new();
        let mut evicted = BTreeSet::new();
        for (plan, names) in nodes.recorded.iter() {
            for node in names.iter().filter_map(|node| nodes.get(node)) {
                let record = node.records.get(plan);
                let record = record.filter(|r| matches!(r.phase, Phase::Upgraded | Phase::Recovering));
                if let Some(record) = record {
                    evicted.extend(
                        record
                            .workloads
                            .iter()
                            .map(|workload| Text::from(workload.as_str())),
                    );
                    lasting.extend(node.is_ready_and_untainted().then(|| ready_timer(node, record)));
                    lasting.insert(record_timer(node, record));
                }
            }
        }
        for job in jobs.all_open() {
            if job.sentinel && matches!(job.outcome, JobOutcome::Complete { .. }) {
                lasting.insert(success_timer(job));
            }
        }
        for (role, nodes) in &mut self.departed {
            let timer = |node: &NodeName| departed_timer(node, *role);
            let since = |node: &NodeName| self.since.get(&timer(node));
            nodes.retain(|node| since(node).is_none_or(|since| *since + DEPARTED_MEMBERSHIP > now));
            lasting.extend(nodes.iter().map(timer));
        }
        self.since.retain(|timer, _| lasting.contains(timer));
        for timer in lasting {
            self.since.entry(timer).or_insert(now);
        }
        evicted
    }

    /// Nodes with the role that were deleted a short time ago.
    pub(crate) fn departed(&self, role: ControlPlaneRole) -> impl Iterator<Item = &NodeName> {
        self.departed.get(&role).into_iter().flatten()
    }

    /// When the next deleted node stops being a member of the control plane.
    pub(crate) fn next_departed_expiry(&self) -> Option<Timestamp> {
        let since = self.departed.iter().flat_map(|(role, nodes)| {
            let timers = nodes.iter().map(|node| departed_timer(node, *role));
            timers.filter_map(|timer| self.since.get(&timer))
        });
        since.min().map(|since| *since + DEPARTED_MEMBERSHIP)
    }

    /// A node was deleted.
    pub(crate) fn node_departed(&mut self, node: &NodeFacts) {
        for role in roles(node) {
            self.departed.entry(role).or_default().insert(node.name.clone());
        }
    }

    /// It has registered again, so its conditions count from now on.
    pub(crate) fn node_seen(&mut self, node: &NodeFacts) {
        for members in self.departed.values_mut() {
            members.remove(&node.name);
        }
        // Also if it was not Ready or tainted for a moment only: before the next decision it may be Ready again.
        if !node.is_ready_and_untainted() {
            let broken = |timer: &Timer| matches!(timer, Timer::Ready { node: of, .. } if *of == node.name);
            self.since.retain(|timer, _| !broken(timer));
        }
    }

    pub(super) fn shift_times(&mut self, shift: impl Fn(&mut Timestamp)) {
        self.since.values_mut().for_each(shift);
    }

    /// Since when a node with this record has been Ready and untainted in its current boot.
    pub(crate) fn ready_since(&self, node: &NodeFacts, record: &Record) -> Option<Timestamp> {
        self.since.get(&ready_timer(node, record)).copied()
    }

    /// Since when this process has known this record, and the reboot that it may require.
    pub(crate) fn record_known_since(&self, node: &NodeFacts, record: &Record) -> Option<Timestamp> {
        self.since.get(&record_timer(node, record)).copied()
    }

    /// Since when this process has known that the Job succeeded.
    pub(crate) fn success_known_since(&self, job: &JobFacts) -> Option<Timestamp> {
        self.since.get(&success_timer(job)).copied()
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
