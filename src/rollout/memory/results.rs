//! How far the results of Jobs are recorded.

use std::collections::{BTreeMap, BTreeSet};

use refit_facts::{JobUid, Termination};

#[derive(Debug, Default)]
pub(crate) struct Results {
    /// UIDs of deleted Jobs whose result is not recorded yet.
    pub(crate) deleted_unrecorded: BTreeSet<JobUid>,
    /// UIDs of Jobs that succeeded, whose nodes are labelled, and whose annotation `refit.rs/recorded` is in flight.
    /// Later changes of their nodes do not concern them.
    pub(crate) marking: BTreeSet<JobUid>,
    /// UIDs of Jobs that succeeded, and whose nodes were seen with the label.
    pub(crate) labelled: BTreeSet<JobUid>,
    /// How containers of deleted pods failed, by UID of their Job. When a Job exceeds its deadline, its pods are deleted
    /// before the Job reports the failure.
    pub(crate) failed_containers: BTreeMap<JobUid, Termination>,
}

impl Results {
    /// The annotation is on the Job.
    pub(crate) fn recorded(&mut self, job: &str) {
        self.marking.remove(job);
        self.labelled.remove(job);
    }

    /// Forgets a Job that is gone, or whose name another one has.
    pub(crate) fn forget(&mut self, job: &str) {
        self.recorded(job);
        self.deleted_unrecorded.remove(job);
        self.failed_containers.remove(job);
    }
}
