//! What must hold whatever happens, judged on every change of the cluster in its order. The objects are read as the
//! controller reads them; all else is worked out here.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::people::SPARE;
use crate::api::{PlanStatus, SentinelReport, names};
use crate::controller::objects::{Intern, RawPlan, SlimJob, SlimNode, SlimPod};
use crate::rehearse::Kind;
use crate::rehearse::journal::{Entry, What};
use crate::rehearse::json::Value;
use crate::rehearse::store::{Change, Object};
use crate::rollout::record::Phase;
use crate::rollout::{JobFacts, NodeFacts, Outcome, PlanFacts, PodFacts, Record, Stage};

/// How the names of the clients of controllers begin.
pub(super) const CONTROLLER: &str = "controller";
/// Name of whoever meddles.
pub(super) const PERSON: &str = "somebody";

/// UIDs of a Plan and a node.
type Place = (String, String);
/// Name of a Plan and UID of a node.
type ByName = (String, String);
/// The law that was broken.
pub(super) type Broken = Result<(), String>;

#[derive(Default)]
pub(super) struct Laws {
    pub(super) nodes: BTreeMap<String, Node>,
    pub(super) jobs: BTreeMap<String, JobFacts>,
    pub(super) plans: BTreeMap<String, PlanFacts>,
    pub(super) pods: BTreeMap<String, Pod>,
    intern: Intern,
    /// What ran last on a node for a Plan.
    runs: BTreeMap<Place, Run>,
    succeeded: BTreeSet<(Place, String)>,
    /// The same by the Plan's name, which is all that a label says: one that was on its way when the Plan was made again
    /// counts for the new one.
    succeeded_by_name: BTreeSet<(ByName, String)>,
    /// Jobs whose result has come to their node.
    told_to_node: BTreeSet<String>,
    /// Boot in which the last upgrade succeeded that asked for a reboot, by Plan name, node and hash.
    to_leave: BTreeMap<(ByName, String), String>,
    /// Reboots that were requested since the upgrade ran last.
    requested: BTreeMap<(Place, String), u32>,
    pub(super) reboots: u64,
    pub(super) upgrades: u64,
    /// What has been seen, a line each.
    story: Vec<String>,
}

struct Run {
    hash: String,
    job_uid: String,
    /// It may run again: the attempt was written down, somebody asked for it, or the Job was lost.
    again: bool,
}

pub(super) struct Node {
    pub(super) facts: NodeFacts,
    /// Who made it unschedulable, if it is.
    pub(super) cordoned_by: Who,
    fitness: Fitness,
}

/// Whether a node is fit, since when, and for how long it was otherwise before.
#[derive(Clone, Copy, Default)]
struct Fitness {
    since: Option<Timestamp>,
    before: SignedDuration,
}

/// Longer than news are on their way, so that a controller must have seen it.
const SEEN: SignedDuration = SignedDuration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Nobody,
    Refit,
    Person,
}

pub(super) struct Pod {
    pub(super) facts: PodFacts,
    /// The container of the last start of its upgrade.
    container: Option<String>,
    /// Since when it runs.
    upgrading: Option<Timestamp>,
}

macro_rules! law {
    ($holds:expr, $($why:tt)*) => {
        if !$holds {
            return Err(format!($($why)*));
        }
    };
}

impl Laws {
    /// What was seen since this was last asked.
    pub(super) fn take_story(&mut self) -> Vec<String> {
        std::mem::take(&mut self.story)
    }

    /// Something has happened.
    pub(super) fn learn(&mut self, entry: &Entry) -> Broken {
        let Entry { at, who, what } = entry;
        let who = if who.starts_with(CONTROLLER) {
            CONTROLLER
        } else {
            who
        };
        match what {
            What::Change(kind, change) => {
                let done = match kind {
                    Kind::Plan => self.plan(who, change),
                    Kind::Node => self.node(*at, who, change),
                    Kind::Job => self.job(*at, who, change),
                    Kind::Pod => self.pod(*at, change),
                    _ => Ok(()),
                };
                done.map_err(|why| format!("{at} {who}: {why}"))
            }
            What::Reboot { node, pod } => {
                self.tell(*at, &format!("{} reboots {node}", pod.name));
                self.reboot(node, &pod.name)
            }
        }
    }

