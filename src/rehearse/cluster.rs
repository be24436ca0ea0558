//! A handle on the simulated cluster: creates it, changes objects, and runs it.

mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use jiff::Timestamp;
use kube::Client;
use tokio::sync::watch;

use super::controller_manager::backoff::Backoffs;
use super::controller_manager::pod_counts::Replicas;
use super::controller_manager::selected_pods::Budgets;
use super::delete::DeleteOptions;
use super::ids::Ids;
use super::journal::CLUSTER;
use super::kubelets::{DefaultBehaviour, Kubelets};
use super::resources::Kind;
use super::scheduler::loads::Loads;
use super::state::State;
use super::status_error::StatusError;
use super::store::{Key, Store};
use super::work_queue::WorkQueue;
use super::write::{WriteTarget, merge};
use crate::json::{Value, json};
use refit_cluster::clock::Clock;
use refit_cluster::drain::Changes;

/// Number of changes per kind that the API server keeps, about as many as a real one.
const HISTORY: usize = 1_000;
/// Namespaces that every cluster has.
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

#[derive(Clone, Debug)]
pub struct Options {
    /// The seed of everything random.
    pub seed: u64,
    /// The time when the cluster starts.
    pub start: Timestamp,
    /// How pods behave by default.
    pub default_behaviour: DefaultBehaviour,
    /// Number of changes kept per kind; a watch that falls further behind gets 410 Gone.
    pub history: usize,
    /// Whether to record requests.
    pub traced: bool,
    /// Whether to record changes for [`State::take_journal`].
    pub journaled: bool,
    /// Whether to save processor time. Work for later is done at whole seconds: what happens on many nodes within a second
    /// is then one change to the controller, which decides once instead of once for each node. And drains read a node
    /// again only after it has changed.
    pub economical: bool,
}

impl Options {
    /// Options for a cluster that starts at this time.
    pub fn new(seed: u64, start: Timestamp) -> Self {
        Self {
            seed,
            start,
            default_behaviour: DefaultBehaviour::default(),
            history: HISTORY,
            traced: false,
            journaled: false,
            economical: false,
        }
    }
}

/// The cluster, and the name under which the journal records changes through this handle.
#[derive(Clone)]
pub struct Cluster(Arc<Shared>, Arc<str>);

/// Creates the clients of containers that run on nodes.
pub(super) type ClientFactory = Box<dyn Fn(&Cluster, &str) -> Client + Send + Sync>;

struct Shared {
    state: Mutex<State>,
    clock: Clock,
    /// The newest resource version, for tasks that wait for a change.
    version: watch::Sender<u64>,
    client_factory: OnceLock<ClientFactory>,
}

impl Cluster {
    /// A cluster with the default namespaces and without nodes. It must be created within a tokio runtime, whose time
    /// it uses.
    pub fn new(options: Options) -> Self {
        let clock = Clock::following_tokio(options.start);
        let mut state = State {
            clock: clock.clone(),
            ids: Ids::new(options.seed),
            store: Store::new(options.history),
            work_queue: WorkQueue::default(),
            kubelets: Kubelets::new(options.default_behaviour),
            backoffs: Backoffs::default(),
            budgets: Budgets::default(),
            replicas: Replicas::default(),
            unscheduled: BTreeSet::new(),
            loads: Loads::default(),
            trace: options.traced.then(Vec::new),
            unsupported_requests: Vec::new(),
            journal: options.journaled.then(Vec::new),
            who: CLUSTER.into(),
            lag: [0; Kind::ALL.len()],
            plan_schema: None,
            stored_plans: BTreeMap::new(),
            economical: options.economical,
            refuses_pods: None,
        };
        for name in NAMESPACES {
            state.ensure_namespace(name);
        }
        let shared = Shared {
            state: Mutex::new(state),
            clock,
            version: watch::Sender::new(0),
            client_factory: OnceLock::new(),
        };
        Self(Arc::new(shared), CLUSTER.into())
    }

    /// A handle under whose name the journal records changes.
    #[must_use]
    pub fn acting_as(&self, who: &str) -> Self {
        Self(Arc::clone(&self.0), who.into())
    }

    /// The cluster's time of day.
    pub fn clock(&self) -> Clock {
        self.0.clock.clone()
    }

    pub(super) fn client_factory(&self) -> &OnceLock<ClientFactory> {
        &self.0.client_factory
    }

    /// Tells drains which reads they may leave out.
    pub(super) fn changes(&self) -> Option<Changes> {
        if !self.with(|state| state.economical) {
            return None;
        }
        let cluster = self.clone();
        Some(Arc::new(move |node| {
            cluster.with(|state| state.store.versions_of_node(node))
        }))
    }

