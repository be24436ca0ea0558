//! The state of the whole cluster. All changes are method calls under one lock, in an order determined by the requests
//! and the time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;

use super::controller_manager::backoff::Backoffs;
use super::controller_manager::pod_counts::Replicas;
use super::controller_manager::selected_pods::Budgets;
use super::ids::Ids;
use super::journal::{Entry, JournalEvent};
use super::kubelets::Kubelets;
use super::pods::{has_ended, is_bound};
use super::resources::Kind;
use super::scheduler::loads::Loads;
use super::store::{Change, Key, Object, Store};
use super::work_queue::{Work, WorkQueue};
use crate::json::Value;
pub(super) use crate::json::seconds;
use refit_cluster::clock::Clock;

/// Time to live of Events (`--event-ttl`).
const EVENT_TTL: SignedDuration = SignedDuration::from_hours(1);
/// Delay in which the Job controller collects changes of pods (`syncJobBatchPeriod`).
const JOB_BATCH: SignedDuration = SignedDuration::from_secs(1);
/// Delay until pods of a deleted node are deleted (`quarantineTime` and `gcCheckPeriod` of the pod garbage collector).
const POD_GC: SignedDuration = SignedDuration::from_secs(60);
/// Delay until a CRD is served.
const ESTABLISHING: SignedDuration = SignedDuration::from_millis(50);

pub struct State {
    pub(super) clock: Clock,
    pub ids: Ids,
    pub store: Store,
    pub(super) work_queue: WorkQueue,
    pub kubelets: Kubelets,
    pub(super) backoffs: Backoffs,
    /// Which pods the disruption budgets select.
    pub(super) budgets: Budgets,
    /// How many pods each controller has.
    pub(super) replicas: Replicas,
    /// Pods that no node fits, and why.
    pub(super) unscheduled: BTreeSet<Key>,
    /// Number of pods per node.
    pub(super) loads: Loads,
    /// All requests and their results, if enabled.
    pub trace: Option<Vec<String>>,
    /// Requests that are not simulated.
    pub(super) unsupported_requests: Vec<String>,
    /// Changes since the journal was last taken, if enabled.
    pub journal: Option<Vec<Entry>>,
    /// The client whose request is processed.
    pub(super) who: Arc<str>,
    /// How many versions a list with `resourceVersion=0` lags, by kind.
    pub lag: [u64; Kind::ALL.len()],
    /// The schema of the served CRD of Plans.
    pub(super) plan_schema: Option<Arc<JSONSchemaProps>>,
    /// Complete Plans while the served CRD hides some of their fields.
    pub(super) stored_plans: BTreeMap<Key, Value>,
    /// Whether to save processor time.
    pub(super) economical: bool,
    /// What admission says to each pod of a Job, if it refuses them.
    pub refuses_pods: Option<&'static str>,
}

impl State {
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<&Value> {
        let found = self.store.get(kind, &Key::new(namespace, name))?;
        Some(&found.value)
    }

    pub fn kubelets(&self) -> &Kubelets {
        &self.kubelets
    }

    pub fn all(&self, kind: Kind) -> impl Iterator<Item = &Value> {
        self.store.all(kind).map(|object| &object.value)
    }

    /// Requests that are not simulated: one of them invalidates a rehearsal.
    pub fn unsupported_requests(&self) -> &[String] {
        &self.unsupported_requests
    }

    /// All requests so far, a line each.
    pub fn trace(&self) -> &[String] {
        self.trace.as_deref().unwrap_or_default()
    }

    /// Takes the changes since the last call.
    pub fn take_journal(&mut self) -> Vec<Entry> {
        self.journal.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Adds a line to the trace.
    pub fn trace_line(&mut self, text: &str) {
        let (now, who) = (self.clock.now(), &self.who);
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{now:.3} {who} {text}"));
        }
    }

    /// Adds an entry to the journal.
    pub(super) fn append_journal(&mut self, what: JournalEvent) {
        let (at, who) = (self.clock.now(), &self.who);
        if let Some(journal) = &mut self.journal {
            let who = Arc::clone(who);
            journal.push(Entry { at, who, what });
        }
    }

