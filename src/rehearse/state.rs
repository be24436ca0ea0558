//! The whole cluster as it is at one moment. Whoever holds it is alone with it; all that happens, happens through its methods,
//! in an order that follows from what is asked of it and from the time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::agenda::{Agenda, Work};
use super::ids::Ids;
use super::journal::{Entry, What};
use super::kubelets::Kubelets;
use super::manager::backoff::Backoffs;
use super::resources::Kind;
use super::scheduler::Loads;
use super::store::{Change, Key, Object, Store};
use crate::clock::Clock;
use crate::rehearse::json::Value;

/// How long Events are kept (`--event-ttl`).
const EVENT_TTL: SignedDuration = SignedDuration::from_hours(1);
/// How long the Job controller waits for further news of pods before it looks at their Job (`syncJobBatchPeriod`).
const JOB_BATCH: SignedDuration = SignedDuration::from_secs(1);
/// After how long pods of a node that is gone are taken away (`quarantineTime` and `gcCheckPeriod` of the pod garbage
/// collector).
const POD_GC: SignedDuration = SignedDuration::from_secs(60);
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
    /// How many pods each node has been given.
    pub(super) loads: Loads,
    /// Every request, and what became of it, if that is wanted.
    pub(super) trace: Option<Vec<String>>,
    /// Requests that the cluster cannot play.
    pub(super) holes: Vec<String>,
    /// What has happened since somebody looked, if somebody does.
    pub(super) journal: Option<Vec<Entry>>,
    /// Who is at work.
    pub(super) who: Arc<str>,
    /// How many versions lists of each kind are behind that any version will do for.
    pub(super) lag: [u64; Kind::ALL.len()],
    /// Plans as they are stored, where the definition that is served hides a part of them.
    pub(super) at_rest: BTreeMap<Key, Value>,
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

    /// What has happened since this was last asked.
    pub fn take_journal(&mut self) -> Vec<Entry> {
        self.journal.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Writes a line into the trace.
    #[cfg(test)]
    pub(super) fn tell(&mut self, text: &str) {
        let (now, who) = (self.clock.now(), &self.who);
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{now:.3} {who} {text}"));
        }
    }

    /// Something has happened.
    pub(super) fn note(&mut self, what: What) {
        let (at, who) = (self.clock.now(), &self.who);
        if let Some(journal) = &mut self.journal {
            let who = Arc::clone(who);
            journal.push(Entry { at, who, what });
        }
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
            Work::Set(Kind::StatefulSet, key) => self.sync_stateful_set(&key),
            Work::Set(_, key) => self.sync_replica_set(&key),
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
            Work::Ready(node) => self.is_ready(&node),
            Work::Sweep(node) => self.sweep(&node),
            Work::Expel(node) => self.expel(&node),
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
        if self.journal.is_some() {
            self.note(What::Change(kind, change.clone()));
        }
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
                self.kubelets.node_changed(change);
                self.react_to_node(&key.name, change);
            }
            Kind::Event if !change.gone => self.later(EVENT_TTL, Work::Expire(key.clone())),
            Kind::Definition if !change.gone => {
                self.later(ESTABLISHING, Work::Establish(key.clone()));
                let asked_for = |object: &Object| object.value["spec"].clone();
                if change.old.as_ref().map(|old| asked_for(old)) != Some(asked_for(&change.new)) {
                    self.serve_plans();
                }
            }
            Kind::Plan => drop(self.at_rest.remove(key)),
            Kind::ReplicaSet | Kind::StatefulSet if !change.gone => {
                self.soon(Work::Set(kind, key.clone()));
            }
            Kind::Budget => self.soon(Work::Budgets(key.namespace.to_string())),
            _ => {}
        }
    }

    fn react_to_node(&mut self, name: &str, change: &Change) {
        if change.gone {
            self.loads.remove_node(name);
            return self.later(POD_GC, Work::Sweep(name.to_owned()));
        }
        if change.old.is_none() {
            self.loads.add_node(name);
            // Pods that bear its name are its own, whoever they were made for.
            let pods: Vec<Arc<Object>> = self.store.pods_on(name).cloned().collect();
            for pod in pods {
                if let Some(uid) = self.kubelets.pod_changed(&pod, false) {
                    self.soon(Work::Pod(uid));
                }
            }
        }
        self.soon(Work::Taint(name.to_owned()));
        let same =
            |old: &Arc<Object>, pointer| old.value.pointer(pointer) == change.new.value.pointer(pointer);
        let fits_as_before = |old: &Arc<Object>| same(old, "/spec/taints") && same(old, "/metadata/labels");
        if !change.old.as_ref().is_some_and(fits_as_before) {
            self.schedule_again();
        }
    }

    fn react_to_pod(&mut self, key: &Key, change: &Change) {
        let pod = &change.new;
        let is_new = change.old.is_none();
        let leaves_room = change.gone || is_over(pod) && !change.old.as_ref().is_some_and(|old| is_over(old));
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
        if leaves_room {
            self.schedule_again();
        }
        if let Some(uid) = pod.controller() {
            let owner = self.store.find(uid).cloned();
            match owner {
                Some((Kind::Job, job)) if is_new => self.soon(Work::Job(job)),
                Some((Kind::Job, job)) => self.later(JOB_BATCH, Work::Job(job)),
                Some((kind @ (Kind::ReplicaSet | Kind::StatefulSet), set)) => {
                    self.soon(Work::Set(kind, set));
                }
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
            self.loads.change(node, after);
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
