//! The whole cluster as it is at one moment. Whoever holds it is alone with it; all that happens, happens through its methods,
//! in an order that follows from what is asked of it and from the time.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::agenda::{Agenda, Work};
use super::ids::Ids;
use super::kubelets::Kubelets;
use super::manager::backoff::Backoffs;
use super::resources::Kind;
use super::store::{Change, Key, Object, Store};
use crate::clock::Clock;

/// How long Events are kept (`--event-ttl`).
const EVENT_TTL: SignedDuration = SignedDuration::from_hours(1);
/// How long the Job controller waits for further news of pods before it looks at their Job (`syncJobBatchPeriod`).
const JOB_BATCH: SignedDuration = SignedDuration::from_secs(1);
/// How long a definition takes until it is served.
const ESTABLISHING: SignedDuration = SignedDuration::from_millis(50);

/// The cluster.
pub struct State {
    /// What everybody reads the time from.
    pub(super) clock: Clock,
    pub(super) ids: Ids,
    pub(super) store: Store,
    pub(super) agenda: Agenda,
    pub(super) kubelets: Kubelets,
    pub(super) backoffs: Backoffs,
    /// Pods that found no node, and why.
    pub(super) unscheduled: BTreeSet<Key>,
    /// How many pods each node has been given, by its name.
    pub(super) load: BTreeMap<String, usize>,
    /// Every request, and what became of it, if that is wanted.
    pub(super) trace: Option<Vec<String>>,
    /// Requests that the cluster cannot play.
    pub(super) holes: Vec<String>,
}

impl State {
    /// The time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// An object.
    pub fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<&Value> {
        let found = self.store.get(kind, &Key::new(namespace, name))?;
        Some(&found.value)
    }

    /// All objects of a kind.
    pub fn all(&self, kind: Kind) -> impl Iterator<Item = &Value> {
        self.store.all(kind).map(|object| &object.value)
    }

    /// Requests that the cluster cannot play: a rehearsal in which there was one says nothing.
    pub fn holes(&self) -> &[String] {
        &self.holes
    }

    /// Every request so far, a line each.
    pub fn trace(&self) -> &[String] {
        self.trace.as_deref().unwrap_or_default()
    }

    /// Does what is due, and says when something is due next.
    pub(super) fn work(&mut self) -> Option<Timestamp> {
        while let Some(work) = self.agenda.next(self.now()) {
            self.carry_out(work);
        }
        self.agenda.due()
    }

    fn carry_out(&mut self, work: Work) {
        match work {
            Work::Job(key) => self.sync_job(&key),
            Work::Stray(key) => self.let_stray_go(&key),
            Work::Set(key) => self.sync_replica_set(&key),
            Work::Budgets(namespace) => self.sync_budgets(&namespace),
            Work::Collect(uid) => self.collect(&uid),
            Work::Release(uid) => self.release(&uid),
            Work::Taint(node) => self.taint(&node),
            Work::Establish(key) => self.establish(&key),
            Work::Expire(key) => {
                if self.store.get(Kind::Event, &key).is_some() {
                    self.commit(Kind::Event, &key, None);
                }
            }
            Work::Schedule(key) => self.schedule(&key),
            Work::ScheduleAll => self.schedule_all(),
            Work::Pod(uid) => self.live(&uid),
            Work::Miss(node) => self.miss(&node),
            Work::Boot(node) => self.boot(&node),
        }
    }

    /// Puts something on the agenda for now.
    pub(super) fn soon(&mut self, work: Work) {
        self.agenda.add(self.clock.now(), work);
    }

    /// Puts something on the agenda for later.
    pub(super) fn later(&mut self, wait: SignedDuration, work: Work) {
        let at = self.now().checked_add(wait).unwrap_or(Timestamp::MAX);
        self.agenda.add(at, work);
    }

    /// Writes what an object is now, or that it is gone. Everybody whom that concerns is told.
    pub(super) fn commit(&mut self, kind: Kind, key: &Key, new: Option<Value>) -> Change {
        let change = self.store.commit(kind, key, new);
        self.react(kind, key, &change);
        change
    }

