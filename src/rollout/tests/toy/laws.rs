//! What must hold whatever happens, asked at each step, decision and write.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;

use super::objects::apply;
use super::{Cordon, Toy, ToyJob, ToyPod, Who};
use crate::api::{PlanSpec, PlanStatus, names};
use crate::job::name::{job_name, second_job_name};
use crate::rollout::facts::{Outcome, Stage, Text};
use crate::rollout::record::Phase;
use crate::rollout::status::pause;
use crate::rollout::{Decision, Event, NodeChange, NodeFacts, RebootPod, Record, Step};

/// UIDs of a Plan and a node.
type Place = (String, String);

#[derive(Debug, Default)]
pub(in super::super) struct Laws {
    /// What ran last on a node for a Plan.
    runs: BTreeMap<Place, Run>,
    /// Upgrades that succeeded: place and hash.
    succeeded: BTreeSet<(Place, String)>,
    /// The same with the Plan's name, which is all that a label says: one that was on its way when the Plan was made again
    /// counts for the new one.
    succeeded_by_name: BTreeSet<(Place, String)>,
    /// Jobs whose result has come to their node.
    told_to_node: BTreeSet<String>,
    /// Keys of the events that went with a status.
    /// Of each event that went with a status: the status that was replaced.
    status_keys: BTreeMap<String, Option<PlanStatus>>,
    /// Boots in which a reboot was requested since the upgrade ran last, by place and hash.
    requested: BTreeMap<(Place, String), BTreeSet<String>>,
    /// Boot in which the last upgrade succeeded that asked for a reboot, by Plan name, node and hash.
    to_leave: BTreeMap<(Place, String), String>,
    /// How many nodes the controller thought might be worked on when it asked for a Job, by the Job's name.
    limits: BTreeMap<String, i64>,
    /// How many reboots were requested.
    pub(in super::super) reboots: u32,
    /// How many drains were told to stop.
    pub(in super::super) cancelled: u32,
    /// How many times an upgrade container was started, by place and hash.
    pub(in super::super) starts: BTreeMap<(Place, String), u32>,
}

#[derive(Debug)]
struct Run {
    hash: String,
    job_uid: String,
    /// It may run again: the attempt was written down, somebody asked for it, or the Job was lost.
    again: bool,
}

impl Toy {
    /// A step is about to be begun.
    pub(super) fn is_begun(&mut self, step: &Step) {
        let quiet = matches!(
            step,
            Step::Poll { .. }
                | Step::ReadDigest { .. }
                | Step::LookForJob { .. }
                | Step::ReadSecret { .. }
                | Step::ReadWorkload { .. }
                | Step::AskPermissions
                | Step::Tell { .. }
                | Step::ReadPlans
        );
        // What Plans held that are gone is given back all the same.
        let quiet = quiet || matches!(step, Step::PatchNode { change, .. } if change.labels.is_empty());
        let outdated = self.world.hold(self.now).is_some();
        self.law(quiet || !outdated, || {
            format!("written while the schema is outdated: {step:?}")
        });
        match step {
            Step::CreateJob { plan, node, job, .. } => {
                let uid = &self.world.node(node).unwrap().uid;
                let facts = self.world.plan(plan).unwrap();
                let mut active = facts.status().active.iter().flatten();
                let told = active.find(|n| n.name == **node && n.uid.as_deref() == Some(&**uid));
                let slot = told.filter(|told| told.phase != "Waiting");
                // One that is next may begin for a second after it was told so, if the Job is all that can be lost.
                let view = &self.world.plans[plan];
                let second = SignedDuration::from_secs(1);
                let sure = view.written.is_some_and(|it| self.now < it.sent + second);
                let next = told.is_some() && sure && view.limit() > 5 && !view.spec().may_reboot();
                self.law(slot.is_some() || next, || {
                    format!("a Job before status names {node}: {step:?}")
                });
                let hash = facts.status().latest_hash.as_deref().unwrap_or_default();
                let names = [
                    job_name(plan, node, hash),
                    second_job_name(plan, &facts.uid, node, uid, hash),
                ];
                let limit = view.limit();
                let another = slot
                    .and_then(|slot| slot.job.as_ref())
                    .filter(|job| !names.contains(job));
                self.law(another.is_none() || !facts.object.spec.may_reboot(), || {
                    format!("{job} while status says that the node has another: {another:?}")
                });
                self.laws.limits.insert(job.to_string(), limit);
            }
            Step::MarkRecorded { job, .. } => self.is_marked(job),
            _ => {}
        }
    }