    /// Runs the work that is due, and returns the time of the next.
    pub(super) fn process_due(&mut self) -> Option<Timestamp> {
        while let Some(work) = self.work_queue.next(self.now()) {
            self.process(work);
        }
        self.work_queue.due()
    }

    fn process(&mut self, work: Work) {
        match work {
            Work::SyncJob(key) => self.sync_job(&key),
            Work::FinalizeStrayPod(key) => self.finalize_stray_pod(&key),
            Work::SyncSet(Kind::StatefulSet, key) => self.sync_stateful_set(&key),
            Work::SyncSet(_, key) => self.sync_replica_set(&key),
            Work::Budget(key) => self.sync_budget(&key),
            Work::CollectDependents(uid) => self.collect_dependents(&uid),
            Work::FinalizeOwner(uid) => self.finalize_owner(&uid),
            Work::SyncTaints(node) => self.sync_taints(&node),
            Work::EstablishDefinition(key) => self.establish_definition(&key),
            Work::ExpireEvent(key) => {
                if self.store.get(Kind::Event, &key).is_some() {
                    self.commit(Kind::Event, &key, None);
                }
            }
            Work::SchedulePod(key) => self.schedule(&key),
            Work::ScheduleAll => self.schedule_all(),
            Work::SyncPod(uid) => self.sync_pod(&uid),
            Work::CheckHeartbeat(node) => self.check_heartbeat(&node),
            Work::BootNode(node) => self.boot_node(&node),
            Work::MarkReady(node) => self.mark_ready(&node),
            Work::DeleteOrphanedPods(node) => self.delete_orphaned_pods(&node),
            Work::EvictTaintedPods(node) => self.evict_tainted_pods(&node),
        }
    }

    /// Queues work for now.
    pub(super) fn enqueue(&mut self, work: Work) {
        self.work_queue.add(self.clock.now(), work);
    }

    /// Queues work for later.
    pub(super) fn enqueue_after(&mut self, wait: SignedDuration, work: Work) {
        let at = self.now().checked_add(wait).unwrap_or(Timestamp::MAX);
        self.enqueue_at(at, work);
    }

    /// Queues work for a time.
    pub(super) fn enqueue_at(&mut self, at: Timestamp, work: Work) {
        let at = if self.economical { whole_second(at) } else { at };
        self.work_queue.add(at, work);
    }

    /// Stores a change or a deletion, and queues the work that follows.
    pub(super) fn commit(&mut self, kind: Kind, key: &Key, new: Option<Value>) -> Change {
        let change = self.store.commit(kind, key, new);
        if self.journal.is_some() {
            self.append_journal(JournalEvent::Change(kind, change.clone()));
        }
        self.react(kind, key, &change);
        change
    }

    fn react(&mut self, kind: Kind, key: &Key, change: &Change) {
        if change.gone {
            self.enqueue(Work::CollectDependents(change.new.uid().to_owned()));
        } else if change.new.is_being_deleted() {
            self.enqueue(Work::FinalizeOwner(change.new.uid().to_owned()));
        }
        self.enqueue_owners(change);
        match kind {
            Kind::Job if !change.gone => self.enqueue(Work::SyncJob(key.clone())),
            Kind::Job => self.backoffs.forget(change.new.uid()),
            Kind::Pod => self.react_to_pod(key, change),
            Kind::Node => {
                for uid in self.kubelets.node_changed(change) {
                    self.enqueue(Work::SyncPod(uid));
                }
                self.react_to_node(&key.name, change);
            }
            Kind::Event if !change.gone => self.enqueue_after(EVENT_TTL, Work::ExpireEvent(key.clone())),
            Kind::Definition if !change.gone => {
                self.enqueue_after(ESTABLISHING, Work::EstablishDefinition(key.clone()));
                let asked_for = |object: &Object| object.value["spec"].clone();
                if change.old.as_ref().map(|old| asked_for(old)) != Some(asked_for(&change.new)) {
                    self.serve_plans();
                }
            }
            Kind::Definition => self.serve_plans(),
            // A write stores the Plan as the served CRD shows it, so the hidden fields are lost.
            Kind::Plan => drop(self.stored_plans.remove(key)),
            Kind::ReplicaSet | Kind::StatefulSet if !change.gone => {
                self.enqueue(Work::SyncSet(kind, key.clone()));
            }
            Kind::Budget => self.budget_changed(key, change),
            _ => {}
        }
    }

