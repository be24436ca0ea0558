//! The index of facts. Watches and the answers to own writes fill it through the same doors, and an older version of an
//! object never replaces a newer one, so that a slow watch cannot undo what an own write has told.

mod doors;
mod index;
mod put_off;
mod table;
mod waits;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use index::Index;
pub(super) use table::{ByName, Table};

use super::facts::{
    ChannelFacts, JobFacts, Missing, NodeFacts, PlanFacts, PodFacts, Schema, SecretFacts, Stage, Text,
};
use super::node::Workload;
use super::plan::PlanView;
use super::step::Key;
use crate::channel::Named;
use crate::job::{JobSettings, digest};

/// What is the same for all Plans.
#[derive(Clone, Debug)]
pub struct Defaults {
    /// Namespace of the controller and of its Plans.
    pub namespace: String,
    /// How Jobs are made.
    pub job: JobSettings,
    /// How often a channel is asked.
    pub polling_interval: SignedDuration,
    /// Zone that `timeZone: Local` means.
    pub local_zone: jiff::tz::TimeZone,
}

/// A step that went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What was said.
    pub message: String,
    /// The cluster refuses, so that trying again soon will not help.
    pub refused: bool,
}

/// A kind that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Nodes.
    Node,
    /// Jobs of ours.
    Job,
    /// Pods of Jobs of ours.
    Pod,
    /// Plans.
    Plan,
    /// Secrets of the namespace.
    Secret,
}

/// How often lists of each kind had begun and ended at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lists([u64; 5]);

/// Everything that a decision looks at.
#[derive(Debug)]
pub struct World {
    pub(super) defaults: Defaults,
    pub(super) nodes: Table<NodeFacts>,
    pub(super) jobs: Table<JobFacts>,
    pub(super) pods: Table<PodFacts>,
    pub(super) plans: BTreeMap<Text, PlanView>,
    gone_plans: table::Gone,
    plan_lists: u64,
    pub(super) secrets: Table<SecretFacts>,
    pub(super) channels: BTreeMap<Named, ChannelFacts>,
    schema: Schema,
    /// Which edition of the CRD that was said of.
    edition: Text,
    /// When an API server did not keep our fields although the CRD has them, as far as is known.
    pruned: Option<Timestamp>,
    reading: Reading,
    /// Our fields may have been pruned from what lists show: it happened, or the CRD was changed at the start.
    is_wary: bool,
    /// What each Plan was told last of why it is not written: key of the event.
    pub(super) told: BTreeMap<Text, String>,
    /// What the controller may not do, as far as it has been asked.
    permissions: Option<Missing>,
    pub(super) troubles: BTreeMap<Key, Trouble>,
    /// Names of Jobs that Jobs of others had, and when that was seen.
    pub(super) taken: BTreeMap<Text, Timestamp>,
    /// Jobs that are being made, by Plan and node.
    pub(super) making: BTreeMap<(Text, Text), Making>,
    /// Nodes whose ledger is being written: a mark for the drain of an earlier Job may be on its way.
    pub(super) ledgers_sent: BTreeSet<Text>,
    /// UIDs of Jobs that are gone and whose result is yet to be recorded.
    pub(super) outlived: BTreeSet<Text>,
    /// UIDs of Jobs that have succeeded, whose nodes have been told, and which are being told so themselves: what becomes
    /// of their nodes from now on is another matter.
    pub(super) marking: BTreeSet<Text>,
    /// Names of those of them that are told later: no decision looks at them, until their node changes or
    /// [`World::takes_up`] says that it is time.
    put_off: BTreeSet<Text>,
    /// What pods that are gone have said last, by UID of their Job. Whoever deletes a pod, as a Job does at its deadline,
    /// takes it away before the Job says that it has failed.
    words: BTreeMap<Text, String>,
    /// Jobs whose result is not recorded, by Plan name. Without those that are put off.
    pub(super) open_jobs: Index,
    /// All Jobs by node name.
    jobs_on: Index,
    /// Pods by UID of their Job.
    pods_of: Index,
    /// Pods that are bound and have not ended, by node name.
    live_pods_on: Index,
    /// Nodes with a record, by Plan name.
    pub(super) recorded_on: Index,
    /// Nodes with a ledger.
    pub(super) ledgers: BTreeSet<Text>,
    /// Pods that reboot their nodes.
    pub(super) reboot_pods: BTreeSet<Text>,
    /// Plan and UID of the node: this process has given the slot, and knows of no Job since.
    pub(super) fresh: BTreeSet<(Text, Text)>,
    waits: waits::Waits,
    /// Controllers whose pods were evicted, as far as they have been read.
    pub(super) workloads: BTreeMap<Text, Workload>,
}

