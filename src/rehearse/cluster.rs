//! A handle on the cluster: how it is made, filled, asked and set going.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::future::Future;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures::future::{AbortHandle, Abortable};
use futures::stream::{FuturesUnordered, StreamExt as _};
use jiff::Timestamp;
use kube::Client;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::agenda::Agenda;
use super::deletion::Deletion;
use super::fault::Fault;
use super::ids::Ids;
use super::journal::CLUSTER;
use super::kubelets::{Habits, Kubelets, act};
use super::manager::backoff::Backoffs;
use super::resources::Kind;
use super::scheduler::Loads;
use super::server::Transport;
use super::state::State;
use super::store::{Key, Store};
use super::write::{Part, merge};
use crate::clock::Clock;
use crate::controller::client::{ApiServer, RequestCounts, over_transport};
use crate::rehearse::json::{Value, json};

/// How many changes of a kind the API server remembers. About what a real one does.
const HISTORY: usize = 1_000;
/// Namespaces that every cluster has.
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// How a cluster is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// What all that is random elsewhere follows from.
    pub seed: u64,
    /// The time of day at the beginning.
    pub start: Timestamp,
    /// How its pods behave.
    pub habits: Habits,
    /// How many changes of a kind are remembered; watches that lag further behind are told so.
    pub history: usize,
    /// Whether requests are written down.
    pub traced: bool,
    /// Whether changes are written down, for who takes them ([`State::take_journal`]).
    pub journaled: bool,
}

impl Options {
    /// A cluster that begins at this time.
    pub fn new(seed: u64, start: Timestamp) -> Self {
        Self {
            seed,
            start,
            habits: Habits::default(),
            history: HISTORY,
            traced: false,
            journaled: false,
        }
    }
}

/// A cluster in this process, and the name by which its journal calls who has this handle on it.
#[derive(Clone)]
pub struct Cluster(Arc<Shared>, Arc<str>);

/// How clients of what runs on nodes are made.
type Road = Box<dyn Fn(Transport) -> Client + Send + Sync>;

struct Shared {
    state: Mutex<State>,
    clock: Clock,
    /// The newest version of all, for those who wait for a change.
    version: watch::Sender<u64>,
    road: OnceLock<Road>,
}

impl Cluster {
    /// A cluster with the namespaces that every cluster has, and no nodes. Called within a tokio runtime, whose time is the
    /// cluster's.
    pub fn new(options: Options) -> Self {
        let clock = Clock::following_tokio(options.start);
        let mut state = State {
            clock: clock.clone(),
            ids: Ids::new(options.seed),
            store: Store::new(options.history),
            agenda: Agenda::default(),
            kubelets: Kubelets::new(options.habits),
            backoffs: Backoffs::default(),
            unscheduled: BTreeSet::new(),
            loads: Loads::default(),
            trace: options.traced.then(Vec::new),
            holes: Vec::new(),
            journal: options.journaled.then(Vec::new),
            who: CLUSTER.into(),
            lag: [0; Kind::ALL.len()],
            at_rest: BTreeMap::new(),
        };
        for name in NAMESPACES {
            state.admit_namespace(name);
        }
        let shared = Shared {
            state: Mutex::new(state),
            clock,
            version: watch::Sender::new(0),
            road: OnceLock::new(),
        };
        Self(Arc::new(shared), CLUSTER.into())
    }

    /// A handle for somebody, by whose name the journal calls what is done with it.
    #[must_use]
    pub fn acting_as(&self, who: &str) -> Self {
        Self(Arc::clone(&self.0), who.into())
    }

    /// Has clients made in another way from now on: their requests may meet something on their way. Only the first call counts.
    pub fn make_clients_by(&self, road: impl Fn(Transport) -> Client + Send + Sync + 'static) {
        let _ = self.0.road.set(Box::new(road));
    }

    /// The cluster's time of day.
    pub fn clock(&self) -> Clock {
        self.0.clock.clone()
    }

    /// Its API server, for a controller.
    pub fn server(&self) -> ApiServer {
        ApiServer::in_process(Transport::new(self, "controller"))
    }

    /// A handle on its API server that writes at any time, for what runs on a node. `who` is what the trace calls it.
    pub fn client(&self, who: &str) -> Client {
        let transport = Transport::new(self, who);
        match self.0.road.get() {
            Some(road) => road(transport),
            None => over_transport(transport, None, Arc::<RequestCounts>::default()),
        }
    }

