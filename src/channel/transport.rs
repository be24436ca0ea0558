//! Requests of channels: connections, redirects and size limits.
//!
//! After a redirect to another origin, credentials are not sent, nor again if a redirect leads back.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, IF_NONE_MATCH, LOCATION};
use http::{Method, StatusCode, Version};
use reqwest::Response;
use reqwest::redirect::Policy;
use rustls::RootCertStore;
use url::Url;

use super::body::{self, Body};
use super::credentials::Auth;
use super::error::{ChannelError, SetupError};
use super::hosts::Hosts;
use super::tls::{self, Identity, add_authorities};
use refit_api::digest::digest;
use refit_base::proxy::ProxyEnv;

/// Digest of URL, credentials and authorities.
pub(super) type Key = [u8; 32];

/// Time limit of a connection, as a part of that of a request.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection is kept for the next page.
const NEXT_PAGE: Duration = Duration::from_secs(5);
/// Maximum number of redirects, if they are followed.
const MAX_HOPS: usize = 5;
/// Maximum number of clients for different sets of authorities.
const MAX_CLIENTS: usize = 16;

/// Connections, by set of trusted authorities.
pub(super) struct HttpTransport {
    user_agent: String,
    proxies: ProxyEnv,
    roots: RootCertStore,
    hosts: Arc<Hosts>,
    usual: Clients,
    others: Mutex<Vec<(Key, Clients)>>,
}

/// Clients for the two kinds of polls.
#[derive(Clone)]
pub(super) struct Clients {
    /// For single requests: a kept connection would be closed before the next poll.
    pub(super) once: reqwest::Client,
    /// Keeps its connection between the pages of one list.
    pub(super) pages: reqwest::Client,
    /// The hosts that may be asked.
    pub(super) hosts: Arc<Hosts>,
}

impl HttpTransport {
    pub(super) fn new(
        ca_files: &[PathBuf],
        user_agent: &str,
        proxies: ProxyEnv,
        hosts: Hosts,
    ) -> Result<Self, SetupError> {
        let (roots, hosts) = (tls::roots(ca_files)?, Arc::new(hosts));
        Ok(Self {
            usual: clients(roots.clone(), None, user_agent, &proxies, &hosts)?,
            user_agent: user_agent.to_owned(),
            proxies,
            roots,
            hosts,
            others: Mutex::default(),
        })
    }

    /// The clients that also trust these authorities (PEM).
    pub(super) fn clients(&self, ca: Option<&str>) -> Result<Clients, ChannelError> {
        self.clients_as(ca, None)
    }

    /// As `clients`, with a client certificate.
    pub(super) fn clients_as(
        &self,
        ca: Option<&str>,
        identity: Option<&Identity>,
    ) -> Result<Clients, ChannelError> {
        let ca = ca.unwrap_or_default();
        let [chain, private] = identity.map_or_else(Default::default, |identity| {
            [&identity.chain, &identity.key].map(hex::encode)
        });
        if ca.is_empty() && identity.is_none() {
            return Ok(self.usual.clone());
        }
        let key = digest([ca, &chain, &private]);
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = others.iter().position(|(other, _)| *other == key) {
            // Ordered by last use.
            let known = others.remove(known);
            let clients = known.1.clone();
            others.push(known);
            return Ok(clients);
        }
        let mut roots = self.roots.clone();
        if !ca.is_empty() {
            add_authorities(&mut roots, ca).map_err(ChannelError::Authorities)?;
        }
        let clients = clients(roots, identity, &self.user_agent, &self.proxies, &self.hosts).map_err(
            |_| match identity {
                Some(_) => ChannelError::Credentials("TLS cannot be set up with the client certificate"),
                None => ChannelError::Authorities("TLS cannot be set up with them"),
            },
        )?;
        if others.len() >= MAX_CLIENTS {
            others.remove(0);
        }
        others.push((key, clients.clone()));
        Ok(clients)
    }
}

fn clients(
    roots: RootCertStore,
    identity: Option<&Identity>,
    user_agent: &str,
    proxies: &ProxyEnv,
    hosts: &Arc<Hosts>,
) -> Result<Clients, SetupError> {
    let tls = tls::config(roots, identity)?;
    let client = |kept: usize| {
        let (tls, proxies) = (tls.clone(), proxies.clone());
        reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .user_agent(user_agent)
            // `follow` checks the host of each hop, and drops the credentials.
            .redirect(Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_max_idle_per_host(kept)
            .pool_idle_timeout(NEXT_PAGE)
            // A name may resolve to the address of a metadata service, and to another address at each request.
            .dns_resolver(Arc::clone(hosts))
            // reqwest would read the environment by its own rules. `ProxyEnv` follows those of Go.
            .no_proxy()
            .proxy(reqwest::Proxy::custom(move |url| proxies.proxy_for(url).cloned()))
            .build()
            .map_err(SetupError::Http)
    };
    Ok(Clients {
        once: client(0)?,
        pages: client(1)?,
        hosts: Arc::clone(hosts),
    })
}

/// A request that follows redirects.
pub(super) struct Request<'a> {
    pub(super) method: Method,
    pub(super) url: &'a Url,
    pub(super) accept: &'static str,
    /// Entity tag of the page as it was last read.
    pub(super) etag: Option<&'a str>,
    pub(super) auth: Option<&'a Auth>,
    pub(super) header: Option<(&'static str, &'static str)>,
    /// Maximum size of the body.
    pub(super) limit: usize,
}