/// A Job that is being made.
#[derive(Debug)]
pub(super) struct Making {
    /// Its name.
    pub(super) job: Text,
    /// The Plan and the machine that it is for.
    pub(super) plan_uid: Text,
    pub(super) node_uid: Text,
    /// It disrupts its node, whatever its Plan says by now.
    pub(super) disruptive: bool,
    /// The request has not been answered.
    pub(super) under_way: bool,
    /// No answer has said whether it is there.
    pub(super) unknown: bool,
}

/// Whether the Plans were read as they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// They were, as far as is known.
    Done,
    /// Our fields may have been pruned from them: they have to be read again.
    Due,
    /// That was asked for.
    Asked,
    /// They are being listed.
    UnderWay,
}

/// Why no Plan is written and no node started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold<'a> {
    /// The CRD that is served lacks fields.
    Outdated {
        /// Which.
        missing: &'a str,
        /// When to try again, where the CRD itself has them.
        until: Option<Timestamp>,
    },
    /// The CRD, or the Plans, have to be read first.
    Unread {
        /// Nobody is about to.
        ask: bool,
    },
}

/// How long nothing is written after an API server has not kept our fields, unless the CRD changes. The API servers of a
/// cluster take up a new CRD one after the other.
const PRUNED_PAUSE: SignedDuration = SignedDuration::from_secs(10);

impl World {
    /// A world in which nothing is known yet.
    pub fn new(defaults: Defaults) -> Self {
        Self {
            defaults,
            nodes: Table::default(),
            jobs: Table::default(),
            pods: Table::default(),
            plans: BTreeMap::new(),
            gone_plans: table::Gone::default(),
            plan_lists: 0,
            secrets: Table::default(),
            channels: BTreeMap::new(),
            schema: Schema::Unknown,
            edition: "".into(),
            pruned: None,
            reading: Reading::Done,
            is_wary: false,
            told: BTreeMap::new(),
            permissions: None,
            troubles: BTreeMap::new(),
            taken: BTreeMap::new(),
            words: BTreeMap::new(),
            making: BTreeMap::new(),
            ledgers_sent: BTreeSet::new(),
            outlived: BTreeSet::new(),
            marking: BTreeSet::new(),
            put_off: BTreeSet::new(),
            open_jobs: Index::default(),
            jobs_on: Index::default(),
            pods_of: Index::default(),
            live_pods_on: Index::default(),
            recorded_on: Index::default(),
            ledgers: BTreeSet::new(),
            reboot_pods: BTreeSet::new(),
            fresh: BTreeSet::new(),
            waits: waits::Waits::default(),
            workloads: BTreeMap::new(),
        }
    }

    /// The Plan as it is known.
    pub fn plan(&self, name: &str) -> Option<&PlanFacts> {
        self.plans.get(name).map(|p| &p.facts)
    }

    /// The Node as it is known.
    pub fn node(&self, name: &str) -> Option<&NodeFacts> {
        self.nodes.get(name)
    }

    /// The Job as it is known.
    pub fn job(&self, name: &str) -> Option<&JobFacts> {
        self.jobs.get(name)
    }