    fn tell(&mut self, at: Timestamp, text: &str) {
        self.story.push(format!("{at:.3}     {text}"));
    }

    // -- Plans

    fn plan(&mut self, who: &str, change: &Change) -> Broken {
        let facts = read::<RawPlan>(&change.new.value)?.facts();
        let name = facts.name.to_string();
        if change.gone {
            self.plans.remove(&name);
            return Ok(());
        }
        let before = self.plans.insert(name.clone(), facts);
        if who == CONTROLLER {
            self.status_is_written(&name, before.as_ref().map(PlanFacts::status))?;
        }
        Ok(())
    }

    fn status_is_written(&self, plan: &str, before: Option<&PlanStatus>) -> Broken {
        let facts = &self.plans[plan];
        let status = facts.status();
        let conditions: Vec<_> = status
            .conditions
            .iter()
            .map(|c| (c.type_.as_str(), c.status.as_str()))
            .collect();
        let known = ["Complete", "Validated", "LatestResolved"];
        let order = conditions.iter().map(|(type_, _)| *type_);
        law!(
            order.eq(known.into_iter().take(conditions.len())),
            "conditions of {plan}: {conditions:?}"
        );
        let empty = PlanStatus::default();
        let before = before.unwrap_or(&empty);
        let holds = |status: &PlanStatus| -> BTreeSet<(String, Option<String>)> {
            let active = status.active.iter().flatten().filter(|n| n.phase != "Waiting");
            active.map(|n| (n.name.clone(), n.uid.clone())).collect()
        };
        let (held, after) = (holds(before), holds(status));
        let fresh: Vec<_> = after
            .difference(&held)
            .filter(|(name, uid)| !self.is_on_its_way(facts, name, uid.as_deref()))
            .collect();
        let spec = &facts.object.spec;
        law!(
            fresh.is_empty() || !spec.suspend.unwrap_or_default(),
            "{plan} is suspended, and {fresh:?} are given slots"
        );
        let limit = usize::try_from(spec.concurrency.unwrap_or_default()).unwrap_or_default();
        let is_ours = before.active.is_some() || before.conditions.is_empty();
        law!(
            fresh.is_empty() || after.len() <= limit || !is_ours,
            "{} slots of {limit} in {plan}: new {fresh:?} of {after:?}",
            after.len()
        );
        let applying = status.applying.as_ref().map_or(0, Vec::len);
        law!(
            status.active.is_none() || applying == after.len(),
            "applying {:?} and active {after:?} in {plan}",
            status.applying
        );
        let mut waiting = status.active.iter().flatten().filter(|n| n.phase == "Waiting");
        let silent = waiting.find(|n| n.reason.as_deref().unwrap_or_default().is_empty());
        law!(silent.is_none(), "nobody says why {silent:?} waits for {plan}");
        Ok(())
    }

    /// A Job whose result is not recorded, or a record, gives the node a slot, whatever status said.
    fn is_on_its_way(&self, plan: &PlanFacts, node: &str, uid: Option<&str>) -> bool {
        let by_job = self.jobs.values().any(|job| {
            job.plan_uid == plan.uid
                && *job.node == *node
                && job.node_uid.as_deref().is_none_or(|known| Some(known) == uid)
        });
        let records = self.nodes.get(node).and_then(|n| n.facts.records.get(&plan.name));
        by_job || records.is_some_and(|record| *record.plan_uid == *plan.uid)
    }

    // -- Nodes