/// A response, without its body.
pub(super) struct Answer {
    /// URL that answered.
    pub(super) url: Url,
    pub(super) status: StatusCode,
    pub(super) version: Version,
    pub(super) headers: HeaderMap,
    /// Bytes of the body that were read.
    pub(super) length: usize,
}

impl Answer {
    pub(super) fn header(&self, name: impl http::header::AsHeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// `HTTP/1.1 404 Not Found`
    pub(super) fn line(&self) -> String {
        status_line(self.version, self.status)
    }
}

/// Sends a request and reads its response, within the time limit of a request. The parser reads the body of a success.
pub(super) async fn fetch<T: Send + 'static>(
    clients: &Clients,
    timeout: Duration,
    request: &Request<'_>,
    parser: impl FnOnce(&mut Body) -> Result<T, ChannelError> + Send + 'static,
) -> Result<(Answer, Option<T>), ChannelError> {
    tokio::time::timeout(timeout, follow(clients, request, parser))
        .await
        .unwrap_or(Err(ChannelError::TimedOut(timeout)))
}

async fn follow<T: Send + 'static>(
    clients: &Clients,
    request: &Request<'_>,
    parser: impl FnOnce(&mut Body) -> Result<T, ChannelError> + Send + 'static,
) -> Result<(Answer, Option<T>), ChannelError> {
    let mut url = request.url.clone();
    let mut auth = request.auth;
    for _ in 0..=MAX_HOPS {
        clients.hosts.check(&url)?;
        let mut builder = clients
            .pages
            .request(request.method.clone(), url.clone())
            .header(ACCEPT, request.accept);
        if let Some(etag) = request.etag {
            builder = builder.header(IF_NONE_MATCH, etag);
        }
        if let Some((name, value)) = request.header {
            builder = builder.header(name, value);
        }
        // After a redirect to another origin, the credentials are dropped for good.
        auth = auth.filter(|auth| auth.is_for(&url));
        if let Some(auth) = auth {
            builder = auth.on(builder, &url);
        }
        let response = send(builder).await?;
        if !is_redirect(response.status()) {
            return read(url, response, request.limit, parser).await;
        }
        url = hop(&url, &response)?;
    }
    Err(ChannelError::Redirects)
}

/// A server may close a kept connection while the next request is sent: send that once more (RFC 9112, 9.3.1).
async fn send(request: reqwest::RequestBuilder) -> Result<Response, ChannelError> {
    let again = request.try_clone();
    match (request.send().await, again) {
        (Err(error), Some(again)) if !error.is_connect() => again.send().await,
        (answer, _) => answer,
    }
    .map_err(|error| ChannelError::failed(&error))
}

/// Whether the status has a Location.
pub(super) fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// The Location of a redirect, resolved against the URL of the request.
pub(super) fn location(url: &Url, response: &Response) -> Result<Url, ChannelError> {
    let location = response
        .headers()
        .get(LOCATION)
        .ok_or(ChannelError::NoLocation(response.status().as_u16()))?;
    let location = location.to_str().ok().filter(|location| !location.is_empty());
    location
        .and_then(|location| url.join(location).ok())
        .filter(|next| matches!(next.scheme(), "http" | "https"))
        .ok_or(ChannelError::BadLocation)
}

/// The target of a redirect that is followed.
pub(super) fn hop(url: &Url, response: &Response) -> Result<Url, ChannelError> {
    let mut next = location(url, response)?;
    if url.scheme() == "https" && next.scheme() == "http" {
        return Err(ChannelError::Insecure);
    }
    // Credentials in a Location are not sent.
    if next.set_username("").is_err() || next.set_password(None).is_err() {
        return Err(ChannelError::BadLocation);
    }
    Ok(next)
}

/// Reads a response, and its body with a parser if it is a success.
pub(super) async fn read<T: Send + 'static>(
    url: Url,
    mut response: Response,
    limit: usize,
    parser: impl FnOnce(&mut Body) -> Result<T, ChannelError> + Send + 'static,
) -> Result<(Answer, Option<T>), ChannelError> {
    let (status, version) = (response.status(), response.version());
    let headers = std::mem::take(response.headers_mut());
    let mut answer = Answer {
        url,
        status,
        version,
        headers,
        length: 0,
    };
    let mut parsed = None;
    if status.is_success() {
        let content_type = answer.header(CONTENT_TYPE);
        let (value, length) = body::parse(&mut response, content_type, limit, parser).await?;
        (parsed, answer.length) = (Some(value), length);
    }
    Ok((answer, parsed))
}

/// The body up to a limit, and whether it has more.
pub(super) async fn start(response: &mut Response, limit: usize) -> Result<(Vec<u8>, bool), ChannelError> {
    let mut body = Vec::new();
    loop {
        let part = response.chunk().await;
        let Some(part) = part.map_err(|error| ChannelError::failed(&error))? else {
            return Ok((body, false));
        };
        let room = limit - body.len();
        if part.len() > room {
            body.extend_from_slice(&part[..room]);
            return Ok((body, true));
        }
        body.extend_from_slice(&part);
    }
}

/// `HTTP/1.1 404 Not Found`, with the standard's reason phrase, because the server's may contain anything.
pub(super) fn status_line(version: Version, status: StatusCode) -> String {
    let version = if version == Version::HTTP_2 {
        "HTTP/2.0".to_owned()
    } else {
        format!("{version:?}")
    };
    let line = format!(
        "{version} {} {}",
        status.as_u16(),
        status.canonical_reason().unwrap_or_default()
    );
    line.trim_end().to_owned()
}
