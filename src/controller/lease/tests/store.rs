//! A Lease in memory, behind links with faults.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-upgrade/leases";

pub(super) struct Store(Mutex<State>);

struct State {
    lease: Option<Value>,
    version: u64,
    last_write: Instant,
    /// An entry of `managedFields` that every version has.
    manager: Option<Value>,
}

impl Store {
    pub(super) fn empty() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            lease: None,
            version: 0,
            last_write: Instant::now(),
            manager: None,
        })))
    }

    pub(super) fn holding(spec: &Value) -> Arc<Self> {
        let store = Self::empty();
        store.put_spec(spec);
        store
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn spec(&self) -> Value {
        self.state().lease.as_ref().expect("there is no Lease")["spec"].clone()
    }

    pub(super) fn labels(&self) -> Value {
        self.state().lease.as_ref().expect("there is no Lease")["metadata"]["labels"].clone()
    }

    pub(super) fn last_write(&self) -> Instant {
        self.state().last_write
    }

    pub(super) fn put_spec(&self, spec: &Value) {
        let mut lease = self.state().lease.clone().unwrap_or_else(
            || json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": super::NAME}}),
        );
        lease["spec"] = spec.clone();
        self.state().write(lease);
    }

    pub(super) fn manage(&self, manager: Value) {
        self.state().manager = Some(manager);
    }

    pub(super) fn label(&self) {
        let mut lease = self.state().lease.clone().unwrap();
        lease["metadata"]["labels"] = json!({"touched": "yes"});
        self.state().write(lease);
    }

    /// Restores etcd from an earlier moment: the Lease is as it is, in an older version.
    pub(super) fn set_version(&self, version: u64) {
        let mut state = self.state();
        state.version = version;
        if let Some(lease) = &mut state.lease {
            lease["metadata"]["resourceVersion"] = json!(version.to_string());
        }
    }

    pub(super) fn delete(&self) {
        self.state().lease = None;
    }
}

impl State {
    fn write(&mut self, mut lease: Value) -> Value {
        self.version += 1;
        self.last_write = Instant::now();
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if let Some(manager) = &self.manager {
            lease["metadata"]["managedFields"] = json!([manager]);
        }
        self.lease = Some(lease.clone());
        lease
    }

    /// Handles the three requests that system-upgrade-controller's role allows on a Lease.
    fn answer(&mut self, method: &Method, path: &str, body: &[u8]) -> (StatusCode, Value) {
        let sent = || serde_json::from_slice::<Value>(body).unwrap();
        let one = format!("{PATH}/{}", super::NAME);
        match (method, &self.lease) {
            (&Method::GET, Some(lease)) if path == one => (StatusCode::OK, lease.clone()),
            (&Method::GET | &Method::PUT, None) if path == one => failure(404, "NotFound"),
            (&Method::POST, None) if path == PATH => (StatusCode::CREATED, self.write(sent())),
            (&Method::POST, Some(_)) if path == PATH => failure(409, "AlreadyExists"),
            (&Method::PUT, Some(lease)) if path == one => {
                let (sent, there) = (sent(), &lease["metadata"]["resourceVersion"]);
                let expected = &sent["metadata"]["resourceVersion"];
                assert!(expected.is_string(), "a PUT without a resourceVersion");
                if expected == there {
                    (StatusCode::OK, self.write(sent))
                } else {
                    failure(409, "Conflict")
                }
            }
            _ => failure(403, "Forbidden"),
        }
    }
}

fn failure(code: u16, reason: &str) -> (StatusCode, Value) {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": reason});
    (StatusCode::from_u16(code).unwrap(), status)
}

/// Faults of a link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    /// Delay of requests. They arrive even if the client no longer waits.
    pub(super) request_delay: Duration,
    /// Delay of responses.
    pub(super) answer_delay: Duration,
    /// Whether requests are lost.
    pub(super) hang: bool,
    /// Whether requests get a 500.
    pub(super) refuse: bool,
}

impl Faults {
    pub(super) fn random(rng: &mut fastrand::Rng) -> Self {
        Self {
            request_delay: Duration::from_millis(rng.u64(..15_000)),
            answer_delay: Duration::from_millis(rng.u64(..15_000)),
            hang: rng.u64(..4) == 0,
            refuse: rng.u64(..6) == 0,
        }
    }
}

/// One candidate's link to the store.
#[derive(Clone)]
pub(super) struct Link {
    store: Arc<Store>,
    faults: Arc<Mutex<Faults>>,
    requests: Arc<Mutex<BTreeMap<String, u32>>>,
}

impl Link {
    pub(super) fn new(store: &Arc<Store>) -> Self {
        Self {
            store: Arc::clone(store),
            faults: Arc::default(),
            requests: Arc::default(),
        }
    }

    pub(super) fn set(&self, faults: Faults) {
        *self.faults.lock().unwrap() = faults;
    }

    pub(super) fn cut(&self) {
        self.set(Faults {
            hang: true,
            ..Faults::default()
        });
    }

    pub(super) fn requests(&self) -> Vec<String> {
        self.requests
            .lock()
            .unwrap()
            .iter()
            .map(|(method, count)| format!("{method} {count}"))
            .collect()
    }

    pub(super) fn client(&self) -> Client {
        let link = self.clone();
        Client::new(
            tower::service_fn(move |request| link.clone().call(request)),
            "default",
        )
    }

    async fn call(self, request: Request<Body>) -> Result<Response<Body>, tower::BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        *self
            .requests
            .lock()
            .unwrap()
            .entry(parts.method.to_string())
            .or_default() += 1;
        let faults = *self.faults.lock().unwrap();
        if faults.hang {
            return std::future::pending().await;
        }
        // A separate task, because a request that was sent cannot be cancelled.
        let arrival = tokio::spawn(async move {
            sleep(faults.request_delay).await;
            if faults.refuse {
                return failure(500, "InternalError");
            }
            self.store.state().answer(&parts.method, parts.uri.path(), &body)
        });
        let (status, answer) = arrival.await?;
        sleep(faults.answer_delay).await;
        Ok(Response::builder()
            .status(status)
            .body(Body::from(answer.to_string().into_bytes()))?)
    }
}
