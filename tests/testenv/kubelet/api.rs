//! Requests of simulated kubelets. Bodies are encoded once, and responses are read only as far as needed.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use http::{Method, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::{Client, Config};

/// Longer than an API server on a busy machine takes for a write.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) const MERGE: &str = "application/merge-patch+json";
pub(super) const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON: &str = "application/json";
/// Requests only the metadata of the written object.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

#[derive(Clone)]
pub(super) struct Requests {
    pub(super) client: Client,
}

pub(super) struct Request {
    method: Method,
    path: String,
    content: &'static str,
    body: Vec<u8>,
}

impl Request {
    pub(super) fn get(path: String) -> Self {
        Self {
            method: Method::GET,
            path,
            content: JSON,
            body: Vec::new(),
        }
    }

    pub(super) fn post(path: String, body: Vec<u8>) -> Self {
        Self {
            method: Method::POST,
            path,
            content: JSON,
            body,
        }
    }

    pub(super) fn patch(path: String, content: &'static str, body: Vec<u8>) -> Self {
        Self {
            method: Method::PATCH,
            path,
            content,
            body,
        }
    }

    pub(super) fn delete(path: String, body: Vec<u8>) -> Self {
        Self {
            method: Method::DELETE,
            path,
            content: JSON,
            body,
        }
    }
}

/// Result of a write.
#[derive(Debug)]
pub(super) enum Answer {
    Done(Vec<u8>),
    /// 404, or 409 if the request has a UID: the object is another one.
    Gone,
    /// 409 for a creation.
    Exists,
    /// A temporary error, or a broken connection.
    Later(String),
    /// A permanent error.
    Refused(String),
}

impl Requests {
    /// Call this on the runtime that is to hold the connections.
    pub(super) fn new(mut config: Config) -> Result<Self> {
        // The hub repeats requests, for all kubelets together.
        config.default_retry = false;
        Ok(Self {
            client: Client::try_from(config)?,
        })
    }

    pub(super) async fn write(&self, request: Request) -> Answer {
        let creates = request.method == Method::POST;
        let path = request.path.clone();
        match self.exchange(request).await {
            Err(error) => Answer::Later(format!("{path}: {error:#}")),
            Ok((status, answer)) => match status {
                status if status.is_success() => Answer::Done(answer),
                StatusCode::CONFLICT if creates => Answer::Exists,
                StatusCode::NOT_FOUND | StatusCode::CONFLICT => Answer::Gone,
                status if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() => {
                    Answer::Later(format!("{path}: {status}"))
                }
                _ => Answer::Refused(format!("{path}: {status}: {}", String::from_utf8_lossy(&answer))),
            },
        }
    }

    pub(super) async fn get(&self, path: &str) -> Result<Vec<u8>> {
        match self.exchange(Request::get(path.to_owned())).await? {
            (status, body) if status.is_success() => Ok(body),
            (status, body) => bail!("{path}: {status}: {}", String::from_utf8_lossy(&body)),
        }
    }

    async fn exchange(&self, request: Request) -> Result<(StatusCode, Vec<u8>)> {
        let accept = if request.method == Method::PATCH {
            METADATA
        } else {
            JSON
        };
        let request = http::Request::builder()
            .method(request.method)
            .uri(request.path)
            .header(http::header::CONTENT_TYPE, request.content)
            .header(http::header::ACCEPT, accept)
            .body(Body::from(request.body))?;
        let exchange = async {
            let response = self.client.send(request).await?;
            let status = response.status();
            anyhow::Ok((status, response.into_body().collect().await?.to_bytes().into()))
        };
        let answer = tokio::time::timeout(TIMEOUT, exchange).await;
        answer.unwrap_or_else(|_| bail!("no answer within {} s", TIMEOUT.as_secs()))
    }

    /// The answer to a GET, as it comes.
    pub(super) async fn stream(&self, path: &str) -> Result<Response<Body>> {
        let request = http::Request::get(path)
            .header(http::header::ACCEPT, JSON)
            .body(Body::empty())?;
        self.client.send(request).await.with_context(|| path.to_owned())
    }
}