    fn node(&mut self, at: Timestamp, who: &str, change: &Change) -> Broken {
        let facts = read::<SlimNode>(&change.new.value)?.facts(&self.intern);
        let name = facts.name.to_string();
        if change.gone {
            self.nodes.remove(&name);
            return Ok(());
        }
        let before = self
            .nodes
            .get(&name)
            .map(|node| (node.facts.clone(), node.cordoned_by, node.fitness));
        let (old, cordoned_by, fitness) = match before {
            Some((old, by, fitness)) => (Some(old), by, fitness),
            None => (None, Who::Nobody, Fitness::default()),
        };
        if let Some(old) = &old {
            if who == CONTROLLER {
                self.has_settled(at, old, &facts, fitness)?;
                self.node_is_patched(old, &facts, cordoned_by)?;
            } else if who == PERSON {
                self.node_is_touched(old, &facts);
            }
            for (what, before, after) in [
                ("ready", old.is_fit().to_string(), facts.is_fit().to_string()),
                (
                    "unschedulable",
                    old.unschedulable.to_string(),
                    facts.unschedulable.to_string(),
                ),
                ("boot", old.boot_id.to_string(), facts.boot_id.to_string()),
                (
                    "records",
                    format!("{:?}", old.records),
                    format!("{:?}", facts.records),
                ),
                (
                    "ledger",
                    format!("{:?}", old.ledger),
                    format!("{:?}", facts.ledger),
                ),
            ] {
                if before != after {
                    self.story
                        .push(format!("        {name} by {who}: {what} {after}"));
                }
            }
        }
        let was = old.as_ref().is_some_and(|old| old.unschedulable);
        let cordoned_by = match (was, facts.unschedulable) {
            (_, false) => Who::Nobody,
            (true, true) => cordoned_by,
            (false, true) if who != PERSON => Who::Refit,
            // While the ledger names a holder, nobody can tell this cordon from the holder's.
            (false, true) => match &facts.ledger {
                Some(ledger) if !ledger.before && !ledger.holders.is_empty() => Who::Refit,
                _ => Who::Person,
            },
        };
        let changed = old.as_ref().is_none_or(|old| old.is_fit() != facts.is_fit());
        let fitness = if changed {
            Fitness {
                since: Some(at),
                before: fitness
                    .since
                    .map_or(SignedDuration::ZERO, |since| at.duration_since(since)),
            }
        } else {
            fitness
        };
        let node = Node {
            facts,
            cordoned_by,
            fitness,
        };
        self.nodes.insert(name, node);
        Ok(())
    }

    /// A node that a Plan calls done is Ready, and has been for as long as the Plan says.
    fn has_settled(&self, at: Timestamp, old: &NodeFacts, new: &NodeFacts, fitness: Fitness) -> Broken {
        for (name, plan) in &self.plans {
            let label = |facts: &NodeFacts| {
                facts
                    .labels
                    .get_joined(names::LABEL_PLAN_PREFIX, name)
                    .map(str::to_owned)
            };
            let (Some(settle), false) = (&plan.object.spec.settle, label(old) == label(new)) else {
                continue;
            };
            let made = plan.object.metadata.creation_timestamp.as_ref();
            if made.is_none_or(|made| at.duration_since(made.0) < SEEN) {
                continue; // it may be what the one before it has left to do
            }
            let since = fitness.since.map_or(SEEN, |since| at.duration_since(since));
            law!(
                old.is_fit() || since < SEEN,
                "{} is done for {name}, and not Ready for {since:#}",
                new.name
            );
            let long: SignedDuration = settle.min_ready.as_deref().unwrap_or("0s").parse().unwrap();
            law!(
                !old.is_fit() || since >= long || fitness.before < SEEN,
                "{} is done for {name}, and Ready for {since:#} only",
                new.name
            );
        }
        Ok(())
    }

