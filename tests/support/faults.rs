//! The fault layer: a proxy between a controller and the API server that does what its rules say.
//!
//! The controller is given a kubeconfig that names the proxy, and notices nothing else: TLS ends here, with a
//! CA of the proxy's own, and everything that no rule is for goes through as it is, watches as they come. It
//! answers in the API server's place, loses answers after the write took effect, holds watch events back, and
//! kills the controller at the n-th write.
//!
//! What happens depends on the rules, the seed and the order of the requests that a rule is for, and on
//! nothing else.

mod asked;
mod rule;
mod stream;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use anyhow::{Context as _, Result, bail};
use http::header::{CONNECTION, CONTENT_TYPE, HOST, RETRY_AFTER};
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;
use kube::client::ConfigExt as _;
use serde_json::json;
use tokio::sync::broadcast;

pub use asked::Asked;
pub use rule::{Effect, Moment, Rule};

use super::pki::Authority;
use super::process::Process;
use super::serve::{Body, Server, full};
use super::{kubeconfig, names};

/// A running proxy. Clones are the same proxy; it ends with the last one.
#[derive(Clone)]
pub struct FaultProxy(Arc<Inner>);

struct Inner {
    server: Server,
    dir: PathBuf,
    authority: PathBuf,
    state: Arc<State>,
}

struct State {
    upstream: Uri,
    http: HttpClient<HttpsConnector, Full<Bytes>>,
    rules: Mutex<Vec<rule::Armed>>,
    seed: u64,
    history: Mutex<Vec<Passed>>,
    victim: Mutex<Weak<Process>>,
    /// Orders to watches that are open.
    orders: broadcast::Sender<Order>,
}

type HttpsConnector = hyper_rustls::HttpsConnector<hyper_util::client::legacy::connect::HttpConnector>;

/// A request that came, and what was done to it.
#[derive(Clone, Debug)]
pub struct Passed {
    pub asked: Asked,
    /// `None` when no rule was for it.
    pub effect: Option<Effect>,
    /// Status of the answer, as the API server gave it; `None` when there was none, or none yet.
    pub code: Option<u16>,
}

/// What happens to all open watches of a resource.
#[derive(Clone, Debug)]
struct Order {
    resource: String,
    end: stream::End,
}

impl FaultProxy {
    /// A proxy to the cluster of that kubeconfig, with files in `dir`.
    pub async fn start(kubeconfig: &Path, dir: &Path, seed: u64) -> Result<Self> {
        let name = format!("faults-{}", names::random());
        let authority = Authority::new(&name)?;
        let authority_file = dir.join(format!("{name}-ca.crt"));
        std::fs::write(&authority_file, authority.pem())?;

        let mut config = kubeconfig::load(kubeconfig, &name).await?;
        // Who asks is whoever the controller says it is.
        config.auth_info = kube::config::AuthInfo::default();
        let state = Arc::new(State {
            http: HttpClient::builder(TokioExecutor::new()).build(config.rustls_https_connector()?),
            upstream: config.cluster_url,
            rules: Mutex::default(),
            seed,
            history: Mutex::default(),
            victim: Mutex::default(),
            orders: broadcast::channel(64).0,
        });
        let handler = {
            let state = state.clone();
            move |request| {
                let state = state.clone();
                async move { state.handle(request).await }
            }
        };
        let server = Server::start(Some(&authority.server("faults", &["127.0.0.1"])?), handler).await?;
        Ok(Self(Arc::new(Inner {
            server,
            dir: dir.to_owned(),
            authority: authority_file,
            state,
        })))
    }

    /// Adds a rule. Of the rules that are for a request, the first one that has not been used up acts.
    pub fn add(&self, rule: Rule) -> &Self {
        lock(&self.0.state.rules).push(rule.into());
        self
    }

    /// Removes all rules: everything goes through again. Requests that hang go on hanging.
    pub fn heal(&self) {
        lock(&self.0.state.rules).clear();
    }

