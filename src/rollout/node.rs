//! One node under one Plan: where it stands, from its Job, its record and what status says, and what is to be done next.
//! The same facts give the same answer whenever they are looked at, so a controller that was away finds its way.

use jiff::{SignedDuration, Timestamp};

use super::blocker::Blocker;
use super::conditions::seconds;
use super::event::{Event, EventType};
use super::facts::{JobFacts, NodeFacts, Outcome, Stage, Text};
use super::give_back;
use super::plan::PlanView;
use super::record::{Phase, Record};
use super::step::{Key, NodeChange, Step};
use super::view::Class;
use super::world::World;
use crate::api::{names, status::NodeProgress};
use crate::job::name::{job_name, second_job_name};

/// Where a node stands that the Plan has begun with.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) uid: Text,
    pub(super) hostname: String,
    pub(super) failed: bool,
    /// `status.active[].phase`.
    pub(super) phase: &'static str,
    pub(super) since: Option<Timestamp>,
    pub(super) job: Option<Text>,
    pub(super) attempt: Option<i64>,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
    pub(super) steps: Vec<Step>,
    pub(super) wake: Option<Timestamp>,
}

impl Standing {
    fn new(node: &NodeFacts, phase: &'static str) -> Self {
        Self {
            uid: node.uid.clone(),
            hostname: node.hostname().to_owned(),
            failed: false,
            phase,
            since: None,
            job: None,
            attempt: None,
            reason: None,
            message: None,
            steps: Vec::new(),
            wake: None,
        }
    }

    /// A node that is about to be started: it waits for status to say so.
    pub(super) fn starting(node: &NodeFacts, now: Timestamp) -> Self {
        Self {
            since: Some(now),
            attempt: Some(1),
            ..Self::new(node, "Pending")
        }
    }

    fn of_job(node: &NodeFacts, job: &JobFacts, phase: &'static str) -> Self {
        let mut standing = Self::new(node, phase);
        standing.since = Some(job.created);
        standing.job = Some(job.name.clone());
        standing.attempt = Some(job.attempt);
        standing
    }

    fn of_record(node: &NodeFacts, record: &Record, phase: &'static str) -> Self {
        let mut standing = Self::new(node, phase);
        standing.since = Some(record.at);
        standing.job = Some(record.job.as_str().into());
        standing.attempt = Some(record.attempt);
        standing.reason.clone_from(&record.reason);
        standing.message.clone_from(&record.message);
        standing
    }

    fn settling(node: &NodeFacts, success: &Success<'_>) -> Self {
        let mut standing = Self::new(node, "Settling");
        standing.since = Some(success.at);
        standing.job = Some(success.job.into());
        standing.attempt = Some(success.attempt);
        standing
    }

    fn held_up(mut self, reason: &str, message: String) -> Self {
        self.reason = Some(reason.to_owned());
        self.message = Some(message);
        self
    }

    fn then(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }
}