    fn node_is_touched(&mut self, old: &NodeFacts, new: &NodeFacts) {
        let done = |facts: &NodeFacts| -> Vec<(String, String)> {
            let labels = facts.labels.iter();
            let done = labels.filter(|(key, _)| key.starts_with(names::LABEL_PLAN_PREFIX));
            done.map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect()
        };
        if done(old) != done(new) {
            let runs = self.runs.iter_mut().filter(|((_, uid), _)| **uid == *new.uid);
            runs.for_each(|(_, run)| run.again = true);
        }
    }

    fn node_is_patched(&mut self, old: &NodeFacts, new: &NodeFacts, cordoned_by: Who) -> Broken {
        let name = &new.name;
        law!(
            !old.unschedulable || new.unschedulable || cordoned_by == Who::Refit,
            "{name} is uncordoned, and was cordoned by {cordoned_by:?}: {old:?}"
        );
        for (key, value) in new.labels.iter() {
            let Some(plan) = key.strip_prefix(names::LABEL_PLAN_PREFIX) else {
                continue;
            };
            if old.labels.get(key) == Some(value) {
                continue;
            }
            let done = ((plan.to_owned(), new.uid.to_string()), value.to_owned());
            law!(
                self.succeeded_by_name.contains(&done),
                "{name} is done without a Job: {done:?}"
            );
            let left = self.to_leave.get(&done).is_none_or(|boot| **boot != *new.boot_id);
            law!(left, "{name} is done, and has not rebooted: {done:?}");
            for job in self.jobs.values() {
                if *job.hash == *value && *job.plan == *plan && job.node == new.name {
                    self.told_to_node.insert(job.uid.to_string());
                }
            }
        }
        for record in new.records.values() {
            if !old.records.values().any(|known| known == record) {
                self.is_recorded(name, record)?;
            }
        }
        Ok(())
    }

    fn is_recorded(&mut self, name: &str, record: &Record) -> Broken {
        let place = (record.plan_uid.clone(), record.node_uid.clone());
        if record.phase == Phase::Retry
            && let Some(run) = self.runs.get_mut(&place)
        {
            run.again = true;
        }
        if record.phase == Phase::Upgraded {
            let done = (place, record.hash.clone());
            law!(
                self.succeeded.contains(&done),
                "{name} is upgraded without a Job: {record:?}"
            );
        }
        self.told_to_node.insert(record.job_uid.clone());
        Ok(())
    }

    // -- Jobs

    fn job(&mut self, at: Timestamp, who: &str, change: &Change) -> Broken {
        let ttl = 0;
        let object = read::<SlimJob>(&change.new.value)?;
        if !object.is_of("system-upgrade-controller") {
            return Ok(());
        }
        let facts = object.facts(&self.intern, ttl);
        let name = facts.name.to_string();
        if change.gone || facts.deleting {
            if self.jobs.get(&name).is_some_and(|known| known.uid == facts.uid) {
                self.tell(at, &format!("Job {name} goes, by {who}"));
                if who == CONTROLLER {
                    let finalizers = change.new.value["metadata"]["finalizers"].as_array();
                    let orphans = finalizers.is_some_and(|all| all.iter().any(|one| one == "orphan"));
                    law!(!orphans, "Job {name} is deleted, and its pods are left behind");
                    self.job_is_deleted(at, &facts)?;
                }
                self.job_is_lost(&facts);
                self.jobs.remove(&name);
            }
            return Ok(());
        }
        let Some(old) = self.jobs.get(&name).cloned() else {
            self.tell(
                at,
                &format!("Job {name} for {}, attempt {}", facts.node, facts.attempt),
            );
            self.job_is_created(&facts)?;
            self.jobs.insert(name, facts);
            return Ok(());
        };
        if old.outcome != facts.outcome {
            self.tell(at, &format!("Job {name}: {:?}", facts.outcome));
        }
        if matches!(facts.outcome, Outcome::Complete { .. })
            && !matches!(old.outcome, Outcome::Complete { .. })
        {
            self.succeeds(
                &facts.plan,
                &facts.plan_uid,
                facts.node_uid.as_deref(),
                &facts.hash,
            );
        }
        if who == CONTROLLER {
            if facts.recorded && !old.recorded {
                self.is_marked(&facts)?;
            }
            if facts.backoff_limit < old.backoff_limit {
                let least = facts.failures - i32::from(self.told_to_node.contains(&*facts.uid));
                law!(
                    (least..old.backoff_limit).contains(&facts.backoff_limit),
                    "{} failures are allowed: {facts:?}",
                    facts.backoff_limit
                );
            }
        }
        self.jobs.insert(name, facts);
        Ok(())
    }