    /// Version in which a Plan is known.
    pub fn plan_version(&self, name: &str) -> Option<u64> {
        self.plans.get(name).map(|p| p.version)
    }

    /// Version in which a Node is known.
    pub fn node_version(&self, name: &str) -> Option<u64> {
        self.nodes.version(name)
    }

    /// Version in which a Job is known.
    pub fn job_version(&self, name: &str) -> Option<u64> {
        self.jobs.version(name)
    }

    /// Version in which a Secret is known.
    pub fn secret_version(&self, name: &str) -> Option<u64> {
        self.secrets.version(name)
    }

    /// The hash and version that a Plan is at, as far as it is resolved.
    pub fn target(&self, plan: &str) -> Option<(&str, &str)> {
        let resolved = self.plans.get(plan)?.resolved.as_ref()?;
        Some((&resolved.version, &resolved.hash))
    }

    /// The Plan's side of its Jobs.
    pub fn job_input(&self, plan: &str) -> Option<crate::job::PlanInput<'_>> {
        self.plans.get(plan).map(|p| p.job_input(&self.defaults))
    }

    /// Pods are of interest: there are Jobs whose result is not recorded, pods that may still be at work on a node, or
    /// nodes that are in for a reboot.
    pub fn has_work_on_nodes(&self) -> bool {
        let is_rebooted = |(plan, nodes): (&Text, &BTreeSet<Text>)| {
            let records = nodes
                .iter()
                .filter_map(|node| self.nodes.get(node)?.records.get(plan));
            records.into_iter().any(|record| record.reboot.is_some())
        };
        !self.open_jobs.is_empty()
            || !self.live_pods_on.is_empty()
            || !self.reboot_pods.is_empty()
            || self.recorded_on.iter().any(is_rebooted)
    }

    /// How Jobs are made.
    pub fn job_settings(&self) -> &JobSettings {
        &self.defaults.job
    }

    /// A Plan's digest of the user's part of the template.
    pub fn inputs(&self, plan: &str) -> Option<&str> {
        self.plans.get(plan).map(|p| &*p.inputs)
    }

    /// Names of all Plans.
    pub fn plan_names(&self) -> impl Iterator<Item = &Text> {
        self.plans.keys()
    }

    /// All Jobs of ours that are for the node of this name.
    pub(super) fn jobs_on(&self, node: &str) -> impl Iterator<Item = &JobFacts> {
        self.jobs_on.of(node).filter_map(|job| self.jobs.get(job))
    }

    /// The pods of a Job.
    pub(super) fn pods_of(&self, job_uid: &str) -> impl Iterator<Item = &PodFacts> {
        self.pods_of.of(job_uid).filter_map(|pod| self.pods.get(pod))
    }

    /// What the last container of a Job that failed has said.
    pub(super) fn last_words(&self, job_uid: &str) -> Option<&str> {
        let there = self.pods_of(job_uid).filter_map(|pod| pod.last_words.as_deref());
        there
            .last()
            .or_else(|| self.words.get(job_uid).map(String::as_str))
    }

    /// The pods of ours that are bound to a node and have not ended.
    pub(super) fn live_pods_on(&self, node: &str) -> impl Iterator<Item = &PodFacts> {
        self.live_pods_on.of(node).filter_map(|pod| self.pods.get(pod))
    }

    /// What is known of the served CRD.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The edition of the CRD that was seen last: it tells one time from another.
    pub(super) fn edition(&self) -> &str {
        &self.edition
    }

    /// Why no Plan may be written and no node started now.
    pub(super) fn hold(&self, now: Timestamp) -> Option<Hold<'_>> {
        let missing = match &self.schema {
            Schema::Unknown => return Some(Hold::Unread { ask: false }),
            Schema::Outdated(missing) => return Some(Hold::Outdated { missing, until: None }),
            Schema::Current => "status.observedGeneration",
        };
        let until = self
            .pruned
            .map(|at| at.saturating_add(PRUNED_PAUSE).unwrap_or(Timestamp::MAX));
        if let Some(until) = until.filter(|until| now < *until) {
            let until = Some(until);
            return Some(Hold::Outdated { missing, until });
        }
        let ask = self.reading == Reading::Due;
        (self.reading != Reading::Done).then_some(Hold::Unread { ask })
    }

    /// Whether it is to be asked what the controller may do.
    pub(super) fn asks_permissions(&self) -> bool {
        let known = self.permissions.as_ref().is_some_and(|missing| {
            missing.is_empty()
                && (missing.knows_reboots || !self.has_reboots())
                && (missing.knows_workloads || !self.has_workloads())
        });
        !known && !self.plans.is_empty()
    }

    /// A Plan waits for workloads.
    pub fn has_workloads(&self) -> bool {
        self.plans.values().any(|plan| plan.terms.workloads)
    }

    /// A Plan may reboot nodes.
    pub fn has_reboots(&self) -> bool {
        self.plans.values().any(|plan| plan.spec().may_reboot())
    }

    /// What the Plan takes and the controller may not do; nothing while that is not known.
    pub(super) fn missing_permission(&self, plan: &PlanView) -> Option<String> {
        let missing = self.permissions.as_ref()?;
        let has_secrets = digest::hashed_secrets(plan.spec()).next().is_some();
        let for_secrets = missing.for_secrets.iter().filter(|_| has_secrets);
        let for_reboots = missing.for_reboots.iter().filter(|_| plan.spec().may_reboot());
        let for_workloads = missing.for_workloads.iter().filter(|_| plan.terms.workloads);
        let what: Vec<_> = missing
            .for_all
            .iter()
            .chain(for_secrets)
            .chain(for_reboots)
            .chain(for_workloads)
            .cloned()
            .collect();
        (!what.is_empty()).then(|| what.join(", "))
    }

    /// Whether the API server has said that the controller may do all that the Plan takes.
    pub(super) fn is_permitted(&self, plan: &PlanView) -> bool {
        let asked = |missing: &Missing| {
            (missing.knows_reboots || !plan.spec().may_reboot())
                && (missing.knows_workloads || !plan.terms.workloads)
        };
        self.permissions.as_ref().is_some_and(asked) && self.missing_permission(plan).is_none()
    }

    /// Looks again at what depends on several facts, before a decision: what each Plan resolves to, which nodes it is
    /// for, and what goes on lasting.
    pub fn settle(&mut self, now: Timestamp) {
        for view in self.plans.values_mut() {
            view.settle(&self.nodes, &self.secrets, &self.channels, &self.defaults, now);
        }
        self.count_waits(now);
    }

    /// How often lists of each kind have begun and ended: to be noted when a request is sent, for
    /// [`World::is_overtaken`].
    pub fn lists(&self) -> Lists {
        Lists([
            self.nodes.lists(),
            self.jobs.lists(),
            self.pods.lists(),
            self.plan_lists,
            self.secrets.lists(),
        ])
    }

    /// Whether the answer to a request that was sent at `sent` may tell of an object that is gone: it is not known, and a
    /// list that is under way or has ended since need not have shown it before it went. Should it be there after all,
    /// the watch tells of it.
    pub fn is_overtaken(&self, kind: Kind, name: &str, sent: Lists) -> bool {
        let known = match kind {
            Kind::Node => self.nodes.get(name).is_some(),
            Kind::Job => self.jobs.get(name).is_some(),
            Kind::Pod => self.pods.get(name).is_some(),
            Kind::Plan => self.plans.contains_key(name),
            Kind::Secret => self.secrets.get(name).is_some(),
        };
        let lists = self.lists().0[kind as usize];
        !known && (lists != sent.0[kind as usize] || !lists.is_multiple_of(2))
    }
}

fn is_live(pod: &PodFacts) -> bool {
    pod.node.is_some() && pod.stage != Stage::Ended
}