    fn is_marked(&self, job: &str) {
        let job = self.world.job(job).unwrap();
        let (Some(node), Some(plan)) = (self.world.node(&job.node), self.world.plan(&job.plan)) else {
            return;
        };
        let label = node.labels.get_joined(names::LABEL_PLAN_PREFIX, &job.plan);
        let record = node.records.get(&job.plan).filter(|r| *r.job_uid == *job.uid);
        let told = self.laws.told_to_node.contains(&*job.uid);
        let fine = match job.outcome {
            Outcome::Running | Outcome::Failing { .. } => false,
            Outcome::Complete { .. } => {
                label == Some(&job.hash)
                    || record.is_some_and(|r| r.phase == Phase::Upgraded)
                    || told
                    || label == Some(names::LABEL_VALUE_DISABLED)
            }
            Outcome::Failed { .. } => {
                let view = &self.world.plans[&plan.name];
                let eligible = matches!(
                    view.nodes.class(&node.name),
                    Some(crate::rollout::view::Class::Eligible { .. })
                );
                let mut holders = node.ledger.iter().flat_map(|ledger| &ledger.holders);
                let cancelled = holders.any(|holder| *holder.plan_uid == *job.plan_uid && holder.cancelled);
                record.is_some() || told || !eligible || cancelled
            }
        };
        self.law(fine || job.is_foreign_make(), || {
            format!("{} is marked before its result is on the node", job.name)
        });
    }

    /// A decision was made.
    pub(super) fn is_decided(&self, decision: &Decision) {
        if self.trace.len().is_multiple_of(8) {
            let again = crate::rollout::decide(&self.world, self.now);
            self.law(again == *decision, || {
                format!("not the same when decided again:\n{decision:?}\n{again:?}")
            });
        }
        for (name, view) in &self.world.plans {
            if view.facts.deleting() {
                continue;
            }
            let written = decision.steps.iter().find_map(|step| match step {
                Step::WriteStatus { plan, status, .. } if plan == name => Some(&**status),
                _ => None,
            });
            let active = written.unwrap_or(view.facts.status()).active.iter().flatten();
            let begun: BTreeSet<_> = active
                .filter(|n| n.phase != "Waiting")
                .map(|n| n.name.as_str())
                .collect();
            let report = &decision.reports[name];
            // Where many have slots, who gets one now is told with the next status: soon after the last one, and no more
            // than there are slots. Who begins now need not wait for it.
            let begins = |node: &Text| {
                let begins = |step: &Step| matches!(step, Step::CreateJob { plan, node: on, .. } if plan == name && on == node);
                let making = self.world.making.contains_key(&(name.clone(), node.clone()));
                making
                    || self.world.jobs_on(node).any(|job| job.plan == *name)
                    || decision.steps.iter().any(begins)
            };
            let limit = usize::try_from(view.limit()).unwrap_or_default();
            let due = view
                .written
                .map(|written| written.at + pause(limit, written.took, true));
            let is_due = written.is_none()
                && due.is_some_and(|due| self.now < due && decision.wake.is_some_and(|wake| wake <= due));
            let mut untold = 0;
            for node in view.nodes.ready().chain(view.nodes.not_ready()) {
                let named = report.blocker.is_some() || report.nodes.contains_key(node);
                untold += usize::from(!named && !begun.contains(&**node) && !begins(node));
                self.law(untold == 0 || is_due && untold <= limit, || {
                    format!("{node} waits for {name}, nobody says why")
                });
            }
        }
    }

