//! An entry of the annotation `refit.rs/labelled-jobs` of a Node: a Job for whose success refit labelled the node.

use crate::node::NodeFacts;
use refit_api::ids::JobUid;

/// Maximum number of entries of a Node, because an annotation has a limited size.
pub const MAX_LABELLED_JOBS: usize = 16;

#[derive(Clone, Copy)]
pub struct LabelledJob<'a> {
    pub namespace: &'a str,
    pub plan: &'a str,
    pub job: &'a str,
}

impl<'a> LabelledJob<'a> {
    pub fn parse(text: &'a str) -> Option<Self> {
        let (namespace, rest) = text.split_once('/')?;
        let (plan, job) = rest.split_once('/')?;
        Some(Self { namespace, plan, job })
    }

    pub fn text(self) -> String {
        format!("{}/{}/{}", self.namespace, self.plan, self.job)
    }
}

impl NodeFacts {
    pub fn labelled_entries(&self) -> impl Iterator<Item = LabelledJob<'_>> {
        let entries = self.labelled_jobs.iter().flat_map(|text| text.split(','));
        entries.filter_map(LabelledJob::parse).take(MAX_LABELLED_JOBS)
    }

    /// The Plans of this namespace for which the node has entries.
    pub fn labelled_for<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a str> {
        let ours = self
            .labelled_entries()
            .filter(move |it| it.namespace == namespace);
        ours.map(|it| it.plan)
    }

    /// Whether the node got its label for the success of this Job, even if the label has been removed since.
    pub fn was_labelled_for(&self, job: &JobUid) -> bool {
        self.labelled_entries().any(|it| *it.job == **job)
    }
}