    fn react_to_node(&mut self, name: &str, change: &Change) {
        if change.gone {
            self.loads.remove_node(name);
            return self.enqueue_after(POD_GC, Work::DeleteOrphanedPods(name.to_owned()));
        }
        if change.old.is_none() {
            self.loads.add_node(name);
            // Its pods may have been created for an earlier node with the same name.
            let pods: Vec<Arc<Object>> = self.store.pods_on(name).cloned().collect();
            for pod in pods {
                if let Some(uid) = self.kubelets.pod_changed(&pod, false) {
                    self.enqueue(Work::SyncPod(uid));
                }
            }
        }
        self.enqueue(Work::SyncTaints(name.to_owned()));
        // Whether a pod fits depends on nothing else of a Node, because resources are not simulated.
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
        // Anti-affinity to a pod ends with its terminal phase, because the scheduler does not watch such pods
        // (`newPodInformer`).
        let leaves_room =
            change.gone || has_ended(pod) && !change.old.as_ref().is_some_and(|old| has_ended(old));
        if is_bound(pod) {
            self.count_load(change);
            if let Some(uid) = self.kubelets.pod_changed(pod, change.gone) {
                self.enqueue(Work::SyncPod(uid));
            }
        } else if !change.gone && !pod.is_being_deleted() && !self.unscheduled.contains(key) {
            self.enqueue(Work::SchedulePod(key.clone()));
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
                Some((Kind::Job, job)) if is_new => self.enqueue(Work::SyncJob(job)),
                Some((Kind::Job, job)) => self.enqueue_after(JOB_BATCH, Work::SyncJob(job)),
                Some((kind @ (Kind::ReplicaSet | Kind::StatefulSet), set)) => {
                    self.enqueue(Work::SyncSet(kind, set));
                }
                _ => {}
            }
        }
        self.replicas.apply(change);
        for budget in self.budgets.apply(&key.namespace, change) {
            self.enqueue(Work::Budget(budget));
        }
    }

    /// Retries unscheduled pods.
    fn schedule_again(&mut self) {
        if !self.unscheduled.is_empty() {
            self.enqueue(Work::ScheduleAll);
        }
    }

    fn count_load(&mut self, change: &Change) {
        let counts = |object: &Object| is_bound(object) && !has_ended(object);
        let before = change.old.as_ref().is_some_and(|old| counts(old));
        let after = !change.gone && counts(&change.new);
        let node = change.new.text("/spec/nodeName");
        if before != after {
            self.loads.change(node, after);
        }
    }

    fn enqueue_owners(&mut self, change: &Change) {
        let owners: Vec<String> = change.new.owners().map(str::to_owned).collect();
        for uid in owners {
            match self.store.find(&uid) {
                Some((kind, key)) => {
                    let leaving = self
                        .store
                        .get(*kind, key)
                        .is_some_and(|owner| owner.is_being_deleted());
                    // A foreground deletion completes with the last dependent.
                    if leaving && change.gone {
                        self.enqueue(Work::FinalizeOwner(uid));
                    }
                }
                // Its owner does not exist, so the garbage collector deletes it.
                None if !change.gone => self.enqueue(Work::CollectDependents(uid)),
                None => {}
            }
        }
    }
}

/// This time, or the next whole second.
fn whole_second(at: Timestamp) -> Timestamp {
    // Before 1970 the part of a second is negative, and cutting it off rounds up.
    let seconds = at.as_second() + i64::from(at.subsec_nanosecond() > 0);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_between_two_seconds_becomes_the_later_one() {
        let time = |text: &str| text.parse::<Timestamp>().unwrap();
        for (at, second) in [
            ("2026-01-05T09:00:00Z", "2026-01-05T09:00:00Z"),
            ("2026-01-05T09:00:00.001Z", "2026-01-05T09:00:01Z"),
            ("2026-01-05T09:59:59.999999999Z", "2026-01-05T10:00:00Z"),
            ("1969-12-31T23:59:58.5Z", "1969-12-31T23:59:59Z"),
        ] {
            assert_eq!(whole_second(time(at)), time(second), "{at}");
        }
    }
}
