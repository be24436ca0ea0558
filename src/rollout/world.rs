//! The index of facts. Watches and the answers to own writes fill it through the same doors, and an older version of an
//! object never replaces a newer one, so that a slow watch cannot undo what an own write has told.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use jiff::Timestamp;

use super::facts::{ChannelFacts, JobFacts, NodeFacts, PlanFacts, PodFacts, Schema, SecretFacts, Text};
use super::plan::PlanView;
use super::step::Key;
use crate::job::JobSettings;

/// What is the same for all Plans.
#[derive(Clone, Debug)]
pub struct Defaults {
    /// Namespace of the controller and of its Plans.
    pub namespace: String,
    /// How Jobs are made.
    pub job: JobSettings,
    /// How often a channel is asked.
    pub polling_interval: jiff::SignedDuration,
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

/// Everything that a decision looks at.
#[derive(Debug)]
pub struct World {
    pub(super) defaults: Defaults,
    pub(super) nodes: Table<NodeFacts>,
    pub(super) jobs: Table<JobFacts>,
    pub(super) pods: Table<PodFacts>,
    pub(super) plans: BTreeMap<Text, PlanView>,
    gone_plans: HashSet<Text>,
    pub(super) secrets: Table<SecretFacts>,
    pub(super) channels: BTreeMap<Text, ChannelFacts>,
    pub(super) schema: Schema,
    pub(super) permissions: Option<Result<(), String>>,
    pub(super) troubles: BTreeMap<Key, Trouble>,
    /// Names of Jobs that somebody else's Jobs have.
    pub(super) taken: BTreeSet<Text>,
    /// Jobs whose result is not recorded, by Plan name.
    pub(super) open_jobs: BTreeMap<Text, BTreeSet<Text>>,
    /// All Jobs by node name.
    pub(super) jobs_on: BTreeMap<Text, BTreeSet<Text>>,
    pub(super) pods_of: BTreeMap<Text, BTreeSet<Text>>,
    /// Nodes with a record, by Plan name.
    pub(super) recorded_on: BTreeMap<Text, BTreeSet<Text>>,
    /// Nodes with a ledger.
    pub(super) ledgers: BTreeSet<Text>,
}

impl World {
    /// A world in which nothing is known yet.
    pub fn new(defaults: Defaults) -> Self {
        Self {
            defaults,
            nodes: Table::default(),
            jobs: Table::default(),
            pods: Table::default(),
            plans: BTreeMap::new(),
            gone_plans: HashSet::new(),
            secrets: Table::default(),
            channels: BTreeMap::new(),
            schema: Schema::Current,
            permissions: None,
            troubles: BTreeMap::new(),
            taken: BTreeSet::new(),
            open_jobs: BTreeMap::new(),
            jobs_on: BTreeMap::new(),
            pods_of: BTreeMap::new(),
            recorded_on: BTreeMap::new(),
            ledgers: BTreeSet::new(),
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

    /// There are Jobs whose result is not recorded.
    pub fn has_open_jobs(&self) -> bool {
        !self.open_jobs.is_empty()
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

    /// A Node was seen in this version. True when a fact is new.
    pub fn node_seen(&mut self, version: u64, facts: NodeFacts) -> bool {
        let name = facts.name.clone();
        let Some(change) = self.nodes.put(&name, version, facts, |n| n.uid.clone()) else {
            return false;
        };
        if let Some(old) = &change {
            unindex_node(&mut self.recorded_on, &mut self.ledgers, old);
        }
        if let Some(new) = self.nodes.get(&name) {
            for plan in new.records.keys() {
                self.recorded_on
                    .entry(plan.clone())
                    .or_default()
                    .insert(name.clone());
            }
            if new.ledger.is_some() {
                self.ledgers.insert(name.clone());
            }
            for view in self.plans.values_mut() {
                view.node_changed(new);
            }
        }
        true
    }

    /// A Node is gone.
    pub fn node_gone(&mut self, name: &str, uid: &str) -> bool {
        let Some(old) = self.nodes.remove(name, uid, |n| n.uid.clone()) else {
            return false;
        };
        unindex_node(&mut self.recorded_on, &mut self.ledgers, &old);
        for view in self.plans.values_mut() {
            view.node_gone(&old.name);
        }
        true
    }

    /// A Job of ours was seen in this version. True when a fact is new.
    pub fn job_seen(&mut self, version: u64, facts: JobFacts) -> bool {
        let name = facts.name.clone();
        let Some(change) = self.jobs.put(&name, version, facts, |j| j.uid.clone()) else {
            return false;
        };
        if let Some(old) = &change {
            self.unindex_job(old);
        }
        if let Some(new) = self.jobs.get(&name) {
            if !new.recorded {
                self.open_jobs
                    .entry(new.plan.clone())
                    .or_default()
                    .insert(name.clone());
            }
            self.jobs_on
                .entry(new.node.clone())
                .or_default()
                .insert(name.clone());
        }
        self.taken.remove(&name);
        true
    }

    /// A delete of a Job was answered; it is gone once a watch says so.
    pub fn job_leaving(&mut self, name: &str, uid: &str) -> bool {
        self.jobs.alter(name, |job| {
            let change = *job.uid == *uid && !job.deleting;
            job.deleting |= change;
            change
        })
    }

    /// A Job is gone.
    pub fn job_gone(&mut self, name: &str, uid: &str) -> bool {
        let Some(old) = self.jobs.remove(name, uid, |j| j.uid.clone()) else {
            return false;
        };
        self.unindex_job(&old);
        true
    }

    fn unindex_job(&mut self, old: &JobFacts) {
        drop_from(&mut self.open_jobs, &old.plan, &old.name);
        drop_from(&mut self.jobs_on, &old.node, &old.name);
    }

    /// A pod of a Job was seen in this version. True when a fact is new.
    pub fn pod_seen(&mut self, version: u64, facts: PodFacts) -> bool {
        let name = facts.name.clone();
        let Some(change) = self.pods.put(&name, version, facts, |p| p.uid.clone()) else {
            return false;
        };
        if let Some(old) = &change {
            drop_from(&mut self.pods_of, &old.job_uid, &name);
        }
        if let Some(new) = self.pods.get(&name) {
            self.pods_of.entry(new.job_uid.clone()).or_default().insert(name);
        }
        true
    }

    /// A pod is gone.
    pub fn pod_gone(&mut self, name: &str, uid: &str) -> bool {
        let Some(old) = self.pods.remove(name, uid, |p| p.uid.clone()) else {
            return false;
        };
        drop_from(&mut self.pods_of, &old.job_uid, &old.name);
        true
    }

    /// A Plan was seen in this version. True when a fact is new.
    pub fn plan_seen(&mut self, version: u64, facts: PlanFacts) -> bool {
        if self.gone_plans.contains(&facts.uid) {
            return false;
        }
        let name = facts.name.clone();
        match self.plans.get_mut(&name) {
            Some(view) if view.version >= version && version != 0 => {
                view.listed = true;
                false
            }
            Some(view) => {
                view.version = version;
                view.listed = true;
                if view.facts == facts {
                    return false;
                }
                view.change(facts, &self.defaults);
                true
            }
            None => {
                self.plans
                    .insert(name, PlanView::new(version, facts, &self.defaults));
                true
            }
        }
    }

    /// The status of a Plan was written.
    pub fn status_written(&mut self, plan: &str, now: Timestamp) {
        if let Some(view) = self.plans.get_mut(plan) {
            view.written = Some(now);
        }
    }

    /// A Plan is gone.
    pub fn plan_gone(&mut self, name: &str, uid: &str) -> bool {
        if self.plans.get(name).is_none_or(|p| *p.facts.uid != *uid) {
            return false;
        }
        if self.gone_plans.len() >= GONE_REMEMBERED {
            self.gone_plans.clear();
        }
        self.plans
            .remove(name)
            .is_some_and(|p| self.gone_plans.insert(p.facts.uid.clone()))
    }

    /// The metadata of a Secret was seen in this version: it has to be read again.
    pub fn secret_seen(&mut self, name: &Text, version: u64) -> bool {
        if self.secrets.version(name) == Some(version) {
            return false;
        }
        self.secrets
            .put(name, version, SecretFacts::Unread, |_| name.clone())
            .is_some()
    }

    /// A Secret was read in this version.
    pub fn secret_read(&mut self, name: &Text, version: u64, hash: String) -> bool {
        if self.secrets.version(name).is_some_and(|known| known > version) {
            return false;
        }
        self.secrets.force(name, version, SecretFacts::Hash(hash));
        true
    }

    /// A Secret is gone.
    pub fn secret_gone(&mut self, name: &str) -> bool {
        self.secrets.forget(name)
    }

    /// A channel was asked: the version, or why there is none.
    pub fn channel_answered(&mut self, url: &Text, polled: Timestamp, answer: Result<String, String>) {
        let known = self.channels.get(url);
        let facts = match answer {
            Ok(version) => ChannelFacts {
                polled,
                failures: 0,
                version: Some(version),
                error: None,
            },
            Err(error) => ChannelFacts {
                polled,
                failures: known.map_or(0, |k| k.failures).saturating_add(1),
                version: known.and_then(|k| k.version.clone()),
                error: Some(error),
            },
        };
        self.channels.insert(url.clone(), facts);
    }

    /// What is known of the served CRD. True when that is new.
    pub fn schema_seen(&mut self, schema: Schema) -> bool {
        let change = self.schema != schema;
        self.schema = schema;
        change
    }

    /// Whether the controller may do what it has to; `None` asks again.
    pub fn permissions_seen(&mut self, answer: Option<Result<(), String>>) {
        self.permissions = answer;
    }

    /// A step went wrong.
    pub fn troubled(&mut self, key: Key, trouble: Trouble) {
        self.troubles.insert(key, trouble);
    }

    /// A step went well.
    pub fn untroubled(&mut self, key: &Key) {
        self.troubles.remove(key);
    }

    /// Somebody else's Job has this name.
    pub fn name_taken(&mut self, job: Text) {
        self.taken.insert(job);
    }

    /// Looks again at what depends on several facts, before a decision: what each Plan resolves to, and which nodes it
    /// is for.
    pub fn settle(&mut self) {
        for view in self.plans.values_mut() {
            view.settle(&self.nodes, &self.secrets, &self.channels, &self.defaults);
        }
    }

    /// A list of Nodes, Jobs, pods, Plans or Secrets begins: what it does not show is gone when it ends.
    pub fn list_begins(&mut self, kind: Kind) {
        match kind {
            Kind::Node => self.nodes.begin(),
            Kind::Job => self.jobs.begin(),
            Kind::Pod => self.pods.begin(),
            Kind::Secret => self.secrets.begin(),
            Kind::Plan => self.plans.values_mut().for_each(|p| p.listed = false),
        }
    }

    /// A list ends. True when something is gone.
    pub fn list_ends(&mut self, kind: Kind) -> bool {
        match kind {
            Kind::Node => {
                let gone: Vec<_> = self
                    .nodes
                    .unlisted()
                    .map(|n| (n.name.clone(), n.uid.clone()))
                    .collect();
                gone.iter()
                    .filter(|(name, uid)| self.node_gone(name, uid))
                    .count()
                    > 0
            }
            Kind::Job => {
                let gone: Vec<_> = self
                    .jobs
                    .unlisted()
                    .map(|j| (j.name.clone(), j.uid.clone()))
                    .collect();
                gone.iter().filter(|(name, uid)| self.job_gone(name, uid)).count() > 0
            }
            Kind::Pod => {
                let gone: Vec<_> = self
                    .pods
                    .unlisted()
                    .map(|p| (p.name.clone(), p.uid.clone()))
                    .collect();
                gone.iter().filter(|(name, uid)| self.pod_gone(name, uid)).count() > 0
            }
            Kind::Secret => {
                let gone: Vec<_> = self.secrets.unlisted_names().cloned().collect();
                gone.iter().filter(|name| self.secret_gone(name)).count() > 0
            }
            Kind::Plan => {
                let gone: Vec<_> = self
                    .plans
                    .values()
                    .filter(|p| !p.listed)
                    .map(|p| p.facts.clone())
                    .collect();
                gone.iter().filter(|p| self.plan_gone(&p.name, &p.uid)).count() > 0
            }
        }
    }
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

fn unindex_node(
    recorded_on: &mut BTreeMap<Text, BTreeSet<Text>>,
    ledgers: &mut BTreeSet<Text>,
    old: &NodeFacts,
) {
    for plan in old.records.keys() {
        drop_from(recorded_on, plan, &old.name);
    }
    ledgers.remove(&old.name);
}

fn drop_from(index: &mut BTreeMap<Text, BTreeSet<Text>>, key: &Text, value: &Text) {
    if let Some(set) = index.get_mut(key) {
        set.remove(value);
        if set.is_empty() {
            index.remove(key);
        }
    }
}

/// Facts of one kind by name, with the version in which each is known.
#[derive(Debug)]
pub(super) struct Table<T> {
    rows: BTreeMap<Text, Row<T>>,
    /// UIDs of objects that are gone for good: an answer that comes late does not bring one back.
    gone: HashSet<Text>,
    gone_in_order: VecDeque<Text>,
}

#[derive(Debug)]
struct Row<T> {
    version: u64,
    listed: bool,
    facts: T,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            gone: HashSet::new(),
            gone_in_order: VecDeque::new(),
        }
    }
}

/// How many UIDs of gone objects are remembered: more than can be gone while one request is under way.
const GONE_REMEMBERED: usize = 4096;

impl<T: PartialEq> Table<T> {
    pub(super) fn get(&self, name: &str) -> Option<&T> {
        self.rows.get(name).map(|row| &row.facts)
    }

    pub(super) fn get_key_value(&self, name: &str) -> Option<(&Text, &T)> {
        self.rows
            .get_key_value(name)
            .map(|(name, row)| (name, &row.facts))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Text, &T)> {
        self.rows.iter().map(|(name, row)| (name, &row.facts))
    }

    fn version(&self, name: &str) -> Option<u64> {
        self.rows.get(name).map(|row| row.version)
    }

    /// `None`: nothing new. `Some(old)`: the facts changed, and were `old` before, if there were any.
    fn put(&mut self, name: &Text, version: u64, facts: T, uid: impl Fn(&T) -> Text) -> Option<Option<T>> {
        if self.gone.contains(&uid(&facts)) {
            return None;
        }
        match self.rows.get_mut(name) {
            Some(row) => {
                row.listed = true;
                if version <= row.version && version != 0 {
                    return None;
                }
                row.version = version;
                if row.facts == facts {
                    return None;
                }
                Some(Some(std::mem::replace(&mut row.facts, facts)))
            }
            None => {
                self.rows.insert(
                    name.clone(),
                    Row {
                        version,
                        listed: true,
                        facts,
                    },
                );
                Some(None)
            }
        }
    }

    fn force(&mut self, name: &Text, version: u64, facts: T) {
        self.rows.insert(
            name.clone(),
            Row {
                version,
                listed: true,
                facts,
            },
        );
    }

    fn alter(&mut self, name: &str, change: impl FnOnce(&mut T) -> bool) -> bool {
        self.rows.get_mut(name).is_some_and(|row| change(&mut row.facts))
    }

    fn remove(&mut self, name: &str, uid: &str, uid_of: impl Fn(&T) -> Text) -> Option<T> {
        let known = uid_of(self.get(name)?);
        if *known != *uid {
            return None;
        }
        if self.gone.insert(known.clone()) {
            self.gone_in_order.push_back(known);
            if self.gone_in_order.len() > GONE_REMEMBERED
                && let Some(oldest) = self.gone_in_order.pop_front()
            {
                self.gone.remove(&oldest);
            }
        }
        self.rows.remove(name).map(|row| row.facts)
    }

    fn forget(&mut self, name: &str) -> bool {
        self.rows.remove(name).is_some()
    }

    fn begin(&mut self) {
        self.rows.values_mut().for_each(|row| row.listed = false);
    }

    fn unlisted(&self) -> impl Iterator<Item = &T> {
        self.rows.values().filter(|row| !row.listed).map(|row| &row.facts)
    }

    fn unlisted_names(&self) -> impl Iterator<Item = &Text> {
        self.rows
            .iter()
            .filter(|(_, row)| !row.listed)
            .map(|(name, _)| name)
    }
}