    fn succeeds(&mut self, plan: &str, plan_uid: &str, node_uid: Option<&str>, hash: &str) {
        let node_uid = node_uid.unwrap_or_default().to_owned();
        self.succeeded_by_name
            .insert(((plan.to_owned(), node_uid.clone()), hash.to_owned()));
        self.succeeded
            .insert(((plan_uid.to_owned(), node_uid), hash.to_owned()));
    }

    fn job_is_created(&self, facts: &JobFacts) -> Broken {
        let has_plan = |uid: &str| self.plans.values().any(|plan| *plan.uid == *uid);
        if !has_plan(&facts.plan_uid) {
            return Ok(());
        }
        let live = || self.jobs.values().filter(|job| job.is_live());
        let twin = live().find(|one| one.plan_uid == facts.plan_uid && one.node_uid == facts.node_uid);
        law!(twin.is_none(), "two live Jobs: {facts:?} and {twin:?}");
        let rival = live().filter(|one| has_plan(&one.plan_uid)).find(|one| {
            one.node == facts.node && one.plan != facts.plan && one.disruptive && one.parallelism > 0
        });
        law!(
            !facts.disruptive || rival.is_none(),
            "two disruptive Plans on a node: {facts:?} and {rival:?}"
        );
        if let Some(active) = self
            .plans
            .get(&*facts.plan)
            .and_then(|plan| plan.status().active.as_ref())
        {
            let named = active
                .iter()
                .filter(|node| node.phase != "Waiting")
                .any(|node| *node.name == *facts.node && node.uid.as_deref() == facts.node_uid.as_deref());
            law!(named, "a Job before status names its node: {facts:?}");
        }
        Ok(())
    }

    fn is_marked(&self, job: &JobFacts) -> Broken {
        let Some(node) = self.nodes.get(&*job.node) else {
            return Ok(());
        };
        let label = node.facts.labels.get_joined(names::LABEL_PLAN_PREFIX, &job.plan);
        let told = self.told_to_node.contains(&*job.uid);
        let fine = match job.outcome {
            Outcome::Running | Outcome::Failing { .. } => false,
            Outcome::Complete { .. } => {
                told || label.is_some_and(|label| *label == *job.hash || label == names::LABEL_VALUE_DISABLED)
                    || node.facts.uid.as_ref() != job.node_uid.as_deref().unwrap_or_default()
            }
            Outcome::Failed { .. } => true,
        };
        let plan = self
            .plans
            .get(&*job.plan)
            .is_some_and(|plan| plan.uid == job.plan_uid);
        law!(
            fine || !plan,
            "{} is marked before its result is on the node",
            job.name
        );
        Ok(())
    }

    fn job_is_deleted(&self, at: Timestamp, job: &JobFacts) -> Broken {
        // It may have begun while the request was on its way.
        let long = SignedDuration::from_secs(15);
        let running = self.pods.values().find(|pod| {
            pod.facts.job_uid == job.uid
                && !pod.facts.deleting
                && pod.upgrading.is_some_and(|since| at.duration_since(since) > long)
        });
        let plan = self.plans.values().any(|plan| plan.uid == job.plan_uid);
        let node = self.nodes.get(&*job.node);
        let machine = node.is_some_and(|node| Some(&node.facts.uid) == job.node_uid.as_ref());
        law!(
            running.is_none() || !plan || !machine || job.recorded,
            "Job {} is deleted while its upgrade runs",
            job.name
        );
        Ok(())
    }