    /// A status is about to be stored.
    pub(super) fn status_is_written(&mut self, plan: &str, status: &PlanStatus, events: &[Event]) {
        for event in events {
            // The same of the same status, which says to the second since when what goes on goes on, is the same.
            let stored = self.plans[plan].it.object.status.clone();
            let before = self.laws.status_keys.insert(event.key.clone(), stored.clone());
            self.law(before.is_none_or(|before| before == stored), || {
                format!("two occurrences have one key: {event:?}")
            });
        }
        let conditions: Vec<_> = status
            .conditions
            .iter()
            .map(|c| (c.type_.as_str(), c.status.as_str()))
            .collect();
        self.law(conditions.iter().all(|(_, status)| *status != "Unknown"), || {
            format!("{conditions:?}")
        });
        // Our own comes after those that everybody knows.
        let order = conditions
            .iter()
            .map(|(type_, _)| *type_)
            .filter(|type_| *type_ != "UpToDate");
        let own = conditions.iter().position(|(type_, _)| *type_ == "UpToDate");
        self.law(own.is_none_or(|own| own + 1 == conditions.len()), || {
            format!("{conditions:?}")
        });
        self.law(
            order.eq(["Complete", "Validated", "LatestResolved"]
                .into_iter()
                .take(conditions.len() - own.iter().count())),
            || format!("{conditions:?}"),
        );
        let facts = &self.plans[plan].it;
        let (before, after) = (slots_in(facts.status()), slots_in(status));
        let limit = match &facts.object.spec.max_concurrent {
            Some(_) => self.world.plans[plan].limit(),
            None => facts.object.spec.concurrency.unwrap_or(0).max(0),
        };
        let limit = usize::try_from(limit).unwrap();
        let fresh = after
            .difference(&before)
            .filter(|(name, uid)| !self.is_on_its_way(plan, name, uid.as_deref()));
        let fresh: Vec<_> = fresh.collect();
        self.law(
            fresh.is_empty() || !facts.object.spec.suspend.unwrap_or_default(),
            || format!("{plan} is suspended, and {fresh:?} are given slots"),
        );
        let is_ours = facts.object.status.as_ref().is_none_or(|s| s.active.is_some());
        self.law(fresh.is_empty() || after.len() <= limit || !is_ours, || {
            format!(
                "{} slots of {limit} in {plan}: new {fresh:?} of {after:?}",
                after.len()
            )
        });
        // Nor may one get a slot that is there no more, since another node has begun.
        let at_work = self.at_work(&facts.uid);
        let held = after.union(&at_work).count();
        self.law(fresh.is_empty() || held <= limit || !is_ours, || {
            format!("{held} slots of {limit} in {plan}: new {fresh:?} of {after:?} beside {at_work:?}")
        });
        let applying = status.applying.as_ref().map_or(0, Vec::len);
        self.law(applying == after.len(), || {
            format!("applying {:?} and active {after:?}", status.applying)
        });
    }

    /// Nodes on which a Job of this Plan has not ended.
    fn at_work(&self, plan_uid: &str) -> BTreeSet<(String, Option<String>)> {
        let jobs = self.jobs.values().map(|job| &job.it.facts);
        let live = jobs.filter(|job| *job.plan_uid == *plan_uid && job.is_live());
        live.filter_map(|job| {
            let uid = &self.nodes.get(&*job.node)?.it.facts.uid;
            let here = job.node_uid.as_ref().is_none_or(|of| of == uid);
            here.then(|| (job.node.to_string(), Some(uid.to_string())))
        })
        .collect()
    }

    /// A Job whose result is not recorded, or a record, gives the node a slot, whatever status said.
    fn is_on_its_way(&self, plan: &str, node: &str, uid: Option<&str>) -> bool {
        let plan_uid = &self.plans[plan].it.uid;
        let by_job = self.jobs.values().any(|job| {
            let facts = &job.it.facts;
            facts.plan_uid == *plan_uid
                && *facts.node == *node
                && facts.node_uid.as_deref().is_none_or(|u| Some(u) == uid)
                && !self.world.job(&facts.name).is_some_and(|known| known.recorded)
        });
        let records = self.nodes.get(node).and_then(|n| n.it.facts.records.get(plan));
        by_job || records.is_some_and(|r| *r.plan_uid == **plan_uid)
    }

