//! Channels: URLs that offer releases.
//!
//! There are four kinds: a redirect to the version (S45, S46), the list of a channel server, the releases of a GitHub
//! repository, the tags of a repository in a registry. Responses are validated: an HTML page is not a version, and a
//! version must be both an image tag and a label value. When to poll, and which version a Plan takes, is decided
//! elsewhere; only [`accept`](refit_base::version::tag::accept) lists the moves that a Plan never makes.

#![forbid(unsafe_code)]

pub mod access;
mod answer;
mod body;
mod cache;
mod check;
mod error;
mod github;
pub mod hosts;
mod items;
mod kind;
mod link;
mod listed;
mod oci;
#[cfg(test)]
mod tests;
mod transport;
pub mod webhook;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderValue, IF_NONE_MATCH};
use sha2::{Digest as _, Sha256};
use url::Url;

pub use access::{Access, AccessError, Credentials, DockerConfig};
pub use error::{ChannelError, SetupError};
pub use hosts::{HostPattern, Hosts};
pub use webhook::{WebhookAnswer, WebhookError, WebhookRequest, Webhooks};

use body::ReadingLimit;
use cache::{Page, ResponseCache, key};
use kind::Kind;
use refit_api::{Check, CheckAnswer};
use refit_base::proxy::ProxyEnv;
use refit_base::version::Offer;
use refit_base::version::tag::munge;
use transport::{Auth, HttpTransport, is_redirect, refuse_plain};

/// Time limit of a request, from the connection to the end of its response.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit of all requests of a poll together, for pages and tokens, in multiples of [`TIMEOUT`].
const MAX_REQUEST_TIMEOUTS: u32 = 4;

/// Time limit of all requests for an image that is only asked whether it exists: a roll-out waits so long in a cluster
/// without a way to the registry.
pub const IMAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Header with the UID of the namespace `kube-system`, which identifies the cluster (S45).
const HEADER_CLUSTER_ID: &str = "x-suc-cluster-id";
/// Header with the current version of the Plan (S45).
const HEADER_LATEST_VERSION: &str = "x-suc-latest-version";

#[derive(Clone, Copy, Debug)]
pub struct ChannelRequest<'a> {
    pub url: &'a str,
    /// Current version of one of its Plans, as a tag, for the channel server.
    pub latest_version: Option<&'a str>,
    /// Credentials and authorities.
    pub access: &'a Access,
}

/// Polls channels. Clones share connections and caches.
#[derive(Clone)]
pub struct ChannelClient(Backend);

/// A fixed offer, by URL and current version.
type Answer = dyn Fn(&str, Option<&str>) -> Result<Offer, ChannelError> + Send + Sync;

/// A fixed answer of each check.
type Checks = dyn Fn(&Check) -> CheckAnswer + Send + Sync;

/// A fixed digest of each image.
type Images = dyn Fn(&str) -> Result<String, ChannelError> + Send + Sync;

#[derive(Clone)]
enum Backend {
    Http(Http),
    Static(FixedAnswers),
}

#[derive(Clone)]
struct FixedAnswers {
    offers: Arc<Answer>,
    checks: Arc<Checks>,
    images: Option<Arc<Images>>,
}

#[derive(Clone)]
struct Http {
    transport: Arc<HttpTransport>,
    cache: Arc<ResponseCache>,
    reading: ReadingLimit,
    cluster_id: Option<HeaderValue>,
    timeout: Duration,
}

impl fmt::Debug for ChannelClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The cache may contain private data.
        f.debug_struct("ChannelClient").finish_non_exhaustive()
    }
}

impl ChannelClient {
    /// A client that trusts the public certificate authorities and those in `ca_files` (PEM), but not those of the
    /// host. `cluster_id` is the UID of the namespace `kube-system`. Asks only `hosts`.
    ///
    /// # Errors
    /// Fails if a CA file cannot be used, or the TLS or HTTP client cannot be set up.
    pub fn new(
        ca_files: &[PathBuf],
        cluster_id: &str,
        user_agent: &str,
        proxies: ProxyEnv,
        hosts: Hosts,
    ) -> Result<Self, SetupError> {
        let cluster_id = Some(cluster_id)
            .filter(|id| !id.is_empty())
            .and_then(|id| HeaderValue::from_str(id).ok());
        Ok(Self(Backend::Http(Http {
            transport: Arc::new(HttpTransport::new(ca_files, user_agent, proxies, hosts)?),
            cache: Arc::default(),
            reading: ReadingLimit::default(),
            cluster_id,
            timeout: TIMEOUT,
        })))
    }

    /// A client without a network: `answer` returns the offer of each channel. Digests of images are made up, but
    /// reproducible.
    pub fn with_answers(
        answer: impl Fn(&str, Option<&str>) -> Result<Offer, ChannelError> + Send + Sync + 'static,
    ) -> Self {
        let passes = |_: &Check| CheckAnswer {
            passed: true,
            message: "assumed to pass".to_owned(),
        };
        Self(Backend::Static(FixedAnswers {
            offers: Arc::new(answer),
            checks: Arc::new(passes),
            images: None,
        }))
    }

