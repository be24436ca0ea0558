//! Nodes in maintenance (`NodeMaintenance`, as of node-maintenance-operator): a front end. While such an object is
//! there, its node is cordoned and drained; when it goes, the node is as it was before.
//!
//! The objects become [`Reservation`]s, which keep Plans off their nodes; the decision says which nodes may be taken.
//! One worker per object then drains its node with the same session as `refit drain`, and writes a status in the
//! operator's words. It runs in the controller, because a pod on the node would evict itself, and one elsewhere would
//! need a node that is not drained next. The node's ledger has the object as a holder, so that a controller that dies
//! loses nothing, and so that the decision restores the node once the object is being deleted or is gone.

mod events;
mod guard;
mod lease;
mod status;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use super::front_end::{Change, QUEUE, Watcher};
use super::observe::Observer;
use super::outbox::Outbox;
use super::settings::{FrontEndName, Settings};
use refit_cluster::clock::Clock;
use refit_facts::objects::maintenance::{
    KubevirtMaintenance, Maintenance, MaintenanceGroup, MedikMaintenance,
};
use refit_rollout::{Observation, Reservation, ReservationDecisions, Reservations};
use worker::{Task, Worker};

/// What the front end needs of the controller.
#[derive(Clone)]
pub(super) struct FrontEnd {
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) outbox: Outbox,
    /// Receives the nodes that objects want.
    pub(super) observations: mpsc::Sender<Observation>,
    /// Which nodes they may take.
    pub(super) grants: watch::Receiver<ReservationDecisions>,
    /// Notified when the resource versions of the server went back.
    pub(super) restored: Arc<Notify>,
}

/// An object by its group and name.
type Id = (MaintenanceGroup, String);

impl FrontEnd {
    /// The front end, if the settings ask for it.
    pub(super) fn if_enabled(
        settings: &Settings,
        observer: &Observer,
        outbox: &Outbox,
        clock: &Clock,
        grants: watch::Receiver<ReservationDecisions>,
    ) -> Option<Self> {
        let is_enabled = settings.enable.contains(&FrontEndName::Maintenance);
        is_enabled.then(|| Self {
            client: observer.client.clone(),
            clock: clock.clone(),
            outbox: outbox.clone(),
            observations: observer.observations.clone(),
            grants,
            restored: Arc::clone(&observer.restored),
        })
    }

    /// Runs until it is dropped.
    pub(super) async fn run(self) {
        let (changes, mut queue) = mpsc::channel(QUEUE);
        let mut tasks = JoinSet::new();
        let watcher = || Watcher {
            client: self.client.clone(),
            restored: Arc::clone(&self.restored),
        };
        let [medik8s, kubevirt] = MaintenanceGroup::ALL;
        tasks.spawn(watcher().run::<MedikMaintenance, _, _>(medik8s, None, None, changes.clone()));
        tasks.spawn(watcher().run::<KubevirtMaintenance, _, _>(kubevirt, None, None, changes));
        let mut supervisor = Supervisor::new(self);
        loop {
            let mut next = tokio::select! {
                biased;
                change = queue.recv() => match change {
                    Some(change) => Some(change),
                    None => return,
                },
                decided = supervisor.front_end.grants.changed() => match decided {
                    Ok(()) => None,
                    Err(_) => return,
                },
            };
            // What has arrived meanwhile is one change.
            while let Some((group, change)) = next {
                if matches!(change, Change::Forbidden) {
                    let observations = &supervisor.front_end.observations;
                    let _ = observations.send(Observation::Forbidden).await;
                }
                supervisor.apply(group, change);
                next = queue.try_recv().ok();
            }
            supervisor.assign().await;
        }
    }
}

struct Supervisor {
    front_end: FrontEnd,
    objects: BTreeMap<Id, Maintenance>,
    /// Objects of the list that runs, by group.
    listed: BTreeMap<MaintenanceGroup, BTreeSet<String>>,
    /// Groups that were listed at least once, or do not exist.
    known: BTreeSet<MaintenanceGroup>,
    workers: BTreeMap<Id, Running>,
    tasks: JoinSet<()>,
    reported: Option<Reservations>,
}