    /// Does something with the whole cluster while nobody else does.
    pub fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        // What a panicking thread left behind is looked at by a test that fails anyway.
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.who.clone_from(&self.1);
        let done = act(&mut state);
        let version = state.store.version();
        let planned = state.agenda.has_news();
        drop(state);
        self.0.version.send_if_modified(|known| {
            let news = *known != version || planned;
            *known = version;
            news
        });
        done
    }

    /// Puts an object there, with its status, as if it had been made long ago. Its namespace is made with it.
    pub fn put(&self, object: impl Into<Value>) -> Result<Value, Fault> {
        let object = object.into();
        self.with(|state| state.put(object))
    }

    /// Makes an object as a user would.
    pub fn create(&self, object: impl Into<Value>) -> Result<Value, Fault> {
        let object = object.into();
        self.with(|state| {
            let (kind, namespace) = place(&object)?;
            let made = state.create(kind, &namespace, object, false)?;
            Ok(made.value.clone())
        })
    }

    /// Changes an object as a user would, by a merge patch.
    pub fn patch(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        patch: impl Into<Value>,
    ) -> Result<Value, Fault> {
        self.write(kind, namespace, name, Part::Whole, &patch.into())
    }

    /// Changes the status of an object, by a merge patch.
    pub fn patch_status(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        patch: impl Into<Value>,
    ) -> Result<Value, Fault> {
        self.write(kind, namespace, name, Part::Status, &patch.into())
    }

    fn write(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        part: Part,
        patch: &Value,
    ) -> Result<Value, Fault> {
        self.with(|state| {
            let key = Key::new(namespace, name);
            let written = state.update(kind, &key, part, false, |old| {
                let mut new = old.clone();
                merge(&mut new, patch);
                Ok(new)
            })?;
            Ok(written.value.clone())
        })
    }

    /// Deletes an object as a user would.
    pub fn delete(&self, kind: Kind, namespace: &str, name: &str) -> Result<(), Fault> {
        self.with(|state| {
            let deletion = Deletion::default();
            state
                .delete(kind, &Key::new(namespace, name), &deletion)
                .map(drop)
        })
    }

    /// An object.
    pub fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<Value> {
        self.with(|state| state.get(kind, namespace, name).cloned())
    }

    /// Waits until something holds that only changes when an object does.
    pub async fn until(&self, mut holds: impl FnMut(&State) -> bool) {
        let mut version = self.0.version.subscribe();
        while !self.with(|state| holds(state)) {
            if version.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Does something while the cluster works, and says what came of it.
    pub async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            done = work => done,
            never = self.play() => match never {},
        }
    }

    /// Lets the cluster work: its controllers, its scheduler, its kubelets, and what runs on its nodes.
    async fn play(&self) -> Infallible {
        let this = self.acting_as(CLUSTER);
        let mut version = self.0.version.subscribe();
        let mut running = FuturesUnordered::new();
        loop {
            version.borrow_and_update();
            let (due, errands) = this.with(|state| (state.work(), state.kubelets.errands()));
            for errand in errands {
                let (abort, registration) = AbortHandle::new_pair();
                this.with(|state| state.kubelets.runs(&errand, abort));
                running.push(Abortable::new(act::run(this.clone(), errand), registration));
            }
            let wait = due.map(|due| {
                let wait = due.duration_since(self.0.clock.now());
                Instant::now() + Duration::try_from(wait).unwrap_or_default()
            });
            tokio::select! {
                biased;
                Ok(()) = version.changed() => {}
                Some(_) = running.next(), if !running.is_empty() => {}
                () = until(wait) => {}
            }
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Where an object belongs that names itself.
fn place(object: &Value) -> Result<(Kind, String), Fault> {
    let text = |pointer| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (version, kind) = (text("/apiVersion"), text("/kind"));
    let found = Kind::of_object(version, kind)
        .ok_or_else(|| Fault::not_played(&format!("objects of kind {kind:?} of {version:?}")))?;
    let namespace = match (found.facts().namespaced, text("/metadata/namespace")) {
        (false, _) => "",
        (true, "") => "default",
        (true, namespace) => namespace,
    };
    Ok((found, namespace.to_owned()))
}

impl State {
    fn put(&mut self, object: Value) -> Result<Value, Fault> {
        let (kind, namespace) = place(&object)?;
        if kind.facts().namespaced && self.get(Kind::Namespace, "", &namespace).is_none() {
            self.admit_namespace(&namespace);
        }
        let status = object.get("status").cloned();
        let made = self.create(kind, &namespace, object, false)?;
        let Some(status) = status else {
            return Ok(made.value.clone());
        };
        let key = made.key();
        let mut value = made.value.clone();
        value["status"] = status;
        if value == made.value {
            return Ok(value);
        }
        Ok(self.commit(kind, &key, Some(value)).new.value.clone())
    }

    fn admit_namespace(&mut self, name: &str) {
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name },
            "spec": { "finalizers": ["kubernetes"] }, "status": { "phase": "Active" },
        });
        // A name that cannot be one is told by whoever puts an object there.
        let _ = self.create(Kind::Namespace, "", namespace, false);
    }
}
