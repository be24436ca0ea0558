//! Where versions come from: a channel is a URL that says which releases there are.
//!
//! There are four kinds: a redirect that ends in the version (S45, S46), the list of a channel server, the releases of a
//! repository on GitHub, the tags of a repository in a registry. Nothing that a channel says is believed before it is looked
//! at: a page for people is no version, and what could be neither an image tag nor a label value is refused. When to ask, and
//! what a Plan does with the answer, is decided elsewhere; only [`accept`] says which move a Plan never makes.

pub mod access;
mod answer;
mod error;
mod github;
mod kind;
mod link;
mod listed;
mod memory;
pub mod named;
mod oci;
pub mod offer;
#[cfg(test)]
mod tests;
pub mod version;
mod wire;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderValue, IF_NONE_MATCH};
use sha2::{Digest as _, Sha256};
use url::Url;

pub use access::{Access, AccessError, Credentials, DockerConfig};
pub use error::{ChannelError, SetupError};
pub use named::Named;
pub use offer::{Offer, Release};
pub use version::{Refused, accept};

use crate::proxy::ProxyEnv;
use kind::Kind;
use memory::{Memory, Page, key};
use wire::{Auth, Wire, is_redirect};

/// How long a request of a channel may take, from the connection to the end of what is read of its answer.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// How many times as long all requests of a channel may take together: its pages, and the tokens for them.
const PASS: u32 = 4;

/// Header with the UID of the namespace `kube-system`, which names the cluster (S45).
const HEADER_CLUSTER_ID: &str = "x-suc-cluster-id";
/// Header with the version that the Plan has now (S45).
const HEADER_LATEST_VERSION: &str = "x-suc-latest-version";

/// A question to a channel.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The channel's URL.
    pub url: &'a str,
    /// The version that a Plan of it has now, munged. A channel server is told.
    pub latest_version: Option<&'a str>,
    /// With what it is asked.
    pub access: &'a Access,
}

/// Asks channels. Clones share connections and what they remember of answers.
#[derive(Clone)]
pub struct ChannelClient(Means);

/// What a channel answers without being asked: its URL and the version that the Plan has come in.
type Answer = dyn Fn(&str, Option<&str>) -> Result<Offer, ChannelError> + Send + Sync;

#[derive(Clone)]
enum Means {
    Http(Http),
    Given(Arc<Answer>),
}

#[derive(Clone)]
struct Http {
    wire: Arc<Wire>,
    memory: Arc<Memory>,
    cluster_id: Option<HeaderValue>,
    timeout: Duration,
}

impl fmt::Debug for ChannelClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What it remembers is nobody's business.
        f.debug_struct("ChannelClient").finish_non_exhaustive()
    }
}

impl ChannelClient {
    /// A client that trusts the public certificate authorities and those in `ca_files` (PEM), and nothing that it finds
    /// on the host. `cluster_id` is the UID of the namespace `kube-system`.
    pub fn new(
        ca_files: &[PathBuf],
        cluster_id: &str,
        user_agent: &str,
        proxies: ProxyEnv,
    ) -> Result<Self, SetupError> {
        let cluster_id = Some(cluster_id)
            .filter(|id| !id.is_empty())
            .and_then(|id| HeaderValue::from_str(id).ok());
        Ok(Self(Means::Http(Http {
            wire: Arc::new(Wire::new(ca_files, user_agent, proxies)?),
            memory: Arc::default(),
            cluster_id,
            timeout: TIMEOUT,
        })))
    }

    /// One that asks nobody: `answer` says what each channel would offer. The digest of an image is made up,
    /// and is the same each time.
    pub fn given(
        answer: impl Fn(&str, Option<&str>) -> Result<Offer, ChannelError> + Send + Sync + 'static,
    ) -> Self {
        Self(Means::Given(Arc::new(answer)))
    }

    /// Asks a channel what it offers.
    pub async fn offer(&self, ask: Ask<'_>) -> Result<Offer, ChannelError> {
        match &self.0 {
            Means::Http(http) => http.offer(ask).await,
            Means::Given(answer) => answer(ask.url, ask.latest_version),
        }
    }

    /// The digest that the tag of an image stands for now, such as `sha256:…`: that of the index, where there is one, so that
    /// it is the same for every architecture. An image that has a digest has that one, and nobody is asked. Only the pull
    /// secrets and authorities of `access` are used.
    pub async fn digest(&self, image: &str, access: &Access) -> Result<String, ChannelError> {
        match &self.0 {
            Means::Http(http) => http.in_time(http.digest_of(image, access)).await,
            Means::Given(_) => Ok(format!("sha256:{}", hex::encode(Sha256::digest(image)))),
        }
    }