/// A worker, and how to reach it.
struct Running {
    uid: String,
    task: watch::Sender<Task>,
    handle: AbortHandle,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

impl Supervisor {
    fn new(front_end: FrontEnd) -> Self {
        Self {
            front_end,
            objects: BTreeMap::new(),
            listed: BTreeMap::new(),
            known: BTreeSet::new(),
            workers: BTreeMap::new(),
            tasks: JoinSet::new(),
            reported: None,
        }
    }

    fn apply(&mut self, group: MaintenanceGroup, change: Change<Maintenance>) {
        match change {
            Change::ListStarted => {
                self.listed.insert(group, BTreeSet::new());
            }
            Change::Object(object) => {
                let name = object.name().to_owned();
                if let Some(listed) = self.listed.get_mut(&group) {
                    listed.insert(name.clone());
                }
                self.objects.insert((group, name), object);
            }
            Change::Deleted { name, uid } => {
                let id = (group, name);
                if self.objects.get(&id).is_some_and(|object| object.uid() == uid) {
                    self.objects.remove(&id);
                }
            }
            Change::ListFinished => {
                let listed = self.listed.remove(&group).unwrap_or_default();
                self.objects
                    .retain(|(of, name), _| *of != group || listed.contains(name));
                self.known.insert(group);
            }
            Change::Unknown => {
                self.objects.retain(|(of, _), _| *of != group);
                self.known.insert(group);
            }
            Change::Forbidden => {}
        }
    }

    /// Gives each object its task, and reports which nodes are wanted.
    async fn assign(&mut self) {
        // Before, it is not known which of two objects for a node is the older one.
        if self.known.len() < MaintenanceGroup::ALL.len() {
            return;
        }
        let owners = owners(&self.objects);
        let reservations: Reservations = owners
            .iter()
            .map(|(node, id)| {
                let object = &self.objects[id];
                let reservation = Reservation {
                    object: object.title().as_str().into(),
                    uid: object.uid().into(),
                };
                ((**node).into(), reservation)
            })
            .collect();
        let is_owner: BTreeSet<&Id> = owners.values().copied().collect();
        // Here and not in each worker: waiters of one channel wake in random order, and a seed must repeat its run.
        let grants = self.front_end.grants.borrow_and_update().clone();
        let gone = |id: &Id, running: &Running| self.objects.get(id).is_none_or(|it| it.uid() != running.uid);
        self.workers.retain(|id, running| !gone(id, running));
        for (id, object) in &self.objects {
            let task = Task {
                object: object.clone(),
                is_owner: is_owner.contains(id),
                grant: grants
                    .get(object.spec.node_name.as_str())
                    .filter(|grant| *grant.uid == *object.uid())
                    .map(|grant| grant.answer.clone()),
            };
            if let Some(running) = self.workers.get(id) {
                running.task.send_if_modified(|known| {
                    let changed = *known != task;
                    *known = task;
                    changed
                });
                continue;
            }
            let (sender, receiver) = watch::channel(task);
            let worker = Worker::new(self.front_end.clone(), receiver);
            let running = Running {
                uid: object.uid().to_owned(),
                task: sender,
                handle: self.tasks.spawn(worker.run()),
            };
            self.workers.insert(id.clone(), running);
        }
        // Their results say nothing; a panic of one is a bug.
        while let Some(ended) = self.tasks.try_join_next() {
            if let Err(error) = ended
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        }
        if self.reported.as_ref() != Some(&reservations) {
            self.reported = Some(reservations.clone());
            // Fails only if the loop has ended, and then this task ends too.
            let _ = self
                .front_end
                .observations
                .send(Observation::Reservations(reservations))
                .await;
        }
    }
}

/// The object that has each node: the oldest that is neither being deleted nor has given up.
fn owners(objects: &BTreeMap<Id, Maintenance>) -> BTreeMap<&str, &Id> {
    let wants = |object: &Maintenance| !object.is_being_deleted() && !status::has_given_up(&object.status);
    let mut wanting: Vec<_> = objects.iter().filter(|(_, object)| wants(object)).collect();
    let made = |object: &Maintenance| object.metadata.creation_timestamp.as_ref().map(|at| at.0);
    wanting.sort_by_key(|(id, object)| (made(object), *id));
    let mut owners = BTreeMap::new();
    for (id, object) in wanting {
        owners.entry(object.spec.node_name.as_str()).or_insert(id);
    }
    owners
}

/// Pause after an error of the API server that is not about the drain.
const PAUSE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
