//! What a fake server was asked, and clients to ask it with.

use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderMap, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use refit::channel::{Access, Ask, ChannelClient, ChannelError, Credentials, Offer};
use refit::proxy::ProxyEnv;

use crate::support::serve::{Body, full};

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
}

impl Asked {
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
pub(crate) struct Log(Arc<Mutex<Vec<Asked>>>);

impl Log {
    pub(crate) fn note(&self, request: &Request<Incoming>) -> Asked {
        let asked = Asked {
            method: request.method().clone(),
            target: request.uri().to_string(),
            headers: request.headers().clone(),
        };
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(asked.clone());
        asked
    }

    /// All so far, which are forgotten.
    pub(crate) fn take(&self) -> Vec<Asked> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

pub(crate) fn client() -> ChannelClient {
    ChannelClient::new(&[], "cluster", "refit/test", ProxyEnv::default()).unwrap()
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
        .offer(Ask {
            url,
            latest_version,
            access,
        })
        .await
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