/// Where a node stands: with a slot, or with only some tidying up to do.
pub(super) enum Stand {
    Slot(Standing),
    Tidy(Vec<Step>),
}

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
        let mut leaving = false;
        let mut open: Option<&JobFacts> = None;
        for job in self.jobs_on(name) {
            let right = job.plan_uid == self.plan.facts.uid
                && job.node_uid.as_ref().is_none_or(|uid| *uid == node.uid);
            if job.deleting {
                leaving = true;
            } else if !right {
                leaving = true;
                tidy.push(delete(
                    job,
                    "it is for another Plan or another machine of the same name",
                ));
            } else if !job.recorded && open.is_none_or(|known| rank(job) < rank(known)) {
                open = Some(job);
            }
        }
        let mut stand = match open {
            Some(job) => self.with_job(node, job, told, leaving),
            None => self.without_job(node, told, leaving),
        };
        match &mut stand {
            Stand::Slot(standing) => standing.steps.append(&mut tidy),
            Stand::Tidy(steps) => steps.append(&mut tidy),
        }
        stand
    }

    fn jobs_on(&self, node: &str) -> impl Iterator<Item = &JobFacts> {
        let names = self.world.jobs_on.get(node).into_iter().flatten();
        names
            .filter_map(|job| self.world.jobs.get(job))
            .filter(|job| job.plan == self.plan.facts.name)
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

    fn hash(&self) -> Option<&Text> {
        self.plan.resolved.as_ref().map(|r| &r.hash)
    }

    fn record<'n>(&self, node: &'n NodeFacts) -> Option<&'n Record> {
        node.records
            .get(&self.plan.facts.name)
            .filter(|record| *record.plan_uid == *self.plan.facts.uid && *record.node_uid == *node.uid)
    }

    fn with_job(
        &self,
        node: &NodeFacts,
        job: &JobFacts,
        told: Option<&NodeProgress>,
        leaving: bool,
    ) -> Stand {
        match &job.outcome {
            Outcome::Complete { at } => self.finish(node, &Success::of_job(job, *at, self.plan), Some(job)),
            Outcome::Failed { at, reason, message } => self.fail(
                node,
                job,
                &Failure {
                    at: *at,
                    reason,
                    message,
                },
                told,
                leaving,
            ),
            Outcome::Failing { reason, message } if !node.ready => {
                let mut standing = Standing::of_job(node, job, "Failed");
                standing.failed = true;
                Stand::Slot(standing.held_up(
                    "NodeLost",
                    format!(
                        "{reason}: {message}; the node is not Ready, so that nothing is known of its pod: bring the node \
                         back, or delete it"
                    ),
                ))
            }
            Outcome::Running | Outcome::Failing { .. } => Stand::Slot(self.live(node, job)),
        }
    }

    /// A Job that has not ended. One that the Plan no longer asks for goes only while nothing runs on the node: an upgrade
    /// that runs is let finish, whatever has changed.
    fn live(&self, node: &NodeFacts, job: &JobFacts) -> Standing {
        let pods = self.world.pods_of.get(&job.uid).into_iter().flatten();
        let pod = pods
            .filter_map(|p| self.world.pods.get(p))
            .max_by_key(|p| (p.stage != Stage::Ended, p.stage));
        let stage = pod.map_or(Stage::Unbound, |p| p.stage);
        let mut standing = Standing::of_job(node, job, stage.phase());
        if let Some(why) = pod.and_then(|p| p.waiting.clone()) {
            standing = standing.held_up("PodWaiting", why);
        }
        if !node.ready && stage != Stage::Unbound {
            standing = standing.held_up("NodeNotReady", Blocker::NodeNotReady.to_string());
        }
        let wanted = self.is_eligible(node)
            && self.hash().is_some_and(|hash| *hash == job.hash)
            && job
                .inputs
                .as_ref()
                .is_none_or(|inputs| *inputs == self.plan.inputs);
        if !wanted && stage == Stage::Unbound {
            return standing.then(Step::DeleteJob {
                job: job.name.clone(),
                uid: job.uid.clone(),
                only_unbound: true,
                why: "the Plan no longer asks for it, and nothing of it runs",
            });
        }
        if wanted && job.parallelism == 0 {
            standing = standing.then(Step::ReleaseJob {
                job: job.name.clone(),
                uid: job.uid.clone(),
            });
        }
        standing
    }

    /// A Job that has failed for good: the node is told first, then the Job. The failure of what the Plan no longer asks
    /// for is only told.
    fn fail(
        &self,
        node: &NodeFacts,
        job: &JobFacts,
        failure: &Failure<'_>,
        told: Option<&NodeProgress>,
        leaving: bool,
    ) -> Stand {
        let Failure { at, reason, message } = *failure;
        let counts = self.is_eligible(node) && self.hash().is_some_and(|hash| *hash == job.hash);
        let known = self.record(node).is_some_and(|r| *r.job_uid == *job.uid);
        if known || !counts {
            // What system-upgrade-controller dealt with before the swap is not told again.
            let events = if known || !job.is_foreign_make() || told.is_some() {
                vec![self.failed_event(job, node, reason, message)]
            } else {
                Vec::new()
            };
            let mark = self.mark(job, at, events);
            return match self.without_job(node, told, leaving) {
                Stand::Slot(standing) => Stand::Slot(standing.then(mark)),
                Stand::Tidy(mut steps) => {
                    steps.push(mark);
                    Stand::Tidy(steps)
                }
            };
        }
        let last_words = self
            .world
            .pods_of
            .get(&job.uid)
            .into_iter()
            .flatten()
            .filter_map(|pod| self.world.pods.get(pod)?.last_words.as_deref())
            .next_back();
        let text = last_words.map_or_else(|| message.to_owned(), |words| format!("{message}: {words}"));
        let record = Record {
            namespace: self.world.defaults.namespace.clone(),
            plan_uid: self.plan.facts.uid.to_string(),
            node_uid: node.uid.to_string(),
            hash: job.hash.to_string(),
            version: job.version.to_string(),
            phase: Phase::Failed,
            attempt: job.attempt,
            job_uid: job.uid.to_string(),
            job: job.name.to_string(),
            inputs: job
                .inputs
                .as_deref()
                .or(Some(&self.plan.inputs))
                .map(str::to_owned),
            at,
            uncordon: false,
            reason: Some(reason.to_owned()),
            message: Some(text.clone()),
        };
        let mut standing = Standing::of_job(node, job, "Failed").held_up(reason, text);
        standing.failed = true;
        standing.since = Some(at);
        Stand::Slot(standing.then(self.patch_record(node, Some(&record), Vec::new())))
    }

    fn failed_event(&self, job: &JobFacts, node: &NodeFacts, reason: &str, message: &str) -> Event {
        self.job_event(
            EventType::Warning,
            "JobFailed",
            failure_text(
                &self.world.defaults.namespace,
                &job.name,
                &node.name,
                reason,
                message,
            ),
            &job.uid,
        )
    }

    fn job_event(&self, type_: EventType, reason: &'static str, message: String, job_uid: &str) -> Event {
        let plan = &self.plan.facts;
        Event::plan(&plan.name, &plan.uid, type_, reason, message, job_uid)
    }

    fn patch_record(&self, node: &NodeFacts, record: Option<&Record>, events: Vec<Event>) -> Step {
        let mut change = NodeChange::default();
        change
            .annotations
            .insert(record_key(&self.plan.facts.name), record.map(Record::to_text));
        Step::PatchNode {
            node: node.name.clone(),
            uid: node.uid.clone(),
            change,
            events,
        }
    }

    /// The upgrade succeeded. The node is done when it is Ready and the delay is over; what has to outlive the Job until
    /// then goes into the record first.
    fn finish(&self, node: &NodeFacts, success: &Success<'_>, job: Option<&JobFacts>) -> Stand {
        let labelled = node
            .labels
            .get_joined(names::LABEL_PLAN_PREFIX, &self.plan.facts.name);
        let disabled = labelled == Some(names::LABEL_VALUE_DISABLED);
        let record = self.record(node);
        if labelled == Some(success.hash) && record.is_none() {
            let done = self.job_event(
                EventType::Normal,
                "JobComplete",
                complete_text(node),
                success.job_uid,
            );
            return Stand::Tidy(
                job.map(|job| self.mark(job, success.at, vec![done]))
                    .into_iter()
                    .collect(),
            );
        }
        let due = success
            .at
            .saturating_add(self.plan.delay)
            .unwrap_or(Timestamp::MAX);
        let ready = node.ready || self.plan.tolerates_not_ready;
        if ready && due <= self.now {
            let mut change = self.done_change(node, success, disabled);
            give_back::release(node, &self.holder_uid(), success.uncordon, &mut change);
            let events = match job {
                Some(_) => Vec::new(), // told with the mark on the Job, which comes next
                None => vec![self.job_event(
                    EventType::Normal,
                    "JobComplete",
                    complete_text(node),
                    success.job_uid,
                )],
            };
            let standing = Standing::settling(node, success);
            return Stand::Slot(standing.then(Step::PatchNode {
                node: node.name.clone(),
                uid: node.uid.clone(),
                change,
                events,
            }));
        }
        let mut standing = Standing::settling(node, success);
        if ready {
            let text = format!("spec.postCompleteDelay is over at {}", seconds(due));
            standing = standing.held_up("PostCompleteDelay", text);
            standing.wake = Some(due);
        } else {
            standing = standing.held_up("NodeNotReady", Blocker::NodeNotReady.to_string());
        }
        let mut change = NodeChange::default();
        if record.is_none_or(|r| *r.job_uid != *success.job_uid || r.phase != Phase::Upgraded) {
            let text = success
                .record(&self.world.defaults.namespace, &self.plan.facts.uid, &node.uid)
                .to_text();
            change
                .annotations
                .insert(record_key(&self.plan.facts.name), Some(text));
        }
        if ready {
            // Schedulable again while the delay runs (S60); the label comes when it is over.
            give_back::release(node, &self.holder_uid(), success.uncordon, &mut change);
        }
        if !change.is_empty() {
            let step = Step::PatchNode {
                node: node.name.clone(),
                uid: node.uid.clone(),
                change,
                events: Vec::new(),
            };
            return Stand::Slot(standing.then(step));
        }
        if let Some(job) = job {
            let events = if self.plan.delay.is_positive() {
                let text = format!(
                    "Job completed on Node {}, waiting {} PostCompleteDelay",
                    node.name,
                    self.plan.delay_text()
                );
                vec![self.job_event(EventType::Normal, "JobCompleteWaiting", text, success.job_uid)]
            } else {
                Vec::new()
            };
            standing = standing.then(self.mark(job, success.at, events));
        }
        Stand::Slot(standing)
    }

    fn holder_uid(&self) -> give_back::Mine<'_> {
        give_back::Mine {
            defaults: &self.world.defaults,
            plan_uid: &self.plan.facts.uid,
        }
    }

    fn done_change(&self, node: &NodeFacts, success: &Success<'_>, disabled: bool) -> NodeChange {
        let plan = &self.plan.facts.name;
        let mut change = NodeChange::default();
        if !disabled {
            change.labels.insert(
                format!("{}{plan}", names::LABEL_PLAN_PREFIX),
                Some(success.hash.to_owned()),
            );
        }
        for (key, value) in self.plan.spec().post_complete_labels.iter().flatten() {
            change
                .labels
                .insert(key.clone(), Some(expand(value, success.version, success.hash)));
        }
        if node.records.contains_key(plan) {
            change.annotations.insert(record_key(plan), None);
        }
        change
    }

    /// Says on a finished Job that its result is recorded, and lets its TTL run from now on.
    fn mark(&self, job: &JobFacts, at: Timestamp, events: Vec<Event>) -> Step {
        let past = self.now.duration_since(at).max(SignedDuration::ZERO).as_secs();
        let ttl_seconds = i32::try_from(past.saturating_add(job.ttl)).unwrap_or(i32::MAX);
        Step::MarkRecorded {
            job: job.name.clone(),
            uid: job.uid.clone(),
            ttl_seconds,
            events,
        }
    }

    /// No Job whose result counts is there.
    fn without_job(&self, node: &NodeFacts, told: Option<&NodeProgress>, leaving: bool) -> Stand {
        let eligible = self.is_eligible(node);
        let Some(record) = self.record(node) else {
            let void = node
                .records
                .get(&self.plan.facts.name)
                .is_some_and(|record| record.namespace == self.world.defaults.namespace);
            if eligible && told.is_some() {
                return Stand::Slot(self.wants_job(node, 1, told, leaving));
            }
            return Stand::Tidy(
                void.then(|| self.patch_record(node, None, Vec::new()))
                    .into_iter()
                    .collect(),
            );
        };
        let current = self.hash().is_some_and(|hash| **hash == *record.hash);
        match record.phase {
            Phase::Upgraded => self.finish(node, &Success::of_record(record), None),
            Phase::Retry if current && eligible => {
                Stand::Slot(self.wants_job(node, record.attempt, told, leaving))
            }
            Phase::Failed if current && eligible => Stand::Slot(self.failed(node, record)),
            _ if eligible && told.is_some() => Stand::Slot(self.wants_job(node, 1, told, leaving)),
            // What failed at another version counts no more once the node is done or not for this Plan.
            _ if eligible => Stand::Tidy(Vec::new()),
            _ => Stand::Tidy(vec![self.patch_record(node, None, Vec::new())]),
        }
    }

    /// A node on which the Plan failed keeps its slot until something gives a reason to try again, and that is written
    /// down before it is done.
    fn failed(&self, node: &NodeFacts, record: &Record) -> Standing {
        let asked = node
            .retry
            .as_ref()
            .is_some_and(|r| **r == *"*" || *r == self.plan.facts.name);
        let edited = record
            .inputs
            .as_deref()
            .is_some_and(|inputs| *inputs != *self.plan.inputs);
        let mut standing = Standing::of_record(node, record, "Failed");
        standing.failed = true;
        if !asked && !edited || self.gate.is_some() {
            return standing;
        }
        let next = Record {
            phase: Phase::Retry,
            attempt: record.attempt + 1,
            inputs: Some(self.plan.inputs.to_string()),
            at: self.now,
            reason: None,
            message: None,
            ..record.clone()
        };
        let mut change = NodeChange::default();
        change
            .annotations
            .insert(record_key(&self.plan.facts.name), Some(next.to_text()));
        if asked {
            change
                .annotations
                .insert(names::ANNOTATION_RETRY.to_owned(), None);
        }
        standing.failed = false;
        standing.phase = "Pending";
        standing.attempt = Some(next.attempt);
        (standing.reason, standing.message) = (None, None);
        standing.then(Step::PatchNode {
            node: node.name.clone(),
            uid: node.uid.clone(),
            change,
            events: Vec::new(),
        })
    }

    /// A node with a slot and without a Job. The Job is made once stored status says that the node has its slot.
    fn wants_job(
        &self,
        node: &NodeFacts,
        attempt: i64,
        told: Option<&NodeProgress>,
        leaving: bool,
    ) -> Standing {
        let mut standing = Standing::new(node, "Pending");
        standing.attempt = Some(attempt);
        standing.since = told
            .and_then(|t| t.since.as_deref()?.parse().ok())
            .or(Some(self.now));
        let Some(resolved) = &self.plan.resolved else {
            return standing;
        };
        if leaving {
            let job = self
                .jobs_on(&node.name)
                .next()
                .map_or_else(String::new, |j| j.name.to_string());
            let blocker = Blocker::JobLeaving { job };
            return standing.held_up(blocker.reason(), blocker.to_string());
        }
        if let Some(blocker) = self.plan.job_blocker(node.is_windows()) {
            return standing.held_up(blocker.reason(), blocker.to_string());
        }
        let name = match self.free_name(node, &resolved.hash) {
            Ok(name) => name,
            Err(NotFree::Spent(job)) => {
                return standing.then(delete(job, "its result is recorded, and its name is needed"));
            }
            Err(NotFree::Taken(job)) => {
                let blocker = Blocker::NameTaken { job };
                return standing.held_up(blocker.reason(), blocker.to_string());
            }
        };
        if let Some(trouble) = self.world.troubles.get(&Key::Job(name.clone())) {
            let blocker = Blocker::JobRefused {
                why: trouble.message.clone(),
            };
            standing = standing.held_up(blocker.reason(), blocker.to_string());
        }
        let stored = self.plan.facts.status();
        let stored_hash = stored.latest_hash.as_deref() == Some(&*resolved.hash);
        let may = !matches!(
            self.gate,
            Some(Blocker::SchemaOutdated { .. } | Blocker::NotReady)
        );
        if told.is_some() && stored_hash && may {
            let (plan, node) = (self.plan.facts.name.clone(), node.name.clone());
            standing = standing.then(Step::CreateJob {
                plan,
                node,
                job: name,
                attempt,
            });
        }
        standing
    }

    /// The name of the next Job: S29's, or where that is somebody else's, one with the node's UID in it.
    fn free_name(&self, node: &NodeFacts, hash: &str) -> Result<Text, NotFree<'_>> {
        let plan = &self.plan.facts;
        let first: Text = job_name(&plan.name, &node.name, hash).into();
        let second: Text = second_job_name(&plan.name, &plan.uid, &node.name, &node.uid, hash).into();
        for name in [&first, &second] {
            match self.world.jobs.get(name) {
                Some(job) if job.node == node.name && job.plan == plan.name => {
                    return Err(NotFree::Spent(job));
                }
                Some(_) => {}
                None if self.world.taken.contains(name) => {}
                None => return Ok(name.clone()),
            }
        }
        Err(NotFree::Taken(second.to_string()))
    }
}

