//! Reads a cluster. What may not be read, or does not exist, is a gap: everything else is shown all the same.

mod follow;
mod lists;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kube::Client;
use serde_json::value::RawValue;

pub use follow::ObjectKind;
pub(super) use lists::list;
use lists::{Reader, event_line, job_object, pod_object, salvaged};
use refit_api::{DrainNote, OpenEnum, Reason};
use refit_facts::objects::Intern;
use refit_facts::objects::maintenance::Maintenance;
use refit_facts::{JobFacts, NodeFacts, PlanFacts, PodFacts};

/// Nodes whose pods are read, because a drain waits there for pods that it does not name.
const MAX_DRAINS: usize = 5;

/// Which Plans to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// `None` means all namespaces.
    pub namespace: Option<String>,
    /// Where to look if all namespaces may not be listed.
    pub fallback_namespace: String,
}

/// What could be read of a cluster.
#[derive(Debug, Default)]
pub struct Snapshot {
    pub now: Timestamp,
    /// The namespace whose Plans were read; `None` means all.
    pub namespace: Option<String>,
    /// By namespace and name.
    pub plans: Vec<PlanFacts>,
    /// `None` if Nodes may not be read.
    pub nodes: Option<BTreeMap<String, NodeObject>>,
    pub jobs: Vec<JobObject>,
    pub pods: Vec<PodObject>,
    /// By name.
    pub maintenances: Vec<Maintenance>,
    /// Events about Plans, the oldest first.
    pub events: Vec<EventLine>,
    pub budgets: Vec<Budget>,
    /// What could not be read, and why.
    pub gaps: Vec<String>,
    /// Pods for which drains wait although they should have ended.
    pub terminating: Vec<Terminating>,
}

#[derive(Debug)]
pub struct NodeObject {
    pub facts: NodeFacts,
    /// Reason, message and time of the condition Ready.
    pub ready: Option<(String, String, String)>,
}

#[derive(Debug)]
pub struct JobObject {
    pub namespace: String,
    /// Name of the controller that it belongs to.
    pub controller: String,
    pub facts: JobFacts,
    pub started: Option<Timestamp>,
}

#[derive(Debug)]
pub struct PodObject {
    pub namespace: String,
    /// Whether it has come to `prepare`: the stage is the same in `preflight`.
    pub prepares: bool,
    pub facts: PodFacts,
    pub created: Option<Timestamp>,
}

/// A pod that is past its grace period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terminating {
    pub node: String,
    /// Namespace and name, separated by `/`.
    pub pod: String,
    /// When its grace period ended.
    pub ends: Timestamp,
    pub finalizers: Vec<String>,
}

/// An Event about a Plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventLine {
    pub uid: String,
    pub namespace: String,
    pub plan: String,
    pub at: Timestamp,
    pub reason: OpenEnum<Reason>,
    pub message: String,
}

/// A `PodDisruptionBudget` that a drain waits for, and its pods.
#[derive(Debug)]
pub struct Budget {
    pub namespace: String,
    pub name: String,
    pub allowed: i64,
    pub healthy: i64,
    pub desired: i64,
    pub expected: i64,
    /// Its pods that are not Ready, each with the reason.
    pub unready: Vec<(String, String)>,
}

impl Snapshot {
    /// Reads the cluster.
    ///
    /// # Errors
    /// Fails if Plans cannot be read, because nothing can be shown then.
    pub async fn read(client: &Client, scope: &Scope, now: Timestamp) -> Result<Self, kube::Error> {
        let mut snapshot = Self::read_plans(client, scope, now).await?;
        let mut reader = Reader {
            client,
            gaps: std::mem::take(&mut snapshot.gaps),
        };
        snapshot.nodes = reader.nodes().await;
        snapshot.maintenances = reader.maintenances().await;
        let namespaces: BTreeSet<_> = snapshot
            .plans
            .iter()
            .map(|plan| plan.namespace().to_owned())
            .collect();
        let intern = Intern::default();
        let job = |raw: &RawValue| job_object(raw, &intern).ok();
        let pod = |raw: &RawValue| pod_object(raw, &intern).ok();
        for namespace in namespaces {
            let jobs = reader.objects(ObjectKind::Job, &namespace, job);
            snapshot.jobs.extend(jobs.await);
            let pods = reader.objects(ObjectKind::Pod, &namespace, pod);
            snapshot.pods.extend(pods.await);
            let events = reader.objects(ObjectKind::Event, &namespace, event_line);
            snapshot.events.extend(events.await);
        }
        snapshot.events.sort_by_key(|event| event.at);
        snapshot.read_budgets(&mut reader).await;
        snapshot.read_terminating(&mut reader).await;
        snapshot.gaps = reader.gaps;
        Ok(snapshot)
    }