    /// A Job is about to be stored.
    pub(super) fn job_is_created(&self, job: &ToyJob) {
        let facts = &job.facts;
        let others = || {
            self.jobs
                .values()
                .map(|job| &job.it.facts)
                .filter(|other| other.is_live())
        };
        let twin =
            others().find(|other| other.plan_uid == facts.plan_uid && other.node_uid == facts.node_uid);
        self.law(twin.is_none() || facts.node_uid.is_none(), || {
            format!("two live Jobs: {facts:?} {twin:?}")
        });
        self.runs_by_the_digest_that_is_stored(job);
        let plan = self.plans.get(&*facts.plan).map(|plan| &plan.it);
        let plan = plan.filter(|plan| plan.uid == facts.plan_uid);
        if let (Some(plan), Some(node)) = (plan, self.nodes.get(&*facts.node)) {
            let place = (facts.node.to_string(), Some(node.it.facts.uid.to_string()));
            let told = slots_in(plan.status()).contains(&place);
            let (others, limit) = (
                self.at_work(&facts.plan_uid).len(),
                self.laws.limits.get(&*facts.name),
            );
            let room = limit.is_none_or(|limit| i64::try_from(others).is_ok_and(|others| others < *limit));
            self.law(told || room, || {
                format!(
                    "{others} of {limit:?} nodes are worked on, and one that was not told begins: {facts:?}"
                )
            });
        }
        let has_plan = |uid: &str| self.plans.values().any(|plan| *plan.it.uid == *uid);
        let rival = others()
            .filter(|other| has_plan(&other.plan_uid) && has_plan(&facts.plan_uid))
            .find(|other| {
                other.node == facts.node
                    && other.plan != facts.plan
                    && other.disruptive
                    && other.parallelism > 0
            });
        self.law(
            !facts.disruptive || rival.is_none() || facts.node_uid.is_none(),
            || format!("two disruptive Plans on a node: {facts:?} {rival:?}"),
        );
    }

    /// Of a Plan that pins digests, all Jobs at one hash run by the digest that its status has.
    fn runs_by_the_digest_that_is_stored(&self, job: &ToyJob) {
        let facts = &job.facts;
        let plan = self.plans.values().find(|plan| plan.it.uid == facts.plan_uid);
        let pins = |spec: &PlanSpec| spec.pins_digests() && !spec.upgrade.image.contains('@');
        let Some(plan) = plan.filter(|plan| pins(&plan.it.object.spec)) else {
            return;
        };
        let status = plan.it.status();
        if facts.is_foreign_make() || status.latest_hash.as_deref() != Some(&*facts.hash) {
            return;
        }
        let pinned = status
            .pinned
            .as_ref()
            .filter(|pinned| *pinned.hash == *facts.hash);
        let is_stored = pinned.is_some_and(|pinned| {
            let mut images = pinned.images.iter();
            images.any(|image| job.image == format!("{}@{}", image.image, image.digest))
        });
        self.law(is_stored, || {
            format!("{} and status has {:?}", job.image, status.pinned)
        });
    }

    /// The controller is about to delete a Job.
    pub(super) fn job_is_deleted(&self, name: &str) {
        let job = &self.jobs[name].it;
        let runs = self.pods.values().any(|pod| {
            pod.it.facts.job_uid == job.facts.uid
                && pod.it.facts.stage == Stage::Upgrade
                && !pod.it.terminating
        });
        let plan = self.plans.values().any(|plan| plan.it.uid == job.facts.plan_uid);
        let node = self.nodes.get(&*job.facts.node);
        let machine = node.is_some_and(|n| {
            job.facts
                .node_uid
                .as_ref()
                .is_none_or(|uid| *uid == n.it.facts.uid)
        });
        self.law(!(runs && plan && machine), || {
            format!("Job {name} is deleted while its upgrade runs")
        });
    }

    /// The controller lowers how often a Job may fail.
    pub(super) fn retries_are_ended(&self, name: &str, limit: i32) {
        let Some(job) = self.jobs.get(name) else { return };
        let facts = &job.it.facts;
        let node = self.nodes.get(&*facts.node);
        let records = node.into_iter().flat_map(|node| node.it.facts.records.values());
        // Ended, since its failure is written down.
        let ended = records.into_iter().any(|record| *record.job_uid == *facts.uid);
        let least = facts.failures - i32::from(ended);
        let fine = (least..facts.backoff_limit).contains(&limit);
        self.law(fine, || format!("{limit} failures are allowed for {facts:?}"));
    }

