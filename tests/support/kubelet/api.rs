//! Requests of the fake kubelets: bodies are encoded once, and answers are not read further than needed.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::{Client, Config};

/// Longer than an API server on a busy machine takes for a write.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) const MERGE: &str = "application/merge-patch+json";
pub(super) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(super) const JSON: &str = "application/json";
/// Of the object that a write answers with, the metadata is enough.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

#[derive(Clone)]
pub(super) struct Requests {
    pub(super) client: Client,
}

/// What came of a write.
#[derive(Debug)]
pub(super) enum Answer {
    Done(Vec<u8>),
    /// 404, or 409 where the request named a UID: the object is not the one that was meant.
    Gone,
    /// 409 on creation: there is one already.
    Exists,
    /// The server cannot now, or the connection broke; the same may be asked again.
    Later(String),
    /// The server will never do that.
    Refused(String),
}

impl Requests {
    /// Call this on the runtime that is to hold the connections.
    pub(super) fn new(mut config: Config) -> Result<Self> {
        // Many kubelets that ask again by themselves are a storm: the hub knows when to.
        config.default_retry = false;
        Ok(Self {
            client: Client::try_from(config)?,
        })
    }

    pub(super) async fn write(&self, method: Method, path: &str, content: &str, body: Vec<u8>) -> Answer {
        let creates = method == Method::POST;
        match tokio::time::timeout(TIMEOUT, self.exchange(method, path, content, body)).await {
            Err(_) => Answer::Later(format!("{path}: no answer within {} s", TIMEOUT.as_secs())),
            Ok(Err(error)) => Answer::Later(format!("{path}: {error:#}")),
            Ok(Ok((status, answer))) => match status {
                status if status.is_success() => Answer::Done(answer),
                StatusCode::NOT_FOUND => Answer::Gone,
                StatusCode::CONFLICT if creates => Answer::Exists,
                StatusCode::CONFLICT => Answer::Gone,
                status if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() => {
                    Answer::Later(format!("{path}: {status}"))
                }
                _ => Answer::Refused(format!("{path}: {status}: {}", String::from_utf8_lossy(&answer))),
            },
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        content: &str,
        body: Vec<u8>,
    ) -> Result<(StatusCode, Vec<u8>)> {
        let request = Request::builder()
            .method(method.clone())
            .uri(path)
            .header(http::header::CONTENT_TYPE, content)
            .header(
                http::header::ACCEPT,
                if method == Method::PATCH { METADATA } else { JSON },
            )
            .body(Body::from(body))?;
        let response = self.client.send(request).await?;
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes().into()))
    }

    /// The answer to a GET, whole.
    pub(super) async fn get(&self, path: &str) -> Result<Vec<u8>> {
        match tokio::time::timeout(TIMEOUT, self.exchange(Method::GET, path, JSON, Vec::new())).await {
            Err(_) => bail!("{path}: no answer within {} s", TIMEOUT.as_secs()),
            Ok(answer) => match answer? {
                (status, body) if status.is_success() => Ok(body),
                (status, body) => bail!("{path}: {status}: {}", String::from_utf8_lossy(&body)),
            },
        }
    }

    /// The answer to a GET, as it comes.
    pub(super) async fn stream(&self, path: &str) -> Result<Response<Body>> {
        let request = Request::get(path)
            .header(http::header::ACCEPT, JSON)
            .body(Body::empty())?;
        self.client.send(request).await.with_context(|| path.to_owned())
    }
}
