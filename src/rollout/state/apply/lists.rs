//! Lists: which objects they no longer contain, and which responses they have overtaken.

use crate::observation::Kind;
use crate::state::{ClusterState, Relist};

/// Number of lists of each kind that had begun and ended at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListCounts([u64; 4]);

impl ClusterState {
    pub(super) fn start_list(&mut self, kind: Kind) {
        match kind {
            Kind::Node => {
                self.nodes.start_list();
                self.start_list_of_unreadable();
            }
            Kind::Job => self.jobs.start_list(),
            Kind::Pod => self.pods.start_list(),
            Kind::Plan => {
                self.plan_lists += u64::from(self.plan_lists.is_multiple_of(2));
                self.plans.values_mut().for_each(|p| p.listed = false);
            }
        }
    }

    /// A list or a watch has returned this object.
    pub(super) fn mark_listed(&mut self, kind: Kind, name: &str) {
        match kind {
            Kind::Node => self.nodes.mark_listed(name),
            Kind::Job => self.jobs.mark_listed(name),
            Kind::Pod => self.pods.mark_listed(name),
            Kind::Plan => {
                if let Some(plan) = self.plans.get_mut(name) {
                    plan.listed = true;
                }
            }
        }
    }

    /// A list ends. Returns whether an object was removed.
    pub(super) fn finish_list(&mut self, kind: Kind) -> bool {
        let mut read_again = kind == Kind::Node && self.finish_list_of_unreadable();
        let gone = match kind {
            Kind::Node => self
                .nodes
                .finish_list(|name, node| (name.text().clone(), node.uid.text().clone())),
            Kind::Job => self
                .jobs
                .finish_list(|name, job| (name.text().clone(), job.uid.text().clone())),
            Kind::Pod => self
                .pods
                .finish_list(|name, pod| (name.clone(), pod.uid.text().clone())),
            Kind::Plan => {
                self.plan_lists += 1;
                if self.relist == Relist::Running {
                    self.relist = Relist::Done;
                    read_again = true;
                }
                let unlisted = self.plans.iter().filter(|(_, plan)| !plan.listed);
                unlisted
                    .map(|(name, plan)| (name.text().clone(), plan.facts.uid.text().clone()))
                    .collect()
            }
        };
        for (name, uid) in &gone {
            match kind {
                Kind::Node => self.remove_node(name, uid),
                Kind::Job => self.remove_job(name, uid),
                Kind::Pod => self.remove_pod(name, uid),
                Kind::Plan => self.remove_plan(name, uid),
            };
        }
        // The list may show whether a requested Job exists.
        read_again || !gone.is_empty() || kind == Kind::Job && !self.pending_creates.is_empty()
    }

    /// Number of lists of each kind that have begun and ended. Note it when a request is sent, for
    /// [`ClusterState::apply_effect`].
    pub fn lists(&self) -> ListCounts {
        ListCounts([
            self.nodes.lists(),
            self.jobs.lists(),
            self.pods.lists(),
            self.plan_lists,
        ])
    }

    /// Whether the response to a request sent at `sent` may describe a deleted object: the object is not known, and a
    /// list that has run since need not have contained it before its deletion. If the object exists after all, the
    /// watch reports it.
    pub(super) fn is_answer_stale(&self, kind: Kind, name: &str, sent: ListCounts) -> bool {
        let known = match kind {
            Kind::Node => self.nodes.get(name).is_some(),
            Kind::Job => self.jobs.get(name).is_some(),
            Kind::Pod => self.pods.get(name).is_some(),
            Kind::Plan => self.plans.contains_key(name),
        };
        let lists = self.lists().0[kind as usize];
        !known && (lists != sent.0[kind as usize] || !lists.is_multiple_of(2))
    }
}
