//! Where versions come from: a channel is a URL whose redirect ends in the version (S45, S46).
//!
//! Nothing that a channel says is believed before it is looked at: no redirect is followed, a page for people is not a
//! version, and what could be neither an image tag nor a label value is refused. When to ask, and what a Plan does with
//! the answer, is decided elsewhere; only [`accept`] says which move a Plan never makes.

mod answer;
#[cfg(test)]
mod tests;
pub mod version;

use std::error::Error as StdError;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::header::HeaderValue;
use reqwest::redirect::Policy;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use url::Url;

pub use version::{Refused, accept};

use crate::proxy::ProxyEnv;

/// How long a channel may take, from the connection to the end of what is read of its answer.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// How long the connection may take of that.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Header with the UID of the namespace `kube-system`, which names the cluster (S45).
const HEADER_CLUSTER_ID: &str = "x-suc-cluster-id";
/// Header with the version that the Plan has now (S45).
const HEADER_LATEST_VERSION: &str = "x-suc-latest-version";

/// Asks channels.
#[derive(Clone)]
pub struct ChannelClient(Means);

/// What a channel answers without being asked: its URL and the version that the Plan has come in.
type Answer = dyn Fn(&str, Option<&str>) -> Result<String, ChannelError> + Send + Sync;

#[derive(Clone)]
enum Means {
    Http(Http),
    Given(Arc<Answer>),
}

impl fmt::Debug for ChannelClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Means::Http(http) => http.fmt(f),
            Means::Given(_) => f.write_str("answers that are given"),
        }
    }
}

#[derive(Clone, Debug)]
struct Http {
    client: reqwest::Client,
    cluster_id: Option<HeaderValue>,
    timeout: Duration,
}

/// Why channels cannot be asked at all.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error("CA file {path:?} cannot be read")]
    CaFile {
        path: PathBuf,
        source: rustls::pki_types::pem::Error,
    },
    #[error("CA file {path:?} has no certificate")]
    NoCertificate { path: PathBuf },
    #[error("CA file {path:?} has a certificate that cannot be used")]
    BadCertificate { path: PathBuf, source: rustls::Error },
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
    #[error("the HTTP client cannot be set up")]
    Http(#[source] reqwest::Error),
}

/// Why a channel gave no version. The text goes to status and events: it is short, and it holds neither the URL nor
/// anything else of the answer than the version that was refused, since both may hold secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    #[error("the channel is not a URL such as https://update.k3s.io/v1-release/channels/stable")]
    NotAUrl,
    #[error("the channel's URL has the scheme {0:?}; only http and https are asked")]
    Scheme(String),
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The innermost cause: connection refused, no such host, a certificate that is not trusted.
    #[error("the channel cannot be asked: {0}")]
    Failed(String),
    /// As system-upgrade-controller says it: `unexpected response: HTTP/1.1 404 Not Found`.
    #[error("unexpected response: {0}")]
    Unexpected(String),
    #[error("the redirect ({0}) has no Location")]
    NoLocation(u16),
    #[error("the redirect's Location is not a URL")]
    BadLocation,
    #[error("the redirect's Location has a query: that is a login page or a search, not a version")]
    LocationWithQuery,
    #[error("the redirect leads back to the channel, not to a version")]
    Back,
    #[error("the answer is an HTML page, not a version")]
    Html,
    #[error(transparent)]
    Refused(#[from] Refused),
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
        let tls =
            rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()?
                .with_root_certificates(roots(ca_files)?)
                .with_no_client_auth();
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .user_agent(user_agent)
            .redirect(Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            // A channel is asked every few minutes: a connection kept until then would be dead.
            .pool_max_idle_per_host(0)
            .no_proxy()
            .proxy(reqwest::Proxy::custom(move |url| proxies.proxy_for(url).cloned()))
            .build()
            .map_err(SetupError::Http)?;
        let cluster_id = Some(cluster_id)
            .filter(|id| !id.is_empty())
            .and_then(|id| HeaderValue::from_str(id).ok());
        Ok(Self(Means::Http(Http {
            client: http,
            cluster_id,
            timeout: TIMEOUT,
        })))
    }

    /// One that asks nobody: `answer` says what each channel would, as it was released.
    pub fn given(
        answer: impl Fn(&str, Option<&str>) -> Result<String, ChannelError> + Send + Sync + 'static,
    ) -> Self {
        Self(Means::Given(Arc::new(answer)))
    }

    /// Asks the channel at `url` for its version and gives it with `+` as `-`. `latest_version` is what the Plan has
    /// now, munged; the channel is told.
    pub async fn resolve(&self, url: &str, latest_version: Option<&str>) -> Result<String, ChannelError> {
        self.release(url, latest_version)
            .await
            .map(|release| version::munge(&release))
    }

    /// Asks as [`resolve`](Self::resolve) does, and gives the version as it was released, with its `+`.
    pub async fn release(&self, channel: &str, latest_version: Option<&str>) -> Result<String, ChannelError> {
        match &self.0 {
            Means::Http(http) => http.release(channel, latest_version).await,
            Means::Given(answer) => answer(channel, latest_version),
        }
    }
}

impl Http {
    async fn release(&self, channel: &str, latest_version: Option<&str>) -> Result<String, ChannelError> {
        let url = url(channel)?;
        let mut request = self.client.get(url.clone());
        if let Some(id) = &self.cluster_id {
            request = request.header(HEADER_CLUSTER_ID, id);
        }
        if let Some(version) = latest_version.filter(|version| !version.is_empty()) {
            request = request.header(HEADER_LATEST_VERSION, version);
        }
        let asking = async {
            let response = request.send().await.map_err(|error| failed(&error))?;
            answer::version(&url, response).await
        };
        tokio::time::timeout(self.timeout, asking)
            .await
            .unwrap_or(Err(ChannelError::TimedOut(self.timeout)))
    }
}

/// The URL of a channel.
///
/// # Errors
/// It is none, or none that can be asked.
pub fn url(channel: &str) -> Result<Url, ChannelError> {
    let url = Url::parse(channel.trim()).map_err(|_| ChannelError::NotAUrl)?;
    if matches!(url.scheme(), "http" | "https") {
        Ok(url)
    } else {
        Err(ChannelError::Scheme(url.scheme().to_owned()))
    }
}

fn failed(error: &reqwest::Error) -> ChannelError {
    // Only the innermost cause: the outer ones name the URL, which may hold a password.
    let mut cause: &dyn StdError = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    let text = if std::ptr::eq(cause, error) {
        "the request cannot be sent".to_owned()
    } else {
        cause.to_string()
    };
    ChannelError::Failed(text)
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
