//! Requests to receivers of notifications and to Alertmanager. Hosts, proxies and authorities are those of channels.
//!
//! No redirect is followed: a notification, and the credentials with it, reach the server that the Secret names or none.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Method, StatusCode};
use jiff::Timestamp;
use url::Url;

use super::access::Access;
use super::credentials::Auth;
use super::error::ChannelError;
use super::hosts::is_loopback;
use super::transport::{HttpTransport, is_redirect, start};

/// Time limit of a request, from the connection to the end of its answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Sends requests. Clones share connections.
#[derive(Clone)]
pub struct Webhooks(Arc<HttpTransport>);

pub struct WebhookRequest<'a> {
    pub method: Method,
    pub url: Url,
    pub access: &'a Access,
    pub content_type: Option<&'a str>,
    pub headers: &'a [(&'static str, String)],
    pub body: Vec<u8>,
    /// Bytes of the answer to read; it is an error if a success has more, unless this is 0.
    pub limit: usize,
    /// Whether the URL may be plain HTTP to another host.
    pub allow_plain_http: bool,
}

#[derive(Debug)]
pub struct WebhookAnswer {
    pub status: StatusCode,
    /// How long to wait before the next request, if the server says so.
    pub retry_after: Option<Duration>,
    pub body: Vec<u8>,
}

/// Why a request got no answer. Contains no URL, because that of a webhook is its password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    #[error("the URL is plain http, which everyone on the way can read; use https, or set allowPlainHTTP")]
    Plain,
    #[error("{0}")]
    Host(ChannelError),
    #[error("the credentials cannot be sent: {0}")]
    Credentials(ChannelError),
    #[error("no answer within {TIMEOUT:?}")]
    TimedOut,
    #[error("the request failed: {0}")]
    Failed(String),
    #[error("the server redirects ({0}), which is not followed; correct the URL")]
    Redirect(u16),
    #[error("the answer has more than {} KiB", .0 >> 10)]
    TooLarge(usize),
}

impl Webhooks {
    pub(super) fn new(transport: Arc<HttpTransport>) -> Self {
        Self(transport)
    }

    /// Sends a request once.
    ///
    /// # Errors
    /// Fails if it is not sent, or gets no usable answer. Any other status than that of a redirect is an answer.
    pub async fn send(
        &self,
        request: WebhookRequest<'_>,
        now: Timestamp,
    ) -> Result<WebhookAnswer, WebhookError> {
        tokio::time::timeout(TIMEOUT, self.exchange(request, now))
            .await
            .unwrap_or(Err(WebhookError::TimedOut))
    }

    async fn exchange(
        &self,
        request: WebhookRequest<'_>,
        now: Timestamp,
    ) -> Result<WebhookAnswer, WebhookError> {
        let url = request.url;
        if url.scheme() != "https" && !is_loopback(&url) && !request.allow_plain_http {
            return Err(WebhookError::Plain);
        }
        let clients = self
            .0
            .clients(request.access.ca.as_deref())
            .map_err(WebhookError::Credentials)?;
        clients.hosts.check(&url).map_err(WebhookError::Host)?;
        let mut builder = clients
            .once
            .request(request.method, url.clone())
            .body(request.body);
        if let Some(content_type) = request.content_type {
            builder = builder.header(CONTENT_TYPE, content_type);
        }
        for (name, value) in request.headers {
            builder = builder.header(HeaderName::from_static(name), value);
        }
        if let Some(credentials) = &request.access.credentials {
            // An entry that allows plain HTTP allows it for credentials, too.
            let auth = Auth::anonymous(credentials, &url).map_err(WebhookError::Credentials)?;
            builder = auth.on(builder, &url);
        }
        let sent = builder.send().await;
        let mut response = sent.map_err(|error| failed(ChannelError::failed(&error)))?;
        let status = response.status();
        if is_redirect(status) {
            return Err(WebhookError::Redirect(status.as_u16()));
        }
        let retry_after = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| pause(value, now));
        let mut body = Vec::new();
        if request.limit > 0 && status.is_success() {
            let (read, has_more) = start(&mut response, request.limit).await.map_err(failed)?;
            if has_more {
                return Err(WebhookError::TooLarge(request.limit));
            }
            body = read;
        }
        Ok(WebhookAnswer {
            status,
            retry_after,
            body,
        })
    }
}

fn failed(error: ChannelError) -> WebhookError {
    match error {
        ChannelError::Failed(why) => WebhookError::Failed(why),
        other => WebhookError::Failed(other.to_string()),
    }
}

/// `Retry-After`: seconds, or a date (RFC 9110, 10.2.3).
fn pause(value: &HeaderValue, now: Timestamp) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::DateTimeParser::new()
        .parse_timestamp(text)
        .ok()?;
    Some(Duration::try_from(date.duration_since(now)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_says_in_seconds_or_with_a_date_when_to_ask_again() {
        let now: Timestamp = "2026-01-01T09:00:00Z".parse().unwrap();
        let pause = |text: &'static str| pause(&HeaderValue::from_static(text), now);
        assert_eq!(pause("120"), Some(Duration::from_secs(120)));
        assert_eq!(
            pause("Thu, 01 Jan 2026 09:01:00 GMT"),
            Some(Duration::from_secs(60))
        );
        assert_eq!(pause("Thu, 01 Jan 2026 08:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(pause("soon"), None);
        assert_eq!(pause("-1"), None);
    }
}