    /// A pod is made for a Job.
    pub(super) fn pod_is_made(&self, job: &ToyJob) {
        let Cordon::Refit(holder) = &job.cordon else {
            return;
        };
        let node = self.nodes.get(&*job.facts.node);
        self.law(node.is_none_or(|node| node.it.lets_in(holder)), || {
            format!("{} was cancelled and is tried again", job.facts.name)
        });
    }

    /// A Job goes before it said that its result is recorded.
    pub(super) fn job_is_lost(&mut self, name: &str) {
        let Some(job) = self.jobs.get(name) else { return };
        let uid = job.it.facts.uid.to_string();
        // The node knows of a success that asks for a reboot.
        let is_done = job.it.facts.sentinel && matches!(job.it.facts.outcome, Outcome::Complete { .. });
        if self.laws.told_to_node.contains(&uid) || is_done {
            return;
        }
        self.laws
            .runs
            .values_mut()
            .filter(|run| run.job_uid == uid)
            .for_each(|run| run.again = true);
    }

    /// A person changes the label of a node that says what is done.
    pub(super) fn done_label_is_touched(&mut self, node: &NodeFacts, key: &str) {
        if key.starts_with(names::LABEL_PLAN_PREFIX) {
            let runs = self
                .laws
                .runs
                .iter_mut()
                .filter(|((_, uid), _)| **uid == *node.uid);
            runs.for_each(|(_, run)| run.again = true);
        }
    }

    /// A pod of this Job starts its upgrade container.
    pub(super) fn upgrade_starts(&mut self, job_uid: &str) {
        let Some(job) = self.jobs.values_mut().find(|job| *job.it.facts.uid == *job_uid) else {
            return;
        };
        job.it.upgraded = true;
        let facts = job.it.facts.clone();
        let Some(place) = self.place(&facts) else { return };
        let hash = facts.hash.to_string();
        if let Some(run) = self.laws.runs.get(&place) {
            let fine = run.job_uid == job_uid || run.hash != hash || run.again;
            self.law(fine, || {
                format!("the upgrade of {place:?} to {hash} is started twice")
            });
        }
        self.laws.requested.remove(&(place.clone(), hash.clone()));
        self.laws
            .to_leave
            .remove(&((facts.plan.to_string(), place.1.clone()), hash.clone()));
        *self.laws.starts.entry((place.clone(), hash.clone())).or_default() += 1;
        let again = false;
        self.laws.runs.insert(
            place,
            Run {
                hash,
                job_uid: job_uid.to_owned(),
                again,
            },
        );
    }

    /// A Job has succeeded.
    pub(super) fn job_succeeds(&mut self, name: &str) {
        let facts = self.jobs[name].it.facts.clone();
        if let Some(place) = self.place(&facts) {
            let by_name = (facts.plan.to_string(), place.1.clone());
            self.laws
                .succeeded_by_name
                .insert((by_name, facts.hash.to_string()));
            self.laws.succeeded.insert((place, facts.hash.to_string()));
        }
    }

    /// A sentinel was left: the upgrade has succeeded, whatever becomes of its Job.
    pub(super) fn sentinel_is_left(&mut self, pod: &ToyPod, hash: &str, required: bool) {
        let node = &self.nodes[&pod.target].it;
        let (uid, boot) = (node.facts.uid.to_string(), node.boot.clone());
        let by_name = ((pod.facts.plan.to_string(), uid.clone()), hash.to_owned());
        let by_uid = ((pod.plan_uid.to_string(), uid), hash.to_owned());
        self.laws.succeeded.insert(by_uid);
        self.laws.succeeded_by_name.insert(by_name.clone());
        if required {
            self.laws.to_leave.insert(by_name, boot);
        }
    }