    /// Reads the Plans, and nothing else.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub async fn read_plans(client: &Client, scope: &Scope, now: Timestamp) -> Result<Self, kube::Error> {
        let mut reader = Reader {
            client,
            gaps: Vec::new(),
        };
        let (plans, namespace) = reader.plans(scope).await?;
        Ok(Self {
            now,
            namespace,
            plans,
            gaps: reader.gaps,
            ..Self::default()
        })
    }

    /// The budgets that drains wait for.
    async fn read_budgets(&mut self, reader: &mut Reader<'_>) {
        let waits = self.pods.iter().filter_map(|pod| self.drain_of(pod));
        let waits = waits.flat_map(|drain| &drain.waiting);
        let wanted: BTreeSet<(String, String)> = waits
            .filter_map(|wait| {
                let (namespace, _) = wait.pod.split_once('/')?;
                let budget = wait.pdb.as_deref()?;
                let budget = budget.rsplit('/').next().unwrap_or(budget);
                Some((namespace.to_owned(), budget.to_owned()))
            })
            .collect();
        for (namespace, name) in wanted {
            self.budgets.extend(reader.budget(&namespace, &name).await);
        }
    }

    /// The pods that keep drains from finishing when nothing else says why.
    async fn read_terminating(&mut self, reader: &mut Reader<'_>) {
        let silent = self.pods.iter().filter_map(|pod| {
            let drain = self.drain_of(pod)?;
            let waits = drain.waiting.is_empty() && drain.evicted < drain.total;
            (waits && pod.facts.stage == refit_facts::PodStage::Drain)
                .then(|| pod.facts.node.as_deref().map(str::to_owned))?
        });
        let silent: BTreeSet<String> = silent.collect();
        for node in silent.into_iter().take(MAX_DRAINS) {
            let found = reader.terminating(&node, self.now).await;
            self.terminating.extend(found);
        }
    }

    /// Reads the pods again that keep drains from finishing. Their own changes are not followed: a node has hundreds.
    pub async fn reread_terminating(&mut self, client: &Client) {
        let mut reader = Reader {
            client,
            gaps: Vec::new(),
        };
        self.terminating.clear();
        self.read_terminating(&mut reader).await;
    }

    /// A Plan alone.
    pub fn of_plan(raw: &RawValue, now: Timestamp) -> Option<Self> {
        Some(Self {
            now,
            plans: vec![salvaged(raw)?],
            ..Self::default()
        })
    }

    pub fn node(&self, name: &str) -> Option<&NodeObject> {
        self.nodes.as_ref()?.get(name)
    }

    /// The Jobs of a Plan on a node, the oldest first.
    pub(super) fn jobs_on<'a>(&'a self, plan: &'a PlanFacts, node: &'a str) -> Vec<&'a JobObject> {
        let is_own = |job: &&JobObject| job.namespace == plan.namespace() && job.facts.plan == plan.name;
        let mut jobs: Vec<_> = self
            .jobs
            .iter()
            .filter(|job| is_own(job) && *job.facts.node == *node)
            .collect();
        jobs.sort_by_key(|job| job.facts.created);
        jobs
    }

    /// Progress of the drain that runs in a pod, or did last. Its node has it in an annotation.
    pub(super) fn drain_of(&self, pod: &PodObject) -> Option<&DrainNote> {
        let drain = self.node(pod.facts.node.as_deref()?)?.facts.drain.as_ref()?;
        (*drain.pod == *pod.facts.uid).then_some(&drain.note)
    }

    /// The pod that shows the progress of a Job.
    pub(super) fn pod_of(&self, job: &JobObject) -> Option<&PodObject> {
        let pods = self.pods.iter().filter(|pod| pod.namespace == job.namespace);
        let own = pods.filter(|pod| pod.facts.job_uid == job.facts.uid);
        // A Job that retries has failed pods beside the current one.
        own.max_by_key(|pod| (pod.facts.stage != refit_facts::PodStage::Ended, pod.facts.stage))
    }
}