    pub fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        // A lock poisoned by a panicking thread is only seen by a test that fails anyway.
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.who.clone_from(&self.1);
        let done = act(&mut state);
        let version = state.store.version();
        // Queued work changes no version: without this, `run_due_work` would sleep until the time that was due before.
        let planned = state.work_queue.take_added();
        drop(state);
        self.0.version.send_if_modified(|known| {
            let changed = *known != version || planned;
            *known = version;
            changed
        });
        done
    }

    /// Stores an object with its status, as if it had existed for long: a Node without `creationTimestamp` stays without. Its
    /// namespace is created if needed.
    ///
    /// # Errors
    /// Fails as the API server would, with its Status.
    pub fn put(&self, object: impl Into<Value>) -> Result<Value, StatusError> {
        let object = object.into();
        self.with(|state| state.put(object))
    }

    /// Creates an object as a user would.
    ///
    /// # Errors
    /// Fails as the API server would, with its Status.
    pub fn create(&self, object: impl Into<Value>) -> Result<Value, StatusError> {
        let object = object.into();
        self.with(|state| {
            let (kind, namespace) = place(&object)?;
            let made = state.create(kind, &namespace, object, false)?;
            Ok(made.value.clone())
        })
    }

    /// Changes an object as a user would, by a merge patch.
    ///
    /// # Errors
    /// Fails as the API server would, with its Status.
    pub fn patch(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        patch: impl Into<Value>,
    ) -> Result<Value, StatusError> {
        self.write(kind, namespace, name, WriteTarget::Whole, &patch.into())
    }

    /// # Errors
    /// Fails as the API server would, with its Status.
    pub fn patch_status(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        patch: impl Into<Value>,
    ) -> Result<Value, StatusError> {
        self.write(kind, namespace, name, WriteTarget::Status, &patch.into())
    }

    fn write(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        part: WriteTarget,
        patch: &Value,
    ) -> Result<Value, StatusError> {
        self.with(|state| {
            let key = Key::new(namespace, name);
            let written = state.change(kind, &key, part, |new| {
                merge(new, patch);
            })?;
            Ok(written.value.clone())
        })
    }

    /// Deletes an object as a user would.
    ///
    /// # Errors
    /// Fails as the API server would, with its Status.
    pub fn delete(&self, kind: Kind, namespace: &str, name: &str) -> Result<(), StatusError> {
        self.with(|state| {
            let deletion = DeleteOptions::default();
            state
                .delete(kind, &Key::new(namespace, name), &deletion)
                .map(drop)
        })
    }

    pub fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<Value> {
        self.with(|state| state.get(kind, namespace, name).cloned())
    }

    /// Waits until a condition holds that depends on objects only.
    pub async fn until(&self, mut holds: impl FnMut(&State) -> bool) {
        // Before the first check: a change between a check and the wait would otherwise be lost.
        let mut version = self.0.version.subscribe();
        while !self.with(|state| holds(state)) {
            if version.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

/// Kind and namespace of an object, from its own fields.
pub(super) fn place(object: &Value) -> Result<(Kind, String), StatusError> {
    let text = |pointer| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (version, kind) = (text("/apiVersion"), text("/kind"));
    let found = Kind::of_object(version, kind)
        .ok_or_else(|| StatusError::unsupported(&format!("objects of kind {kind:?} of {version:?}")))?;
    let namespace = match (found.resource_type().namespaced, text("/metadata/namespace")) {
        (false, _) => "",
        (true, "") => "default",
        (true, namespace) => namespace,
    };
    Ok((found, namespace.to_owned()))
}

impl State {
    fn put(&mut self, object: Value) -> Result<Value, StatusError> {
        let (kind, namespace) = place(&object)?;
        self.ensure_namespace(&namespace);
        // A create drops the status, as in the API server, so it is written separately.
        let status = object.get("status").cloned();
        let registered = object["metadata"].get("creationTimestamp").cloned();
        let made = self.create(kind, &namespace, object, false)?;
        let Some(status) = status else {
            return Ok(made.value.clone());
        };
        let key = made.key();
        let mut value = made.value.clone();
        value["status"] = status;
        if kind == Kind::Node {
            value["metadata"]["creationTimestamp"] = registered.unwrap_or(Value::Null);
        }
        if value == made.value {
            return Ok(value);
        }
        Ok(self.commit(kind, &key, Some(value)).new.value.clone())
    }

    /// Creates a namespace that does not exist. The caller reports an invalid name when it stores an object in it.
    pub(super) fn ensure_namespace(&mut self, name: &str) {
        if name.is_empty() || self.get(Kind::Namespace, "", name).is_some() {
            return;
        }
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name },
            "spec": { "finalizers": ["kubernetes"] }, "status": { "phase": "Active" },
        });
        let _ = self.create(Kind::Namespace, "", namespace, false);
    }
}