    /// A Job goes before its result was recorded.
    fn job_is_lost(&mut self, job: &JobFacts) {
        let known_by_node = job.sentinel && matches!(job.outcome, Outcome::Complete { .. });
        if self.told_to_node.contains(&*job.uid) || known_by_node {
            return;
        }
        let runs = self.runs.values_mut().filter(|run| *run.job_uid == *job.uid);
        runs.for_each(|run| run.again = true);
    }

    // -- pods

    fn pod(&mut self, at: Timestamp, change: &Change) -> Broken {
        let value = &change.new.value;
        let ours = value.pointer("/metadata/labels/upgrade.cattle.io~1plan");
        if ours.is_none() {
            return Ok(());
        }
        let facts = read::<SlimPod>(value)?.facts(&self.intern);
        let uid = facts.uid.to_string();
        if change.gone {
            self.tell(at, &format!("pod {} is gone", facts.name));
            self.pods.remove(&uid);
            return Ok(());
        }
        let known = self.pods.remove(&uid);
        if known
            .as_ref()
            .is_none_or(|pod| pod.facts.stage != facts.stage || pod.facts.deleting != facts.deleting)
        {
            let deleting = if facts.deleting { ", told to go" } else { "" };
            self.tell(at, &format!("pod {}: {:?}{deleting}", facts.name, facts.stage));
        }
        let upgrade = container(&change.new, "upgrade");
        let id = upgrade
            .and_then(|one| one["containerID"].as_str())
            .map(str::to_owned);
        let runs = upgrade.is_some_and(|one| one["state"]["running"].is_object());
        let (container_before, since) = known.map_or((None, None), |pod| (pod.container, pod.upgrading));
        let started = id.is_some() && id != container_before;
        if started {
            self.upgrade_starts(at, &facts)?;
        }
        let sentinel = container(&change.new, "sentinel");
        let report = sentinel
            .filter(|one| one["state"]["terminated"]["exitCode"] == 0)
            .and_then(|one| one["state"]["terminated"]["message"].as_str())
            .and_then(|text| SentinelReport::parse(text).ok());
        if let Some(report) = report {
            self.sentinel_is_left(&change.new, &facts, &report);
        }
        let upgrading = match (runs, started) {
            (false, _) => None,
            (true, true) => Some(at),
            (true, false) => since,
        };
        let pod = Pod {
            facts,
            container: id,
            upgrading,
        };
        self.pods.insert(uid, pod);
        Ok(())
    }

    /// A pod of a Job starts its upgrade container.
    fn upgrade_starts(&mut self, at: Timestamp, pod: &PodFacts) -> Broken {
        self.upgrades += 1;
        self.tell(at, &format!("pod {} upgrades {:?}", pod.name, pod.node));
        let job = self.jobs.values().find(|job| job.uid == pod.job_uid);
        let Some(job) = job else { return Ok(()) };
        let place = (
            job.plan_uid.to_string(),
            job.node_uid.as_deref().unwrap_or_default().to_owned(),
        );
        let hash = job.hash.to_string();
        if let Some(run) = self.runs.get(&place) {
            law!(
                *run.job_uid == *job.uid || run.hash != hash || run.again,
                "the upgrade of {place:?} to {hash} is started twice: {job:?}"
            );
        }
        self.requested.remove(&(place.clone(), hash.clone()));
        self.to_leave
            .remove(&((job.plan.to_string(), place.1.clone()), hash.clone()));
        let job_uid = job.uid.to_string();
        self.runs.insert(
            place,
            Run {
                hash,
                job_uid,
                again: false,
            },
        );
        Ok(())
    }

