//! The innermost layer of a client, which all requests pass. It refuses writes without leadership, enforces timeouts,
//! and counts requests.
//!
//! A check before the request is not enough, because the transport may then spend seconds on a new connection. So the
//! body of a write checks the leadership again when the transport reads it, after the connection is established. All
//! writes of Kubernetes have a body.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use kube::client::Body;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};
use tower::{BoxError, Service};

use super::requests::{Call, Outcome, RequestCounts, is_watch};
use crate::kube::causes::find;
use crate::kube::leadership::Leadership;

/// A write was refused because this process does not lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this process does not lead, so it does not write")]
pub struct NotLeader;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the API server did not answer within {0:?}")]
pub struct NoAnswer(pub Duration);

/// The rules of a client.
#[derive(Clone)]
pub(super) struct Rules {
    /// Who may write; `None` for the client that may always write.
    pub(super) leadership: Option<Leadership>,
    /// Time limit of a request until the end of its response; of a watch until the start of its response.
    pub(super) timeout: Duration,
    pub(super) requests: Arc<RequestCounts>,
}

/// The layer around a transport.
#[derive(Clone)]
pub(super) struct Guard<S> {
    inner: S,
    rules: Rules,
}

impl<S> Guard<S> {
    pub(super) fn new(inner: S, rules: Rules) -> Self {
        Self { inner, rules }
    }
}

impl<S, B> Service<Request<Body>> for Guard<S>
where
    S: Service<Request<GuardedBody>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: Send + 'static,
{
    type Response = Response<TimedBody<B>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Rules {
            leadership,
            timeout,
            requests,
        } = self.rules.clone();
        let call = Call::of(request.method(), request.uri());
        let leadership = leadership.filter(|_| is_write(request.method()));
        if leadership
            .as_ref()
            .is_some_and(|leadership| !leadership.is_leader())
        {
            // Refused before it is sent: a write that the API server receives cannot be recalled.
            requests.add(call, Outcome::NotLeader);
            return Box::pin(std::future::ready(Err(NotLeader.into())));
        }
        let deadline = Instant::now() + timeout;
        // The body of a watch lasts as long as the watch; `watch.rs` limits it.
        let endless = is_watch(request.uri());
        let answer = self
            .inner
            .call(request.map(|body| GuardedBody { body, leadership }));
        Box::pin(async move {
            let answer = match timeout_at(deadline, answer).await {
                Ok(answer) => answer.map_err(Into::into),
                Err(_) => Err(NoAnswer(timeout).into()),
            };
            requests.add(call, outcome_of(&answer));
            let limit = (!endless).then(|| (Box::pin(sleep_until(deadline)), timeout));
            Ok(answer?.map(|body| TimedBody {
                body: Box::pin(body),
                limit,
            }))
        })
    }
}

fn is_write(method: &Method) -> bool {
    // The methods that change nothing are listed, so that any other method needs the leadership.
    !(method == Method::GET || method == Method::HEAD || method == Method::OPTIONS)
}

fn outcome_of<B>(answer: &Result<Response<B>, BoxError>) -> Outcome {
    match answer {
        Ok(response) => Outcome::Answered(response.status().as_u16()),
        Err(error) if find::<NotLeader>(error.as_ref()).is_some() => Outcome::NotLeader,
        Err(error) if find::<NoAnswer>(error.as_ref()).is_some() => Outcome::TimedOut,
        Err(_) => Outcome::Failed,
    }
}

/// The body of a request, which the transport can read only while this process leads.
pub struct GuardedBody {
    body: Body,
    leadership: Option<Leadership>,
}

impl HttpBody for GuardedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self
            .leadership
            .as_ref()
            .is_some_and(|leadership| !leadership.is_leader())
        {
            return Poll::Ready(Some(Err(NotLeader.into())));
        }
        Pin::new(&mut self.body).poll_frame(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of a response, which fails at the time limit.
pub(super) struct TimedBody<B> {
    body: Pin<Box<B>>,
    limit: Option<(Pin<Box<Sleep>>, Duration)>,
}

impl<B> HttpBody for TimedBody<B>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // The body first: data that has arrived in time does not fail because it is read late.
        if let Poll::Ready(frame) = self.body.as_mut().poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        match &mut self.limit {
            Some((sleep, timeout)) => {
                let timeout = *timeout;
                sleep
                    .as_mut()
                    .poll(cx)
                    .map(|()| Some(Err(NoAnswer(timeout).into())))
            }
            None => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