    /// Asks the channel at `url` for its version and gives it with `+` as `-`. `latest_version` is what the Plan has
    /// now, munged; the channel is told.
    pub async fn resolve(&self, url: &str, latest_version: Option<&str>) -> Result<String, ChannelError> {
        self.release(url, latest_version)
            .await
            .map(|release| version::munge(&release))
    }

    /// Asks as [`resolve`](Self::resolve) does, and gives the version as it was released, with its `+`. Of several it is
    /// the newest.
    pub async fn release(&self, channel: &str, latest_version: Option<&str>) -> Result<String, ChannelError> {
        let ask = Ask {
            url: channel,
            latest_version,
            access: &Access::default(),
        };
        let offer = self.offer(ask).await?;
        let newest = offer.newest().map(|release| release.version.clone());
        newest.ok_or(ChannelError::NoRelease("the channel has no release"))
    }
}

impl Http {
    async fn offer(&self, ask: Ask<'_>) -> Result<Offer, ChannelError> {
        let kind = Kind::parse(ask.url, ask.access.ca.is_some())?;
        let asking = async {
            match &kind {
                Kind::Redirect(url) => self.server(ask, url, None).await,
                Kind::Listed(url, id) => self.server(ask, url, Some(id)).await,
                Kind::Github(github) => self.github(github, ask.access).await,
                Kind::Oci(repository) => self.tags(repository, ask.access).await,
            }
        };
        self.in_time(asking).await
    }

    async fn in_time<T>(
        &self,
        asking: impl Future<Output = Result<T, ChannelError>>,
    ) -> Result<T, ChannelError> {
        let timeout = self.timeout * PASS;
        tokio::time::timeout(timeout, asking)
            .await
            .unwrap_or(Err(ChannelError::TimedOut(timeout)))
    }

    /// Asks a channel server: the channel itself, or the list in which it is.
    async fn server(&self, ask: Ask<'_>, url: &Url, id: Option<&str>) -> Result<Offer, ChannelError> {
        let access = ask.access;
        let http = self.wire.clients(access.ca.as_deref())?.once;
        let mut target = url.clone();
        let mut identity = vec![url.as_str(), access.ca.as_deref().unwrap_or_default()];
        let mut parts = Vec::new();
        let mut auth = None;
        if let Some(credentials) = &access.credentials {
            // Two who ask are one too many.
            if target.set_username("").is_err() || target.set_password(None).is_err() {
                return Err(ChannelError::NotAUrl);
            }
            auth = Some(Auth::new(credentials, &target)?);
            parts = credentials.parts();
        }
        identity.extend(parts.iter().map(String::as_str));
        let mut request = http.get(target.clone());
        if let Some(cluster) = &self.cluster_id {
            request = request.header(HEADER_CLUSTER_ID, cluster);
        }
        if let Some(version) = ask.latest_version.filter(|version| !version.is_empty()) {
            request = request.header(HEADER_LATEST_VERSION, version);
        }
        if let Some(auth) = auth {
            request = auth.on(request, &target);
        }
        let page_key = key(identity);
        let known = id.and_then(|_| self.memory.page(&page_key));
        if let Some(etag) = known.as_deref().and_then(Page::etag) {
            request = request.header(IF_NONE_MATCH, etag);
        }
        let asking = async {
            let response = request
                .send()
                .await
                .map_err(|error| ChannelError::failed(&error))?;
            let Some(id) = id.filter(|_| !is_redirect(response.status())) else {
                return answer::version(url, response).await.map(Offer::one);
            };
            let answer = wire::read(target, response, listed::MAX_BODY).await?;
            let latest = |answer: &wire::Answer| listed::latest(answer, id);
            let (page, _) = self.memory.settle(page_key, known.as_deref(), &answer, latest)?;
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

/// Whether a channel is a repository in a registry.
pub fn is_registry(channel: &str) -> bool {
    matches!(Kind::parse(channel, false), Ok(Kind::Oci(_)))
}

/// The host whose credentials a channel is asked with, with its port where it names one.
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

/// Looks at the URL of a channel.
///
/// # Errors
/// It is none, or none that can be asked.
pub fn check_url(channel: &str) -> Result<(), ChannelError> {
    Kind::parse(channel, false).map(drop)
}
