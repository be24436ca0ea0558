//! A receiver of notifications, and a stub of Alertmanager's API of silences (version 2), on loopback. They answer as a test
//! says, and keep what they got.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use http::header::{LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::{Value, json};

use crate::testenv::serve::{Body, Server, full};

/// One answer. Afterwards, or without any, the answer is 204.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Code(u16),
    /// 429, and how many seconds to wait.
    Busy(u64),
    Redirect(String),
    /// None at all.
    Hang,
    /// The request takes effect, and its answer is lost.
    Lost,
}

#[derive(Clone, Debug)]
pub(super) struct Received {
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
    /// Whether the answer was a success.
    pub(super) accepted: bool,
}

impl Received {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

#[derive(Default)]
struct State {
    received: Mutex<Vec<Received>>,
    answers: Mutex<BTreeMap<String, VecDeque<Answer>>>,
    silences: Mutex<Vec<Value>>,
}

/// Dropping it stops it.
pub(super) struct Receiver {
    server: Server,
    state: Arc<State>,
}

impl Receiver {
    pub(super) async fn start() -> Self {
        let state = Arc::<State>::default();
        let known = Arc::clone(&state);
        let handler = move |request: Request<Incoming>| {
            let state = Arc::clone(&known);
            async move { state.answer(request).await }
        };
        Self {
            server: Server::start(None, handler).await.unwrap(),
            state,
        }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.server.port())
    }

    /// The next answers to requests for a path.
    pub(super) fn answers(&self, path: &str, answers: impl IntoIterator<Item = Answer>) {
        lock(&self.state.answers)
            .entry(path.to_owned())
            .or_default()
            .extend(answers);
    }

    /// Accepts what comes to a path from now on.
    pub(super) fn recovers(&self, path: &str) {
        lock(&self.state.answers).remove(path);
    }

    /// All that it got at a path.
    pub(super) fn got(&self, path: &str) -> Vec<Received> {
        let received = lock(&self.state.received);
        received.iter().filter(|it| it.path == path).cloned().collect()
    }

    /// What it accepted at a path.
    pub(super) fn accepted(&self, path: &str) -> Vec<Received> {
        let mut got = self.got(path);
        got.retain(|it| it.accepted);
        got
    }

    /// The silences that exist, with their states.
    pub(super) fn silences(&self) -> Vec<Value> {
        lock(&self.state.silences).clone()
    }

    pub(super) fn add_silence(&self, silence: Value) {
        lock(&self.state.silences).push(silence);
    }
}

impl State {
    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path().to_owned();
        let body = String::from_utf8(body.collect().await?.to_bytes().to_vec())?;
        let next = lock(&self.answers).get_mut(&path).and_then(VecDeque::pop_front);
        let accepted = next.is_none() || matches!(next, Some(Answer::Lost));
        lock(&self.received).push(Received {
            path: path.clone(),
            headers: parts.headers,
            body: body.clone(),
            accepted,
        });
        let mut response = Response::new(full(""));
        *response.status_mut() = StatusCode::NO_CONTENT;
        match next {
            None => {
                if let Some((code, body)) = self.alertmanager(&parts.method, &path, &body) {
                    *response.status_mut() = StatusCode::from_u16(code)?;
                    *response.body_mut() = full(body.to_string());
                }
            }
            Some(Answer::Lost) => {
                self.alertmanager(&parts.method, &path, &body);
                anyhow::bail!("the answer is lost");
            }
            Some(Answer::Code(code)) => *response.status_mut() = StatusCode::from_u16(code)?,
            Some(Answer::Busy(seconds)) => {
                *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
                response.headers_mut().insert(RETRY_AFTER, seconds.into());
            }
            Some(Answer::Redirect(to)) => {
                *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
                response
                    .headers_mut()
                    .insert(LOCATION, HeaderValue::from_str(&to)?);
            }
            Some(Answer::Hang) => std::future::pending().await,
        }
        Ok(response)
    }

    fn alertmanager(&self, method: &Method, path: &str, body: &str) -> Option<(u16, Value)> {
        let path = path.strip_prefix("/am/api/v2/")?;
        let mut silences = lock(&self.silences);
        if path == "silences" && *method == Method::GET {
            return Some((200, Value::from(silences.clone())));
        }
        if path == "silences" && *method == Method::POST {
            let id = format!("silence-{}", silences.len());
            let mut silence: Value = serde_json::from_str(body).unwrap();
            silence["id"] = id.clone().into();
            silence["status"] = json!({ "state": "active" });
            silences.push(silence);
            return Some((200, json!({ "silenceID": id })));
        }
        let id = path
            .strip_prefix("silence/")
            .filter(|_| *method == Method::DELETE)?;
        match silences.iter_mut().find(|silence| silence["id"] == id) {
            None => Some((404, json!("no such silence"))),
            Some(silence) => {
                silence["status"]["state"] = "expired".into();
                Some((200, Value::Null))
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
