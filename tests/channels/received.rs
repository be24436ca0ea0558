//! The requests that a fake server received, and clients that send them.

use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderMap, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use refit_base::proxy::ProxyEnv;
use refit_base::version::Offer;
use refit_channel::{Access, ChannelClient, ChannelError, ChannelRequest, Credentials, Hosts};

use crate::testenv::serve::{Body, Server, full};

#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
}

impl ReceivedRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub(crate) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// A parameter of the query, decoded.
    pub(crate) fn query(&self, name: &str) -> Option<String> {
        let (_, query) = self.target.split_once('?')?;
        let mut pairs = url::form_urlencoded::parse(query.as_bytes());
        pairs
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.into_owned())
    }
}

/// All requests of a server, in their order.
#[derive(Clone, Default)]
pub(crate) struct RequestLog(Arc<Mutex<Vec<ReceivedRequest>>>);

impl RequestLog {
    pub(crate) fn note(&self, request: &Request<Incoming>) -> ReceivedRequest {
        let received = ReceivedRequest {
            method: request.method().clone(),
            target: request.uri().to_string(),
            headers: request.headers().clone(),
        };
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(received.clone());
        received
    }

    /// Takes all requests so far.
    pub(crate) fn take(&self) -> Vec<ReceivedRequest> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A server whose answers follow from a state.
pub(crate) struct Stub<S> {
    server: Server,
    state: Arc<Mutex<S>>,
    pub(crate) log: RequestLog,
}

impl<S: Send + 'static> Stub<S> {
    pub(crate) async fn start(state: S, answer: fn(&mut S, &ReceivedRequest) -> Response<Body>) -> Self {
        let (state, log) = (Arc::new(Mutex::new(state)), RequestLog::default());
        let handler = {
            let (state, log) = (state.clone(), log.clone());
            move |request| {
                let received = log.note(&request);
                let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                let response = answer(&mut state, &received);
                async move { Ok(response) }
            }
        };
        let server = Server::start(None, handler).await.unwrap();
        Self { server, state, log }
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut S)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn port(&self) -> u16 {
        self.server.port()
    }
}

pub(crate) const HTML: &str = "the answer is an HTML page, not a version";

pub(crate) fn client() -> ChannelClient {
    ChannelClient::new(
        &[],
        "cluster",
        "refit/test",
        ProxyEnv::default(),
        Hosts::default(),
    )
    .unwrap()
}

pub(crate) fn bearer(token: &str) -> Access {
    Access {
        credentials: Some(Credentials::Bearer(token.to_owned())),
        ..Access::default()
    }
}

pub(crate) fn basic(username: &str, password: &str) -> Access {
    let (username, password) = (username.to_owned(), password.to_owned());
    Access {
        credentials: Some(Credentials::Basic { username, password }),
        ..Access::default()
    }
}

pub(crate) async fn offer(client: &ChannelClient, url: &str, access: &Access) -> Result<Offer, ChannelError> {
    let latest_version = None;
    client
        .offer(ChannelRequest {
            url,
            latest_version,
            access,
        })
        .await
}

pub(crate) async fn offer_of(client: &ChannelClient, url: &str, access: &Access) -> Offer {
    let offer = offer(client, url, access).await;
    offer.unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// Why a channel offers nothing.
pub(crate) async fn refusal_of(client: &ChannelClient, url: &str, access: &Access) -> ChannelError {
    offer(client, url, access).await.expect_err(url)
}

/// The versions of an offer, sorted by their letters.
pub(crate) fn versions(offer: &Offer) -> Vec<&str> {
    let mut versions: Vec<_> = offer
        .releases
        .iter()
        .map(|release| release.version.as_str())
        .collect();
    versions.sort_unstable();
    versions
}

pub(crate) fn answer(
    code: u16,
    headers: &[(&str, String)],
    body: impl Into<hyper::body::Bytes>,
) -> Response<Body> {
    let mut response = Response::new(full(body));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    for (name, value) in headers {
        let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
        response.headers_mut().append(name, value.parse().unwrap());
    }
    response
}