    /// Breaks the open watches of a resource, as a restarted API server does.
    pub fn cut_watches(&self, resource: &str) {
        self.order(resource, stream::End::Cut);
    }

    /// Ends the open watches of a resource with the event `410 Expired`: the client must list again.
    pub fn expire_watches(&self, resource: &str) {
        self.order(resource, stream::End::Expired);
    }

    /// All that came so far, in the order in which it came.
    pub fn history(&self) -> Vec<Passed> {
        lock(&self.0.state.history).clone()
    }

    /// How often a rule acted.
    pub fn faults(&self) -> usize {
        lock(&self.0.state.history)
            .iter()
            .filter(|passed| passed.effect.is_some())
            .count()
    }

    /// How many writes came, Leases and Events aside: what [`Rule::write`] counts.
    pub fn writes(&self) -> usize {
        lock(&self.0.state.history)
            .iter()
            .filter(|passed| passed.asked.is_write())
            .count()
    }

    /// Which process a rule with [`Rule::kill`] kills. Starting a controller through the proxy says so.
    pub fn may_kill(&self, process: &Arc<Process>) {
        *lock(&self.0.state.victim) = Arc::downgrade(process);
    }

    /// Writes a kubeconfig that differs from the given one in that it leads here. Only a token gets through
    /// the proxy, a client certificate does not.
    pub fn kubeconfig_for(&self, original: &Path) -> PathBuf {
        let path = self
            .0
            .dir
            .join(format!("faults-{}.kubeconfig", self.0.server.port()));
        let write = || -> Result<()> {
            let text = std::fs::read_to_string(original)?;
            let file: serde_json::Value =
                serde_json::from_str(&text).context("not a kubeconfig of the test bed")?;
            let (user, context) = (&file["users"][0]["user"], &file["contexts"][0]["context"]);
            let cluster = kubeconfig::cluster(
                &format!("https://127.0.0.1:{}", self.0.server.port()),
                &self.0.authority.display().to_string(),
            );
            kubeconfig::write(
                &path,
                &cluster,
                user,
                context["namespace"].as_str().unwrap_or("default"),
            )
        };
        write().unwrap_or_else(|error| panic!("{}: {error:#}", original.display()));
        path
    }

    fn order(&self, resource: &str, end: stream::End) {
        // Nobody listens when no watch is open.
        let _ = self.0.state.orders.send(Order {
            resource: resource.to_owned(),
            end,
        });
    }
}

impl State {
    async fn handle(&self, request: Request<Incoming>) -> Result<Response<Body>> {
        let asked = Asked::of(request.method(), request.uri());
        let effect = self.effect_on(&asked);
        let index = {
            let mut history = lock(&self.history);
            history.push(Passed {
                asked: asked.clone(),
                effect: effect.clone(),
                code: None,
            });
            history.len() - 1
        };
        let answer = self.act(request, &asked, effect, index).await;
        if let Ok(answer) = &answer {
            lock(&self.history)[index]
                .code
                .get_or_insert(answer.status().as_u16());
        }
        answer
    }

    /// The first rule that acts on this request. All that it is for are counted, whether it acts or not.
    fn effect_on(&self, asked: &Asked) -> Option<Effect> {
        let mut rules = lock(&self.rules);
        let mut effect = None;
        for (index, rule) in rules.iter_mut().enumerate() {
            if effect.is_none() {
                effect = rule.meets(asked, self.seed, index);
            }
        }
        effect
    }