    /// A pod of the controller's requests a reboot.
    pub(super) fn reboot_is_requested(&mut self, pod: &ToyPod, it: &RebootPod) {
        let node = &self.nodes[&pod.target].it;
        let boot = node.boot.clone();
        self.law(it.node_uid == node.facts.uid, || {
            format!("{pod:?} is on another machine")
        });
        let key = (
            (it.plan_uid.to_string(), it.node_uid.to_string()),
            it.hash.to_string(),
        );
        let boots = self.laws.requested.entry(key).or_default();
        boots.insert(boot);
        let (once, boots) = (boots.len() == 1, format!("{boots:?}"));
        self.laws.reboots += 1;
        self.law(once, || format!("a second reboot is requested: {pod:?} {boots}"));
    }

    fn place(&self, job: &crate::rollout::JobFacts) -> Option<Place> {
        let node = self.nodes.get(&*job.node)?;
        let uid = job.node_uid.as_ref().unwrap_or(&node.it.facts.uid);
        Some((job.plan_uid.to_string(), uid.to_string()))
    }

    /// The controller is about to patch a node.
    pub(super) fn node_is_patched(&mut self, name: &str, change: &NodeChange) {
        let node = self.nodes[name].it.clone();
        let jobs: Vec<_> = self
            .jobs
            .values()
            .filter(|job| *job.it.facts.node == *name)
            .map(|j| j.it.clone())
            .collect();
        if change.unschedulable == Some(false) {
            // S60: system-upgrade-controller's own uncordon whatever is cordoned.
            let by_suc = jobs
                .iter()
                .any(|job| job.facts.is_foreign_make() && job.cordon == Cordon::Kubectl);
            let ours = !matches!(node.cordoned_by, Who::Person) || by_suc;
            self.law(ours && !node.facts.keep_cordoned, || {
                format!("{name} is uncordoned, cordoned by {node:?}")
            });
        }
        for (key, value) in &change.labels {
            let (Some(plan), Some(value)) = (key.strip_prefix(names::LABEL_PLAN_PREFIX), value) else {
                continue;
            };
            let Some(plan) = self.world.plan(plan) else {
                continue;
            };
            let done = ((plan.name.to_string(), node.facts.uid.to_string()), value.clone());
            self.law(self.laws.succeeded_by_name.contains(&done), || {
                format!("{name} is done without a Job: {done:?}")
            });
            let left = self
                .laws
                .to_leave
                .get(&done)
                .is_none_or(|boot| *boot != *node.facts.boot_id);
            self.law(left, || {
                format!("{name} is done, and has not rebooted: {done:?} {node:?}")
            });
            for job in jobs
                .iter()
                .filter(|job| job.facts.hash.as_ref() == value && job.facts.plan == plan.name)
            {
                self.laws.told_to_node.insert(job.facts.uid.to_string());
            }
        }
        let cancelled = |facts: &NodeFacts| {
            let holders = facts.ledger.iter().flat_map(|ledger| &ledger.holders);
            holders.filter(|holder| holder.cancelled).count()
        };
        let mut after = node.facts.clone();
        apply(&mut after, change);
        self.laws.cancelled += u32::from(cancelled(&after) > cancelled(&node.facts));
        for (key, text) in &change.annotations {
            let (Some(_), Some(text)) = (key.strip_prefix(names::ANNOTATION_RECORD_PREFIX), text) else {
                continue;
            };
            let record = Record::parse(text).unwrap();
            if record.phase == Phase::Retry {
                let place = (record.plan_uid.clone(), record.node_uid.clone());
                self.laws
                    .runs
                    .get_mut(&place)
                    .into_iter()
                    .for_each(|run| run.again = true);
            }
            if record.phase == Phase::Upgraded {
                let place = (record.plan_uid.clone(), record.node_uid.clone());
                let done = (place, record.hash.clone());
                self.law(self.laws.succeeded.contains(&done), || {
                    format!("{name} upgraded without a Job: {record:?}")
                });
            }
            self.laws.told_to_node.insert(record.job_uid);
        }
    }
}

/// Names and UIDs of the nodes that have a slot.
fn slots_in(status: &PlanStatus) -> BTreeSet<(String, Option<String>)> {
    let active = status.active.iter().flatten().filter(|n| n.phase != "Waiting");
    active.map(|n| (n.name.clone(), n.uid.clone())).collect()
}
