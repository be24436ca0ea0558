//! One node under one Plan: where it stands, from its Job, its record and what status says, and what is to be done next.
//! The same facts give the same answer whenever they are looked at, so a controller that was away finds its way.

mod begin;
mod boots;
mod cancel;
mod fail;
mod finish;
mod lost;
mod reboot;
mod recover;
mod settle;
mod standing;
mod success;

use jiff::{SignedDuration, Timestamp};

pub(super) use fail::failure_text;
pub(super) use recover::Workload;
pub(super) use standing::{Next, Stand, Standing};

use super::blocker::Blocker;
use super::event::{Event, EventType};
use super::facts::{JobFacts, NodeFacts, Outcome, PodFacts, Stage, Text};
use super::plan::PlanView;
use super::record::Record;
use super::status::WAITING;
use super::step::{NodeChange, Step};
use super::view::Class;
use super::world::World;
use crate::api::{names, status::NodeProgress};

/// What is asked of a node under a Plan.
pub(super) struct Question<'a> {
    pub(super) world: &'a World,
    pub(super) plan: &'a PlanView,
    pub(super) now: Timestamp,
    /// Why nothing new may begin on any node of the Plan.
    pub(super) gate: Option<&'a Blocker>,
}

impl Question<'_> {
    /// `told`: what stored status says of the node, if it has a slot there.
    pub(super) fn stand(&self, name: &Text, told: Option<&NodeProgress>) -> Stand {
        let Some(node) = self.world.nodes.get(name) else {
            return Stand::Tidy(self.without_node(name));
        };
        let mut tidy = Vec::new();
        let mut leaving = None;
        let mut live: Vec<&JobFacts> = Vec::new();
        let mut ended: Vec<&JobFacts> = Vec::new();
        for job in self.jobs_on(name) {
            let right = job.plan_uid == self.plan.facts.uid
                && job.node_uid.as_ref().is_none_or(|uid| *uid == node.uid);
            if job.deleting {
                leaving = Some(job);
            } else if !right {
                leaving = Some(job);
                tidy.push(delete(
                    job,
                    "it is for another Plan or another machine of the same name",
                ));
            } else if job.recorded {
                // Spent: it is not looked at again.
            } else if self.world.marking.contains(&job.uid) || self.is_overtaken(job) {
                tidy.push(self.mark_done(node, job));
            } else if job.is_live() {
                live.push(job);
            } else {
                ended.push(job);
            }
        }
        ended.sort_by_key(|job| job.outcome.ended());
        if let Some(first) = live
            .iter()
            .position(|job| self.is_wanted(node, job))
            .or((!live.is_empty()).then_some(0))
        {
            let job = live.swap_remove(first);
            tidy.extend(live.iter().filter_map(|job| self.replace(job)));
            tidy.extend(ended.iter().map(|job| self.mark(job, Vec::new())));
            return Stand::slot(self.live(node, job, told)).and(tidy);
        }
        let last = ended.pop();
        // What ended before the last one has been overtaken by it.
        tidy.extend(ended.iter().map(|job| self.mark(job, Vec::new())));
        let stand = match last {
            Some(job) if matches!(job.outcome, Outcome::Complete { .. }) => self.finish_job(node, job),
            Some(job) => self.fail(node, job, told, leaving),
            None => self.without_job(node, told, leaving),
        };
        stand.and(tidy)
    }

    fn jobs_on(&self, node: &str) -> impl Iterator<Item = &JobFacts> {
        self.world
            .jobs_on(node)
            .filter(|job| job.plan == self.plan.facts.name)
    }

    /// A Job that was made when this one had ended is recorded already: what this one did on the node is no news, whoever
    /// may have failed to say so on it.
    fn is_overtaken(&self, job: &JobFacts) -> bool {
        let Some(ended) = job.outcome.ended() else {
            return false;
        };
        self.jobs_on(&job.node).any(|next| {
            next.recorded
                && next.plan_uid == job.plan_uid
                && next.node_uid == job.node_uid
                && next.created > job.created
                && next.created >= ended
        })
    }

    /// The node is gone: so is what its Jobs were for.
    fn without_node(&self, name: &str) -> Vec<Step> {
        self.jobs_on(name)
            .filter(|job| !job.deleting)
            .map(|job| delete(job, "its node is gone"))
            .collect()
    }

    fn class(&self, node: &NodeFacts) -> Option<Class> {
        self.plan.nodes.class(&node.name)
    }

    fn is_eligible(&self, node: &NodeFacts) -> bool {
        matches!(self.class(node), Some(Class::Eligible { .. }))
    }

    fn can_start(&self, node: &NodeFacts) -> bool {
        node.ready || self.plan.tolerates_not_ready
    }

    fn hash(&self) -> Option<&Text> {
        self.plan.resolved.as_ref().map(|r| &r.hash)
    }

    fn record<'n>(&self, node: &'n NodeFacts) -> Option<&'n Record> {
        node.records
            .get(&self.plan.facts.name)
            .filter(|record| *record.plan_uid == *self.plan.facts.uid && *record.node_uid == *node.uid)
    }

    /// The Plan asks for just what the Job does. What a spec asks for that cannot be read is not known.
    fn is_wanted(&self, node: &NodeFacts, job: &JobFacts) -> bool {
        self.plan.facts.malformed.is_some()
            || self.is_eligible(node)
                && self.hash().is_some_and(|hash| *hash == job.hash)
                && job
                    .inputs
                    .as_ref()
                    .is_none_or(|inputs| *inputs == self.plan.inputs)
    }

    /// A Job that has not ended. One that the Plan no longer asks for goes while nothing runs on the node, and is told to
    /// stop while it drains: an upgrade that runs is let finish, whatever has changed.
    fn live(&self, node: &NodeFacts, job: &JobFacts, told: Option<&NodeProgress>) -> Standing {
        if let Outcome::Failing { reason, message } = &job.outcome
            && !node.ready
        {
            let mut standing = Standing::of_job(node, job, "Failed");
            standing.failed = true;
            let text = format!(
                "{reason}: {message}; the node is not Ready, so that nothing is known of its pod: bring the node back, or \
                 delete it"
            );
            return standing.held_up("NodeLost", text);
        }
        if let Some(standing) = self.stopped(node, job) {
            return standing;
        }
        let pod = self.pod(job);
        let stage = pod.map_or(Stage::Unbound, |p| p.stage);
        let mut standing = Standing::of_job(node, job, stage.phase());
        if let Some(why) = pod.and_then(|p| p.waiting.clone()) {
            standing = standing.held_up("PodWaiting", why);
        }
        if let Some(note) = pod
            .filter(|p| p.stage == Stage::Drain)
            .and_then(|p| p.drain.as_ref())
        {
            standing = if note.waiting.is_empty() {
                standing.goes_on(note.to_string())
            } else {
                standing.held_up("DrainWaiting", shortened(note.to_string()))
            };
        }
        if !node.ready && stage != Stage::Unbound {
            standing = standing.held_up_by(&Blocker::NodeNotReady);
        }
        if let Some(step) = self.clears(node, job) {
            standing.steps.push(step);
        } else if self.is_cancelled(node) {
            standing = standing.held_up(
                "Cancelled",
                "the Plan no longer asks for what this Job does, and its drain has been told to stop"
                    .to_owned(),
            );
        }
        if !self.is_wanted(node, job) {
            standing
                .steps
                .extend(self.replace(job).or_else(|| self.cancel(node, job)));
        } else if job.parallelism == 0 {
            // Made by system-upgrade-controller, which lets it run in a second step: that is how it begins.
            let may = self.may_begin(told) && self.gate.is_none() && self.can_start(node);
            let step = Step::ReleaseJob {
                job: job.name.clone(),
                uid: job.uid.clone(),
            };
            standing.next = Some(if may { Next::Now(step) } else { Next::Later });
        }
        // After what ends it, which counts more.
        if standing.steps.is_empty() && standing.next.is_none() {
            standing.steps.extend(boots::note_boot(node, job));
        }
        standing
    }

    /// The pod of a Job that says how far it has come.
    fn pod(&self, job: &JobFacts) -> Option<&PodFacts> {
        self.world
            .pods_of(&job.uid)
            .max_by_key(|p| (p.stage != Stage::Ended, p.stage))
    }

    fn replace(&self, job: &JobFacts) -> Option<Step> {
        let unbound = self.pod(job).is_none_or(|pod| pod.stage == Stage::Unbound);
        unbound.then(|| Step::DeleteJob {
            job: job.name.clone(),
            uid: job.uid.clone(),
            only_unbound: true,
            why: "the Plan no longer asks for it, and nothing of it runs",
        })
    }

    /// Stored status names the machine, at this hash, and the API server has said what this controller may do. A status
    /// that is on its way must not take back what the stored one gives: another node may have that slot in it. Who is only
    /// next has no slot there; that there is one for it is asked where slots are given.
    fn may_begin(&self, told: Option<&NodeProgress>) -> bool {
        let is_named = |told: &NodeProgress| {
            if told.phase == WAITING {
                self.plan.is_sure(self.now)
            } else {
                self.plan.keeps_slot(told)
            }
        };
        told.is_some_and(|told| told.uid.is_some() && is_named(told))
            && self
                .hash()
                .is_some_and(|hash| self.plan.facts.status().latest_hash.as_deref() == Some(&**hash))
            && self.plan.digests.is_stored()
            && self.world.is_permitted(self.plan)
    }

    fn job_event(&self, type_: EventType, reason: &'static str, message: String, job_uid: &str) -> Event {
        Event::job(
            &self.plan.facts.name,
            &self.plan.facts.uid,
            type_,
            reason,
            message,
            job_uid,
        )
    }

    fn patch_record(&self, node: &NodeFacts, record: &Record, events: Vec<Event>) -> Step {
        let mut change = NodeChange::default();
        change
            .annotations
            .insert(record_key(&self.plan.facts.name), Some(record.to_text()));
        patch(node, change, events)
    }

    /// Says on a finished Job that its result is recorded, and lets its TTL run from now on.
    fn mark(&self, job: &JobFacts, events: Vec<Event>) -> Step {
        let at = job.outcome.ended().unwrap_or(self.now);
        let past = self.now.duration_since(at).max(SignedDuration::ZERO).as_secs();
        let ttl_seconds = i32::try_from(past.saturating_add(job.ttl.max(0))).unwrap_or(i32::MAX);
        Step::MarkRecorded {
            job: job.name.clone(),
            uid: job.uid.clone(),
            ttl_seconds,
            events,
            may_wait: false,
        }
    }
}

/// How much of what a drain says is shown, in bytes: as much as an event's message holds.
const DRAIN_SHOWN: usize = 1_024;

/// What a pod says of itself may be of any length.
fn shortened(mut text: String) -> String {
    if text.len() > DRAIN_SHOWN {
        let end = (0..=DRAIN_SHOWN).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or_default());
        text.push('…');
    }
    text
}

fn delete(job: &JobFacts, why: &'static str) -> Step {
    Step::DeleteJob {
        job: job.name.clone(),
        uid: job.uid.clone(),
        only_unbound: false,
        why,
    }
}

fn patch(node: &NodeFacts, change: NodeChange, events: Vec<Event>) -> Step {
    Step::PatchNode {
        node: node.name.clone(),
        uid: node.uid.clone(),
        change,
        events,
    }
}

pub(super) fn record_key(plan: &str) -> String {
    format!("{}{plan}", names::ANNOTATION_RECORD_PREFIX)
}
