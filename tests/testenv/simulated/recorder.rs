//! A connection to the simulated API server that records its requests, and can be cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Response, request};
use http_body::Body;
use http_body_util::{BodyExt as _, Full};
use refit_rehearse::server::{ResponseBody, Transport};
use refit_testkit::fault::ApiRequest;
use serde_json::Value;
use tower::{BoxError, Service};

use super::Simulated;
use crate::testenv::audit::Request;

/// Whether a process can still reach the API server.
#[derive(Default)]
pub struct Connection(AtomicBool);

impl Connection {
    /// Requests from now on are never sent, as those of a dead process.
    pub fn cut(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[derive(Clone)]
pub(super) struct Recorder {
    simulated: Simulated,
    transport: Transport,
    user: Arc<str>,
    user_agent: Arc<str>,
    connection: Arc<Connection>,
}

impl Recorder {
    pub(super) fn new(simulated: &Simulated, transport: Transport, user: &str, user_agent: &str) -> Self {
        Self {
            simulated: simulated.clone(),
            transport,
            user: user.into(),
            user_agent: user_agent.into(),
            connection: Arc::default(),
        }
    }

    pub(super) fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.connection)
    }

    fn request(&self, parts: &request::Parts, sent: &[u8]) -> Request {
        let now = self.simulated.now();
        let asked = ApiRequest::of(&parts.method, &parts.uri);
        Request {
            user: (*self.user).to_owned(),
            user_agent: (*self.user_agent).to_owned(),
            verb: asked.verb,
            group: asked.group,
            resource: asked.resource,
            namespace: asked.namespace,
            name: asked.name,
            code: 0,
            received: now,
            at: now,
            sent: serde_json::from_slice(sent).unwrap_or_default(),
            answered: Value::Null,
        }
    }
}

impl<B> Service<http::Request<B>> for Recorder
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let mut this = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let sent = body.collect().await.map_err(Into::into)?.to_bytes();
            if this.connection.0.load(Ordering::Relaxed) {
                return std::future::pending().await;
            }
            let mut record = this.request(&parts, &sent);
            let request = http::Request::from_parts(parts, Full::new(sent));
            let answer = this.transport.call(request).await?;
            record.code = answer.status().as_u16();
            record.at = this.simulated.now();
            // The audit policy of the test environment keeps no other answers.
            if let ("create", "jobs", ResponseBody::Whole(Some(bytes))) =
                (&*record.verb, &*record.resource, answer.body())
            {
                record.answered = serde_json::from_slice(bytes).unwrap_or_default();
            }
            this.simulated.record(record);
            Ok(answer)
        })
    }
}