    fn react(&mut self, kind: Kind, key: &Key, change: &Change) {
        if change.gone {
            self.soon(Work::Collect(change.new.uid().to_owned()));
        } else if change.new.is_leaving() {
            self.soon(Work::Release(change.new.uid().to_owned()));
        }
        self.tell_owners(change);
        match kind {
            Kind::Job if !change.gone => self.soon(Work::Job(key.clone())),
            Kind::Job => self.backoffs.forget(change.new.uid()),
            Kind::Pod => self.react_to_pod(key, change),
            Kind::Node => {
                self.kubelets.node_changed(&change.new, change.gone);
                self.soon(Work::Taint(key.name.to_string()));
                self.schedule_again();
            }
            Kind::Event if !change.gone => self.later(EVENT_TTL, Work::Expire(key.clone())),
            Kind::Definition if !change.gone => self.later(ESTABLISHING, Work::Establish(key.clone())),
            Kind::ReplicaSet if !change.gone => self.soon(Work::Set(key.clone())),
            Kind::Budget => self.soon(Work::Budgets(key.namespace.to_string())),
            _ => {}
        }
    }

    fn react_to_pod(&mut self, key: &Key, change: &Change) {
        let pod = &change.new;
        let is_new = change.old.is_none();
        if is_bound(pod) {
            self.count_load(change);
            if let Some(uid) = self.kubelets.pod_changed(pod, change.gone) {
                self.soon(Work::Pod(uid));
            }
        } else if !change.gone && !pod.is_leaving() && !self.unscheduled.contains(key) {
            self.soon(Work::Schedule(key.clone()));
        }
        if change.gone {
            self.unscheduled.remove(key);
        }
        if change.gone || !is_new {
            self.schedule_again();
        }
        if let Some(uid) = pod.controller() {
            let owner = self.store.find(uid).cloned();
            match owner {
                Some((Kind::Job, job)) if is_new => self.soon(Work::Job(job)),
                Some((Kind::Job, job)) => self.later(JOB_BATCH, Work::Job(job)),
                Some((Kind::ReplicaSet, set)) => self.soon(Work::Set(set)),
                _ => {}
            }
        }
        if self.has_budgets(&key.namespace) {
            self.soon(Work::Budgets(key.namespace.to_string()));
        }
    }

    /// Pods that found no node get another chance.
    fn schedule_again(&mut self) {
        if !self.unscheduled.is_empty() {
            self.soon(Work::ScheduleAll);
        }
    }

    fn count_load(&mut self, change: &Change) {
        let counts = |object: &Object| is_bound(object) && !is_over(object);
        let before = change.old.as_ref().is_some_and(|old| counts(old));
        let after = !change.gone && counts(&change.new);
        let node = change.new.text("/spec/nodeName");
        if before != after {
            let load = self.load.entry(node.to_owned()).or_default();
            *load = if after { *load + 1 } else { load.saturating_sub(1) };
        }
    }

    fn tell_owners(&mut self, change: &Change) {
        let owners: Vec<String> = change.new.owners().map(str::to_owned).collect();
        for uid in owners {
            match self.store.find(&uid) {
                Some((kind, key)) => {
                    let leaving = self.store.get(*kind, key).is_some_and(|owner| owner.is_leaving());
                    if leaving && change.gone {
                        self.soon(Work::Release(uid));
                    }
                }
                // Made for somebody who is not there: the collector takes it.
                None if !change.gone => self.soon(Work::Collect(uid)),
                None => {}
            }
        }
    }
}

/// Whether a pod has a node.
pub(super) fn is_bound(pod: &Object) -> bool {
    !pod.text("/spec/nodeName").is_empty()
}

/// Whether a pod has come to its end.
pub(super) fn is_over(pod: &Object) -> bool {
    matches!(pod.text("/status/phase"), "Succeeded" | "Failed")
}

/// A time as the API writes it: whole seconds.
pub(super) fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
