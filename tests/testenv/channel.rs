//! A release channel that responds as a test says, and records its requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};

use super::pki::Authority;
use super::serve::{Body, Server, full};

/// A channel on loopback. Dropping it stops it.
pub struct ChannelServer {
    server: Server,
    scheme: &'static str,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    answers: Mutex<HashMap<String, Answer>>,
    asked: Mutex<Vec<ReceivedRequest>>,
}

/// The response of a path; 404 by default.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A code and a Location.
    Redirect(u16, String),
    /// A code, a content type and a body.
    Plain(u16, &'static str, String),
    /// No response.
    Hang,
    /// The connection breaks.
    Break,
    /// A code, and headers of any number; the body is an empty list.
    Headers(u16, Vec<(&'static str, String)>),
    /// A body of spaces without an end, of one byte a second.
    Drip,
}

#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    pub at: Instant,
    pub path: String,
    pub headers: HeaderMap,
}

impl ChannelServer {
    pub async fn start() -> Self {
        Self::serve(None)
            .await
            .unwrap_or_else(|error| panic!("cannot start a channel server: {error:#}"))
    }

    /// Over HTTPS, with a certificate of this authority.
    pub async fn start_tls(authority: &Authority) -> Self {
        Self::serve(Some(authority))
            .await
            .unwrap_or_else(|error| panic!("cannot start a channel server: {error:#}"))
    }

    async fn serve(authority: Option<&Authority>) -> Result<Self> {
        let state = Arc::<State>::default();
        let handler = {
            let state = state.clone();
            move |request: Request<Incoming>| {
                let state = state.clone();
                async move { state.answer(&request).await }
            }
        };
        let identity = authority
            .map(|authority| authority.server("channel", &["127.0.0.1", "localhost"]))
            .transpose()?;
        let scheme = if identity.is_some() { "https" } else { "http" };
        Ok(Self {
            server: Server::start(identity.as_ref(), handler).await?,
            scheme,
            state,
        })
    }

    /// The URL of a path, which begins with `/`.
    pub fn url(&self, path: &str) -> String {
        format!("{}://127.0.0.1:{}{path}", self.scheme, self.server.port())
    }

    /// Sets the response of a path, without its query.
    pub fn answers(&self, path: &str, answer: Answer) -> &Self {
        lock(&self.state.answers).insert(path.to_owned(), answer);
        self
    }

    /// 302 with a Location whose last segment is the version, like `update.k3s.io`.
    pub fn redirects(&self, path: &str, location: &str) -> &Self {
        self.answers(path, Answer::Redirect(302, location.to_owned()))
    }

    /// A code without a body.
    pub fn fails(&self, path: &str, code: u16) -> &Self {
        self.answers(path, Answer::Plain(code, "text/plain", String::new()))
    }

    /// 200 and an HTML page, like a captive portal.
    pub fn is_a_page(&self, path: &str) -> &Self {
        let page = "<!DOCTYPE html><html><body>Please log in</body></html>".to_owned();
        self.answers(path, Answer::Plain(200, "text/html; charset=utf-8", page))
    }

    /// The requests of a path, in order.
    pub fn asked(&self, path: &str) -> Vec<ReceivedRequest> {
        lock(&self.state.asked)
            .iter()
            .filter(|asked| asked.path == path)
            .cloned()
            .collect()
    }
}

impl State {
    async fn answer(&self, request: &Request<Incoming>) -> Result<Response<Body>> {
        let path = request.uri().path().to_owned();
        lock(&self.asked).push(ReceivedRequest {
            at: Instant::now(),
            path: path.clone(),
            headers: request.headers().clone(),
        });
        let answer = lock(&self.answers).get(&path).cloned();
        let (code, header, body) = match answer {
            None => (404, None, String::new()),
            Some(Answer::Redirect(code, location)) => (
                code,
                Some((LOCATION, HeaderValue::from_str(&location)?)),
                String::new(),
            ),
            Some(Answer::Plain(code, kind, body)) => {
                (code, Some((CONTENT_TYPE, HeaderValue::from_static(kind))), body)
            }
            Some(Answer::Hang) => std::future::pending().await,
            Some(Answer::Break) => anyhow::bail!("broken by the test"),
            Some(Answer::Headers(code, headers)) => {
                let mut response = Response::new(full("[]"));
                *response.status_mut() = StatusCode::from_u16(code)?;
                for (name, value) in headers {
                    response
                        .headers_mut()
                        .append(name, HeaderValue::from_str(&value)?);
                }
                return Ok(response);
            }
            Some(Answer::Drip) => {
                let spaces = futures::stream::unfold((), |()| async {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    Some((Ok(Frame::data(Bytes::from_static(b" "))), ()))
                });
                return Ok(Response::new(StreamBody::new(spaces).boxed_unsync()));
            }
        };
        let mut response = Response::new(full(body));
        *response.status_mut() = StatusCode::from_u16(code)?;
        response.headers_mut().extend(header);
        Ok(response)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
