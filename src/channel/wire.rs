//! Requests of channels: over which connection, with which credentials, how far a redirect is followed, and how much of an
//! answer is read.
//!
//! Credentials are bound to an origin (scheme, host and port). They never follow a redirect to another one, nor come back
//! from there.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH, LOCATION,
};
use http::{Method, StatusCode, Version};
use reqwest::Response;
use reqwest::redirect::Policy;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::de::DeserializeOwned;
use url::{Origin, Url};

use super::access::Credentials;
use super::memory::{Key, key};
use super::{ChannelError, SetupError};
use crate::proxy::ProxyEnv;

/// How long the connection may take of the time that a request has.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection is kept for the next page.
const NEXT_PAGE: Duration = Duration::from_secs(5);
/// How many redirects are followed, where any are.
const MAX_HOPS: usize = 5;
/// How many sets of authorities have clients of their own at a time.
const MAX_CLIENTS: usize = 16;

/// Connections, for each set of authorities that is trusted.
pub(super) struct Wire {
    user_agent: String,
    proxies: ProxyEnv,
    roots: RootCertStore,
    usual: Clients,
    others: Mutex<Vec<(Key, Clients)>>,
}

/// The two ways to ask.
#[derive(Clone)]
pub(super) struct Clients {
    /// A question every few minutes: a connection kept until then would be dead.
    pub(super) once: reqwest::Client,
    /// One page after the other.
    pub(super) pages: reqwest::Client,
}

impl Wire {
    pub(super) fn new(ca_files: &[PathBuf], user_agent: &str, proxies: ProxyEnv) -> Result<Self, SetupError> {
        let roots = roots(ca_files)?;
        Ok(Self {
            usual: clients(roots.clone(), user_agent, &proxies)?,
            user_agent: user_agent.to_owned(),
            proxies,
            roots,
            others: Mutex::default(),
        })
    }

    /// The clients that trust these authorities (PEM) too.
    pub(super) fn clients(&self, ca: Option<&str>) -> Result<Clients, ChannelError> {
        let Some(ca) = ca else {
            return Ok(self.usual.clone());
        };
        let key = key([ca]);
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = others.iter().position(|(other, _)| *other == key) {
            // The last one was used last.
            let known = others.remove(known);
            let clients = known.1.clone();
            others.push(known);
            return Ok(clients);
        }
        let mut roots = self.roots.clone();
        add_authorities(&mut roots, ca).map_err(ChannelError::Authorities)?;
        let clients = clients(roots, &self.user_agent, &self.proxies)
            .map_err(|_| ChannelError::Authorities("TLS cannot be set up with them"))?;
        if others.len() >= MAX_CLIENTS {
            others.remove(0);
        }
        others.push((key, clients.clone()));
        Ok(clients)
    }
}

fn clients(roots: RootCertStore, user_agent: &str, proxies: &ProxyEnv) -> Result<Clients, SetupError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let client = |kept: usize| {
        let (tls, proxies) = (tls.clone(), proxies.clone());
        reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .user_agent(user_agent)
            .redirect(Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_max_idle_per_host(kept)
            .pool_idle_timeout(NEXT_PAGE)
            .no_proxy()
            .proxy(reqwest::Proxy::custom(move |url| proxies.proxy_for(url).cloned()))
            .build()
            .map_err(SetupError::Http)
    };
    Ok(Clients {
        once: client(0)?,
        pages: client(1)?,
    })
}

fn roots(ca_files: &[PathBuf]) -> Result<RootCertStore, SetupError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().cloned());
    for path in ca_files {
        let certificates = certificates(path)?;
        if certificates.is_empty() {
            return Err(SetupError::NoCertificate { path: path.clone() });
        }
        for certificate in certificates {
            roots
                .add(certificate)
                .map_err(|source| SetupError::BadCertificate {
                    path: path.clone(),
                    source,
                })?;
        }
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, SetupError> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|source| SetupError::CaFile {
            path: path.to_owned(),
            source,
        })
}

/// Adds the authorities of a PEM text.
pub(super) fn add_authorities(roots: &mut RootCertStore, pem: &str) -> Result<(), &'static str> {
    let mut any = false;
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|_| "this is not PEM")?;
        roots
            .add(certificate)
            .map_err(|_| "a certificate is none that can be trusted")?;
        any = true;
    }
    if any {
        Ok(())
    } else {
        Err("there is no certificate")
    }
}

/// A credential as a header, for one origin.
#[derive(Clone)]
pub(super) struct Auth {
    origin: Origin,
    name: HeaderName,
    value: HeaderValue,
}

impl Auth {
    /// For the origin of a URL.
    pub(super) fn new(credentials: &Credentials, url: &Url) -> Result<Self, ChannelError> {
        let (name, value) = match credentials {
            Credentials::Bearer(token) => (AUTHORIZATION, format!("Bearer {token}")),
            Credentials::Basic { username, password } => {
                if username.contains(':') {
                    return Err(ChannelError::Credentials("a user name has no ':'"));
                }
                let pair = STANDARD.encode(format!("{username}:{password}"));
                (AUTHORIZATION, format!("Basic {pair}"))
            }
            Credentials::Header { name, value } => {
                let name = HeaderName::from_bytes(name.as_bytes());
                (
                    name.map_err(|_| ChannelError::Credentials("the header has a name that none can have"))?,
                    value.clone(),
                )
            }
        };
        let mut value = HeaderValue::from_str(&value)
            .map_err(|_| ChannelError::Credentials("no header can hold them"))?;
        value.set_sensitive(true);
        Ok(Self {
            origin: url.origin(),
            name,
            value,
        })
    }