    /// A sentinel was left: the upgrade has succeeded, whatever becomes of its Job.
    fn sentinel_is_left(&mut self, object: &Object, pod: &PodFacts, report: &SentinelReport) {
        let label = |key: &str| object.label(key).unwrap_or_default().to_owned();
        let annotations = &object.value["metadata"]["annotations"];
        let annotation = |key: &str| annotations[key].as_str().unwrap_or_default().to_owned();
        let hash = label(&format!("{}{}", names::LABEL_PLAN_PREFIX, pod.plan));
        let job = self.jobs.values().find(|job| job.uid == pod.job_uid);
        let (plan_uid, node_uid) = match job {
            Some(job) => (
                job.plan_uid.to_string(),
                job.node_uid.as_deref().unwrap_or_default().to_owned(),
            ),
            None => (
                annotation(names::ANNOTATION_PLAN_UID),
                annotation(names::ANNOTATION_NODE_UID),
            ),
        };
        let hash = job.map_or(hash, |job| job.hash.to_string());
        self.succeeds(&pod.plan, &plan_uid, Some(&node_uid), &hash);
        if report.required {
            self.to_leave
                .insert(((pod.plan.to_string(), node_uid), hash), report.boot_id.clone());
        }
    }

    /// A pod reboots its machine.
    fn reboot(&mut self, node: &str, pod: &str) -> Broken {
        let Some(pod) = self.pods.values().find(|known| *known.facts.name == *pod) else {
            return Ok(());
        };
        let Some(it) = &pod.facts.reboot else {
            return Ok(());
        };
        let machine = self.nodes.get(node).map(|node| node.facts.uid.clone());
        law!(
            machine.as_ref() == Some(&it.node_uid),
            "{} reboots another machine",
            pod.facts.name
        );
        let key = (
            (it.plan_uid.to_string(), it.node_uid.to_string()),
            it.hash.to_string(),
        );
        let requests = self.requested.entry(key).or_default();
        *requests += 1;
        self.reboots += 1;
        law!(*requests == 1, "{} reboots {node} a second time", pod.facts.name);
        Ok(())
    }

    // -- the end

    /// What is left when all is over.
    pub(super) fn aftermath(&self) -> Broken {
        for (name, node) in &self.nodes {
            let facts = &node.facts;
            law!(
                facts.ledger.is_none(),
                "a ledger is left on {name}: {:?}",
                facts.ledger
            );
            law!(
                facts.records.is_empty(),
                "records are left on {name}: {:?}",
                facts.records
            );
            law!(
                !facts.unschedulable || node.cordoned_by == Who::Person,
                "{name} is left cordoned by {:?}",
                node.cordoned_by
            );
            for (plan, known) in self.plans.iter().filter(|_| name != SPARE) {
                let label = facts.labels.get_joined(names::LABEL_PLAN_PREFIX, plan);
                let hash = known.status().latest_hash.as_deref();
                law!(
                    label == Some(names::LABEL_VALUE_DISABLED) || label == hash,
                    "{name} is not done: {label:?} for {hash:?} of {plan}"
                );
            }
        }
        let left = self
            .pods
            .values()
            .find(|pod| pod.facts.reboot.is_some() || pod.facts.stage != Stage::Ended);
        law!(left.is_none(), "a pod is left: {:?}", left.map(|pod| &pod.facts));
        for job in self.jobs.values() {
            law!(job.recorded, "not recorded: {job:?}");
        }
        for (name, plan) in &self.plans {
            let status = plan.status();
            law!(
                status.applying.is_none(),
                "{name} is over, and applies: {status:?}"
            );
        }
        Ok(())
    }
}

fn read<'a, T: serde::Deserialize<'a>>(value: &'a Value) -> Result<T, String> {
    T::deserialize(value).map_err(|error| format!("{value} cannot be read: {error}"))
}

/// The status of a container.
fn container<'a>(pod: &'a Object, name: &str) -> Option<&'a Value> {
    let status = &pod.value["status"];
    let all = ["initContainerStatuses", "containerStatuses"].map(|field| status[field].as_array());
    let mut all = all.into_iter().flatten().flatten();
    all.find(|one| one["name"] == name)
}