    async fn act(
        &self,
        request: Request<Incoming>,
        asked: &Asked,
        effect: Option<Effect>,
        index: usize,
    ) -> Result<Response<Body>> {
        match effect {
            None => self.forward(request, asked, None, index).await,
            Some(Effect::Answer(code)) => Ok(status(code, asked)),
            Some(Effect::Hang) => std::future::pending().await,
            Some(Effect::Refuse) => bail!("connection broken by a rule"),
            Some(Effect::LoseAnswer) => {
                self.forward(request, asked, None, index)
                    .await?
                    .into_body()
                    .collect()
                    .await?;
                bail!("answer lost by a rule")
            }
            Some(Effect::Late(delay)) => {
                let answer = self.forward(request, asked, None, index).await;
                tokio::time::sleep(delay).await;
                answer
            }
            Some(Effect::LateEvents(delay)) => self.forward(request, asked, Some(delay), index).await,
            Some(Effect::Kill(Moment::Before)) => {
                self.kill();
                bail!("the controller was killed before this request")
            }
            Some(Effect::Kill(Moment::After)) => {
                self.forward(request, asked, None, index)
                    .await?
                    .into_body()
                    .collect()
                    .await?;
                self.kill();
                bail!("the controller was killed after this request")
            }
        }
    }

    async fn forward(
        &self,
        request: Request<Incoming>,
        asked: &Asked,
        late: Option<std::time::Duration>,
        index: usize,
    ) -> Result<Response<Body>> {
        // Before the request leaves: an order that comes while the watch is being opened is for it, too.
        let orders = self.orders.subscribe();
        let (mut head, body) = request.into_parts();
        let mut target = self.upstream.clone().into_parts();
        target.path_and_query = Some(
            head.uri
                .path_and_query()
                .cloned()
                .unwrap_or(PathAndQuery::from_static("/")),
        );
        head.uri = Uri::from_parts(target)?;
        head.version = http::Version::HTTP_11;
        head.headers.remove(HOST);
        head.headers.remove(CONNECTION);
        let body = Full::new(body.collect().await?.to_bytes());
        let answer = self.http.request(Request::from_parts(head, body)).await?;

        let (mut head, body) = answer.into_parts();
        lock(&self.history)[index].code = Some(head.status.as_u16());
        head.version = http::Version::default();
        // What is said of the connection to the API server is not true of this one.
        for name in [CONNECTION, http::header::TRANSFER_ENCODING] {
            head.headers.remove(name);
        }
        let body = if asked.verb == "watch" && head.status.is_success() {
            stream::watch(body, late.unwrap_or_default(), asked.resource.clone(), orders)
        } else {
            body.map_err(anyhow::Error::from).boxed_unsync()
        };
        Ok(Response::from_parts(head, body))
    }

    fn kill(&self) {
        if let Some(victim) = lock(&self.victim).upgrade() {
            victim.kill();
        }
    }
}

/// What Kubernetes answers with that code (`metav1.Status`).
fn status(code: u16, asked: &Asked) -> Response<Body> {
    let (reason, message) = match (code, asked.verb.as_str()) {
        (409, "create") => ("AlreadyExists", "the object already exists"),
        (409, _) => (
            "Conflict",
            "the object has been modified; please apply your changes to the latest version",
        ),
        (403, _) => ("Forbidden", "forbidden by a rule of the test"),
        (404, _) => ("NotFound", "the object was not found"),
        (410, _) => ("Expired", "too old resource version"),
        (429, _) => ("TooManyRequests", "too many requests, please try again later"),
        (503, _) => (
            "ServiceUnavailable",
            "the server is currently unable to handle the request",
        ),
        (504, _) => (
            "Timeout",
            "the server was unable to return a response in the time allotted",
        ),
        _ => (
            "InternalError",
            "an error on the server has prevented the request from succeeding",
        ),
    };
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
        "details": { "name": asked.name, "group": asked.group, "kind": asked.resource },
    });
    let mut answer = Response::new(full(body.to_string()));
    *answer.status_mut() = StatusCode::from_u16(code).expect("an HTTP status");
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    if code == 429 {
        answer
            .headers_mut()
            .insert(RETRY_AFTER, http::HeaderValue::from_static("1"));
    }
    answer
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
