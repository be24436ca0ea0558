//! A proxy between a controller and the API server that injects faults into requests (`refit_testkit::fault`).
//!
//! The controller's kubeconfig points to the proxy, which terminates TLS with a CA of its own and forwards all requests
//! without a fault.

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

use refit_testkit::fault::Rules;
pub use refit_testkit::fault::{ApiRequest, Effect, Moment, Rule};

use super::pki::Authority;
use super::process::Process;
use super::serve::{Body, Server, full};
use super::{kubeconfig, names};

/// A running proxy. It stops when its last clone is dropped.
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
    rules: Mutex<Rules>,
    history: Mutex<Vec<ProxiedRequest>>,
    kill_target: Mutex<Weak<Process>>,
}

type HttpsConnector = hyper_rustls::HttpsConnector<hyper_util::client::legacy::connect::HttpConnector>;

/// A request and its fault.
#[derive(Clone, Debug)]
pub struct ProxiedRequest {
    pub api_request: ApiRequest,
    pub effect: Option<Effect>,
    /// The API server's status code; `None` without a response.
    pub code: Option<u16>,
}

impl FaultProxy {
    /// Starts a proxy to the cluster of a kubeconfig, with files in `dir`. The seed determines chance.
    pub async fn start(kubeconfig: &Path, dir: &Path, seed: u64) -> Result<Self> {
        let name = format!("faults-{}", names::random());
        let authority = Authority::new(&name)?;
        let authority_file = dir.join(format!("{name}-ca.crt"));
        std::fs::write(&authority_file, authority.pem())?;

        let mut config = kubeconfig::load(kubeconfig, &name).await?;
        // Forwarded requests have the controller's credentials.
        config.auth_info = kube::config::AuthInfo::default();
        let state = Arc::new(State {
            http: HttpClient::builder(TokioExecutor::new()).build(config.rustls_https_connector()?),
            upstream: config.cluster_url,
            rules: Mutex::new(Rules::new(seed)),
            history: Mutex::default(),
            kill_target: Mutex::default(),
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

    pub fn add(&self, rule: Rule) -> &Self {
        lock(&self.0.state.rules).add(rule);
        self
    }

    /// Removes all rules. Requests that hang continue to hang.
    pub fn clear_rules(&self) {
        lock(&self.0.state.rules).clear();
    }

    /// All requests in the order of their arrival.
    pub fn history(&self) -> Vec<ProxiedRequest> {
        lock(&self.0.state.history).clone()
    }

    /// Number of requests with a fault.
    pub fn faults(&self) -> usize {
        lock(&self.0.state.history)
            .iter()
            .filter(|passed| passed.effect.is_some())
            .count()
    }

    /// Number of the requests that [`Rule::write`] counts.
    pub fn writes(&self) -> usize {
        lock(&self.0.state.history)
            .iter()
            .filter(|passed| passed.api_request.is_write())
            .count()
    }

    /// Sets the process that [`Rule::kill`] kills. The start of a controller with this proxy does so.
    pub fn set_kill_target(&self, process: &Arc<Process>) {
        *lock(&self.0.state.kill_target) = Arc::downgrade(process);
    }

    /// Writes a copy of a kubeconfig that points to the proxy. It must use a token, because client certificates end at
    /// the proxy.
    pub fn kubeconfig_for(&self, original: &Path) -> PathBuf {
        let path = self
            .0
            .dir
            .join(format!("faults-{}.kubeconfig", self.0.server.port()));
        let write = || -> Result<()> {
            let text = std::fs::read_to_string(original)?;
            let file: serde_json::Value =
                serde_json::from_str(&text).context("not a kubeconfig of the test environment")?;
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
}

impl State {
    async fn handle(&self, request: Request<Incoming>) -> Result<Response<Body>> {
        let api_request = ApiRequest::of(request.method(), request.uri());
        let effect = lock(&self.rules).apply(&api_request);
        let index = {
            let mut history = lock(&self.history);
            history.push(ProxiedRequest {
                api_request: api_request.clone(),
                effect,
                code: None,
            });
            history.len() - 1
        };
        let answer = self.act(request, &api_request, effect, index).await;
        if let Ok(answer) = &answer {
            lock(&self.history)[index]
                .code
                .get_or_insert(answer.status().as_u16());
        }
        answer
    }

    async fn act(
        &self,
        request: Request<Incoming>,
        api_request: &ApiRequest,
        effect: Option<Effect>,
        index: usize,
    ) -> Result<Response<Body>> {
        let forward = || self.forward(request, index);
        match effect {
            None => forward().await,
            Some(Effect::Delay(Moment::Before, delay)) => {
                tokio::time::sleep(delay).await;
                forward().await
            }
            Some(Effect::Delay(Moment::After, delay)) => {
                let answer = forward().await;
                tokio::time::sleep(delay).await;
                answer
            }
            Some(Effect::Overtake) => {
                bail!("only the simulated API server has this fault")
            }
            Some(Effect::Answer(moment, code)) => {
                after(moment, forward()).await?;
                Ok(status(code, api_request))
            }
            Some(Effect::Hang(moment)) => {
                after(moment, forward()).await?;
                std::future::pending().await
            }
            Some(Effect::Disconnect(moment)) => {
                after(moment, forward()).await?;
                bail!("the connection was broken by a rule")
            }
            Some(Effect::Kill(moment)) => {
                after(moment, forward()).await?;
                if let Some(target) = lock(&self.kill_target).upgrade() {
                    target.kill();
                }
                bail!("the controller was killed by a rule")
            }
        }
    }

    async fn forward(&self, request: Request<Incoming>, index: usize) -> Result<Response<Body>> {
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
        // Headers of the connection to the API server do not apply to this one.
        for name in [CONNECTION, http::header::TRANSFER_ENCODING] {
            head.headers.remove(name);
        }
        let body = body.map_err(anyhow::Error::from).boxed_unsync();
        Ok(Response::from_parts(head, body))
    }
}

/// Forwards a request, and drops its response, if the fault comes after it.
async fn after(moment: Moment, forwarded: impl Future<Output = Result<Response<Body>>>) -> Result<()> {
    if moment == Moment::After {
        forwarded.await?.into_body().collect().await?;
    }
    Ok(())
}

/// Kubernetes' response with this code (`metav1.Status`).
fn status(code: u16, api_request: &ApiRequest) -> Response<Body> {
    let (reason, message) = match (code, api_request.verb.as_str()) {
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
        "details": { "name": api_request.name, "group": api_request.group, "kind": api_request.resource },
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
