//! A Job that is lost before anybody saw it end, of a Plan that reboots: its upgrade may have succeeded, and must not run
//! again then. The node is asked first. What it has to say does not outlive a boot: where nobody can know any more, a
//! person has to decide.

use super::reboot::{ASKING, EVIDENCE_LOST, EVIDENCE_UNHEARD};
use super::settle::later;
use super::success::Success;
use super::{Next, Question, Stand, Standing};
use crate::api::NodeProgress;
use crate::job::name::{job_name, second_job_name};
use crate::rollout::blocker::Blocker;
use crate::rollout::facts::{Found, NodeFacts, Text};
use crate::rollout::record::{Reboot, Record};

impl Question<'_> {
    /// Where a node stands whose Job may have been made and lost; nothing where the next one can be made.
    pub(super) fn lost(
        &self,
        node: &NodeFacts,
        attempt: i64,
        told: Option<&NodeProgress>,
        standing: impl FnOnce() -> Standing,
    ) -> Option<Stand> {
        let (told, hash) = (told?, self.hash()?);
        if !self.plan.spec().may_reboot() || !self.may_be_lost(node, hash, attempt, told) {
            return None;
        }
        let pod = self.reboot_pod(node, hash, None);
        let at_work = |live: &super::PodFacts| {
            live.plan == self.plan.facts.name && pod.is_none_or(|(pod, _)| pod.uid != live.uid)
        };
        let mut standing = standing();
        standing.next = None;
        // Who comes next is not to take it for one that was never begun.
        let plan = &self.plan.facts.name;
        let name = standing.job.take();
        standing.job = name.or_else(|| Some(job_name(plan, &node.name, hash).into()));
        if let Some(pod) = self.world.live_pods_on(&node.name).find(|pod| at_work(pod)) {
            let pod = pod.name.to_string();
            return Some(Stand::slot(standing.held_up_by(&Blocker::PodLeaving { pod })));
        }
        let answer = pod
            .filter(|(pod, _)| !pod.deleting)
            .and_then(|(pod, _)| pod.found.as_ref());
        Some(match answer {
            Some(Found::Success { boot_id, required }) => {
                let record = Record {
                    reboot: required.then(|| Reboot {
                        boot_id: Some(boot_id.to_string()),
                        since: self.now,
                    }),
                    ..self.lost_record(node, hash, attempt, told)
                };
                standing.pod = self.witness(node, hash);
                Stand::slot(standing.then(self.patch_record(node, &record, Vec::new())))
            }
            Some(Found::Nothing { boot_id: Some(now) }) if told.boot_id.as_deref() == Some(&**now) => {
                // Still the boot in which it was begun: it has not succeeded. That is told by naming no Job. Whoever finds it
                // told by another process, which may have made one since, names the Job again before that.
                if told.job.is_some() {
                    standing.job = None;
                }
                standing.next = Some(Next::Later);
                standing.pod = pod.map(|(pod, _)| pod.uid.clone());
                Stand::slot(standing)
            }
            Some(Found::Nothing { .. }) => {
                let record = self.lost_record(node, hash, attempt, told);
                self.gives_up(
                    node,
                    &record,
                    "RebootFailed",
                    "EvidenceLost",
                    EVIDENCE_LOST.to_owned(),
                )
            }
            None if pod
                .is_some_and(|(_, it)| later(it.created, self.plan.terms.reboot_timeout) <= self.now) =>
            {
                let record = self.lost_record(node, hash, attempt, told);
                let why = EVIDENCE_UNHEARD.to_owned();
                self.gives_up(node, &record, "RebootFailed", "EvidenceLost", why)
            }
            None => {
                let begun = pod.map_or(self.now, |(_, it)| it.created);
                let due = later(begun, self.plan.terms.reboot_timeout);
                standing.wake = Some(due);
                let standing = standing.goes_on(ASKING.to_owned());
                Stand::slot(self.with_pod(node, standing, hash, None, due))
            }
        })
    }

    /// The slot was given, a Job may have been made since, and none is there.
    fn may_be_lost(&self, node: &NodeFacts, hash: &Text, attempt: i64, told: &NodeProgress) -> bool {
        let plan = &self.plan.facts;
        if told.attempt.unwrap_or(1) != attempt || told.uid.is_none() {
            return false;
        }
        let names = self.job_names(node, hash);
        let mine = |name: &String| {
            let job = self.world.jobs.get(name);
            job.is_some_and(|job| job.plan == plan.name && job.node == node.name)
        };
        if names.iter().any(mine) {
            return false; // it is about to go, and its result is known
        }
        match &told.job {
            Some(job) => names.contains(job),
            // Whoever gave it may have made the Job before saying so.
            None => !self.world.fresh.contains(&(plan.name.clone(), node.uid.clone())),
        }
    }

    /// The names that a Job of this hash may have on a node.
    fn job_names(&self, node: &NodeFacts, hash: &str) -> [String; 2] {
        let plan = &self.plan.facts;
        [
            job_name(&plan.name, &node.name, hash),
            second_job_name(&plan.name, &plan.uid, &node.name, &node.uid, hash),
        ]
    }

    /// The Job that status names is one of another hash. Where a lost Job is not simply made again, status has to stop naming
    /// that one before the next is made: whoever comes after this process could not know of the next.
    pub(super) fn names_another(&self, node: &NodeFacts, told: &NodeProgress) -> bool {
        let (Some(hash), Some(job)) = (self.hash(), &told.job) else {
            return false;
        };
        self.plan.spec().may_reboot() && !self.job_names(node, hash).contains(job)
    }

    fn lost_record(&self, node: &NodeFacts, hash: &Text, attempt: i64, told: &NodeProgress) -> Record {
        let first = job_name(&self.plan.facts.name, &node.name, hash);
        let success = Success {
            hash,
            version: self.plan.resolved.as_ref().map_or("", |r| &*r.version),
            at: self.now,
            attempt,
            job: told.job.as_deref().unwrap_or(&first),
            job_uid: "",
            inputs: Some(&self.plan.inputs),
            uncordon: false,
        };
        self.success_record(node, &success)
    }
}