enum NotFree<'a> {
    Spent(&'a JobFacts),
    Taken(String),
}

/// An upgrade that succeeded, as its Job or its record tells it.
struct Success<'a> {
    hash: &'a str,
    version: &'a str,
    at: Timestamp,
    attempt: i64,
    job: &'a str,
    job_uid: &'a str,
    inputs: Option<&'a str>,
    /// The node was cordoned for it by something that keeps no ledger.
    uncordon: bool,
}

impl<'a> Success<'a> {
    fn of_job(job: &'a JobFacts, at: Timestamp, plan: &PlanView) -> Self {
        let spec = plan.spec();
        let cordons = spec.cordon.unwrap_or_default() || spec.drain.is_some();
        let uncordon = match job.unschedulable_before {
            Some(before) => !before,
            None => job.is_foreign_make() && cordons, // S60
        };
        Self {
            hash: &job.hash,
            version: &job.version,
            at,
            attempt: job.attempt,
            job: &job.name,
            job_uid: &job.uid,
            inputs: job.inputs.as_deref(),
            uncordon,
        }
    }

    fn of_record(record: &'a Record) -> Self {
        Self {
            hash: &record.hash,
            version: &record.version,
            at: record.at,
            attempt: record.attempt,
            job: &record.job,
            job_uid: &record.job_uid,
            inputs: record.inputs.as_deref(),
            uncordon: record.uncordon,
        }
    }

