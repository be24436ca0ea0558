//! The back end in this process: a simulated cluster in virtual time, whose controller is a task. It answers the same
//! questions as a control plane: objects through `kube::Client`, requests in the form of the audit log.

mod recorder;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use kube::Client;
use refit_api::{Check, CheckAnswer, crd};
use refit_base::version::Offer;
use refit_cluster::kube::client::{ApiServer, over_transport};
use refit_rehearse::journal::{Entry, JournalEvent};
use refit_rehearse::pod_lifecycle::Defaults;
use refit_rehearse::server::Transport;
use refit_rehearse::{Cluster, Kind, Options};
use serde_json::{Value, json};

use super::audit::{ADMIN, Request, Requests};
use recorder::Recorder;

pub use recorder::Connection;

/// A Thursday.
const START: &str = "2026-01-01T09:00:00Z";
/// Seed of UIDs and of the scheduler; the order in which nodes start follows from it.
const SEED: u64 = 1;
/// Lines of the trace that a failed test prints.
const TRACE_LINES: usize = 120;

/// A simulated cluster. A clone is another handle on the same one.
#[derive(Clone)]
pub struct Simulated {
    cluster: Cluster,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// In the order in which they were answered, with the end of each Job among them.
    requests: Mutex<Vec<Request>>,
    /// Boot IDs of each machine so far.
    boots: Mutex<BTreeMap<String, Vec<String>>>,
    /// Versions that channels offer, by URL.
    channels: Mutex<BTreeMap<String, String>>,
    /// Why checks fail, by name. Others pass.
    failing_checks: Mutex<BTreeMap<String, String>>,
    count: AtomicU32,
}

