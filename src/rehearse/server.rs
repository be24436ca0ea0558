//! The API server as a transport for `kube::Client`: reads a request off its path, finds who answers it, and writes down both.
//! What it does not know it refuses and remembers: a rehearsal with such a hole has proved nothing.

pub(super) mod evict;
mod read;
mod route;
#[cfg(test)]
mod tests;
mod watching;
mod writing;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame};
use http_body_util::BodyExt as _;
use tower::{BoxError, Service};

use super::cluster::Cluster;
use super::fault::Fault;
use super::resources::{Kind, Verb};
use super::state::State;
use crate::rehearse::json::{Value, json};
use route::Asked;
use watching::Watching;

/// A connection to the API server.
#[derive(Clone)]
pub struct Transport {
    cluster: Cluster,
    who: Arc<str>,
}

impl Transport {
    /// A connection of somebody, by whose name the trace calls it.
    pub fn new(cluster: &Cluster, who: &str) -> Self {
        Self {
            cluster: cluster.acting_as(who),
            who: who.into(),
        }
    }

    /// What it leads to.
    #[cfg(test)]
    pub(super) fn cluster(&self) -> &Cluster {
        &self.cluster
    }
}

/// The body of an answer.
pub enum Answer {
    /// All of it, until it is taken.
    Whole(Option<Bytes>),
    /// A watch.
    Stream(Box<Watching>),
}

impl HttpBody for Answer {
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
    type Response = Response<Answer>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Answer>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Self { cluster, who } = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map_err(Into::into)?.to_bytes();
            let asked = format!("{} {}", parts.method, parts.uri);
            let (code, answer) = cluster.with(|state| {
                let reply = Asked::read(&parts).and_then(|asked| state.answer(&asked, &body));
                let (code, body) = match reply {
                    Ok(Reply::Watch(kind, lines)) => (200, Err((kind, lines))),
                    Ok(Reply::Whole(code, bytes)) => (code, Ok(bytes)),
                    Err(fault) => {
                        if fault.code == 501 {
                            state.holes.push(asked.clone());
                        }
                        (fault.code, Ok(fault.status().to_bytes()))
                    }
                };
                let now = state.now();
                if let Some(trace) = &mut state.trace {
                    trace.push(format!("{now:.3} {who} {asked} {code}"));
                }
                (code, body)
            });
            let answer = match answer {
                Ok(bytes) => Answer::Whole(Some(bytes)),
                Err((kind, lines)) => Answer::Stream(Box::new(Watching::new(cluster, kind, lines))),
            };
            Ok(Response::builder()
                .status(code)
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(answer)?)
        })
    }
}

/// What becomes of a request that is not refused.
enum Reply {
    Whole(u16, Bytes),
    Watch(Kind, watching::Lines),
}

impl Reply {
    fn json(code: u16, value: &Value) -> Self {
        Self::Whole(code, value.to_bytes())
    }
}

impl State {
    fn answer(&mut self, asked: &Asked, body: &Bytes) -> Result<Reply, Fault> {
        let Asked::Object(asked) = asked else {
            return review(body);
        };
        match asked.verb {
            Verb::Get => self.answer_get(asked),
            Verb::List => self.answer_list(asked),
            Verb::Watch => self.answer_watch(asked),
            Verb::Create => self.answer_create(asked, body),
            Verb::Replace => self.answer_replace(asked, body),
            Verb::Patch | Verb::PatchStatus => self.answer_patch(asked, body),
            Verb::Delete => self.answer_delete(asked, body),
            Verb::Evict => self.answer_eviction(asked, body),
        }
    }
}

/// Everybody may do everything here.
fn review(body: &Bytes) -> Result<Reply, Fault> {
    let mut review = parse(body)?;
    review["status"] = json!({ "allowed": true });
    Ok(Reply::json(201, &review))
}

/// A body as JSON.
fn parse(body: &Bytes) -> Result<Value, Fault> {
    serde_json::from_slice(body)
        .map_err(|error| Fault::bad_request(format!("the object provided is unrecognized: {error}")))
}
