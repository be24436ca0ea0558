//! A node without a Job whose result counts: what is left to do there, and the Job that it gets next.

use jiff::{SignedDuration, Timestamp};

use super::{Next, Question, Stand, Standing, delete};
use crate::api::NodeProgress;
use crate::job::name::{job_name, second_job_name};
use crate::rollout::blocker::Blocker;
use crate::rollout::facts::{JobFacts, NodeFacts, Text};
use crate::rollout::give_back;
use crate::rollout::record::Phase;
use crate::rollout::step::{Key, Step};
use crate::rollout::world::Making;

/// How long a name is not asked for again that a Job of somebody else's had: each time costs two requests.
const TAKEN_FOR: SignedDuration = SignedDuration::from_secs(10);

impl Question<'_> {
    /// No Job whose result counts is there.
    pub(super) fn without_job(
        &self,
        node: &NodeFacts,
        told: Option<&NodeProgress>,
        leaving: Option<&JobFacts>,
    ) -> Stand {
        let eligible = self.is_eligible(node);
        if let Some(making) = self.making(node)
            && let Some(stand) = self.being_made(node, making, told.filter(|_| eligible))
        {
            return stand;
        }
        let Some(record) = self.record(node) else {
            return match told {
                Some(_) if eligible => self.begin(node, 1, told, leaving),
                _ => Stand::Tidy(
                    give_back::void_record(self.world, node, &self.plan.facts.name)
                        .into_iter()
                        .collect(),
                ),
            };
        };
        let current = self.hash().is_some_and(|hash| **hash == *record.hash);
        match record.phase {
            Phase::Upgraded => self.finish_record(node, record),
            Phase::Recovering => self.recover(node, record),
            Phase::Retry if current && eligible => self.begin(node, record.attempt, told, leaving),
            Phase::Failed if current && eligible => Stand::slot(self.failed(node, record)),
            _ if eligible && told.is_some() => self.begin(node, 1, told, leaving),
            // What failed at another version counts no more once the node is done or not for this Plan.
            _ if eligible => Stand::Tidy(Vec::new()),
            _ => Stand::Tidy(vec![give_back::drop_record(node, &self.plan.facts.name)]),
        }
    }

    /// A Job that may be there or not. If it is for this very Plan and machine the node has its slot; and before another is
    /// made, it is looked for.
    fn being_made(&self, node: &NodeFacts, making: &Making, told: Option<&NodeProgress>) -> Option<Stand> {
        let here = making.plan_uid == self.plan.facts.uid && making.node_uid == node.uid;
        if making.under_way && !here {
            return None;
        }
        let look = || Step::LookForJob {
            plan: self.plan.facts.name.clone(),
            node: node.name.clone(),
            job: making.job.clone(),
        };
        // A list that is under way tells as much.
        let look = (!making.under_way && !self.world.jobs.is_being_listed()).then(look);
        if !here && told.is_none() {
            return Some(Stand::Tidy(look.into_iter().collect()));
        }
        let attempt = told.and_then(|told| told.attempt).unwrap_or(1);
        let mut standing = self.pending(node, attempt, told);
        if !self.can_start(node) {
            standing = standing.held_up_by(&Blocker::NodeNotReady);
        }
        Some(Stand::slot(standing).and(look))
    }

    /// A node with a slot and without a Job. The Job is made once stored status says that the node has its slot. One that
    /// never had a Job goes back to waiting when nothing new may begin; one that lost it goes on.
    fn begin(
        &self,
        node: &NodeFacts,
        attempt: i64,
        told: Option<&NodeProgress>,
        leaving: Option<&JobFacts>,
    ) -> Stand {
        let fresh = attempt == 1 && told.is_none_or(|told| told.job.is_none());
        let shut = match self.gate {
            Some(Blocker::NotReady) | None => (!self.can_start(node)).then_some(&Blocker::NodeNotReady),
            Some(blocker) => Some(blocker),
        };
        let pending = || self.pending(node, attempt, told);
        if leaving.is_none()
            && let Some(stand) = self.lost(node, attempt, told, pending)
        {
            return stand;
        }
        let mut standing = pending();
        standing.next = Some(Next::Later);
        if shut.is_some() && fresh {
            return Stand::Tidy(Vec::new());
        }
        if self.is_cancelled(node) {
            return Stand::slot(standing).and(self.take_back(node));
        }
        if self.world.ledgers_sent.contains(&node.name) {
            return Stand::slot(standing);
        }
        // What a pod of an earlier attempt has found out must not be taken for what the next one says.
        if let Some(pod) = self.left_pod(node) {
            return Stand::slot(standing.held_up_by(&Blocker::PodLeaving { pod }));
        }
        Stand::slot(match self.next_job(node, leaving) {
            Err(Hold::NotYet) => standing,
            Err(Hold::Spent(job)) => {
                standing.then(delete(job, "its result is recorded, and its name is needed"))
            }
            Err(Hold::Blocked(blocker)) => standing.held_up_by(&blocker),
            Err(Hold::Taken { job, until }) => {
                standing.wake = Some(until);
                standing.held_up_by(&Blocker::NameTaken { job })
            }
            Ok(job) => {
                if let Some(trouble) = self
                    .world
                    .troubles
                    .get(&Key::NextJob(self.plan.facts.name.clone(), node.name.clone()))
                {
                    standing = standing.held_up_by(&Blocker::JobRefused {
                        why: trouble.message.clone(),
                    });
                }
                if self.may_begin(told) && !told.is_some_and(|told| self.names_another(node, told)) {
                    let (plan, node) = (self.plan.facts.name.clone(), node.name.clone());
                    standing.next = Some(Next::Now(Step::CreateJob {
                        plan,
                        node,
                        job,
                        attempt,
                    }));
                }
                standing
            }
        })
    }

    /// A node that has its slot, before its Job is there.
    fn pending(&self, node: &NodeFacts, attempt: i64, told: Option<&NodeProgress>) -> Standing {
        let mut standing = Standing::new(node, "Pending");
        standing.attempt = Some(attempt);
        standing.since = told
            .and_then(|t| t.since.as_deref()?.parse().ok())
            .or(Some(self.now));
        // What is told of another attempt is not of this one.
        let told = told.filter(|told| told.attempt.unwrap_or(1) == attempt);
        let named = told.filter(|told| !self.names_another(node, told));
        standing.job = named.and_then(|t| t.job.as_deref()).map(Text::from);
        let boot = told.and_then(|t| t.boot_id.as_deref()).map(Text::from);
        standing.boot = boot.or_else(|| self.plan.spec().may_reboot().then(|| node.boot_id.clone()));
        standing
    }

    /// The name of the Job that can be made now.
    fn next_job(&self, node: &NodeFacts, leaving: Option<&JobFacts>) -> Result<Text, Hold<'_>> {
        let resolved = self.plan.resolved.as_ref().ok_or(Hold::NotYet)?;
        if let Some(job) = leaving {
            return Err(Hold::Blocked(Blocker::JobLeaving {
                job: job.name.to_string(),
            }));
        }
        // A roll-out that is shut for new nodes only goes on where it had begun.
        let shut = self.gate.filter(|gate| !gate.is_for_new_nodes());
        if let Some(blocker) = shut.cloned().or_else(|| self.plan.job_blocker(node.is_windows())) {
            return Err(Hold::Blocked(blocker));
        }
        if !self.can_start(node) {
            return Err(Hold::Blocked(Blocker::NodeNotReady));
        }
        self.free_name(node, &resolved.hash)
    }

    /// The Job that was asked for on the node, and of which no answer has told.
    fn making(&self, node: &NodeFacts) -> Option<&Making> {
        self.world
            .making
            .get(&(self.plan.facts.name.clone(), node.name.clone()))
    }

    /// The name of the next Job: S29's, or where that is somebody else's, one with the node's UID in it.
    fn free_name(&self, node: &NodeFacts, hash: &str) -> Result<Text, Hold<'_>> {
        let plan = &self.plan.facts;
        let first: Text = job_name(&plan.name, &node.name, hash).into();
        let second: Text = second_job_name(&plan.name, &plan.uid, &node.name, &node.uid, hash).into();
        let mut until = Timestamp::MAX;
        for name in [&first, &second] {
            match self.world.jobs.get(name) {
                Some(job) if job.node == node.name && job.plan == plan.name => {
                    return Err(if job.recorded {
                        Hold::Spent(job)
                    } else {
                        Hold::NotYet
                    });
                }
                Some(_) => {}
                None => match self.taken_until(name) {
                    Some(at) => until = until.min(at),
                    None => return Ok(name.clone()),
                },
            }
        }
        Err(Hold::Taken {
            job: second.to_string(),
            until,
        })
    }

    /// Until when a name counts as taken by a Job of somebody else's. Those Jobs are not watched.
    fn taken_until(&self, name: &str) -> Option<Timestamp> {
        let until = self.world.taken.get(name)?.saturating_add(TAKEN_FOR);
        until.ok().filter(|until| *until > self.now)
    }
}

/// Why there can be no Job yet.
enum Hold<'a> {
    /// The Plan has no version, or a Job has the name whose result is about to be recorded.
    NotYet,
    /// A Job whose result is recorded has the name.
    Spent(&'a JobFacts),
    /// Something else is in the way.
    Blocked(Blocker),
    /// Jobs of others have both names. The name is asked for again then.
    Taken { job: String, until: Timestamp },
}