impl Simulated {
    /// A cluster without nodes that serves the CRD of Plans, whose pods behave like that. It needs a `LocalSet`.
    pub fn start(pods: Defaults) -> Self {
        fastrand::seed(SEED);
        let mut options = Options::new(SEED, START.parse().expect("a valid time"));
        (options.traced, options.journaled) = (true, true);
        options.default_behaviour.defaults = pods;
        let cluster = Cluster::new(options);
        let definition = serde_json::to_value(crd::plans()).expect("a valid CRD");
        cluster.put(definition).expect("the CRD is stored");
        let working = cluster.clone();
        tokio::task::spawn_local(async move { working.run_while(std::future::pending::<()>()).await });
        Self {
            cluster,
            shared: Arc::default(),
        }
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub fn now(&self) -> Timestamp {
        self.cluster.clock().now()
    }

    /// A number that no other call returns.
    pub fn next_number(&self) -> u32 {
        self.shared.count.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A cluster administrator. Its requests are recorded under the name of the test.
    pub fn client(&self, test: &str) -> Client {
        let transport = Transport::of_user(&self.cluster, ADMIN);
        let recorder = Recorder::new(self, transport, ADMIN, &format!("refit-test/{test}"));
        over_transport(recorder, None, Arc::default())
    }

    /// The API server for a controller with this user name, and what cuts it off, as if its process had died.
    pub fn server(&self, user: &str) -> (ApiServer, Arc<Connection>) {
        let recorder = Recorder::new(self, Transport::new(&self.cluster, "controller"), user, "refit");
        let connection = recorder.connection();
        (ApiServer::in_process(recorder), connection)
    }

    /// Sets the version that a channel offers.
    pub fn offers(&self, channel: &str, version: &str) {
        lock(&self.shared.channels).insert(channel.to_owned(), version.to_owned());
    }

    /// The offer of a channel to a controller.
    pub fn offer(&self, channel: &str) -> Result<Offer, String> {
        let version = lock(&self.shared.channels).get(channel).cloned();
        let version = version.ok_or_else(|| "HTTP/1.1 404 Not Found".to_owned())?;
        Ok(Offer::one(version))
    }

    /// Makes a check of all Plans fail with this message, or pass.
    pub fn set_check(&self, name: &str, failure: Option<&str>) {
        let mut failing = lock(&self.shared.failing_checks);
        match failure {
            Some(message) => failing.insert(name.to_owned(), message.to_owned()),
            None => failing.remove(name),
        };
    }

    /// The answer to a check of a controller.
    pub fn check(&self, check: &Check) -> CheckAnswer {
        let failure = lock(&self.shared.failing_checks).get(&check.name).cloned();
        CheckAnswer {
            passed: failure.is_none(),
            message: failure.unwrap_or_default(),
        }
    }

    /// Creates an object, or merges it into the existing one.
    pub fn apply(&self, object: &Value) -> anyhow::Result<Value> {
        let text = |pointer| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let kind = Kind::of_object(text("/apiVersion"), text("/kind"));
        let kind = kind.ok_or_else(|| anyhow::anyhow!("not simulated: {object}"))?;
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        let (verb, code, applied) = if self.cluster.get(kind, namespace, name).is_none() {
            ("create", 201, self.cluster.create(object.clone()))
        } else {
            let patched = self.cluster.patch(kind, namespace, name, object.clone());
            ("patch", 200, patched)
        };
        let applied = applied.map_err(|error| anyhow::anyhow!("{}", error.message))?;
        let (now, facts) = (self.now(), kind.resource_type());
        self.record(Request {
            user: ADMIN.to_owned(),
            user_agent: format!("refit-test/{namespace}"),
            verb: verb.to_owned(),
            group: facts.group.to_owned(),
            resource: facts.plural.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            code,
            received: now,
            at: now,
            sent: Value::Null,
            answered: Value::Null,
        });
        Ok(serde_json::to_value(applied)?)
    }

    pub fn make_namespace(&self, name: &str) {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        let made = self.cluster.create(namespace);
        made.unwrap_or_else(|error| panic!("cannot make namespace {name}: {}", error.message));
    }

    /// What the audit log of a control plane would say of a test: the requests of its service accounts and of its
    /// administrator, those that concern its namespace, and how its Jobs ended.
    pub fn requests(&self, test: &str) -> Requests {
        self.drain_journal();
        let of_test = |request: &&Request| {
            request.user.contains(test) || request.user_agent.contains(test) || request.namespace == test
        };
        Requests(
            lock(&self.shared.requests)
                .iter()
                .filter(of_test)
                .cloned()
                .collect(),
        )
    }

    /// How often a machine was started.
    pub fn boots(&self, node: &str) -> u32 {
        self.drain_journal();
        let boots = lock(&self.shared.boots).get(node).map_or(0, Vec::len);
        u32::try_from(boots).unwrap_or(u32::MAX)
    }

    /// Fails if something was asked that is not simulated.
    pub fn assert_supported(&self) {
        let unsupported = self.cluster.with(|state| state.unsupported_requests().to_vec());
        assert!(unsupported.is_empty(), "not simulated: {unsupported:#?}");
    }

    /// The last requests, for a failed test.
    pub fn report(&self) -> String {
        self.cluster.with(|state| {
            let trace = state.trace();
            trace[trace.len().saturating_sub(TRACE_LINES)..].join("\n")
        })
    }

    fn record(&self, request: Request) {
        self.drain_journal();
        lock(&self.shared.requests).push(request);
    }

    /// Takes over what has changed since the last call.
    fn drain_journal(&self) {
        let entries = self.cluster.with(refit_rehearse::State::take_journal);
        for Entry { at, what, .. } in entries {
            let JournalEvent::Change(kind, change) = what else {
                continue;
            };
            match kind {
                Kind::Node if !change.gone => {
                    let (node, boot) = (
                        change.new.meta("name"),
                        change.new.text("/status/nodeInfo/bootID"),
                    );
                    let mut boots = lock(&self.shared.boots);
                    let known = boots.entry(node.to_owned()).or_default();
                    if !boot.is_empty() && known.last().is_none_or(|last| last != boot) {
                        known.push(boot.to_owned());
                    }
                }
                Kind::Job if !change.gone => {
                    let job = |object: &refit_rehearse::json::Value| {
                        serde_json::to_value(object).expect("a Job is JSON")
                    };
                    let ended = |status: &Value| super::audit::finished(status);
                    let before = change.old.as_ref().is_some_and(|old| ended(&job(&old.value)));
                    let now = job(&change.new.value);
                    if ended(&now) && !before {
                        lock(&self.shared.requests).push(job_ended(now, at));
                    }
                }
                _ => {}
            }
        }
    }
}

/// The Job controller's update of the status of a Job that has ended.
fn job_ended(job: Value, at: Timestamp) -> Request {
    let text = |pointer| {
        job.pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    Request {
        user: "system:serviceaccount:kube-system:job-controller".to_owned(),
        user_agent: String::new(),
        verb: "update".to_owned(),
        group: "batch".to_owned(),
        resource: "jobs/status".to_owned(),
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name"),
        code: 200,
        received: at,
        at,
        sent: job,
        answered: Value::Null,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