    fn record(&self, namespace: &str, plan_uid: &str, node_uid: &str) -> Record {
        Record {
            namespace: namespace.to_owned(),
            plan_uid: plan_uid.to_owned(),
            node_uid: node_uid.to_owned(),
            hash: self.hash.to_owned(),
            version: self.version.to_owned(),
            phase: Phase::Upgraded,
            attempt: self.attempt,
            job_uid: self.job_uid.to_owned(),
            job: self.job.to_owned(),
            inputs: self.inputs.map(str::to_owned),
            at: self.at,
            uncordon: self.uncordon,
            reason: None,
            message: None,
        }
    }
}

/// A Job that failed for good.
struct Failure<'a> {
    at: Timestamp,
    reason: &'a str,
    message: &'a str,
}

/// A Job that succeeded counts before one that failed, and both before one that runs.
fn rank(job: &JobFacts) -> u8 {
    match job.outcome {
        Outcome::Complete { .. } => 0,
        Outcome::Failed { .. } => 1,
        Outcome::Running | Outcome::Failing { .. } => 2,
    }
}

fn delete(job: &JobFacts, why: &'static str) -> Step {
    Step::DeleteJob {
        job: job.name.clone(),
        uid: job.uid.clone(),
        only_unbound: false,
        why,
    }
}