    /// A client without a network also for checks.
    #[must_use]
    pub fn with_checks(self, checks: impl Fn(&Check) -> CheckAnswer + Send + Sync + 'static) -> Self {
        match self.0 {
            Backend::Static(fixed) => Self(Backend::Static(FixedAnswers {
                checks: Arc::new(checks),
                ..fixed
            })),
            http @ Backend::Http(_) => Self(http),
        }
    }

    /// A client without a network also for images.
    #[must_use]
    pub fn with_images(
        self,
        images: impl Fn(&str) -> Result<String, ChannelError> + Send + Sync + 'static,
    ) -> Self {
        match self.0 {
            Backend::Static(fixed) => Self(Backend::Static(FixedAnswers {
                images: Some(Arc::new(images)),
                ..fixed
            })),
            http @ Backend::Http(_) => Self(http),
        }
    }

    /// Whether it can tell whether an image exists: without a network only if it was given the answers.
    pub fn knows_images(&self) -> bool {
        match &self.0 {
            Backend::Http(_) => true,
            Backend::Static(fixed) => fixed.images.is_some(),
        }
    }

    /// Asks the server of a check. Whatever goes wrong is an answer that does not pass.
    pub async fn check(&self, check: &Check, access: &Access) -> CheckAnswer {
        match &self.0 {
            Backend::Http(http) => check::ask(&http.transport, check, access).await,
            Backend::Static(fixed) => (fixed.checks)(check),
        }
    }

    /// Requests to receivers of notifications, with the connections, proxies, authorities and hosts of channels; `None`
    /// without a network.
    pub fn webhooks(&self) -> Option<Webhooks> {
        match &self.0 {
            Backend::Http(http) => Some(Webhooks::new(Arc::clone(&http.transport))),
            Backend::Static(_) => None,
        }
    }

    /// Polls a channel.
    ///
    /// # Errors
    /// Fails if the URL is invalid or not allowed, the credentials cannot be used, the server does not answer in time or
    /// answers with an error, or its answer has no version.
    pub async fn offer(&self, query: ChannelRequest<'_>) -> Result<Offer, ChannelError> {
        match &self.0 {
            Backend::Http(http) => http.offer(query).await,
            Backend::Static(fixed) => (fixed.offers)(query.url, query.latest_version),
        }
    }

    /// The current digest of an image, such as `sha256:…`: that of the index if there is one, which is the same for all
    /// architectures. If the image has a digest, that one, without a request. Uses only the pull secrets and
    /// authorities of `access`.
    ///
    /// # Errors
    /// Fails if the image is invalid, or its registry gives no digest.
    pub async fn digest(&self, image: &str, access: &Access) -> Result<String, ChannelError> {
        match &self.0 {
            Backend::Http(http) => http.with_timeout(http.digest_of(image, access)).await,
            Backend::Static(fixed) => match &fixed.images {
                Some(images) => images(image),
                None => Ok(format!("sha256:{}", hex::encode(Sha256::digest(image)))),
            },
        }
    }

    /// As [`digest`](Self::digest), but without a long wait for a registry that does not answer, to learn whether the
    /// image exists.
    ///
    /// # Errors
    /// Fails as `digest`. [`ChannelError::about_image`] says what that means for the image.
    pub async fn look_up(&self, image: &str, access: &Access) -> Result<String, ChannelError> {
        tokio::time::timeout(IMAGE_TIMEOUT, self.digest(image, access))
            .await
            .unwrap_or(Err(ChannelError::TimedOut(IMAGE_TIMEOUT)))
    }

    /// The version of the channel at `url`, with `-` instead of `+`. `latest_version` is the Plan's current version as
    /// a tag, for the channel server.
    ///
    /// # Errors
    /// Fails as [`release`](Self::release).
    pub async fn resolve(&self, url: &str, latest_version: Option<&str>) -> Result<String, ChannelError> {
        self.release(url, latest_version)
            .await
            .map(|release| munge(&release))
    }

    /// As [`resolve`](Self::resolve), but the version as released, with its `+`. Of several, the newest.
    ///
    /// # Errors
    /// Fails if the channel is invalid, does not answer, or gives no version.
    pub async fn release(&self, channel: &str, latest_version: Option<&str>) -> Result<String, ChannelError> {
        let query = ChannelRequest {
            url: channel,
            latest_version,
            access: &Access::default(),
        };
        let offer = self.offer(query).await?;
        let newest = offer.newest().map(|release| release.version.clone());
        newest.ok_or(ChannelError::NoRelease("the channel has no release"))
    }
}

impl Http {
    async fn offer(&self, query: ChannelRequest<'_>) -> Result<Offer, ChannelError> {
        let kind = Kind::parse(query.url, query.access.ca.is_some())?;
        let asking = async {
            match &kind {
                Kind::Redirect(url) => self.server(query, url, None).await,
                Kind::Listed(url, id) => self.server(query, url, Some(id)).await,
                Kind::Github(github) => self.github(github, query.access).await,
                Kind::Oci(repository) => self.tags(repository, query.access).await,
            }
        };
        self.with_timeout(asking).await
    }

