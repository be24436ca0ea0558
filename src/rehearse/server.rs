//! The API server as a transport of `kube::Client`: parses requests, dispatches them, and records both. Unsupported
//! requests are refused and remembered, because they invalidate a rehearsal.

pub(super) mod evict;
mod read;
mod route;
#[cfg(test)]
mod tests;
mod watch_body;
mod write;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame};
use http_body_util::BodyExt as _;
use kube::Client;
use tower::{BoxError, Service};

use super::cluster::Cluster;
use super::resources::{Kind, Verb};
use super::state::State;
use super::status_error::StatusError;
use crate::json::{Value, json};
use refit_base::version::Version;
use refit_cluster::kube::client::{ApiServer, RequestCounts, over_transport};
use route::ApiRequest;
use watch_body::WatchBody;

#[derive(Clone)]
pub struct Transport {
    cluster: Cluster,
    who: Arc<str>,
    any_verb: bool,
}

impl Transport {
    /// A connection; `who` is its name in the trace.
    pub fn new(cluster: &Cluster, who: &str) -> Self {
        Self {
            cluster: cluster.acting_as(who),
            who: who.into(),
            any_verb: false,
        }
    }

    /// A connection of a user, who also creates, edits and deletes what refit only reads. The table of verbs does not
    /// apply, which catches new kinds of requests of refit.
    #[must_use]
    pub fn of_user(cluster: &Cluster, who: &str) -> Self {
        Self {
            any_verb: true,
            ..Self::new(cluster, who)
        }
    }

    /// The cluster that it serves.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }
}

impl Cluster {
    /// Replaces the client factory, for example to inject faults. Only the first call has an effect.
    pub fn set_client_factory(&self, client_factory: impl Fn(Transport) -> Client + Send + Sync + 'static) {
        let factory = move |cluster: &Self, who: &str| client_factory(Transport::new(cluster, who));
        let _ = self.client_factory().set(Box::new(factory));
    }

    pub fn server(&self) -> ApiServer {
        ApiServer::in_process(Transport::new(self, "controller"))
    }

    /// A client for a container on a node; it needs no leadership to write. `who` is its name in the trace.
    pub fn client(&self, who: &str) -> Client {
        match self.client_factory().get() {
            Some(client_factory) => client_factory(self, who),
            None => over_transport(Transport::new(self, who), None, Arc::<RequestCounts>::default()),
        }
    }
}

pub enum ResponseBody {
    /// A complete body, until it is taken.
    Whole(Option<Bytes>),
    Stream(Box<WatchBody>),
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(watching) => watching
                .poll_line(cx)
                .map(|line| line.map(|line| Ok(Frame::data(line)))),
        }
    }
}

impl<B> Service<Request<B>> for Transport
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<ResponseBody>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Self {
            cluster,
            who,
            any_verb,
        } = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map_err(Into::into)?.to_bytes();
            let line = || format!("{} {}", parts.method, parts.uri);
            let (code, answer) = cluster.with(|state| {
                let reply =
                    ApiRequest::read(&parts, any_verb).and_then(|request| state.serve(&request, &body));
                let (code, body) = match reply {
                    Ok(Reply::Watch(kind, lines)) => (200, Err((kind, lines))),
                    Ok(Reply::Whole(code, bytes)) => (code, Ok(bytes)),
                    Err(status_error) => {
                        if status_error.code == 501 {
                            state.unsupported_requests.push(line());
                        }
                        (status_error.code, Ok(status_error.status().to_bytes()))
                    }
                };
                let now = state.now();
                if let Some(trace) = &mut state.trace {
                    trace.push(format!("{now:.3} {who} {} {code}", line()));
                }
                (code, body)
            });
            let answer = match answer {
                Ok(bytes) => ResponseBody::Whole(Some(bytes)),
                Err((kind, lines)) => ResponseBody::Stream(Box::new(WatchBody::new(cluster, kind, lines))),
            };
            Ok(Response::builder()
                .status(code)
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(answer)?)
        })
    }
}

/// Bytes of a request that an API server reads (`MaxRequestBodyBytes` of k8s.io/apiserver).
const MAX_REQUEST_BYTES: usize = 3 * 1_024 * 1_024;

/// The reply to an accepted request.
enum Reply {
    Whole(u16, Bytes),
    Watch(Kind, watch_body::WatchEvents),
}

impl Reply {
    fn json(code: u16, value: &Value) -> Self {
        Self::Whole(code, value.to_bytes())
    }
}

impl State {
    fn serve(&mut self, request: &ApiRequest, body: &Bytes) -> Result<Reply, StatusError> {
        let request = match request {
            ApiRequest::Object(request) => request,
            ApiRequest::Review => return review(body),
            ApiRequest::Version => return Ok(self.serve_version()),
        };
        if body.len() > MAX_REQUEST_BYTES {
            return Err(StatusError::entity_too_large(MAX_REQUEST_BYTES));
        }
        match request.verb {
            Verb::Get => self.serve_get(request),
            Verb::List => self.serve_list(request),
            Verb::Watch => self.serve_watch(request),
            Verb::Create => self.serve_create(request, body),
            Verb::Replace => self.serve_replace(request, body),
            Verb::Patch | Verb::PatchStatus => self.serve_patch(request, body),
            Verb::Delete => self.serve_delete(request, body),
            Verb::Evict => self.serve_eviction(request, body),
        }
    }
}

impl State {
    /// API servers run on the control-plane nodes, and any of them may answer, so this is the oldest one's version. Without such
    /// nodes it is empty.
    fn serve_version(&self) -> Reply {
        let nodes = self.store.control_plane();
        let versions = nodes
            .filter_map(|node| node.value["status"]["nodeInfo"]["kubeletVersion"].as_str())
            .filter_map(|version| version.parse::<Version>().ok());
        let oldest = versions.reduce(|oldest, other| if other < oldest { other } else { oldest });
        let text = oldest.as_ref().map_or("", Version::text);
        Reply::json(200, &json!({ "gitVersion": text }))
    }
}

/// A `SelfSubjectAccessReview` that allows everything but to read Deployments and `ReplicationController`s, which are not
/// simulated.
fn review(body: &Bytes) -> Result<Reply, StatusError> {
    let mut review = parse(body)?;
    let resource = review["spec"]["resourceAttributes"]["resource"].as_str();
    let allowed = !matches!(resource, Some("deployments" | "replicationcontrollers"));
    review["status"] = json!({ "allowed": allowed });
    Ok(Reply::json(201, &review))
}

fn parse(body: &Bytes) -> Result<Value, StatusError> {
    serde_json::from_slice(body)
        .map_err(|error| StatusError::bad_request(format!("the object provided is unrecognized: {error}")))
}