fn record_key(plan: &str) -> String {
    format!("{}{plan}", names::ANNOTATION_RECORD_PREFIX)
}

fn complete_text(node: &NodeFacts) -> String {
    format!("Job completed on Node {}", node.name)
}

/// S54's words for a failure.
pub(super) fn failure_text(namespace: &str, job: &str, node: &str, reason: &str, message: &str) -> String {
    format!("Job {namespace}/{job} failed on Node {node}: {reason}: {message}")
}

/// `$(LATEST_VERSION)` and `$(LATEST_HASH)` in the value of a label; another `$(X)` stays, and `$$` is `$` (S59).
fn expand(value: &str, version: &str, hash: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let mut rest = value;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let (text, length) = if rest.starts_with("$$") {
            ("$", 2)
        } else if rest.starts_with("$(LATEST_VERSION)") {
            (version, "$(LATEST_VERSION)".len())
        } else if rest.starts_with("$(LATEST_HASH)") {
            (hash, "$(LATEST_HASH)".len())
        } else {
            ("$", 1)
        };
        out.push_str(text);
        rest = &rest[length..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::expand;

    #[test]
    fn labels_expand_as_kubernetes_expands_variables() {
        let expand = |value| expand(value, "v1", "abc");
        assert_eq!(expand("$(LATEST_VERSION)"), "v1");
        assert_eq!(expand("a-$(LATEST_HASH)-$(LATEST_VERSION)"), "a-abc-v1");
        assert_eq!(expand("$(OTHER)"), "$(OTHER)");
        assert_eq!(expand("$$(LATEST_VERSION)"), "$(LATEST_VERSION)");
        assert_eq!(expand("cost$"), "cost$");
        assert_eq!(expand("static"), "static");
    }
}