    /// The request with the credential, if it goes to where that belongs.
    pub(super) fn on(&self, request: reqwest::RequestBuilder, url: &Url) -> reqwest::RequestBuilder {
        if self.is_for(url) {
            request.header(&self.name, &self.value)
        } else {
            request
        }
    }

    pub(super) fn is_for(&self, url: &Url) -> bool {
        self.origin == url.origin()
    }
}

/// A request whose redirects are followed.
pub(super) struct Request<'a> {
    pub(super) method: Method,
    pub(super) url: &'a Url,
    pub(super) accept: &'static str,
    /// What was read before.
    pub(super) etag: Option<&'a str>,
    pub(super) auth: Option<&'a Auth>,
    /// Another header.
    pub(super) header: Option<(&'static str, &'static str)>,
    /// How many bytes of the answer are read.
    pub(super) limit: usize,
}

/// An answer, with its body where it is a success.
pub(super) struct Answer {
    /// Who gave it.
    pub(super) url: Url,
    pub(super) status: StatusCode,
    pub(super) version: Version,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Answer {
    /// A header as text.
    pub(super) fn header(&self, name: impl http::header::AsHeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// `HTTP/1.1 404 Not Found`
    pub(super) fn line(&self) -> String {
        status_line(self.version, self.status)
    }

    /// The body as JSON. What people would read instead is told as such.
    pub(super) fn json<T: DeserializeOwned>(&self, what: &'static str) -> Result<T, ChannelError> {
        serde_json::from_slice(&self.body).map_err(|_| {
            let kind = self.header(CONTENT_TYPE);
            if super::answer::is_html_type(kind) || super::answer::is_html_text(&self.body) {
                ChannelError::Html
            } else {
                ChannelError::NotJson(what)
            }
        })
    }
}

/// Sends a request and reads its answer, in the time that one request has.
pub(super) async fn fetch(
    http: &reqwest::Client,
    timeout: Duration,
    request: &Request<'_>,
) -> Result<Answer, ChannelError> {
    tokio::time::timeout(timeout, follow(http, request))
        .await
        .unwrap_or(Err(ChannelError::TimedOut(timeout)))
}

async fn follow(http: &reqwest::Client, request: &Request<'_>) -> Result<Answer, ChannelError> {
    let mut url = request.url.clone();
    let mut auth = request.auth;
    for _ in 0..=MAX_HOPS {
        let mut builder = http
            .request(request.method.clone(), url.clone())
            .header(ACCEPT, request.accept);
        if let Some(etag) = request.etag {
            builder = builder.header(IF_NONE_MATCH, etag);
        }
        if let Some((name, value)) = request.header {
            builder = builder.header(name, value);
        }
        // Once it has gone elsewhere, no answer from there can call it back.
        auth = auth.filter(|auth| auth.is_for(&url));
        if let Some(auth) = auth {
            builder = auth.on(builder, &url);
        }
        let response = send(builder).await?;
        if !is_redirect(response.status()) {
            return read(url, response, request.limit).await;
        }
        url = hop(&url, &response)?;
    }
    Err(ChannelError::Redirects)
}

/// A server may close a kept connection at the moment when the next page is asked for: that is asked once more
/// (RFC 9112, 9.3.1).
async fn send(request: reqwest::RequestBuilder) -> Result<Response, ChannelError> {
    let again = request.try_clone();
    match (request.send().await, again) {
        (Err(error), Some(again)) if !error.is_connect() => again.send().await,
        (answer, _) => answer,
    }
    .map_err(|error| ChannelError::failed(&error))
}

/// What has a Location.
pub(super) fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Where a redirect leads.
pub(super) fn hop(url: &Url, response: &Response) -> Result<Url, ChannelError> {
    let location = response
        .headers()
        .get(LOCATION)
        .ok_or(ChannelError::NoLocation(response.status().as_u16()))?;
    let location = location.to_str().ok().filter(|location| !location.is_empty());
    let mut next = location
        .and_then(|location| url.join(location).ok())
        .filter(|next| matches!(next.scheme(), "http" | "https"))
        .ok_or(ChannelError::BadLocation)?;
    if url.scheme() == "https" && next.scheme() == "http" {
        return Err(ChannelError::Insecure);
    }
    // Somebody else's credentials are not ours to send.
    if next.set_username("").is_err() || next.set_password(None).is_err() {
        return Err(ChannelError::BadLocation);
    }
    Ok(next)
}

/// Reads an answer, and its body where it is a success.
pub(super) async fn read(url: Url, mut response: Response, limit: usize) -> Result<Answer, ChannelError> {
    let (status, version) = (response.status(), response.version());
    let headers = std::mem::take(response.headers_mut());
    let mut body = Vec::new();
    if status.is_success() {
        let told = response
            .content_length()
            .and_then(|length| usize::try_from(length).ok());
        if told.is_some_and(|told| told > limit) {
            return Err(ChannelError::TooLarge(limit));
        }
        body.reserve_exact(told.unwrap_or_default());
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| ChannelError::failed(&error))?
        {
            if body.len() + chunk.len() > limit {
                return Err(ChannelError::TooLarge(limit));
            }
            body.extend_from_slice(&chunk);
        }
    }
    Ok(Answer {
        url,
        status,
        version,
        headers,
        body: body.into(),
    })
}

/// `HTTP/1.1 404 Not Found`. The reason phrase is the standard's: what the server says need not be fit to be shown.
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
