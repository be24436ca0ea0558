//! The client: polls channels, asks registries about images, and servers about checks; or gives fixed answers, without a
//! network.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::access::Access;
use super::check;
use super::error::{ChannelError, SetupError};
use super::hosts::Hosts;
use super::kind::Kind;
use super::poller::{Poller, within};
use super::transport::HttpTransport;
use super::webhook::Webhooks;
use refit_api::{Check, CheckAnswer};
use refit_base::proxy::ProxyEnv;
use refit_base::version::Offer;

/// Time limit of all requests for an image that is only asked whether it exists: a roll-out waits so long in a cluster
/// without a way to the registry.
const IMAGE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug)]
pub struct ChannelRequest<'a> {
    pub url: &'a str,
    /// Current version of one of its Plans, as a tag, for the channel server.
    pub latest_version: Option<&'a str>,
    /// Credentials and authorities.
    pub access: &'a Access,
}

/// Polls channels. Clones share connections, and what they keep between polls.
#[derive(Clone)]
pub struct ChannelClient(pub(super) Backend);

/// A fixed offer, by URL and current version.
type Answer = dyn Fn(&str, Option<&str>) -> Result<Offer, ChannelError> + Send + Sync;

/// A fixed answer of each check.
type Checks = dyn Fn(&Check) -> CheckAnswer + Send + Sync;

/// A fixed digest of each image.
type Images = dyn Fn(&str) -> Result<String, ChannelError> + Send + Sync;

#[derive(Clone)]
pub(super) enum Backend {
    Http(Poller),
    Static(FixedAnswers),
}

#[derive(Clone)]
pub(super) struct FixedAnswers {
    offers: Arc<Answer>,
    checks: Arc<Checks>,
    images: Option<Arc<Images>>,
}

impl fmt::Debug for ChannelClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What it keeps may be private.
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
        let transport = HttpTransport::new(ca_files, user_agent, proxies, hosts)?;
        Ok(Self(Backend::Http(Poller::new(transport, cluster_id))))
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
    pub fn with_checks(mut self, checks: impl Fn(&Check) -> CheckAnswer + Send + Sync + 'static) -> Self {
        if let Backend::Static(fixed) = &mut self.0 {
            fixed.checks = Arc::new(checks);
        }
        self
    }

    /// A client without a network also for images.
    #[must_use]
    pub fn with_images(
        mut self,
        images: impl Fn(&str) -> Result<String, ChannelError> + Send + Sync + 'static,
    ) -> Self {
        if let Backend::Static(fixed) = &mut self.0 {
            fixed.images = Some(Arc::new(images));
        }
        self
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
            Backend::Http(poller) => check::ask(&poller.transport, check, access).await,
            Backend::Static(fixed) => (fixed.checks)(check),
        }
    }

    /// Requests to receivers of notifications, with the connections, proxies, authorities and hosts of channels; `None`
    /// without a network.
    pub fn webhooks(&self) -> Option<Webhooks> {
        match &self.0 {
            Backend::Http(poller) => Some(Webhooks::new(Arc::clone(&poller.transport))),
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
            Backend::Http(poller) => offer(poller, query).await,
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
            Backend::Http(poller) => poller.poll(poller.digest(image, access)).await,
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
        within(IMAGE_TIMEOUT, Box::pin(self.digest(image, access))).await
    }
}

async fn offer(poller: &Poller, query: ChannelRequest<'_>) -> Result<Offer, ChannelError> {
    let (access, latest) = (query.access, query.latest_version);
    let kind = Kind::parse(query.url, access.ca.is_some())?;
    let asking = async {
        match &kind {
            Kind::Redirect(url) => poller.server(url, None, latest, access).await,
            Kind::Listed(url, id) => poller.server(url, Some(id), latest, access).await,
            Kind::Github(github) => poller.github(github, access).await,
            Kind::Oci(repository) => poller.tags(repository, access).await,
        }
    };
    poller.poll(asking).await
}