    async fn with_timeout<T>(
        &self,
        asking: impl Future<Output = Result<T, ChannelError>>,
    ) -> Result<T, ChannelError> {
        let timeout = self.timeout * MAX_REQUEST_TIMEOUTS;
        tokio::time::timeout(timeout, asking)
            .await
            .unwrap_or(Err(ChannelError::TimedOut(timeout)))
    }

    /// Polls a channel server: a redirect, or a list.
    async fn server(
        &self,
        query: ChannelRequest<'_>,
        url: &Url,
        id: Option<&str>,
    ) -> Result<Offer, ChannelError> {
        let access = query.access;
        let clients = self.transport.clients(access.ca.as_deref())?;
        clients.hosts.check(url)?;
        let mut target = url.clone();
        let mut identity = vec![url.as_str(), access.ca.as_deref().unwrap_or_default()];
        let mut parts = Vec::new();
        let mut auth = None;
        if let Some(credentials) = &access.credentials {
            // The URL and the Secret must not both have credentials.
            if target.set_username("").is_err() || target.set_password(None).is_err() {
                return Err(ChannelError::NotAUrl);
            }
            auth = Some(Auth::new(credentials, &target)?);
            parts = credentials.parts();
        }
        identity.extend(parts.iter().map(String::as_str));
        if !target.username().is_empty() || target.password().is_some() {
            // reqwest sends user and password of a URL as `Authorization: Basic`, so the rule for Secrets applies to
            // them, too.
            refuse_plain(&target)?;
        }
        let mut request = clients.once.get(target.clone());
        if let Some(cluster) = &self.cluster_id {
            request = request.header(HEADER_CLUSTER_ID, cluster);
        }
        if let Some(version) = query.latest_version.filter(|version| !version.is_empty()) {
            request = request.header(HEADER_LATEST_VERSION, version);
        }
        if let Some(auth) = auth {
            request = auth.on(request, &target);
        }
        let page_key = key(identity);
        // Only pages of lists are kept: a redirect has no body.
        let known = id.and_then(|_| self.cache.page(&page_key));
        if let Some(etag) = known.as_deref().and_then(Page::etag) {
            request = request.header(IF_NONE_MATCH, etag);
        }
        let asking = async {
            let response = request
                .send()
                .await
                .map_err(|error| ChannelError::failed(&error))?;
            // A server that redirects has no list. Its Location is read as that of a plain channel.
            let Some(id) = id.filter(|_| !is_redirect(response.status())) else {
                return answer::version(url, response).await.map(Offer::one);
            };
            let id = id.to_owned();
            let latest = move |body: &mut body::Body| listed::latest(body, &id);
            let read = transport::read(target, response, listed::MAX_BODY, latest);
            let (answer, releases) = read.await?;
            let (page, _) = self.cache.store(page_key, known.as_deref(), &answer, releases)?;
            let releases = page.releases.clone();
            Ok(Offer {
                releases,
                partial: None,
            })
        };
        tokio::time::timeout(self.timeout, asking)
            .await
            .unwrap_or(Err(ChannelError::TimedOut(self.timeout)))
    }
}

/// Adds `https://` to a URL without a scheme, such as `update.k3s.io/v1-release/channels/stable`.
pub fn with_scheme(channel: &str) -> String {
    if kind::lacks_scheme(channel) {
        format!("https://{}", channel.trim())
    } else {
        channel.to_owned()
    }
}

/// The URL whose error lists the names of a channel server, after its redirect gave this error: it has no such channel, or
/// the URL names none.
pub fn list_of(channel: &str, error: &ChannelError) -> Option<String> {
    let Ok(Kind::Redirect(mut url)) = Kind::parse(channel, false) else {
        return None;
    };
    let name = match error {
        ChannelError::List => String::new(),
        ChannelError::Unexpected(status) if status.contains(" 404 ") => {
            let segments = url.path_segments()?;
            let name = segments.rev().find(|segment| !segment.is_empty())?.to_owned();
            url.path_segments_mut().ok()?.pop_if_empty().pop();
            name
        }
        _ => return None,
    };
    url.set_fragment(Some(&name));
    Some(url.into())
}

/// The host to which a channel's credentials belong, with its port if it has one.
pub fn host(channel: &str) -> Option<String> {
    let of = |url: &Url| {
        let host = url.host_str()?;
        Some(
            url.port()
                .map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")),
        )
    };
    match Kind::parse(channel, false).ok()? {
        Kind::Redirect(url) | Kind::Listed(url, _) => of(&url),
        Kind::Github(github) => of(&github.web),
        Kind::Oci(repository) => Some(repository.host),
    }
}

/// Checks the URL of a channel.
///
/// # Errors
/// Fails if the URL is invalid or of no known kind.
pub fn check_url(channel: &str) -> Result<(), ChannelError> {
    Kind::parse(channel, false).map(drop)
}
